"""The conversation so far, and what is known of how requests show it: a part of the session's fold."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from gad.core import anchor
from gad.core.context import Context, Plan, weigh_message
from gad.core.elision import Elision
from gad.core.messages import Assistant, Message, Text, ToolResult, Usage, User
from gad.core.records import Calling
from gad.core.summary import summarise
from gad.core.weights import ALPHA

_TRUSTED = (0.7, 2.0)
"""A vendor's token counts are believed between these shares of the estimate: some count only what was not cached."""


class History:
    """The transcript, one line on each of the latest turns, and the plan of the newest request.

    `summaries` holds, of each turn, where its messages end in the transcript, its number and its line. `calibration`
    is how many tokens the model counts for each that was estimated.
    """

    def __init__(self) -> None:
        self.transcript: list[Message] = []
        self.summaries: deque[tuple[int, int, str]] = deque(maxlen=anchor.SUMMARIES)
        self.context = Context()
        self.plan = Plan()
        self.elision = Elision()
        self.calibration = 1.0

    def with_open(self, parts: tuple[ToolResult | Text, ...]) -> list[Message]:
        """Return the transcript as it is once these parts of an open user message are closed."""
        if not parts:
            return self.transcript
        if self.transcript and isinstance(last := self.transcript[-1], User):
            return [*self.transcript[:-1], User(last.parts + parts)]
        return [*self.transcript, User(parts)]

    def close(self, parts: tuple[ToolResult | Text, ...], turn: int) -> None:
        """Take in a whole user message; `turn` is the last answer's, which is over with it."""
        if self.transcript and isinstance(last := self.transcript[-1], Assistant):
            results = tuple(part for part in parts if isinstance(part, ToolResult))
            self.summaries.append((len(self.transcript) + 1, turn, summarise(last, results)))
        self.transcript[:] = self.with_open(parts)
        self.elision.added(weigh_message(User(parts)) / ALPHA)

    def sent(self, record: Calling) -> None:
        """Take note of the request that goes out."""
        self.plan = record.plan
        self.elision.sent(record.turn, (record.prefix,), record.plan.schemas)

    def count(self, usage: Usage) -> None:
        """Move half-way to what the vendor counted; what it says is believed within bounds only."""
        if usage.tokens_in and self.plan.weight:
            measured = usage.tokens_in * ALPHA / self.plan.weight
            self.calibration = (self.calibration + min(max(measured, _TRUSTED[0]), _TRUSTED[1])) / 2

    def answer(self, message: Assistant) -> None:
        """Take in an answer."""
        self.transcript.append(message)
        self.elision.answered(message)
        self.elision.added(weigh_message(message) / ALPHA)

    def moved(self) -> None:
        """Forget what was learnt of the model: another has heard nothing of the tools, counts in its own way."""
        self.elision = Elision()
        self.calibration = 1.0
        self.plan = replace(self.plan, ceiling=0.0)
