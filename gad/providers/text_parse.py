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

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gad.providers.wire import clean, clean_json

_TAGS = ("<tool_use>", "<tool_call>")
_ARGUMENTS = ("arguments", "args", "input", "parameters")

_FENCE = r"(?:`{3,}+|~{3,}+)"  # possessive, here and below: nothing is gained by going back
_TAG = re.compile(r"<(/?)tool_(?:use|call)>")
_OPEN = re.compile("|".join(_TAGS))
_CLOSE = re.compile(r"</tool_(?:use|call)>")
_MARK = re.compile(
    rf"^\ {{0,3}}(?P<fence>{_FENCE})[^\n`<]*+(?=\n|\Z|<tool_)|(?P<tag><tool_(?:use|call)>)|(?P<result><tool_result\b)",
    re.MULTILINE,
)
"""What may begin something else than text."""
_LEAD = re.compile(rf"\s*+(?:{_FENCE}[^\n`{{\[<]*+\s*+)?+(?=[{{\[])")
"""What may stand between a tag and its JSON."""
_FENCE_LINE = re.compile(rf"{_FENCE}[^\n`{{\[<]*+")
_FENCE_END = re.compile(rf"\s*+{_FENCE}")
_BARE = re.compile(rf'\s*+(?:{_FENCE}[^\n`{{\[<]*+\s*+)?+(?:\{{\s*+"|\[\s*+\{{)')
"""How an answer begins that may be nothing but JSON."""
_GAP = re.compile(r"[\s,]*")
_STRING = r'"(?:[^"\\]|\\.)*+"'
_TOKEN = re.compile(_STRING + r'|[\[\]{},"]|\s+|[^\[\]{},"\s]+', re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\\n]{1,64})"')

_CUT_OFF = "the call was cut off by the output limit; make it shorter, or do it in several steps"
_FORM = 'write <tool_use>{"name": ..., "arguments": {...}}</tool_use> with valid JSON'


@dataclass(frozen=True, slots=True)
class Found:
    """A call as it was read. `problem` says why it could not be, as in `ToolCall`."""

    name: str
    arguments: Mapping[str, Any]
    problem: str = ""


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
    found: list[Piece] = []
    at, end = 0, len(source)
    while mark := _MARK.search(source, at):
        start, at = mark.span()
        if mark["fence"]:
            if group := _fenced_calls(source, mark, cut):
                calls, at = group
                found.append(Piece(start, at, calls, fenced=True))
            else:
                at = _end_of_code(source, mark)
        elif mark["tag"] and _is_call(source, mark):
            calls, at = _calls(source, at, cut)
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
    start = tag.start()
    if source[start - 1 : start] == "`":
        return False
    line = source[source.rfind("\n", 0, start) + 1 : start]
    return not line.strip() or bool(_LEAD.match(source, tag.end()))


def _fenced_calls(source: str, fence: re.Match[str], cut: bool) -> tuple[tuple[Found, ...], int] | None:
    """Return the calls of a code block and where it ends; None when the block holds anything else."""
    found: tuple[Found, ...] = ()
    at = _skip_space(source, fence.end())
    while tag := _OPEN.match(source, at):
        if not _LEAD.match(source, tag.end()):
            return None
        calls, at = _calls(source, tag.end(), cut)
        found += calls
        at = _skip_space(source, at)
    closing = re.compile(re.escape(fence["fence"])).match(source, at)
    if not found or not (closing or at == len(source)):
        return None
    return found, closing.end() if closing else at


def _end_of_code(source: str, fence: re.Match[str]) -> int:
    """Return where an ordinary code block ends."""
    if source.startswith("<", fence.end()):
        return fence.end()  # a tag in inline code of three backticks, not a block
    mark = fence["fence"]
    closing = re.compile(rf"^ {{0,3}}{mark}{mark[0]}*[ \t]*$", re.MULTILINE).search(source, fence.end())
    return closing.end() if closing else len(source)


def _skip_space(source: str, at: int) -> int:
    while at < len(source) and source[at].isspace():
        at += 1
    return at


