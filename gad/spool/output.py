"""output.txt: the whole conversation, for people to read. Known secrets are kept out of it."""

from __future__ import annotations

import contextlib
import os

from gad.core.redact import Secrets
from gad.spool.files import TROUBLE, open_own, open_regular

HELD = 1 << 20
"""Bytes that wait for the disk at most; of what comes then, nothing is shown until there is room again."""
_LEFT_OUT = b"\n[something could not be shown here: there was no room; the journal has it]\n"


class Output:
    """output.txt: an append-only UTF-8 stream, on its way to the reader with every call.

    What cannot be written waits for the next call. Raises OSError when something waits.
    """

    def __init__(self, path: str, secrets: Secrets | None = None) -> None:
        self._stream = (secrets or Secrets()).stream()
        self._waiting = b""
        self._left_out = False
        self._path = path
        self._fd = -1
        self._line_open = False
        try:
            self._open()
        except OSError as exc:
            if exc.errno not in TROUBLE:
                raise

    def write(self, text: str) -> None:
        """Append text as it comes; an end that may be the beginning of a secret waits for what follows."""
        self._queue(self._stream.feed(text))
        self._flush()

    def line(self, text: str) -> None:
        """Append text as lines of its own."""
        self._queue(self._stream.rest())
        self._queue(self._stream.feed(("\n" if self._line_open else "") + text + "\n"))
        self._queue(self._stream.rest())
        self._flush()

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # a full disk; the journal has it
            self._queue(self._stream.rest())
            self._flush()
        if self._fd >= 0:
            os.close(self._fd)

    def _open(self) -> None:
        fd = open_own(self._path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            if os.fstat(fd).st_size and not self._waiting:
                self._line_open = not _ends_with_newline(self._path)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def _queue(self, text: str) -> None:
        if not text:
            return
        self._line_open = not text.endswith("\n")
        data = text.encode("utf-8", "replace")
        if self._left_out:
            return
        if self._waiting and len(self._waiting) + len(data) > HELD:
            data, self._left_out = _LEFT_OUT, True
        self._waiting += data

    def _flush(self) -> None:
        if self._fd < 0:
            self._open()
        while self._waiting:
            self._waiting = self._waiting[os.write(self._fd, self._waiting) :]
        self._left_out = False


def _ends_with_newline(path: str) -> bool:
    fd = open_regular(path, os.O_RDONLY)
    try:
        return os.pread(fd, 1, os.fstat(fd).st_size - 1) == b"\n"
    finally:
        os.close(fd)
