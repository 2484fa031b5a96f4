"""What the daemon tells the service manager that started it: sd_notify(3), one datagram a message.

Where nobody listens (no NOTIFY_SOCKET) nothing is sent. `tick` runs in the daemon's own event loop, so a loop that
does not turn sends no WATCHDOG=1, and the service manager starts the daemon anew.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

TICK = 5.0
"""Seconds between two signs of life at most."""
EXTEND = f"EXTEND_TIMEOUT_USEC={int(4 * TICK * 1e6)}"
"""Asks for more time to start or to stop; the next one comes sooner than what it asks for."""


class Notifier:
    """The daemon's side of the talk; `environ` says whether there is anybody to talk to."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = _watchdog(environ)
        self._status = ""
        self._ready = False

    @property
    def pause(self) -> float:
        """Seconds between two signs of life: well under half of what the watchdog allows."""
        return min(TICK, self._watchdog / 3) if self._watchdog else TICK

    def ready(self) -> None:
        """Say that the start, or a reload, is over."""
        self._ready = True
        self._send("READY=1")

    def reloading(self) -> None:
        """Say that the settings are being read again; `ready` must follow."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that the daemon is on its way out, and that this takes time."""
        self._send("STOPPING=1", EXTEND)

    def status(self, text: str) -> None:
        """Say in one line how things are; the same line is not said twice."""
        line = " | ".join(part.strip() for part in text.splitlines())
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    async def tick(self, extends: Callable[[], bool]) -> None:
        """Give signs of life until cancelled, and ask for more time to start or to stop while `extends()`.

        The first sign of life sets the watchdog going, which is not for the start: that has its own time-out.
        """
        while self._address:
            lines = ["WATCHDOG=1"] if self._watchdog and self._ready else []
            if extends():
                lines.append(EXTEND)
            if lines:
                self._send(*lines)
            await asyncio.sleep(self.pause)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.connect(self._address)
                sender.sendall("\n".join(lines).encode("utf-8", "replace"))
        except OSError as exc:
            log.warning("the service manager could not be told %s: %s", lines[0], exc)


def _watchdog(environ: Mapping[str, str]) -> float:
    """Return the seconds within which a sign of life must come; 0 when nobody waits for one of this process."""
    meant = environ.get("WATCHDOG_PID")
    given = environ.get("WATCHDOG_USEC", "")
    if not given.isdecimal() or (meant is not None and meant != str(os.getpid())):
        return 0.0
    return int(given) / 1e6
