"""The soak's clients, each with one piece of work at a time, and what must hold of the sessions that they leave."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.rig import Rig
from bench.soak_model import ANSWER, LEDGER, MESSAGE
from gad.core.messages import Assistant
from gad.core.records import Answered, Calling, Deferred, Record, Resumed, Said, ToolFinished, ToolStarted
from gad.core.states import ENDED
from gad.errors import JournalDamaged
from gad.spool import names
from gad.spool.journal import decoded, fold
from gad.spool.status import read_status

KINDS = {"plain": 25, "tools": 30, "ask": 10, "reply": 10, "steer": 10, "stop": 6, "resume": 4, "run": 3, "family": 2}
"""What clients do, and how often of a hundred times."""


class Client:
    """One client's work: `go_on` does what can be done now and says whether there is more to come."""

    def __init__(self, rig: Rig, name: str, chance: random.Random, handed_in: dict[str, list[str]]) -> None:
        self.name = name
        self._rig = rig
        self._chance = chance
        self._handed_in = handed_in  # by session: the marks of its messages
        self._asked: set[str] = set()
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        self._work: Iterator[None] = getattr(self, f"_{kind}")()

    def go_on(self) -> bool:
        """Take the next step, if what it waits for has come; False when all is done."""
        return next(self._work, self) is not self

    # -- kinds of work -----------------------------------------------------------------------------

    def _plain(self) -> Iterator[None]:
        self._task(self.name, "plain")
        yield from self._ended(self.name)

    def _tools(self) -> Iterator[None]:
        check = {"check": f"test -s {LEDGER}"} if self._chance.random() < 0.3 else {}
        self._task(self.name, f"tools {self._chance.randint(1, 5)}", **check)
        yield from self._ended(self.name)

    def _ask(self) -> Iterator[None]:
        self._task(self.name, "ask")
        yield from self._ended(self.name)

    def _reply(self) -> Iterator[None]:
        yield from self._plain()
        self._say(self.name, names.REPLY, "tools 1")
        yield from self._ended(self.name, 1)

    def _steer(self) -> Iterator[None]:
        self._task(self.name, "tools 4")
        while self._status(self.name).get("state") not in ("running", "done"):
            yield
        self._say(self.name, names.REPLY, "tools 1")
        yield from self._ended(self.name)

    def _stop(self) -> Iterator[None]:
        self._task(self.name, "sleep")
        while not (self._rig.work / self.name / LEDGER).exists():
            yield
        self._rig.put(self.name, names.STOP, "")
        yield from self._ended(self.name)

    def _resume(self) -> Iterator[None]:
        yield from self._stop()
        self._say(self.name, names.REPLY, "tools 1")
        yield from self._ended(self.name, 1)

    def _run(self) -> Iterator[None]:
        self._task(self.name, f"run {self.name}-c")
        yield from self._ended(self.name)

    def _family(self) -> Iterator[None]:
        """A parent and its children; all are stopped by stopping the parent."""
        self._task(self.name, "sleep")
        while not (self._rig.work / self.name / LEDGER).exists():
            yield
        children = [f"{self.name}-a", f"{self.name}-b"]
        for child, plan in zip(children, ("sleep", "tools 2"), strict=True):
            self._task(child, plan, parent=self.name)
        while not (self._rig.work / children[0] / LEDGER).exists():
            yield
        self._rig.put(self.name, names.STOP, "")
        for session in (self.name, *children):
            yield from self._ended(session)

    # -- pieces ------------------------------------------------------------------------------------

    def _task(self, session: str, plan: str, **options: Any) -> None:
        (self._rig.spool / session).mkdir()
        if options:
            self._rig.put(session, names.TASK, yaml.safe_dump(options))
        self._say(session, names.INPUT, plan)

    def _say(self, session: str, file: str, plan: str) -> None:
        marks = self._handed_in.setdefault(session, [])
        marks.append(f"{session}.{len(marks) + 1}")
        self._rig.put(session, file, f"Please: [[m:{marks[-1]} {plan}]]\n")

    def _status(self, session: str) -> dict[str, Any]:
        return read_status(self._rig.spool / session)

    def _ended(self, session: str, after: int = 0) -> Iterator[None]:
        """Wait for the end of a round after `after`; answer what is asked meanwhile."""
        while True:
            status = self._status(session)
            if at_rest(self._rig.spool / session, status) and int(status.get("round", 0)) > after:
                return
            asked = str(status.get("question")) if status.get("state") == "asking" else ""
            if asked and asked not in self._asked:
                self._asked.add(asked)
                self._say(session, names.REPLY, "plain")
            yield


