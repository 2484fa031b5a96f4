"""Keeps the head and the tail of a long output in bounded memory, and the whole of it in a file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable

from gad.core.cut import join_ends
from gad.core.ports import ToolContext
from gad.core.weights import weigh

KEEP_FROM = 800
"""Characters, plain or weighted, beyond which the whole output is kept in a file: old results are cut to this later."""

SPILL_LIMIT = 50_000_000
"""Characters that the file for the whole output holds at most."""

EMIT_LIMIT = 1_000_000
"""Characters that one call streams to the viewer at most: output.txt is never truncated, so a flood would stay."""


class Capture:
    """Takes decoded text piece by piece; `text` is at most `limit` characters of it.

    `saved` is the path of the file that holds the whole output, empty as long as it is too short to be kept.
    """

    def __init__(self, limit: int, spill_path: str, emit: Callable[[str], None]) -> None:
        self.total = 0
        self.saved = ""
        self._limit = limit
        self._path = spill_path
        self._emit = emit
        self._head: list[str] = []
        self._tail = ""
        self._weight = 0.0
        self._file: int | None = None

    def feed(self, text: str) -> None:
        """Take the next piece. Raises OSError when the file cannot be written."""
        if not text:
            return
        before = self.total
        self.total += len(text)
        if before < EMIT_LIMIT:
            self._emit(text[: EMIT_LIMIT - before])
            if self.total > EMIT_LIMIT:
                self._emit(f"\n[more than {EMIT_LIMIT:,} characters: the rest is not shown here]\n")
        if not self.saved:
            self._weight += weigh(text)
        if self.total > self._limit or max(self.total, self._weight) > KEEP_FROM:
            if self._file is None:
                self._file = new_file(self._path)
                self.saved = self._path
                _write(self._file, "".join(self._head))
            if before < SPILL_LIMIT:
                _write(self._file, text[: SPILL_LIMIT - before])
        if before < self._limit:
            self._head.append(text[: self._limit - before])
        self._tail = (self._tail + text)[-self._limit :] if len(text) < self._limit else text[-self._limit :]

    def text(self) -> str:
        """Return the output, or its head and tail around a mark that says what is gone and where all of it is."""
        head = "".join(self._head)
        if self.total <= self._limit:
            return head
        held = SPILL_LIMIT if self.total > SPILL_LIMIT else 0
        return join_ends(head, self._tail, self.total, self._limit, self._path, held)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def new_file(path: str) -> int:
    """Open a new file for writing in the place of what lies there, and make its directory.

    Commands write to the same directory: what they have put there, a link or a pipe, is replaced and never followed.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def call_stem(tool: str, context: ToolContext) -> str:
    """Return the path, without an extension, of a call's files in the session's work directory.

    Ids are made by servers, and two of them must not come to the same name.
    """
    name = context.call_id
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name):
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:40]
        name = f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return os.path.join(context.work, f"{tool}-{name}")


def _write(descriptor: int, text: str) -> None:
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(descriptor, data) :]
