"""Cuts a long text in the middle, and says there how much is gone and where the whole of it is.

Every cut of a tool's result has this one form, so that a cut text can be cut again, and so that a mark is recognised
when a model writes it back in the place of the text that it never saw.
"""

from __future__ import annotations

import re
from itertools import chain

_MARK = re.compile(
    r"\[\.\.\. ([0-9][0-9,]{0,20}) of ([0-9][0-9,]{0,20}) characters cut"
    r"(?:; (?:all of it is|the first ([0-9][0-9,]{0,20}) are) in ([^\n]{1,4096}?))? \.\.\.\]"
)
_OWN_LINE = re.compile(f"\n{_MARK.pattern}\n")
_LINE_MARK = re.compile(r"\[\+[0-9][0-9,]{0,20} characters\]")


def mark(gone: int, total: int, where: str, held: int = 0) -> str:
    """Return the mark that stands for `gone` of `total` characters.

    `where` is the path of the file that holds the whole text, "" when there is none. `held` is 0, or how many
    characters from the beginning that file holds when it does not hold all.
    """
    whole = f"the first {held:,} are" if held else "all of it is"
    return f"[... {gone:,} of {total:,} characters cut{f'; {whole} in {where}' if where else ''} ...]"


def is_cut(text: str) -> bool:
    """Return whether the text holds a whole mark."""
    return _MARK.search(text) is not None


def cut(text: str, limit: int, where: str = "") -> str:
    """Return the text when it has at most `limit` characters, else its head and tail around a mark on its own line.

    The result, the mark included, has at most `limit` characters; where the mark has no room, it is only the head.
    When a text that was cut before is cut shorter, the new mark counts from the whole text, as the former one did.
    """
    if len(text) <= limit:
        return text
    for found in _OWN_LINE.finditer(text):
        gone, told, held = (int((found[group] or "0").replace(",", "")) for group in (1, 2, 3))
        start, end = found.span()
        total = start + gone + len(text) - end
        # The text may also quote a mark that is not its own.
        if found[4] == where if where else told == total:
            first, last = _lengths(total, limit, found[4] or "", held)
            if first <= start and last <= len(text) - end:
                return join_ends(text[:start], text[end:], total, limit, found[4] or "", held)
    return join_ends(text, text, len(text), limit, where)


def join_ends(head: str, tail: str, total: int, limit: int, where: str = "", held: int = 0) -> str:
    """Return the cut form, of at most `limit` characters, of a text of `total` characters.

    `head` and `tail` are its beginning and its end, as much of them as is at hand: `limit` characters are enough.
    `where` and `held` are what the mark says.
    """
    first, last = _lengths(total, limit, where, held)
    if last < 0:
        return head[: max(limit, 0)]
    return f"{head[:first]}\n{mark(total - first - last, total, where, held)}\n{tail[len(tail) - last :]}"


def copied_mark(name: str, text: str, *known: str) -> str:
    """Return why the argument `name` cannot be used: it holds a mark that none of the `known` texts holds; else ""."""
    for found in chain(_MARK.finditer(text), _LINE_MARK.finditer(text)):
        if not any(found[0] in other for other in known):
            where = found[4] if found.re is _MARK else ""
            source = f"the text that it stands for is in {where}" if where else "get the text that it stands for"
            return f"{name} holds a cut mark, {found[0]}: write everything out in full; {source}"
    return ""


def line_mark(gone: int) -> str:
    """Return the mark that ends a line of which the last `gone` characters are not shown."""
    return f"[+{gone:,} characters]"


def _lengths(total: int, limit: int, where: str, held: int) -> tuple[int, int]:
    """Return how many characters of the head and of the tail have room; the tail's are negative where none have."""
    room = limit - len(mark(total, total, where, held)) - len("\n\n")
    return room - room // 2, room // 2
