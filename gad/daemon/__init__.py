"""The daemon: owns one spool, looks at its sessions, admits them to run, and leaves in good order.

This is its life from start to end. Every session is looked at on start, when events were lost, and at intervals; an
event only makes the look come sooner. A look (`looks`) ends with what the session does next (`work`); beside these
stand the sessions that there are (`roster`), what parents and children share (`families`), what the machine does not
allow (`trouble`), and what the daemon says of itself (`standing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from gad.agent import Parts
from gad.core.admission import Admission
from gad.core.quota import Quota
from gad.core.states import ENDED
from gad.daemon.families import Families
from gad.daemon.looks import Looks
from gad.daemon.loop import Alarms, Tasks
from gad.daemon.roster import Roster
from gad.daemon.standing import Standing
from gad.daemon.trouble import Room, Troubles
from gad.daemon.work import Work
from gad.notify import Notifier
from gad.spool.claim import ignore_lease_breaks
from gad.spool.intake import Door
from gad.spool.ledger import Quotas
from gad.spool.lock import SpoolLock
from gad.spool.space import Space
from gad.spool.watch import Watch

log = logging.getLogger(__name__)

FULL_LOOK = 30.0
"""Seconds between two looks at every session while events work."""
POLL = 1.0
"""The same while they do not."""
SPACE_LOOK = 3.0
"""Seconds between two looks at the free space."""
_OVER = ENDED | {"new", "rejected"}
"""What a session's status says of it when nothing of it is under way."""


class Beside(Protocol):
    """What works beside the sessions, from readiness to the end."""

    def start(self) -> None:
        """Begin, in the daemon's event loop."""
        ...

    async def close(self) -> None:
        """Finish what is under way, soon."""
        ...