def _calls(source: str, start: int, cut: bool) -> tuple[tuple[Found, ...], int]:
    """Return the calls of the tag whose body begins at `start`, and where its markup ends."""
    broken: tuple[int, str] | None = None
    in_string = False
    for close in _CLOSE.finditer(source, start):
        try:
            return _checked(_decode(source[start : close.start()], closed=True)), close.end()
        except ValueError as error:
            broken = broken or (close.start(), str(error))
            # The closing tag may stand in a string that goes on behind it.
            in_string = _ends_in_string(source[start : close.start()])
            if not in_string:
                break
    if unclosed := _unclosed(source, start):
        return unclosed
    if broken and not (cut and in_string):
        at, problem = broken
        closing = _CLOSE.match(source, at)
        return (_unreadable(source[start:at], problem),), closing.end() if closing else at
    body = source[start:]
    return (Found(_guess_name(body), {}, _CUT_OFF) if cut else _unreadable(body, "it has no end"),), len(source)


def _unclosed(source: str, start: int) -> tuple[tuple[Found, ...], int] | None:
    """Read calls that no tag closes: one JSON value before whatever follows, or else all that is left."""
    lead = _LEAD.match(source, start)
    if not lead:
        return None
    try:
        value, end = _read_value(source, lead.end())
    except ValueError:
        try:
            return _checked(_decode(source[start:], closed=False)), len(source)
        except ValueError:
            return None
    following = _TAG.search(source, end)
    if following and following[1]:
        return None  # it is closed, with something unreadable before the closing tag
    if lead[0].strip() and (fence := _FENCE_END.match(source, end)):
        end = fence.end()
    if source[end:].strip() == _partial_close(source):
        end = len(source)
    return _checked(value if isinstance(value, list) else [value]), end


def _partial_close(source: str) -> str:
    """Return the part of a closing tag with which the answer ends."""
    at = source.rfind("<")
    tail = source[at:] if at >= 0 else ""
    return tail if tail and any(f"</{tag[1:]}".startswith(tail) for tag in _TAGS) else ""


def _bare(source: str, offered: Collection[str]) -> tuple[Found, ...]:
    """Return the calls of an answer that is nothing but JSON; none when it is something else."""
    if not _BARE.match(source):
        return ()
    try:
        values = _decode(source, closed=False)
    except ValueError:
        return ()
    calls = _checked(values)
    meant = all(isinstance(value, dict) and any(key in value for key in _ARGUMENTS) for value in values)
    return calls if meant and all(not call.problem and call.name in offered for call in calls) else ()


# JSON


def _decode(body: str, *, closed: bool) -> list[Any]:
    """Return the JSON values of a tag's body, arrays opened. Raises ValueError; `closed` allows to add brackets."""
    text = body.strip()
    if fence := _FENCE_LINE.match(text):
        text = text[fence.end() :]
    text = text.strip().rstrip("`~").rstrip()
    try:
        return _values(text)
    except ValueError as error:
        repaired = _repair(text, closed)
        if repaired != text:
            try:
                return _values(repaired)
            except ValueError:
                pass
        raise error


def _ends_in_string(text: str) -> bool:
    """Say whether the JSON text ends within a string."""
    return '"' in re.sub(_STRING, "", text, flags=re.DOTALL)


def _values(text: str) -> list[Any]:
    found: list[Any] = []
    at = 0
    while at < len(text):
        value, at = _read_value(text, at)
        found += value if isinstance(value, list) else [value]
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
    if not found:
        raise ValueError("there is no call in it")
    return found


