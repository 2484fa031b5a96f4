"""The libraries that plugins share: patterns, settled files, followed logs, excerpts, batches, what goes on."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.spool.status import write_status
from gad.triggers import activity
from gad.triggers.batch import Batch
from gad.triggers.files import Mark, changed, scan, settled
from gad.triggers.logs import Excerpts, follow, search
from gad.triggers.plugin import Trigger
from gad.triggers.watch import FileWatch

# -- patterns ------------------------------------------------------------------------------------------------------


def tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a.csv", ["a.csv"]),
        ("*.csv", ["a.csv", "[b].csv"]),
        ("sub/*", ["sub/c.csv", "sub/c.txt"]),
        ("*/*.csv", ["sub/c.csv"]),
        ("**/*.csv", ["a.csv", "[b].csv", "sub/c.csv", "sub/deep/er/d.csv"]),
        ("sub/**", ["sub/c.csv", "sub/c.txt", "sub/deep/er/d.csv"]),
        ("**/er/?.csv", ["sub/deep/er/d.csv"]),
        ("[[]b].csv", ["[b].csv"]),
        ("[!a-z]*.csv", ["[b].csv"]),
        (".hidden/*.csv", [".hidden/e.csv"]),
        ("none/*.csv", []),
        ("*.CSV", []),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, found: list[str]) -> None:
    tree(tmp_path, "a.csv", "[b].csv", "sub/c.csv", "sub/c.txt", "sub/deep/er/d.csv", ".hidden/e.csv", ".f.csv")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dangling.csv").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.csv")
    assert sorted(scan([pattern], str(tmp_path))) == sorted(str(tmp_path / name) for name in found)
    assert sorted(scan([str(tmp_path / pattern)])) == sorted(str(tmp_path / name) for name in found)


def test_a_mark_is_size_and_time(tmp_path: Path) -> None:
    tree(tmp_path, "a")
    os.utime(tmp_path / "a", ns=(5, 7_000_000_001))
    assert scan(["*"], str(tmp_path)) == {str(tmp_path / "a"): (1, 7_000_000_001)}


def test_what_is_still_written_has_not_settled() -> None:
    waiting: dict[str, Any] = {}
    assert settled({"a": (1, 1), "b": (1, 1)}, waiting, 100.0, 2) == []
    assert settled({"a": (2, 2), "b": (1, 1)}, waiting, 101.0, 2) == []
    waiting = json.loads(json.dumps(waiting))  # as it is kept from call to call
    assert settled({"a": (2, 2), "b": (1, 1)}, waiting, 102.0, 2) == ["b"]
    assert settled({"a": (2, 2)}, waiting, 103.0, 2) == ["a"]
    assert settled({"a": (2, 2)}, waiting, 50.0, 2) == []  # the clock was set back
    assert settled({}, waiting, 51.0, 2) == [] and waiting == {}


_MARKS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=3)


@settings(max_examples=200, deadline=None)
@given(st.lists(_MARKS, max_size=12), st.booleans())
def test_each_state_of_a_file_is_told_once_and_the_last_one_always(
    looks: list[dict[str, Mark]], existing: bool
) -> None:
    state: dict[str, Any] = {}
    told: dict[str, Mark] = {}
    first = looks[0] if looks else {}
    for now, found in enumerate([*looks, *looks[-1:]]):
        state = json.loads(json.dumps(state))
        for path in [path for path in told if path not in found]:
            del told[path]
        for path, mark in changed(found, state, now, 1, existing=existing).items():
            assert told.get(path) != mark and found[path] == mark
            told[path] = mark
    for path, mark in looks[-1].items() if looks else ():
        assert told.get(path) == mark or (not existing and path in first)


# -- logs ----------------------------------------------------------------------------------------------------------


class Log:
    """A log that is written, and followed with places that are kept as JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[str, Any] = {}

    def write(self, *lines: str) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)

    def read(self, *, from_end: bool = False) -> list[str]:
        self.places = json.loads(json.dumps(self.places))
        return follow(str(self.path), self.places, from_end=from_end)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    found = Log(tmp_path / "app.log")
    found.write("old 1", "old 2")
    assert found.read(from_end=True) == []
    return found


def test_a_log_is_followed_from_its_end(log: Log) -> None:
    log.write("a", "b")
    assert log.read() == ["a", "b"]
    assert log.read() == []
    with open(log.path, "ab") as file:
        file.write("half ü".encode()[:-1])
    assert log.read() == []
    with open(log.path, "ab") as file:
        file.write("ü".encode()[1:] + b" line\r\nnext")
    assert log.read() == ["half ü line"]


