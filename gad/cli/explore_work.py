"""The steps of exploration in a home: what is due, whether a plan or a report will do, keeping what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gad.core.explore import skill_tree
from gad.core.explore_plan import Idea, Plan, Task, fingerprint, read_tasks
from gad.core.explore_report import LENGTH, Draft, Report, read_draft
from gad.core.explore_texts import APPROVED, TURNS, plan_text, task_text
from gad.core.session import Session, replay
from gad.core.states import ENDED
from gad.errors import GadError, MemoryRefused
from gad.memory.door import SessionMemory
from gad.memory.exploration import Exploration, Trial, check_proposal
from gad.memory.store import MemoryStore
from gad.spool import names
from gad.spool.files import open_regular
from gad.spool.kin import named_parent
from gad.spool.rounds import conversations, read_records
from gad.spool.status import read_status
from gad.triggers.sessions import labels_of

LABEL = "explore"
PLANNING, REVIEWING = f"{LABEL}:plan", f"{LABEL}:review"
PLAN_FILE, REPORT_FILE, PROPOSED = "plan.json", "report.md", "proposals"
ATTEMPTS = 3
"""Sessions for one task, at most: those that were stopped, since somebody came, are followed by another."""
MOST_PROPOSED = 20
"""Proposals of one exploration, at most."""


@dataclass(frozen=True, slots=True)
class Filed:
    """What was kept of a session: its plan or its report, and the trials that were over."""

    session: str
    plan: Plan | None = None
    report: Report | None = None
    trials: tuple[Trial, ...] = ()


class Explorer:
    """Exploration in one home; `complain` is told what cannot be read there."""

    def __init__(self, home: Path, complain: Callable[[str], None] = lambda text: None) -> None:
        self.home = home
        self._spool = home / "spool"
        self.store = MemoryStore(str(home / "memory"))
        self.memory = Exploration(self.store, complain)

    # -- what is due -----------------------------------------------------------------------------

    def standing(self, task: Task, reports: Sequence[Report]) -> tuple[str, str | None]:
        """Return what has come of a task, and the key of the session that is to do it; None when none is.

        It is its report's outcome, its session's state, or `open`. One that somebody has stopped is done again.
        """
        sessions = sorted(path for key in (task.id, f"{task.id}.*") for path in self._spool.glob(f"*-{key}"))
        states = [read_status(path).get("state", "queued") for path in sessions if is_of(path, task)]
        outcome = next((report.outcome for report in reports if report.task == task.id), None)
        if not states:  # also when its session was removed since
            return outcome or "open", None if outcome else task.id
        again = outcome == "unfinished" and states[-1] == "stopped" and len(states) < ATTEMPTS
        return outcome or str(states[-1]), f"{task.id}.{len(states) + 1}" if again else None

    def due(self) -> dict[str, Any]:
        """Return what to hand in next: `text`, maybe a `key` that is the task's, and options of task.yaml.

        It is the best task of the latest plan that nobody has taken yet; when there is none, a new plan.
        """
        plans, reports = self.memory.plans(), self.memory.reports()
        for task in plans[-1].tasks if plans else ():
            if key := self.standing(task, reports)[1]:
                options = _options(f"{LABEL}:{task.id}", REPORT_FILE)
                return {"text": task_text(task), "key": key, "confined": True} | options
        return {"text": plan_text(skill_tree(self.store.sops()), reports)} | _options(PLANNING, PLAN_FILE)

    # -- whether it will do ----------------------------------------------------------------------

    def read_plan(self, file: Path) -> tuple[Idea, ...]:
        """Return the tasks of a plan. Raises GadError that names every mistake."""
        try:
            return read_tasks(read_text(file), skill_tree(self.store.sops()))
        except ValueError as exc:
            raise GadError(f"{file.name} will not do:\n{exc}") from None

    def check_approved(self, ideas: tuple[Idea, ...], session: str) -> None:
        """Check that a sub-agent of this session has approved these very tasks. Raises GadError."""
        label = f"plan:{fingerprint(ideas)}"
        reviews = [path for path in self._spool.iterdir() if label in labels_of(str(path))]
        done = [path for path in reviews if read_status(path).get("state") == "done"]
        if not any(named_parent(str(path)) == session and is_approval(answer_of(path)) for path in done):
            raise GadError("no fresh agent has approved this plan as it stands: gad explore review plan.json")

    def check_report(self, file: Path) -> None:
        """Check a report and the proposals beside it. Raises GadError that names every mistake."""
        mistakes = []
        try:
            read_draft(read_text(file))
        except ValueError as exc:
            mistakes.append(f"{file.name}: {exc}")
        try:
            proposed(file.parent)
        except ValueError as exc:
            mistakes.append(str(exc))
        if mistakes:
            raise GadError("\n".join(mistakes))

    # -- keeping what came of it -----------------------------------------------------------------

    def file(self, name: str, now: float) -> Filed:
        """Keep what came of a session of exploration that has ended; again does no harm. Raises GadError, OSError."""
        directory = self._spool / name
        session = _ended_session(directory)
        labels = session.options.labels
        task_ids = [label.removeprefix(f"{LABEL}:") for label in labels if label.startswith(f"{LABEL}:p")]
        plan = report = None
        if PLANNING in labels:
            if session.state == "done":
                plan = self.memory.keep_plan(name, now, self.read_plan(self._place(session) / PLAN_FILE))
        elif task_ids and (task := self.memory.task(task_ids[0])):
            report = self._report(task, session, directory, now)
            self.memory.keep_report(report)
        else:
            raise GadError(f"session {name} is no exploration of a plan that is here")
        return Filed(name, plan, report, tuple(self.memory.judge(now)))

    def _place(self, session: Session) -> Path:
        return Path(session.options.cwd or self.home / "work" / session.name)

    def _report(self, task: Task, session: Session, directory: Path, now: float) -> Report:
        place, status = self._place(session), read_status(directory)
        draft, texts = None, dict[str, str]()
        problem = str(status.get("error") or f"the session was {session.state}")
        try:
            draft = read_draft(read_text(place / REPORT_FILE))
            texts = proposed(place) if session.state == "done" else {}
        except ValueError as exc:
            problem = f"{problem}; {exc}" if session.state != "done" else str(exc)
        known = next((report for report in self.memory.reports() if report.task == task.id), None)
        became = known.proposed if known else {}
        new = {path: text for path, text in texts.items() if path not in became}
        if new:
            door = SessionMemory(self.store, session, place=lambda session: str(place))
            became = became | self.memory.take(task.id, session.name, new, door.proofs_of(session))
        done = draft is not None and session.state == "done"
        shown = draft if draft is not None else Draft("unfinished", "", None, "")
        usd = status.get("cost_usd")
        return Report(
            task=task.id,
            title=task.idea.title,
            category=task.idea.category,
            session=session.name,
            at=known.at if known and known.session == session.name else now,
            outcome=shown.outcome if done else "unfinished",
            summary=shown.summary if done else " ".join(problem.split())[:300],
            skill=shown.skill or task.idea.deepens,
            predicted=task.predicted,
            scores=task.scores,
            turns=session.allowance.spent.turns,
            usd=usd if isinstance(usd, int | float) else None,
            proposed=became,
            body=shown.body,
        )


def _options(label: str, file: str) -> dict[str, Any]:
    """Return the options of task.yaml of a session that ends with a file."""
    return {"labels": [LABEL, label], "turns": TURNS, "check": f"gad explore check {file}"}


def is_of(session: Path, task: Task) -> bool:
    """Return whether a session is, or was, to do a task."""
    return f"{LABEL}:{task.id}" in labels_of(str(session))


def is_approval(answer: str) -> bool:
    """Return whether a reviewer's answer lets a plan pass: its first line says so."""
    first = answer.strip().split("\n", 1)[0].strip(" \t\r*_`#.:!")
    return first.lower() == APPROVED


