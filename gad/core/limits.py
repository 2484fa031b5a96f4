"""What a session may use, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gad.core.task import TaskOptions


@dataclass(frozen=True, slots=True)
class Spent:
    """What has been used. `usd` is None once any part of it is unknown; `seconds` is active time."""

    turns: int = 0
    tokens: int = 0
    usd: float | None = 0.0
    seconds: float = 0.0

    def plus(self, *, tokens: int, usd: float | None) -> Spent:
        """Return this and one more turn."""
        known = None if self.usd is None or usd is None else self.usd + usd
        return Spent(self.turns + 1, self.tokens + tokens, known, self.seconds)

    def __sub__(self, base: Spent) -> Spent:
        usd = None if self.usd is None else self.usd - (base.usd or 0.0)
        return Spent(self.turns - base.turns, self.tokens - base.tokens, usd, self.seconds - base.seconds)


def over_limit(limits: TaskOptions, used: Spent, seconds_left: float | None) -> str:
    """Return which limit is used up, in words for the user; empty when none is."""
    if limits.turns is not None and used.turns >= limits.turns:
        return f"turn limit reached ({limits.turns})"
    if limits.tokens is not None and used.tokens >= limits.tokens:
        return f"token limit reached ({limits.tokens})"
    if limits.usd is not None and used.usd is None:  # a limit that nobody can watch is none
        return f"the dollar limit ({limits.usd:g} USD) cannot be kept: a server did not say what its answer took"
    if limits.usd is not None and used.usd is not None and used.usd >= limits.usd:
        return f"dollar limit reached ({limits.usd:g} USD)"
    if seconds_left is not None and seconds_left <= 0:
        return f"time limit reached ({limits.seconds:g} s)"
    return ""


class Allowance:
    """What a session has used, and what its limits still allow; a round that a limit ended gets the same again."""

    def __init__(self) -> None:
        self.limits = TaskOptions()
        self.spent = Spent()
        self._baseline = Spent()
        self._limit_hit = False
        self._active_since: float | None = None
        self._last_at = 0.0

    @property
    def last_turn(self) -> int | None:
        """The number of the last turn that the turn limit allows, or None without a limit."""
        return None if self.limits.turns is None else self._baseline.turns + self.limits.turns

    def active_seconds(self, now: float) -> float:
        """Return how long the session has been at work: running, or waiting for a model that is out of reach."""
        return self.spent.seconds + (max(0.0, now - self._active_since) if self._active_since is not None else 0.0)

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds that the time limit still allows, or None without a limit."""
        if self.limits.seconds is None:
            return None
        return self.limits.seconds - (self.active_seconds(now) - self._baseline.seconds)

    def over(self, now: float) -> str:
        """Return which limit is used up, in words for the user; empty when none is."""
        return over_limit(self.limits, self.spent - self._baseline, self.seconds_left(now))

    def turn(self, *, tokens: int, usd: float | None) -> None:
        """Count one more turn."""
        self.spent = self.spent.plus(tokens=tokens, usd=usd)

    def pass_time(self, at: float, *, active: bool) -> None:
        """Note what the session is at from now on; `at` is in seconds since the epoch."""
        if self._active_since is not None and not active:
            self._count(at)
        elif self._active_since is None and active:
            self._active_since = at
        self._last_at = at

    def was_down(self) -> None:
        """Leave out the time since the last record: the daemon was down, and that is not the session's."""
        if self._active_since is not None:
            self._count(self._last_at)

    def end_round(self, *, by_limit: bool) -> None:
        """Note how the round ended."""
        self._limit_hit = by_limit

    def begin_round(self) -> None:
        """Give the same allowance again when a limit ended the last round: a reply retries."""
        if self._limit_hit:
            self._baseline = self.spent
            self._limit_hit = False

    def _count(self, until: float) -> None:
        self.spent = replace(self.spent, seconds=self.active_seconds(until))
        self._active_since = None
