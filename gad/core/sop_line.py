"""How a task names the procedure that does it: by its first line, `task: <sop> key=value ...`, or task.yaml's `sop`."""

from __future__ import annotations

import re

_LINE = re.compile(r"task:[ \t]+([a-z0-9][a-z0-9-]{0,63})((?:[ \t]+[A-Za-z_][A-Za-z0-9_-]*=\S*)*)[ \t]*", re.ASCII)
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*=\S*", re.ASCII)


def sop_of(text: str, named: str | None) -> tuple[str, tuple[str, ...]] | None:
    """Return the SOP that a task is for and its arguments, each `key=value`, or None.

    `named` is task.yaml's; the first line then holds arguments alone, or `task:` with the same name.
    """
    first = text.lstrip().split("\n", 1)[0].rstrip()
    found = _LINE.fullmatch(first)
    if found and named in (None, found[1]):
        return found[1], tuple(found[2].split())
    if named is None:
        return None
    words = first.split()
    return named, tuple(words) if all(map(_ARGUMENT.fullmatch, words)) else ()
