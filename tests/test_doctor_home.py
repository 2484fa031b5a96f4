"""What gad doctor says of who may read and write a home, and of what piles up in one."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gad.cli import doctor_home as care
from gad.cli import gad
from gad.config import load
from gad.core.records import Begin, Ended, Record, Said
from gad.core.report import status_of
from gad.core.session import replay
from gad.core.task import TaskOptions
from gad.home import make_home
from gad.memory.archive import Archive
from gad.memory.vouch import Vouch
from gad.spool.journal import Journal
from gad.spool.lock import SpoolLock
from gad.spool.status import write_status


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def settings(home: Path, **given: Any) -> None:
    (home / "gad.yaml").write_text(yaml.safe_dump(given))


def session(home: Path, name: str = "s", old: float = 3600.0) -> Path:
    directory = home / "spool" / name
    directory.mkdir()
    given: list[Record] = [Begin(1e9, name, TaskOptions()), Said(1e9, 1, "input.txt", "x"), Ended(1e9, "done")]
    journal = Journal(str(directory / "journal.jsonl"))
    for record in given:
        journal.append(record)
    journal.close()
    write_status(directory, status_of(replay(given)))
    at = time.time() - old
    os.utime(directory / "journal.jsonl", (at, at))
    return directory


@pytest.mark.parametrize(
    ("name", "mode", "change"),
    [
        (".", 0o777, "go-w"),
        ("gad.yaml", 0o664, "go-w"),
        ("spool", 0o755, "go-rwx"),
        ("memory", 0o770, "go-rwx"),
        ("triggers", 0o702, "go-rwx"),
        ("key", 0o644, "600"),
    ],
)
def test_what_others_could_read_or_change_is_told_with_the_chmod_that_mends_it(
    home: Path, name: str, mode: int, change: str
) -> None:
    settings(home, models={"mine": {"provider": "openai", "model": "m", "key_file": "key"}})
    (home / "key").write_text("secret")
    (home / "key").chmod(0o600)
    found = care.permissions(home, load(home, {}))
    assert (found.status, found.detail.rpartition(", ")[2]) == ("ok", "and of 1 key file")
    (home / name).chmod(mode)
    found = care.permissions(home, load(home, {}))
    assert found.status == "warn"
    assert found.mend == (f"chmod {change} {home / name}",)
    subprocess.run(["sh", "-c", found.mend[0]], check=True)
    assert care.permissions(home, load(home, {})).status == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_home_of_another_user_is_told(home: Path) -> None:
    os.chown(home / "gad.yaml", 1, 1)
    found = care.permissions(home, None)
    assert found.status == "warn" and "belongs to" in found.detail and "run gad" in found.mend[0]


def test_a_group_is_let_into_the_spool_by_the_settings_alone(home: Path) -> None:
    (home / "spool").chmod(0o2770)
    assert care.permissions(home, load(home, {})).mend == (f"chmod go-rwx {home / 'spool'}",)
    settings(home, spool={"group": str(os.getgid())})
    assert care.permissions(home, load(home, {})).status == "ok"


def test_each_file_system_is_told_once_and_what_too_little_space_means(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert care.disk(home, load(home, {})).detail.count("free") == 1
    little = SimpleNamespace(f_bavail=1000, f_frsize=4096, f_files=0, f_favail=0)
    monkeypatch.setattr("os.statvfs", lambda path: little)
    found = care.disk(home, load(home, {}))
    assert found.status == "warn" and found.detail.endswith("less than spool.min_free, 100 MB: nothing new begins")
    assert "gad gc --dry-run" in found.mend[0]


def test_too_few_files_can_be_open(home: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path; from gad.cli import doctor_home as care\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "found = care.descriptors(Path(sys.argv[1]), None); print(found.status, found.detail, found.mend)"
    )
    told = subprocess.run([sys.executable, "-c", script, str(home / "spool")], capture_output=True, text=True)
    assert told.stdout.startswith("warn 100 open files of this shell; 24 sessions at once want 640"), told
    assert "ulimit -n 640" in told.stdout and "LimitNOFILE=65536" in told.stdout


def test_the_limit_of_a_running_daemon_is_what_counts(home: Path) -> None:
    with SpoolLock(str(home / "spool")):
        write_status(home / "spool/.daemon", {"state": "ready", "pid": os.getpid()})
        found = care.descriptors(home / "spool", None)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert f"{soft} open files of the daemon, " in found.detail and " in use; " in found.detail


def test_a_clock_that_is_behind_is_told(home: Path) -> None:
    session(home)
    assert care.clock(home / "spool", time.time()).status == "ok"
    later = time.time() + 5000
    os.utime(home / "spool/s", (later, later))
    found = care.clock(home / "spool", time.time())
    assert found.status == "warn" and "session s is from" in found.detail and "set-ntp" in found.mend[0]
    assert care.clock(home / "spool", 0.0).detail.startswith("1970-01-01T00:00:00Z, but")


def test_journals_of_a_newer_gad_are_told(home: Path) -> None:
    session(home)
    assert care.journals(home / "spool").detail == "1, format 1"
    (home / "spool/new").mkdir()
    (home / "spool/new/journal.jsonl").write_text(json.dumps({"kind": "begin", "v": 7, "gad": "9.8.7"}) + "\n")
    found = care.journals(home / "spool")
    assert (found.status, found.detail) == ("warn", "1 of 2 are from a newer gad: new")
    assert "9.8.7" in found.mend[0]


@pytest.mark.parametrize("first", ["what?\n", '{"at": 1.0}\n', "[]\n", "[" * 100_000 + "\n", '{"kind": "beg'])
def test_journals_that_cannot_be_read_are_told(home: Path, first: str) -> None:
    session(home)
    (home / "spool/bad").mkdir()
    (home / "spool/bad/journal.jsonl").write_text("")
    assert care.journals(home / "spool").status == "ok"  # a crash leaves it so, and it is gone on with
    (home / "spool/bad/journal.jsonl").write_text(first)
    found = care.journals(home / "spool")
    if not first.endswith("\n"):  # as is what a crash has torn
        assert found.status == "ok"
        return
    assert (found.status, found.detail) == ("warn", "1 of 2 are damaged: bad")
    assert "input.txt" in found.mend[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be several users")
def test_a_directory_that_another_user_has_closed_is_told(home: Path, tmp_path: Path) -> None:
    # whatever is to be imported, another user may not be able to read
    list(care.piled_up(home / "spool", load(home, {})))
    (home / "spool/closed").mkdir(mode=0o700)
    for above in (one for one in [tmp_path, *tmp_path.parents] if not one.stat().st_mode & 0o001):
        above.chmod(0o755)
    for place in (home, home / "spool", home / "memory"):
        os.chown(place, 65534, 65534)
    os.setegid(65534)
    os.seteuid(65534)
    try:
        found = care.journals(home / "spool")
        retention, archive = care.piled_up(home / "spool", load(home, {}))
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert (found.status, found.detail) == ("warn", "1 of 1 cannot be opened: closed")
    assert "chmod" in found.mend[0]
    assert (retention.status, archive.status) == ("ok", "ok")


def test_other_users_can_hand_in_and_have_an_end_to_what_they_spend(home: Path) -> None:
    settings(home, spool={"users": ["daemon"]})
    found = care.users(home / "spool", load(home, {}))
    assert found.status == "warn" and len(found.mend) == 2 and "with spool.group in gad.yaml" in found.mend[0]
    for limit in ({"usd_per_day": 5}, {"quota": {"usd_per_day": 5}}):
        group = str(os.getgid())
        settings(home, spool={"users": ["daemon"], "group": group}, **limit)
        (home / "spool").chmod(0o700)
        (mend,) = care.users(home / "spool", load(home, {})).mend
        subprocess.run(["sh", "-c", mend.removeprefix("as root: ")], check=True)
        found = care.users(home / "spool", load(home, {}))
        assert (found.status, f"the members of group {group}" in found.detail) == ("ok", True)
    for wrong in ({"users": ["nobody-of-this-name"]}, {"group": "no-group-of-this-name"}):
        settings(home, spool=wrong)
        found = care.users(home / "spool", load(home, {}))
        assert found.status == "fail" and found.mend


def test_what_piles_up_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = session(home)
    session(home, "just-now", old=0)
    retention, archive = care.piled_up(home / "spool", load(home, {}))
    assert (retention.status, retention.detail) == ("ok", "everything is kept for ever; 2 sessions")
    assert archive.status == "warn" and archive.detail == "1 of 2 ended sessions are not in it: s"
    Vouch(Archive(str(home / "memory")))(str(directory / "journal.jsonl"), "s")
    monkeypatch.setattr(care, "MANY", 2)
    retention, archive = care.piled_up(home / "spool", load(home, {}))
    assert (archive.status, archive.detail) == ("ok", "1 conversations")
    assert retention.status == "warn" and "retain: {sessions: 30d, work: 7d}" in retention.mend[0]
    settings(home, retain={"sessions": "30d"}, memory={"enabled": False})
    (retention,) = care.piled_up(home / "spool", load(home, {}))
    assert retention.status == "ok" and retention.detail.startswith("sessions 30d; 2 sessions")


def test_the_command_tells_it_all_and_leaves_no_trace(home: Path) -> None:
    session(home)
    (home / "gad.yaml").chmod(0o666)
    before = sorted(os.listdir(home / "spool")), sorted(os.listdir(home / "memory"))
    told = CliRunner().invoke(gad, ["doctor"]).stdout
    assert f"-> chmod go-w {home / 'gad.yaml'}" in told and "warn  archive" in told
    assert (sorted(os.listdir(home / "spool")), sorted(os.listdir(home / "memory"))) == before
