"""Hours in minutes: a daemon under load whose model often fails, killed again and again, and then: is all well?

    python -m bench soak [--minutes 30] [--kill-every 60] [--sessions 50] [--seed 1] [--json]

A real `gad up` with the scripted model in a process of its own (`bench.soak_model` says how it fails), clients that
hand in the next piece of work as soon as one is over (`bench.soak_clients`), and a `kill -9` of the daemon at
intervals. The last daemon is left alive. Nothing is handed in at its start until all is at rest, and again at the end:
in between its descriptors must not have grown. Sessions that have rested through a kill are looked at and removed, as
a user would; the others are looked at when the daemon has been stopped.

Memory: of each daemon that lived for half a minute, the first third is left out; the median of the last third may
be at most `GROWTH` percent above that of the second.

Exit code 0 says that every goal was met. Otherwise the home is kept, and its path and what was wrong are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import Row, single, table
from bench.rig import Rig, resident_bytes
from bench.soak_clients import Checker, Client, at_rest
from bench.soak_daemon import Generation, descriptors, processes_of
from gad.daemon import FULL_LOOK
from gad.spool import names
from gad.spool.status import read_status
from tests.scripted_server import serve_in_process

TICK = 0.05
"""Seconds between two looks of the clients."""
PATIENCE = 180.0
"""Seconds after which what does not come to rest, or does not become ready, has failed."""
GROWTH = 10.0
"""Percent by which its memory may grow."""
_SHOWN = 10
"""Things that are wrong, of a kind, that are printed."""

GOALS = {
    "answered": "messages lost, answered twice or not at all",
    "twice": "tool calls that ran twice",
    "rest": "sessions not at rest, or failed",
    "journal": "torn or damaged journals",
    "status": "status files that say something else",
    "process": "processes left after the stop",
    "log": "tracebacks in the daemons' log",
}


class Soak:
    """One run on one home."""

    def __init__(self, rig: Rig, *, seconds: float, kill_every: float, sessions: int, seed: int) -> None:
        self.rig = rig
        self.checker = Checker(rig.spool, rig.work)
        self.generations: list[Generation] = []
        self._resting: list[tuple[int, int, float]] = []  # the last daemon's descriptors, sockets, megabytes
        self._seconds, self._kill_every, self._sessions = seconds, kill_every, sessions
        self._chance = random.Random(seed)
        self._number = 0
        self._clients: list[Client] = []
        self._handed_in: dict[str, list[str]] = {}
        self._removed: list[tuple[float, str]] = []  # when, and in which state
        self._handing_in = True
        self._sampled = self._retired = 0.0
        self._killed_at = 0.0

    def run(self) -> list[Row]:
        """Return the table's rows."""
        began = time.monotonic()
        try:
            self._start()
            while time.monotonic() + 1.5 * self._kill_every < began + self._seconds:
                self._work_for(self._kill_every * self._chance.uniform(0.8, 1.2))
                self._kill()
                self._start()
            self._come_to_rest()  # what the killed daemons left has been done: from here on nothing may pile up
            self._look_at_resting()
            self._handing_in = True
            self._work_for(max(began + self._seconds - time.monotonic(), self._kill_every / 2))
            self._come_to_rest()
            self._look_at_resting()
            self._stop()
        finally:
            self._end_daemon()
        self._look_at_all()
        return self._rows()

    # -- the daemon's lives ------------------------------------------------------------------------

    def _start(self) -> None:
        began = time.monotonic()
        self.rig.start()
        self.generations.append(Generation(self.rig.pid))
        self._until(lambda: self.rig.daemon_state() == "ready", "the daemon is ready")
        now = self._now
        now.since = time.monotonic()
        now.ready_after = now.since - began

    def _kill(self) -> None:
        assert self.rig.daemon is not None
        self._killed_at = time.time()
        self.rig.daemon.kill()
        self.rig.daemon.wait()
        told = f"{self._number} pieces of work, {sum(map(len, self.checker.wrong.values()))} things wrong"
        print(f"killed daemon {len(self.generations)}; {told}", file=sys.stderr, flush=True)

    def _stop(self) -> None:
        assert self.rig.daemon is not None
        self.rig.daemon.send_signal(signal.SIGTERM)
        if code := self.rig.daemon.wait(90):
            self.checker.complain("process", f"the last daemon's exit code was {code}")
        status = read_status(self.rig.spool / names.DAEMON_DIR)
        if (status.get("state"), status.get("pid")) != ("stopped", self.rig.pid):
            self.checker.complain("status", f"the stopped daemon's says {status}")
        there = Counter(str(read_status(self.rig.spool / name).get("state")) for name in self._directories())
        # What was removed since the latest look at everything may still be counted.
        gone = Counter(state for at, state in self._removed if at > time.monotonic() - 2 * FULL_LOOK)
        for state in {*there, *(name for name in names.STATES if name in status)}:
            if not there[state] <= int(status.get(state, 0)) <= there[state] + gone[state]:
                self.checker.complain("status", f"the daemon's counts {status.get(state)} {state}, not {there[state]}")
        deadline = time.monotonic() + 3
        while (left := processes_of(self.rig.home)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid, command in left.items():
            self.checker.complain("process", f"{pid}: {command}")

    def _end_daemon(self) -> None:
        """Leave nothing running, also when the soak itself has failed."""
        if self.rig.daemon is not None and self.rig.daemon.poll() is None:
            self.rig.daemon.kill()
            self.rig.daemon.wait()
        for pid in processes_of(self.rig.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def _now(self) -> Generation:
        return self.generations[-1]

    # -- the clients' side -------------------------------------------------------------------------

    def _work_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._tick()

    def _until(self, condition: Callable[[], object], what: str) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                self.checker.complain("rest", f"not within {PATIENCE:g} s: {what}")
                return False
            self._tick()
        return True

    def _come_to_rest(self) -> None:
        self._handing_in = False
        self._until(lambda: not self._clients, "the clients' work is over")
        self._until(lambda: not self._restless(), "all sessions are at rest")
        for name in self._restless():
            self.checker.complain("rest", f"{name}: {read_status(self.rig.spool / name)}")

    def _tick(self) -> None:
        """Let each client go on, hand in more, take samples, look at what is over."""
        time.sleep(TICK)
        if self.rig.daemon is not None and (code := self.rig.daemon.poll()) is not None:
            tail = (self.rig.home / "daemon.log").read_text("utf-8")[-2000:]
            raise RuntimeError(f"the daemon ended by itself with exit code {code}:\n{tail}")
        self._clients = [client for client in self._clients if client.go_on()]
        while self._handing_in and len(self._clients) < self._sessions:
            self._number += 1
            self._clients.append(Client(self.rig, f"s{self._number:06d}", self._chance, self._handed_in))
        now = time.monotonic()
        if now > self._sampled + 1 and self._now.since:
            self._sampled = now
            self._sample()
        if now > self._retired + 3:
            self._retired = now
            self._retire()

    def _sample(self) -> None:
        now = self._now
        now.memory.append((time.monotonic() - now.since, resident_bytes(now.pid)))
        now.descriptors = max(now.descriptors, sum(descriptors(now.pid)))
        status = read_status(self.rig.spool / names.DAEMON_DIR)
        if status.get("state") != "ready" or status.get("pid") != now.pid:
            self.checker.complain("status", f"a daemon at work says {status}")

    # -- looking at what is over -------------------------------------------------------------------

    def _directories(self) -> list[str]:
        return sorted(name for name in os.listdir(self.rig.spool) if names.valid_session_name(name))

    def _restless(self) -> list[str]:
        found = [(name, self.rig.spool / name) for name in self._directories()]
        return [name for name, directory in found if os.listdir(directory) and not _rests(directory)]

    def _retire(self) -> None:
        """Look at families that have rested since before the latest kill, and remove them."""
        busy = {client.name for client in self._clients}
        families: dict[str, list[str]] = {}
        for name in self._directories():
            families.setdefault(_FAMILY.sub("", name), []).append(name)
        for family, members in families.items():
            if family not in busy and all(self._is_over(self.rig.spool / name) for name in members):
                for name in members:
                    self._removed.append((time.monotonic(), str(read_status(self.rig.spool / name).get("state"))))
                    self.checker.check(name, self._handed_in.pop(name, []))
                    self.checker.remove(name)

    def _is_over(self, directory: Path) -> bool:
        journal = directory / names.JOURNAL
        return journal.exists() and journal.stat().st_mtime < self._killed_at and _rests(directory)

    def _look_at_all(self) -> None:
        """Look at everything that is left, and into the log, when no daemon runs any more."""
        for name in {*self._directories(), *self._handed_in}:
            self.checker.check(name, self._handed_in.get(name, []))
        log = (self.rig.home / "daemon.log").read_text("utf-8")
        self.checker.seen["torn"] = log.count("torn last journal line")
        for found in re.finditer(r"^.*\n?.*Traceback", log, re.MULTILINE):
            self.checker.complain("log", found[0])

    def _look_at_resting(self) -> None:
        """Take the descriptors and the memory of a daemon at rest: the least of a second or two."""
        counts = []
        for _ in range(30):
            counts.append(descriptors(self.rig.pid))
            time.sleep(TICK)
        self._resting.append((*min(counts), resident_bytes(self.rig.pid) / 1e6))

    # -- the table ---------------------------------------------------------------------------------

    def _rows(self) -> list[Row]:
        seen, wrong = self.checker.seen, self.checker.wrong
        lives = self.generations
        growths = [growth for life in lives if (growth := life.growth()) is not None]
        (files, sockets, size), (files_now, sockets_now, size_now) = self._resting
        rows = [
            single("daemons killed", "", len(lives) - 1, 0, at_least=True),
            single("sessions", "", seen["sessions"], 0, at_least=True, note=f"{seen['sessions stopped']} stopped"),
            single("messages handed in", "", seen["messages"], 0, at_least=True),
            single("tool calls", "", seen["calls"], 0, at_least=True, note="lines in the ledgers"),
            single("requests that went wrong", "", seen["deferred"], 0, at_least=True, note=f"of {seen['requests']}"),
            single(
                "sessions that a kill met at work", "", seen["resumed"], note=f"{seen['broken off']} in a tool call"
            ),
            single("torn journal lines, cut off at the next start", "", seen["torn"]),
            *(single(what, "", len(wrong.get(kind, ())), 1) for kind, what in GOALS.items()),
            single("slowest start", "s", max(life.ready_after for life in lives)),
            single("descriptors at work, most", "", max(life.descriptors for life in lives)),
            single(
                "last daemon's descriptors at rest, growth", "", files_now - files, 1, note=f"{files} -> {files_now}"
            ),
            single("its idle connections", "", sockets_now, self._sessions + 10, note=f"{sockets} -> {sockets_now}"),
        ]
        rows.append(
            single("its memory at rest, growth", "MB", size_now - size, note=f"{size:.1f} -> {size_now:.1f} MB")
        )
        if growths:
            sizes = [statistics.median(size for _, size in life.memory) / 1e6 for life in lives if life.memory]
            note = (
                f"{len(growths)} daemons, mean {statistics.mean(growths):+.1f} %; {min(sizes):.0f}-{max(sizes):.0f} MB"
            )
            rows.append(single("a daemon's memory, greatest growth", "%", max(growths), GROWTH, note=note))
        return rows


_FAMILY = re.compile(r"(?<=^s\d{6})-.*")


def _rests(directory: Path) -> bool:
    try:
        return at_rest(directory, read_status(directory))
    except FileNotFoundError:
        return False


def soak(*, minutes: float, kill_every: float, sessions: int, seed: int, place: Path) -> tuple[list[Row], Checker]:
    """Run one soak in `place`, an empty directory; return its table and what was wrong."""
    settings: dict[str, Any] = {
        "model": {"idle_timeout": 2},
        "retry": {"first": 0.2, "most": 2},
        "prices": {"scripted": {"input": 1, "output": 1}},
    }
    with serve_in_process(rule="bench.soak_model:answer", keep=False) as server:
        rig = Rig(place / "home", server, sessions=max(2, sessions // 2), **settings)
        run = Soak(rig, seconds=minutes * 60, kill_every=kill_every, sessions=sessions, seed=seed)
        return run.run(), run.checker


def main(arguments: list[str] | None = None) -> int:
    """Run a soak by the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--minutes", type=float, default=30.0, help="how long work is handed in")
    parser.add_argument("--kill-every", type=float, default=60.0, metavar="SECONDS", help="a daemon's life, about")
    parser.add_argument("--sessions", type=int, default=50, help="pieces of work at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    chosen = parser.parse_args(arguments)
    if chosen.minutes * 60 < 2.5 * chosen.kill_every:
        parser.error("--minutes is too short for a kill: it must be 2.5 times --kill-every at least")
    place = Path(tempfile.mkdtemp(prefix="gad-soak-"))
    rows, checker = soak(minutes=chosen.minutes, kill_every=chosen.kill_every, sessions=chosen.sessions,
                         seed=chosen.seed, place=place)  # fmt: skip
    print(json.dumps([row.to_json() for row in rows], indent=2) if chosen.json else table(rows))
    for kind, found in checker.wrong.items():
        for line in [f"{GOALS[kind]}:", *found[:_SHOWN]]:
            print(line, file=sys.stderr)
    if any(row.met is False for row in rows):
        print(f"kept: {place}", file=sys.stderr)
        return 1
    shutil.rmtree(place)
    return 0
