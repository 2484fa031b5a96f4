"""What a session costs: processor time a turn, sessions a second, memory while it waits."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from bench.measure import Row, Scale, single
from bench.rig import Rig, cpu_seconds, resident_bytes, rig, until
from bench.rules import TURNS
from gad.spool.status import read_status

FROM, TO = 41, 61
"""The turns between which processor time is taken: their histories have 100 messages on average."""
assert TO < TURNS

RULES = {
    "notes": "the tool is update_working_checkpoint, which does nothing by itself",
    "files": "the tool is file_read of 10 lines",
    "commands": "the tool is code_run of bash, a new process each time",
}


def turns(scale: Scale, place: Path) -> list[Row]:
    """Processor time of the daemon for one turn with a history of 100 messages."""
    rows = []
    for rule, tool in RULES.items():
        costs = []
        with rig(place, rule) as bench, bench.up():
            for n in range(scale.long_sessions):
                (bench.work / f"s{n}").mkdir(parents=True)
                (bench.work / f"s{n}" / "sample.txt").write_text("a line of text to be read\n" * 100)
                costs.append(_turn_ms(bench, f"s{n}"))
        goal = 3.0 if rule == "notes" else None
        label = "CPU a turn, 100 messages of history"
        note = f"median of {len(costs)} sessions; {tool}"
        rows.append(single(label, "ms", statistics.median(costs), goal, note=note))
    return rows


def _turn_ms(bench: Rig, name: str) -> float:
    bench.task(name, "Take your time.")
    first, before = _clock(bench, name, FROM)
    last, after = _clock(bench, name, TO)
    bench.rest([name])
    return (after - before) / (last - first) * 1000


def _clock(bench: Rig, name: str, wanted: int) -> tuple[int, float]:
    """Wait for a turn; return which one it is then, and the daemon's processor time.

    The server pauses before it answers, so the daemon is idle when its clock is read.
    """

    def turn() -> int:
        return int(read_status(bench.spool / name).get("turn", 0))

    until(lambda: turn() >= wanted - 3, pause=0.02)  # asking often would disturb the daemon
    until(lambda: turn() >= wanted, pause=0.001)
    time.sleep(0.002)
    return turn(), cpu_seconds(bench.pid)


def burst(scale: Scale, place: Path) -> list[Row]:
    """One-turn sessions a second: many tasks at once, from the first that is dropped to the last that is done."""
    with rig(place, "hello") as bench, bench.up():
        bench.task("warm")
        bench.rest(["warm"])
        before, began = cpu_seconds(bench.pid), time.time()
        names = [f"s{n}" for n in range(scale.burst)]
        for name in names:
            bench.task(name)
        bench.rest(names, pause=0.05)
        last = max((bench.spool / name / "status.txt").stat().st_mtime for name in names)
        used = cpu_seconds(bench.pid) - before
    note = f"{len(names)} tasks in {last - began:.2f} s; the daemon's CPU {used / len(names) * 1000:.2f} ms each"
    return [single("one-turn sessions a second", "/s", len(names) / (last - began), 100.0, at_least=True, note=note)]


def waiting(scale: Scale, place: Path) -> list[Row]:
    """Memory of a session that has asked its user and waits."""
    with rig(place, "ask") as bench, bench.up():
        warm = [f"w{n}" for n in range(scale.waiting // 20)]
        for name in warm:
            bench.task(name)
        bench.rest(warm, "asking", pause=0.05)
        time.sleep(0.5)
        before = resident_bytes(bench.pid)
        names = [f"s{n}" for n in range(scale.waiting)]
        for name in names:
            bench.task(name)
        bench.rest(names, "asking", pause=0.05)
        time.sleep(0.5)
        after = resident_bytes(bench.pid)
    note = f"{len(names)} sessions; the daemon {before / 1e6:.1f} -> {after / 1e6:.1f} MB"
    return [single("memory of a waiting session", "KB", (after - before) / len(names) / 1000, 50.0, note=note)]
