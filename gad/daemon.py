"""The daemon: owns one spool, looks at its sessions, admits them to run, and leaves in good order.

Events are hints, the directory is the truth: `look` compares what lies in a session's directory with
its journal and acts on the difference. Every session is looked at on start, when events were lost, and
at intervals; an event only makes the look come sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gad import __version__
from gad.agent import Parts, Runner
from gad.core.admission import Admission
from gad.core.limits import Left, Spent
from gad.core.records import ChildBegan, ChildUsed, Ended, Judged, Resumed, StopAsked, TurnedDown
from gad.core.session import Session
from gad.core.states import ENDED, RESTING
from gad.spool import names
from gad.spool.claim import ignore_lease_breaks
from gad.spool.intake import Door, survey
from gad.spool.kin import DEPTH, ancestors, descendants, left_of, named_parent, stop_children, stop_waits
from gad.spool.live import Live
from gad.spool.lock import SpoolLock
from gad.spool.status import write_status
from gad.spool.watch import Watch

log = logging.getLogger(__name__)

FULL_LOOK = 30.0
"""Seconds between two looks at every session while events work."""
POLL = 1.0
"""The same while they do not."""
BLOCKED_LOOK = 0.25
"""Seconds until a session whose client is still writing is looked at again, should no event come."""
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


@dataclass(frozen=True, slots=True)
class _Bill:
    """What a parent's journal is to say of a child: that it is there, and what it has used by now.

    `fresh` says that its conversation has just begun. `told` is given which limit is used up of those whom the bill
    concerns, or an empty text, when all have taken it: `limit` is what those so far have said, and at most `levels`
    more are asked.
    """

    child: str
    began: float
    used: Spent
    fresh: bool
    told: asyncio.Future[str]
    limit: str = ""
    levels: int = DEPTH


class Daemon:
    """One spool's daemon.

    `sessions` is how many run at once, and `children` how many of one session's, beyond that, while it runs. `only`
    restricts it to one session and those below it, and ends it when that session rests; those above are told what was
    used. `reap` ends what a crashed daemon's calls have left running in a session.
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
    ) -> None:
        self.spool = spool
        self.states: dict[str, str] = {}
        self._parts = parts
        self._door = door
        self._only = only
        self._family = set() if only is None else {only} | descendants(spool, only)
        self._made = time.time()
        self._reap = reap
        self._beside = beside
        self._polling = polling
        self._live: dict[str, Live] = {}
        self._looking: set[str] = set()
        self._again: set[str] = set()
        self._runners: dict[str, Runner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._admission = Admission(sessions, children)
        self._called: set[str] = set()  # being read back from their journals to take the place that they have
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._blocked: dict[str, asyncio.TimerHandle] = {}
        self._bills: dict[str, list[_Bill]] = {}  # by parent: what its journal does not tell of yet
        self._stopping: set[str] = set()  # asked to halt while at work, and their children have not been yet
        self._ending = asyncio.Event()
        self._kick = asyncio.Event()
        self._draining = False
        self._status_due = False
        self._state = "starting"

    # -- the daemon's own life -------------------------------------------------------------------

    async def run(self) -> None:
        """Take the lock, recover, watch, and work until told to stop. Raises SpoolLocked."""
        with SpoolLock(self.spool):
            self._loop = asyncio.get_running_loop()
            ignore_lease_breaks()
            self._write_status()
            watch = Watch(self.spool, self._hint, self._lost)
            self._watch = watch
            try:
                await asyncio.to_thread(watch.start, polling=self._polling)
                if watch.problem:
                    log.warning("no file events, looking every %g s instead: %s", POLL, watch.problem)
                await self._recover()
                self._state = "ready"
                self._write_status()
                notify("READY=1")
                for one in self._beside:
                    one.start()
                await self._work()
            finally:
                await self._leave()
                watch.stop()

    def unfinished(self) -> list[str]:
        """Return the sessions that are not over: those at work first, then those that wait."""
        waiting = [name for name, state in self.states.items() if state not in _OVER and name not in self._runners]
        return [*self._runners, *waiting]

    def stop(self) -> None:
        """Leave in good order: steps under way are broken off and resumed by the next daemon."""
        self._ending.set()
        self._kick.set()

    async def _work(self) -> None:
        pause = 0.0
        while not self._ending.is_set():
            # A look that takes long must not become all that the daemon does.
            pause = max(POLL, 10 * pause) if self._watch.problem else FULL_LOOK
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), min(pause, FULL_LOOK))
            self._kick.clear()
            if not self._ending.is_set():
                began = time.monotonic()
                await self._look_at_all()
                pause = time.monotonic() - began

    async def _leave(self) -> None:
        self._draining = True
        self._state = "draining"
        for bills in self._bills.values():
            for bill in bills:
                _answer(bill, bill.limit)  # the child reports again when it goes on
        self._bills.clear()
        notify("STOPPING=1")
        self._write_status()
        for timer in (*self._timers.values(), *self._blocked.values()):
            timer.cancel()
        for runner in list(self._runners.values()):
            runner.leave()
        while self._tasks:
            await asyncio.wait(self._tasks)
        for one in self._beside:
            await one.close()
        for live in self._live.values():
            live.close()
        self._state = "stopped"
        self._write_status()

    def _write_status(self) -> None:
        self._status_due = False
        counts = Counter(self.states.values())
        values: dict[str, object] = {"state": self._state, "pid": os.getpid(), "version": __version__}
        values |= {state: counts[state] for state in names.STATES if counts[state]}
        write_status(os.path.join(self.spool, names.DAEMON_DIR), values)

    def _status_changed(self) -> None:
        """Write the daemon's status soon; a burst of changes is one write."""
        if not self._status_due:
            self._status_due = True
            self._loop.call_later(0.2, lambda: self._write_status() if self._status_due else None)

    # -- looking ---------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Look at every session once; return when those that need something have been taken up."""
        found = await asyncio.to_thread(self._survey_all)
        for name, settled in found.items():
            if settled:
                self.states[name] = settled
            else:
                self.poke(name)
        while self._looking:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def _survey_all(self) -> dict[str, str]:
        with os.scandir(self.spool) as entries:
            found = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        chosen = [entry.name for entry in found if names.valid_session_name(entry.name)]
        if self._only is not None:  # a child of it is new
            recent = {entry.name for entry in found if entry.stat(follow_symlinks=False).st_mtime >= self._made}
            chosen = [name for name in chosen if name in self._family or (name in recent and self._concerned(name))]
        settled = {name: survey(os.path.join(self.spool, name)).settled for name in chosen}
        return settled if self._only is None else settled | {self._only: ""}

    def _concerned(self, name: str) -> bool:
        """Return whether a session is this daemon's: `only`'s one, and what is below it, are all when there is one."""
        if self._only is None or name in self._family:
            return True
        above = named_parent(os.path.join(self.spool, name))
        if above is None or self._only not in ancestors(self.spool, above):
            return False
        self._family.add(name)
        return True

    async def _look_at_all(self) -> None:
        found = await asyncio.to_thread(self._survey_all)
        for name in [name for name in self.states if name not in found]:
            if name not in self._live:
                del self.states[name]
        for name, settled in found.items():
            if not settled:
                self.poke(name)

    def _hint(self, name: str) -> None:
        """Take note, from a watch thread, of what it saw."""
        self._loop.call_soon_threadsafe(self.poke, name)

    def _lost(self) -> None:
        """Take note, from a watch thread, that events were lost."""
        self._loop.call_soon_threadsafe(self._kick.set)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def poke(self, name: str) -> None:
        """Look at a session, soon. Looks at one session never overlap."""
        if self._draining or not (self._concerned(name) or name in self._bills):
            return
        if name in self._looking:
            self._again.add(name)
            return
        self._looking.add(name)
        self._spawn(self._look(name))

    async def _look(self, name: str) -> None:
        try:
            while True:
                self._again.discard(name)
                bills = self._bills.pop(name, [])
                try:
                    await self._look_once(name, bills)
                except Exception:
                    if await asyncio.to_thread(os.path.isdir, os.path.join(self.spool, name)):
                        log.exception("session %s: looking at it failed", name)
                    else:  # the client has removed the directory meanwhile
                        self._forget(name)
                for bill in bills:
                    _answer(bill, bill.limit)
                if name not in self._again or self._draining:
                    return
        finally:
            self._looking.discard(name)
            self._call_off(name)
            self._admit_next()

    async def _look_once(self, name: str, bills: list[_Bill]) -> None:
        """Look; the bills that could be taken are gone from the list then."""
        if not self._concerned(name):
            await self._tell(name, bills)
            return
        live = self._live.get(name)
        if live is not None and live.gone:
            if name in self._runners:
                self._runners[name].interrupt()  # it finds out by itself; then we look again
                return
            self._drop(live)
            live = None
        live = live or await self._open(name, wanted=bool(bills))
        if live is None:
            return
        at_work = live.session.state not in ENDED
        if not at_work and live.session.children and await asyncio.to_thread(stop_waits, live.directory):
            await self.stop_children(live.session)  # first, since nothing will follow from the request itself
        intake = await live.take_in(self._door, self._left)
        if intake.fresh:
            self._stopping.discard(name)
            self._bill(live.session, fresh=True)
        if at_work and any(isinstance(record, StopAsked) for record in intake.records):
            self._stopping.add(name)
        await self._take_bills(live, bills)
        if live.session.state == "running" and name not in self._runners:
            await self._resume(live)
        if intake.trouble is not None:
            log.error("session %s: not everything could be taken in, trying again: %s", name, intake.trouble)
        if (intake.blocked or intake.trouble is not None) and name not in self._blocked:
            self._blocked[name] = self._loop.call_later(BLOCKED_LOOK, self._look_at_blocked, name)
        runner = self._runners.get(name)
        if runner is None and not intake.records:
            live.publish()  # a crash may have come between the journal and the status
        elif runner is not None and live.session.stop_requested:
            runner.interrupt()
        if any(isinstance(record, Judged | TurnedDown) for record in intake.records):
            self._parts.ended(live)
            self.poke(name)  # an input.txt that came after a verdict still lies there
        if live.session.state in ENDED and name in self._stopping:  # its end came first: nothing has followed
            await self.stop_children(live.session)
        self._settle(live)

    def _look_at_blocked(self, name: str) -> None:
        self._blocked.pop(name, None)
        self.poke(name)

    async def _open(self, name: str, *, wanted: bool) -> Live | None:
        """Return the session, replayed, or None when there is nothing to do for it and it is not `wanted`."""
        directory = os.path.join(self.spool, name)
        seen = await asyncio.to_thread(survey, directory)
        if name not in self.states and not self._watch.problem and not self._watch.covers(directory):
            log.warning("no more file events, looking every %g s instead: %s", POLL, self._watch.problem)
            self._kick.set()
        if seen.settled and not wanted:
            self._set_state(name, seen.settled)
            return None
        if not seen.anything:
            return None
        live = Live(directory)
        await asyncio.to_thread(live.load)
        self._live[name] = live
        if live.torn:
            log.warning("session %s: a torn last journal line of %d bytes was cut off", name, live.torn)
        if live.damage and self.states.get(name) != "failed":
            log.error("session %s: %s", name, live.damage)
        return live

    async def _resume(self, live: Live) -> None:
        """Take up a session that the daemon before this one left in the middle of a step: it crashed."""
        await asyncio.to_thread(self._reap, live.name, live.session.under_way)
        await live.append(Resumed(self._parts.now()))

    def _settle(self, live: Live) -> None:
        """Decide what a session does next: run, wait for its time or a slot, or rest."""
        name, session = live.name, live.session
        self._set_state(name, "failed" if live.damage else session.public_state)
        if name in self._runners or self._draining:
            return
        if timer := self._timers.pop(name, None):
            timer.cancel()
        if session.stop_requested:
            self._admit(live)  # ending a session takes no slot
            return
        if live.damage or session.state in RESTING:
            self._rest(live)
            return
        due = session.reach.retry_at if session.state == "deferred" else session.options.not_before or 0.0
        wait = due - self._parts.now()
        if (left := session.allowance.seconds_left(self._parts.now())) is not None and session.state == "deferred":
            wait = min(wait, left)  # then the time limit ends it
        if wait > 0:
            self._timers[name] = self._loop.call_later(min(wait, 86400.0), self.poke, name)
            self._drop(live)
            return
        self._call_off(name)
        options = session.options
        self._admission.enqueue(name, options.sponsor, priority=options.priority, since=session.since)
        self._admit_next()
        if self._admission.queued(name):
            self._drop(live)

    def _set_state(self, name: str, state: str) -> None:
        if self.states.get(name) != state and state != "new":
            self.states[name] = state
            log.info("session %s: %s", name, state)
            self._status_changed()

    def _rest(self, live: Live) -> None:
        state = live.session.public_state
        self._drop(live)
        if self._only == live.name and state != "new":
            self.stop()

    def _drop(self, live: Live) -> None:
        """Let go of a session that waits: the journal has all of it."""
        live.close()
        self._live.pop(live.name, None)

    def _forget(self, name: str) -> None:
        live = self._live.get(name)
        if name not in self._runners:
            if live is not None:
                self._drop(live)
            self.states.pop(name, None)
            self._status_changed()

    # -- running ---------------------------------------------------------------------------------

    def _admit_next(self) -> None:
        while not self._draining and (name := self._admission.take()) is not None:
            live = self._live.get(name)
            if live is None:
                self._called.add(name)
                self.poke(name)
            else:
                self._admit(live)

    def _call_off(self, name: str) -> None:
        """Take back the place of a session that was called to take it."""
        if name in self._called:
            self._called.discard(name)
            self._admission.leave(name)

    def _admit(self, live: Live) -> None:
        runner = Runner(live, self._parts, self)
        self._runners[live.name] = runner
        self._called.discard(live.name)
        self._admission.place(live.name, live.session.options.sponsor)
        self._spawn(self._run(runner))

    async def _run(self, runner: Runner) -> None:
        live = runner.live
        try:
            await runner.run()
        except Exception as exc:
            if live.gone:
                log.warning("session %s: its directory has gone", live.name)
            else:
                log.exception("session %s: its run broke", live.name)
                await self._break(live, exc)
        finally:
            del self._runners[live.name]
            self._admission.leave(live.name)
        # What came in while the last step ended has been seen by nobody: look once more, then settle.
        self.poke(live.name)
        self._admit_next()

    async def _break(self, live: Live, exc: Exception) -> None:
        """End a session whose run raised what nothing expected, so that it does not hang without a word."""
        try:
            await live.append(Ended(self._parts.now(), "failed", f"internal error: {type(exc).__name__}: {exc}"))
        except Exception:
            log.exception("session %s: could not even be ended", live.name)

    # -- families --------------------------------------------------------------------------------

    async def settle(self, session: Session) -> str:
        """Have the journals of those above say what the session has used; return which limit of theirs is used up."""
        bill = self._bill(session) if session.options.sponsor else None
        return await bill.told if bill is not None else ""

    def used_up(self, session: Session) -> str:
        """Return which limit is used up of those above that are at work."""
        above = session.options.sponsor
        for _ in range(DEPTH):
            live = self._live.get(above) if above else None
            if live is None or session.name not in live.session.children:
                return ""
            session, above = live.session, live.session.options.sponsor
            if limit := _used_up(session):
                return limit
        return ""

    async def stop_children(self, session: Session) -> None:
        """Ask for the session's children to be halted; return when that is on the disk."""
        self._stopping.discard(session.name)
        await self._stop(session.name, list(session.children), lambda child: self.states.get(child) in ENDED)

    async def _stop(self, parent: str, children: Collection[str], ended: Callable[[str], bool]) -> None:
        for child in await asyncio.to_thread(stop_children, self.spool, parent, children, ended):
            self.poke(child)

    def _left(self, parent: str) -> Left:
        """Return, in any thread, what a parent's limits still allow."""
        live = self._live.get(parent)
        return live.session.allowance.left if live is not None else left_of(self.spool, parent)

    def _bill(self, session: Session, *, fresh: bool = False) -> _Bill | None:
        """Tell a session's parent, soon, what the session has used; None when it has no parent."""
        options = session.options
        if options.parent is None:
            return None
        used = _cost(session) if options.sponsor is not None else Spent()
        bill = _Bill(session.name, session.began, used, fresh, self._loop.create_future())
        self._send(options.parent, bill)
        return bill

    def _send(self, parent: str, bill: _Bill) -> None:
        if self._draining:
            _answer(bill, bill.limit)
            return
        self._bills.setdefault(parent, []).append(bill)
        self.poke(parent)

    async def _tell(self, name: str, bills: list[_Bill]) -> None:
        """Have a session above `only` take bills; the rest of it is the next daemon's."""
        if bills and (live := await self._open(name, wanted=True)) is not None:
            try:
                await self._take_bills(live, bills)
            finally:
                self._drop(live)

    async def _take_bills(self, live: Live, bills: list[_Bill]) -> None:
        """Journal what children report, and pass on to this session's own parent what it comes to with them.

        A child that began before this conversation is not part of it. What cannot be passed on any further is
        answered; what was not taken stays in the list.
        """
        session, now = live.session, self._parts.now
        while bills and session.state != "new" and not live.damage:
            child, began, used, fresh = bills[0].child, bills[0].began, bills[0].used, bills[0].fresh
            born = child not in session.children and (fresh or began >= session.began)
            if born:
                await live.append(ChildBegan(now(), child))
            if child in session.children and used != session.allowance.charged(child, began):
                await live.append(ChildUsed(now(), child, began, used.tokens, used.usd))
            if (born or fresh) and session.halted:
                await self._stop(session.name, [child], lambda child: False)
            self._pass_on(session, bills.pop(0))

    def _pass_on(self, session: Session, bill: _Bill) -> None:
        """Answer a bill that this session has taken, or have its own parent do so."""
        above = session.options.sponsor
        ours = bill.child in session.children
        limit = bill.limit or (_used_up(session) if ours else "")
        if ours and above is not None and bill.levels:
            used, levels = _cost(session), bill.levels - 1
            self._send(above, _Bill(session.name, session.began, used, False, bill.told, limit, levels))
        else:
            _answer(bill, limit)


def _cost(session: Session) -> Spent:
    """Return what a session and its children have used of what they share with those above."""
    total = session.allowance.total
    return Spent(tokens=total.tokens, usd=total.usd)


def _answer(bill: _Bill, limit: str) -> None:
    """Answer a bill, unless somebody has done so."""
    if not bill.told.done():
        bill.told.set_result(limit)


def _used_up(session: Session) -> str:
    """Return which limit of a session is used up that its children share, in words for the user of one of those."""
    limit = session.allowance.over_cost()
    of = f"what session {session.name} may use, its children included, is used up"
    return f"{of}: {limit}; a reply to {session.name} allows the same again" if limit else ""


def notify(message: str) -> None:
    """Tell systemd, if it listens. The protocol is one datagram (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            sender.sendall(message.encode())
    except OSError as exc:
        log.warning("systemd could not be told %s: %s", message, exc)
