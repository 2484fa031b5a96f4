"""Measure gad's own speed: a real daemon against a scripted model server, on this machine.

    python -m bench [NAME ...] [--quick] [--json]
    python -m bench soak [--minutes 30] ...

Prints one table. Exit code 1 says that a goal was missed. TMPDIR says which disk the spools are on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import context, controller, latency, load, memory_commits, rounds, soak, start, web
from bench.measure import FULL, QUICK, Row, Scale, table
from gad.spool.watch import file_system

BENCHMARKS: Mapping[str, Callable[[Scale, Path], list[Row]]] = {
    "input": latency.first_message,
    "reply": latency.next_message,
    "stop": latency.stop,
    "cpu": load.turns,
    "burst": load.burst,
    "memory": load.waiting,
    "ready": start.ready,
    "submit": start.submit,
    "hello": start.hello,
    "context": context.requests,
    "controller": controller.controller,
    "memory_commits": memory_commits.commits,
    "rounds": rounds.rounds,
    "web": web.web,
}


def machine(folder: str) -> dict[str, object]:
    """Return what the figures depend on; the spools are made in `folder`."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "files on": file_system(folder),
    }


def main() -> int:
    """Run the benchmarks that were named, or all but the soak, which takes long and has options of its own."""
    if sys.argv[1:2] == ["soak"]:
        return soak.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few samples: does it work, not how fast is it")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="gad-bench-") as folder:
        about = machine(folder)
        for name in chosen.names or BENCHMARKS:
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows += BENCHMARKS[name](QUICK if chosen.quick else FULL, Path(folder))
    if chosen.json:
        print(json.dumps({"machine": about, "rows": [row.to_json() for row in rows]}, indent=2))
    else:
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        print(table(rows))
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
