"""Find the calls in the text of a model that has no tool calling of its own.

A call is `<tool_use>{"name": ..., "arguments": {...}}</tool_use>`; `<tool_call>` is the same. What counts as a call:

- A tag at the beginning of a line. In the middle of a line, a tag that JSON follows. A tag right behind a backtick is
  inline code and never a call.
- In a fenced code block, a tag is a call only when the block holds nothing but calls, and nothing but calls follows
  to the end of the answer. A block that holds anything else, or that has text behind it, is a quotation.
- An answer that is, as a whole, a JSON object or array of calls, each with a name that was offered and arguments.

A tag may hold one object, several, or an array, with a code fence around them. JSON is read leniently where there is
one meaning only: line breaks in strings, commas and closing brackets too many at an end, and closing brackets that
are missing before the closing tag. All else is a call with a `problem`, for the model to correct.

A closing tag inside a JSON string does not end the call. Without a closing tag, the call ends with its JSON. Results
that the model makes up behind its own calls, and all that follows them, are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from gad.providers.text_json import ARGUMENTS, FENCE, STRING, Found, checked, decode, guess_name, read_value, unreadable

TAGS = ("<tool_use>", "<tool_call>")

_TAG = re.compile(r"<(/?)tool_(?:use|call)>")
OPEN = re.compile("|".join(TAGS))
"""The beginning of a call."""
_CLOSE = re.compile(r"</tool_(?:use|call)>")
_OUTSIDE = re.compile(rf'{STRING}|</?tool_(?:use|call)>|"', re.DOTALL)
"""A JSON string, or a tag that stands in none; a lone quotation mark begins a string without an end."""
_MARK = re.compile(
    rf"^\ {{0,3}}(?P<fence>{FENCE})[^\n`<]*+(?=\n|\Z|<tool_)|(?P<tag><tool_(?:use|call)>)|(?P<result><tool_result\b)",
    re.MULTILINE,
)
"""What may begin something else than text."""
_LEAD = re.compile(rf"\s*+(?:{FENCE}[^\n`{{\[<]*+\s*+)?+(?=[{{\[])")
"""What may stand between a tag and its JSON."""
_FENCE_END = re.compile(rf"\s*+{FENCE}")
BARE = re.compile(rf'\s*+(?:{FENCE}[^\n`{{\[<]*+\s*+)?+(?:\{{\s*+"|\[\s*+\{{)')
"""How an answer begins that may be nothing but JSON."""

MOST_UNREADABLE = 10
"""Calls that cannot be read, after which the rest of an answer is not looked at: each may cost a look at all of it."""

_CUT_OFF = "the call was cut off by the output limit; make it shorter, or do it in several steps"
_TOO_MANY = f"more than {MOST_UNREADABLE} calls could not be read; what follows them was not looked at"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of an answer, `source[start:end]`: text, or the markup of `calls`."""

    start: int
    end: int
    calls: tuple[Found, ...] = ()
    fenced: bool = False


def parse(source: str, offered: Collection[str], *, cut: bool = False) -> list[Piece]:
    """Return an answer's pieces, in order; never raises.

    `offered` are the names of the tools. `cut` says that the answer ended at the output limit. Blank text beside a
    call is in no piece.
    """
    if bare := _bare(source, offered):
        return [Piece(0, len(source), bare)]
    reader = _Reader(source, cut)
    found: list[Piece] = []
    at, end = 0, len(source)
    while mark := _MARK.search(source, at):
        start, at = mark.span()
        if mark["fence"]:
            if group := reader.fenced(mark):
                calls, at = group
                found.append(Piece(start, at, calls, fenced=True))
            else:
                at = _end_of_code(source, mark)
        elif mark["tag"] and _is_call(source, mark):
            calls, at = reader.calls(at)
            found.append(Piece(start, at, calls))
        elif mark["result"] and not all(piece.fenced for piece in found):
            end = start
            break
    return _with_text(source, _without_quotations(source, found, end), end)


def _without_quotations(source: str, found: list[Piece], end: int) -> list[Piece]:
    kept: list[Piece] = []
    text_behind = False
    for piece in reversed(found):
        text_behind = text_behind or bool(source[piece.end : end].strip())
        end = piece.start
        if not (piece.fenced and text_behind):
            kept.append(piece)
    return kept[::-1]


def _with_text(source: str, calls: list[Piece], end: int) -> list[Piece]:
    """Return the calls and the text between them."""
    if not calls:
        return [Piece(0, end)] if end else []
    pieces: list[Piece] = []
    at = 0
    for piece in (*calls, None):
        stop = piece.start if piece else end
        if text := source[at:stop].lstrip():
            pieces.append(Piece(stop - len(text) if at else 0, stop))
        if piece:
            pieces.append(piece)
            at = piece.end
    return pieces


