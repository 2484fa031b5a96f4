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

    def __add__(self, other: Spent) -> Spent:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Spent(self.turns + other.turns, self.tokens + other.tokens, usd, self.seconds + other.seconds)

    def __sub__(self, base: Spent) -> Spent:
        usd = None if self.usd is None else self.usd - (base.usd or 0.0)
        return Spent(self.turns - base.turns, self.tokens - base.tokens, usd, self.seconds - base.seconds)


def over_limit(limits: TaskOptions, used: Spent, seconds_left: float | None) -> str:
    """Return which limit is used up, in words for the user; empty when none is."""
    if limits.turns is not None and used.turns >= limits.turns:
        return f"turn limit reached ({limits.turns})"
    if cost := over_cost(limits, used):
        return cost
    if seconds_left is not None and seconds_left <= 0:
        return f"time limit reached ({limits.seconds:g} s)"
    return ""


def over_cost(limits: TaskOptions, used: Spent) -> str:
    """Return which of the limits that children share is used up, in words for the user; empty when none is."""
    if limits.tokens is not None and used.tokens >= limits.tokens:
        return f"token limit reached ({limits.tokens})"
    if limits.usd is not None and used.usd is None:  # a limit that nobody can watch is none
        return f"the dollar limit ({limits.usd:g} USD) cannot be kept: a server did not say what its answer took"
    if limits.usd is not None and used.usd is not None and used.usd >= limits.usd:
        return f"dollar limit reached ({limits.usd:g} USD)"
    return ""


@dataclass(frozen=True, slots=True)
class Left:
    """What a session's limits still allow it and its children together; None where there is no limit."""

    tokens: int | None = None
    usd: float | None = None

    def bound(self, options: TaskOptions) -> TaskOptions:
        """Return a child's options with limits that are no more than this.

        Where nothing is left there is nothing to bound: the child will not be allowed to ask at all.
        """
        tokens, usd = options.tokens, options.usd
        if self.tokens is not None and self.tokens > 0:
            tokens = self.tokens if tokens is None else min(tokens, self.tokens)
        if self.usd is not None and self.usd > 0:
            usd = self.usd if usd is None else min(usd, self.usd)
        return replace(options, tokens=tokens, usd=usd)


class Allowance:
    """What a session has used, and what its limits still allow; a round that a limit ended gets the same again.

    The tokens and dollars that `children` have used count as its own.
    """

    def __init__(self) -> None:
        self.limits = TaskOptions()
        self.spent = Spent()
        self.children = Spent()
        self._charged: dict[tuple[str, float], Spent] = {}  # by a child's name, and when its conversation began
        self._baseline = Spent()
        self._limit_hit = False
        self._active_since: float | None = None
        self._last_at = 0.0

    @property
    def total(self) -> Spent:
        """What counts against the limits: what the session has used, and its children."""
        return self.spent + self.children

    @property
    def left(self) -> Left:
        """What the limits still allow the session and its children."""
        used, limits = self.total - self._baseline, self.limits
        usd = None if limits.usd is None or used.usd is None else limits.usd - used.usd
        return Left(None if limits.tokens is None else limits.tokens - used.tokens, usd)

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
        return over_limit(self.limits, self.total - self._baseline, self.seconds_left(now))

    def over_cost(self) -> str:
        """Return which limit is used up that children share; empty when none is."""
        return over_cost(self.limits, self.total - self._baseline)

    def charged(self, child: str, began: float) -> Spent:
        """Return what is known so far of what a child's conversation has used."""
        return self._charged.get((child, began), Spent())

    def charge(self, child: str, began: float, *, tokens: int, usd: float | None) -> None:
        """Note what a child's conversation has used by now; it takes the place of what was noted before."""
        used = Spent(tokens=tokens, usd=usd)
        self.children = self.children + (used - self.charged(child, began))
        self._charged[child, began] = used

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
        """Give the same allowance again when a limit ended the last round, or children have used it up since."""
        if self._limit_hit or self.over_cost():
            self._baseline = self.total
            self._limit_hit = False

    def _count(self, until: float) -> None:
        self.spent = replace(self.spent, seconds=self.active_seconds(until))
        self._active_since = None
