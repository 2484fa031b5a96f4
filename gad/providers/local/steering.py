"""What a small model may do next: wrong turns that it is known for are left out of the grammar.

It guesses what is in a file it was told about, patches what it has not read, says that it is done after a mere
look, and repeats a call for ever. So only files that are there are
read or patched; one that the user's question names is read first; patching comes
after the first success; a look alone ends no task that is not a question; and a call that was made twice in a row
is not offered a third time. What such a rule costs where it is wrong is one more turn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User, canonical
from gad.core.ports import ToolSchema
from gad.providers.local.grammar import EXISTING, PATCH, READ, grammar, look_grammar
from gad.providers.local.protocol import said_by, working_directory

NAMED = 6
"""How many named files the first look may choose from."""
_QUESTION = re.compile("[?\uff1f]")
FILES = 200
"""More files than these are too many to list."""
_FILE = re.compile(r"(?<![\w/.:@~-])[\w~/][\w./-]*\.(?:[A-Za-z]\w{1,4}|[chr])(?![\w/@])")


def next_grammar(tools: Sequence[ToolSchema], messages: Sequence[Message]) -> str:
    """Return the grammar of the next action."""
    if any(tool.name == READ for tool in tools) and (paths := first_look(messages)):
        return look_grammar(paths)
    without = {repeated_tool(messages)}
    if not any(not result.is_error for result in _results(messages)):
        without.add(PATCH)
    files = files_in(working_directory(messages))
    last = _calls(messages)[-1:]
    just_read = str(last[0].arguments.get("path")) if last and last[0].name == READ else ""
    if files == ():
        without.update(EXISTING)
    left = [tool for tool in tools if tool.name not in without]
    may_answer = not only_looked(messages) or all(tool.name == READ for tool in left)
    return grammar(left, answer=may_answer, files=files, just_read=just_read)


def files_in(directory: str) -> tuple[str, ...] | None:
    """Return what is below a directory as relative paths, hidden things left out; None when there is too much."""
    if not directory:
        return None
    found: list[str] = []
    for count, (path, directories, names) in enumerate(os.walk(directory)):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        below = os.path.relpath(path, directory)
        found += [
            os.path.normpath(os.path.join(below, name))
            for name in sorted([*names, *directories])
            if not name.startswith(".")
        ]
        if len(found) > FILES or count > FILES:
            return None
    return tuple(filter(str.isprintable, found))


def first_look(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the files there that the newest message names, when it is a question and none was looked at yet."""
    last = messages[-1] if messages else None
    if not isinstance(last, User) or not all(isinstance(part, Text) for part in last.parts):
        return ()
    said = said_by(last)
    named = dict.fromkeys(_FILE.findall(said))
    if not _QUESTION.search(said) or {call.arguments.get("path") for call in _calls(messages)}.intersection(named):
        return ()
    cwd = working_directory(messages)
    there = [path for path in named if cwd and os.path.isfile(os.path.join(cwd, os.path.expanduser(path)))]
    return tuple(there[:NAMED])


def only_looked(messages: Sequence[Message]) -> bool:
    """Say whether the newest thing a person said is no question and nothing but reading was done about it."""
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        if isinstance(message, User) and (said := said_by(message)):
            calls = _calls(messages[number:])
            return bool(calls) and all(call.name == READ for call in calls) and not _QUESTION.search(said)
    return False


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
