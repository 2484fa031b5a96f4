"""What one user may have of a daemon that several users share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quota:
    """None is no limit. `sessions` is how many of a user's are at work at once; the others are counted by the day."""

    sessions: int | None = None
    per_day: int | None = None
    usd_per_day: float | None = None

    def over_sessions(self, user: str, at_work: int) -> str:
        """Return why one more session of a user has to wait; empty when it does not."""
        if self.sessions is None or at_work < self.sessions:
            return ""
        return f"{at_work} sessions of user {user} are at work, and quota.sessions in gad.yaml is {self.sessions}"

    def over_day(self, user: str, begun: int) -> str:
        """Return why a user may begin no more sessions today; empty when that is not so."""
        if self.per_day is None or begun < self.per_day:
            return ""
        return f"user {user} has begun {begun} sessions today, and quota.per_day in gad.yaml is {self.per_day}"

    def over_usd(self, user: str, spent: float) -> str:
        """Return why a user may spend no more today; empty when that is not so."""
        if self.usd_per_day is None or spent < self.usd_per_day:
            return ""
        most = f"{self.usd_per_day:g}"
        return f"user {user} has spent {spent:.2f} USD today, and quota.usd_per_day in gad.yaml is {most}"
