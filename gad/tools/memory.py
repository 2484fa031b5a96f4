"""update_working_checkpoint: the notes that stay in sight; start_long_term_update: the way into long-term memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gad.core.context import OLD_NOTES
from gad.core.ports import Outcome, ToolContext, ToolSchema
from gad.errors import MemoryRefused

LONGEST = 4_000
"""Characters that the notes may have."""


class UpdateWorkingCheckpoint:
    """Replaces the session's key information."""

    schema = ToolSchema(
        "update_working_checkpoint",
        "Replace your notes, shown every turn: goal, constraints, findings, paths, next steps. "
        "Use in long tasks; history gets compressed, the notes stay.",
        {"type": "object", "properties": {"key_info": {"type": "string"}}, "required": ["key_info"]},
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Return the notes as an effect on the session; empty text clears them."""
        key_info = arguments["key_info"].strip()
        if len(key_info) > LONGEST:
            most = f"{len(key_info):,} characters are too many: {LONGEST:,} at most, as they are sent every turn"
            return Outcome("error", f"{most}; keep what is long in a file, and its path here")
        if key_info == OLD_NOTES:
            return Outcome("error", "those are no notes, but what stands in their place in old calls; write the notes")
        return Outcome("ok", "noted" if key_info else "cleared", key_info=key_info)


class StartLongTermUpdate:
    """Opens the phase in which a session may write what it has proven into long-term memory."""

    schema = ToolSchema(
        "start_long_term_update",
        "Before you write lasting, proven knowledge under memory/: returns the rules and your proofs.",
        {"type": "object", "properties": {}},
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Return the rules and what this session has proven."""
        if context.memory is None:
            return Outcome("error", "there is no long-term memory here")
        try:
            return Outcome("ok", await context.memory.open_phase())
        except MemoryRefused as refused:
            return Outcome("error", str(refused))
