"""One daemon a spool: a kernel lock that is released whatever happens to its holder."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from types import TracebackType
from typing import TextIO

import portalocker

from gad.errors import GadError, SpoolLocked
from gad.spool import names
from gad.spool.drop import alive
from gad.spool.files import SHARED
from gad.spool.status import read_status

PROBED = 0.2
"""Seconds for which the lock is tried: `held` takes it for an instant, and a probe is not a daemon."""


class SpoolLock:
    """Exclusive ownership of a spool, for as long as this is open. A context manager."""

    def __init__(self, spool: str) -> None:
        self._path = os.path.join(spool, names.DAEMON_DIR, names.LOCK)
        self._file: TextIO | None = None

    def __enter__(self) -> SpoolLock:
        """Take the lock. Raises SpoolLocked, which names the holder, and GadError where locks do not work."""
        place = os.path.dirname(self._path)
        try:
            _make(place)
            # Python opens files close-on-exec, so no tool's child keeps the lock alive.
            file = open(self._path, "a+", opener=_open)
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ELOOP, errno.ENOTDIR):
                raise GadError(f"the daemon cannot begin: {exc}; it must be able to write there") from exc
            raise
        until = time.monotonic() + PROBED
        while not _locks(file, portalocker.LockFlags.EXCLUSIVE):
            if time.monotonic() >= until:
                file.seek(0)
                holder = file.read().strip() or "an unknown process"
                file.close()
                raise SpoolLocked(f"another daemon has this spool: {holder} ({self._path})")
            time.sleep(0.002)
        self._file = file
        try:
            file.truncate(0)
            file.write(f"pid {os.getpid()}")
            file.flush()
        except OSError:  # a full disk: the lock holds, though it does not say whose it is
            self._file = open(os.dup(file.fileno()), "a+")
            with contextlib.suppress(OSError):
                file.close()  # without what it could not write
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(0)
            self._file.close()
            self._file = None


def _make(place: str) -> None:
    """Make the daemon's own directory; the members of a group that has the spool may pass through it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(place, 0o700)
    found, spool = os.lstat(place), os.stat(os.path.dirname(place))
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0, spool.st_uid):
        raise GadError(f"{place} is not the daemon's own directory; move it away")
    wanted = 0o710 if spool.st_mode & SHARED == SHARED else 0o700
    if found.st_uid != os.geteuid():
        return
    if found.st_gid != spool.st_gid and wanted == 0o710:
        os.chown(place, -1, spool.st_gid)
    if stat.S_IMODE(found.st_mode) & 0o777 != wanted:
        os.chmod(place, wanted)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def held(spool: str) -> bool:
    """Return whether a daemon has this spool now."""
    try:
        file = open(os.path.join(spool, names.DAEMON_DIR, names.LOCK))  # noqa: SIM115
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's: the lock is not ours to try
        status = read_status(os.path.join(spool, names.DAEMON_DIR))
        return status.get("state") not in (None, "stopped") and alive(int(status.get("pid") or 0))
    with file:
        return not _locks(file, portalocker.LockFlags.SHARED)


def _locks(file: TextIO, kind: portalocker.LockFlags) -> bool:
    """Try to lock an open file at once; return whether that worked. Closing the file unlocks it.

    Raises GadError where the file system has no locks.
    """
    try:
        portalocker.lock(file, kind | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    except portalocker.LockException as exc:
        raise GadError(f"{file.name} cannot be locked ({exc}); put the home on a file system that has locks") from exc
    return True
