"""Opening and replacing the daemon's own files, with nothing followed and nothing waited for.

A session's directory is its client's: what stands in the place of one of our files may be anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat


class NotRegular(OSError):
    """Something else than a regular file stands in the place of one of the daemon's files."""


def open_regular(path: str, flags: int) -> int:
    """Open a regular file and return its descriptor. Raises NotRegular for a link, a pipe or a device; OSError."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise NotRegular(exc.errno, "not a regular file", path) from exc
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotRegular(errno.EINVAL, "not a regular file", path)
    return fd


def replace(directory: str, name: str, text: str) -> None:
    """Write a file aside and rename it into place: a reader sees the old content or the new, never a part."""
    aside = os.path.join(directory, f".{name}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        fd = open_regular(aside, flags)
    except FileExistsError:  # left by a crash, or put there by somebody: never written through
        os.unlink(aside)
        fd = open_regular(aside, flags)
    try:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    finally:
        os.close(fd)
    os.rename(aside, os.path.join(directory, name))


def sync_directory(path: str) -> None:
    """Make a new or renamed entry of this directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
