"""The sessions of triggers: what they are called, what their task.yaml says, how they have ended.

A session's name comes from its instance and its key, and its directory appears whole by one rename that replaces
nothing: so the directory is the claim, and for one key there is one session.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gad.errors import ConfigError, Rejected
from gad.spool import drop, names
from gad.spool.status import parse, read_status, render
from gad.triggers.plugin import Refused

LABEL = "trigger"
ENDED = frozenset({"done", "failed", "stopped", "rejected"})
"""The states in which a session has ended. One that asks has not: it waits for a person."""

_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_LONGEST = 128


@dataclass(frozen=True, slots=True)
class Door:
    """How sessions are handed in: where, and what is checked first.

    `check_task` is given the text of a task.yaml and raises ConfigError; `max_bytes` bounds a text.
    """

    spool: str
    check_task: Callable[[str], None]
    max_bytes: int

    def prepare(self, instance: str, text: str, task: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return input.txt and task.yaml of a new session. Raises Refused that says what is wrong."""
        data = text.encode("utf-8", "replace")
        try:
            labels = task.get("labels") or ()
            given = [labels] if isinstance(labels, str) else list(labels)
            whole = {"ask": "never"} | dict(task) | {"labels": [*given, LABEL, f"{LABEL}:{instance}"]}
            drop.check_text(data, "the text", self.max_bytes)
            written = render(whole)
            self.check_task(written)
        except (ConfigError, Rejected, ValueError, TypeError) as exc:
            raise Refused(str(exc)) from None
        return data, written

    def claimed(self, instance: str, name: str) -> bool | None:
        """Return None when there is no session of this name, else whether this instance has made it."""
        directory = os.path.join(self.spool, name)
        if not os.path.lexists(directory):
            return None
        return f"{LABEL}:{instance}" in labels_of(directory)

    def hand_in(self, name: str, data: bytes, task: str) -> bool:
        """Make the session, unless there is one of this name. Raises GadError and OSError."""
        return drop.submit_once(Path(self.spool), name, data, task)

    def result(self, name: str, key: str) -> dict[str, Any] | None:
        """Return how a session has ended, or None when it has not. `auth`: it had no valid key."""
        directory = os.path.join(self.spool, name)
        status = read_status(directory)
        state = status.get("state")
        if not os.path.isdir(directory):
            state = "removed"
        elif state not in ENDED:
            return None
        return {
            "session": name,
            "key": key,
            "state": state,
            "text": _answer(directory) if state == "done" else "",
            "error": str(status.get("error", "")),
            "usd": _usd(status),
            "turns": status.get("turn", 0),
            "auth": status.get("error_kind") == "auth",
        }

    def cost(self, name: str) -> float | None:
        """Return what a session and its children have cost so far, in dollars; None when nobody knows."""
        return _usd(read_status(os.path.join(self.spool, name)))


def names_for(instance: str, key: str) -> Iterator[str]:
    """Yield the names that a key's session may have: the first that nobody else has is its name.

    The second is for a name that a person or another instance has: one instance's `a-b` with the key `c` wants what
    the key `b-c` of `a` does.
    """
    plain = _FORBIDDEN.sub("-", f"{instance}-{key}")
    digest = hashlib.sha256(f"{instance}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    if plain == f"{instance}-{key}" and len(plain) <= _LONGEST:
        yield plain
    yield f"{plain[: _LONGEST - 13]}-{digest}"


def time_key(now: float) -> str:
    """Return the key of a session without one: the time in UTC, to the millisecond."""
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def task_of(directory: str) -> dict[str, Any]:
    """Return what a session's task.yaml says, as far as gad has written it.

    Also while the daemon takes it in, and what it has turned down: a session is whose it is.
    """
    for _ in range(3):  # it may be renamed between the two looks
        with contextlib.suppress(OSError):
            found = [name for name in os.listdir(directory) if name == names.TASK or name.endswith(f"-{names.TASK}")]
            texts = [Path(directory, name).read_text("utf-8", "replace") for name in sorted(found, key=len)]
            return {key: value for text in reversed(texts) for key, value in parse(text).items()}
    return {}


def labels_of(directory: str) -> list[str]:
    """Return the labels in a session's task.yaml, as far as gad has written it."""
    labels = task_of(directory).get("labels")
    return [str(label) for label in labels] if isinstance(labels, list) else []


def _usd(status: Mapping[str, Any]) -> float | None:
    spent = [status.get(key, 0.0) for key in ("cost_usd", "children_cost_usd")]
    return float(sum(spent)) if all(isinstance(usd, int | float) for usd in spent) else None


def _answer(directory: str) -> str:
    try:
        return Path(directory, names.RESULT).read_text("utf-8", "replace")
    except OSError:
        return ""
