"""ask_user: the model asks the person behind the session; the reply becomes the call's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gad.core.ports import Outcome, Question, ToolContext, ToolSchema


class AskUser:
    """Hands a question to the session, which then waits for the reply."""

    schema = ToolSchema(
        "ask_user",
        "Ask the user and wait for the reply. Only for what you cannot find out or decide yourself.",
        {
            "type": "object",
            "properties": {
                "question": {"type": "string"},
                "candidates": {"type": "array", "items": {"type": "string"}, "description": "suggested answers"},
            },
            "required": ["question"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Return the question as an effect on the session."""
        question = arguments["question"].strip()
        if not question:
            return Outcome("error", "question is empty")
        candidates = tuple(text for text in map(str.strip, arguments.get("candidates", ())) if text)
        return Outcome("ok", "", question=Question(question, candidates))
