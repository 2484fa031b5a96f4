"""For one key one session, and none that was promised is lost: two hosts at once, kill -9 at any moment."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gad.errors import GadError
from gad.home import make_home
from gad.spool import drop

HOST = """
import asyncio, os, sys, time
from gad.triggers.host import Host
from gad.triggers.instances import Caps, Settings
from gad.triggers.sessions import Door

async def main(home):
    parse = lambda text, name: Settings(caps=Caps(open=1000, per_day=10000))
    door = Door(f"{home}/spool", lambda text: None, 1 << 20)
    now = (lambda: float(open(f"{home}/clock").read())) if os.path.exists(f"{home}/clock") else time.time
    environment = {"PATH": os.environ["PATH"], "TZ": "UTC"}
    host = Host(home, parse=parse, door=door, environment=environment, now=now, look=0.005)
    host.start()
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""

PLUGIN = """
import os
INTERVAL = 0.001
KEYS = 40

def check():
    trigger.state["calls"] = trigger.state.get("calls", 0) + 1
    done = trigger.state.setdefault("done", [])
    n = len(done)
    if n == KEYS:
        return None
    done.append(n)
    if n % 2:
        return {"text": f"do {n}", "key": str(n)}  # the state says already that this is done: so it must be
    name = trigger.submit(f"do {n}", str(n))
    with open("promised", "a") as file:
        file.write(name + "\\n")
        file.flush()
        os.fsync(file.fileno())
"""


def wait_for(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)  # polling


