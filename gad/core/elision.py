"""When a request spells the tools out in full, for models that read the schemas as text.

Full schemas cost tokens in every request; a model that was told them lately needs only a reminder. This is a fold
over what was sent and what came of it: no clock, no chance, so a replayed journal gives the same decisions.
"""

from __future__ import annotations

from gad.core.messages import Assistant

TURNS = 10
"""Turns after which the schemas are sent in full again."""
TOKENS = 9_000.0
"""Tokens of conversation, as `gad.core.weights` estimates them, after which they are sent in full again."""


class Elision:
    """Decides whether the schemas are due, and remembers when they were last sent in full."""

    def __init__(self) -> None:
        self._last: int | None = None  # the turn of the last full request
        self._tools: tuple[str, ...] = ()
        self._unreadable = False
        self._tokens = 0.0

    def due(self, turn: int, tools: tuple[str, ...]) -> bool:
        """Say whether the request of this turn must hold the full schemas. `tools` identifies the tool set.

        They are due in the first request; when the tool set is another one; every `TURNS` turns; right after an
        answer with a call that could not be read; and once `TOKENS` tokens have gone by. A request that is sent
        again in the same turn has had no answer yet, so it is as full as it was.
        """
        return (
            self._last is None
            or turn == self._last
            or turn - self._last >= TURNS
            or tools != self._tools
            or self._unreadable
            or self._tokens >= TOKENS
        )

    def sent(self, turn: int, tools: tuple[str, ...], full: bool) -> None:
        """Take note of a request that was sent."""
        if full:
            self._last, self._tools = turn, tools
            self._unreadable = False
            self._tokens = 0.0

    def answered(self, message: Assistant) -> None:
        """Take note of an answer: a call that could not be read shows that the model needs the schemas."""
        self._unreadable = any(call.problem for call in message.calls)

    def added(self, tokens: float) -> None:
        """Count so many tokens of conversation."""
        self._tokens += tokens
