"""What a session may use, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass

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
    if limits.usd is not None and used.usd is not None and used.usd >= limits.usd:
        return f"dollar limit reached ({limits.usd:g} USD)"
    if seconds_left is not None and seconds_left <= 0:
        return f"time limit reached ({limits.seconds:g} s)"
    return ""
