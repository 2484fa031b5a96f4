"""Measure what the local model gets done: every task of `local_tasks_set` through a real daemon, once.

    python -m bench.local_tasks [--weights FILE] [--threads N] [--fresh] [--only WORDS] [--show]

Prints, for each task, whether its check passed, turns, tokens out, seconds; then the totals. The weights are
fetched when they are not in the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.local_tasks_set import FRESH, TASKS, LocalTask
from gad.cli.compose import Providers, build_daemon
from gad.config import load
from gad.home import make_home
from gad.spool import drop
from gad.spool.status import read_status

RESTING = {"done", "asking", "failed", "stopped", "rejected"}
TURNS = 10
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one task."""

    done: bool
    state: str
    turns: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    seconds: float


@contextlib.asynccontextmanager
async def daemon_at(home: Path, local: dict[str, Any]) -> AsyncIterator[Path]:
    """Run a daemon with the local model until the block ends; gives its spool."""
    make_home(home)
    settings = {"model": "local", "models": {"local": local} if local else {}, "ask": "never"}
    (home / "gad.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    config = load(home, {})
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    providers = Providers(config, environ, lambda *words: None)
    daemon = build_daemon(config, environ, providers)
    running = asyncio.create_task(daemon.run())
    try:
        yield config.spool_dir
    finally:
        daemon.stop()
        await running
        await providers.close()


async def attempt(task: LocalTask, spool: Path, directory: Path) -> Outcome:
    """Hand one task in, wait for its end, check what came out."""
    for name, text in task.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    options = {"cwd": str(directory), "turns": TURNS, "seconds": SECONDS}
    begun = time.monotonic()
    session = drop.submit(spool, directory.name, task.prompt.encode(), yaml.safe_dump(options))
    while (status := read_status(session)).get("state") not in RESTING:
        await asyncio.sleep(0.05)
    seconds = time.monotonic() - begun
    answer = session / "result.txt"
    said = answer.read_text(encoding="utf-8") if answer.exists() else ""
    try:
        done = status["state"] == "done" and task.check(directory, said)
    except (OSError, ValueError, subprocess.SubprocessError):
        done = False
    turns, tokens_in, cached, tokens_out = (
        int(status.get(key, 0)) for key in ("turn", "tokens_in", "tokens_cached", "tokens_out")
    )
    return Outcome(done, str(status["state"]), turns, tokens_in, cached, tokens_out, seconds)


async def measure(chosen: list[LocalTask], local: dict[str, Any], show: bool) -> list[Outcome]:
    """Attempt every task, one after the other, and print a line for each."""
    found = []
    with tempfile.TemporaryDirectory(prefix="gad-bench-") as scratch:
        async with daemon_at(Path(scratch, "home"), local) as spool:
            for number, task in enumerate(chosen, 1):
                directory = Path(scratch, f"task-{number:02d}")
                directory.mkdir()
                outcome = await attempt(task, spool, directory)
                found.append(outcome)
                print(
                    f"{'done' if outcome.done else 'NOT '} {task.name:20} {outcome.state:7} "
                    f"turns {outcome.turns:2}  tokens out {outcome.tokens_out:4}  {outcome.seconds:6.1f} s",
                    flush=True,
                )
                if show and not outcome.done:
                    text = (spool / directory.name / "output.txt").read_text(encoding="utf-8")
                    print("".join(f"    | {line}\n" for line in text.splitlines()), flush=True)
    return found


def main() -> None:
    """Run the bench from the command line."""
    parser = argparse.ArgumentParser(description="Measure what the local model gets done.")
    parser.add_argument("--weights", help="a GGUF file instead of the default model's")
    parser.add_argument("--model", help="the default model's name, or another's that gad knows")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", default="", help="only tasks whose name holds one of these words (comma-separated)")
    parser.add_argument("--fresh", action="store_true", help="the tasks that the provider was not tuned on")
    parser.add_argument("--show", action="store_true", help="print the conversation of every task that was not done")
    arguments = parser.parse_args()
    given = {key: getattr(arguments, key) for key in ("weights", "model", "threads")}
    local = {key: os.path.abspath(value) if key == "weights" else value for key, value in given.items() if value}
    words = arguments.only.split(",")
    chosen = [task for task in (FRESH if arguments.fresh else TASKS) if any(word in task.name for word in words)]
    outcomes = asyncio.run(measure(chosen, local, arguments.show))
    done = [task for task, outcome in zip(chosen, outcomes, strict=True) if outcome.done]
    unseen = [task for task in chosen if not task.seen]
    print(
        f"{len(done)} of {len(chosen)} done; of kinds that no example shows "
        f"{sum(not task.seen for task in done)} of {len(unseen)}; "
        f"{sum(outcome.tokens_in for outcome in outcomes)} tokens in "
        f"({sum(outcome.tokens_cached for outcome in outcomes)} from the cache), "
        f"{sum(outcome.tokens_out for outcome in outcomes)} out, "
        f"{sum(outcome.seconds for outcome in outcomes):.0f} s"
    )


if __name__ == "__main__":
    main()
