"""What one instance hands in: its sessions are made within its caps, once for a key, and followed until they end.

The order of writing is what makes a key's session one session: the record says that a session is about to be made,
with what the plugin keeps at that moment; then its directory appears; then the plugin is told its name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gad.errors import GadError
from gad.triggers import sessions
from gad.triggers.instances import Settings
from gad.triggers.plugin import Refused
from gad.triggers.process import on_disk
from gad.triggers.record import Record, Store, since_midnight
from gad.triggers.talk import Wanted, read_request

log = logging.getLogger(__name__)

MOST_FAILED_SESSIONS = 3
"""Failed sessions in a row that disable an instance."""
LEAST_USD = 0.0001
"""The least limit in US dollars that a session can have."""


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


class Account:
    """One instance's sessions. `settings` and `once` are those of the version that is in use."""

    def __init__(self, name: str, record: Record, store: Store, site: Site) -> None:
        self.settings = Settings()
        self.once = False
        self.record = record
        self._name = name
        self._store = store
        self._site = site
        self._calls = 0  # sessions that the current call has made without a key
        self._told = ""

    def begin_call(self) -> None:
        """Take note that the plugin is called."""
        self._calls = 0

    async def serve(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a child that wants to hand in a session."""
        try:
            wanted, state = read_request(request)
            if state is not None:
                self.record.plugin = state
            # Without a key it could be made twice: after a crash, and when the plugin comes again with it.
            return {"session": await self.submit(wanted, certain=wanted.key is not None)}
        except Refused as exc:
            return {"error": str(exc)}
        except (OSError, GadError) as exc:
            return {"error": f"the session cannot be made: {exc}"}

    async def submit(self, wanted: Wanted, *, certain: bool) -> str | None:
        """Hand in a session and return its name, or None when a cap forbids it. Raises Refused, OSError, GadError.

        `certain`: it is made also when the host is killed before it could, for what the plugin keeps may say already
        that this is done.
        """
        record, door, key = self.record, self._site.door, wanted.key
        whole = dict(self.settings.task) | dict(wanted.task)
        door.prepare(self._name, wanted.text, whole)
        while True:
            chosen = key if key is not None else self._new_key()
            name, made = await on_disk(self._choose, chosen)
            if not made and "text" in record.open.get(name, {}):  # it is counted, but could not be made
                await self._make(name)
                return name
            if made and key is not None:
                record.succeeded()
                return name
            if made:
                continue
            record.capped, left = self._cap()
            if record.capped:
                record.skipped = record.capped
                if record.capped != self._told:
                    log.warning("trigger %s: nothing was handed in: %s", self._name, record.capped)
                self._told = record.capped
                return None
            if left is not None:
                usd = whole.get("usd")
                whole["usd"] = left if usd is None else min(float(usd), left)
            data, written = door.prepare(self._name, wanted.text, whole)
            entry: dict[str, Any] = {"key": chosen, "since": self._site.now()}
            before = record.last_fired, record.last_session
            record.open[name] = entry | ({"text": wanted.text, "task": whole} if certain else {"making": True})
            record.sessions_today += 1
            record.last_fired, record.last_session, record.over = entry["since"], name, self.once
            await on_disk(self._store.save, record)
            if await on_disk(door.hand_in, name, data, written):
                break
            # Somebody was faster: look again whose it is.
            self._forget(name)
            record.last_fired, record.last_session = before
        record.open[name] = entry
        record.skipped = self._told = ""
        record.succeeded()
        await on_disk(self._store.save, record)
        log.info("trigger %s: session %s", self._name, name)
        return name

    async def make_certain(self) -> None:
        """Make the sessions that could not be made when they were to be; forget those that need not be.

        Raises OSError, GadError.
        """
        for name, entry in list(self.record.open.items()):
            if "text" in entry:
                await self._make(name)
            elif entry.pop("making", False) and await on_disk(self._site.door.claimed, self._name, name) is None:
                self._forget(name)

    async def look(self) -> str:
        """Find out which sessions have ended. Return why the circuit is to be broken, or nothing."""
        record, door = self.record, self._site.door
        reason = ""
        for name, entry in list(record.open.items()):
            result = await on_disk(door.result, name, str(entry.get("key")))
            if result is None:
                entry["usd"] = await on_disk(door.cost, name)
                continue
            if result["state"] == "removed":  # what it has cost is known from when it was there
                result["usd"] = entry.get("usd", 0.0)
            reason = self._judge(result) or reason
            del record.open[name]
            record.rested.append(result)
            record.last_result = result | {"text": result["text"][:500]}
            record.usd_today += since_midnight(entry, result["usd"])
            record.usd_unknown |= result["usd"] is None
        if record.capped:
            record.capped = self._cap()[0]
        return reason

    def _judge(self, result: dict[str, Any]) -> str:
        """Return why no more sessions are to be made: they keep failing, or can only fail."""
        record, auth = self.record, result.pop("auth", False)
        if result["state"] == "done":
            record.failed_sessions = 0
        if result["state"] not in ("failed", "rejected"):
            return ""
        record.failed_sessions += 1
        log.warning("trigger %s: session %s %s: %s", self._name, result["session"], result["state"], result["error"])
        if auth:
            return f"session {result['session']} has no valid key: {result['error']}"
        if record.failed_sessions < MOST_FAILED_SESSIONS:
            return ""
        last = f"{result['session']}: {result['error']}"
        return f"{record.failed_sessions} sessions in a row have failed, the last, {last}"

    async def _make(self, name: str) -> None:
        """Make a session that is counted already."""
        entry, door = self.record.open[name], self._site.door
        try:
            data, written = door.prepare(self._name, entry["text"], entry["task"])
        except Refused as exc:  # the settings have changed meanwhile
            log.warning("trigger %s: session %s cannot be made any more: %s", self._name, name, exc)
            self._forget(name)
            self.record.skipped = f"{name} cannot be made any more: {exc}"
            return
        await on_disk(door.hand_in, name, data, written)
        del entry["text"], entry["task"]

    def _forget(self, name: str) -> None:
        """Take back that a session was about to be made."""
        del self.record.open[name]
        self.record.sessions_today = max(0, self.record.sessions_today - 1)
        self.record.over = False

    def _new_key(self) -> str:
        self._calls += 1
        return sessions.time_key(self._site.now()) + (f"-{self._calls}" if self._calls > 1 else "")

    def _choose(self, key: str) -> tuple[str, bool]:
        """Return the name of a key's session, and whether it has been made."""
        name = ""
        for name in sessions.names_for(self._name, key):
            claimed = self._site.door.claimed(self._name, name)
            if claimed is not False:
                return name, bool(claimed)
        raise GadError(f"the session {name} is there, and this trigger has not made it")

    def _cap(self) -> tuple[str, float | None]:
        """Return which cap forbids another session, empty when none does, and the dollars that are left today."""
        caps, record = self.settings.caps, self.record
        record.turn_page(self._site.now())
        if len(record.open) >= caps.open:
            return f"{caps.open} of its sessions are open, and caps.open allows no more", None
        if caps.per_day is not None and record.sessions_today >= caps.per_day:
            return f"it has made {record.sessions_today} sessions today, and caps.per_day allows no more", None
        if caps.usd_per_day is None:
            return "", None
        if record.usd_unknown or any(one.get("usd", 0.0) is None for one in record.open.values()):
            return "what its sessions cost today is not known, so caps.usd_per_day cannot be kept", None
        left = caps.usd_per_day - record.spent_today()
        if left <= 0:
            return f"its sessions have cost {record.spent_today():.2f} USD today: caps.usd_per_day is reached", None
        return "", max(left, LEAST_USD)
