"""A kernel lock that many writers share in turn: held briefly, waited for, released whatever happens to its holder.

Whoever waits stands first at a turnstile, a second lock beside the first, and passes it when the lock itself is his.
So a writer who releases the lock and comes back at once finds the turnstile taken, and those who waited go first.
The one at the turnstile asks often, the others seldom and at odd times: few system calls, and a short hand-over.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from types import TracebackType
from typing import TextIO

import portalocker

from gad.errors import GadError, MemoryLocked

TIMEOUT = 10.0
"""Seconds that a writer waits by default; a commit takes some milliseconds."""

_FIRST = 0.0004
"""Seconds between the attempts of the one who is next."""
_OTHERS = 0.02
"""Seconds between the attempts of the others, on average, when they have just come."""
_AGE = 0.03
"""Seconds of waiting after which the others try twice as often; after n times as many, n + 1 times as often."""


class MemoryLock:
    """Exclusive use of what a lock file stands for, for as long as this is open. A context manager.

    `who` says for whom and why the lock is held; others are told when they have waited for `timeout` seconds in vain.
    `waited` is how many seconds it took to get it.
    """

    def __init__(self, path: str, who: str, timeout: float = TIMEOUT) -> None:
        self._path = path
        self._who = who
        self._timeout = timeout
        self._file: TextIO | None = None
        self.waited = 0.0

    def __enter__(self) -> MemoryLock:
        """Take the lock. Raises MemoryLocked, which names the holder, OSError, and GadError where locks do not work."""
        began = time.monotonic()
        until = began + self._timeout
        file = _open(self._path)
        try:
            with _open(f"{self._path}.next") as turnstile:  # closing it lets the next one in
                self._wait(turnstile, began, until, _OTHERS)
                self._wait(file, began, until, _FIRST)
                while not _stands(self._path, file):  # removed meanwhile: who comes now locks another file
                    file.close()
                    file = _open(self._path)
                    self._wait(file, began, until, _FIRST)
            with contextlib.suppress(OSError):  # a full disk: the lock holds without words
                os.ftruncate(file.fileno(), 0)
                words = f"pid {os.getpid()}, {self._who}, since {time.strftime('%H:%M:%S')}"
                os.write(file.fileno(), words.encode("utf-8", "replace"))
        except BaseException:
            file.close()
            raise
        self._file = file
        self.waited = time.monotonic() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        if self._file is not None:
            file, self._file = self._file, None
            with file, contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), 0)

    def _wait(self, file: TextIO, began: float, until: float, pause: float) -> None:
        """Try until the file is locked; whoever has waited longer tries more often."""
        while not _locks(file):
            now = time.monotonic()
            if now >= until:
                raise MemoryLocked(
                    f"waited {self._timeout:g} s in vain: {self._holder()} has {self._path}; "
                    "try again, and end that process if it hangs"
                )
            often = 1 + (now - began) / _AGE
            time.sleep(min(until - now, max(_FIRST, pause / often) * random.uniform(0.5, 1.5)))

    def _holder(self) -> str:
        with _open(self._path) as file:
            file.seek(0)
            return file.read().strip() or "an unknown process"


def _open(path: str) -> TextIO:
    # Python opens files close-on-exec, so no tool's child keeps the lock alive.
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    return os.fdopen(fd, "a+", encoding="utf-8", errors="replace")


def _stands(path: str, file: TextIO) -> bool:
    """Return whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _locks(file: TextIO) -> bool:
    """Try to lock an open file at once; return whether that worked. Closing the file unlocks it."""
    try:
        portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    except portalocker.LockException as exc:
        raise GadError(f"{file.name} cannot be locked ({exc}); put the home on a file system that has locks") from exc
    return True
