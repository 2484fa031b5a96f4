"""Tool calling in plain text, for models and servers that have none of their own (`tools: text` in gad.yaml).

`TextProvider` wraps a vendor's provider. It writes the calls and results of the history into the messages' text, puts
the tools in front of the anchor, behind all that a vendor can cache, and reads the calls out of the answer's text
(`text_parse` says how). So system text and history are the same bytes from turn to turn.

Text that a tool or a person brought in could hold the protocol's own tags. There, `<` before `tool_use`, `tool_call`
and `tool_result`, closing tags included, is written `&lt;`; in a call's JSON it is written as JSON's own escape for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from gad.core.messages import Assistant, Message, StopReason, Text, Thinking, ToolCall, ToolResult, User
from gad.core.ports import Answer, Request, ToolSchema
from gad.providers.stream import StreamProvider
from gad.providers.text_parse import Piece, parse
from gad.providers.text_stream import TextFilter
from gad.providers.wire import JSON, known_ids, new_id, tool_name

_TAG_START = re.compile(r"<(?=/?tool_(?:use|call|result))", re.IGNORECASE)

_EXAMPLE = '<tool_use>{"name": "...", "arguments": {...}}</tool_use>'
_HOW = f"""\
To use a tool, write this on a line of its own, outside of code blocks, with valid JSON; once for each call:
{_EXAMPLE}
Then end your answer. The results come in the next message, as <tool_result name="...">; never write one yourself.
In the texts that you are given, &lt;tool_ stands for <tool_. An answer without a call ends the task.
The tools; "parameters" is the JSON schema of a tool's arguments:
"""
_REMINDER = "The tools are the same as before and are called in the same way, {example}: {tools}."


class TextProvider:
    """A `gad.core.ports.Provider` that asks `inner` for plain text, and gives and takes tool calls."""

    def __init__(self, inner: StreamProvider) -> None:
        self.model = inner.model
        self._inner = inner

    async def ask(self, request: Request, on_text: Callable[[str], None]) -> Answer:
        """Ask once; see `gad.core.ports.Provider`. A request without tools gets its answer as it is."""
        if not request.tools:
            return await self._inner.ask(_plain(request), on_text)
        shown = TextFilter()

        def show(delta: str) -> None:
            if text := shown.feed(delta):
                on_text(text)

        answer = await self._inner.ask(_plain(request), show)
        message = read_answer(answer.message, request, cut=answer.stop == "length")
        if rest := shown.rest(message.text):
            on_text(rest)
        stop: StopReason = "tools" if message.calls else answer.stop
        return replace(answer, message=message, stop=stop)

    async def close(self) -> None:
        """Release the connections."""
        await self._inner.close()

    async def models(self, seconds: float = 5.0) -> tuple[str, ...]:
        """Return the names of the models the server offers; see `StreamProvider.models`."""
        return await self._inner.models(seconds)

    def render(self, request: Request) -> JSON:
        """Return the request's body."""
        return self._inner.render(_plain(request))


def write_call(name: str, arguments: Mapping[str, object]) -> str:
    """Return a call in the protocol's form."""
    body = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    safe = _TAG_START.sub(r"\\u003c", body)
    return f"<tool_use>{safe}</tool_use>"


def _plain(request: Request) -> Request:
    """Return the request without tools: everything about them is text."""
    names: dict[str, str] = {}
    messages: list[Message] = []
    for message in request.messages:
        if isinstance(message, Assistant):
            names |= {call.id: call.name for call in message.calls}
            messages.append(_said(message))
        else:
            messages.append(User(tuple(_told(part, names) for part in message.parts)))
    last = [_tools_text(request), _escaped(request.anchor)]
    anchor = "\n\n".join(text for text in last if text.strip())
    return replace(request, tools=(), messages=tuple(messages), anchor=anchor)


def _said(message: Assistant) -> Assistant:
    """Return the message with its calls as text, each on a line of its own."""
    parts: list[Thinking | Text] = []
    behind_call = False
    for part in message.parts:
        if isinstance(part, Thinking):
            parts.append(part)
            continue
        text = part.text if isinstance(part, Text) else write_call(part.name, part.arguments)
        if not text.strip():
            continue
        call = isinstance(part, ToolCall)
        if parts and isinstance(last := parts[-1], Text):
            new_line = (call or behind_call) and not last.text.endswith("\n")
            parts[-1] = Text(last.text + "\n" * new_line + text)
        else:
            parts.append(Text(text))
        behind_call = call
    return Assistant(tuple(parts))


def _told(part: ToolResult | Text, names: Mapping[str, str]) -> Text:
    if isinstance(part, Text):
        return replace(part, text=_escaped(part.text))
    name = f' name="{tool_name(names[part.call_id])}"' if part.call_id in names else ""
    return Text(f"<tool_result{name}>\n{_escaped(part.render())}\n</tool_result>")


def _escaped(text: str) -> str:
    return _TAG_START.sub("&lt;", text)


def _tools_text(request: Request) -> str:
    if not request.tools:
        return ""
    if not request.schemas:
        return _REMINDER.format(example=_EXAMPLE, tools=", ".join(map(_signature, request.tools)))
    return _HOW + "\n".join(
        json.dumps(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}, ensure_ascii=False
        )
        for tool in request.tools
    )


def _signature(tool: ToolSchema) -> str:
    """Return a tool's name and parameters: where the schemas are left out, they stand nowhere else in the request."""
    required = tool.parameters.get("required", ())
    shown = (
        key + ("" if key in required else "?") + (f": {'|'.join(map(str, schema['enum']))}" if "enum" in schema else "")
        for key, schema in tool.parameters.get("properties", {}).items()
    )
    return f"{tool.name}({', '.join(shown)})"


def read_answer(said: Assistant, request: Request, *, cut: bool) -> Assistant:
    """Return the model's answer with the calls that its text holds; `cut`: it ended at the output limit.

    Reasoning stays where it stood in the text. Ids follow from the transcript, so they are the same each time.
    """
    pieces = parse(said.text, {tool.name for tool in request.tools}, cut=cut)[::-1]
    ids = _Ids(request)
    parts: list[Thinking | Text | ToolCall] = []
    at = 0
    for part in said.parts:
        match part:
            case Text(text):
                at += len(text)
                while pieces and pieces[-1].start < at:
                    piece = pieces.pop()
                    if piece.calls:
                        parts += [
                            ToolCall(ids.next(call.name), call.name, call.arguments, call.problem)
                            for call in piece.calls
                        ]
                        continue
                    if piece.end > at:
                        pieces.append(Piece(at, piece.end))
                    parts.append(Text(said.text[piece.start : min(piece.end, at)]))
            case ToolCall(call_id, name):  # a server that reads calls by itself, unasked
                parts.append(replace(part, id=ids.kept(call_id, name)))
            case Thinking():
                parts.append(part)
    return Assistant(tuple(parts))


class _Ids:
    """Ids of the calls of one answer, unlike any in the transcript."""

    def __init__(self, request: Request) -> None:
        self._taken = known_ids(request.messages)
        self._turn = len(request.messages)

    def next(self, name: str) -> str:
        """Return a new id."""
        return self.kept("", name)

    def kept(self, call_id: str, name: str) -> str:
        """Return the id that a server gave, or a new one if it gave none or one that is taken."""
        if not call_id or call_id in self._taken:
            call_id = new_id(self._taken, f"{self._turn}:{len(self._taken)}:{name}")
        self._taken.add(call_id)
        return call_id
