"""code_run: the model's Python and bash, each run as a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from gad.core.cut import copied_mark
from gad.core.ports import Outcome, ToolContext, ToolSchema
from gad.tools.capture import call_stem, new_file
from gad.tools.process import run_command
from gad.tools.sandbox import Launch, unwrapped

DEFAULT_SECONDS = 60
"""How long a command may run when the call does not say."""

# The script runs under its own name and line numbers, while imports start in the working directory.
_PYTHON = "import sys;__file__=sys.argv[1];del sys.argv[0];exec(compile(open(__file__,'rb').read(),__file__,'exec'))"


_WALLS = re.compile(r"Read-only file system|/tmp/")
"""What the output of code that has met the sandbox's walls holds."""


class CodeRun:
    """Runs code in the working directory and returns its output, exit code and duration.

    `launch` turns a command into the one that is started for it, in a sandbox where there is one.
    """

    schema = ToolSchema(
        "code_run",
        "Run code as a new process in the cwd; stdin is closed. Once per turn. Long output is cut in the middle.",
        {
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["python", "bash"]},
                "code": {"type": "string"},
                "timeout": {"type": "number", "description": f"seconds, default {DEFAULT_SECONDS}"},
            },
            "required": ["type", "code"],
        },
    )

    def __init__(self, launch: Launch = unwrapped) -> None:
        self._launch = launch

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Run the code; a non-zero exit and a time-out are errors that carry the output."""
        code: str = arguments["code"]
        timeout = float(arguments.get("timeout", DEFAULT_SECONDS))
        if not timeout > 0:
            return Outcome("error", "timeout must be more than 0 seconds")
        if not code.strip() or "\0" in code:
            return Outcome("error", "code is empty" if not code.strip() else "code holds a NUL character")
        if refused := copied_mark("code", code):
            return Outcome("error", refused)
        stem = call_stem("code_run", context)
        script = stem + (".py" if arguments["type"] == "python" else ".sh")
        start = [sys.executable, "-u", "-c", _PYTHON] if arguments["type"] == "python" else ["bash"]
        try:
            _write(script, code)
            command = [*start, script]
            argv = self._launch(command, session=context.session, cwd=context.cwd, work=context.work)
            finished = await run_command(
                argv,
                cwd=context.cwd,
                environment=context.environment,
                timeout=timeout,
                emit=context.emit,
                spill_path=stem + ".txt",
                limit=context.limit,
                secrets=context.secrets,
                kept=argv != command,
            )
        except (OSError, UnicodeEncodeError) as trouble:
            return Outcome("error", f"could not run: {trouble}")
        finally:
            with contextlib.suppress(OSError):
                os.unlink(script)
        meta: dict[str, Any] = {"exit": finished.exit, "seconds": round(finished.seconds, 2)}
        if finished.background is not None:
            meta["background"] = finished.background
        if finished.timed_out:
            meta["timeout"] = arguments.get("timeout", DEFAULT_SECONDS)
        failed = finished.timed_out or finished.exit != 0
        if failed and argv != command and _WALLS.search(finished.output):
            meta["sandbox"] = _told(context)
        return Outcome("error" if failed else "ok", finished.output, meta, finished.saved)


def _told(context: ToolContext) -> str:
    places = ", ".join(dict.fromkeys((context.cwd, context.work)))
    return f"code writes below {places} and in a /tmp of its own, which file tools do not see"


def _write(path: str, code: str) -> None:
    with os.fdopen(new_file(path), "w", encoding="utf-8", newline="\n") as file:
        file.write(code)
