"""update_working_checkpoint: the short notes that stay in sight while older messages leave it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gad.core.ports import Outcome, ToolContext, ToolSchema


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
        return Outcome("ok", "noted" if key_info else "cleared", key_info=key_info)
