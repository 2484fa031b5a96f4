"""Many processes write into one memory while others read it and one after the other is killed: is anything lost?

Each writer commits numbered lines and notes each one that was acknowledged in a file of its own. A writer that was
killed is started again, and goes on behind what was acknowledged; each start gives its lines another name.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.measure import FULL, Row, Scale, single, spread
from gad.memory.store import MemoryStore

ROOT = Path(__file__).resolve().parent.parent
WRITERS, COMMITS, READERS = 16, 300, 2
QUICK_COMMITS = 5
KILL_EVERY = 1.0
SECTIONS = 4
PATIENCE = 600.0
"""Seconds after which a run that hangs fails."""

_LINE = re.compile(r"- w\d+-\d+-\d+ of the storm")


@dataclass(frozen=True, slots=True)
class Result:
    """What a storm left. `lost` are acknowledged lines that are missing, `twice` lines that are there more than once.

    `extra` are lines that were not acknowledged: at most one a kill. `unlogged` are acknowledged lines that
    changes.jsonl does not have exactly once, `strange` files that it calls changed behind the store. `waits` are the
    seconds that each acknowledged commit waited for the lock.
    """

    acknowledged: int
    kills: int
    seconds: float
    waits: list[float]
    reads: int
    torn: int
    lost: int
    twice: int
    extra: int
    unlogged: int
    strange: int


def storm(place: Path, *, writers: int, commits: int, readers: int, kill_every: float) -> Result:
    """Let `writers` processes make `commits` commits each, with a kill -9 every `kill_every` seconds."""
    memory, notes = place / "memory", place / "notes"
    notes.mkdir(parents=True)
    MemoryStore(str(memory)).prepare()
    watching = [_start("read", memory, notes) for _ in range(readers)]
    starts = [0] * writers
    began = time.monotonic()
    running = {n: _start("write", memory, notes, n, 0, commits) for n in range(writers)}
    kills, due, chance = 0, began + kill_every, random.Random(7)
    while running:
        assert time.monotonic() < began + PATIENCE, "the storm does not end"
        for n, process in list(running.items()):
            if process.poll() == 0:
                del running[n]
            elif process.returncode is not None:
                raise AssertionError(f"writer {n} failed with exit code {process.returncode}")
        if running and time.monotonic() >= due:
            n = chance.choice(sorted(running))
            running[n].kill()
            if running[n].wait() != 0:  # it had not come to its end just before
                kills, starts[n] = kills + 1, starts[n] + 1
                running[n] = _start("write", memory, notes, n, starts[n], commits)
            due = time.monotonic() + kill_every
        time.sleep(0.01)
    seconds = time.monotonic() - began
    (notes / "end").touch()
    seen = [json.loads(process.communicate(timeout=PATIENCE)[0]) for process in watching]
    return _judge(memory, notes, kills, seconds, sum(one["reads"] for one in seen), sum(one["torn"] for one in seen))


def _judge(memory: Path, notes: Path, kills: int, seconds: float, reads: int, torn: int) -> Result:
    store = MemoryStore(str(memory))
    store.prepare()  # finishes what the last kill may have left
    noted = [line.split() for file in notes.glob("w*") for line in file.read_text().splitlines()]
    there = Counter(line.split()[1] for file in (memory / "facts").glob("*.md")
                    for line in file.read_text("utf-8").splitlines() if line.startswith("- "))  # fmt: skip
    entries = [json.loads(line) for line in (memory / "changes.jsonl").read_text("utf-8").splitlines()]
    told = Counter(line.split()[1] for entry in entries for line in entry["what"] if line.startswith("+- w"))
    names = {name for name, _ in noted}
    return Result(
        acknowledged=len(noted),
        kills=kills,
        seconds=seconds,
        waits=[float(waited) for _, waited in noted],
        reads=reads,
        torn=torn,
        lost=sum(there[name] == 0 for name in names),
        twice=sum(count > 1 for count in there.values()),
        extra=len(there.keys() - names),
        unlogged=sum(told[name] != 1 for name in names) + len(told.keys() ^ there.keys()),
        strange=sum(entry["who"] == "unknown" for entry in entries),
    )


def _start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.memory_commits", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE if arguments[0] == "read" else None)


def write(memory: str, notes: str, writer: int, start: int, commits: int) -> None:
    """Be a writer: commit until `commits` are acknowledged, this start's and those before."""
    store = MemoryStore(memory, timeout=60)
    file = os.open(os.path.join(notes, f"w{writer}"), os.O_RDWR | os.O_APPEND | os.O_CREAT)
    done = os.pread(file, 10_000_000, 0).count(b"\n")
    for number in range(done, commits):
        name = f"w{writer}-{number}-{start}"
        path = f"facts/section-{number % SECTIONS}.md"
        commit = store.commit(path, lambda before, name=name: _with(before, name), who=f"w{writer}")  # type: ignore[misc]
        os.write(file, f"{name} {commit.waited:.6f}\n".encode())


def _with(before: str | None, name: str) -> str:
    return f"{before or '# Storm'}\n- {name} of the storm".replace("\n\n", "\n")


def read(memory: str, notes: str) -> None:
    """Be a reader: look at everything again and again, and count what is not whole or has lost a line."""
    store = MemoryStore(memory)
    reads = torn = 0
    lines = [0] * SECTIONS
    while not os.path.exists(os.path.join(notes, "end")):
        for section in range(SECTIONS):
            text = store.read(f"facts/section-{section}.md")
            if text is not None:
                first, *rest = text.splitlines()
                whole = text.endswith("\n") and first == "# Storm" and all(map(_LINE.fullmatch, rest))
                torn += not whole or len(rest) < lines[section]
                lines[section] = len(rest)
            reads += 1
        torn += not store.always_on().startswith("Memory: ")
        time.sleep(0.02)  # a reader that never rests would only measure the processor
    print(json.dumps({"reads": reads, "torn": torn}))


def commits(scale: Scale, place: Path) -> list[Row]:
    """Commits a second of 16 processes, how long each waits, and that nothing is lost."""
    each = COMMITS if scale.samples >= FULL.samples else QUICK_COMMITS
    result = storm(place / "commits", writers=WRITERS, commits=each, readers=READERS, kill_every=KILL_EVERY)
    rate = result.acknowledged / result.seconds
    wrong = result.lost + result.twice + result.torn + result.unlogged + result.strange
    wrong += max(0, result.extra - result.kills)
    waits = [waited * 1000 for waited in result.waits]
    kept = 100 * (1 - wrong / result.acknowledged)
    lost = f"of {result.acknowledged:,}: lost {result.lost}, otherwise wrong {wrong - result.lost}"
    note = f"{WRITERS} processes, {result.kills} kills, {result.reads:,} reads by {READERS} readers"
    return [
        single("memory commits a second", "/s", rate, note=note),
        spread("wait for the memory lock", "ms", waits, {"p99": 10_000.0}),
        single("acknowledged commits kept", "%", kept, 99.9999, at_least=True, note=lost),
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", where, noting, number, start_number, many]:
            write(where, noting, int(number), int(start_number), int(many))
        case ["read", where, noting]:
            read(where, noting)
