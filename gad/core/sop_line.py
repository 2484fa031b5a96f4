"""How a task names the procedure that does it: by its first line, `task: <sop> key=value ...`, or task.yaml's `sop`."""

from __future__ import annotations

import re

_LINE = re.compile(r"task:[ \t]+([a-z0-9][a-z0-9-]{0,63})((?:[ \t]+[A-Za-z_][A-Za-z0-9_-]*=\S*)*)[ \t]*", re.ASCII)
_BLANK = " \t\r"
"""What parts the words of a line, and nothing else: an argument may hold any other kind of space."""
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*=\S*", re.ASCII)


def sop_of(text: str, named: str | None) -> tuple[str, tuple[str, ...]] | None:
    """Return the SOP that a task is for and its arguments, each `key=value`, or None.

    `named` is task.yaml's; the first line then holds arguments alone, or `task:` with the same name.
    """
    first = text.lstrip().split("\n", 1)[0].strip(_BLANK)
    found = _LINE.fullmatch(first)
    if found and named in (None, found[1]):
        return found[1], tuple(_words(found[2]))
    if named is None:
        return None
    words = _words(first)
    return named, tuple(words) if all(map(_ARGUMENT.fullmatch, words)) else ()


def _words(line: str) -> list[str]:
    return [word for word in re.split(f"[{_BLANK}]+", line) if word]
