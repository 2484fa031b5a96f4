"""Looking at sessions: what lies in a session's directory is compared with its journal, and the difference acted on.

Events are hints, the directory is the truth. Looks at one session never overlap.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection

from gad.agent import Parts
from gad.core.records import Judged, Resumed, StopAsked, TurnedDown
from gad.core.states import ENDED
from gad.daemon.families import Bill, Families
from gad.daemon.loop import Alarms, Tasks
from gad.daemon.roster import Roster
from gad.daemon.trouble import Room, Troubles
from gad.daemon.work import Work
from gad.spool.files import NotRegular
from gad.spool.intake import Door, survey
from gad.spool.kin import stop_waits
from gad.spool.live import Live, explain

log = logging.getLogger(__name__)

BLOCKED_LOOK = 0.25
"""Seconds until a session whose client is still writing is looked at again, should no event come."""


class Looks:
    """The looks at one daemon's sessions, and what they find, handed on to those who act on it.

    `again` is when a session is looked at again in any case. `reap` ends what a crashed daemon's calls have left
    running in a session. `covered` is told each directory that is looked into, and `changed` when what the daemon
    says of itself is another.
    """

    def __init__(
        self,
        roster: Roster,
        door: Door,
        families: Families,
        troubles: Troubles,
        room: Room,
        work: Work,
        tasks: Tasks,
        again: Alarms,
        *,
        parts: Callable[[], Parts],
        reap: Callable[[str, Collection[str]], object],
        covered: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self.under_way: set[str] = set()
        self._roster = roster
        self._door = door
        self._families = families
        self._troubles = troubles
        self._room = room
        self._work = work
        self._tasks = tasks
        self._blocked = again
        self._parts = parts
        self._reap = reap
        self._covered = covered
        self._changed = changed
        self._again: set[str] = set()
        self._unlisted = False  # the spool could not be listed the last time
        self._closed = False

    # -- who is looked at ------------------------------------------------------------------------

    def poke(self, name: str) -> None:
        """Look at a session, soon."""
        if self._closed or not (self._roster.concerned(name) or self._families.waits(name)):
            return
        if name in self.under_way:
            self._again.add(name)
            return
        self.under_way.add(name)
        self._tasks.spawn(self._look(name))

    async def recover(self) -> None:
        """Look at every session once; return when those that need something have been taken up."""
        found = await asyncio.to_thread(self._roster.survey)
        for name, settled in found.items():
            if settled:
                self._roster.states[name] = settled
            else:
                self.poke(name)
        while self.under_way:
            await self._tasks.one_over()

    async def look_at_all(self) -> None:
        """Look, soon, at every session that needs something, and forget those that have gone."""
        try:
            found = await asyncio.to_thread(self._roster.survey)
        except OSError as exc:
            if not self._unlisted:
                log.error("the spool cannot be listed, tried again until it can: %s", explain(exc))
            self._unlisted = True
            return
        self._unlisted = False
        for name in [name for name in self._roster.states if name not in found]:
            if name not in self._roster.live:
                del self._roster.states[name]
                self._changed()
        for name in (self._troubles.known() | self._work.waits.known()) - found.keys():
            self._clear(name)
        for name, settled in found.items():
            if not settled:
                self.poke(name)

    def close(self) -> None:
        """Look at nothing more; the looks under way come to their end."""
        self._closed = True
        self._blocked.close()

    # -- one look --------------------------------------------------------------------------------

    async def _look(self, name: str) -> None:
        try:
            while True:
                self._again.discard(name)
                bills = self._families.fetch(name)
                try:
                    await self._look_once(name, bills)
                except NotRegular as exc:  # something else has taken the place of a file of ours
                    log.error("session %s: %s", name, exc)
                    if (live := self._roster.live.get(name)) is not None and name not in self._work.runners:
                        self._troubles.look_later(name, exc)
                        self._roster.drop(live)
                except Exception as exc:
                    if not await asyncio.to_thread(os.path.isdir, self._roster.directory(name)):
                        self._forget(name)  # the client has removed the directory meanwhile
                    elif isinstance(exc, OSError):
                        self._troubles.look_later(name, exc)
                    else:
                        log.error("session %s: looking at it failed", name, exc_info=exc)
                self._families.give_back(bills)
                if name not in self._again or self._closed:
                    return
        finally:
            self.under_way.discard(name)
            self._work.call_off(name)
            self._work.admit_next()

    async def _look_once(self, name: str, bills: list[Bill]) -> None:
        """Look; the bills that could be taken are gone from the list then."""
        if not self._roster.concerned(name):
            await self._tell(name, bills)
            return
        runners = self._work.runners
        live = self._roster.live.get(name)
        if live is not None and live.gone:
            if name in runners:
                runners[name].interrupt()  # it finds out by itself; then we look again
                return
            self._roster.drop(live)
            live = None
        live = live or await self._open(name, wanted=bool(bills))
        if live is None:
            return
        told = live.session.state in ENDED and await asyncio.to_thread(stop_waits, live.directory)
        if told:
            await self._families.stop_children(live.session)  # first: nothing will follow from the request itself
        if live.session.state in (*ENDED, "new"):
            self._room.look()
        intake = await live.take_in(self._door, self._families.left, full=bool(self._room.short))
        if intake.fresh:
            self._families.begins(name)
            self._families.report(live.session, fresh=True)
        if not told and any(isinstance(record, StopAsked) for record in intake.records):
            self._families.halts(name)
        await self._families.take(live, bills, self._parts().now)
        if live.session.state == "running" and name not in runners:
            await self._resume(live)
        if name not in runners and intake.trouble is None:
            live.go_on()
        if intake.blocked and name not in self._blocked:
            self._blocked.set(name, BLOCKED_LOOK)
        runner = runners.get(name)
        if runner is None and not intake.records:
            live.publish()  # a crash may have come between the journal and the status
        elif runner is not None and live.session.stop_requested:
            runner.interrupt()
        if any(isinstance(record, Judged | TurnedDown) for record in intake.records):
            self._parts().ended(live)
            self.poke(name)  # an input.txt that came after a verdict still lies there
        if trouble := intake.trouble or (live.unshown if name not in runners else None):
            self._troubles.look_later(name, trouble)
        elif not live.trouble:
            self._troubles.passed(name)
        if live.session.state in ENDED and self._families.halting(name):  # its end came first: nothing has followed
            await self._families.stop_children(live.session)
        self._work.settle(live)

    async def _open(self, name: str, *, wanted: bool) -> Live | None:
        """Return the session, replayed, or None when there is nothing to do for it and it is not `wanted`."""
        directory = self._roster.directory(name)
        seen = await asyncio.to_thread(survey, directory)
        self._covered(directory)
        if seen.settled and not wanted:
            self._roster.set_state(name, seen.settled)
            self._troubles.passed(name, rests=True)
            return None
        if not seen.anything:
            return None
        parts = self._parts()
        live = Live(directory, parts.secrets, parts.seen, silenced=bool(self._troubles.of(name)))
        try:
            await asyncio.to_thread(live.load)
        except BaseException:
            live.close()
            raise
        live.changed = self._changed
        self._roster.live[name] = live
        if live.torn:
            log.warning("session %s: a torn last journal line of %d bytes was cut off", name, live.torn)
        if live.damage and self._roster.states.get(name) != "failed":
            log.error("session %s: %s", name, live.damage)
        return live

    async def _resume(self, live: Live) -> None:
        """Take up a session that the daemon before this one left in the middle of a step: it crashed."""
        await asyncio.to_thread(self._reap, live.name, live.session.under_way)
        await live.append(Resumed(self._parts().now()), patient=False)

    async def _tell(self, name: str, bills: list[Bill]) -> None:
        """Have a session above those of this daemon take bills; the rest of it is the next daemon's."""
        if bills and (live := await self._open(name, wanted=True)) is not None:
            try:
                await self._families.take(live, bills, self._parts().now)
            finally:
                self._roster.drop(live)

    # -- those that have gone --------------------------------------------------------------------

    def _forget(self, name: str) -> None:
        if name not in self._work.runners:
            self._roster.forget(name)
            self._clear(name)

    def _clear(self, name: str) -> None:
        self._troubles.forget(name)
        self._work.waits.forget(name)
