"""Explores when nothing else goes on, and makes way at once when a person comes with a task.

Options: `prompt`, a task to do instead; `every` (30), minutes between two sessions; `quiet` (10), for how many minutes
no file must have come from anybody; `load` (0.5), the load average per core that is not to be exceeded; `hours`, when
it may happen, such as 22:00-06:00 (always); `usd_per_day` (1), dollars after which it is enough for the day.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gad.spool import drop
from gad.triggers.activity import at_work, gad, load_per_core, quiet_seconds, within
from gad.triggers.plugin import Event, Trigger

INTERVAL = 15
WATCH = "spool/.daemon/status.txt"
trigger: Trigger = globals()["trigger"]  # it is there before this file runs


def on_event(event: Event | None) -> None:
    """Stop what was handed in when somebody has come since then, with a task that may have been done already."""
    if trigger.open and quiet_seconds(trigger.home, now := trigger.now()) < now - trigger.state.get("last", now):
        for name in at_work(trigger.home).keys() & set(trigger.open):
            drop.stop(Path(trigger.home, "spool", name))


def check() -> dict[str, Any] | None:
    """Hand in the task, unless there is a reason not to."""
    on_event(None)
    trigger.skip(reason := _reason())
    return None if reason else fire()


def fire() -> dict[str, Any]:
    """Return the task: the one of the options, else the next step of exploration."""
    trigger.state["last"] = trigger.now()
    prompt = trigger.options.get("prompt")
    return ({"text": prompt} if prompt else gad(trigger.home, "explore", "next")) | {"priority": -100}


def on_done(result: dict[str, Any]) -> None:
    """Keep what came of a step of exploration."""
    if not trigger.options.get("prompt") and result["state"] not in ("removed", "rejected"):
        gad(trigger.home, "explore", "file", result["session"], "--json")


def _reason() -> str:
    options, now = trigger.options, trigger.now()
    if 0 <= now - trigger.state.get("last", float("-inf")) < 60 * max(30, options.get("every", 30)):
        return "the last one is not long ago"
    if not within(options.get("hours", "0:00-24:00"), now):
        return "not within its hours"
    if trigger.usd_today >= options.get("usd_per_day", 1):
        return "the dollars of its day are spent"
    if load_per_core() > options.get("load", 0.5):
        return "the machine is busy"
    if at_work(trigger.home) or trigger.open:
        return "sessions are at work"
    return "" if quiet_seconds(trigger.home, now) >= 60 * options.get("quiet", 10) else "somebody was here recently"