def rename(log: Log) -> None:
    os.rename(log.path, log.path.with_name("app.log.1"))


def copy_and_truncate(log: Log) -> None:
    shutil.copyfile(log.path, log.path.with_name("app.log.1"))
    os.truncate(log.path, 0)


@pytest.mark.parametrize("rotate", [rename, copy_and_truncate])
def test_rotation_loses_and_repeats_nothing(log: Log, rotate: Callable[[Log], None]) -> None:
    written, read = [], []
    for turn in range(5):
        for n in range(turn + 1):
            written.append(f"turn {turn} line {n}")
            log.write(written[-1])
        if turn % 2:
            read += log.read()
        written.append(f"last of {turn}")
        log.write(written[-1])
        rotate(log)
        if turn == 3:
            read += log.read()  # the new one is not there, or empty
        written.append(f"first after {turn}")
        log.write(written[-1])
        read += log.read()
    assert read == written


def test_rotation_by_a_chain_of_numbers_between_two_looks_keeps_what_is_nearest(log: Log) -> None:
    log.write("a")
    os.rename(log.path, log.path.with_name("app.log.1"))
    log.write("b")
    os.rename(log.path.with_name("app.log.1"), log.path.with_name("app.log.2"))
    os.rename(log.path, log.path.with_name("app.log.1"))
    log.write("c")
    assert log.read() == ["a", "c"]  # b's whole life was between two looks


def test_truncation_is_seen_also_when_the_log_has_grown_again(log: Log) -> None:
    log.write("a")
    assert log.read() == ["a"]
    os.truncate(log.path, 0)
    log.write("new")
    assert log.read() == ["new"]
    os.truncate(log.path, 0)
    log.write(*(f"and much more {n}" for n in range(50)))
    assert log.read() == [f"and much more {n}" for n in range(50)]


def test_truncation_is_seen_also_when_all_lines_end_alike(log: Log) -> None:
    same = " " + "the same " * 10
    log.write("1" + same, "2" + same)
    assert log.read() == ["1" + same, "2" + same]
    at = log.path.stat().st_size
    os.truncate(log.path, 0)
    log.write("new 1", "new 2", "3" + same, "4" + same)
    assert log.path.stat().st_size == at
    assert log.read() == ["new 1", "new 2", "3" + same, "4" + same]


def test_a_log_that_comes_later_or_goes_away(tmp_path: Path) -> None:
    log = Log(tmp_path / "app.log")
    assert log.read(from_end=True) == []
    log.write("first")
    assert log.read() == ["first"]
    log.path.unlink()
    assert log.read() == []
    log.write("first", "second")
    assert log.read() == ["first", "second"]


def test_a_log_that_a_pattern_finds_under_its_new_name_is_not_read_again(tmp_path: Path) -> None:
    places: dict[str, Any] = {}
    (tmp_path / "app.log").write_text("a\nb\n")
    assert follow(str(tmp_path / "app.log"), places) == ["a", "b"]
    os.rename(tmp_path / "app.log", tmp_path / "app-1.log")
    assert follow(str(tmp_path / "app-1.log"), places) == []


def test_a_very_long_log_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.triggers.logs.MOST", 1000)
    log = Log(tmp_path / "app.log")
    lines = [f"{n} " + "x" * (n % 50) for n in range(500)] + ["y" * 5000, "end"]
    log.write(*lines)
    read: list[str] = []
    while new := log.read():
        read += new
    assert "".join(read) == "".join(lines) and read[:500] == lines[:500]
    log.write(*lines[:100])
    rename(log)
    log.write("z")
    read = []
    while new := log.read():
        assert len(new) < 100  # also what was rotated away, however much of it there is
        read += new
    assert read == [*lines[:100], "z"]


def excerpts(chunks: list[list[str]], pattern: str, context: int) -> list[str]:
    state: dict[str, Any] = {}
    found: list[str] = []
    for chunk in chunks:
        state = json.loads(json.dumps(state))
        found += Excerpts(pattern, context, state).feed(chunk)
    return found + list(Excerpts(pattern, context, state).flush())


def test_excerpts_hold_the_lines_around_and_no_line_twice() -> None:
    lines = ["1", "2", "E3", "4", "5", "6", "7", "E8", "9", "E10", "11"]
    assert excerpts([lines], "E", 1) == ["2\nE3\n4", "7\nE8\n9", "E10\n11"]
    assert excerpts([lines], "E", 0) == ["E3", "E8", "E10"]
    assert excerpts([lines], "E", 9) == ["\n".join(lines)]
    assert excerpts([lines], "none", 3) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "b", "E"]), max_size=5), max_size=8), st.integers(0, 3))
