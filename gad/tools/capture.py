"""Keeps the head and the tail of a long output in bounded memory, and the whole of it in a file."""

from __future__ import annotations

import os
from collections.abc import Callable

SPILL_LIMIT = 50_000_000
"""Characters that the file for the whole output holds at most."""

EMIT_LIMIT = 1_000_000
"""Characters that one call streams to the viewer at most: output.txt is never truncated, so a flood would stay."""


class Capture:
    """Takes decoded text piece by piece; `text` is at most about `limit` characters of it."""

    def __init__(self, limit: int, spill_path: str, emit: Callable[[str], None]) -> None:
        self.total = 0
        self._limit = limit
        self._path = spill_path
        self._emit = emit
        self._head: list[str] = []
        self._tail = ""
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
        if self.total > self._limit:
            if self._file is None:
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
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
        half = self._limit // 2
        what = "all of it is" if self.total <= SPILL_LIMIT else f"the first {SPILL_LIMIT:,} are"
        mark = f"[... {self.total - 2 * half:,} of {self.total:,} characters cut; {what} in {self._path} ...]"
        return f"{head[:half]}\n{mark}\n{self._tail[-half:]}"

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _write(descriptor: int, text: str) -> None:
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(descriptor, data) :]
