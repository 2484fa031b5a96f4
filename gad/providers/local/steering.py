"""What a small model may do next: wrong turns that it is known for are left out of the grammar.

It guesses what is in a file it was told about, patches what it has not read, and repeats a call for ever. So a
file that the user names is read first, patching comes after the first success, and a call that was made twice
in a row is not offered a third time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User, canonical
from gad.core.ports import ToolSchema
from gad.providers.local.grammar import READ, grammar, look_grammar
from gad.providers.local.protocol import said_by

PATCH = "file_patch"
NAMED = 6
"""How many named files the first look may choose from."""
_FILE = re.compile(r"(?<![\w/.:@~-])[\w~/][\w./-]*\.(?:[A-Za-z]\w{1,4}|[chr])(?![\w/@])")


def next_grammar(tools: Sequence[ToolSchema], messages: Sequence[Message]) -> str:
    """Return the grammar of the next action."""
    if any(tool.name == READ for tool in tools) and (paths := first_look(messages)):
        return look_grammar(paths)
    without = {repeated_tool(messages)}
    if not any(not result.is_error for result in _results(messages)):
        without.add(PATCH)
    return grammar([tool for tool in tools if tool.name not in without])


def first_look(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the files that the newest message names, when it is a person's and none of them was looked at yet."""
    last = messages[-1] if messages else None
    if not isinstance(last, User) or not all(isinstance(part, Text) for part in last.parts):
        return ()
    named = tuple(dict.fromkeys(_FILE.findall(said_by(last))))[:NAMED]
    known = {call.arguments.get("path") for call in _calls(messages)}
    return () if known.intersection(named) else named


def repeated_tool(messages: Sequence[Message]) -> str:
    """Return the tool that was called twice in a row with the same arguments, or ""."""
    last = _calls(messages)[-2:]
    same = (
        len(last) == 2 and last[0].name == last[1].name and canonical(last[0].arguments) == canonical(last[1].arguments)
    )
    return last[-1].name if same and not last[-1].problem else ""


def failures_in_a_row(messages: Sequence[Message]) -> int:
    """Return how many of the newest tool results in a row are failures."""
    count = 0
    for result in reversed(_results(messages)):
        if not result.is_error:
            break
        count += 1
    return count


def _results(messages: Sequence[Message]) -> list[ToolResult]:
    users = (message for message in messages if isinstance(message, User))
    return [part for message in users for part in message.parts if isinstance(part, ToolResult)]


def _calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for message in messages if isinstance(message, Assistant) for call in message.calls]