class Hosts:
    """A home, and processes that are hosts of it."""

    def __init__(self, home: Path) -> None:
        make_home(home)
        self.home = home
        self.started: list[subprocess.Popen[bytes]] = []
        (home / "triggers/x.py").write_text(PLUGIN)
        (home / "triggers/x.yaml").write_text("")

    def set_clock(self, at: float) -> None:
        """Set the clock of all hosts, in seconds since the epoch."""
        (self.home / "clock.new").write_text(str(at))
        os.rename(self.home / "clock.new", self.home / "clock")

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", HOST, str(self.home)]
        self.started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        return self.started[-1]

    def kill(self, host: subprocess.Popen[bytes]) -> None:
        host.kill()
        host.wait()

    def sessions(self) -> list[str]:
        return [name for name in os.listdir(self.home / "spool") if not name.startswith(".")]

    def finished(self) -> bool:
        return len(self.sessions()) >= 40

    def check(self) -> None:
        sessions = self.sessions()
        assert sorted(sessions) == sorted(f"x-{n}" for n in range(40))
        for name in sessions:
            directory = self.home / "spool" / name
            assert sorted(os.listdir(directory)) == ["input.txt", "task.yaml"]
            assert (directory / "input.txt").read_text() == f"do {name.removeprefix('x-')}"
            assert '"trigger:x"' in (directory / "task.yaml").read_text()
        promised = (self.home / "promised").read_text().split()
        assert set(promised) <= set(sessions)

    def clean(self) -> bool:
        """Return whether nothing that was being prepared is left."""
        left = [name for name in os.listdir(self.home / "spool") if name.startswith(".new-")]
        state = [name for name in os.listdir(self.home / "triggers/.state") if name.endswith(".tmp")]
        return not left and not state

    def children(self) -> list[int]:
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    environment = Path("/proc", entry, "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                marked = any(one.startswith(b"GAD_TRIGGER_RUN=") for one in environment)
                if marked and f"GAD_HOME={self.home}".encode() in environment:
                    found.append(int(entry))
        return found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    found = Hosts(tmp_path / "home")
    yield found
    for host in found.started:
        found.kill(host)


def test_kill_9_at_random_moments(hosts: Hosts) -> None:
    chance = random.Random(0)
    killed = 0
    while not hosts.finished():
        host = hosts.start()
        target = len(hosts.sessions()) + chance.randint(3, 9)
        wait_for(lambda target=target: hosts.finished() or len(hosts.sessions()) >= target)  # type: ignore[misc]
        deadline = time.monotonic() + chance.random() * 0.02
        while time.monotonic() < deadline:
            pass
        hosts.kill(host)
        killed += 1
    assert killed >= 4
    host = hosts.start()
    wait_for(lambda: hosts.clean() and len(hosts.children()) == 1)
    hosts.kill(host)
    hosts.check()
    wait_for(lambda: not hosts.children())  # the kernel has ended the child with its host


def test_two_hosts_at_once_and_one_of_them_killed_again_and_again(hosts: Hosts) -> None:
    chance = random.Random(7)
    running = [hosts.start(), hosts.start()]
    while not hosts.finished():
        target = len(hosts.sessions()) + chance.randint(4, 12)
        wait_for(lambda target=target: hosts.finished() or len(hosts.sessions()) >= target)  # type: ignore[misc]
        hosts.kill(running.pop(chance.randrange(2)))
        running.append(hosts.start())
    for host in running:
        hosts.kill(host)
    hosts.check()


def test_a_schedule_fires_once_across_kill_9(hosts: Hosts) -> None:
    chance = random.Random(3)
    (hosts.home / "triggers/x.py").unlink()
    (hosts.home / "triggers/x.yaml").rename(hosts.home / "triggers/scheduled.yaml")
    (hosts.home / "triggers/schedules").mkdir()
    report = {"schedule": "08:00", "timezone": "UTC", "prompt": "Report.", "overlap": "parallel"}
    (hosts.home / "triggers/schedules/daily-report.json").write_text(json.dumps(report))
    eight = datetime(2026, 11, 30, 8, tzinfo=UTC).timestamp()
    state = hosts.home / "triggers/.state/scheduled.json"
    hosts.set_clock(eight - 60)
    host = hosts.start()
    wait_for(lambda: state.exists() and "daily-report" in state.read_text())
    assert hosts.sessions() == []
    for day in range(4):
        hosts.set_clock(eight + day * 86400 + 1)
        deadline = time.monotonic() + chance.random() * 0.1
        while time.monotonic() < deadline:
            pass
        hosts.kill(host)  # before, while or after it fires
        host = hosts.start()
        wait_for(lambda day=day: len(hosts.sessions()) > day)  # type: ignore[misc]
        hosts.set_clock(eight + day * 86400 + 3600)
    assert sorted(hosts.sessions()) == [
        "scheduled-daily-report-20261130T080000Z", "scheduled-daily-report-20261201T080000Z",
        "scheduled-daily-report-20261202T080000Z", "scheduled-daily-report-20261203T080000Z",
    ]  # fmt: skip


def test_of_all_who_try_at_once_one_makes_the_session(tmp_path: Path) -> None:
    told: list[tuple[int, bool]] = []
    barrier = threading.Barrier(8)

    def race(number: int) -> None:
        for n in range(25):
            barrier.wait()
            told.append((n, drop.submit_once(tmp_path, f"s{n}", f"{number}".encode(), "turns: 1\n")))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(n for n, made in told if made) == dict.fromkeys(range(25), 1)
    assert sorted(os.listdir(tmp_path)) == sorted(f"s{n}" for n in range(25))
    assert sorted(os.listdir(tmp_path / "s0")) == ["input.txt", "task.yaml"]


@pytest.mark.parametrize("capable", [True, False], ids=["renameat2", "without it"])
def test_what_is_there_is_never_replaced(tmp_path: Path, capable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not capable:
        monkeypatch.setattr(drop, "_rename_new", lambda source, target: False)
    assert drop.submit_once(tmp_path, "s", b"first")
    assert not drop.submit_once(tmp_path, "s", b"second", "turns: 1\n")
    assert (tmp_path / "s/input.txt").read_bytes() == b"first"
    (tmp_path / "file").write_text("kept")
    assert not drop.submit_once(tmp_path, "file", b"x")
    os.symlink("nowhere", tmp_path / "link")
    assert not drop.submit_once(tmp_path, "link", b"x")
    assert (tmp_path / "file").read_text() == "kept" and os.readlink(tmp_path / "link") == "nowhere"
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "s"]
    with pytest.raises(GadError, match="is not a session's name"):
        drop.submit_once(tmp_path, "../s", b"x")
    with pytest.raises(GadError, match="gad init"):
        drop.submit_once(tmp_path / "none", "s", b"x")


def test_what_a_killed_process_was_preparing_is_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name in (f".new-{gone.pid}-ab", f".new-{os.getpid()}-cd", ".new-other", "s"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "input.txt").write_text("x")
    drop.remove_unfinished(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [f".new-{os.getpid()}-cd", ".new-other", "s"]
