"""The tools, in their one order: requests begin with the same bytes every time, so vendors can cache them."""

from __future__ import annotations

from gad.core.ports import Tool
from gad.tools.ask import AskUser
from gad.tools.code import CodeRun
from gad.tools.file_patch import FilePatch
from gad.tools.file_read import FileRead
from gad.tools.file_write import FileWrite
from gad.tools.memory import StartLongTermUpdate, UpdateWorkingCheckpoint


def all_tools() -> tuple[Tool, ...]:
    """Return every tool."""
    return (
        CodeRun(),
        FileRead(),
        FilePatch(),
        FileWrite(),
        AskUser(),
        UpdateWorkingCheckpoint(),
        StartLongTermUpdate(),
    )
