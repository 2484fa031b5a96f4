"""Ending what a crashed daemon's tool call left running.

A call's processes carry its session and its id in their environment, so they are found again without
a record of process ids, which the kernel hands out anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Collection, Mapping

log = logging.getLogger(__name__)

HOME = "GAD_HOME"
SESSION = "GAD_SESSION"
CALL = "GAD_CALL"


def identity(home: str, session: str, call: str) -> dict[str, str]:
    """Return the variables that mark a call's processes."""
    return {HOME: home, SESSION: session, CALL: call}


def end_orphans(home: str, session: str, calls: Collection[str]) -> int:
    """Kill every process of these calls and return how many there were.

    Not for calls that came to an end: what those left in the background was meant to stay.
    """
    marks = [_marks(identity(home, session, call)) for call in calls]
    found = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environment = set(file.read().split(b"\0"))
        except OSError:
            continue
        if any(mark <= environment for mark in marks):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry), signal.SIGKILL)
                found += 1
    if found:
        log.warning("session %s: ended %d processes that an interrupted call had left", session, found)
    return found


def _marks(variables: Mapping[str, str]) -> set[bytes]:
    return {f"{name}={value}".encode() for name, value in variables.items()}
