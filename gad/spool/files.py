"""Opening and replacing the daemon's own files, with nothing followed and nothing waited for.

A session's directory is its client's: what stands in the place of one of our files may be anything, and its name may
mean another directory at any moment. So it is opened once, as a `Folder`, and its files are reached through that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

SHARED = stat.S_ISGID | stat.S_IRWXG
"""The mode bits by which a spool is a group's."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""There is no room for what is to be written."""
MACHINE = FULL | {errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO}
"""What is wrong with the machine: it can pass, and then what was tried works."""
TROUBLE = MACHINE | {errno.EACCES, errno.EPERM}
"""The same of what is done in a session's directory, whose rights are its client's."""


class NotRegular(OSError):
    """Something else than a regular file of ours stands in the place of one of the daemon's files."""


class Folder:
    """A session's directory, held open: whatever its name comes to mean meanwhile, these are its files.

    `place` is a path to the open directory itself, for whatever takes a path. Raises OSError, for a link as well.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        held = f"/proc/self/fd/{self._fd}"
        self.place = held if os.path.isdir(held) else path  # there is none without Linux's /proc
        self.path = path
        found = os.fstat(self._fd)
        self._identity = (found.st_dev, found.st_ino)

    @property
    def gone(self) -> bool:
        """Whether the directory has been removed, or another one put in its place."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError as exc:
            return exc.errno not in TROUBLE
        return (found.st_dev, found.st_ino) != self._identity

    def close(self) -> None:
        """Let go of the directory."""
        if self._fd >= 0:
            self.place = self.path  # the descriptor's number will be another file's
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def open_own(path: str, flags: int) -> int:
    """Open one of the daemon's files in a session's directory, as `open_regular` does.

    One that somebody else has put there, or that has another name elsewhere, is refused. What is new may be read by
    the group that has the spool.
    """
    fd = open_regular(path, flags)
    try:
        found, spool = os.fstat(fd), os.stat(os.path.join(os.path.dirname(path), ".."))
        if found.st_uid not in (os.geteuid(), 0, spool.st_uid):
            raise NotRegular(errno.EINVAL, f"not gad's own: it belongs to user {found.st_uid}", path)
        if found.st_nlink > 1:
            raise NotRegular(errno.EINVAL, f"not gad's own: it has {found.st_nlink} hard links", path)
        if flags & os.O_CREAT and found.st_size == 0:
            _share(fd, spool)
    except OSError:
        os.close(fd)
        raise
    return fd


def _share(fd: int, spool: os.stat_result) -> None:
    """Let the group that has the spool, if there is one, read a new file, whatever the umask says."""
    found = os.fstat(fd)
    if spool.st_mode & SHARED != SHARED or found.st_uid != os.geteuid():
        return
    if found.st_gid != spool.st_gid:
        os.fchown(fd, -1, spool.st_gid)
    if not found.st_mode & stat.S_IRGRP:
        os.fchmod(fd, 0o640)


def overwrite(directory: str, name: str, text: str) -> bool:
    """Write over a file, in the room that it has; return False when that is too little, or there is none.

    For a full disk: a reader may see a part, but sees something.
    """
    try:
        fd = open_own(os.path.join(directory, name), os.O_WRONLY)
    except FileNotFoundError:
        return False
    try:
        found, data = os.fstat(fd), text.encode("utf-8", "replace")
        if len(data) > max(found.st_size, 512 * found.st_blocks):
            return False
        data = data.ljust(found.st_size, b"\n")  # one write, without a moment in which the file is empty
        return os.pwrite(fd, data, 0) == len(data)
    finally:
        os.close(fd)


def replace(directory: str, name: str, text: str, mode: int = 0o600, *, in_spool: bool = False) -> None:
    """Write a file aside and rename it into place: a reader sees the old content or the new, never a part.

    A `mode` that is not the usual one holds whatever the umask says. `in_spool` says that the directory lies in a
    spool, whose group may read the file if it has one.
    """
    aside = os.path.join(directory, f".{name}.tmp")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        fd = open_regular(aside, flags)
    except FileExistsError:  # left by a crash, or put there by somebody: never written through
        os.unlink(aside)
        fd = open_regular(aside, flags)
    try:
        if mode != 0o600:
            os.fchmod(fd, mode)
        elif in_spool:
            _share(fd, os.stat(os.path.join(directory, "..")))
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
