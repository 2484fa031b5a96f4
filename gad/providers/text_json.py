"""Read the JSON of calls that a model has written as text: leniently where there is one meaning only.

Line breaks in strings, code fences around it, commas and closing brackets too many at an end, several values one
after another. What is read is then checked strictly: a call is an object with a name and an object of arguments.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gad.providers.stream import DEEPEST, shallow
from gad.providers.wire import clean, clean_json

FENCE = r"(?:`{3,}+|~{3,}+)"  # possessive, here and below: nothing is gained by going back
STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*"'  # no possessive group: Python 3.11.2 matches those wrongly
ARGUMENTS = ("arguments", "args", "input", "parameters")
"""The keys under which a call's arguments may stand."""

_FENCE_LINE = re.compile(rf"{FENCE}[^\n`{{\[<]*+")
_GAP = re.compile(r"[\s,]*")
_TOKEN = re.compile(STRING + r'|[\[\]{},"]|\s+|[^\[\]{},"\s]+', re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\\n]{1,64})"')

_FORM = 'write <tool_use>{"name": ..., "arguments": {...}}</tool_use> with valid JSON'


@dataclass(frozen=True, slots=True)
class Found:
    """A call as it was read. `problem` says why it could not be, as in `ToolCall`."""

    name: str
    arguments: Mapping[str, Any]
    problem: str = ""


def decode(body: str, *, closed: bool) -> list[Any]:
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


def _values(text: str) -> list[Any]:
    found: list[Any] = []
    at = 0
    while at < len(text):
        value, at = read_value(text, at)
        found += value if isinstance(value, list) else [value]
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
    if not found:
        raise ValueError("there is no call in it")
    return found


def read_value(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value that begins at `at`, and where it ends. Raises ValueError."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        near = clean(text[max(0, error.pos - 20) : error.pos + 20])
        raise ValueError(f"{error.msg} at character {error.pos}, near {near!r}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not shallow(value, DEEPEST):
        raise ValueError("it is nested too deeply")
    return clean_json(value), end


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


def checked(values: list[Any]) -> tuple[Found, ...]:
    """Return the calls that these values are; one that is none has a problem."""
    return tuple(map(_check, values))


def _check(value: Any) -> Found:
    if not isinstance(value, dict):
        return unreadable("", f"a call is a JSON object, not {_short(value)}")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return unreadable("", '"name" must be the name of a tool')
    keys = [key for key in ARGUMENTS if key in value]
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


def unreadable(body: str, problem: str) -> Found:
    """Return a call that could not be read, under the name that it seems to have."""
    return Found(guess_name(body), {}, f"the call could not be read: {problem}; {_FORM}")


def guess_name(body: str) -> str:
    """Return the name that a broken call seems to have, or an empty string."""
    found = _NAME.search(body)
    return clean(found[1]) if found else ""