def _is_call(source: str, tag: re.Match[str]) -> bool:
    at = tag.start()
    if source[at - 1 : at] == "`":
        return False
    while at and source[at - 1] != "\n" and source[at - 1].isspace():
        at -= 1
    return at == 0 or source[at - 1] == "\n" or bool(_LEAD.match(source, tag.end()))


def _end_of_code(source: str, fence: re.Match[str]) -> int:
    """Return where an ordinary code block ends."""
    if source.startswith("<", fence.end()):
        return fence.end()  # a tag in inline code of three backticks, not a block
    mark = fence["fence"]
    closing = re.compile(rf"^ {{0,3}}{mark}{mark[0]}*[ \t\r]*$", re.MULTILINE).search(source, fence.end())
    return closing.end() if closing else len(source)


class _Reader:
    """Reads the calls of one answer.

    A call that can be read costs a look at itself, one that cannot may cost a look at all that follows: so there is a
    limit to those.
    """

    def __init__(self, source: str, cut: bool) -> None:
        self._source = source
        self._cut = cut
        self._unreadable = 0

    def fenced(self, fence: re.Match[str]) -> tuple[tuple[Found, ...], int] | None:
        """Return the calls of a code block and where it ends; None when the block holds anything else."""
        source = self._source
        found: tuple[Found, ...] = ()
        at = _skip_space(source, fence.end())
        while tag := OPEN.match(source, at):
            if self._unreadable > MOST_UNREADABLE or not _LEAD.match(source, tag.end()):
                return None
            calls, at = self.calls(tag.end())
            found += calls
            at = _skip_space(source, at)
        closing = re.compile(re.escape(fence["fence"])).match(source, at)
        if not found or not (closing or at == len(source)):
            return None
        return found, closing.end() if closing else at

    def calls(self, start: int) -> tuple[tuple[Found, ...], int]:
        """Return the calls of the tag whose body begins at `start`, and where its markup ends."""
        kept: list[Found] = []
        found, end = self._read(start)
        for call in found:
            self._unreadable += bool(call.problem)
            if self._unreadable > MOST_UNREADABLE:
                return (*kept, Found("", {}, _TOO_MANY)), len(self._source)
            kept.append(call)
        return tuple(kept), end

    def _read(self, start: int) -> tuple[tuple[Found, ...], int]:
        source = self._source
        if one := self._one_value(start):
            return one
        first, outside = _CLOSE.search(source, start), self._outside(start)
        problem = ""
        for close in (first, outside):
            if close and close[0].startswith("</"):
                try:
                    return checked(decode(source[start : close.start()], closed=True)), close.end()
                except ValueError as error:
                    problem = problem or str(error)
        if outside is None and _LEAD.match(source, start):  # perhaps nothing but this call is left
            try:
                return checked(decode(source[start:], closed=False)), len(source)
            except ValueError:
                pass
        if self._cut and (outside is None or first is None):
            return (Found(guess_name(source[start:]), {}, _CUT_OFF),), len(source)
        end = first.start() if first else len(source)
        return (unreadable(source[start:end], problem or "it has no end"),), first.end() if first else end

    def _one_value(self, start: int) -> tuple[tuple[Found, ...], int] | None:
        """Read one JSON value that a closing tag follows, or another tag or anything else when nothing closes it."""
        source = self._source
        lead = _LEAD.match(source, start)
        if not lead:
            return None
        try:
            value, end = read_value(source, lead.end())
        except ValueError:
            return None
        following = _TAG.search(source, end)
        if following and following[1]:
            return None  # it is closed; more may stand before the closing tag
        if lead[0].strip() and (fence := _FENCE_END.match(source, end)):
            end = fence.end()
        if source[end:].strip() == _partial_close(source):
            end = len(source)
        return checked(value if isinstance(value, list) else [value]), end

    def _outside(self, start: int) -> re.Match[str] | None:
        """Return the first tag that stands in no JSON string."""
        for found in _OUTSIDE.finditer(self._source, start):
            if found[0] == '"':
                return None
            if found[0].startswith("<"):
                return found
        return None


def _skip_space(source: str, at: int) -> int:
    while at < len(source) and source[at].isspace():
        at += 1
    return at


def _partial_close(source: str) -> str:
    """Return the part of a closing tag with which the answer ends."""
    at = source.rfind("<")
    tail = source[at:] if at >= 0 else ""
    return tail if tail and any(f"</{tag[1:]}".startswith(tail) for tag in TAGS) else ""


def _bare(source: str, offered: Collection[str]) -> tuple[Found, ...]:
    """Return the calls of an answer that is nothing but JSON; none when it is something else."""
    if not BARE.match(source):
        return ()
    try:
        values = decode(source, closed=False)
    except ValueError:
        return ()
    calls = checked(values)
    meant = all(isinstance(value, dict) and any(key in value for key in ARGUMENTS) for value in values)
    return calls if meant and all(not call.problem and call.name in offered for call in calls) else ()
