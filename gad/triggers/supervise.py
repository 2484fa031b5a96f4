"""One instance's life: its child is started, called, replaced when its files change, and ended when it does harm.

All that must survive is in the instance's record. The order of writing is what makes a key's session one session: the
record says that a session is about to be made, with what the plugin keeps at that moment; then its directory appears;
then the plugin is told its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gad.errors import GadError
from gad.triggers import sessions
from gad.triggers.instances import Found
from gad.triggers.plugin import Event, Refused
from gad.triggers.process import Child, Died, on_disk
from gad.triggers.record import Record, Store
from gad.triggers.watch import FileWatch

log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Failed calls in a row that disable an instance."""
MOST_FAILED_SESSIONS = 3
"""Failed sessions in a row that disable it."""
FIRST_WAIT = 1.0
LONGEST_WAIT = 300.0
"""Seconds until an instance is tried again after a failure: the first, doubled each time up to the longest."""
STARTING = 30.0
"""Seconds that a child has at least for its start: a machine that is busy takes its time with that."""
REMEMBERED = 60.0
"""From this interval on, in seconds, the time of the next check survives a restart."""
LEAST_USD = 0.0001
"""The least limit in US dollars that a session can have."""
EVENTS = 10_000
"""Events that wait for a plugin at most; of more, the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where instances work, and what they are given. `now` gives seconds since the epoch, `look` is in seconds."""

    home: str
    state: str
    door: sessions.Door
    environment: Mapping[str, str]
    now: Callable[[], float]
    look: float
    polling: bool = False


class Failed(Exception):
    """A call into the plugin failed; says how."""


@dataclass(slots=True)
class Facts:
    """What a plugin says of itself after a call."""

    interval: float = 60.0
    once: bool = False
    watch: list[str] = field(default_factory=list)
    has: list[str] = field(default_factory=list)


