"""What a plugin sees: the object `trigger`, which its module finds among its globals, and the events that it is told.

A plugin is a Python file. Any of these may stand in it::

    INTERVAL = 60                 # seconds between two calls of check(); 60 when it says nothing
    ONCE = True                   # after the first session that it made, it is over
    WATCH = "inbox/*.csv"         # a pattern or a list of them, relative to the home; ** is any depth

    def init(options): ...        # once, after the import; not the place to submit
    def check(): ...              # returns text, a dict {"text", "key", task options...}, or None
    def on_event(event): ...      # a file that WATCH names was made, changed or removed; returns what check() may
    def on_done(result): ...      # a session of this trigger has ended
    def fire(): ...               # somebody said `gad triggers fire`; without it, check() is called

`result` has "session", "key", "state" (done, failed, stopped, rejected, removed), "text" (the answer), "error", "usd"
(None when unknown) and "turns".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Event:
    """A file that WATCH names: its absolute path, and what happened to it."""

    path: str
    kind: Literal["created", "modified", "deleted"]


class Refused(Exception):
    """A text or its options cannot be handed in; says why and how to mend it."""


class Trigger:
    """A plugin's side of its host.

    `options` are those of its yaml file. `state` is a dict of what JSON can hold; it is on disk after each call, and
    before each session that a call hands in. `home` is the home's absolute path. `open` names this trigger's sessions
    that have not ended, and `usd_today` is what its sessions have cost today, in dollars.
    """

    def __init__(
        self,
        name: str,
        home: str,
        options: dict[str, Any],
        state: dict[str, Any],
        ask: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self.name = name
        self.home = home
        self.options = options
        self.state = state
        self.open: list[str] = []
        self.usd_today = 0.0
        self.skipped = ""
        self._ask = ask
        self._now = 0.0

    def submit(self, text: str, key: str | None = None, **task: Any) -> str | None:
        """Hand in a session and return its name, or None when a cap of this trigger forbids it now.

        `key` is what the session is about: for one key there is never more than one session, whatever crashes. When
        there is one already, its name is returned. Without a key, each call makes a new one. `task` are keys of
        task.yaml. Raises Refused when text or options are wrong.
        """
        reply = self._ask({"submit": {"text": text, "key": key, "task": task}, "state": self.state})
        if "error" in reply:
            raise Refused(reply["error"])
        name = reply["session"]
        if name is not None and name not in self.open:
            self.open.append(name)
        return None if name is None else str(name)

    def log(self, text: str) -> None:
        """Write a line to the daemon's log, as a warning. What is merely printed shows there at level `info`."""
        print(text, file=sys.stderr, flush=True)

    def skip(self, reason: str) -> None:
        """Say why this call hands in nothing; `gad triggers` shows it."""
        self.skipped = str(reason)

    def now(self) -> float:
        """Return the time of this call, in seconds since the epoch."""
        return self._now

    def begin_call(self, now: float, open_sessions: list[str], usd_today: float) -> None:
        """Take note of how things are; the child calls this before each call into the plugin."""
        self._now, self.open, self.usd_today, self.skipped = now, open_sessions, usd_today, ""
