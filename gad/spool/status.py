"""status.txt: one `key: value` a line, for grep, for YAML readers and for us.

Words and numbers stand bare, times stand bare as 2026-11-30T06:12:01Z, any other text is a JSON string, lists
and mappings are JSON. What JSON would leave in a line and YAML would read differently is escaped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gad.spool.files import NotRegular, open_regular, replace
from gad.spool.names import STATUS

_KEY = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def timestamp(seconds: float) -> str:
    """Return seconds since the epoch as status.txt writes a time, in UTC and whole seconds."""
    return datetime.fromtimestamp(math.floor(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(value: object) -> float | None:
    """Return a time of status.txt as seconds since the epoch, or None when it is not one."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        return None


def quote(text: str) -> str:
    """Return text as a JSON string on one line that a YAML reader understands alike; lone surrogates become U+FFFD."""
    return _escape(json.dumps(_SURROGATE.sub("\ufffd", text), ensure_ascii=False))


def render(values: Mapping[str, object]) -> str:
    """Return the text of a status file; values that are None are left out.

    Raises ValueError on a bad key or number, TypeError on what JSON cannot hold.
    """
    lines = []
    for key, value in values.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a status key: {key!r}")
        if value is not None:
            lines.append(f"{key}: {_render_value(value)}\n")
    return "".join(lines)


def parse(text: str) -> dict[str, Any]:
    """Return what a status file says; lines that cannot be read are left out. Times stay text."""
    values: dict[str, Any] = {}
    for line in text.split("\n"):
        key, colon, written = line.partition(": ")
        if not colon or not _KEY.fullmatch(key):
            continue
        with contextlib.suppress(ValueError, RecursionError):
            values[key] = _parse_value(written)
    return values


def write_status(directory: str | os.PathLike[str], values: Mapping[str, object]) -> None:
    """Replace a directory's status.txt as a whole. Only the process that owns this status may call it."""
    replace(os.fspath(directory), STATUS, render(values), in_spool=True)


def read_status(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a directory's status, empty when there is none."""
    try:
        descriptor = open_regular(os.path.join(directory, STATUS), os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError, NotRegular):
        return {}
    with open(descriptor, encoding="utf-8", errors="replace", newline="\n") as file:
        return parse(file.read())


def _render_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        bare = (_WORD.fullmatch(value) and value.lower() not in _YAML_WORDS) or _TIME.fullmatch(value)
        return value if bare else quote(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"not a number that can be written: {value!r}")
        # Never with an exponent: readers disagree on those.
        digits = format(Decimal(repr(value)), "f")
        return digits if "." in digits else digits + ".0"
    return _escape(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False, allow_nan=False)))


def _escape(encoded: str) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)


def _parse_value(written: str) -> Any:
    if written[:1] in ('"', "[", "{"):
        return json.loads(written)
    if written in ("true", "false"):
        return written == "true"
    if _NUMBER.fullmatch(written):
        return float(written) if "." in written else int(written)
    return written
