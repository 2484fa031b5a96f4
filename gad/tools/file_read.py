"""file_read: a window of a text file's numbered lines."""

from __future__ import annotations

import codecs
import os
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from gad.core.cut import line_mark
from gad.core.ports import Outcome, ToolContext, ToolSchema
from gad.core.redact import Secrets
from gad.tools.encodings import binary_kind, detect
from gad.tools.textfiles import encoding_meta, opened, perform, resolve

DEFAULT_LINES = 200
LINE_LIMIT = 1_280
"""Characters of one line that are shown, at most."""

_BESIDE = 120
"""Characters that the number of a line and the marks of what is not shown take, at most."""

CONTEXT_LINES = 20
"""Lines before a keyword's first match that are shown, at most."""

_SAMPLE = 4_000_000
"""Bytes that decide the encoding: whole files up to this size, of larger ones the beginning."""


class FileRead:
    """Shows lines of a file with their numbers, whatever the file's encoding."""

    schema = ToolSchema(
        "file_read",
        "Read a text file as `number|line`.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "start": {"type": "integer", "description": "first line, default 1"},
                "count": {"type": "integer", "description": f"lines, default {DEFAULT_LINES}"},
                "keyword": {"type": "string", "description": "go to its first match from start on; any case"},
            },
            "required": ["path"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Read the window; what cannot be shown is an error that says what is there instead."""
        stopped = threading.Event()
        return await perform(lambda: _read(arguments, context, stopped), stopped.set)


@dataclass(frozen=True, slots=True)
class _Line:
    """The beginning of a line, and how many characters it has."""

    text: str
    length: int

    def kept(self, secrets: Secrets) -> _Line:
        """Drop what is not shown: many long lines would not fit into memory, and secrets are nobody's business."""
        text = secrets.redact(self.text)
        length = self.length + len(text) - len(self.text)
        return _Line(text[:LINE_LIMIT], length)

    def shown(self, limit: int) -> str:
        """Return the beginning, `limit` characters at most, and how much is gone."""
        gone = self.length - limit
        return self.text if gone <= 0 else self.text[:limit] + line_mark(gone)


def _read(arguments: Mapping[str, Any], context: ToolContext, stopped: threading.Event) -> Outcome:
    path = resolve(arguments["path"], context)
    start = max(1, arguments.get("start", 1))
    count = max(1, arguments.get("count", DEFAULT_LINES))
    keyword = arguments.get("keyword") or None
    with opened(path, context) as file:
        sample = file.read(_SAMPLE)
        whole = len(sample) < _SAMPLE
        kind = binary_kind(sample)
        if kind is not None:
            size = max(os.fstat(file.fileno()).st_size, len(sample))
            return Outcome("error", f"{path} is not text: {kind}, {size:,} bytes")
        encoding = detect(sample, whole=whole)
        first, lines, total, match = _window(
            _lines(file, sample, encoding.name, len(encoding.bom), stopped), start, count, keyword, context.secrets
        )
    meta: dict[str, Any] = {"lines": total, **encoding_meta(encoding)}
    if not lines:
        if keyword is not None and start <= max(total, 1):
            return Outcome("error", f"no line from {start} on holds {keyword!r}", meta)
        if total:
            return Outcome("error", f"start is {start}, the file has {total} lines", meta)
        return Outcome("ok", "(empty file)", meta)
    return Outcome("ok", _render(first, lines, total, match, context.limit), meta, path)


def _render(first: int, lines: list[_Line], total: int, match: int, limit: int) -> str:
    """Return the lines that have room; those before line `match`, which must be shown, give way to it."""
    room = limit - len(_more(total, total))
    width = max(1, min(LINE_LIMIT, limit - _BESIDE))
    texts = [f"{number}|{line.shown(width)}" for number, line in enumerate(lines, first)]
    begin = 0
    while begin < match - first and sum(len(text) + 1 for text in texts[begin : match - first + 1]) > room:
        begin += 1
    shown: list[str] = []
    for text in texts[begin:]:
        room -= len(text) + 1
        if room < 0 and shown:
            break
        shown.append(text)
    after = first + begin + len(shown)
    if after <= total:
        shown.append(_more(total - after + 1, after))
    return "\n".join(shown)


def _more(lines: int, start: int) -> str:
    return f"[{lines:,} more lines; read on with start={start}]"


def _window(
    lines: Iterator[_Line], start: int, count: int, keyword: str | None, secrets: Secrets
) -> tuple[int, list[_Line], int, int]:
    """Return the first line's number, the lines, how many the file has, and which of them is the one wanted."""
    before: deque[_Line] = deque(maxlen=min(CONTEXT_LINES, count // 3))
    wanted = re.compile(re.escape(keyword), re.IGNORECASE) if keyword is not None else None
    found: list[_Line] = []
    first = total = match = 0
    for total, line in enumerate(lines, 1):
        if found:
            if len(found) < count:
                found.append(line.kept(secrets))
        elif total >= start and (wanted is None or wanted.search(line.text)):
            found = [*before, line.kept(secrets)]
            first, match = total - len(before), total
        elif wanted is not None and before.maxlen:
            before.append(line.kept(secrets))
    return first, found, total, match


def _lines(file: BinaryIO, sample: bytes, codec: str, skip: int, stopped: threading.Event) -> Iterator[_Line]:
    """Decode piece by piece, so that a file of any size and a line of any length fit into memory."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    piece = sample[skip:]
    parts: list[str] = []
    length = 0
    while not stopped.is_set():
        text = decoder.decode(piece, final=not piece)
        *complete, rest = text.split("\n")
        for end in complete:
            yield _line(parts, length, end)
            parts, length = [], 0
        if rest:
            # A keyword is looked for in what is kept: far more than is shown, far less than a gigabyte.
            if length < _SAMPLE:
                parts.append(rest)
            length += len(rest)
        if not piece:
            break
        piece = file.read(1 << 20)
    if length:
        yield _line(parts, length, "")


def _line(parts: list[str], length: int, end: str) -> _Line:
    text = "".join(parts) + end if parts else end
    length += len(end)
    if text.endswith("\r") and len(text) == length:
        return _Line(text[:-1], length - 1)
    return _Line(text, length)
