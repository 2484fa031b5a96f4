"""A plan of explorations as a value: what a planning session writes, checked and scored.

A planning session writes plan.json:

    {"tasks": [{"title": "...", "category": "...", "deepens": "a skill" or null, "goal": "...", "why": "...",
                "utility": 1 to 10, "innovation": 1 to 10}, ...]}

`read_tasks` raises ValueError that names every mistake; `scored` makes a plan of it, the best task first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from gad.core.explore import Scores, Tree, Weights, breadth, depth, from_json, number, total, words
from gad.core.sop import GROUP, GROUP_RULE

CATEGORIES = 4
"""Categories that a plan must span, at least."""
MOST = 12
"""Tasks of a plan, at most."""
_LENGTHS = {"title": 80, "goal": 1000, "why": 500}
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters and halves of characters."""
_KEYS = frozenset({"title", "category", "deepens", "goal", "why", "utility", "innovation"})


@dataclass(frozen=True, slots=True)
class Idea:
    """A task as the planner has written it. `deepens` names the skill that it works on, None when it is a new one."""

    title: str
    category: str
    goal: str
    why: str
    utility: float
    innovation: float
    deepens: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a plan. `id` is the plan's with a number, `predicted` its S when the plan was made."""

    id: str
    idea: Idea
    scores: Scores
    predicted: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The explorations that one planning session came up with, the best first. `at` is in seconds since the epoch."""

    id: str
    session: str
    at: float
    tasks: tuple[Task, ...]

    def to_json(self) -> str:
        """Return the plan's file."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read back what `to_json` wrote. Raises ValueError."""
        try:
            data = from_json(text)
            tasks = []
            for one in data["tasks"]:
                if mistakes := [*_mistakes(one["idea"])]:
                    raise ValueError(mistakes[0])
                scores, predicted = Scores.from_json(one["scores"]), number(one["predicted"])
                tasks.append(Task(words(one["id"]), Idea(**one["idea"]), scores, predicted))
            return cls(words(data["id"]), words(data["session"]), number(data["at"]), tuple(tasks))
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"not a plan of explorations: {exc}") from None


def read_tasks(text: str, tree: Tree) -> tuple[Idea, ...]:
    """Return the tasks of a plan.json. Raises ValueError, a line a mistake, each saying where and how to mend it."""
    try:
        data = from_json(text)
    except ValueError as exc:
        raise ValueError(f"plan.json is not JSON: {exc}") from None
    tasks = data.get("tasks") if isinstance(data, dict) else None
    if not isinstance(tasks, list):
        raise ValueError('plan.json must be {"tasks": [...]}')
    if len(tasks) > MOST:
        raise ValueError(f"{len(tasks)} tasks are too many; keep the {MOST} best")
    mistakes = [
        f"task {number}: {what}"
        for number, task in enumerate(tasks, 1)
        for what in (*_mistakes(task), *_deepening(task, tree))
    ]
    titles = [task.get("title") for task in tasks if isinstance(task, dict)]
    mistakes += [
        f"task {number}: title: an earlier task has the same"
        for number, title in enumerate(titles, 1)
        if title in titles[: number - 1]
    ]
    spanned = {str(task.get("category")) for task in tasks if isinstance(task, dict)}
    if len(spanned) < CATEGORIES:
        mistakes.append(f"the tasks span {len(spanned)} categories; {CATEGORIES} at least are wanted")
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return tuple(Idea(**task) for task in tasks)


def _mistakes(task: object) -> Iterator[str]:
    if not isinstance(task, dict):
        yield "must be an object"
        return
    if unknown := sorted(map(str, task.keys() - _KEYS)):
        yield f"{', '.join(unknown)}: no key of a task; there are {', '.join(sorted(_KEYS))}"
    for key, longest in _LENGTHS.items():
        value = task.get(key)
        if not isinstance(value, str) or not value.strip():
            yield f"{key}: must be a text"
        elif len(value) > longest:
            yield f"{key}: has {len(value)} characters; {longest} are the most"
        elif found := _NO_TEXT.search(value):
            yield f"{key}: holds {found[0]!r}, which is no text; leave it out"
    if isinstance(title := task.get("title"), str) and not title.isprintable():
        yield "title: must be one line of printable characters"
    category = task.get("category")
    if not isinstance(category, str) or not GROUP.fullmatch(category) or category != category.lower():
        yield f"category: {GROUP_RULE}"
    for key in ("utility", "innovation"):
        value = task.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 10:
            yield f"{key}: must be a number from 1 to 10"
    if not isinstance(task.get("deepens"), str | None):
        yield "deepens: must be the name of a skill, or null for a new one"


def _deepening(task: object, tree: Tree) -> Iterator[str]:
    name = task.get("deepens") if isinstance(task, dict) else None
    if not isinstance(task, dict) or not isinstance(name, str):
        return
    if (found := tree.skill(name)) is None:
        yield f"deepens: there is no skill {name!r}; name one of the tree, or null for a new one"
    elif found[0] != task.get("category"):
        yield f"deepens: {name} is in the category {found[0]}; align the category"


def scored(plan_id: str, session: str, at: float, ideas: Sequence[Idea], tree: Tree, weights: Weights) -> Plan:
    """Return the plan of these ideas, scored with the tree and the weights of now, the best first."""
    found = []
    for idea in ideas:
        scores = Scores(breadth(tree, idea.category), depth(tree, idea.deepens), idea.utility, idea.innovation)
        found.append((total(scores, weights), scores, idea))
    found.sort(key=lambda one: -one[0])
    tasks = [
        Task(f"{plan_id}-{number}", idea, scores, predicted)
        for number, (predicted, scores, idea) in enumerate(found, 1)
    ]
    return Plan(plan_id, session, at, tuple(tasks))
