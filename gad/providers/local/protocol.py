"""Say a request in plain chat messages, and read the model's reply back.

The rendering is append-only: what was sent once is sent again byte for byte, so the server evaluates only
what is new. Prompt evaluation costs about 20 ms a token on two cores, which is why everything here is terse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User
from gad.core.ports import ToolSchema
from gad.providers.local.grammar import ANSWER, BLOCKS, FENCE, offered

RESULT_LIMIT = 2400
"""Characters of one tool result that the model is shown: its head and its tail."""
_NOT_THERE = "no such file"
_DIRECTORY = re.compile(r"[^\n]* is a directory: (.*)", re.DOTALL)
"""Errors of the tools that are no mistakes: what is not there can be made, and a directory is listed."""
AFTER_ERROR = "That failed. Correct the cause and try again."

_PREAMBLE = re.compile(r"\A\[[^\n]*; cwd ([^\n]*)\]\n\n")
"""The line that opens a session (date, directory): a small model looks for its task in it, and goes astray."""

_CONTROL = re.compile(r"<\|(?=\w+\|>)")
"""How the words begin by which the model is told who speaks: its server reads them in any text."""

_HOW = """\
You do the user's task on this machine, one action at a time. Every reply is exactly one action: its name on the \
first line, then its parameters. After each result, reply with the next action.
If you know the answer without looking at anything on this machine, answer at once.
Never guess what is in a file or what a command prints: look. Do every part of the task: a program that is to be run \
is written to its file first and then run; to correct a program, change its file. When all is done, the action is \
`answer`: the result in one or two sentences.

Actions:
"""
_WORDS = {
    "file_read": "see the text in a file",
    "file_patch": "change a piece of the text in a file",
    "file_write": "write a text file or a program",
    "code_run": "run a command in bash (list, search, sort, copy, rename, delete, run a program) "
    "or a script in python (compute, count, convert; standard library only)",
}
"""What a small model is told of the tools it knows; a schema's own first sentence describes any other."""
HIDDEN = frozenset({"update_working_checkpoint", "ask_user", "start_long_term_update", "web_scan", "web_execute_js"})
"""Tools that are not offered: every further choice is one more wrong choice. A question can be the answer, and a page
is more than a small model can read."""


def offer(tools: Sequence[ToolSchema]) -> list[ToolSchema]:
    """Return the tools that the model is offered."""
    return [tool for tool in tools if tool.name not in HIDDEN]


def system_text(tools: Sequence[ToolSchema]) -> str:
    """Return the system message: how to act, and the tools. The same bytes for every session."""
    return _HOW + "".join(map(_describe, tools)) + f"{ANSWER}: the final reply to the user\n"


def _describe(tool: ToolSchema) -> str:
    shown = ", ".join(_parameter(*parameter) for parameter in offered(tool))
    return f"{tool.name}({shown}): {_WORDS.get(tool.name) or tool.description.split('. ')[0].rstrip('.')}\n"


def _parameter(name: str, schema: Mapping[str, Any], required: bool) -> str:
    kind = "=" + "|".join(map(str, schema["enum"])) if "enum" in schema else ""
    return f"{name}{kind}{'' if required else '?'}"


def render_messages(messages: Sequence[Message], anchor: str = "") -> list[Message]:
    """Return the conversation as plain text messages that alternate, for a model without tool calling."""
    rendered: list[Message] = []
    for message in messages:
        if isinstance(message, Assistant):
            rendered.append(Assistant((Text(_plain(_said(message))),)))
            continue
        rendered.append(User((Text(_plain("\n".join(_told(part) for part in message.parts))),)))
        if len(rendered) >= 4 and all(map(_all_failed, message.parts)) and rendered[-2] == rendered[-4]:
            del rendered[-4:-2]  # the same mistake twice in view is an example to follow: show it once
    if anchor and rendered and isinstance(last := rendered[-1], User):
        text = "".join(part.text for part in last.parts if isinstance(part, Text))
        rendered[-1] = User((Text(f"{text}\n{_plain(anchor)}"),))
    return rendered


def _plain(text: str) -> str:
    """Return text in which nothing is a word of control: `<|im_start|>` would end the message and begin another's."""
    return _CONTROL.sub("<| ", text)


def _all_failed(part: ToolResult | Text) -> bool:
    return isinstance(part, ToolResult) and part.is_error