def test_excerpts_do_not_depend_on_when_lines_come(chunks: list[list[str]], context: int) -> None:
    whole = [line for chunk in chunks for line in chunk]
    found = excerpts(chunks, "E", context)
    assert found == excerpts([whole], "E", context)
    assert sum(one.split("\n").count("E") for one in found) == whole.count("E")


def test_search_waits_for_the_lines_behind_but_not_for_ever(tmp_path: Path) -> None:
    log, state = Log(tmp_path / "app.log"), dict[str, Any]()

    def look() -> list[str]:
        return [excerpt for _, _, excerpt in search([str(log.path)], state, "ERROR", 2)]

    log.write("a", "ERROR 1")
    assert look() == []
    log.write("b")
    assert look() == []
    log.write("c", "d")
    assert look() == ["a\nERROR 1\nb\nc"]
    log.write("ERROR 2")
    assert look() == []
    assert look() == ["d\nERROR 2"]


@pytest.mark.parametrize("rotate", [rename, copy_and_truncate])
def test_a_pattern_that_names_rotated_logs_as_well_shows_each_line_once(
    tmp_path: Path, rotate: Callable[[Log], None]
) -> None:
    log, state, told, written = Log(tmp_path / "app.log"), dict[str, Any](), list[str](), list[str]()

    def look() -> None:
        paths = sorted(str(path) for path in tmp_path.iterdir())
        for found in (paths, paths[::-1])[len(written) % 2], paths:
            told.extend(excerpt for _, _, excerpt in search(found, state, "ERROR", 0))

    def write() -> None:
        written.append(f"ERROR {len(written)} " + "x" * 70)
        log.write(written[-1])

    for turn in range(5):
        write()
        if turn != 1:
            look()
        write()
        if (one := tmp_path / "app.log.1").exists():
            one.rename(tmp_path / f"app.log.{turn + 1}")
        rotate(log)
        if turn == 3:
            look()
        write()
        look()
    assert sorted(told) == sorted(written)


# -- batches -------------------------------------------------------------------------------------------------------


