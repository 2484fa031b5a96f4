"""What exploration leaves in memory: its plans, its reports, its weights over time, proposals that wait for a person.

    exploration/plans/p3.json       what one planning session came up with
    exploration/reports/p3-2.md     what came of the plan's second task, failures included
    exploration/weights.jsonl       one line each time that the weights of the score have changed, or were tried
    proposals/p3-2/facts/net.md     what the gate did not let into memory by itself, under memory's own path

All of it is written by the store's commits, so it is safe under any number of writers and any crash.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from gad.core.explore import TRIAL, Trial, Weights, adapt, skill_tree, used_within
from gad.core.explore_facts import joined
from gad.core.explore_plan import Idea, Plan, Task, scored
from gad.core.explore_report import Report
from gad.core.gate import Proof, check_change, check_path, check_write, secret_in, without_proof
from gad.core.sop import keep_record, parse_sop
from gad.errors import MemoryRefused
from gad.memory import files
from gad.memory.store import MemoryStore

PLANS, REPORTS, WEIGHTS, PROPOSALS = (
    "exploration/plans",
    "exploration/reports",
    "exploration/weights.jsonl",
    "proposals",
)
WHO = "exploration"
"""Who keeps plans, reports and weights, in changes.jsonl."""
KEPT = "kept"
"""What a report says of a proposal that the gate let in."""

_T = TypeVar("_T")
_PLAN = re.compile(r"p([1-9]\d*)\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A text that waits: the task that it comes from, the file of memory that it is for, why the gate refused it."""

    task: str
    path: str
    text: str
    reason: str

    @property
    def id(self) -> str:
        """Its name for `gad memory review`."""
        return f"{self.task}/{self.path}"


