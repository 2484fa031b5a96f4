"""Ten thousand random changes to a spool by several processes at once, while a daemon works on it.

Nothing of this may stop the daemon, reach outside of the spool, or cost a task that was handed in properly.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gad.spool import drop, names
from gad.spool.status import read_status
from tests.scripted_server import Reply, Say, last_text, serve_in_thread
from tests.test_crash import wait_for
from tests.world import World

MUTATORS = 4
EACH = 2500
TASKS = 60
SESSIONS = [f"m{n}" for n in range(24)]
FILES = [
    *names.CLIENT_FILES,
    *names.DAEMON_FILES,
    ".status.txt.tmp",
    ".result.txt.tmp",
    ".claim-0001-input.txt",
    ".claim-0002-reply.txt",
    ".claim-9999999999999999999-stop.txt",
    "rejected-0001-input.txt",
    "archived-0001-journal.jsonl",
    "input.txt~",
    "INPUT.TXT",
]
ODD_SESSIONS = [".hidden", "-dash", "a b", "ü", "x" * 128, "x" * 129, ".away-m1", ".new-1-aa", "new\nline", "m1.tmp"]
TEXTS: list[bytes] = [
    b"",
    b" \n",
    b"do it",
    "мир 世界 🙂".encode(),
    b"\xff\xfe" + "utf-16 text".encode("utf-16-le"),
    b"\xff\xfeodd",
    b"\xc3\x28 \xf0\x28\x8c\x28",
    b"\xed\xa0\x80",
    b"\x00" * 50,
    b"model: nothing\n",
    b"turns: [1, 2\n",
    b"parent: m1\n",
    b"&a [*a, *a]\n",
    b"state: done\nround: 99\n",
    b'{"kind":"begin","at":1,"v":1,"session":"m1","options":{}}\n',
    b'{"kind":"begin","at":1,"v":1,"session":"m1","options":{}}\n{"kind":"ended","at":2,"state":"done"}\n',
    b'{"kind":"begin"',
    b"ok well done",
]


class Mutator:
    """One client of ill will: what it does depends on its seed and on what the others do."""

    def __init__(self, spool: str, outside: str, seed: int) -> None:
        self.spool = os.fsencode(spool)
        self.outside = os.fsencode(outside)
        self.chance = random.Random(seed)
        self.opened: list[int] = []

    def run(self, count: int) -> Counter[str]:
        done: Counter[str] = Counter()
        kinds = [kind for kind in dir(self) if kind.startswith("do_")]
        weights = [8 if kind in ("do_file", "do_moved_in") else 1 if "_becomes_" in kind else 2 for kind in kinds]
        while sum(done.values()) < count:
            kind = self.chance.choices(kinds, weights)[0]
            try:
                getattr(self, kind)()
                done[kind] += 1
            except (OSError, ValueError, shutil.Error):  # it met something else there, or one of the others
                pass
            while self.opened:
                os.close(self.opened.pop())
            if sum(done.values()) % 25 == 0:
                time.sleep(0.02)  # the others, and the daemon, get their turn
        return done

    # -- where -----------------------------------------------------------------------------------

    def session(self) -> bytes:
        if self.chance.random() < 0.12:
            odd = self.chance.choice([*map(os.fsencode, ODD_SESSIONS), b"\xff\xfe\xfd", b"\x80" * 255, b"y" * 255])
            return os.path.join(self.spool, odd)
        return os.path.join(self.spool, self.chance.choice(SESSIONS).encode())

    def file(self) -> bytes:
        name = os.fsencode(self.chance.choice(FILES))
        if self.chance.random() < 0.1:
            name = self.chance.choice(
                [b"\xff\xfe", b"z" * 255, b"\xc3" * 255, "日本.txt".encode(), b"a\nb", b"~", b".swp"]
            )
        return os.path.join(self.session(), name)

    def victim(self) -> bytes:
        return os.path.join(
            self.outside, self.chance.choice([b"canary", b"directory", b"missing", b"directory/inside"])
        )

    def text(self) -> bytes:
        if self.chance.random() < 0.02:
            return self.chance.choice([b"x", "é".encode(), b"\xff"]) * self.chance.choice([4096, 1_048_576, 2_000_000])
        return self.chance.choice(TEXTS)

    def room(self, path: bytes) -> None:
        """Make the directory that a file goes into, and sometimes room for the file itself."""
        directory = os.path.dirname(path)
        if self.chance.random() < 0.8:
            if os.path.lexists(directory) and (os.path.islink(directory) or not os.path.isdir(directory)):
                os.unlink(directory)
            if not os.path.lexists(directory):
                os.mkdir(directory)
        if self.chance.random() < 0.5 and os.path.lexists(path):
            path = self.inside(path)
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)

    def inside(self, path: bytes) -> bytes:
        """Return a path that leads nowhere else, whatever the others do: what this client itself must not touch."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        self.opened.append(os.open(os.path.dirname(path), flags))
        return b"/proc/self/fd/%d/%s" % (self.opened[-1], os.path.basename(path))

    # -- what ------------------------------------------------------------------------------------

    def do_make(self) -> None:
        os.mkdir(self.session())

    def do_file(self) -> None:
        path = self.file()
        self.room(path)
        fd = os.open(self.inside(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        data = self.text()
        half = self.chance.randrange(len(data) + 1)
        os.write(fd, data[:half])
        if self.chance.random() < 0.1:
            time.sleep(0.001)
        os.write(fd, data[half:])
        os.close(fd)

    def do_moved_in(self) -> None:
        aside = os.path.join(self.spool, b".aside-%d" % os.getpid())
        with open(aside, "wb") as file:
            file.write(self.text())
        path = self.file()
        self.room(path)
        os.rename(aside, self.inside(path))

    def do_directory_for_a_file(self) -> None:
        path = self.file()
        self.room(path)
        os.mkdir(self.inside(path))

    def do_link(self) -> None:
        path = self.file()
        self.room(path)
        os.symlink(self.victim(), self.inside(path))

    def do_link_within(self) -> None:
        path = self.file()
        self.room(path)
        os.symlink(self.file(), self.inside(path))

    def do_hard_link(self) -> None:
        path = self.file()
        self.room(path)
        os.link(os.path.join(self.outside, b"canary"), self.inside(path))

    def do_hard_link_within(self) -> None:
        os.link(self.inside(self.file()), self.inside(self.file()), follow_symlinks=False)

    def do_pipe(self) -> None:
        path = self.file()
        self.room(path)
        os.mkfifo(self.inside(path))

    def do_socket(self) -> None:
        path = self.file()
        self.room(path)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(self.inside(path))

    def do_rename(self) -> None:
        os.rename(self.inside(self.file()), self.inside(self.file()))

    def do_rename_session(self) -> None:
        os.rename(self.session(), self.session())

    def do_remove(self) -> None:
        os.unlink(self.inside(self.file()))

    def do_remove_session(self) -> None:
        session = self.session()
        if os.path.islink(session) or not os.path.isdir(session):
            os.unlink(session)
        else:
            shutil.rmtree(session)

    def do_session_becomes_a_link(self) -> None:
        session = self.session()
        os.rename(session, os.path.join(self.spool, b".old-%d-%d" % (os.getpid(), self.chance.randrange(10**9))))
        os.symlink(os.path.join(self.outside, b"directory"), session)

    def do_session_becomes_a_file(self) -> None:
        with open(os.open(self.session(), os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(b"no directory")

    def do_forge(self) -> None:
        source, target = self.inside(self.file()), self.inside(self.file())
        with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            data = file.read(100_000)
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW), "wb") as file:
            file.write(data)

    def do_change_time(self) -> None:
        at = self.chance.choice([0, 1, 2**31, 4 * 10**9])
        os.utime(self.inside(self.file()), (at, at), follow_symlinks=False)


def seen(place: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return what is outside: names, modes, contents and directories' times."""
    found = {}
    for path in sorted([place, *place.rglob("*")]):
        info = path.lstat()
        changed = info.st_mtime_ns if path.is_dir() else 0  # a client may change that of a file by a hard link
        found[str(path)] = (info.st_mode, changed, path.read_bytes() if path.is_file() else b"")
    return found


def descriptors(process: int, spool: Path) -> list[str]:
    """Return what a daemon has open below its spool, its own directory left out."""
    opened = []
    for fd in os.listdir(f"/proc/{process}/fd"):
        try:
            path = os.readlink(f"/proc/{process}/fd/{fd}")
        except FileNotFoundError:
            continue
        if path.startswith(f"{spool}/") and not path.startswith(f"{spool}/{names.DAEMON_DIR}"):
            opened.append(path)
    return opened


@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_changes_stop_nothing_lose_nothing_and_reach_nothing(tmp_path: Path, seed: int) -> None:
    def echo(body: dict[str, Any]) -> Any:
        said = last_text(body).rsplit("\n\n", 1)[-1]
        return Reply((Say(f"re: {said[:60]}"),))

    outside = tmp_path / "outside"
    (outside / "directory").mkdir(parents=True)
    (outside / "canary").write_text("canary")
    (outside / "directory" / "inside").write_text("inside")
    (outside / "directory" / "input.txt").write_text("this is no task")
    before = seen(outside)
    with serve_in_thread(echo) as server:
        world = World(tmp_path / "home", server, memory={"enabled": False}, limits={"turns": 5})
        log = tmp_path / "log"
        with open(log, "wb") as stderr:
            daemon = subprocess.Popen([sys.executable, "-m", "gad", "--home", str(world.home), "up"], stderr=stderr)
        mutators: list[subprocess.Popen[bytes]] = []
        try:
            wait_for(lambda: read_status(world.spool / names.DAEMON_DIR).get("state") == "ready", 120)
            for number in range(MUTATORS):
                command = [sys.executable, "-m", "tests.test_spool_mutations", str(world.spool), str(outside)]
                mutators.append(subprocess.Popen([*command, str(1000 * seed + number)], stdout=subprocess.PIPE))
            handed_in = 0
            while handed_in < TASKS:
                drop.submit(world.spool, f"clean-{handed_in}", f"task {handed_in}!".encode())
                handed_in += 1
                time.sleep(0.05)  # spread over the time of the mutations
            told = [mutator.communicate(timeout=120)[0].decode() for mutator in mutators]
            assert [mutator.returncode for mutator in mutators] == [0] * MUTATORS
            changes: Counter[str] = Counter()
            for line in "".join(told).splitlines():
                kind, count = line.rsplit(" ", 1)
                changes[kind] += int(count)
            assert changes.total() >= 10_000
            assert set(changes) == {kind for kind in dir(Mutator) if kind.startswith("do_")}

            clean = [f"clean-{number}" for number in range(TASKS)]
            wait_for(lambda: all(world.status(name).get("state") == "done" for name in clean), 120)
            world.task("after", "task after!")
            wait_for(lambda: world.status("after").get("state") == "done", 120)
            for entry in list(world.spool.iterdir()):
                if not entry.name.startswith(("clean-", "after", names.DAEMON_DIR)):
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            wait_for(lambda: not descriptors(daemon.pid, world.spool), 120)
            assert daemon.poll() is None
            assert read_status(world.spool / names.DAEMON_DIR)["state"] == "ready"
        finally:
            for mutator in mutators:
                mutator.kill()
                mutator.wait()
            daemon.terminate()
            assert daemon.wait(120) == 0
        asked = Counter(request.text.rsplit("\n\n", 1)[-1] for request in server.requests)
        for number, name in enumerate(clean):
            assert world.text(name, "result.txt") == f"re: task {number}!\n"
            assert world.kinds(name) == ["begin", "message", "calling", "answer", "ended"]
            assert asked[f"task {number}!"] == 1
        assert seen(outside) == before
        said = log.read_text(errors="replace")
        assert "no more file events" not in said
        assert "Traceback" not in said and "internal error" not in said, said[-4000:]


if __name__ == "__main__":
    spool_, outside_, seed_ = sys.argv[1:]
    for kind_, count_ in Mutator(spool_, outside_, int(seed_)).run(EACH).items():
        print(kind_, count_)
