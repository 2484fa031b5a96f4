"""Files below one directory: nothing outside is reached, no link is followed, no half of a write is ever seen.

Every step of a path is opened by its name in a directory that is open already (openat with O_NOFOLLOW), so it does not
help to put a link in the way at the last moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from gad.errors import MemoryRefused

LARGEST = 1_000_000
"""Bytes of the largest file that is read."""
OWN = 1_000_000_000
"""Bytes of the largest one of the store's own: it grows with what lies in memory."""

ASIDE = ".aside"
"""Where a new content is written in the top directory, before it takes its place."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a named pipe must not wait for its other end


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names in a relative path. Raises MemoryRefused when it could lead elsewhere."""
    parts = tuple(path.split("/"))
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise MemoryRefused(f"{path!r} is no path in memory; write it relative to it, without . and ..")
    return parts


@contextlib.contextmanager
def directory(root: str, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """Open the directory `parts` below `root`, for the block. With `make`, missing ones are made (0700), durably.

    Raises MemoryRefused when a link or something else stands in the way, FileNotFoundError, OSError.
    """
    fd = os.open(root, _DIRECTORY)
    try:
        for depth, name in enumerate(parts):
            inner = _enter(fd, name, "/".join(parts[: depth + 1]), make)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def read(root: str, path: str, most: int = LARGEST) -> bytes | None:
    """Return what a file of `most` bytes at most holds, None when there is none.

    Raises MemoryRefused for a link, for what is no regular file, and for one that is too large; OSError.
    """
    *above, name = parts_of(path)
    try:
        with directory(root, tuple(above)) as fd:
            return read_at(fd, name, path, most)
    except FileNotFoundError:
        return None


def read_at(directory_fd: int, name: str, path: str, most: int = LARGEST) -> bytes:
    """Return what the file `name` in an open directory holds; `path` names it in errors, which are those of `read`."""
    try:
        fd = os.open(name, os.O_RDONLY | _FILE, dir_fd=directory_fd)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENXIO):
            raise _refused(path) from None
        raise
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise _refused(path)
    with os.fdopen(fd, "rb") as file:
        if info.st_size > most:
            raise MemoryRefused(f"{path} has {info.st_size:,} bytes, {most:,} are the most; make it smaller")
        return file.read()


def write_aside(root: str, data: bytes) -> None:
    """Write a content durably to `ASIDE`. Raises OSError, with nothing left there."""
    with directory(root, ()) as fd:
        with contextlib.suppress(FileNotFoundError):  # a crash left it, or somebody put it there: not written through
            os.unlink(ASIDE, dir_fd=fd)
        file = os.open(ASIDE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=fd)
        try:
            rest = data
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        except OSError:
            os.unlink(ASIDE, dir_fd=fd)
            raise
        finally:
            os.close(file)


def place_aside(root: str, path: str) -> None:
    """Let what stands aside take the place of the file `path`, in one step and durably."""
    *above, name = parts_of(path)
    with directory(root, ()) as top, directory(root, tuple(above), make=True) as fd:
        os.rename(ASIDE, name, src_dir_fd=top, dst_dir_fd=fd)
        os.fsync(fd)


def remove(root: str, path: str) -> None:
    """Remove a file durably, and its directory when nothing else is in it; a missing file is no error."""
    *above, name = parts_of(path)
    with contextlib.suppress(FileNotFoundError), directory(root, tuple(above)) as fd:
        os.unlink(name, dir_fd=fd)
        os.fsync(fd)
    if len(above) > 1:  # of an SOP; the layers' own directories stay
        with contextlib.suppress(OSError), directory(root, tuple(above[:-1])) as fd:
            os.rmdir(above[-1], dir_fd=fd)


def drop_aside(root: str) -> None:
    """Remove what stands aside, if anything does."""
    with directory(root, ()) as fd, contextlib.suppress(FileNotFoundError):
        os.unlink(ASIDE, dir_fd=fd)


def _enter(fd: int, name: str, path: str, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refused(path) from None
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=fd)
        os.fsync(fd)
    return _enter(fd, name, path, False)


def _refused(path: str) -> MemoryRefused:
    return MemoryRefused(f"{path} is a link, or no regular file; memory follows none: remove it")