def answer_of(directory: Path) -> str:
    """Return a session's answer; an empty text when there is none."""
    try:
        return (directory / names.RESULT).read_text("utf-8", "replace")
    except OSError:
        return ""


def read_text(file: Path) -> str:
    """Return a file that an agent has written. Raises ValueError that says what is wrong."""
    try:
        with open(open_regular(str(file), os.O_RDONLY), "rb") as stream:
            data = stream.read(4 * LENGTH + 1)
        if len(data) > 4 * LENGTH:
            raise ValueError(f"{file.name}: has more than {4 * LENGTH:,} bytes; say it shorter")
        return data.decode("utf-8")
    except FileNotFoundError:
        raise ValueError(f"{file.name} is not there; write it in your working directory") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file.name} is not UTF-8") from None
    except (OSError, GadError) as exc:
        raise ValueError(f"{file.name} cannot be read: {exc}") from None


def proposed(place: Path) -> dict[str, str]:
    """Return what lies below proposals/, by memory's paths. Raises ValueError, a line a mistake."""
    found, mistakes = {}, []
    for path in _files(place / PROPOSED):
        inside = str(path.relative_to(place / PROPOSED))
        try:
            check_proposal(inside)
            found[inside] = read_text(path)
        except (MemoryRefused, ValueError) as exc:
            mistakes.append(f"{PROPOSED}/{exc}")
    if len(found) > MOST_PROPOSED:
        mistakes.append(f"{PROPOSED}: {len(found)} files are too many; keep the {MOST_PROPOSED} best")
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return found


def _files(top: Path) -> Iterator[Path]:
    for place, _, files in os.walk(top):
        yield from (Path(place, name) for name in sorted(files))


def _ended_session(directory: Path) -> Session:
    """Return a session that has ended. Raises GadError."""
    found = conversations(str(directory)) if directory.is_dir() else []
    if not found:
        raise GadError(f"there is no session {directory.name} with a journal; gad ps lists them")
    session = replay(read_records(found[-1][1]))
    if session.state not in ENDED:
        raise GadError(f"session {directory.name} has not ended (it is {session.public_state})")
    return session