class Supervisor:
    """Runs one instance until it is closed. `want` tells it what its files are now."""

    def __init__(self, found: Found, site: Site) -> None:
        self.name = found.name
        self.record = Record()
        self._site = site
        self._store = Store(site.state, found.name)
        self._wanted = found
        self._found: Found | None = None
        self._version = ""
        self._child: Child | None = None
        self._facts = Facts()
        self._watch: FileWatch | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._recovered = False
        self._retry_at = 0.0
        self._due: float | None = None
        self._calls = 0  # sessions that the current call has made without a key
        self._told = ""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task = self._loop.create_task(self._run())

    def want(self, found: Found) -> None:
        """Take note of what the instance's files are."""
        if found.version != self._wanted.version:
            self._wanted = found
            self._wake.set()

    async def close(self) -> None:
        """End the child and stop."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    # -- turns -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            self.record = await on_disk(self._store.load)
            self._due = self.record.next_due
            while True:
                self._wake.clear()
                try:
                    await self._turn()
                    await on_disk(self._store.save, self.record)
                except OSError as exc:  # a full disk: nothing is lost, it is tried again
                    self._tell(f"{exc.filename or self._site.state}: {exc.strerror or exc}")
                except Exception:  # one instance's trouble is nobody else's
                    log.exception("trigger %s: looking after it failed", self.name)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._site.look):  # wait_for may lose a cancellation
                        await self._wake.wait()
        finally:
            await self._end_child()

    async def _turn(self) -> None:
        now = self._site.now()
        self.record.turn_page(now)
        await self._make_certain()
        if self._wanted.version != self._version:
            await self._change(self._wanted)
        await self._look_at_sessions()
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
            await self._disable(f"{MOST_FAILURES} failures in a row, the last: {reason}")

    def _succeeded(self) -> None:
        self.record.failures = 0
        self.record.error = ""
        self.record.status = "on"

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
            self._found = found
            self._retry_at = 0.0
            if record.failures >= MOST_FAILURES and await on_disk(self._store.enable):
                log.warning("trigger %s: its files have changed, so it is tried again", self.name)
            record.failures = 0
            return
        plugin = record.plugin
        try:
            child, answer = await self._start(found)
        except (Failed, Died) as exc:
            record.plugin = plugin
            self._not_used(str(exc))
            return
        old, self._child, self._found = self._child, child, found
        await old.end()
        self._take(answer)
        self._succeeded()
        self._retry_at = 0.0
        log.info("trigger %s: the new version runs", self.name)

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

    async def _start(self, found: Found) -> tuple[Child, dict[str, Any]]:
        """Return a child whose plugin has been imported and has had its init. Raises Failed and Died."""
        try:
            child = await Child.start(environment=self._site.environment, cwd=self._site.home, say=self._say)
        except OSError as exc:
            raise Failed(f"its process cannot be started: {exc.strerror or exc}") from None
        begun = begin_message(found, self._site.home, self.record.plugin)
        try:
            message = self._message("init", found) | begun
            answer = await child.call(message, max(STARTING, message["seconds"]), _no_session)
            if "raised" in answer:
                raise Failed(f"it cannot be loaded: {answer['raised']}")
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
        self._calls = 0
        message = self._message(name, self._found, argument)
        answer = await self._child.call(message, message["seconds"], self._serve)
        self._take(answer)
        if "raised" in answer:
            raise Failed(f"{name}() raised {answer['raised']}")
        returned = answer.get("returned")
        if returned is not None:
            text, key = returned.pop("text"), returned.pop("key", None)
            try:
                await self._submit(text, key, returned, certain=True)
            except Refused as exc:
                raise Failed(f"what {name}() returned cannot be handed in: {exc}") from None

    def _take(self, answer: Mapping[str, Any]) -> None:
        """Take note of what the plugin keeps and says of itself."""
        state = answer.get("state")
        if isinstance(state, dict):
            self.record.plugin = state
        if answer.get("skipped"):
            self.record.skipped = str(answer["skipped"])
        if "interval" in answer:
            watch = self._facts.watch
            self._facts = Facts(answer["interval"], answer["once"], answer["watch"], answer["has"])
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
                self._succeeded()
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
            self._succeeded()
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
        self._succeeded()

    # -- sessions --------------------------------------------------------------------------------

    async def _serve(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a child that wants to hand in a session."""
        wanted = request["submit"]
        if isinstance(request.get("state"), dict):
            self.record.plugin = request["state"]
        try:
            if not isinstance(wanted["text"], str) or not isinstance(wanted["key"], str | None):
                raise Refused("text and key must be text")
            # Without a key it could be made twice: after a crash, and when the plugin comes again with it.
            certain = wanted["key"] is not None
            return {"session": await self._submit(wanted["text"], wanted["key"], wanted["task"], certain=certain)}
        except Refused as exc:
            return {"error": str(exc)}
        except (OSError, GadError) as exc:
            return {"error": f"the session cannot be made: {exc}"}

    async def _submit(self, text: str, key: str | None, task: Mapping[str, Any], *, certain: bool) -> str | None:
        """Hand in a session and return its name, or None when a cap forbids it. Raises Refused, OSError, GadError.

        `certain`: it is made also when the host is killed before it could, for what the plugin keeps may say already
        that this is done.
        """
        assert self._found is not None
        record, door = self.record, self._site.door
        whole = dict(self._found.settings.task) | dict(task)
        door.prepare(self.name, text, whole)
        while True:
            chosen = key if key is not None else self._new_key()
            name, made = await on_disk(self._choose, chosen)
            if made and key is not None:
                self._succeeded()
                return name
            if made:
                continue
            cap, left = self._cap()
            if cap:
                record.skipped = cap
                self._tell(f"nothing was handed in: {cap}")
                return None
            if left is not None:
                whole["usd"] = min(float(whole.get("usd", left)), left)
            data, written = door.prepare(self.name, text, whole)
            entry: dict[str, Any] = {"key": chosen, "since": self._site.now()}
            before = record.last_fired, record.last_session, record.over
            record.open[name] = entry | ({"text": text, "task": whole} if certain else {})
            record.sessions_today += 1
            record.last_fired, record.last_session, record.over = entry["since"], name, self._facts.once
            await on_disk(self._store.save, record)
            try:
                if await on_disk(door.hand_in, name, data, written):
                    break
            except OSError:
                if not certain:
                    del record.open[name]
                raise
            # Somebody was faster: look again whose it is.
            del record.open[name]
            record.sessions_today -= 1
            record.last_fired, record.last_session, record.over = before
        record.open[name] = entry
        record.skipped = ""
        self._told = ""
        self._succeeded()
        await on_disk(self._store.save, record)
        log.info("trigger %s: session %s", self.name, name)
        return name

    def _new_key(self) -> str:
        self._calls += 1
        return sessions.time_key(self._site.now()) + (f"-{self._calls}" if self._calls > 1 else "")

    def _choose(self, key: str) -> tuple[str, bool]:
        """Return the name of a key's session, and whether it has been made."""
        name = ""
        for name in sessions.names_for(self.name, key):
            claimed = self._site.door.claimed(self.name, name)
            if claimed is not False:
                return name, bool(claimed)
        raise GadError(f"the session {name} is there, and this trigger has not made it")

    def _cap(self) -> tuple[str, float | None]:
        """Return which cap forbids another session, empty when none does, and the dollars that are left today."""
        assert self._found is not None
        caps, record = self._found.settings.caps, self.record
        record.turn_page(self._site.now())
        if len(record.open) >= caps.open:
            return f"{caps.open} of its sessions are open, and caps.open allows no more", None
        if record.sessions_today >= caps.per_day:
            return f"it has made {record.sessions_today} sessions today, and caps.per_day allows no more", None
        if caps.usd_per_day is None:
            return "", None
        if record.usd_unknown:
            return "what its sessions cost today is not known, so caps.usd_per_day cannot be kept", None
        left = caps.usd_per_day - record.spent_today()
        if left <= 0:
            return f"its sessions have cost {record.spent_today():.2f} USD today: caps.usd_per_day is reached", None
        return "", max(left, LEAST_USD)

    async def _make_certain(self) -> None:
        """Make the sessions that could not be made when they were to be; forget those that need not be."""
        for name, entry in list(self.record.open.items()):
            if "text" in entry:
                try:
                    data, written = self._site.door.prepare(self.name, entry["text"], entry["task"])
                    await on_disk(self._site.door.hand_in, name, data, written)
                except Refused as exc:  # the settings have changed meanwhile
                    log.warning("trigger %s: session %s cannot be made any more: %s", self.name, name, exc)
                    del self.record.open[name]
                entry.pop("text")
                entry.pop("task")
            elif not self._recovered and await on_disk(self._site.door.claimed, self.name, name) is None:
                del self.record.open[name]
        self._recovered = True

    async def _look_at_sessions(self) -> None:
        """Find out which sessions have ended."""
        record, door = self.record, self._site.door
        for name, entry in list(record.open.items()):
            result = await on_disk(door.result, name, str(entry["key"]))
            if result is None:
                entry["usd"] = await on_disk(door.cost, name)
                continue
            del record.open[name]
            record.rested.append(result)
            record.last_result = result | {"text": result["text"][:500]}
            record.usd_today += result["usd"] or 0.0
            record.usd_unknown |= result["usd"] is None
            await self._judge(result)

    async def _judge(self, result: Mapping[str, Any]) -> None:
        """Break the circuit when sessions keep failing, or can only fail."""
        record = self.record
        if result["state"] == "done":
            record.failed_sessions = 0
        if result["state"] not in ("failed", "rejected"):
            return
        record.failed_sessions += 1
        log.warning("trigger %s: session %s %s: %s", self.name, result["session"], result["state"], result["error"])
        if sessions.is_auth_error(result["error"]):
            await self._disable(f"session {result['session']} has no valid key: {result['error']}")
        elif record.failed_sessions >= MOST_FAILED_SESSIONS:
            await self._disable(
                f"{record.failed_sessions} sessions in a row have failed, the last, {result['session']}: "
                f"{result['error']}"
            )

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


def begin_message(found: Found, home: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a child must know to load its plugin, besides what each call says."""
    return {
        "host": os.getpid(),
        "instance": found.name,
        "path": found.path,
        "source": found.source,
        "home": home,
        "options": dict(found.settings.options),
        "state": dict(state),
        "memory_mb": found.settings.limits.memory_mb,
    }


async def _no_session(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"error": "a plugin cannot submit while it is loaded"}
