"""A real daemon on a real spool against the scripted server, in one event loop, for tests that look at both sides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gad.cli.compose import Providers, build_daemon
from gad.config import load
from gad.daemon import Daemon
from gad.home import make_home
from gad.spool.status import read_status
from tests.scripted_server import ScriptedServer

RESTING = {"done", "asking", "failed", "stopped", "rejected"}


class World:
    """A home, a scripted model and what a client does."""

    def __init__(self, home: Path, server: ScriptedServer, **settings: Any) -> None:
        self.home = home
        self.server = server
        self.spool = home / "spool"
        make_home(home)
        model = {"provider": "openai", "model": "scripted", "base_url": server.openai_url, "idle_timeout": 20}
        base: dict[str, Any] = {
            "model": "test",
            "models": {"test": model},
            "prices": {"scripted": {"input": 1, "output": 1}},
            "retry": {"first": 0.02, "most": 0.05},
            "sandbox": {"writable": [str(home.parent)]},  # tests let commands leave files beside the home
        }
        (home / "gad.yaml").write_text(yaml.safe_dump(base | settings), "utf-8")
        self.daemon: Daemon | None = None

    @contextlib.asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Daemon]:
        """Run a daemon until the block ends; it has said that it is ready."""
        config = load(self.home, {})
        providers = Providers(config, {"PATH": os.environ["PATH"]}, lambda what, done, total: None)
        daemon = build_daemon(config, {"PATH": os.environ["PATH"]}, providers, **options)
        task = asyncio.create_task(daemon.run())
        try:
            await until(lambda: task.done() or read_status(self.spool / ".daemon").get("state") == "ready")
            if task.done():
                task.result()
            yield daemon
        finally:
            daemon.stop()
            await task
            await providers.close()

    # -- a client's side -------------------------------------------------------------------------

    def put(self, session: str, name: str, text: str | bytes) -> Path:
        """Write a file the way a shell does: in place."""
        directory = self.spool / session
        directory.mkdir(exist_ok=True)
        path = directory / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def task(self, session: str, text: str = "do it", **options: Any) -> None:
        """Hand in a task."""
        if options:
            self.put(session, "task.yaml", yaml.safe_dump(options, allow_unicode=True))
        self.put(session, "input.txt", text)

    def status(self, session: str) -> dict[str, Any]:
        return read_status(self.spool / session)

    def text(self, session: str, name: str) -> str:
        path = self.spool / session / name
        return path.read_text("utf-8") if path.exists() else ""

    def records(self, session: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text(session, "journal.jsonl").splitlines()]

    def kinds(self, session: str) -> list[str]:
        return [record["kind"] for record in self.records(session)]

    def files(self, session: str) -> set[str]:
        return set(os.listdir(self.spool / session))

    async def rests(
        self, session: str, state: str = "done", *, round: int = 1, seconds: float = 40.0
    ) -> dict[str, Any]:
        """Wait until the session is in this state in this round; fail soon when it rests in another."""
        wrong_since: list[float] = []

        def there() -> bool:
            status = self.status(session)
            if status.get("state") == state and status.get("round", round) == round:
                return True
            wrong = status.get("state") in RESTING and status.get("round") == round and status.get("state") != state
            if not wrong or state not in RESTING or self.waiting(session):
                wrong_since.clear()
            elif not wrong_since:  # what was taken in a moment ago may not show yet
                wrong_since.append(time.monotonic())
            assert not wrong_since or time.monotonic() - wrong_since[0] < 5.0, status
            return False

        await until(there, seconds, lambda: f"{session}: {self.status(session)}\n{self.text(session, 'output.txt')}")
        return self.status(session)

    def waiting(self, session: str) -> bool:
        """Return whether a client's file has not been taken in yet."""
        return any(name.endswith((".txt",)) and ("claim" in name or name in ("input.txt", "reply.txt", "stop.txt"))
                   for name in self.files(session))  # fmt: skip


def outside() -> str:
    """Return a directory that a test may make things in and that is not where programs keep temporary files."""
    for place in (str(Path.home()), str(Path(__file__).parents[1]), "/srv", "/opt", "/var/lib"):
        real = os.path.realpath(place) + "/"
        if os.access(place, os.W_OK) and not real.startswith(("/tmp/", "/var/tmp/", "/run/", "/dev/")):
            return place
    pytest.skip("THE SANDBOX'S OWN /tmp IS NOT TESTED: no directory outside of the temporary ones can be written here")


async def until(condition: Callable[[], object], seconds: float = 40.0, why: Callable[[], str] = lambda: "") -> None:
    """Poll a condition; fail with `why` when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {why()}")
        await asyncio.sleep(0.003)


def play(
    tmp_path: Path, script: Any, scene: Callable[[World], Any], *, settings: Mapping[str, Any] | None = None
) -> None:
    """Run a scene: an async function that is given a World with a server that follows the script."""

    async def whole() -> None:
        async with ScriptedServer(script) as server:
            await scene(World(tmp_path / "home", server, **(settings or {})))

    asyncio.run(whole())