def _read_value(text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
        return clean_json(value), end
    except json.JSONDecodeError as error:
        near = clean(text[max(0, error.pos - 20) : error.pos + 20])
        raise ValueError(f"{error.msg} at character {error.pos}, near {near!r}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


# strict=False: models write real line breaks inside strings.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant, parse_float=_finite)


def _repair(text: str, closed: bool) -> str:
    """Return the JSON text without commas before a closing bracket and without closing brackets that close nothing.

    When `closed`, the brackets that are still open at the end are closed. Text that is wrong in another way stays so.
    """
    kept: list[str] = []
    expected: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == '"':
            return text  # a string without an end
        if token in ("}", "]"):
            if kept and kept[-1] == ",":
                kept.pop()
            if not expected:
                continue
            expected.pop()  # if it is the wrong one, the text stays invalid
        elif token in ("{", "["):
            expected.append("}" if token == "{" else "]")
        if not token.isspace():
            kept.append(token)
    if expected and (not closed or kept[-1] in (",", ":")):
        return text
    return " ".join([*kept, *reversed(expected)])


def _checked(values: list[Any]) -> tuple[Found, ...]:
    return tuple(map(_check, values))


def _check(value: Any) -> Found:
    if not isinstance(value, dict):
        return _unreadable("", f"a call is a JSON object, not {_short(value)}")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return _unreadable("", '"name" must be the name of a tool')
    keys = [key for key in _ARGUMENTS if key in value]
    if len(keys) > 1:
        return Found(name, {}, f"the call has both {keys[0]!r} and {keys[1]!r}; {_FORM}")
    if not keys and set(value) - {"name", "id", "type"}:
        return Found(name, {}, f'the call has no "arguments"; {_FORM}')
    arguments = value[keys[0]] if keys else {}
    if not isinstance(arguments, dict):
        return Found(name, {}, f"the arguments must be a JSON object, not {_short(arguments)}")
    return Found(name, arguments)


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:40]


def _unreadable(body: str, problem: str) -> Found:
    return Found(_guess_name(body), {}, f"the call could not be read: {problem}; {_FORM}")


def _guess_name(body: str) -> str:
    found = _NAME.search(body)
    return clean(found[1]) if found else ""


# Streaming

_PREFIXES = "|".join(sorted({re.escape(tag[:size]) for tag in _TAGS for size in range(1, len(tag))}, reverse=True))
_UNCLEAR = re.compile(
    rf"(?:^\ {{0,3}}{_FENCE}[^\n`<]*+(?:\n\s*+)?+)?(?:{_PREFIXES})?\Z|^\ {{0,3}}[`~]{{0,2}}\Z", re.MULTILINE
)
"""The end of a text that may be the beginning of a call, with the fence before it."""
_FENCE_BEFORE = re.compile(rf"^\ {{0,3}}{_FENCE}[^\n`<]*+(?:\n\s*+)?+\Z", re.MULTILINE)
_PERHAPS_BARE = re.compile(rf"\s*+(?:{_FENCE}[^\n`{{\[<]*+\s*+|[`~]{{0,2}}+)(?:[\[{{]\s*+)?+")
"""An answer's beginning that may become nothing but JSON."""


class TextFilter:
    """Passes an answer's text on while it arrives, and nothing of a call.

    It shows what comes before the first tag at once. From there on, and of an answer that begins like a bare JSON
    call, it shows nothing: what of that is text is known at the end, and then `rest` returns it.
    """

    def __init__(self) -> None:
        self._shown = 0
        self._pending = ""
        self._stopped = False

    def feed(self, delta: str) -> str:
        """Return what may be shown by now."""
        if self._stopped:
            return ""
        self._pending += delta
        if not self._shown:
            if _BARE.match(self._pending):
                self._stopped = True
                return ""
            if _PERHAPS_BARE.fullmatch(self._pending):
                return ""
        tag = _OPEN.search(self._pending)
        if tag:
            self._stopped = True
            before = self._pending[: tag.start()]
            fence = _FENCE_BEFORE.search(before)
            size = fence.start() if fence else len(before)
        else:
            unclear = _UNCLEAR.search(self._pending)
            size = unclear.start() if unclear else len(self._pending)
        text = self._pending[:size]
        if not self._shown and not text.strip():
            return ""  # blank text before a call is not shown
        self._pending = self._pending[size:]
        self._shown += size
        return text

    def rest(self, text: str) -> str:
        """Return what is still to be shown of the whole answer's text."""
        return text[self._shown :]
