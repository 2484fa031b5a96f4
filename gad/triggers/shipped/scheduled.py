"""Hands in tasks at set times: each `triggers/schedules/*.json` is one schedule and has its file's name.

What has run is known from `trigger.state` and from the sessions' names, which hold the due time; no file that an agent
writes decides it. The fields are listed in gad.core.schedule_file.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gad.core.schedule import Schedule, decide, stamp
from gad.core.schedule_file import read
from gad.errors import ConfigError
from gad.triggers.plugin import Refused, Trigger

INTERVAL = 1
_RETRY = 60  # seconds after which what waits, for a cap, a session's end or a person, is looked at again

trigger: Trigger = globals()["trigger"]  # it is there before this file runs
_files: dict[str, bytes | str] | None = None
_schedules: list[Schedule] = []
_mistakes: list[str] = []
_seen = _wake = -math.inf  # the time of the last check, and when there is something to do again


def check() -> None:
    """Fire what is due. While no file changes and nothing is due, this only reads the files."""
    global _files, _seen, _wake
    now, files = trigger.now(), _read_all()
    if files == _files and _seen <= now < _wake:
        _seen = now
        return
    if files != _files:
        _parse_all(files)
    _files, _seen, _wake = files, now, math.inf
    entries = trigger.state.setdefault("schedules", {})
    for gone in entries.keys() - files.keys():
        del entries[gone]
    problems = _mistakes + [problem for schedule in _schedules for problem in _attend(schedule, entries, now)]
    for problem in problems:
        if problem not in trigger.state.get("problems", ()):
            trigger.log(problem)
    trigger.state["problems"] = problems


def on_done(result: dict[str, Any]) -> None:
    """Note how a session ended; the next check fires what waits for it."""
    global _wake
    _wake = -math.inf
    name = str(result["key"]).rpartition("-")[0]
    if entry := trigger.state.get("schedules", {}).get(name):
        entry["result"] = {key: result.get(key) for key in ("session", "state", "error", "usd")}


def _attend(schedule: Schedule, entries: dict[str, Any], now: float) -> list[str]:
    """Do for one schedule what is to be done now; return what a person should mend."""
    global _wake
    entry = entries.setdefault(schedule.name, {"open": [], "waiting": []})
    if entry.get("timing") != schedule.timing:
        entry.update(timing=schedule.timing, last=entry.get("fired") if schedule.repeat == "once" else None)
    entry["open"] = [session for session in entry["open"] if session in trigger.open]
    decision = decide(
        schedule,
        last=entry["last"],
        now=now,
        tz=_zone(schedule.timezone or os.environ.get("TZ", "").lstrip(":")) or ZoneInfo("UTC"),
        running=bool(entry["open"]),
        queued=entry["waiting"],
    )
    # On disk before a session is there, so what is about to fire waits until it has: a crash loses nothing.
    entry.update(last=decision.last, next=decision.next, waiting=[*decision.fire, *decision.waiting])
    for skipped in decision.skipped:
        entry["skipped"] = str(skipped)
        trigger.skip(f"{schedule.name}: {skipped}")
        trigger.log(f"{schedule.name}: skipped {skipped}")
    problems = [f"{_file(schedule.name)}: {decision.note}"] if decision.note else []
    for due in decision.fire:
        try:
            session = trigger.submit(schedule.prompt, f"{schedule.name}-{stamp(due)}", **schedule.options)
        except Refused as exc:  # a task option with a wrong value, say: the other schedules go on
            session, problems = None, [*problems, f"{_file(schedule.name)}: {exc}"]
        if session:
            entry["waiting"].remove(due)
            entry.update(open=[*entry["open"], session], fired=due)
    _wake = min(_wake, decision.next or math.inf, now + _RETRY if entry["waiting"] or problems else math.inf)
    return problems


def _read_all() -> dict[str, bytes | str]:
    """Return what the schedules' files hold, or why one cannot be read."""
    found: dict[str, bytes | str] = {}
    for path in sorted(Path(trigger.home, "triggers", "schedules").glob("[!.]*.json")):
        try:
            if path.is_file():
                found[path.stem] = path.read_bytes()
        except OSError as exc:
            found[path.stem] = f"{_file(path.stem)}: {exc.strerror}; mend its mode or remove it"
    return found


def _parse_all(files: dict[str, bytes | str]) -> None:
    _schedules.clear()
    _mistakes.clear()
    for name, data in files.items():
        try:
            if isinstance(data, str):
                raise ConfigError(data)
            _schedules.append(read(data, _file(name), name, lambda zone: _zone(zone) is not None))
        except ConfigError as exc:
            _mistakes.extend(str(exc).splitlines())


def _file(name: str) -> str:
    return f"triggers/schedules/{name}.json"


def _zone(name: str | None) -> ZoneInfo | None:
    """Return a time zone, the machine's own for no name, or None when there is none."""
    try:
        if name:
            return ZoneInfo(name)
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except (KeyError, ValueError, OSError):  # a zone that is not found is a KeyError
        return None
