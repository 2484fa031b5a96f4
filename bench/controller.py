"""What the memory controller learns, set beside simple rules, in a made-up world over real files. No model.

    python -m bench controller

Each run has a memory directory of its own with a real `MemoryStore`. Tasks come in four kinds, told apart by a label;
each task is a real `Session` of records. An agent is simulated: it reads what the directive in its anchor names, line
by line, and nothing else. A task succeeds when all that it needs was among those lines, and nothing that misleads.
When it has not succeeded by its first reading it repeats itself until it is stuck, which is a second decision.

| kind    | needs                                                       | what does best                       |
|---------|-------------------------------------------------------------|--------------------------------------|
| files   | one SOP, which fits the query best                          | minimal: others read more in vain    |
| code    | that SOP, and a fact two links behind it                    | deep; alternative                    |
| web     | nothing; the SOPs and facts that fit the query are outdated | none, or tidying up: nothing is read |
| trigger | an SOP that fits the query worse than two others            | deep, then alternative: both of them |

Tokens are those of the lines read, estimated by `gad.core.weights`; the always-on text is left out, as it is the same
for all. `deep` and `L1 only` take one action always, `random` one of nine each time; `best fixed` is the best single
action, known only afterwards. The world says nothing about how often real memories mislead or whether real models
follow a directive: it shows that the parts work together, what learning costs, and where it loses.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Row, Scale, single, spread
from gad.core import directive
from gad.core.memcon_policy import Policy, choose
from gad.core.memcon_policy import Row as TableRow
from gad.core.memcon_state import ACTIONS
from gad.core.messages import Assistant, ToolCall, ToolResult, Usage
from gad.core.records import Answered, Begin, Calling, Decided, Ended, Record, Said, ToolFinished, ToolStarted
from gad.core.session import Session
from gad.core.situation import standing
from gad.core.sop import Sop, render_sop
from gad.core.task import TaskOptions
from gad.core.weights import tokens
from gad.memory.controller import Controller
from gad.memory.store import MemoryStore

KINDS = ("files", "code", "web", "trigger")
SUBJECTS = ("amber", "basalt", "coral", "diamond", "emerald", "flint")
"""What tasks are about; each kind has something in memory for each of them."""
REPEATS = 3
"""Equal calls that a simulated agent makes when it does not get on: so many make it stuck."""

_TIDYING = ("consolidate", "forget")
"""Always taken, these read nothing, as `none` does."""
_STEPS = "".join(f"{number}. step {number} of what has to be done here, with its pitfall\n" for number in range(1, 13))


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's run with one seed: each task's kind, whether it succeeded, and the tokens that were read for it."""

    kinds: tuple[str, ...]
    hits: tuple[bool, ...]
    read: tuple[float, ...]
    seconds: tuple[float, ...]

    def rate(self, last: float = 1.0, kind: str = "") -> float:
        """Return the share of successes, in percent, among the last tasks, of one kind or all; 0 without any."""
        begin = len(self.hits) - max(1, round(len(self.hits) * last))
        hits = [hit for one, hit in zip(self.kinds[begin:], self.hits[begin:], strict=True) if kind in ("", one)]
        return 100 * statistics.fmean(hits) if hits else 0.0


