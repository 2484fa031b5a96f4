"""A home with sessions, and commands that run in the sandbox that a daemon would give them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gad.cli.walls import choose_sandbox
from gad.config import load
from gad.core.ports import Outcome, ToolContext
from gad.home import make_home
from gad.tools.code import CodeRun
from gad.tools.orphans import identity
from gad.tools.sandbox import Launch, Sandbox, trouble, unwrapped

WHY = trouble(shutil.which("bwrap"))
needs_bwrap = pytest.mark.skipif(bool(WHY), reason=f"THE SANDBOX IS NOT TESTED HERE: {WHY}")


class Place:
    """A home in which boss > me > kid are at work, and sib beside them; old rests."""

    def __init__(self, home: Path, settings: str = "", environ: Mapping[str, str] | None = None) -> None:
        self.home = home
        make_home(home)
        (home / "gad.yaml").write_text(settings)
        self.begin("boss")
        self.begin("me", parent="boss")
        self.begin("kid", parent="me")
        self.begin("sib")
        self.begin("old")
        (home / "spool" / ".daemon").mkdir()
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), **(environ or {})}

    def begin(self, name: str, **options: Any) -> None:
        directory = self.home / "spool" / name
        directory.mkdir()
        (directory / "journal.jsonl").write_text(json.dumps({"kind": "begin", "options": options}) + "\n")
        (self.home / "work" / name).mkdir()

    @property
    def sandbox(self) -> Launch:
        launch = choose_sandbox(load(self.home, {}), self.environ, lambda: ["boss", "me", "kid", "sib"])
        assert isinstance(launch, Sandbox)
        return launch

    def context(self, session: str = "me", cwd: Path | None = None, call: str = "c1") -> ToolContext:
        work = str(self.home / "work" / session)
        environment = {**self.environ, **identity(str(self.home), session, call)}
        return ToolContext(session, call, str(cwd or work), work, lambda text: None, environment)

    async def start(
        self, code: str, kind: str = "bash", *, walls: bool = True, context: ToolContext | None = None, **how: Any
    ) -> Outcome:
        tool = CodeRun(self.sandbox if walls else unwrapped)
        return await tool.run({"type": kind, "code": code, "timeout": 20, **how}, context or self.context())

    def run(self, code: str, kind: str = "bash", **how: Any) -> Outcome:
        return asyncio.run(self.start(code, kind, **how))
