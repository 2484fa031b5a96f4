#!/usr/bin/env python3
"""Ask gad something, and print the answer: ask.py SESSION TEXT...

It needs nothing but the standard library and the files of the spool. A new session is begun; one that is there is gone
on with. To be imported as well:

    session = Session(home, "report")
    outcome = session.send("Summarise sales.csv.", task={"cwd": "/srv/data"})
    if outcome.state == "asking":
        outcome = session.send("The last quarter alone.")
    print(outcome.text)
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CODES = {"done": 0, "asking": 3, "stopped": 4, "failed": 5, "rejected": 6}


@dataclass(frozen=True)
class Outcome:
    """How a session rests: `text` is its result, its question, or what went wrong."""

    state: str
    text: str


class Session:
    """One conversation. `home` holds the spool."""

    def __init__(self, home: Path, name: str) -> None:
        self.place = home / "spool" / name

    def status(self) -> dict[str, object]:
        """Return what status.txt says: a line is `key: value`, free text a JSON string."""
        try:
            lines = (self.place / "status.txt").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        found: dict[str, object] = {}
        for line in lines:
            key, _, value = line.partition(": ")
            try:
                found[key] = json.loads(value)
            except ValueError:
                found[key] = value
        return found

    def send(self, text: str, task: Mapping[str, object] | None = None, patience: float = 3600.0) -> Outcome:
        """Hand in a task, or the next message, and wait until the session rests. Raises TimeoutError."""
        before = self.status()
        try:
            self.place.mkdir()
            if task:
                self._put("task.yaml", "".join(f"{key}: {json.dumps(value)}\n" for key, value in task.items()))
            self._put("input.txt", text)
        except FileExistsError:
            self._put("reply.txt", text)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            now = self.status()
            if _rests(now, before):
                return self._outcome(now)
            time.sleep(0.1)
        raise TimeoutError(f"{self.place.name} is {self.status().get('state', 'not taken')}; does the daemon run?")

    def stop(self) -> None:
        """Halt it; the next message resumes it."""
        (self.place / "stop.txt").touch()

    def _outcome(self, now: Mapping[str, object]) -> Outcome:
        state = str(now["state"])
        if state == "done":
            return Outcome(state, (self.place / "result.txt").read_text(encoding="utf-8"))
        return Outcome(state, str(now.get("question" if state == "asking" else "error", "")))

    def _put(self, name: str, text: str) -> None:
        """Write aside and rename: the text is there whole or not at all, and nothing is overwritten."""
        aside = self.place / f".{name}.{os.getpid()}"  # names that begin with a dot are ignored
        aside.write_text(text, encoding="utf-8")
        if (self.place / name).exists():
            aside.unlink()
            raise RuntimeError(f"{self.place / name} has not been taken yet; does the daemon run?")
        os.rename(aside, self.place / name)


def _rests(now: Mapping[str, object], before: Mapping[str, object]) -> bool:
    state, ended = now.get("state"), ("done", "failed", "stopped")
    if state in ended:  # a reply begins the next round then; the answer to a question belongs to the same one
        return before.get("state") not in ended or int(str(now["round"])) > int(str(before["round"]))
    return state in ("asking", "rejected") and now != before


def main() -> int:
    """Run as a command."""
    if len(sys.argv) < 3:
        print(f"usage: {sys.argv[0]} SESSION TEXT...", file=sys.stderr)
        return 2
    home = Path(os.environ.get("GAD_HOME") or Path.home() / "agents")
    outcome = Session(home, sys.argv[1]).send(" ".join(sys.argv[2:]))
    print(outcome.text.rstrip("\n"), file=sys.stdout if outcome.state in ("done", "asking") else sys.stderr)
    return CODES[outcome.state]


if __name__ == "__main__":
    sys.exit(main())