def controller(scale: Scale, folder: Path) -> list[Row]:
    """Return the comparison, and how long one decision takes."""
    tasks, seeds = min(200, max(12, scale.samples)), 3 if scale.samples > 10 else 1
    policies: dict[str, list[Policy]] = {
        "learned": [choose] * seeds,
        "random": [_random(seed) for seed in range(seeds)],
        **{
            f"always {action.name}": [_always(action.index)] * seeds
            for action in ACTIONS
            if action.name not in _TIDYING
        },
    }
    results = {
        name: [
            asyncio.run(run(folder / f"{name}-{seed}".replace(" ", "-"), policy, tasks, seed))
            for seed, policy in enumerate(chosen)
        ]
        for name, chosen in policies.items()
    }
    fixed = [name for name in results if name.startswith("always ")]
    best = max(fixed, key=lambda name: (_rate(results[name]), -_read(results[name])))
    shown = {
        "learned": ("learned", "the controller"),
        "deep": ("always deep", ""),
        "L1 only": ("always none", "action 8 always"),
        "random": ("random", ""),
        "best fixed": (best, f"{best}; known only afterwards"),
    }
    rows = []
    for title, (name, note) in shown.items():
        found = results[name]
        against = [text for text in (note, _against(title, results, name, 1.0)) if text]
        rows.append(single(f"controller: hits, {title}", "%", _rate(found), note=_told("; ".join(against), found, 1.0)))
        rows.append(single(f"controller: hits of the last third, {title}", "%", _rate(found, 1 / 3),
                           note=_told(_against(title, results, name, 1 / 3), found, 1 / 3)))  # fmt: skip
        rows.append(single(f"controller: tokens read a task, {title}", "tokens", _read(found), note=note))
    rows += [_by_kind(kind, results) for kind in KINDS]
    samples = [1000 * seconds for one in results["learned"] for seconds in one.seconds]
    rows.append(spread("controller: a decision", "ms", samples, {"p50": 50.0, "p99": 500.0}))
    return rows


async def run(root: Path, policy: Policy, tasks: int, seed: int) -> Result:
    """Play so many tasks, whose order depends on the seed alone."""
    store = MemoryStore(str(root))
    store.prepare()
    fill(store)
    made = Controller(store, policy=policy)
    drawn = random.Random(seed)
    kinds, hits, read, seconds = [], [], [], []
    for number in range(tasks):
        kind, subject = drawn.choice(KINDS), drawn.choice(SUBJECTS)
        hit, cost, took = await play(made, number, kind, subject)
        kinds.append(kind)
        hits.append(hit)
        read.append(cost)
        seconds += took
    return Result(tuple(kinds), tuple(hits), tuple(read), tuple(seconds))


def fill(store: MemoryStore) -> None:
    """Write the world into memory."""
    for path, text in _world():
        store.commit(path, lambda before, text=text: text, who="user")  # type: ignore[misc]


async def play(made: Controller, number: int, kind: str, subject: str) -> tuple[bool, float, list[float]]:
    """Play one task; return whether it succeeded, the tokens read for it, and the seconds each decision took."""
    session = Session()
    session.record(Begin(float(number), f"task-{number}", TaskOptions(labels=(kind,)), memory="told"))
    session.record(Said(float(number), 1, "input.txt", _task(kind, subject)))
    seen: list[str] = []
    cost, seconds, calls = 0.0, [], 0
    for _ in range(2):
        began = time.perf_counter()
        decided: Decided | None = await made.decide(session)
        seconds.append(time.perf_counter() - began)
        if decided is not None:
            session.record(decided)
        for spot in directive.spots(standing(session)):
            lines = Path(spot.path).read_text("utf-8").splitlines()
            told = [lines[line - 1] for line in spot.lines if line <= len(lines)]
            seen += told
            cost += tokens("\n".join(told))
            calls += 1
            _append(session, _call(calls, "file_read", {"path": spot.path}))
        if _done(kind, subject, seen):
            break
        for _ in range(REPEATS):
            calls += 1
            _append(session, _call(calls, "code_run", {"code": f"try {subject}"}))
    hit = _done(kind, subject, seen)
    session.record(Ended(float(number), "done"))
    await asyncio.to_thread(made.ended, session, hit)
    return hit, cost, seconds


def _world() -> Iterator[tuple[str, str]]:
    """Yield paths and texts. What a link leads to shares no word with the task, so that nothing else finds it."""
    for subject in SUBJECTS:
        hidden = subject[::-1]
        yield _sop(f"files-{subject}", _task("files", subject), f"mark files {subject}\n{_STEPS}")
        yield _sop(f"code-{subject}", _task("code", subject), f"mark code {subject}\n{_STEPS}See facts/{hidden}.md.\n")
        yield f"facts/{hidden}.md", f"# {hidden}\n\n## place\n- it stands in facts/{hidden}-port.md\n"
        yield f"facts/{hidden}-port.md", f"# port\n\n## {hidden}\n- mark linked {hidden}\n"
        for old in range(3):
            yield _sop(f"web-{subject}-{old}", _task("web", subject), f"mark outdated {subject}\n{_STEPS}")
        for old in range(2):
            yield _sop(f"trigger-{subject}-{old}", _task("trigger", subject), f"nothing of use\n{_STEPS}")
        yield _sop(f"other-{subject}", f"trigger{subject}", f"mark trigger {subject}\n{_STEPS}{_STEPS}")
    facts = "".join(f"- {_task('web', subject)}: mark outdated {subject}\n" for subject in SUBJECTS)
    yield "facts/web.md", f"# Web\n\n## jobs\n{facts}"


