"""The tool calls of one answer and what has become of them: every call gets exactly one result."""

from __future__ import annotations

from gad.core.messages import Status, ToolCall, ToolResult

_INTERRUPTED = "interrupted: it may or may not have happened; check before repeating"


class OpenCalls:
    """One answer's calls, in order, their results so far, and the one that is under way."""

    def __init__(self, calls: tuple[ToolCall, ...] = ()) -> None:
        self.calls = calls
        self.started = ""
        self._results: dict[str, ToolResult] = {}

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet."""
        return tuple(call for call in self.calls if call.id not in self._results)

    def before(self, call: ToolCall) -> tuple[ToolCall, ...]:
        """Return the calls that stand before this one."""
        return self.calls[: self.calls.index(call)]

    def find(self, call_id: str) -> ToolCall | None:
        """Return the unanswered call of this id."""
        return next((call for call in self.unanswered if call.id == call_id), None)

    def answer(self, call_id: str, status: Status, text: str) -> None:
        """Give a call a result that no tool has given."""
        self.finish(ToolResult(call_id, status, text))

    def finish(self, result: ToolResult) -> None:
        """Take in a result."""
        self.started = ""
        self._results[result.call_id] = result

    def interrupt(self) -> None:
        """Give the call that was under way its result: nobody knows how far it came."""
        if self.started and self.find(self.started) is not None:
            self.answer(self.started, "interrupted", _INTERRUPTED)
        self.started = ""

    def close(self, why: str) -> None:
        """Give every call without a result one that says why it was not run."""
        for call in self.unanswered:
            self.answer(call.id, "interrupted", f"not run: {why}")

    def results(self) -> tuple[ToolResult, ...]:
        """Return the results in the calls' order. Every call must have one."""
        return tuple(self._results[call.id] for call in self.calls)
