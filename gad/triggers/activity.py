"""What goes on in a home: who is at work, since when people are away, how busy the machine is. For plugins as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from gad.spool import names
from gad.spool.status import read_status
from gad.triggers.sessions import LABEL, labels_of, task_of

AT_WORK = frozenset({"queued", "running", "deferred"})
_GENERATIONS = 8
"""How many parents of a session are looked at."""


def at_work(home: str) -> dict[str, bool]:
    """Return the sessions that run or are to run, and of each whether a trigger made it, or one of its ancestors."""
    spool = os.path.join(home, "spool")
    found = {}
    for name in os.listdir(spool):
        if names.valid_session_name(name) and read_status(os.path.join(spool, name)).get("state") in AT_WORK:
            found[name] = made_by_trigger(spool, name)
    return found


def made_by_trigger(spool: str, name: str) -> bool:
    """Return whether a trigger made a session, or an ancestor of it."""
    for _ in range(_GENERATIONS):
        directory = os.path.join(spool, name)
        if LABEL in labels_of(directory):
            return True
        parent = read_status(directory).get("parent") or task_of(directory).get("parent")
        if not isinstance(parent, str) or not names.valid_session_name(parent):
            return False
        name = parent
    return False


def quiet_seconds(home: str, now: float) -> float:
    """Return for how long nothing has happened in any session of people's, nor a file been put into one."""
    spool = os.path.join(home, "spool")
    changed = []
    for entry in os.scandir(spool):
        if names.valid_session_name(entry.name):
            try:
                changed.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
            except OSError:
                continue
    for at, name in sorted(changed, reverse=True):
        directory = os.path.join(spool, name)
        if not made_by_trigger(spool, name) and not _unfinished(directory):
            return max(0.0, now - at)
    return float("inf")


def _unfinished(directory: str) -> bool:
    """Return whether nothing has been handed in yet: whose it is going to be shows with its task.yaml."""
    try:
        found = [name for name in os.listdir(directory) if not name.startswith(".") or names.parse_claim(name)]
    except OSError:
        return True
    return not set(found) - {names.TASK}


def load_per_core() -> float:
    """Return the load average of the last minute, per core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def within(hours: str, now: float) -> bool:
    """Return whether the local time is in a range such as `22:00-06:00`, or one of several with commas between.

    Raises ValueError on what is no such range.
    """
    local = time.localtime(now)
    minute = local.tm_hour * 60 + local.tm_min
    for part in hours.split(","):
        try:
            first, last = (_minute(one) for one in part.strip().split("-"))
        except ValueError:
            raise ValueError(f"{part.strip()!r} is not a range of hours such as 22:00-06:00") from None
        if first <= minute < last if first <= last else minute >= first or minute < last:
            return True
    return False


def gad(home: str, *arguments: str) -> Any:
    """Run a gad command that prints JSON, in this home, and return that. Raises RuntimeError with its complaint."""
    command = [sys.executable, "-m", "gad", "--home", home, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"gad {' '.join(arguments)}: {ran.stderr.strip().removeprefix('gad: ')}")
    return json.loads(ran.stdout)


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    found = int(hour) * 60 + int(minute or "0")
    if not 0 <= found <= 1440:
        raise ValueError(text)
    return found
