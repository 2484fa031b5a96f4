"""What a session that was looked at does next: it runs, waits for its time or for a place, or rests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from gad.agent import Parts, Runner
from gad.core.admission import Admission
from gad.core.quota import Quota
from gad.core.records import Ended, Paused
from gad.core.session import Session
from gad.core.states import RESTING
from gad.daemon.families import Families
from gad.daemon.loop import Alarms, Tasks
from gad.daemon.roster import Roster
from gad.daemon.trouble import Room, Troubles
from gad.spool.files import MACHINE, NotRegular
from gad.spool.ledger import Quotas, midnight
from gad.spool.live import Live, explain

log = logging.getLogger(__name__)

LONGEST = 86400.0
"""Seconds after which a session that waits for its time is looked at in any case."""


class Waits:
    """For how long sessions wait for their time. A clock that is set back does not make it longer."""

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, float]] = {}  # when each is due, and when that is in the loop's time

    def known(self) -> set[str]:
        """Return the sessions of which anything is remembered."""
        return set(self._due)

    def forget(self, name: str) -> None:
        """Forget a session that has gone."""
        self._due.pop(name, None)

    def of(self, session: Session, now: float) -> float:
        """Return for how many seconds a session does not want to go on yet."""
        deferred = session.state == "deferred"
        due = session.reach.retry_at if deferred else session.options.not_before or 0.0
        wait = due - now
        known = self._due.get(session.name)
        if not deferred or wait <= 0:
            self._due.pop(session.name, None)
            return wait
        at = asyncio.get_running_loop().time()
        if known is None or known[0] != due:
            known = self._due[session.name] = (due, at + min(wait, max(0.0, due - session.since)))
        return min(wait, known[1] - at)


class Work:
    """Who is at work, and who waits for a place. `quotas` are those of users.

    `parts` are what sessions run with now, `poke` has one looked at, soon, `changed` is told when somebody begins or
    ends, and `rested` when somebody rests.
    """

    def __init__(
        self,
        roster: Roster,
        admission: Admission,
        quotas: Quotas | None,
        families: Families,
        troubles: Troubles,
        room: Room,
        tasks: Tasks,
        *,
        parts: Callable[[], Parts],
        poke: Callable[[str], None],
        changed: Callable[[], None],
        rested: Callable[[str], None],
    ) -> None:
        self.runners: dict[str, Runner] = {}
        self.waits = Waits()
        self._roster = roster
        self._admission = admission
        self._quotas = quotas
        self._families = families
        self._troubles = troubles
        self._room = room
        self._tasks = tasks
        self._parts = parts
        self._poke = poke
        self._changed = changed
        self._rested = rested
        self._due = Alarms(poke)
        self._called: set[str] = set()  # being read back from their journals to take the place that they have
        self._closed = False

    # -- from outside ----------------------------------------------------------------------------

    def oldest_queued(self) -> float | None:
        """Return since when the oldest session in the queue has been there, in seconds since the epoch."""
        return self._admission.oldest()

    def take_up(self, parts: Parts, sessions: int, children: int, quota: Quota | None) -> None:
        """Go on with other settings."""
        if self._quotas is not None and quota is not None:
            self._quotas.quota = quota
        for runner in self.runners.values():
            runner.take_up(parts)
        self._admission.resize(sessions, children, quota.sessions if quota is not None else None)
        self.admit_next()

    def finish(self) -> None:
        """Begin nothing more; the turns under way come to their end, and nobody waits for the machine."""
        self._closed = True
        self._due.close()
        for runner in self.runners.values():
            runner.finish()
        for name, live in self._roster.live.items():
            if name not in self.runners:
                live.press()

    def break_off(self) -> None:
        """Break off the steps under way."""
        for runner in self.runners.values():
            runner.leave()

    # -- what comes next -------------------------------------------------------------------------

    def settle(self, live: Live) -> None:
        """Decide what a session does next."""
        name, session, now = live.name, live.session, self._parts().now()
        self._roster.set_state(name, "failed" if live.damage else session.public_state)
        if name in self.runners or self._closed:
            return
        self._due.drop(name)
        put_off = self._troubles.wait(name)
        if session.stop_requested and not put_off:
            self._admit(live)  # ending a session takes no slot
            return
        if live.damage or session.state in RESTING:
            self._rest(live)
            return
        wait = self.waits.of(session, now)
        if (left := session.allowance.seconds_left(now)) is not None and session.state == "deferred":
            wait = min(wait, left)  # then the time limit ends it
        if wait > 0:
            self._due.set(name, min(wait, LONGEST))
            self._roster.drop(live)
            return
        if put_off:
            self._due.set(name, put_off)
            self._hold(live, self._troubles.of(name))
            return
        self.call_off(name)
        options, user = session.options, self._payer(session)
        if self._quotas is not None and (over := self._quotas.today(session)):
            at = time.time()
            self._due.set(name, midnight(at) - at + 1.0)
            self._hold(live, over)
            return
        self._admission.enqueue(name, options.sponsor, priority=options.priority, since=session.since, user=user)
        self.admit_next(live)
        if self._admission.queued(name):
            over = self._quotas.at_work(user, self._admission.at_work(user)) if self._quotas and user else ""
            self._hold(live, self._room.short or over)

    def _hold(self, live: Live, why: str) -> None:
        """Let go of a session that does not get to work yet, and say why."""
        live.held = why
        live.publish()
        self._roster.drop(live)

    def _rest(self, live: Live) -> None:
        state = live.session.public_state
        self._roster.drop(live)
        if state != "new":
            self._rested(live.name)

    def _payer(self, session: Session) -> int | None:
        return self._quotas.payer(session) if self._quotas is not None else None

    # -- places ----------------------------------------------------------------------------------

    def admit_next(self, settled: Live | None = None) -> None:
        """Have those begin who may; all but the one that has just been `settled` are looked at first."""
        while not self._closed and not self._room.short and (name := self._admission.take()) is not None:
            if settled is not None and settled.name == name:
                self._admit(settled)
            else:
                self._called.add(name)
                self._poke(name)

    def call_off(self, name: str) -> None:
        """Take back the place of a session that was called to take it."""
        if name in self._called:
            self._called.discard(name)
            self._admission.leave(name)

    def _admit(self, live: Live) -> None:
        runner = Runner(live, self._parts(), self._families)
        self.runners[live.name] = runner
        self._called.discard(live.name)
        self._admission.place(live.name, live.session.options.sponsor, self._payer(live.session))
        if self._quotas is not None:
            self._quotas.begins(live.session)
        self._tasks.spawn(self._run(runner))
        self._changed()

    # -- running ---------------------------------------------------------------------------------

    async def _run(self, runner: Runner) -> None:
        live = runner.live
        try:
            await runner.run()
        except Exception as exc:
            if live.gone:
                log.warning("session %s: its directory has gone", live.name)
            elif isinstance(exc, OSError) and (self._closed or isinstance(exc, NotRegular)):
                log.error("session %s: left as it stands: %s", live.name, explain(exc, live.directory))
            elif isinstance(exc, OSError) and exc.errno in MACHINE:
                await self._put_off(live, exc)
            else:
                log.exception("session %s: its run broke", live.name)
                await self._break(live, exc)
        finally:
            del self.runners[live.name]
            self._admission.leave(live.name)
            self._changed()
        # What came in while the last step ended has been seen by nobody: look once more, then settle.
        self._poke(live.name)
        self.admit_next()

    async def _put_off(self, live: Live, exc: OSError) -> None:
        """Have a session go on later, as the machine does not allow it now."""
        self._troubles.put_off(live.name, exc)
        if live.session.state == "running":
            with contextlib.suppress(OSError):
                await live.append(Paused(self._parts().now()), patient=False)

    async def _break(self, live: Live, exc: Exception) -> None:
        """End a session whose run raised what nothing expected, so that it does not hang without a word."""
        try:
            why = f"internal error: {type(exc).__name__}: {exc}"
            await live.append(Ended(self._parts().now(), "failed", why), patient=False)
        except Exception:
            log.exception("session %s: could not even be ended", live.name)
