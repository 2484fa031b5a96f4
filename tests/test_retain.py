"""Retention: what goes, what stays, and that nothing is lost whatever happens at the moment in which a session goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gad.cli import exits, gad, gc
from gad.config import load
from gad.core.records import Asked, Begin, Calling, ChildBegan, Ended, Record, Said, TurnedDown
from gad.core.report import status_of
from gad.core.session import replay
from gad.core.task import TaskOptions
from gad.errors import ConfigError
from gad.home import make_home
from gad.memory.archive import Archive
from gad.memory.vouch import Vouch
from gad.spool import aside, drop
from gad.spool.journal import Journal
from gad.spool.retain import Ages, Due, Kept, Retention
from gad.spool.status import read_status, write_status
from tests.scripted_server import ScriptedServer
from tests.world import World, until

DAY = 86400.0
NOW = 1_800_000_000.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("gad.cli.gc.time.time", lambda: NOW)
    settings(tmp_path / "home", sessions="30d", work="7d")
    (tmp_path / "home/spool/.daemon").mkdir()  # a daemon has worked here
    return tmp_path / "home"


def settings(home: Path, **retain: Any) -> None:
    (home / "gad.yaml").write_text(yaml.safe_dump({"retain": retain}) if retain else "")


def records(name: str = "s", end: str = "done", **options: Any) -> list[Record]:
    begun: list[Record] = [Begin(1e9, name, TaskOptions(**options)), Said(1e9, 1, "input.txt", f"the task of {name}")]
    last: Record = Asked(1e9 + 5, "", "Which?") if end == "asking" else Ended(1e9 + 5, end)  # type: ignore[arg-type]
    return begun if end == "queued" else [*begun, Calling(1e9 + 1, 1, "m"), last]


def age(place: Path, days: float) -> None:
    """Make it look as if nothing had been touched for so many days."""
    at = NOW - days * DAY
    for path, directories, files in os.walk(place, topdown=False):
        for name in [*files, *directories]:
            os.utime(os.path.join(path, name), (at, at), follow_symlinks=False)
    os.utime(place, (at, at))


def session(
    home: Path, name: str = "s", days: float = 40, given: list[Record] | None = None, work: bool = True
) -> Path:
    given = records(name) if given is None else given
    directory = home / "spool" / name
    directory.mkdir()
    journal = Journal(str(directory / "journal.jsonl"))
    for record in given:
        journal.append(record)
    journal.close()
    write_status(directory, status_of(replay(given)))
    (directory / "output.txt").write_text("all that was said\n")
    (directory / "result.txt").write_text(f"the answer of {name}\n")
    if work:
        (home / "work" / name / "deep").mkdir(parents=True)
        (home / "work" / name / "deep/file").write_text("x" * 10_000)
        age(home / "work" / name, days)
    age(directory, days)
    return directory


def anew(home: Path) -> None:
    for place in ("spool", "work"):
        shutil.rmtree(home / place)
        (home / place).mkdir()
    (home / "spool/.daemon").mkdir()


def tree(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(place.rglob("*")):
        info = path.lstat()
        holds = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(place))] = (info.st_mode, info.st_mtime_ns, holds)
    return found


def content(place: Path) -> dict[str, Any]:
    return {name: (mode, holds) for name, (mode, _, holds) in tree(place).items()}


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(gad, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def collect(*options: str, code: int = exits.DONE) -> dict[str, Any]:
    result = run("gc", "--json", *options)
    assert result.exit_code == code, result.output
    return dict(json.loads(result.stdout))


def keeper(home: Path, sessions: float | None = 30 * DAY, work: float | None = 7 * DAY) -> Retention:
    archived = Vouch(Archive(str(home / "memory")))
    return Retention(str(home / "spool"), str(home / "work"), Ages(sessions, work), archived, NOW)


def archived(home: Path, name: str = "s") -> list[dict[str, Any]]:
    archive = Archive(str(home / "memory"))
    (entry,) = [one for one in archive.entries() if one.session == name]
    return archive.read(entry.path)


# -- what goes --------------------------------------------------------------------------------------


def test_an_old_session_goes_with_its_work_and_is_in_the_archive(home: Path) -> None:
    old = session(home)
    session(home, "young", days=3)
    told = [json.loads(line) for line in (old / "journal.jsonl").read_text().splitlines()]
    found = collect()
    (gone,) = found["gone"]
    assert (gone["session"], gone["what"], gone["state"]) == ("s", "session", "done")
    assert gone["untouched_since"] == "2026-12-06T08:00:00Z"
    assert gone["bytes"] >= 10_000 and found["bytes"] == gone["bytes"]
    assert sorted(os.listdir(home / "spool")) == [".daemon", "young"]
    assert os.listdir(home / "work") == ["young"]
    assert archived(home) == told
    assert collect()["gone"] == []


def test_a_dry_run_says_the_same_and_changes_nothing(home: Path) -> None:
    session(home)
    session(home, "b", days=10)
    before = tree(home)
    would = collect("--dry-run")
    text = run("gc", "--dry-run").stdout
    assert tree(home) == before
    assert "would put away: s (done, untouched since 2026-12-06T08:00:00Z), " in text
    assert "would put away: work/b (done," in text and "nothing was changed; gad gc does it" in text
    assert collect() == would | {"dry_run": False}


def test_without_the_setting_everything_stays(home: Path) -> None:
    session(home, days=4000)
    for given in ({}, {"sessions": None, "work": None}, {"sessions": "off", "work": "off"}):
        settings(home, **given)
        before = tree(home / "spool/s")
        assert "retain is not set" in run("gc").stdout
        assert tree(home / "spool/s") == before and (home / "work/s/deep/file").exists()


def test_work_goes_first_and_not_of_a_session_that_was_continued(home: Path) -> None:
    session(home, "week", days=8)
    touched = session(home, "continued", days=8)
    age(touched, 2)
    used = session(home, "used", days=8)
    age(home / "work/used", 2)  # a person, or what was left running, works there
    assert [(one["session"], one["what"]) for one in collect()["gone"]] == [("week", "work")]
    assert (home / "spool/week/result.txt").exists() and used.exists()
    assert sorted(os.listdir(home / "work")) == ["continued", "used"]


def test_what_a_removed_session_has_left_behind_goes(home: Path) -> None:
    session(home, "gone", days=8)
    session(home, "gone-yesterday", days=1)
    for name in ("gone", "gone-yesterday"):
        shutil.rmtree(home / "spool" / name)
    assert [(one["session"], one["state"]) for one in collect()["gone"]] == [("gone", None)]
    assert os.listdir(home / "work") == ["gone-yesterday"]


def test_one_that_was_turned_down_and_never_began_goes(home: Path) -> None:
    session(home, given=[TurnedDown(1e9, 1, "input.txt", "not UTF-8")])
    (gone,) = collect()["gone"]
    assert gone["state"] == "rejected" and not (home / "spool/s").exists()


# -- what stays -------------------------------------------------------------------------------------


def _waiting(directory: Path) -> None:
    (directory / "reply.txt").write_text("and now?")


def _claimed(directory: Path) -> None:
    (directory / ".claim-0002-reply.txt").write_text("and now?")


def _torn(directory: Path) -> None:
    with open(directory / "journal.jsonl", "a") as file:
        file.write('{"kind": "mess')


def _untold(directory: Path) -> None:
    write_status(directory, {"state": "running"})


@pytest.mark.parametrize("disturb", [_waiting, _claimed, _torn, _untold])
def test_a_session_to_which_something_has_come_stays(home: Path, disturb: Callable[[Path], None]) -> None:
    directory = session(home)
    disturb(directory)
    age(directory, 40)
    before = tree(home / "spool/s"), tree(home / "work")
    assert collect()["gone"] == []
    assert (tree(home / "spool/s"), tree(home / "work")) == before


@pytest.mark.parametrize("end", ["asking", "queued"])
def test_a_session_that_has_not_ended_stays(home: Path, end: str) -> None:
    session(home, given=records(end=end))
    hidden = [*records("hidden", "asking"), TurnedDown(1e9 + 6, 2, "reply.txt", "not UTF-8")]
    session(home, "hidden", given=hidden)
    assert read_status(home / "spool/hidden")["state"] == "rejected"
    assert collect()["gone"] == []
    assert (home / "spool/s").exists() and (home / "work/s").exists() and (home / "spool/hidden").exists()


def test_an_empty_directory_and_one_with_options_alone_stay(home: Path) -> None:
    (home / "spool/empty").mkdir()
    (home / "spool/options").mkdir()
    (home / "spool/options/task.yaml").write_text("turns: 3")
    for name in ("empty", "options"):
        age(home / "spool" / name, 40)
    assert collect()["gone"] == [] and len(os.listdir(home / "spool")) == 3


def test_a_family_stays_while_one_of_it_lives(home: Path) -> None:
    session(home, "top", given=[*records("top"), ChildBegan(1e9 + 6, "mid")])
    session(home, "mid", given=[*records("mid", parent="top"), ChildBegan(1e9 + 6, "low")])
    low = session(home, "low", given=records("low", "asking", parent="mid"))
    found = collect()
    why = {one["session"]: one["why"] for one in found["kept"]}
    assert found["gone"] == [] and set(why) == {"top", "mid"}
    assert why["mid"] == "its child low has not ended"
    # A child that has been handed in and not been taken yet counts as well.
    shutil.rmtree(low)
    low.mkdir()
    (low / "task.yaml").write_text("parent: top\n")
    (low / "input.txt").write_text("do it")
    why = {one["session"]: one["why"] for one in collect()["kept"]}
    assert why == dict.fromkeys(("top", "mid"), "its child low has not ended")
    shutil.rmtree(low)
    assert {one["session"] for one in collect()["gone"]} == {"top", "mid", "low"}  # of low, only its work was left


def test_a_child_stays_while_a_parent_lives(home: Path) -> None:
    session(home, "top", given=records("top", "asking"))
    session(home, "child", given=records("child", parent="top"))
    session(home, "review", given=records("review", parent="top", review="top"))
    found = collect()
    assert found["gone"] == []
    assert {one["session"]: one["why"] for one in found["kept"]} == {
        "child": "its parent top has not ended",
        "review": "its parent top has not ended",
    }


def test_what_another_session_works_in_stays(home: Path) -> None:
    session(home, "first")
    session(home, "second", given=records("second", "asking", cwd=str(home / "work/first/deep")), work=False)
    (kept,) = collect()["kept"]
    assert kept == {"session": "first", "why": "session second works in its work directory", "trouble": False}
    assert (home / "work/first/deep/file").exists()


def test_what_a_process_that_was_left_running_works_in_stays(home: Path) -> None:
    session(home)
    with subprocess.Popen(["sleep", "60"], cwd=home / "work/s/deep") as left:
        (kept,) = collect()["kept"]
        assert kept["why"] == f"process {left.pid} works in its work directory"
        left.kill()
    assert len(collect()["gone"]) == 1


def test_nothing_goes_where_no_daemon_has_worked(home: Path) -> None:
    """A spool that is not mounted looks empty, and every work directory as if its session had gone."""
    session(home)
    os.rename(home / "spool", home / "elsewhere")
    (home / "spool").mkdir()
    assert collect() == {"dry_run": False, "gone": [], "kept": [], "trouble": [], "bytes": 0}
    assert (home / "work/s/deep/file").exists() and os.listdir(home / "spool") == []


def test_links_are_not_followed(home: Path, tmp_path: Path) -> None:
    elsewhere = session(home, "elsewhere", work=False)
    os.rename(elsewhere, tmp_path / "elsewhere")
    (home / "spool/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "treasure").mkdir()
    (tmp_path / "treasure/file").write_text("dear")
    (home / "work/linked").symlink_to(tmp_path / "treasure")
    session(home)
    (home / "work/s/out").symlink_to(tmp_path / "treasure")
    (home / "work/s/deep/file-out").symlink_to(tmp_path / "treasure/file")
    (home / "spool/s/link").symlink_to(tmp_path / "treasure")
    age(home / "work/s", 40)
    age(home / "spool/s", 40)
    assert [one["session"] for one in collect()["gone"]] == ["s"]
    assert (tmp_path / "treasure/file").read_text() == "dear" and (tmp_path / "elsewhere/result.txt").exists()
    assert (home / "spool/linked").is_symlink() and (home / "work/linked").is_symlink()


def test_a_link_that_takes_the_place_at_the_last_moment_is_put_back(home: Path, tmp_path: Path) -> None:
    directory = session(home)
    keep = keeper(home)
    due = keep.due("s", keep.look())
    assert isinstance(due, Due)
    os.rename(directory, tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    before = tree(tmp_path / "moved")
    kept = keep.put_away(due)
    assert kept is not None and directory.is_symlink()
    assert tree(tmp_path / "moved") == before and (home / "work/s/deep/file").exists()


# -- the archive comes first ------------------------------------------------------------------------


def test_a_copy_in_the_archive_that_is_damaged_or_short_is_made_anew(home: Path) -> None:
    directory = session(home)
    Vouch(Archive(str(home / "memory")))(str(directory / "journal.jsonl"), "s")
    (copy,) = (home / "memory/archive").glob("*/*.zst")
    good = copy.read_bytes()
    for bad in (b"", good[:-9], good[:20] + b"\0\0\0" + good[23:]):
        copy.write_bytes(bad)
        Vouch(Archive(str(home / "memory")))(str(directory / "journal.jsonl"), "s")
        assert copy.read_bytes() == good
    copy.write_bytes(good[:-9])
    told = [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]
    assert len(collect()["gone"]) == 1 and archived(home) == told


def test_what_cannot_be_archived_stays_and_is_told(home: Path) -> None:
    directory = session(home)
    former = directory / "archived-0001-journal.jsonl"
    former.write_text("no record\n")
    age(directory, 40)
    before = tree(directory)
    (kept,) = collect(code=exits.ERROR)["kept"]
    assert kept["trouble"] and "archived-0001-journal.jsonl, line 1" in kept["why"]
    assert tree(directory) == before
    former.unlink()
    age(directory, 40)
    shutil.rmtree(home / "memory")
    (home / "memory").write_text("a file stands in the way")
    (kept,) = collect(code=exits.ERROR)["kept"]
    assert kept["trouble"] and (directory / "journal.jsonl").exists() and (home / "work/s").exists()


def test_each_former_conversation_is_archived_as_well(home: Path) -> None:
    directory = session(home)
    former = Journal(str(directory / "archived-0001-journal.jsonl"))
    told: list[Record] = [Begin(9e8, "s", TaskOptions()), Said(9e8, 1, "input.txt", "former"), Ended(9e8 + 1, "done")]
    for record in told:
        former.append(record)
    former.close()
    age(directory, 40)
    assert len(collect()["gone"]) == 1
    assert len(Archive(str(home / "memory")).entries()) == 2


# -- the very moment --------------------------------------------------------------------------------

CALLS = ("rename", "rmdir", "mkdir", "listdir", "open", "unlink", "stat")


class Nth:
    """Does something before the nth call of the operating system that taking away makes."""

    def __init__(self, n: int, act: Callable[[], None]) -> None:
        self.left = n
        self._act = act

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in CALLS:
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self._act()
            return found(*arguments, **named)

        return call


@pytest.mark.parametrize("how", ["by path", "from inside"])
def test_what_a_client_drops_at_any_moment_is_never_lost(home: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """At each system call: either the drop fails, and the client is told, or the session is there with the file."""
    n, dropped, refused = 0, 0, 0
    while True:
        n += 1
        anew(home)
        directory = session(home)
        before = content(directory), content(home / "work/s")
        keep = keeper(home)
        due = keep.due("s", keep.look())
        assert isinstance(due, Due)
        inside = os.open(directory, os.O_RDONLY)
        outcome: list[bool] = []

        def client(inside: int = inside, directory: Path = directory, outcome: list[bool] = outcome) -> None:
            try:
                if how == "by path":
                    (directory / "reply.txt").write_text("now")
                else:
                    flags = os.O_WRONLY | os.O_CREAT
                    os.close(os.open("reply.txt", flags, 0o644, dir_fd=inside))
                outcome.append(True)
            except FileNotFoundError:
                outcome.append(False)

        monkeypatch.setattr(aside, "os", Nth(n, client))
        kept = keep.put_away(due)
        monkeypatch.undo()
        os.close(inside)
        assert not outcome or kept is None or not kept.trouble, (n, kept)
        if outcome == [True]:
            dropped += 1
            assert kept is not None, n
            (directory / "reply.txt").unlink()
            assert (content(directory), content(home / "work/s")) == before, n
        else:
            refused += bool(outcome)
            assert kept is None and not directory.exists() and not (home / "work/s").exists(), n
        assert sorted(os.listdir(home / "spool")) == ([".daemon", "s"] if kept else [".daemon"]), n
        if not outcome:
            break
    assert dropped > 3 and refused > 3


def test_work_goes_whole_or_stays_whole_whatever_a_client_drops(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, stayed, gone = 0, 0, 0
    while True:
        n += 1
        anew(home)
        directory = session(home)
        before = content(directory), content(home / "work/s")
        keep = keeper(home, sessions=None)
        due = keep.due("s", keep.look())
        assert isinstance(due, Due) and not due.whole
        dropped: list[int] = []

        def client(directory: Path = directory, dropped: list[int] = dropped) -> None:
            dropped.append((directory / "reply.txt").write_text("now"))

        monkeypatch.setattr(aside, "os", Nth(n, client))
        kept = keep.put_away(due)
        monkeypatch.undo()
        assert kept is None or not kept.trouble
        if dropped:
            (directory / "reply.txt").unlink()
        assert content(directory) == before[0], n
        assert os.listdir(home / "work") == (["s"] if kept else []), n
        if kept:
            stayed += 1
            assert content(home / "work/s") == before[1], n
        else:
            gone += 1
        if not dropped:
            break
    assert stayed > 3 and gone > 3


def test_killed_at_any_moment_a_session_is_whole_or_gone(home: Path) -> None:
    n, whole, gone = 0, 0, 0
    while True:
        n += 1
        anew(home)
        directory = session(home)
        before = content(directory), content(home / "work/s")
        child = os.fork()
        if child == 0:
            try:
                vars(aside)["os"] = Nth(n, lambda: os._exit(9))
                keep = keeper(home)
                due = keep.due("s", keep.look())
                os._exit(0 if isinstance(due, Due) and keep.put_away(due) is None else 1)
            finally:
                os._exit(2)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9), (n, code)
        assert keeper(home).recover() == []
        assert keeper(home).recover() == []
        assert not [name for name in [*os.listdir(home / "spool"), *os.listdir(home / "work")] if "away" in name], n
        if directory.exists():
            whole += 1
            assert (content(directory), content(home / "work/s")) == before, n
        else:
            gone += 1
            assert len(archived(home)) == 4
        if code == 0:
            break
    assert whole > 3 and gone > 3


def test_a_session_made_anew_meanwhile_and_the_former_one_are_both_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = session(home)
    keep = keeper(home)
    due = keep.due("s", keep.look())
    assert isinstance(due, Due)
    inside = os.open(directory, os.O_RDONLY)
    empty = aside._empty

    def meanwhile(away: int, known: aside.Mark) -> bool:
        os.close(os.open("reply.txt", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=inside))
        drop.submit(home / "spool", "s", b"anew")
        return empty(away, known)

    monkeypatch.setattr(aside, "_empty", meanwhile)
    kept = keep.put_away(due)
    os.close(inside)
    assert kept is not None and kept.trouble and "was made anew" in kept.why
    assert (directory / "input.txt").read_text() == "anew"
    former = home / "spool/.away-s/it"
    assert sorted(os.listdir(former)) == ["journal.jsonl", "output.txt", "reply.txt", "result.txt", "status.txt"]
    assert (home / "work/s/deep/file").exists()
    monkeypatch.undo()
    assert "was made anew" in keeper(home).recover()[0]
    shutil.rmtree(directory)
    assert keeper(home).recover() == [] and (directory / "reply.txt").exists()


def test_only_one_takes_away_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session(home)
    monkeypatch.setattr(aside, "PATIENCE", 0.05)
    with aside.locked(str(home / "spool")):
        assert run("gc").exit_code == exits.ERROR
    assert (home / "spool/s").exists()


def test_deep_read_only_and_odd_trees_are_removed(home: Path) -> None:
    session(home)
    fd = os.open(home / "work/s", os.O_RDONLY)
    for _ in range(1500):  # deeper than a path, a stack or the descriptors could go
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    os.mkfifo(home / "work/s/pipe")
    (home / "work/s/.0").mkdir()
    (home / "work/s/locked/in").mkdir(parents=True)
    (home / "work/s/locked/in/file").write_text("x")
    (home / "work/s/locked/in").chmod(0)
    (home / "work/s/locked").chmod(0o500)
    at = NOW - 40 * DAY
    for name in ("pipe", ".0", "locked/in/file", "locked/in", "locked", "d", ""):
        os.utime(home / "work/s" / name, (at, at))
    place = home / "work/s"
    with contextlib.suppress(OSError):
        while True:  # as far as a path reaches
            place /= "d"
            os.utime(place, (at, at))
    assert len(collect()["gone"]) == 1
    assert os.listdir(home / "work") == []


def test_what_is_left_when_the_daemon_ends_is_finished_later(home: Path) -> None:
    session(home)
    keep = keeper(home)
    due = keep.due("s", keep.look())
    assert isinstance(due, Due)
    assert keep.put_away(due, stopping=lambda: True) is None
    assert not (home / "spool/s").exists() and (home / "spool/.away-s").exists()
    assert keeper(home).recover() == []
    assert os.listdir(home / "work") == [] and os.listdir(home / "spool") == [".daemon"]


# -- beside a daemon --------------------------------------------------------------------------------


class Clock:
    """An hour passes when the test says so."""

    def __init__(self, now: float = NOW) -> None:
        self.wall = now
        self.booted = 100.0
        self.slept: list[float] = []
        self._turn = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self._turn.wait()
        self._turn.clear()

    def hour(self, *, jump: float = 0.0) -> None:
        self.wall += 3600 + jump
        self.booted += 3600
        self._turn.set()


def test_the_daemon_does_it_once_an_hour_and_not_right_after_the_clock_was_set(home: Path) -> None:
    async def scene() -> None:
        clock = Clock()
        hourly = gc.Hourly(
            lambda: load(home, {}), sleep=clock.sleep, now=lambda: clock.wall, booted=lambda: clock.booted
        )
        session(home, days=29.9)
        hourly.start()
        await until(lambda: len(clock.slept) == 1)
        for turn, jump in enumerate((0.0, 400 * DAY, -400 * DAY), 2):
            clock.hour(jump=jump)
            await until(lambda turn=turn: len(clock.slept) == turn)  # type: ignore[misc]
            assert (home / "spool/s").exists()
        clock.hour()
        await until(lambda: len(clock.slept) == 5)
        assert not (home / "spool/s").exists()
        assert clock.slept == [3600.0] * 5
        await hourly.close()

    asyncio.run(scene())


def test_settings_that_are_read_again_count_and_trouble_does_not_end_it(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        clock = Clock()
        hourly = gc.Hourly(
            lambda: load(home, {}), sleep=clock.sleep, now=lambda: clock.wall, booted=lambda: clock.booted
        )
        directory = session(home)
        with open(directory / "journal.jsonl", "r+") as file:
            file.write("#")
        age(directory, 40)
        session(home, "t")
        settings(home)
        hourly.start()
        for turn in (1, 2):
            await until(lambda turn=turn: len(clock.slept) == turn)  # type: ignore[misc]
            clock.hour()
        await until(lambda: len(clock.slept) == 3)
        assert (home / "spool/t").exists()
        settings(home, sessions="30d")
        clock.hour()
        await until(lambda: len(clock.slept) == 4)
        assert not (home / "spool/t").exists() and (home / "spool/s").exists()
        assert [r.getMessage().partition(": not")[0] for r in caplog.records if "not put away" in r.getMessage()] == [
            "session s"
        ]
        await hourly.close()

    asyncio.run(scene())


def test_a_running_daemon_starts_it_and_the_name_can_be_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: list[Clock] = []

    def hourly(current: Callable[[], Any]) -> gc.Hourly:
        clock.append(Clock(time.time() + 100 * DAY))
        return gc.Hourly(current, sleep=clock[0].sleep, now=lambda: clock[0].wall, booted=lambda: clock[0].booted)

    monkeypatch.setattr("gad.cli.compose.Hourly", hourly)

    async def scene() -> None:
        async with ScriptedServer(["one", "two"]) as server:
            world = World(tmp_path / "home", server, retain={"sessions": "30d"}, memory={"reviews": False})
            async with world.running() as daemon:
                world.task("s")
                await world.rests("s")
                await until(lambda: clock[0].slept)
                clock[0].hour()
                await until(lambda: len(clock[0].slept) == 2)
                assert not (world.spool / "s").exists()
                world.task("s", "again")
                await world.rests("s")
                assert world.text("s", "result.txt") == "two\n"
                await until(lambda: daemon.states["s"] == "done")

    asyncio.run(scene())


def test_replies_beside_a_gc_at_the_same_time_are_answered_or_refused(tmp_path: Path) -> None:
    """Of each old session either the reply is answered, or its client was told that there is no such session."""
    count = 24

    async def scene() -> None:
        async with ScriptedServer(["fine"] * (2 * count)) as server:
            world = World(tmp_path / "home", server, memory={"reviews": False})
            async with world.running():
                for n in range(count):
                    world.task(f"s{n:02}")
                for n in range(count):
                    await world.rests(f"s{n:02}")
                archive = Vouch(Archive(str(world.home / "memory")))
                ages = Ages(sessions=30 * DAY)
                keep = Retention(str(world.spool), str(world.home / "work"), ages, archive, time.time() + 40 * DAY)
                kept: list[Kept] = []

                def collect() -> None:
                    standing = keep.look()
                    for name in keep.candidates(standing):
                        due = keep.due(name, standing)
                        found = keep.put_away(due) if isinstance(due, Due) else due
                        if found is not None:
                            kept.append(found)

                thread = threading.Thread(target=collect)
                thread.start()
                refused = set()
                for n in reversed(range(count)):
                    try:
                        drop.put(world.spool / f"s{n:02}", "reply.txt", b"and now?")
                    except FileNotFoundError:
                        refused.add(n)
                    await asyncio.sleep(0)
                await asyncio.to_thread(thread.join)
                assert not [one for one in kept if one.trouble], kept

                def answered(name: str) -> bool:
                    if (world.spool / name).exists():
                        status = world.status(name)
                        return status.get("round") == 2 and status["state"] == "done"
                    # It was answered before its turn came, and went after that.
                    archived = Archive(str(world.home / "memory"))
                    [path] = [one.path for one in archived.search(["and now?"], limit=count) if one.session == name]
                    return [record["kind"] for record in archived.read(path)].count("ended") == 2

                for n in range(count):
                    name = f"s{n:02}"
                    if n in refused:
                        continue
                    await until(
                        lambda name=name: answered(name),  # type: ignore[misc]
                        20,
                        lambda name=name: f"{name} {sorted(os.listdir(world.spool))}",  # type: ignore[misc]
                    )
                assert len(refused) < count

    asyncio.run(scene())


# -- settings and reading ---------------------------------------------------------------------------


def test_the_setting(home: Path) -> None:
    for text, wanted in {
        "": (None, None),
        "retain:": (None, None),
        "retain: {sessions: 30d, work: 12h}": (30 * DAY, DAY / 2),
        "retain: {sessions: off, work: null}": (None, None),
        "retain: {work: 3600}": (None, 3600.0),
    }.items():
        (home / "gad.yaml").write_text(text)
        found = load(home, {}).retain
        assert (found.sessions, found.work) == wanted, text
    for text, said in {
        "retain: {sessions: 5m}": "retain.sessions: must be seconds or a duration",
        "retain: {session: 5d}": "did you mean sessions?",
        "retain: 30d": "must be `key: value` lines",
    }.items():
        (home / "gad.yaml").write_text(text)
        with pytest.raises(ConfigError, match=r"gad\.yaml:1: ") as caught:
            load(home, {})
        assert said in str(caught.value)
    settings(home, sessions="30d")
    assert "retain.sessions" in run("config").stdout


@pytest.fixture
def reading(home: Path) -> Iterator[list[list[str]]]:
    """Every command that only reads, on a home with sessions of several kinds."""
    session(home)
    session(home, "asks", given=records("asks", "asking"))
    session(home, "waits", given=records("waits", "queued"))
    (home / "spool/new").mkdir()
    (home / "spool/new/input.txt").write_text("do it")
    page = str(home.parent / "page.html")
    yield [
        *(["ps"], ["ps", "--all"], ["ps", "--json"], ["top", "--once"], ["top", "--json"], ["show", "s"]),
        *(["show", "s", "--json"], ["show", "s", "--html", page], ["show", "waits"], ["show", "s", "--context"]),
        *(["tail", "s"], ["wait", "s"], ["config"], ["models"], ["doctor"], ["gc", "--dry-run"], ["triggers"]),
        *(["triggers", "list"], ["memory", "show"], ["memory", "search", "task"], ["memory", "log"]),
        *(["memory", "sops"], ["memory", "check"], ["memory", "gc"], ["completion", "bash"], ["--version"]),
    ]


def test_reading_changes_nothing(home: Path, reading: list[list[str]]) -> None:
    """Names, contents, modes and times: the spool's own time alone may change, as doctor tries its locks there."""
    run("memory", "search", "task")  # what is missing of memory is made once, when it is first opened
    before = tree(home)
    for command in reading:
        result = CliRunner().invoke(gad, command)
        assert result.exit_code != exits.USAGE, (command, result.output)
        after = tree(home)
        after["spool"] = before["spool"]
        assert after == before, command