def _task(kind: str, subject: str) -> str:
    """Return what a task says; its subject is a word that other kinds do not have."""
    return f"{kind} {kind}{subject} job"


def _sop(name: str, trigger: str, body: str) -> tuple[str, str]:
    return f"sops/{name}/SOP.md", render_sop(Sop(name, (trigger,), "jobs", body=body))


def _done(kind: str, subject: str, seen: Sequence[str]) -> bool:
    """Return whether what was read does the task."""
    text = "\n".join(seen)
    match kind:
        case "files":
            return f"mark files {subject}" in text
        case "code":
            return f"mark code {subject}" in text and f"mark linked {subject[::-1]}" in text
        case "web":
            return f"mark outdated {subject}" not in text
    return f"mark trigger {subject}" in text


def _call(number: int, name: str, arguments: dict[str, object]) -> list[Record]:
    call = ToolCall(f"c{number}", name, arguments)
    return [
        Calling(float(number), number, "simulated"),
        Answered(float(number), number, Assistant((call,)), "tools", "simulated", Usage(), None),
        ToolStarted(float(number), call.id, name),
        ToolFinished(float(number), ToolResult(call.id, "ok", "")),
    ]


def _append(session: Session, records: Sequence[Record]) -> None:
    for record in records:
        session.record(record)


def _always(index: int) -> Policy:
    return lambda row, allowed: (index, "fixed")


def _random(seed: int) -> Policy:
    drawn = random.Random(seed)

    def policy(row: TableRow, allowed: Collection[int]) -> tuple[int, str]:
        return drawn.choice(sorted(allowed)), "random"

    return policy


def _by_kind(kind: str, results: Mapping[str, Sequence[Result]]) -> Row:
    """Return the row that sets what was learnt for one kind of task beside the best single action for it."""

    def rate(name: str) -> float:
        return statistics.fmean(one.rate(1 / 3, kind) for one in results[name])

    best = max(
        (name for name in results if name.startswith("always ")), key=lambda name: (rate(name), -_read(results[name]))
    )
    difference = rate("learned") - rate(best)
    word = "wins" if difference > 0 else "LOSES" if difference < 0 else "ties"
    note = f"of the last third; best for it, {best}: {rate(best):.0f}; learned {word} by {abs(difference):.0f}"
    return single(f"controller: hits, learned, {kind}", "%", max(0.001, rate("learned")), note=note)


def _rate(results: Sequence[Result], last: float = 1.0) -> float:
    return statistics.fmean(one.rate(last) for one in results)


def _read(results: Sequence[Result]) -> float:
    """Return the tokens read a task; at least one thousandth, as a figure of a row is never zero."""
    return max(0.001, statistics.fmean(cost for one in results for cost in one.read))


def _told(note: str, results: Sequence[Result], last: float) -> str:
    rates = [one.rate(last) for one in results]
    seeds = f"{len(rates)} seeds: {min(rates):.0f} to {max(rates):.0f}"
    return f"{note}; {seeds}" if note else seeds


def _against(title: str, results: Mapping[str, Sequence[Result]], name: str, last: float) -> str:
    """Return whether what was learnt does better than another policy, empty for itself."""
    if title == "learned":
        return ""
    difference = _rate(results["learned"], last) - _rate(results[name], last)
    return f"learned {'wins' if difference > 0 else 'LOSES' if difference < 0 else 'ties'} by {abs(difference):.1f}"