def _said(message: Assistant) -> str:
    calls = message.calls
    if not calls:
        return f"{ANSWER}\n{message.text}"
    return "\n".join(write_call(call.name, call.arguments) for call in calls)


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in the protocol's form: plain lines first, then blocks."""
    lines = [name]
    for key, value in sorted(arguments.items(), key=lambda item: item[0] in BLOCKS):
        if key in BLOCKS:
            lines += [f"{key}:", FENCE, str(value).removesuffix("\n"), FENCE]
        else:
            lines.append(f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines)


def _told(part: ToolResult | Text) -> str:
    if isinstance(part, Text):
        return said_by(User((part,)))
    if part.status == "error" and (directory := _DIRECTORY.match(part.output)):
        return f"[a directory]\n{_shorten(directory[1])}"
    shown = f"[{'done' if part.status == 'ok' else part.status}]\n{_shorten(part.output)}".rstrip()
    blamed = part.status == "error" and not part.output.startswith(_NOT_THERE)
    return f"{shown}\n{AFTER_ERROR}" if blamed else shown


def said_by(message: User) -> str:
    """Return what people said in this message, without the line that opens a session."""
    return "\n".join(_PREAMBLE.sub("", part.text) for part in message.parts if isinstance(part, Text))


def next_call_id(messages: Sequence[Message]) -> str:
    """Return an id that no call of this conversation has: deterministic, counted from 1."""
    taken = {call.id for message in messages if isinstance(message, Assistant) for call in message.calls}
    number = len(taken) + 1
    while f"call-{number}" in taken:
        number += 1
    return f"call-{number}"


def working_directory(messages: Sequence[Message]) -> str:
    """Return the directory that the session's opening line names, or ""."""
    first = messages[0].parts[0] if messages and messages[0].parts else None
    found = _PREAMBLE.match(first.text) if isinstance(first, Text) else None
    return found[1] if found else ""


def _shorten(text: str) -> str:
    if len(text) <= RESULT_LIMIT:
        return text
    half = RESULT_LIMIT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def parse(reply: str, tools: Sequence[ToolSchema], call_id: str, *, cut: bool = False) -> tuple[Text | ToolCall, ...]:
    """Read one action. What is no action is an answer; a call that cannot be read carries its `problem`.

    `cut` says that the reply ended at the output limit: a call is then never complete.
    """
    head, _, rest = reply.lstrip().partition("\n")
    name = head.strip().rstrip(":")
    if name == ANSWER:
        return (Text(rest.strip()),)
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        return (Text(reply.strip()),)
    arguments, problem = _arguments(rest, dict(tool.parameters.get("properties", {})))
    missing = [key for key in tool.parameters.get("required", ()) if key not in arguments]
    if cut:
        problem = "the call was cut off at the output limit: do it in smaller steps"
    elif not problem and missing:
        problem = f"missing: {', '.join(missing)}"
    return (ToolCall(call_id, name, {} if problem else arguments, problem),)


def _arguments(text: str, schemas: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], str]:
    found: dict[str, Any] = {}
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        key, colon, value = lines[at].partition(":")
        key, at = key.strip(), at + 1
        if not key and not colon:
            continue
        if not colon or key not in schemas:
            return found, f"not a parameter line: {lines[at - 1][:80]!r}"
        if key not in BLOCKS:
            found[key] = _read_value(value.strip(), schemas[key])
            continue
        if at < len(lines) and lines[at].startswith(FENCE):
            at += 1
        start = at
        while at < len(lines) and lines[at] != FENCE:
            at += 1
        if at == len(lines):
            return found, f"the block of {key} has no end"
        found[key] = "\n".join(lines[start:at]) + ("\n" if key == "content" and at > start else "")
        at += 1
    return found, ""


def _read_value(text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") in (None, "string"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # the argument check says what is wrong with it


class AnswerStream:
    """Pass the answer's text on while it is generated, and nothing of an action."""

    def __init__(self) -> None:
        self._head: str | None = ""
        self._is_answer = False

    def feed(self, delta: str) -> str:
        """Return what of `delta` may be shown to the user."""
        if self._head is None:
            return delta if self._is_answer else ""
        self._head += delta
        first, newline, rest = self._head.partition("\n")
        if not newline:
            return ""
        self._head, self._is_answer = None, first.strip() == ANSWER
        return rest if self._is_answer else ""

    def rest(self, text: str) -> str:
        """Return the message's whole text when none of it has been shown."""
        return "" if self._is_answer else text