class Fake:
    """A trigger whose host is the test."""

    def __init__(self) -> None:
        self.trigger = Trigger("x", "/home", {}, {}, self.ask)
        self.made: list[tuple[str, str]] = []
        self.capped = False

    def ask(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.capped:
            return {"session": None}
        wanted = message["submit"]
        self.made.append((wanted["key"], wanted["text"]))
        return {"session": f"x-{wanted['key']}"}

    def at(self, now: float) -> Batch:
        self.trigger.begin_call(now, [], 0.0)
        return Batch(self.trigger.state, window=5, cooldown=60)


def test_a_burst_is_one_session_and_the_cooldown_loses_nothing() -> None:
    fake = Fake()
    for now in (100.0, 101.0, 104.9):
        batch = fake.at(now)
        batch.add(f"f{now}", f"file {now}", now)
        assert batch.hand_in(fake.trigger, "Look:") is None
    assert fake.at(105.0).hand_in(fake.trigger, "Look:") == f"x-{fake.made[0][0]}"
    assert fake.made[0][1] == "Look:\n\nfile 100.0\nfile 101.0\nfile 104.9"
    batch = fake.at(106.0)
    batch.add("g", "file g", 106.0)
    assert fake.at(164.0).hand_in(fake.trigger, "Look:") is None
    assert fake.at(165.0).hand_in(fake.trigger, "Look:") is not None
    assert fake.made[1][1] == "Look:\n\nfile g" and fake.made[0][0] != fake.made[1][0]
    assert fake.at(1e9).hand_in(fake.trigger, "Look:") is None


def test_a_closed_batch_is_the_same_after_a_crash_and_waits_behind_a_cap() -> None:
    fake = Fake()
    fake.at(100.0).add("a", "A", 100.0, mark=1)
    kept: list[str] = []
    ask = fake.ask

    def crash(message: Mapping[str, Any]) -> Mapping[str, Any]:
        kept.append(json.dumps(message["state"]))  # what the host has on disk then
        return ask(message)

    fake.trigger._ask = crash
    fake.at(110.0).hand_in(fake.trigger, "p")
    again = Fake()
    again.trigger.state = json.loads(kept[0])
    again.capped = True
    batch = again.at(111.0)
    batch.add("b", "B", 111.0)
    assert batch.hand_in(again.trigger, "p") is None
    again.capped = False
    again.at(112.0).hand_in(again.trigger, "p")
    assert again.made == fake.made
    again.at(180.0).hand_in(again.trigger, "p")
    assert again.made[1][1] == "p\n\nB"


def test_a_batch_of_very_many_shows_some_and_says_how_many_more() -> None:
    fake = Fake()
    for n in range(1000):
        fake.at(1.0).add(str(n), f"n{n}", 1.0)
    fake.at(10.0).hand_in(fake.trigger, "p")
    assert fake.made[0][1].endswith("n299\n(and 700 more)")


# -- file events ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("polling", [False, True], ids=["inotify", "polling"])
def test_a_file_watch_sees_directories_that_come_later(tmp_path: Path, polling: bool) -> None:
    woken: list[float] = []
    watch = FileWatch(["in/**/*.txt"], str(tmp_path), lambda: woken.append(time.monotonic()), polling=polling)
    told: list[tuple[str, str]] = []

    def until(*wanted: tuple[str, str]) -> None:
        deadline = time.monotonic() + 10
        while told != list(wanted):
            told.extend((os.path.relpath(event.path, tmp_path), event.kind) for event in watch.changes())
            assert time.monotonic() < deadline, told

    try:
        assert watch.changes() == []
        tree(tmp_path, "in/a/b/c.txt")
        one = ("in/a/b/c.txt", "created")
        until(one)
        os.rename(tmp_path / "in/a", tmp_path / "in/z")
        two, three = ("in/a/b/c.txt", "deleted"), ("in/z/b/c.txt", "created")
        until(one, two, three)
        shutil.rmtree(tmp_path / "in")
        until(one, two, three, ("in/z/b/c.txt", "deleted"))
        tree(tmp_path, "in/d.txt")
        until(one, two, three, ("in/z/b/c.txt", "deleted"), ("in/d.txt", "created"))
        assert bool(woken) is not polling
    finally:
        watch.stop()


# -- what goes on --------------------------------------------------------------------------------------------------


def session(home: Path, name: str, state: str, task: str = "", **values: Any) -> Path:
    directory = home / "spool" / name
    directory.mkdir(parents=True)
    if task:
        (directory / "task.yaml").write_text(task)
    write_status(directory, {"state": state} | values)
    return directory


def test_who_is_at_work_and_who_made_it(tmp_path: Path) -> None:
    session(tmp_path, "person", "running")
    session(tmp_path, "ended", "done")
    session(tmp_path, "asks", "asking")
    session(tmp_path, "mine", "queued", 'labels: ["trigger", "trigger:x"]\n')
    session(tmp_path, "child", "deferred", parent="mine")
    session(tmp_path, "grandchild", "running", "parent: child\n")
    session(tmp_path, "circle", "running", parent="circle")
    (tmp_path / "spool/.daemon").mkdir()
    assert activity.at_work(str(tmp_path)) == {
        "person": False, "mine": True, "child": True, "grandchild": True, "circle": False,
    }  # fmt: skip


def test_since_when_nobody_was_here(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    assert activity.quiet_seconds(str(tmp_path), 1000.0) == float("inf")
    for at, name, task in ((500, "person", ""), (900, "mine", 'labels: ["trigger"]\n'), (300, "former", "")):
        os.utime(session(tmp_path, name, "done", task), (at, at))
    assert activity.quiet_seconds(str(tmp_path), 1000.0) == 500.0


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("9:00-17:00", ["09:00", "16:59"], ["08:59", "17:00"]),
        ("22-6:30", ["22:00", "00:00", "06:29"], ["06:30", "21:59"]),
        ("0-24", ["00:00", "23:59"], []),
        ("1-2, 13-14", ["01:30", "13:30"], ["02:00", "12:59"]),
    ],
)
def test_hours(hours: str, inside: list[str], outside: list[str]) -> None:
    for wanted, times in ((True, inside), (False, outside)):
        for at in times:
            now = time.mktime(time.strptime(f"2026-11-30 {at}", "%Y-%m-%d %H:%M"))
            assert activity.within(hours, now) is wanted, at


@pytest.mark.parametrize("hours", ["", "9", "9-", "9-25", "noon-1", "9:00-17:00,"])
def test_what_is_no_range_of_hours(hours: str) -> None:
    with pytest.raises(ValueError, match="is not a range of hours"):
        activity.within(hours, 0.0)


def test_the_load_is_per_core() -> None:
    assert activity.load_per_core() >= 0
