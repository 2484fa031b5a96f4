"""What the daemon writes for people and clients: output.txt, appended; result.txt, replaced whole."""

from __future__ import annotations

import os


class Output:
    """output.txt: an append-only UTF-8 stream, on its way to the reader with every call."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(fd, 1, os.fstat(fd).st_size - 1) == b"\n"
    finally:
        os.close(fd)


def replace(directory: str, name: str, text: str) -> None:
    """Write a file aside and rename it into place: a reader sees the old content or the new, never a part."""
    aside = os.path.join(directory, f".{name}.tmp")
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(aside, flags, 0o600)
    try:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)
    os.rename(aside, os.path.join(directory, name))
