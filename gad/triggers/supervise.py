"""One instance's life: its child is started, called, replaced when its files change, and ended when it does harm.

All that must survive is in the instance's record. What it hands in is the affair of its account.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gad.errors import GadError
from gad.triggers.account import Account, Site
from gad.triggers.instances import Found
from gad.triggers.plugin import Event, Refused
from gad.triggers.process import Child, Died, on_disk
from gad.triggers.record import Record, Store
from gad.triggers.talk import Answer, Facts, begin_message, read_answer, refuse
from gad.triggers.watch import FileWatch

log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Failed calls in a row that disable an instance."""
_TOO_OFTEN = f"{MOST_FAILURES} failures in a row"
FIRST_WAIT = 1.0
LONGEST_WAIT = 300.0
"""Seconds until an instance is tried again after a failure: the first, doubled each time up to the longest."""
STARTING = 30.0
"""Seconds that a child has at least for its start: a machine that is busy takes its time with that."""
REMEMBERED = 60.0
"""From this interval on, in seconds, the time of the next check survives a restart."""
EVENTS = 10_000
"""Events that wait for a plugin at most; of more, the oldest are dropped."""


class Failed(Exception):
    """A call into the plugin failed; says how."""


class Supervisor:
    """Runs one instance until it is closed. `want` tells it what its files are now."""

    def __init__(self, found: Found, site: Site) -> None:
        self.name = found.name
        self._site = site
        self._store = Store(site.state, found.name)
        self._use(Record())
        self._wanted = found
        self._found: Found | None = None
        self._version = ""
        self._child: Child | None = None
        self._facts = Facts()
        self._watch: FileWatch | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._retry_at = 0.0
        self._due: float | None = None
        self._told = ""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task = self._loop.create_task(self._run())

    def want(self, found: Found) -> None:
        """Take note of what the instance's files are."""
        if found.version != self._wanted.version:
            self._wanted = found
            self._wake.set()

    def _use(self, record: Record) -> None:
        self.record = record
        self._account = Account(self.name, record, self._store, self._site)

    async def close(self) -> None:
        """End the child and stop."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    # -- turns -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            loaded = False
            while True:
                self._wake.clear()
                try:
                    if not loaded:
                        self._use(await on_disk(self._store.load))
                        self._due = self.record.next_due
                        loaded = True
                    await self._turn()
                    await on_disk(self._store.save, self.record)
                    self._told = ""
                except OSError as exc:  # a full disk: nothing is lost, it is tried again
                    self._tell(f"{exc.filename or self._site.state}: {exc.strerror or exc}")
                except GadError as exc:  # the spool is not there
                    self._tell(str(exc))
                except Exception as exc:  # one instance's trouble is nobody else's
                    log.exception("trigger %s: looking after it failed", self.name)
                    await self._end_child()  # it may be in the middle of a call
                    with contextlib.suppress(OSError):
                        await self._fail(f"looking after it failed: {type(exc).__name__}: {exc}")
                        await on_disk(self._store.save, self.record)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._site.look):  # wait_for may lose a cancellation
                        await self._wake.wait()
        finally:
            await self._end_child()

    async def _turn(self) -> None:
        now = self._site.now()
        self.record.turn_page(now)
        await self._account.make_certain()
        if self._wanted.version != self._version:
            await self._change(self._wanted)
        if reason := await self._account.look():
            await self._disable(reason)
        if self._child is not None:
            await self._guarded(self._tell_rested)
        if not await self._may_run():
            return
        if self._child is None:
            if 0 < self._retry_at - now <= LONGEST_WAIT:
                return
            await self._guarded(self._begin)
        elif self._child.exited.done():
            await self._fail(self._child.how())
        if self._child is not None and not 0 < self._retry_at - now <= LONGEST_WAIT:
            await self._guarded(self._work)

    async def _may_run(self) -> bool:
        """Return whether the instance is to run; end its child when it is not, begin anew when it is again."""
        record, found = self.record, self._found
        if found is None or not found.settings.enabled:
            await self._end_child()
            record.status = "off" if found is not None else "broken"
            return False
        reason = await on_disk(self._store.disabled)
        if reason is not None:
            if record.disabled != reason:
                log.warning("trigger %s: disabled: %s", self.name, reason)
            await self._end_child()
            record.status, record.disabled = "disabled", reason
            return False
        if record.disabled:  # somebody has enabled it
            record.disabled = record.error = ""
            record.failures = record.failed_sessions = 0
            record.over = False
            self._retry_at = 0.0
            self._due = None
        return True

    async def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except Failed as exc:
            await self._fail(str(exc))
        except Died as exc:
            await self._end_child()
            await self._fail(str(exc))

    async def _fail(self, reason: str) -> None:
        """Count a failure: wait before the next try, or disable the instance."""
        record = self.record
        record.failures += 1
        record.error = reason
        record.status = "failing"
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (record.failures - 1))
        self._retry_at = self._site.now() + wait
        log.warning("trigger %s: failure %d: %s", self.name, record.failures, reason)
        if self._child is not None and self._child.exited.done():
            await self._end_child()
        if record.failures >= MOST_FAILURES:
            await self._disable(f"{_TOO_OFTEN}, the last: {reason}")

    async def _disable(self, reason: str) -> None:
        await on_disk(self._store.disable, reason)
        self._wake.set()

    def _tell(self, text: str) -> None:
        """Log what may go on for long, once."""
        if text != self._told:
            log.warning("trigger %s: %s", self.name, text)
        self._told = text

    # -- the child -------------------------------------------------------------------------------

    async def _change(self, found: Found) -> None:
        """Take up what the instance's files are now. What does not work leaves what runs as it is, and is told."""
        self._version = found.version
        record = self.record
        if found.problem:
            self._not_used(found.problem)
            return
        record.problem = ""
        if self._child is None or not found.settings.enabled:
            self._put_to_use(found)
            self._retry_at = 0.0
            if record.version != found.version:  # a daemon that begins anew is no news
                reason = await on_disk(self._store.disabled) or ""
                if reason.startswith(_TOO_OFTEN) and await on_disk(self._store.enable):
                    log.warning("trigger %s: its files have changed, so it is tried again", self.name)
                record.failures = 0
            record.version = found.version
            return
        plugin = record.plugin
        try:
            child, answer = await self._start(found)
        except (Failed, Died) as exc:
            record.plugin = plugin
            self._not_used(str(exc))
            return
        old, self._child = self._child, child
        self._put_to_use(found)
        await old.end()
        self._take(answer)
        record.version = found.version
        record.succeeded()
        self._retry_at = 0.0
        log.info("trigger %s: the new version runs", self.name)

    def _put_to_use(self, found: Found) -> None:
        self._found, self._account.settings = found, found.settings

    def _not_used(self, why: str) -> None:
        runs = "; the version before it goes on" if self._child is not None else ""
        self.record.problem = why
        log.warning("trigger %s: the newest version is not used: %s%s", self.name, why, runs)

    async def _begin(self) -> None:
        """Start the child of the version that is in use."""
        assert self._found is not None
        self.record.status = "starting"
        self._child, answer = await self._start(self._found)
        self._take(answer)
        self.record.status = "on" if not self.record.failures else "failing"

    async def _start(self, found: Found) -> tuple[Child, Answer]:
        """Return a child whose plugin has been imported and has had its init. Raises Failed and Died."""
        try:
            child = await Child.start(environment=self._site.environment, cwd=self._site.home, say=self._say)
        except OSError as exc:
            raise Failed(f"its process cannot be started: {exc.strerror or exc}") from None
        begun = begin_message(found, self._site.home, self.record.plugin)
        try:
            message = self._message("init", found) | begun
            answer = read_answer(await child.call(message, max(STARTING, message["seconds"]), refuse))
            if answer.raised:
                raise Failed(f"it cannot be loaded: {answer.raised}")
        except BaseException:
            await child.end()
            raise
        return child, answer

    def _message(self, call: str, found: Found, argument: Any = None) -> dict[str, Any]:
        return {
            "call": call,
            "argument": argument,
            "now": self._site.now(),
            "seconds": found.settings.limits.check_seconds,
            "open": list(self.record.open),
            "usd_today": self.record.spent_today(),
        }

    def _say(self, line: str, error: bool) -> None:
        log.log(logging.WARNING if error else logging.INFO, "trigger %s: %s", self.name, line)

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        watch, self._watch = self._watch, None
        try:
            if child is not None:
                await child.end()
        finally:
            if watch is not None:
                await on_disk(watch.stop)

    async def _call(self, name: str, argument: Any = None) -> None:
        """Call the plugin and hand in what it returns. Raises Failed and Died."""
        assert self._child is not None and self._found is not None
        self._account.begin_call()
        message = self._message(name, self._found, argument)
        answer = read_answer(await self._child.call(message, message["seconds"], self._account.serve))
        self._take(answer)
        if answer.raised:
            raise Failed(f"{name}() raised {answer.raised}")
        if answer.returned is not None:
            try:
                await self._account.submit(answer.returned, certain=True)
            except Refused as exc:
                raise Failed(f"what {name}() returned cannot be handed in: {exc}") from None

    def _take(self, answer: Answer) -> None:
        """Take note of what the plugin keeps and says of itself."""
        if answer.state is not None:
            self.record.plugin = answer.state
        if answer.skipped:
            self.record.skipped = answer.skipped
        if answer.facts is not None:
            watch = self._facts.watch
            self._facts = answer.facts
            self._account.once = self._facts.once
            self.record.interval = self._facts.interval if "check" in self._facts.has else None
            if self._facts.watch != watch or (self._facts.watch and self._watch is None):
                self._watch_anew()

    def _watch_anew(self) -> None:
        if self._watch is not None:
            stopping = self._watch
            self._loop.run_in_executor(None, stopping.stop)
            self._watch = None
        if self._facts.watch:
            self._watch = FileWatch(self._facts.watch, self._site.home, self._hinted, polling=self._site.polling)

    def _hinted(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._wake.set)

    # -- work ------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Call the plugin as often as there is a reason to."""
        record, has = self.record, self._facts.has
        if record.over and not record.open and not record.rested:
            await self._disable("ONCE: it has handed in its session; gad triggers enable lets it do so again")
        if record.over:
            return
        if await on_disk(self._store.to_fire):
            if "fire" in has or "check" in has:
                await self._call("fire" if "fire" in has else "check")
                self.record.succeeded()
            else:
                record.skipped = "it has neither fire() nor check() that could be called"
        if self._watch is not None:
            self._events.extend(await on_disk(self._watch.changes))
        while self._events and "on_event" in has and not record.over:
            event = self._events[0]
            try:
                await self._call("on_event", asdict(event))
            except Failed:
                self._events.popleft()  # it has been told of it
                raise
            self._events.popleft()
            self.record.succeeded()
        if "check" in has and not record.over and self._check_is_due():
            await self._check()

    def _check_is_due(self) -> bool:
        now = self._site.now()
        return self._due is None or now >= self._due or self._due > now + self._facts.interval

    async def _check(self) -> None:
        began = self._site.now()
        self.record.skipped = ""
        try:
            await self._call("check")
        finally:
            self._due = began + self._facts.interval
            self.record.next_due = self._due if self._facts.interval >= REMEMBERED else None
        self.record.succeeded()

    async def _tell_rested(self) -> None:
        """Tell the plugin of the sessions that have ended; each once, whatever crashes."""
        while self.record.rested and self._child is not None:
            if "on_done" in self._facts.has:
                try:
                    await self._call("on_done", self.record.rested[0])
                except Failed:
                    self.record.rested.pop(0)  # it has been told
                    raise
            self.record.rested.pop(0)
            await on_disk(self._store.save, self.record)
