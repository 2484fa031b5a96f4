"""Which entry of a chain of models to ask now.

The first one that is not resting. An entry rests after it has failed for good, or several times in a row; then the
next one answers, and once the rest is over the first is tried again. When all rest, the one whose rest ends soonest
is asked, and the ordinary waits between two attempts apply: a chain gives up no earlier than its best entry would.

A refusal is an answer and a request that is too long is no outage; both say nothing of the entry and are not told here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gad.errors import Temporary

SPRING_BACK = 300.0
"""Seconds for which an entry rests."""
REPEATED = 2
"""Temporary failures in a row, of whatever session, after which an entry rests."""
PATIENCE = 60.0
"""Seconds: an entry whose server asks for a longer wait rests at once, until then at least."""
LONGEST = 86_400.0
"""Seconds: no entry rests for longer, whatever its server asks for."""


@dataclass(frozen=True, slots=True)
class Rest:
    """An entry is not asked from `since` until `until`; `lasting`: asking again would not help.

    Until `asked` its server wants to be left alone; 0 when it has not said so. All are in seconds since the epoch.
    Before `since`, after a clock was set back, there is no rest: nobody knows how long it would be.
    """

    since: float
    until: float
    error: str
    lasting: bool
    asked: float = 0.0


class Standing:
    """What a daemon's sessions have learnt about its models: which entries rest, and why."""

    def __init__(self) -> None:
        self._rests: dict[str, Rest] = {}
        self._failures: dict[str, int] = {}

    def link(self, chain: Sequence[str], now: float) -> str:
        """Return the entry to ask: the first that does not rest, else the one whose rest ends soonest."""
        ready = (entry for entry in chain if self.rest(entry, now) is None)
        return next(ready, None) or min(chain, key=lambda entry: self._rests[entry].until)

    def rest(self, entry: str, now: float) -> Rest | None:
        """Return an entry's rest, or None when it may be asked."""
        found = self._rests.get(entry)
        return found if found is not None and found.since <= now < found.until else None

    def all_rest(self, chain: Sequence[str], now: float) -> bool:
        """Say whether there is no entry that may be asked."""
        return all(self.rest(entry, now) is not None for entry in chain)

    def lasting(self, chain: Sequence[str], now: float, since: float = 0.0) -> bool:
        """Say whether every entry has failed for good at `since` or later: what failed before may be mended by now."""
        rests = [self.rest(entry, now) for entry in chain]
        return all(rest is not None and rest.lasting and rest.since >= since for rest in rests)

    def failed(self, entry: str, error: Exception, now: float, *, patient: bool = True) -> None:
        """Take note of a failure; one that is not `Temporary` is for good. Without patience, one is enough."""
        count = self._failures[entry] = self._failures.get(entry, 0) + 1
        wait = 0.0
        if isinstance(error, Temporary):
            wait = min(error.retry_after or 0.0, LONGEST)
            if patient and count < REPEATED and wait <= PATIENCE:
                return
        lasting = not isinstance(error, Temporary)
        self._rests[entry] = Rest(now, now + max(SPRING_BACK, wait), str(error), lasting, now + wait if wait else 0.0)

    def answered(self, entry: str) -> None:
        """Take note that an entry has answered: it works."""
        self._rests.pop(entry, None)
        self._failures.pop(entry, None)
