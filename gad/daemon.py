"""The daemon: owns one spool, looks at its sessions, admits them to run, and leaves in good order.

Events are hints, the directory is the truth: `look` compares what lies in a session's directory with
its journal and acts on the difference. Every session is looked at on start, when events were lost, and
at intervals; an event only makes the look come sooner.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol

from gad import __version__
from gad.agent import Parts, Runner
from gad.core.records import ChildBegan, Ended, Judged, Resumed, TurnedDown
from gad.core.states import RESTING
from gad.spool import names
from gad.spool.claim import ignore_lease_breaks
from gad.spool.intake import Door, survey
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

    `sessions` is how many run at once. `only` restricts it to one session, and ends it when that session
    rests. `reap` ends what a crashed daemon's calls have left running in a session.
    """

    def __init__(
        self,
        spool: str,
        parts: Parts,
        door: Door,
        *,
        sessions: int,
        polling: bool = False,
        only: str | None = None,
        reap: Callable[[str, Collection[str]], object] = lambda session, calls: None,
        beside: Sequence[Beside] = (),
    ) -> None:
        self.spool = spool
        self.states: dict[str, str] = {}
        self._parts = parts
        self._door = door
        self._slots = sessions
        self._only = only
        self._reap = reap
        self._beside = beside
        self._polling = polling
        self._live: dict[str, Live] = {}
        self._looking: set[str] = set()
        self._again: set[str] = set()
        self._runners: dict[str, Runner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: list[tuple[int, float, str]] = []
        self._queued: set[str] = set()
        self._called: set[str] = set()  # being read back from their journals to take a free slot
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._blocked: dict[str, asyncio.TimerHandle] = {}
        self._newborn: dict[str, list[str]] = {}  # by parent: children that its journal does not tell of yet
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
        if self._only is not None:
            return {self._only: ""}
        with os.scandir(self.spool) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        return {
            name: survey(os.path.join(self.spool, name)).settled for name in found if names.valid_session_name(name)
        }

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
        if self._draining or (self._only is not None and name != self._only):
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
                try:
                    await self._look_once(name)
                except Exception:
                    if await asyncio.to_thread(os.path.isdir, os.path.join(self.spool, name)):
                        log.exception("session %s: looking at it failed", name)
                    else:  # the client has removed the directory meanwhile
                        self._forget(name)
                if name not in self._again or self._draining:
                    return
        finally:
            self._looking.discard(name)
            self._called.discard(name)
            self._admit_next()

    async def _look_once(self, name: str) -> None:
        live = self._live.get(name)
        if live is not None and live.gone:
            if name in self._runners:
                self._runners[name].interrupt()  # it finds out by itself; then we look again
                return
            self._drop(live)
            live = None
        live = live or await self._open(name)
        if live is None:
            return
        intake = await live.take_in(self._door)
        if intake.fresh and (parent := live.session.options.parent):
            self._newborn.setdefault(parent, []).append(name)
            self.poke(parent)
        for child in self._newborn.pop(name, ()):
            if live.session.state != "new" and not live.damage and child not in live.session.children:
                await live.append(ChildBegan(self._parts.now(), child))
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
        self._settle(live)

    def _look_at_blocked(self, name: str) -> None:
        self._blocked.pop(name, None)
        self.poke(name)

    async def _open(self, name: str) -> Live | None:
        """Return the session, replayed, or None when there is nothing to do for it."""
        directory = os.path.join(self.spool, name)
        seen = await asyncio.to_thread(survey, directory)
        if name not in self.states and not self._watch.problem and not self._watch.covers(directory):
            log.warning("no more file events, looking every %g s instead: %s", POLL, self._watch.problem)
            self._kick.set()
        if seen.settled and name not in self._newborn:
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
        self._called.discard(name)
        if name not in self._queued:
            self._queued.add(name)
            heapq.heappush(self._queue, (-session.options.priority, session.since, name))
        self._admit_next()
        if name in self._queued:
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
        while self._queue and len(self._runners) + len(self._called) < self._slots and not self._draining:
            _, _, name = heapq.heappop(self._queue)
            self._queued.discard(name)
            live = self._live.get(name)
            if name in self._runners:
                continue
            if live is None:
                self._called.add(name)
                self.poke(name)
            else:
                self._admit(live)

    def _admit(self, live: Live) -> None:
        runner = Runner(live, self._parts)
        self._runners[live.name] = runner
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
        # What came in while the last step ended has been seen by nobody: look once more, then settle.
        self.poke(live.name)
        self._admit_next()

    async def _break(self, live: Live, exc: Exception) -> None:
        """End a session whose run raised what nothing expected, so that it does not hang without a word."""
        try:
            await live.append(Ended(self._parts.now(), "failed", f"internal error: {type(exc).__name__}: {exc}"))
        except Exception:
            log.exception("session %s: could not even be ended", live.name)


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
