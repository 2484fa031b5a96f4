"""What a daemon says of itself: in its status file, and to the service manager."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping

from gad import __version__
from gad.notify import Notifier
from gad.spool import names
from gad.spool.live import explain
from gad.spool.status import write_status

log = logging.getLogger(__name__)

STARTING = 600.0
"""Seconds for which a service manager is asked for patience with the start: a recovery of many sessions takes time."""
LEAVING = 30.0
"""Seconds for which it is asked for patience once the steps under way have been broken off."""
NOTEWORTHY = ("reload_error", "restart_needed")
"""What of a reload's outcome is part of the one line that a service manager shows."""
SOON = 0.2
"""Seconds within which changes are one write."""


class Standing:
    """A daemon's `state`, told with how many sessions are in each of theirs and what is wrong with the machine.

    `trouble` is asked for the latter, in words for people.
    """

    def __init__(
        self, spool: str, notifier: Notifier, counts: Callable[[], Counter[str]], trouble: Callable[[], str]
    ) -> None:
        self.state = "starting"
        self.unwritten = ""  # why the status could not be written
        self._directory = os.path.join(spool, names.DAEMON_DIR)
        self._notifier = notifier
        self._counts = counts
        self._trouble = trouble
        self._notes: dict[str, object] = {}
        self._due = False
        self._patience_until = 0.0  # in the loop's time

    async def tick(self) -> None:
        """Give the service manager signs of life until cancelled."""
        self._patience_until = asyncio.get_running_loop().time() + STARTING
        await self._notifier.tick(self._takes_time)

    def ready(self) -> None:
        """Tell that the start is over."""
        self.state = "ready"
        self.write()
        self._notifier.ready()

    def leaving(self, patience: float) -> None:
        """Tell that the daemon leaves, and takes so many seconds before it breaks off what is under way."""
        self.state = "draining"
        self._patience_until = asyncio.get_running_loop().time() + patience + LEAVING
        self._notifier.stopping()
        self.write()

    def breaks_off(self) -> None:
        """Take note that what was under way is broken off: leaving does not take much longer."""
        self._patience_until = min(self._patience_until, asyncio.get_running_loop().time() + LEAVING)

    def stopped(self) -> None:
        """Tell that the daemon has left."""
        self.state = "stopped"
        self.write()

    def reloading(self) -> None:
        """Tell that the settings are being read again; `reloaded` must follow."""
        if self.state == "ready":
            self._notifier.reloading()

    def reloaded(self, notes: Mapping[str, object]) -> None:
        """Tell what came of it."""
        self._notes = dict(notes)
        self.write()
        if self.state == "ready":
            self._notifier.ready()

    def changed(self) -> None:
        """Write the status soon; a burst of changes is one write."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(SOON, lambda: self.write() if self._due else None)

    def write(self) -> None:
        """Write the status now."""
        self._due = False
        counts = self._counts()
        values: dict[str, object] = {"state": self.state, "pid": os.getpid(), "version": __version__}
        values |= {state: counts[state] for state in names.STATES if counts[state]}
        at = [f"{counts[state]} {state}" for state in names.STATES if counts[state]]
        said = [f"{self.state}: {', '.join(at) or 'no sessions'}"]
        said += [f"{name.replace('_', ' ')}: {note}" for name in NOTEWORTHY if (note := self._notes.get(name))]
        if trouble := self._trouble():
            values["trouble"] = trouble
            said.append(f"trouble: {trouble}")
        self._notifier.status("; ".join(said))
        try:
            write_status(self._directory, values | self._notes)
            self.unwritten = ""
        except OSError as exc:  # a full disk must not keep the daemon from working, or from leaving
            if str(exc) != self.unwritten:
                log.error("the daemon's status cannot be written: %s", explain(exc))
            self.unwritten = str(exc)

    def _takes_time(self) -> bool:
        return self.state in ("starting", "draining") and asyncio.get_running_loop().time() < self._patience_until
