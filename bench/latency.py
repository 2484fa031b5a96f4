"""From a client's file to what it causes: a request on the wire, the end of a tool's processes."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from bench.measure import Row, Scale, spread
from bench.rig import Rig, rig, until

GOALS = {"p50": 10.0, "p99": 30.0}


def first_message(scale: Scale, place: Path) -> list[Row]:
    """input.txt closed -> request on the wire, for new sessions one after another."""
    rows = []
    for way, made_before in (("directory made before", True), ("mkdir and write in one go", False)):
        samples = []
        with rig(place, "hello") as bench, bench.up():
            for n in range(scale.samples + scale.warm):
                name = f"s{n}"
                if made_before:
                    (bench.spool / name).mkdir()
                    time.sleep(0.02)  # the daemon has seen the empty directory
                    handed_in = bench.put(name, "input.txt", "Say hello.")
                else:
                    handed_in = bench.task(name)
                bench.rest([name])
                samples.append(_wire_ms(bench, handed_in))
        rows.append(spread(f"input.txt closed -> request ({way})", "ms", samples[scale.warm :], GOALS))
    return rows


def next_message(scale: Scale, place: Path) -> list[Row]:
    """reply.txt closed -> request on the wire, for finished sessions with a short history."""
    samples = []
    with rig(place, "hello") as bench, bench.up():
        for n in range(scale.samples + scale.warm):
            name = f"s{n}"
            bench.task(name)
            bench.rest([name])
            bench.new_requests()
            time.sleep(0.01)
            samples.append(_wire_ms(bench, bench.put(name, "reply.txt", "And again."), name))
    return [spread("reply.txt closed -> request", "ms", samples[scale.warm :], GOALS)]


def _wire_ms(bench: Rig, handed_in: float, replied: str = "") -> float:
    if replied:
        bench.rest([replied], round=2)
    (request,) = bench.new_requests()
    return float(request["wall"] - handed_in) * 1000


def stop(scale: Scale, place: Path) -> list[Row]:
    """stop.txt closed -> both processes of a tool's group have ended."""
    samples = []
    with rig(place, "sleep") as bench, bench.up():
        for n in range(scale.stops + scale.warm):
            name = f"s{n}"
            bench.task(name)
            written = bench.work / name / "pids"
            until(written.exists, pause=0.002)
            alive = [os.pidfd_open(int(pid)) for pid in written.read_text().split()]
            bench.put(name, "stop.txt", "")
            closed = time.monotonic()
            for process in alive:
                if not select.select([process], [], [], 10)[0]:
                    raise RuntimeError("the tool's process lives on 10 s after stop.txt")
            samples.append((time.monotonic() - closed) * 1000)
            for process in alive:
                os.close(process)
            bench.rest([name], "stopped")
    return [spread("stop.txt closed -> tool's process group dead", "ms", samples[scale.warm :], {"p99": 50.0})]