class Exploration:
    """The exploration part of one store. What cannot be read there is passed over and told to `complain`."""

    def __init__(self, store: MemoryStore, complain: Callable[[str], None] = lambda text: None) -> None:
        self._store = store
        self._complain = complain

    # -- plans -----------------------------------------------------------------------------------

    def plans(self) -> list[Plan]:
        """Return all plans, the latest last."""
        found = [(int(match[1]), name) for name in self._names(PLANS) if (match := _PLAN.fullmatch(name))]
        return [plan for _, name in sorted(found) if (plan := self._read(f"{PLANS}/{name}", Plan.from_json))]

    def task(self, task_id: str) -> Task | None:
        """Return a task of any plan."""
        return next((task for plan in self.plans() for task in plan.tasks if task.id == task_id), None)

    def plan_of(self, session: str) -> Plan | None:
        """Return the plan of a planning session."""
        return next((plan for plan in self.plans() if plan.session == session), None)

    def keep_plan(self, session: str, at: float, ideas: Sequence[Idea]) -> Plan:
        """Score and keep the plan of a planning session; what is kept of that session already is returned as it is.

        Raises MemoryLocked, MemoryRefused, OSError.
        """
        tree, weights = skill_tree(self._store.sops()), self.weights()
        while True:
            # The numbers first: when another one keeps this plan meanwhile, it is seen, or it has the same number.
            taken = [int(match[1]) for name in self._names(PLANS) if (match := _PLAN.fullmatch(name))]
            if known := self.plan_of(session):
                return known
            plan = scored(f"p{max(taken, default=0) + 1}", session, at, ideas, tree, weights)

            def unless_there(before: str | None, text: str = plan.to_json()) -> str:
                return text if before is None else before

            if self._store.commit(f"{PLANS}/{plan.id}.json", unless_there, who=WHO).changed:
                return plan

    # -- reports ---------------------------------------------------------------------------------

    def reports(self) -> list[Report]:
        """Return all reports, the latest last."""
        found = [self._read(f"{REPORTS}/{name}", Report.parse) for name in self._names(REPORTS) if name.endswith(".md")]
        return sorted((report for report in found if report), key=lambda report: report.at)

    def keep_report(self, report: Report) -> Report:
        """Keep a report in the place of a former one of its task, and return the one that stands then.

        An attempt that came to no end takes no other one's place that did. Raises MemoryLocked, MemoryRefused, OSError.
        """
        stands = report

        def keep(before: str | None) -> str:
            nonlocal stands
            with contextlib.suppress(ValueError):
                former = Report.parse(before or "")
                if report.outcome == "unfinished" != former.outcome and report.session != former.session:
                    stands = former
            return report.render() if stands is report else before or ""

        self._store.commit(f"{REPORTS}/{report.task}.md", keep, who=WHO)
        return stands

    # -- weights ---------------------------------------------------------------------------------

    def weights(self) -> Weights:
        """Return the weights in force."""
        trials = self.trials()
        return trials[-1].weights if trials else Weights()

    def trials(self) -> list[Trial]:
        """Return the trials that are over, the latest last."""
        return list(self._trials(self._read(WEIGHTS, str) or ""))

    def judge(self, now: float) -> list[Trial]:
        """Adapt the weights by each report whose trial is over by now, and return those.

        Explorations that came to no end teach nothing. Raises MemoryLocked, MemoryRefused, OSError.
        """
        due = [report for report in self.reports() if report.outcome != "unfinished" and report.at + TRIAL <= now]
        judged = {trial.task for trial in self.trials()}
        if all(report.task in judged for report in due):
            return []
        new: list[Trial] = []

        def add(before: str | None) -> str:
            known = list(self._trials(before or ""))
            weights = known[-1].weights if known else Weights()
            for report in due:
                if report.task not in {trial.task for trial in known}:
                    found = report.skill if report.outcome == "success" else None
                    used = used_within(self._store.sop(found), report.at) if found else 0
                    if used is not None:
                        weights = adapt(weights, report.scores, report.predicted, used)
                    new.append(Trial(now, report.task, report.skill, report.predicted, used, weights))
            text = before or ""
            whole = text if not text or text.endswith("\n") else text + "\n"
            return whole + "".join(json.dumps(asdict(trial), ensure_ascii=False) + "\n" for trial in new)

        self._store.commit(WEIGHTS, add, who=WHO)
        return new

    def _trials(self, text: str) -> Iterator[Trial]:
        for number, line in enumerate(text.splitlines(), 1):
            try:
                yield Trial.from_json(line)
            except (AttributeError, KeyError, TypeError, ValueError) as exc:
                self._complain(f"{WEIGHTS}, line {number}, cannot be read: {exc}; mend or remove the line")

    # -- proposals -------------------------------------------------------------------------------

    def take(
        self, task: str, session: str, texts: Mapping[str, str], proofs: Sequence[Proof], deepens: str | None = None
    ) -> dict[str, str]:
        """Take what an exploration proposes, by memory's paths; return what became of each: `kept`, or why it waits.

        The gate judges as it does what a session writes itself; `proofs` are the session's calls. A procedure that is
        there already is replaced only when the task was to improve it (`deepens`). Raises MemoryLocked, OSError.
        """
        found = {}
        for path, text in texts.items():
            try:
                check_proposal(path)
                added, numbers = check_write(path, text, open_phase=True, calls=proofs, session=session)
                gists = {proof.number: proof.gist for proof in proofs}
                evidence = [f"{session}#{number} {gists[number]}" for number in numbers]
                self._let_in(path, added, session, evidence, deepens)
                found[path] = KEPT
            except MemoryRefused as refused:
                found[path] = self._wait(f"{PROPOSALS}/{task}/{path}", text, session) or str(refused)
        return found

    def _wait(self, path: str, text: str, session: str) -> str:
        """Put a text where it waits; return why it cannot, or an empty text."""
        if found := secret_in(text):
            return f"it holds {found}, so it is not even kept to wait; it stays in the session's work directory"
        try:
            self._store.commit(path, lambda before: text, who=session)
        except MemoryRefused as refused:
            return f"it cannot wait: {refused}"
        return ""

    def proposals(self) -> list[Proposal]:
        """Return what waits, with why."""
        reasons = {report.task: report.proposed for report in self.reports()}
        found = []
        for task in self._names(PROPOSALS):
            top = os.path.join(self._store.root, PROPOSALS, task)
            for place, _, names in os.walk(top):
                for name in sorted(name for name in names if not name.startswith(".")):
                    path = os.path.relpath(os.path.join(place, name), top)
                    if not path.isascii() and os.fsencode(path).decode("utf-8", "replace") != path:
                        self._complain(f"{PROPOSALS}/{task}/{path!r}: its name is not UTF-8; rename it")
                        continue
                    text = self._read(f"{PROPOSALS}/{task}/{path}", str)
                    if text is not None:
                        found.append(Proposal(task, path, text, reasons.get(task, {}).get(path, "")))
        return sorted(found, key=lambda one: one.id)

    def present(self, proposal: Proposal) -> str:
        """Return the file of memory that a proposal is for, as it is; an empty text when there is none."""
        return self._read(proposal.path, str) or ""

    def accept(self, proposal: Proposal) -> None:
        """Let a proposal into memory on the user's word; secrets and what passes stay out all the same.

        Raises MemoryLocked, MemoryRefused, OSError.
        """
        check_proposal(proposal.path)
        added = without_proof(proposal.text)
        check_change(proposal.path, None, added, "")
        evidence = [f"proposed by exploration {proposal.task}, accepted by the user"]
        self._store.commit(
            proposal.path, lambda before: _changed(proposal.path, before, added, "user"), who="user", evidence=evidence
        )
        self.reject(proposal)

    def reject(self, proposal: Proposal) -> None:
        """Take a proposal away. Raises MemoryLocked, OSError."""
        self._store.commit(f"{PROPOSALS}/{proposal.id}", lambda before: None, who="user")

    def _let_in(self, path: str, added: str, session: str, evidence: Sequence[str], deepens: str | None) -> None:
        def change(before: str | None) -> str:
            if before is not None and path.endswith("/SOP.md"):
                if session in _provenance(before):  # it was let in before a crash, and may be better since
                    return before
                if path != f"sops/{deepens}/SOP.md":
                    raise MemoryRefused(f"{path} is there already, and the task was not to improve it")
            return _changed(path, before, added, session)

        self._store.commit(path, change, who=session, evidence=evidence)

    # -- reading ---------------------------------------------------------------------------------

    def _names(self, directory: str) -> list[str]:
        try:
            with files.directory(self._store.root, files.parts_of(directory)) as fd:
                return sorted(name for name in os.listdir(fd) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def _read(self, path: str, parse: Callable[[str], _T]) -> _T | None:
        try:
            text = self._store.read(path)
            return None if text is None else parse(text)
        except (MemoryRefused, ValueError) as exc:
            self._complain(f"{path}: {exc}")
            return None


def check_proposal(path: str) -> None:
    """Check that a file of memory can be proposed: facts, the log and procedures. Raises MemoryRefused."""
    check_path(path)
    if path.startswith("sops/") and not path.endswith("/SOP.md"):
        raise MemoryRefused(f"{path}: a script is written by the session that follows its procedure; propose SOP.md")


def _changed(path: str, before: str | None, added: str, who: str) -> str:
    """Return a file of memory with what was proposed. Raises MemoryRefused."""
    if path.endswith("/SOP.md"):
        check_change(path, before, added, who)
        return keep_record(before, added, who)
    after = joined(before or "", added)
    check_change(path, before, after, who)
    return after


def _provenance(text: str) -> tuple[str, ...]:
    try:
        return parse_sop(text).provenance
    except ValueError:
        return ()
