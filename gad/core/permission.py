"""What a person has said about the calls of a session that need permission: a part of the session's fold."""

from __future__ import annotations

import hashlib

from gad.core.messages import ToolCall, canonical
from gad.core.policy import Verdict
from gad.core.records import Asked

REFUSED = (
    "not run: the user was asked and refused. Do not try the same by other means; go on without it, or ask what they "
    "want instead."
)
ANSWERED_OTHERWISE = "not run: the user was asked for permission and has said something else instead; it follows"
REFUSED_BEFORE = "not run, not asked again: the user has refused this very call; do something else"


def fingerprint(question: str) -> str:
    """Return what tells one question from all others; the text itself may be redacted when it is kept."""
    return hashlib.sha256(question.encode("utf-8", "replace")).hexdigest()


class Permissions:
    """Which call waits for a reply, which has leave to run, what holds for the whole session, what was refused."""

    def __init__(self) -> None:
        self._waiting: Asked | None = None
        self._granted: Asked | None = None
        self._always: set[str] = set()
        self._call: ToolCall | None = None
        self._refused: set[tuple[str, str]] = set()

    @property
    def waiting(self) -> str:
        """The call for which permission is asked, empty when none is."""
        return self._waiting.call if self._waiting is not None else ""

    def asked(self, record: Asked, call: ToolCall) -> None:
        """Take note that permission is asked for a call."""
        self._waiting, self._call, self._granted = record, call, None

    def heard(self, reply: str) -> str:
        """Take in what a person replies; return the call's result when it is not to run, else an empty string."""
        self._refused.clear()
        record, self._waiting = self._waiting, None
        assert record is not None and self._call is not None
        word = reply.strip().lower().rstrip(".!")
        if word in ("yes", "always"):
            self._granted = record
            self._always |= set(record.keys) if word == "always" else set()
            return ""
        self._refused.add((self._call.name, canonical(self._call.arguments)))
        return REFUSED if word == "no" else ANSWERED_OTHERWISE

    def spoken(self) -> None:
        """Take note that a person has said something: what was refused may be wanted now."""
        self._refused.clear()

    def started(self) -> None:
        """Take note that the call runs: leave is given once."""
        self._granted = None

    def drop(self) -> None:
        """Forget all but what holds for the whole session: the round is over."""
        self._waiting = self._granted = self._call = None
        self._refused.clear()

    def covers(self, call: ToolCall, verdict: Verdict, exact: str) -> str:
        """Return by which word of a person's a call has the permission that it needs: for the same deeds as then."""
        if verdict.keys and self._always.issuperset(verdict.keys):
            return "always"
        granted = self._granted
        return "yes" if granted is not None and (granted.call, granted.exact) == (call.id, exact) else ""

    def refused(self, call: ToolCall) -> bool:
        """Return whether a person has refused this very call, and has said nothing else since."""
        return (call.name, canonical(call.arguments)) in self._refused
