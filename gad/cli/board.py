"""All sessions of a spool, looked at again and again and cheaply: what gad top shows.

Each look reads the sessions that work. Every other one is read when it is new, or when its directory says that
something in it was replaced; and how often all directories are asked depends on how long that takes, so a spool with
very many sessions at rest costs little. Files are only ever opened for reading.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gad.cli.doing import LIVE, RESTED, Doing, doing
from gad.spool.lock import held
from gad.spool.names import DAEMON_DIR, INPUT, JOURNAL, valid_session_name
from gad.spool.status import read_status, seconds_of

_ORDER = ("asking", "running", "deferred", "queued", "new")
_PERIOD = 1.0
"""Seconds between two looks at all directories, at least."""
_SHARE = 10
"""A look at all directories that took a second is not repeated within so many."""
_COARSE = 2.0
"""A directory's time may stay the same when it is changed again within so many seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One session at one moment."""

    name: str
    status: Mapping[str, Any]
    doing: Doing

    @property
    def state(self) -> str:
        """The state in status.txt, or new."""
        return str(self.status["state"])

    @property
    def tokens(self) -> int:
        """All tokens of its requests."""
        return sum(value for key in ("tokens_in", "tokens_out") if isinstance(value := self.status.get(key), int))

    @property
    def usd(self) -> float | None:
        """What its requests have cost; None when that is unknown."""
        value = self.status.get("cost_usd", 0)
        return value if isinstance(value, int | float) else None

    @property
    def turns(self) -> int:
        """How many answers there were."""
        value = self.status.get("turn", 0)
        return value if isinstance(value, int) else 0

    def to_json(self) -> dict[str, Any]:
        """Return it as gad top --json prints it."""
        return {"session": self.name, **self.status, "doing": self.doing.text, "doing_since": self.doing.since}


@dataclass(frozen=True, slots=True)
class Totals:
    """All sessions of the spool together, those at rest included; `priced` is false when a cost is unknown."""

    states: Mapping[str, int] = field(default_factory=dict)
    turns: int = 0
    tokens: int = 0
    usd: float = 0.0
    priced: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found: the sessions in the order in which they are shown, and whether a daemon runs."""

    rows: Sequence[Row] = ()
    totals: Totals = field(default_factory=Totals)
    daemon: str = ""

    def shown(self, everything: bool) -> Sequence[Row]:
        """Return the sessions that work or ask, or all."""
        return self.rows if everything else [row for row in self.rows if row.state not in RESTED]


@dataclass(slots=True)
class _Known:
    row: Row
    changed: int
    sure: bool
    journal: tuple[int, int] = (0, 0)


class Board:
    """A spool's sessions, as the last look has found them."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._known: dict[str, _Known] = {}
        self._next = 0.0
        self._look: Look | None = None

    def look(self) -> Look:
        """Look again. Raises OSError when the spool cannot be read."""
        live = [name for name, known in self._known.items() if known.row.state in LIVE]
        read: set[str] = set()
        begun = time.monotonic()
        changed = False
        if begun >= self._next:
            changed = self._look_at_all(read)
            self._next = time.monotonic() + max(_PERIOD, _SHARE * (time.monotonic() - begun))
        for name in live:
            if name in self._known and name not in read:
                changed |= self._read(name, self._known[name].changed, sure=False)
        if changed or self._look is None:
            rows = sorted((known.row for known in self._known.values()), key=_place)
            self._look = Look(rows, _totals(rows))
        return Look(self._look.rows, self._look.totals, self._daemon())

    def _look_at_all(self, read: set[str]) -> bool:
        """Read the sessions that are new or not as they were, and name them in `read`; return whether any differs."""
        found = set()
        changed = False
        with os.scandir(self._spool) as entries:
            for entry in entries:
                if not valid_session_name(entry.name):
                    continue
                try:
                    if not entry.is_dir():
                        continue
                    time_ns = entry.stat().st_mtime_ns
                except OSError:
                    continue
                found.add(entry.name)
                known = self._known.get(entry.name)
                if known is None or known.changed != time_ns or not known.sure:
                    read.add(entry.name)
                    changed |= self._read(entry.name, time_ns, sure=abs(time.time() - time_ns / 1e9) > _COARSE)
        for name in self._known.keys() - found:
            del self._known[name]
            changed = True
        return changed

    def _read(self, name: str, changed: int, *, sure: bool) -> bool:
        """Read a session and return whether it differs; one that has gone, or is none yet, is forgotten."""
        directory = os.path.join(self._spool, name)
        status: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            status = read_status(directory)
        if "state" not in status:
            if not os.path.lexists(os.path.join(directory, INPUT)):
                return self._known.pop(name, None) is not None
            status = {"state": "new"} | status
        known = self._known.get(name)
        journal = _mark(os.path.join(directory, JOURNAL)) if status["state"] == "running" else (0, 0)
        if known is not None and known.row.status == status and known.journal == journal:
            known.changed, known.sure = changed, sure
            return False
        found = doing(directory, status)
        if found.since is None:
            if known is not None and found.text == "works" and known.row.state == "running":
                found = known.row.doing  # a record that is just being written
            else:
                found = Doing(found.text, seconds_of(status.get("since")))
        self._known[name] = _Known(Row(name, status, found), changed, sure, journal)
        return True

    def _daemon(self) -> str:
        """Return the state of the daemon in a word or two, empty when none runs."""
        status = read_status(self._spool / DAEMON_DIR) if held(str(self._spool)) else {}
        return f"{status.get('state', 'starting')}, pid {status.get('pid', '?')}" if status else ""


def _place(row: Row) -> tuple[int, float, str]:
    """Return where a session stands: who asks first, then who works; of those at rest the newest first."""
    if row.state in _ORDER:
        return _ORDER.index(row.state), 0.0, row.name
    return len(_ORDER), -(seconds_of(row.status.get("since")) or 0.0), row.name


def _totals(rows: Sequence[Row]) -> Totals:
    return Totals(
        dict(Counter(row.state for row in rows)),
        sum(row.turns for row in rows),
        sum(row.tokens for row in rows),
        sum(row.usd or 0.0 for row in rows),
        all(row.usd is not None for row in rows),
    )


def _mark(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size
