"""One daemon a spool: a kernel lock that is released whatever happens to its holder."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import TextIO

import portalocker

from gad.errors import GadError, SpoolLocked
from gad.spool import names

PROBED = 0.2
"""Seconds for which the lock is tried: `held` takes it for an instant, and a probe is not a daemon."""


class SpoolLock:
    """Exclusive ownership of a spool, for as long as this is open. A context manager."""

    def __init__(self, spool: str) -> None:
        self._path = os.path.join(spool, names.DAEMON_DIR, names.LOCK)
        self._file: TextIO | None = None

    def __enter__(self) -> SpoolLock:
        """Take the lock. Raises SpoolLocked, which names the holder, and GadError where locks do not work."""
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        # Python opens files close-on-exec, so no tool's child keeps the lock alive.
        file = open(self._path, "a+")
        until = time.monotonic() + PROBED
        while not _locks(file, portalocker.LockFlags.EXCLUSIVE):
            if time.monotonic() >= until:
                file.seek(0)
                holder = file.read().strip() or "an unknown process"
                file.close()
                raise SpoolLocked(f"another daemon has this spool: {holder} ({self._path})")
            time.sleep(0.002)
        file.truncate(0)
        file.write(f"pid {os.getpid()}")
        file.flush()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


def held(spool: str) -> bool:
    """Return whether a daemon has this spool now."""
    try:
        file = open(os.path.join(spool, names.DAEMON_DIR, names.LOCK))  # noqa: SIM115
    except FileNotFoundError:
        return False
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