class Daemon:
    """One spool's daemon.

    `sessions` is how many run at once, and `children` how many of one session's, beyond that, while it runs. `only`
    restricts it to one session and those below it, and ends it when that session rests; those above are told what was
    used. `reap` ends what a crashed daemon's calls have left running in a session. `notifier` tells the service
    manager. Nothing new begins while `space` is short; `quotas` are those of users.
    """

    def __init__(
        self,
        spool: str,
        parts: Parts,
        door: Door,
        *,
        sessions: int,
        children: int = 8,
        polling: bool = False,
        only: str | None = None,
        reap: Callable[[str, Collection[str]], object] = lambda session, calls: None,
        beside: Sequence[Beside] = (),
        notifier: Notifier | None = None,
        space: Space | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.spool = spool
        self._parts = parts
        self._beside = beside
        self._polling = polling
        self._ending = asyncio.Event()
        self._kick = asyncio.Event()
        self._leaving = False
        self._patience = 0.0  # seconds that turns under way have to come to their end
        self._tasks = Tasks()
        self._standing = Standing(spool, notifier or Notifier({}), self.counts, self._trouble)
        changed = self._standing.changed
        self._roster = Roster(spool, only, changed)
        again = Alarms(self.poke)
        self._troubles = Troubles(self._roster, again, changed)
        self._room = Room(space or Space(spool, 0), changed, self._kick.set)
        self._families = Families(spool, self._roster, self.poke)
        self._work = Work(
            self._roster,
            Admission(sessions, children, quotas.quota.sessions if quotas is not None else None),
            quotas,
            self._families,
            self._troubles,
            self._room,
            self._tasks,
            parts=lambda: self._parts,
            poke=self.poke,
            changed=changed,
            rested=self._rested,
        )
        self._looks = Looks(
            self._roster,
            door,
            self._families,
            self._troubles,
            self._room,
            self._work,
            self._tasks,
            again,
            parts=lambda: self._parts,
            reap=reap,
            covered=self._covered,
            changed=changed,
        )

    # -- from outside ----------------------------------------------------------------------------

    @property
    def parts(self) -> Parts:
        """What sessions run with now."""
        return self._parts

    @property
    def states(self) -> Mapping[str, str]:
        """The state of each session."""
        return self._roster.states

    def counts(self) -> Counter[str]:
        """Return how many sessions are in each state."""
        runners = self._work.runners.items()
        at_work = {name: "deferred" if one.live.trouble else "running" for name, one in runners}
        return Counter((self._roster.states | at_work).values())

    def oldest_queued(self) -> float | None:
        """Return since when the oldest session in the queue has been there, in seconds since the epoch."""
        return self._work.oldest_queued()

    def unfinished(self) -> list[str]:
        """Return the sessions that are not over: those at work first, then those that wait."""
        states, runners = self._roster.states, self._work.runners
        return [*runners, *(name for name, state in states.items() if state not in _OVER and name not in runners)]

    def poke(self, name: str) -> None:
        """Look at a session, soon."""
        self._looks.poke(name)

    def stop(self) -> None:
        """Leave in good order: steps under way are broken off and resumed by the next daemon."""
        self._patience = 0.0
        self._ending.set()
        self._kick.set()
        if self._leaving:
            self._break_off()

    def drain(self, seconds: float) -> int:
        """Leave when the turns under way are over; those that take longer are broken off then, as by `stop`.

        Return how many there are.
        """
        if not self._ending.is_set():
            self._patience = seconds
            self._ending.set()
            self._kick.set()
        return len(self._work.runners)

    def take_up(self, parts: Parts, *, sessions: int, children: int, quota: Quota | None = None) -> None:
        """Go on with other settings: sessions at work have them from their next step on."""
        self._parts = parts
        self._work.take_up(parts, sessions, children, quota)
        if quota is not None:
            self._kick.set()  # a session may have waited for that

    def reloading(self) -> None:
        """Tell the service manager that the settings are being read again; `reloaded` must follow."""
        self._standing.reloading()

    def reloaded(self, notes: Mapping[str, object]) -> None:
        """Tell what came of it, in the daemon's status as well."""
        self._standing.reloaded(self._parts.secrets.clean(notes))

    # -- its life --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take the lock, recover, watch, and work until told to stop. Raises SpoolLocked."""
        with SpoolLock(self.spool):
            self._loop = asyncio.get_running_loop()
            ignore_lease_breaks()
            self._room.look()
            self._standing.write()
            watch = Watch(self.spool, self._hint, self._lost)
            self._watch = watch
            ticking = self._loop.create_task(self._standing.tick())
            minding = self._loop.create_task(self._mind_space())
            try:
                await asyncio.to_thread(watch.start, polling=self._polling)
                if watch.problem:
                    log.warning("no file events, looking every %g s instead: %s", POLL, watch.problem)
                await self._looks.recover()
                self._standing.ready()
                for one in self._beside:
                    one.start()
                await self._look_and_look()
            finally:
                await self._leave()
                watch.stop()
                ticking.cancel()
                minding.cancel()
                await asyncio.gather(ticking, minding, return_exceptions=True)

    async def _look_and_look(self) -> None:
        pause = 0.0
        while not self._ending.is_set():
            # A look that takes long must not become all that the daemon does.
            pause = max(POLL, 10 * pause) if self._watch.problem else FULL_LOOK
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), min(pause, FULL_LOOK))
            self._kick.clear()
            if not self._ending.is_set():
                began = time.monotonic()
                await self._looks.look_at_all()
                pause = time.monotonic() - began

    async def _mind_space(self) -> None:
        while True:
            await asyncio.sleep(SPACE_LOOK)
            self._room.look()
            if self._standing.unwritten:
                self._standing.write()
            self._work.admit_next()

    async def _leave(self) -> None:
        self._leaving = True
        self._families.close()
        self._standing.leaving(self._patience)
        self._looks.close()
        self._work.finish()
        late = self._loop.call_later(self._patience, self._break_off)
        if not self._patience:
            self._break_off()
        await self._tasks.over()
        late.cancel()
        for one in self._beside:
            await one.close()
        for live in self._roster.live.values():
            live.close()
        self._standing.stopped()

    def _break_off(self) -> None:
        self._standing.breaks_off()
        self._work.break_off()

    # -- what its parts tell it ------------------------------------------------------------------

    def _hint(self, name: str) -> None:
        """Take note, from a watch thread, of what it saw."""
        self._loop.call_soon_threadsafe(self.poke, name)

    def _lost(self) -> None:
        """Take note, from a watch thread, that events were lost."""
        self._loop.call_soon_threadsafe(self._kick.set)

    def _covered(self, directory: str) -> None:
        """Have a session's directory watched."""
        if not self._watch.problem and not self._watch.covers(directory):
            log.warning("no more file events, looking every %g s instead: %s", POLL, self._watch.problem)
            self._kick.set()

    def _rested(self, name: str) -> None:
        if name == self._roster.only:
            self.stop()

    def _trouble(self) -> str:
        """Return what is wrong with the machine, in words for people; an empty text when all is well."""
        paused = [live.trouble for live in self._roster.live.values() if live.trouble]
        found = dict.fromkeys([self._room.short, *paused, *self._troubles.all()])
        return self._parts.secrets.clean("; ".join(one for one in found if one)[:1000])
