"""output.txt: the whole conversation, for people to read."""

from __future__ import annotations

import os

from gad.spool.files import open_regular


class Output:
    """output.txt: an append-only UTF-8 stream, on its way to the reader with every call."""

    def __init__(self, path: str) -> None:
        self._fd = open_regular(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._line_open = False
        size = os.fstat(self._fd).st_size
        if size:
            self._line_open = not _ends_with_newline(path)

    def write(self, text: str) -> None:
        """Append text as it is."""
        if not text:
            return
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._fd, data) :]
        self._line_open = not text.endswith("\n")

    def line(self, text: str) -> None:
        """Append text as lines of its own."""
        self.write(("\n" if self._line_open else "") + text + "\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _ends_with_newline(path: str) -> bool:
    fd = open_regular(path, os.O_RDONLY)
    try:
        return os.pread(fd, 1, os.fstat(fd).st_size - 1) == b"\n"
    finally:
        os.close(fd)