def at_rest(directory: Path, status: dict[str, Any]) -> bool:
    """Return whether a session is over, with nothing of a client's waiting."""
    if status.get("state") not in ENDED | {"rejected"}:
        return False
    return not any(name in (names.REPLY, names.STOP, names.INPUT) or names.parse_claim(name)
                   for name in os.listdir(directory))  # fmt: skip


class Checker:
    """Looks at sessions that are over; `wrong` has what must not be, by kind, `seen` what there was."""

    def __init__(self, spool: Path, work: Path) -> None:
        self.wrong: dict[str, list[str]] = {}
        self.seen: Counter[str] = Counter()
        self._spool, self._work = spool, work

    def complain(self, kind: str, text: str) -> None:
        """Take note of something that must not be."""
        self.wrong.setdefault(kind, []).append(text)

    def check(self, session: str, expected: list[str]) -> None:
        """Look at one session: `expected` are the marks of what a client has handed in."""
        directory = self._spool / session
        journal = directory / names.JOURNAL
        if not journal.exists():
            if expected or (directory / names.INPUT).exists():
                self.complain("answered", f"{session}: never taken in: {sorted(os.listdir(directory))}")
            return  # what made the directory was ended before it handed in anything
        data = journal.read_bytes()
        if not data.endswith(b"\n"):
            self.complain("journal", f"{session}: torn")
        try:
            records = list(decoded(data, str(journal)))
            folded = fold(data, str(journal))
        except JournalDamaged as exc:
            self.complain("journal", str(exc))
            return
        state, status = folded.state, read_status(directory)
        if state != status.get("state"):
            self.complain("status", f"{session}: the journal says {state}, status.txt {status.get('state')}")
        if state not in ("done", "stopped"):
            self.complain("rest", f"{session}: {state}: {status.get('error', '')}")
        said = Counter(mark for one in records if isinstance(one, Said) for mark, _ in MESSAGE.findall(one.text))
        answered = Counter(mark for one in records if isinstance(one, Answered) for mark in _marks(one.message))
        if session.startswith("review-"):
            said.clear()
        self._check_answers(session, state, expected, said, answered)
        if state == "done" and said:
            last = [found for one in records if isinstance(one, Answered) and (found := _marks(one.message))][-1:]
            result = (directory / names.RESULT).read_text("utf-8")
            if last != [ANSWER.findall(result)]:
                self.complain("answered", f"{session}: result.txt is not its last answer {last}: {result!r}")
        started = sum(isinstance(one, ToolStarted) for one in records)
        self._check_ledger(session, Path(folded.options.cwd or self._work / session, LEDGER), started)
        self.seen["sessions"] += 1
        self.seen[f"sessions {state}"] += 1
        self._count(records)

    def _count(self, records: list[Record]) -> None:
        at_work = False
        for one in records:
            match one:
                case Calling():
                    self.seen["requests"] += 1
                case Deferred():
                    self.seen["deferred"] += 1
                case ToolStarted():
                    at_work = True
                case ToolFinished():
                    at_work = False
                case Resumed():
                    self.seen["resumed"] += 1
                    self.seen["broken off"] += at_work
                    at_work = False
                case _:
                    pass

    def _check_answers(
        self, session: str, state: str, expected: list[str], said: Counter[str], answered: Counter[str]
    ) -> None:
        for mark in {*expected, *said}:
            self.seen["messages"] += 1
            if said[mark] != 1:
                self.complain("answered", f"{session}: message {mark} is in the journal {said[mark]} times")
            elif answered[mark] > 1 or (answered[mark] == 0 and state != "stopped"):
                self.complain("answered", f"{session}: message {mark} was answered {answered[mark]} times ({state})")
        self.seen["answers"] += answered.total()

    def _check_ledger(self, session: str, ledger: Path, started: int) -> None:
        lines = Counter(ledger.read_text("utf-8").split()) if ledger.exists() else Counter[str]()
        self.seen["calls"] += lines.total()
        for line, times in lines.items():
            if times > 1:
                self.complain("twice", f"{session}: the call {line} ran {times} times")
        if len(lines) > started:
            self.complain("twice", f"{session}: {len(lines)} calls ran, and {started} are in the journal")

    def remove(self, session: str) -> None:
        """Remove a session, as its user would."""
        shutil.rmtree(self._spool / session)
        shutil.rmtree(self._work / session, ignore_errors=True)


def _marks(message: Assistant) -> list[str]:
    return ANSWER.findall(message.text)
