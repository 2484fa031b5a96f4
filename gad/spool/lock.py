"""One daemon a spool: a kernel lock that is released whatever happens to its holder."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TextIO

import portalocker

from gad.errors import SpoolLocked
from gad.spool import names


class SpoolLock:
    """Exclusive ownership of a spool, for as long as this is open. A context manager."""

    def __init__(self, spool: str) -> None:
        self._path = os.path.join(spool, names.DAEMON_DIR, names.LOCK)
        self._file: TextIO | None = None

    def __enter__(self) -> SpoolLock:
        """Take the lock at once or raise SpoolLocked, which names the holder."""
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        file = open(self._path, "a+")
        try:
            portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
        except (portalocker.AlreadyLocked, portalocker.LockException) as exc:
            file.seek(0)
            holder = file.read().strip() or "an unknown process"
            file.close()
            raise SpoolLocked(f"another daemon has this spool: {holder} ({self._path})") from exc
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
        try:
            portalocker.lock(file, portalocker.LockFlags.SHARED | portalocker.LockFlags.NON_BLOCKING)
        except (portalocker.AlreadyLocked, portalocker.LockException):
            return True
        return False
