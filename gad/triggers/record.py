"""What the host knows of one instance, in `triggers/.state/<instance>.json`, and the marks that the CLI makes there.

The file is replaced as a whole and durably. What a plugin keeps and what the host has done for it stand in the one
file, so neither can be ahead of the other after a crash.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

log = logging.getLogger(__name__)

_MAY_BE_NONE: dict[str, Any] = {
    **dict.fromkeys(("last_fired", "next_due", "interval"), float | int | None),
    "last_result": dict | None,
}


@dataclass(slots=True)
class Record:
    """All of it. Times are in seconds since the epoch.

    `open` are sessions that have not ended: {"key", "since", "usd", "before"}, the last the dollars of other days, and
    "text" and "task" as long as one that is to be made for certain has not been made, or "making" while another is.
    `rested` are results that the plugin has not been told of. `version` is that of the files in use. `failures` are
    failed calls, `failed_sessions` failed sessions, both in a row. `error` is the last failure, `problem` why the
    newest version of the files is not in use, `skipped` why nothing was handed in, `capped` the cap that forbids it as
    long as it does.
    """

    status: str = "starting"
    plugin: dict[str, Any] = field(default_factory=dict)
    open: dict[str, dict[str, Any]] = field(default_factory=dict)
    rested: list[dict[str, Any]] = field(default_factory=list)
    day: str = ""
    sessions_today: int = 0
    usd_today: float = 0.0
    usd_unknown: bool = False
    last_fired: float | None = None
    last_session: str = ""
    last_result: dict[str, Any] | None = None
    next_due: float | None = None
    interval: float | None = None
    failures: int = 0
    failed_sessions: int = 0
    error: str = ""
    problem: str = ""
    skipped: str = ""
    capped: str = ""
    version: str = ""
    disabled: str = ""
    over: bool = False

    def turn_page(self, now: float) -> None:
        """Begin to count anew when another day has begun, by the local calendar."""
        today = time.strftime("%Y-%m-%d", time.localtime(now))
        if today != self.day:
            former, self.day = self.day, today
            self.sessions_today, self.usd_today, self.usd_unknown = 0, 0.0, False
            for one in self.open.values() if former else ():
                one["before"] = float(one.get("usd") or 0.0)

    def succeeded(self) -> None:
        """Take note that all is well: failures count in a row."""
        self.failures, self.error, self.status = 0, "", "on"

    def spent_today(self) -> float:
        """Return the day's dollars, with what open sessions have cost so far."""
        return self.usd_today + sum(since_midnight(one, one.get("usd")) for one in self.open.values())


def since_midnight(entry: Mapping[str, Any], usd: float | None) -> float:
    """Return how much of a session's dollars are of this day."""
    return max(0.0, float(usd or 0.0) - float(entry.get("before", 0.0)))


class Store:
    """One instance's files in the state directory."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, f"{name}.json")
        self._disabled = os.path.join(directory, f"{name}.disabled")
        self._fire = os.path.join(directory, f"{name}.fire")
        self._written = ""

    def load(self) -> Record:
        """Return what was written last. A file that cannot be understood is put aside. Raises OSError."""
        try:
            with open(self._path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return Record()
        try:
            return _read(json.loads(data.decode()))
        except (ValueError, TypeError, AttributeError, RecursionError) as exc:
            log.error("%s cannot be understood (%s); it is kept as %s.damaged", self._path, exc, self._path)
            os.replace(self._path, f"{self._path}.damaged")
            return Record()

    def save(self, record: Record) -> None:
        """Write it, if it is another than the last one that was written. Raises OSError."""
        # Not asdict, and no indent: both are slow, and a plugin may keep a lot.
        text = json.dumps({one.name: getattr(record, one.name) for one in fields(record)}, sort_keys=True) + "\n"
        if text != self._written:
            self._replace(self._path, text)
            self._written = text

    def disabled(self) -> str | None:
        """Return why the instance is disabled, or None."""
        try:
            with open(self._disabled, encoding="utf-8", errors="replace") as file:
                return file.read().strip() or "disabled by hand"
        except FileNotFoundError:
            return None

    def disable(self, reason: str) -> None:
        """Keep the instance from running until somebody enables it. Raises OSError."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._replace(self._disabled, reason + "\n")

    def enable(self) -> bool:
        """Let the instance run again; return whether it was disabled. Raises OSError."""
        return _remove(self._disabled)

    def ask_to_fire(self) -> None:
        """Have the host call the plugin now. Raises OSError."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._replace(self._fire, "")

    def to_fire(self) -> bool:
        """Return whether somebody has asked for a call now, and take the request. Raises OSError."""
        return _remove(self._fire)

    def _replace(self, path: str, text: str) -> None:
        """Write aside under a name that nobody else has, and rename."""
        aside = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            with open(aside, "x", encoding="utf-8", errors="replace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(aside, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read(data: dict[str, Any]) -> Record:
    """Return what a file says. Raises ValueError, TypeError and AttributeError when it is not what `save` writes."""
    record = Record()
    for one in fields(Record):
        value, first = data.get(one.name, getattr(record, one.name)), getattr(record, one.name)
        wanted = _MAY_BE_NONE.get(one.name) or (float | int if isinstance(first, float) else type(first))
        if not isinstance(value, wanted):
            raise ValueError(f"{one.name} is {value!r:.80}")
        setattr(record, one.name, value)
    sessions = [*record.open.values(), *record.rested]
    if not all(isinstance(one, dict) and "key" in one for one in sessions):
        raise ValueError("open and rested must hold sessions")
    return record


def remove_unfinished(directory: str) -> None:
    """Remove what a killed host was writing aside. Raises OSError."""
    for name in os.listdir(directory):
        if not name.endswith(".tmp"):
            continue
        number = name.split(".")[-2].partition("-")[0]
        if number.isdecimal() and not os.path.exists(f"/proc/{number}"):
            _remove(os.path.join(directory, name))


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
