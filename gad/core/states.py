"""The states of a session, and rule one: which record may arrive in which state, and where it leads.

A pair that is not listed raises InvalidStep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

State = Literal["new", "queued", "running", "deferred", "asking", "done", "failed", "stopped"]

RESTING: frozenset[State] = frozenset({"new", "asking", "done", "failed", "stopped"})
"""States that wait for a client."""
ENDED: frozenset[State] = frozenset({"done", "failed", "stopped"})
"""States in which a new input.txt begins a new conversation."""

_ANY: tuple[State, ...] = ("queued", "running", "deferred", "asking", "done", "failed", "stopped")
_SAME: Mapping[State, State] = {state: state for state in _ANY}

TABLE: Mapping[str, Mapping[State, State]] = {
    "begin": {"new": "new"},
    "message": {
        "new": "queued",
        "queued": "queued",
        "running": "running",
        "deferred": "queued",
        "asking": "queued",
        "done": "queued",
        "failed": "queued",
        "stopped": "queued",
    },
    "context": _SAME,
    "child": _SAME,
    "child_used": _SAME,
    "stop": _SAME,
    "rejected": {"new": "new", **_SAME},
    "calling": {"queued": "running", "running": "running", "deferred": "running"},
    "deferred": {"running": "deferred"},
    "moved": {"queued": "running", "running": "running", "deferred": "running"},
    "answer": {"running": "running"},
    "tool_started": {"queued": "running", "running": "running"},
    "tool_finished": {"queued": "running", "running": "running"},
    "asked": {"queued": "asking", "running": "asking"},
    "judged": _SAME,
    "script_started": {"queued": "running", "running": "running"},
    "script_ran": {"running": "running"},
    "decided": {"queued": "queued", "running": "running", "deferred": "deferred"},
    "checking": {"queued": "running", "running": "running"},
    "checked": {"running": "running"},
    "resumed": {"running": "queued"},
    "paused": {"running": "queued"},
    # `ended` leads to the state it names, or to queued when a message came in too late to be part of the round.
    "ended": {"queued": "queued", "running": "queued", "deferred": "queued", "asking": "queued"},
}
