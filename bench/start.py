"""How long things take to start, and how large the smallest request is."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from bench.measure import Row, Scale, single, spread
from bench.rig import rig


def ready(scale: Scale, place: Path) -> list[Row]:
    """From the daemon's process start to state ready, with many finished sessions in the spool."""
    rows = []
    with rig(place, "hello") as bench:
        with bench.up():
            empty = bench.ready_after
            bench.task("s0")
            bench.rest(["s0"])
        for n in range(1, scale.finished):
            copy_session(bench.spool / "s0", f"s{n:05d}")
        times = []
        for _ in range(scale.starts):
            with bench.up():
                times.append(bench.ready_after)
    note = f"{scale.finished} finished sessions, {len(times)} starts, max {max(times):.2f}; the empty spool {empty:.2f}"
    rows.append(single("daemon's start to ready", "s", statistics.median(times), 1.5, note=note))
    return rows


def copy_session(source: Path, name: str) -> None:
    """Copy a finished session under another name: all its files, the name in its journal changed."""
    target = source.parent / name
    target.mkdir()
    for file in source.iterdir():
        if file.name == "journal.jsonl":
            journal = file.read_text("utf-8").replace(f'"session":"{source.name}"', f'"session":"{name}"')
            (target / file.name).write_text(journal, "utf-8")
        else:
            shutil.copyfile(file, target / file.name)


def submit(scale: Scale, place: Path) -> list[Row]:
    """The whole process of `gad submit TEXT`, with a daemon that is up."""
    script = Path(sys.executable).parent / "gad"
    command = [str(script)] if script.exists() else [sys.executable, "-m", "gad"]
    samples = []
    with rig(place, "hello") as bench, bench.up():
        environ = os.environ | {"GAD_HOME": str(bench.home)}
        for _ in range(scale.commands + scale.warm):
            began = time.monotonic()
            subprocess.run([*command, "submit", "Say hello."], env=environ, stdout=subprocess.DEVNULL, check=True)
            samples.append((time.monotonic() - began) * 1000)
    return [spread("gad submit, the whole process", "ms", samples[scale.warm :], {"p50": 150.0})]


def hello(scale: Scale, place: Path) -> list[Row]:
    """The smallest request's system text, tools and messages in tokens of o200k_base."""
    rows = []
    for provider in ("openai", "anthropic"):
        with rig(place, "hello", provider=provider) as bench, bench.up():
            bench.task("s0", "Hello")
            bench.rest(["s0"])
            (request,) = bench.new_requests()
        size = tokens(request["body"])
        rows.append(single(f'the "Hello" request ({provider})', "tokens", size, 900.0))
    return rows


def tokens(body: dict[str, Any]) -> int:
    """Count what the model reads of a request."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package's own, on import
        encoding = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    read = [body[key] for key in ("system", "tools", "messages") if key in body]
    return len(encoding.encode(json.dumps(read, ensure_ascii=False, separators=(",", ":"))))
