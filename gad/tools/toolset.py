"""The tools, in their one order: requests begin with the same bytes every time, so vendors can cache them."""

from __future__ import annotations

from gad.core.ports import Browser, Tool, ToolSchema
from gad.tools.ask import AskUser
from gad.tools.code import CodeRun
from gad.tools.file_patch import FilePatch
from gad.tools.file_read import FileRead
from gad.tools.file_write import FileWrite
from gad.tools.memory import StartLongTermUpdate, UpdateWorkingCheckpoint
from gad.tools.sandbox import Launch, unwrapped
from gad.tools.web import WebExecuteJs, WebScan

_ALONE = (FileRead, FilePatch, FileWrite, AskUser, UpdateWorkingCheckpoint, StartLongTermUpdate)
_WITH_BROWSER = (WebScan, WebExecuteJs)


def all_tools(browser: Browser, launch: Launch = unwrapped) -> tuple[Tool, ...]:
    """Return every tool; `launch` starts the model's code."""
    return (CodeRun(launch), *(tool() for tool in _ALONE), *(tool(browser) for tool in _WITH_BROWSER))


def all_schemas() -> tuple[ToolSchema, ...]:
    """Return what a model is told of every tool."""
    return tuple(tool.schema for tool in (CodeRun, *_ALONE, *_WITH_BROWSER))
