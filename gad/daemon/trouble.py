"""What keeps a daemon from its work for now: too little room for new work, and what the machine does not allow."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from gad.daemon.loop import Alarms
from gad.daemon.roster import Roster
from gad.spool.live import explain
from gad.spool.space import Space

log = logging.getLogger(__name__)

FIRST_LOOK = 0.25
"""Seconds until a session in trouble is looked at again at first."""
LAST_LOOK = 15.0
"""The same at most."""
PUT_OFF = 2.0
"""Seconds until a session whose run broke in trouble is run again."""


class Room:
    """Whether there is room for new work: `short` says why not.

    `changed` is told when that is another, and `again` when there is room once more.
    """

    def __init__(self, space: Space, changed: Callable[[], None], again: Callable[[], None]) -> None:
        self.short = ""
        self._space = space
        self._changed = changed
        self._again = again

    def look(self) -> None:
        """Look how it is now."""
        before, self.short = self.short, self._space.short()
        if bool(before) == bool(self.short):
            return
        if self.short:
            log.error("nothing new begins: %s", self.short)
        else:
            log.warning("there is room again; what has waited begins")
            self._again()
        self._changed()


class Troubles:
    """Sessions that the machine kept from their work: each is looked at again, ever more seldom, until that works.

    `again` is when; `changed` is told when there is trouble, and when it is over.
    """

    def __init__(self, roster: Roster, again: Alarms, changed: Callable[[], None]) -> None:
        self.tries: Counter[str] = Counter()  # how often in a row a session was kept from its work
        self._roster = roster
        self._again = again
        self._changed = changed
        self._said: dict[str, str] = {}  # by session: what kept it
        self._put_off: dict[str, float] = {}  # after a run that broke: until when, in the loop's time

    def of(self, name: str) -> str:
        """Return what keeps a session from its work; an empty text when nothing does."""
        return self._said.get(name, "")

    def all(self) -> Iterable[str]:
        """Return what keeps sessions from their work."""
        return self._said.values()

    def known(self) -> set[str]:
        """Return the sessions of which anything is remembered."""
        return self.tries.keys() | self._said.keys() | self._put_off.keys()

    def look_later(self, name: str, exc: OSError) -> None:
        """Look at a session again when the machine may allow what it has not allowed now."""
        trouble = explain(exc, self._roster.directory(name))
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # it is being changed
            log.info("session %s: looked at again: %s", name, trouble)
        elif self._said.get(name) != trouble:
            log.error("session %s: tried again until it works: %s", name, trouble)
            self._said[name] = trouble
            self._changed()
        pause = min(LAST_LOOK, FIRST_LOOK * 2.0 ** min(self.tries[name], 10))
        self.tries[name] += 1
        if name not in self._again:
            self._again.set(name, pause)

    def put_off(self, name: str, exc: OSError) -> None:
        """Do the same for a session whose run broke: it is not run again at once either."""
        self._put_off[name] = asyncio.get_running_loop().time() + PUT_OFF
        self.look_later(name, exc)

    def wait(self, name: str) -> float:
        """Return for how many seconds a session is not run again."""
        left = self._put_off.get(name, 0.0) - asyncio.get_running_loop().time()
        if left <= 0:
            self._put_off.pop(name, None)
        return max(0.0, left)

    def passed(self, name: str, *, rests: bool = False) -> None:
        """Take note that a look at a session did all its work, or found that it `rests` and needs nothing."""
        if rests:
            self._put_off.pop(name, None)
        if name in self._put_off:
            return
        self.tries.pop(name, None)
        if self._said.pop(name, None):
            log.warning("session %s: the trouble is over", name)
            self._changed()

    def forget(self, name: str) -> None:
        """Forget a session that has gone."""
        self._said.pop(name, None)
        self.tries.pop(name, None)
        self._put_off.pop(name, None)
