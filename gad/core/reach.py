"""Which model a session asks, and how well it can be reached: a part of the session's fold."""

from __future__ import annotations

from gad.core.records import Calling, Deferred, Moved


class Reach:
    """The model in use and what stands in its way.

    `link` is the entry of a chain that is asked, empty before any move; `failover` the move that led away from the
    preferred one. `attempts` counts the failures in a row, `retry_at` and `deferred_since` are in seconds since the
    epoch; the latter is when a model last became unreachable without one having answered since.
    """

    def __init__(self) -> None:
        self.model = ""
        self.link = ""
        self.failover: Moved | None = None
        self.attempts = 0
        self.retry_at = 0.0
        self.deferred_since = 0.0

    def heard(self) -> None:
        """Begin anew: the user has said something, or the round is over."""
        self.attempts = 0
        self.retry_at = self.deferred_since = 0.0

    def calling(self, record: Calling) -> None:
        """Take note of a request that goes out."""
        self.model = record.model
        self.retry_at = 0.0

    def deferred(self, record: Deferred) -> None:
        """Take note of a failure that time may mend."""
        self.deferred_since = self.deferred_since or record.at
        self.retry_at, self.attempts = record.retry_at, record.attempts

    def moved(self, record: Moved) -> None:
        """Take note of a move to another link of the chain."""
        self.attempts = 0
        self.retry_at = 0.0
        if record.error:
            self.deferred_since = self.deferred_since or record.at
        self.link = record.model_to
        if self.failover is not None and self.failover.model_from == record.model_to:
            self.failover = None
        elif record.error and (self.failover is None or self.failover.model_from == record.model_from):
            self.failover = record

    def answered(self, model: str) -> None:
        """Take note that a model has answered, under the name that the server gave."""
        self.model = model
        self.attempts = 0
        self.deferred_since = 0.0
