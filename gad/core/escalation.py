"""Staged escalation: what failing again means, enforced and not merely advised.

The first failure carries its error. The same call again, with nothing learnt in between, is refused.
The second failure in a row asks for another approach. After the third, only ask_user runs; a model that
does not ask gets its question put by the engine, and where nobody is there to answer, the round fails.
Calls of one answer were made without knowing of each other's errors, so they fail once together.
"""

from __future__ import annotations

from gad.core.messages import ToolCall, ToolResult, canonical

ASK = "ask_user"
MUST_ASK = 3
"""Failures in a row after which only ask_user runs."""
ENGINE_ASKS = 5
"""Failures in a row (refusals count) after which the engine asks in the model's stead."""
NOT_RUN = "not_run"
"""Mark, in a result's meta, of a call that was skipped through no fault of its approach."""


class Escalation:
    """Counts failures in a row and remembers which calls have failed since anything new was learnt."""

    def __init__(self) -> None:
        self.failures = 0
        self.last_error = ""
        self._failed: set[tuple[str, str]] = set()
        self._counted = False  # this answer has failed already

    @property
    def must_ask(self) -> bool:
        """True when no other tool than ask_user may run."""
        return self.failures >= MUST_ASK

    @property
    def engine_asks(self) -> bool:
        """True when the model was told to ask and did not."""
        return self.failures >= ENGINE_ASKS

    def refusal(self, call: ToolCall, *, can_ask: bool) -> str:
        """Return why this call is not run, or an empty string."""
        if call.name == ASK:
            return "" if can_ask else "nobody is there to answer: decide yourself and say what you assumed"
        if self.must_ask and can_ask:
            return "three failures in a row: call ask_user, say what you tried and what you need; nothing else runs"
        if (call.name, canonical(call.arguments)) in self._failed:
            return "refused: this very call has failed and nothing new was learnt since; change something first"
        return ""

    def note(self, *, can_ask: bool) -> str:
        """Return the line that goes with one more failure, or an empty string for the first."""
        failures = self.failures + (0 if self._counted else 1)
        if failures == 2:
            return "[second failure in a row: take a different approach, not a variation of this one]"
        if failures >= MUST_ASK and can_ask:
            return "[third failure in a row: now call ask_user: what you tried, what you need]"
        return ""

    def new_answer(self) -> None:
        """Take note that the model has seen the errors so far."""
        self._counted = False

    def record(self, call: ToolCall, result: ToolResult) -> None:
        """Count one result."""
        if NOT_RUN in result.meta:
            return
        if not result.is_error:
            self.clear()
            return
        if not self._counted:
            self._counted = True
            self.failures += 1
        self.last_error = result.render()
        self._failed.add((call.name, canonical(call.arguments)))

    def clear(self) -> None:
        """Forget: something worked, or a person said something."""
        self.failures = 0
        self.last_error = ""
        self._counted = False
        self._failed.clear()
