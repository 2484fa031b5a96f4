"""A session that its user has removed is no longer counted in the daemon's status."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gad import daemon
from gad.spool.status import read_status
from tests.scripted_server import Reply, Say
from tests.world import World, play, until


def test_the_daemons_status_forgets_what_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "FULL_LOOK", 0.2)

    async def scene(world: World) -> None:
        def counted() -> object:
            return read_status(world.spool / ".daemon").get("done")

        async with world.running():
            for name in ("s", "t"):
                world.task(name)
                await world.rests(name)
            await until(lambda: counted() == 2)
            shutil.rmtree(world.spool / "s")
            await until(lambda: counted() == 1)

    play(tmp_path, Reply((Say("ok"),)), scene)
