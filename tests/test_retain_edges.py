"""Retention where somebody stands in its way: other users, hostile journals, who has just come, who still waits."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gad.cli import exits
from gad.cli.gc import retention
from gad.config import load
from gad.core.explore import Tree
from gad.core.explore_plan import read_tasks
from gad.core.records import Begin
from gad.core.task import TaskOptions
from gad.memory.exploration import Exploration
from gad.memory.store import MemoryStore
from gad.spool.journal import Journal
from gad.spool.retain import Due, Kept
from gad.triggers.record import Record, Store
from tests.test_explore import GOOD, plan_file
from tests.test_retain import NOW, age, content, home, records, run, session

__all__ = ["home"]

NOBODY = 65534


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Be a user without rights for the block."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def open_the_way(place: Path) -> None:
    """Let every user pass to a place, however deep the test runner has put it."""
    for above in (one for one in [place, *place.parents] if not one.stat().st_mode & 0o001):
        above.chmod(0o755)


def give(place: Path, user: int) -> None:
    for path, directories, files in os.walk(place):
        for name in [".", *directories, *files]:
            os.chown(os.path.join(path, name), user, user, follow_symlinks=False)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be several users")


@as_root
def test_a_directory_that_another_user_has_closed_does_not_hinder_the_others(home: Path, tmp_path: Path) -> None:
    session(home, "b")
    closed = home / "spool/a"
    closed.mkdir(mode=0o700)
    (closed / "input.txt").write_text("a task")
    age(closed, 40)
    give(home, NOBODY)
    os.chown(closed, 0, 0)
    open_the_way(tmp_path)
    assert run("gc", "--dry-run").exit_code == exits.DONE  # whatever is to be imported, nobody may not be able to read
    with nobody():
        result = run("gc")
    assert (result.exit_code, "put away: b" in result.stdout) == (exits.DONE, True), result.stdout
    assert closed.is_dir()


@pytest.mark.parametrize("at", ["1e300", "NaN", "[" * 100_000])
def test_a_journal_that_cannot_be_does_not_hinder_the_others(home: Path, at: str) -> None:
    hostile = session(home, "a")
    first, *rest = (hostile / "journal.jsonl").read_text().splitlines()
    (hostile / "journal.jsonl").write_text("\n".join([first.replace('"at":1000000000.0', f'"at":{at}'), *rest, ""]))
    age(hostile, 40)
    session(home, "b")
    result = run("gc")
    assert (result.exit_code, "put away: b" in result.stdout) == (exits.ERROR, True), result.output
    assert "stays: a: " in result.stdout
    assert hostile.is_dir()


def test_what_is_written_at_the_last_moment_into_its_work_keeps_it(home: Path) -> None:
    session(home)
    keep = retention(load(home, {}), NOW)
    due = keep.due("s", keep.look())
    assert isinstance(due, Due)
    (home / "work/s/deep/more").write_text("somebody works here")
    before = content(home / "work") | content(home / "spool/s")
    assert isinstance(keep.put_away(due), Kept)
    assert content(home / "work") | content(home / "spool/s") == before


@pytest.mark.parametrize("began", [True, False])
@pytest.mark.parametrize("days", [40, 10])
def test_a_session_that_comes_after_the_look_keeps_what_it_works_in(home: Path, began: bool, days: int) -> None:
    session(home, days=days)
    keep = retention(load(home, {}), NOW)
    standing = keep.look()
    comes(home, began)
    due = keep.due("s", standing)
    assert isinstance(due, Due)
    assert isinstance(keep.put_away(due), Kept)
    assert (home / "work/s/deep/file").exists()
    assert (home / "spool/s/journal.jsonl").exists()


def test_a_session_that_has_yet_to_begin_keeps_what_it_will_work_in(home: Path) -> None:
    session(home)
    comes(home, began=False)
    age(home / "spool/new", 40)
    result = run("gc")
    assert "stays: s: session new works in its work directory" in result.stdout
    assert (home / "work/s/deep/file").exists()


def comes(home: Path, began: bool) -> None:
    directory = home / "spool/new"
    directory.mkdir()
    (directory / "input.txt").write_text("go on there")
    (directory / "task.yaml").write_text(json.dumps({"cwd": str(home / "work/s/deep")}))
    if began:
        journal = Journal(str(directory / "journal.jsonl"))
        journal.append(Begin(time.time(), "new", TaskOptions(cwd=str(home / "work/s/deep"))))
        journal.close()
    os.utime(directory, (NOW, NOW))


@pytest.mark.parametrize("where", ["open", "rested"])
def test_a_session_of_whose_end_its_trigger_was_not_told_stays(home: Path, where: str) -> None:
    session(home)
    state = home / "triggers/.state"
    state.mkdir(parents=True)
    told: dict[str, Any] = (
        {"open": {"s": {"key": "k"}}} if where == "open" else {"rested": [{"session": "s", "key": "k"}]}
    )
    Store(str(state), "mine").save(Record(**told))
    (home / "triggers/mine.py").write_text("def check(): pass\n")
    result = run("gc")
    assert (result.exit_code, "stays: s: the trigger mine" in result.stdout) == (exits.DONE, True), result.output
    assert (home / "work/s/deep/file").exists()
    (home / "triggers/mine.py").unlink()  # nobody will ever ask
    assert "put away: s" in run("gc").stdout


def test_an_exploration_stays_until_its_report_is_filed(home: Path) -> None:
    Exploration(MemoryStore(str(home / "memory"))).keep_plan("planned", NOW, read_tasks(plan_file(*GOOD), Tree()))
    labels = ("explore", "explore:p1-1")
    directory = session(home, "idle-p1-1", given=records("idle-p1-1", labels=labels))
    (directory / "task.yaml").write_text(f"labels: {json.dumps(labels)}\n")
    age(directory, 40)
    result = run("gc")
    assert "stays: idle-p1-1: its report on task p1-1 has not been filed: gad explore file" in result.stdout
    assert (home / "work/idle-p1-1/deep/file").exists()
    assert run("explore", "file", "idle-p1-1").exit_code == exits.DONE
    age(directory, 40)
    age(home / "work/idle-p1-1", 40)
    assert "put away: idle-p1-1" in run("gc").stdout


@as_root
def test_a_closed_directory_does_not_hinder_who_looks(home: Path, tmp_path: Path) -> None:
    session(home, "b")
    (home / "spool/a").mkdir(mode=0o700)
    give(home / "spool/b", NOBODY)
    open_the_way(tmp_path)
    for place in (home, home / "spool", home / "spool/.daemon"):
        place.chmod(0o755)
    assert run("ps", "--all").exit_code == exits.DONE
    with nobody():
        result = run("ps", "--all")
    assert (result.exit_code, "done" in result.stdout) == (exits.DONE, True), result.output


@as_root
def test_only_its_owner_puts_away_what_is_in_a_home(home: Path, tmp_path: Path) -> None:
    session(home)
    give(home, NOBODY)
    before = content(home)
    result = run("gc")
    assert (result.exit_code, "belongs to nobody" in result.stderr) == (exits.ERROR, True)
    assert content(home) == before
    assert run("gc", "--dry-run").exit_code == exits.DONE
