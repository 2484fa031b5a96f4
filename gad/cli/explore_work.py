"""The steps of exploration in a home: what is due, whether a plan or a report will do, keeping what came of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gad.core.explore import Trial, skill_tree
from gad.core.explore_plan import Idea, Plan, Task, read_tasks
from gad.core.explore_report import LENGTH, Draft, Report, read_draft
from gad.core.explore_texts import APPROVED, TURNS, plan_text, review_text, task_text
from gad.core.records import Said
from gad.core.session import Session, replay
from gad.core.states import ENDED
from gad.errors import GadError, MemoryRefused
from gad.memory.door import SessionMemory
from gad.memory.exploration import Exploration, check_proposal
from gad.memory.store import MemoryStore
from gad.spool import names
from gad.spool.files import open_regular
from gad.spool.kin import descendants
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
DEEPEST = 2
"""Directories that a proposal's path in memory has, at most."""


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
        self._complain = complain

    # -- what is due -----------------------------------------------------------------------------

    def standing(self, task: Task, reports: Sequence[Report]) -> tuple[str, str | None]:
        """Return what has come of a task, and the key of the session that is to do it; None when none is.

        It is its report's outcome, its session's state, or `open`. One that somebody has stopped is done again.
        """
        outcome = next((report.outcome for report in reports if report.task == task.id), None)
        attempt, session = self._latest(task)
        if session is None:  # also when its session was removed since
            return outcome or "open", None if outcome else task.id
        state = str(read_status(session).get("state", "queued"))
        again = outcome == "unfinished" and state == "stopped" and attempt < ATTEMPTS
        return outcome or state, f"{task.id}.{attempt + 1}" if again else None

    def _latest(self, task: Task) -> tuple[int, Path | None]:
        """Return the number of the latest attempt at a task, and its session.

        Its name ends with the key, or with a digest behind it, where the plain name was somebody's already.
        """
        named = re.compile(rf".*-{re.escape(task.id)}(?:\.(\d{{1,9}}))?(?:-[0-9a-f]{{12}})?")
        tried = [(int(match[1] or 1), name) for name in os.listdir(self._spool) if (match := named.fullmatch(name))]
        for attempt, name in sorted(tried, reverse=True):
            if f"{LABEL}:{task.id}" in labels_of(str(self._spool / name)):
                return attempt, self._spool / name
        return 0, None

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
        """Check that a sub-agent of this session has approved these very tasks. Raises GadError.

        It must have been asked for that and for nothing else, before and after.
        """
        children = [self._spool / name for name in descendants(str(self._spool), session, 1)]
        if not any(_answer_to(review_text(ideas), child) for child in children):
            raise GadError("no fresh agent has approved this plan as it stands: gad explore review plan.json")

    def check_report(self, file: Path) -> None:
        """Check a report and the proposals beside it. Raises GadError that names every mistake."""
        mistakes, skill = [], None
        try:
            skill = read_draft(read_text(file)).skill
        except ValueError as exc:
            mistakes.append(f"{file.name}: {exc}")
        try:
            found = proposed(file.parent)
            if skill and (path := f"sops/{skill}/SOP.md") not in found:
                mistakes.append(
                    f"{file.name}: skill: {skill} is not proposed; write {PROPOSED}/{path}, or leave it out"
                )
        except ValueError as exc:
            mistakes.append(str(exc))
        if mistakes:
            raise GadError("\n".join(mistakes))

    # -- keeping what came of it -----------------------------------------------------------------

    def file(self, name: str, now: float) -> Filed:
        """Keep what came of a session of exploration that has ended; again does no harm. Raises GadError, OSError.

        What could not be kept when it ended, since memory was locked for instance, is kept first.
        """
        self._file_left(name, now)
        directory = self._spool / name
        session = _ended_session(directory)
        labels = session.options.labels
        task_ids = [label.removeprefix(f"{LABEL}:") for label in labels if label.startswith(f"{LABEL}:p")]
        plan = report = None
        if PLANNING in labels:
            plan = self.memory.plan_of(name)
            if session.state == "done" and plan is None:
                ideas = self.read_plan(self._place(session) / PLAN_FILE)
                self.check_approved(ideas, name)
                plan = self.memory.keep_plan(name, now, ideas)
        elif task_ids and (task := self.memory.task(task_ids[0])):
            report = self.memory.keep_report(self._report(task, session, directory, now))
        else:
            raise GadError(f"session {name} is no exploration of a plan that is here")
        return Filed(name, plan, report, tuple(self.memory.judge(now)))

    def _file_left(self, name: str, now: float) -> None:
        """Keep the reports of the latest plan that are missing, except that of the session `name`."""
        for task, directory in self.unfiled():
            if directory.name == name or read_status(directory).get("state") not in ENDED:
                continue
            try:
                self.memory.keep_report(self._report(task, _ended_session(directory), directory, now))
            except (GadError, OSError) as exc:
                self._complain(f"session {directory.name} cannot be filed: {exc}")

    def unfiled(self) -> Iterator[tuple[Task, Path]]:
        """Yield the tasks of the latest plan of which no report is kept yet, and the session that is at each."""
        plans, known = self.memory.plans(), {report.task for report in self.memory.reports()}
        for task in plans[-1].tasks if plans else ():
            directory = None if task.id in known else self._latest(task)[1]
            if directory is not None:
                yield task, directory

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
            proofs, deepens = door.proofs_of(session), task.idea.deepens
            became = became | self.memory.take(task.id, session.name, new, proofs, deepens)
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
            skill=shown.skill if shown.skill and f"sops/{shown.skill}/SOP.md" in became else task.idea.deepens,
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


def _answer_to(question: str, directory: Path) -> bool:
    """Return whether a session was asked just this, and its answer is an approval: its journal says what it was."""
    try:
        records = read_records(conversations(str(directory))[-1][1])
        asked = [record.text.strip() for record in records if isinstance(record, Said)]
        session = replay(records)
    except (IndexError, OSError, GadError):
        return False
    return session.state == "done" and asked == [question.strip()] and is_approval(session.answer)


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
    found, mistakes = dict[str, str](), list[str]()
    top = place / PROPOSED
    if os.path.lexists(top) and (top.is_symlink() or not top.is_dir()):
        raise ValueError(f"{PROPOSED} is a link or a file; it must be a directory")
    for number, path in enumerate(_files(top)):
        if number == MOST_PROPOSED:
            mistakes.append(f"{PROPOSED}: more than {MOST_PROPOSED} files are too many; keep the best")
            break
        inside = str(path.relative_to(top))
        try:
            check_proposal(inside)
            found[inside] = read_text(path)
        except (MemoryRefused, ValueError) as exc:
            mistakes.append(f"{PROPOSED}/{exc}")
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return found


def _files(top: Path) -> Iterator[Path]:
    """Yield what lies below a directory; also directories that are not gone into: links, and what is too deep."""
    for place, directories, files in os.walk(top):
        deep = len(Path(place).relative_to(top).parts) >= DEEPEST
        odd = [name for name in directories if deep or os.path.islink(os.path.join(place, name))]
        directories[:] = [name for name in directories if name not in odd]
        yield from (Path(place, name) for name in sorted(files + odd))


def _ended_session(directory: Path) -> Session:
    """Return a session that has ended. Raises GadError."""
    found = conversations(str(directory)) if directory.is_dir() else []
    if not found:
        raise GadError(f"there is no session {directory.name} with a journal; gad ps lists them")
    session = replay(read_records(found[-1][1]))
    if session.state not in ENDED:
        raise GadError(f"session {directory.name} has not ended (it is {session.public_state})")
    return session
