"""The soak in little, and that what it looks for is found when it is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import soak_model
from bench.rig import ROOT
from bench.soak_clients import Checker
from bench.soak_daemon import Generation
from gad.core.messages import canonical
from tests.world import World, play


def test_a_short_soak_finds_nothing_wrong(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "soak", "--minutes", "0.3", "--kill-every", "6", "--sessions", "8"]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=110,
                          env={**os.environ, "TMPDIR": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)
    assert all(row["met"] is not False for row in rows)
    assert next(row["figures"]["value"] for row in rows if row["measure"] == "daemons killed") >= 1
    assert not list(tmp_path.iterdir())


def edit(kind: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Callable[[Path], None]:
    """Return what changes the records of a kind in a journal."""

    def work(home: Path) -> None:
        journal = home / "spool" / "s000001" / "journal.jsonl"
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        kept = [change(record) if record["kind"] == kind else record for record in records]
        journal.write_text("".join(json.dumps(record) + "\n" for record in kept if record))

    return work


def append(path: str, text: str) -> Callable[[Path], None]:
    """Return what appends to a file of the home."""

    def work(home: Path) -> None:
        with open(home / path, "a") as file:
            file.write(text)

    return work


WRONG: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a call that ran twice": ("twice", append("work/s000001/ledger", "s000001.1:0\n")),
    "a call that no journal knows": ("twice", append("work/s000001/ledger", "a\nb\nc\nd\n")),
    "a torn journal": ("journal", append("spool/s000001/journal.jsonl", '{"kind": "mess')),
    "a damaged journal": ("journal", append("spool/s000001/journal.jsonl", "garbage\n")),
    "another state": ("status", append("spool/s000001/status.txt", "state: running\n")),
    "no end": ("rest", edit("ended", lambda record: None)),
    "a failure": ("rest", edit("ended", lambda record: record | {"state": "failed", "error": "x"})),
    "a lost message": ("answered", edit("message", lambda record: record | {"text": "nothing"})),
    "no answer": ("answered", edit("answer", lambda record: json.loads(canonical(record).replace("[[a:", "[[")))),
    "another result": ("answered", append("spool/s000001/result.txt", "[[a:s000002.1]]")),
}  # fmt: skip


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one session that is over."""
    place = tmp_path_factory.mktemp("over")

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s000001", "Please: [[m:s000001.1 tools 2]]")
            await world.rests("s000001")

    with pytest.MonkeyPatch.context() as patch:
        for share in ("LIMITED", "CUT", "HANG"):
            patch.setattr(soak_model, share, 0.0)
        play(place, soak_model.answer, scene)
    return place / "home"


@pytest.mark.parametrize("what", WRONG)
def test_what_must_not_be_is_found(over: Path, tmp_path: Path, what: str) -> None:
    home = tmp_path / "home"
    shutil.copytree(over, home)
    clean, broken = (Checker(home / "spool", home / "work") for _ in range(2))
    clean.check("s000001", ["s000001.1"])
    assert clean.wrong == {} and clean.seen["calls"] == 2
    kind, break_ = WRONG[what]
    break_(home)
    broken.check("s000001", ["s000001.1"])
    assert kind in broken.wrong


def test_memory_that_grows_is_told_from_memory_that_was_needed_to_begin() -> None:
    begun = Generation(1, memory=[(float(at), 1000 + 100 * min(at, 20)) for at in range(61)])
    leaking = Generation(1, memory=[(float(at), 1000 + 100 * at) for at in range(61)])
    short = Generation(1, memory=[(float(at), 1000 + 100 * at) for at in range(20)])
    assert begun.growth() == 0.0 and (leaking.growth() or 0.0) > 40 and short.growth() is None
