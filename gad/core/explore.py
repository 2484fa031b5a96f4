"""Which exploration is worth its tokens: the skill tree, the score of a task, and how the score's weights learn.

The formulas are those of the GenericAgent report, section 3.3:

    S = wb B + wd D + wu U + wi I                    (2)
    B = 10 max(0, 1 - |Sc| / (mean + 1))             (3)
    D = 10 u / (umax + 1)                            (4)

|Sc| is the number of skills in the task's category and mean that of all categories; u is how often the skill that the
task deepens has been used (0 for a new one) and umax the most that any skill has been used; U and I are the model's own
estimates of utility and innovation, from 1 to 10. All values are from 0 to 10. The skill tree is derived from the
procedures of memory each time, so there is no second truth about them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from gad.core.sop import Sop

DAY = 86400.0
TRIAL = 30 * DAY
"""Seconds after which it is looked at how often what an exploration has found was used."""
TOO_HIGH, FEW = 8.0, 3
"""A task that was predicted more than this and then used less than so often was overrated."""
TOO_LOW, MANY = 5.0, 5
"""A task that was predicted less than this and then used more than so often was underrated."""
LESS, MORE = 0.9, 1.1
"""What the dominant weight is multiplied with then."""

Dimension = Literal["breadth", "depth", "utility", "innovation"]
DIMENSIONS: tuple[Dimension, ...] = ("breadth", "depth", "utility", "innovation")


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each dimension counts; their sum is 1."""

    breadth: float = 0.3
    depth: float = 0.2
    utility: float = 0.3
    innovation: float = 0.2

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Weights:
        """Read back what was kept. Raises KeyError, TypeError, ValueError."""
        found = cls(**{name: number(value) for name, value in data.items()})
        values = asdict(found).values()
        if not all(value >= 0 for value in values) or not sum(values):
            raise ValueError("weights must not be below 0, nor all of them 0")
        return found


@dataclass(frozen=True, slots=True)
class Scores:
    """A task in the four dimensions, each from 0 to 10."""

    breadth: float
    depth: float
    utility: float
    innovation: float

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Scores:
        """Read back what was kept. Raises TypeError, ValueError."""
        return cls(**{name: number(value) for name, value in data.items()})


@dataclass(frozen=True, slots=True)
class Skill:
    """A procedure as a leaf of the tree: how often it was used."""

    name: str
    uses: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The skills by category; a category without skills is not in it."""

    categories: Mapping[str, tuple[Skill, ...]] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The skills of a category on average; 0 in an empty tree."""
        return sum(map(len, self.categories.values())) / len(self.categories) if self.categories else 0.0

    @property
    def most_used(self) -> int:
        """The uses of the skill that is used most."""
        return max((skill.uses for skills in self.categories.values() for skill in skills), default=0)

    def skill(self, name: str) -> tuple[str, Skill] | None:
        """Return a skill with its category."""
        for category, skills in self.categories.items():
            for skill in skills:
                if skill.name == name:
                    return category, skill
        return None


def skill_tree(sops: Iterable[Sop]) -> Tree:
    """Return the tree of these procedures, both levels by name."""
    found: dict[str, list[Skill]] = {}
    for sop in sops:
        found.setdefault(sop.category, []).append(Skill(sop.name, sop.uses))
    return Tree({name: tuple(sorted(found[name], key=lambda skill: skill.name)) for name in sorted(found)})


def breadth(tree: Tree, category: str) -> float:
    """Return B, by formula 3: the fewer skills a category has, the more it gains."""
    return 10 * max(0.0, 1 - len(tree.categories.get(category, ())) / (tree.mean + 1))


def depth(tree: Tree, deepens: str | None) -> float:
    """Return D, by formula 4: what is used often is worth more care. `deepens` names a skill, None a new one."""
    found = tree.skill(deepens) if deepens is not None else None
    return 10 * (found[1].uses if found else 0) / (tree.most_used + 1)


def total(scores: Scores, weights: Weights) -> float:
    """Return S, by formula 2."""
    return sum(parts(scores, weights).values())


def parts(scores: Scores, weights: Weights) -> dict[Dimension, float]:
    """Return what each dimension adds to S."""
    return {name: getattr(weights, name) * getattr(scores, name) for name in DIMENSIONS}


def dominant(scores: Scores, weights: Weights) -> Dimension:
    """Return the dimension that adds most to S; among equals the first of `DIMENSIONS`."""
    shares = parts(scores, weights)
    return max(DIMENSIONS, key=lambda name: shares[name])


def adapt(weights: Weights, scores: Scores, predicted: float, used: int) -> Weights:
    """Return the weights after a task whose trial is over.

    `predicted` is the S that it was chosen by, `used` how often what it has found was used within `TRIAL`. Where both
    fit together nothing changes.
    """
    if predicted > TOO_HIGH and used < FEW:
        factor = LESS
    elif predicted < TOO_LOW and used > MANY:
        factor = MORE
    else:
        return weights
    changed = asdict(weights)
    changed[dominant(scores, weights)] *= factor
    whole = sum(changed.values())
    return Weights(**{name: value / whole for name, value in changed.items()})


def used_within(sop: Sop | None, since: float) -> int | None:
    """Return how often a procedure was used in the `TRIAL` from `since`; 0 when there is none.

    None when nobody knows any more: a procedure remembers its latest runs only, and when all of those came after
    `since`, so may others have. Then it is at least as often as it remembers, which may be enough to know.
    """
    if sop is None:
        return 0
    within = sum(since <= run.at <= since + TRIAL for run in sop.runs)
    forgotten = sop.uses > len(sop.runs) and all(run.at > since for run in sop.runs)
    return None if forgotten and within <= MANY else within


@dataclass(frozen=True, slots=True)
class Trial:
    """A task whose trial is over: how often what it found was used (None: nobody knows any more), the weights since."""

    at: float
    task: str
    skill: str | None
    predicted: float
    used: int | None
    weights: Weights

    @classmethod
    def from_json(cls, text: str) -> Trial:
        """Read back a line. Raises AttributeError, KeyError, TypeError, ValueError."""
        data = from_json(text)
        skill, used = data["skill"], data["used"]
        return cls(
            number(data["at"]),
            words(data["task"]),
            None if skill is None else words(skill),
            number(data["predicted"]),
            None if used is None else int(number(used)),
            Weights.from_json(data["weights"]),
        )


# -- reading back what was kept: anybody may have edited it --------------------------------------

_LARGEST = 1e11
"""More than any number that is kept: as seconds since the epoch it is in the year 5138."""


def from_json(text: str) -> Any:
    """Return what a text of JSON says. Raises ValueError, also when it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def number(value: object) -> float:
    """Return a value that must be a number. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST:
        raise ValueError(f"{value!r:.80} must be a number")
    return value


def words(value: object) -> str:
    """Return a value that must be a text of whole characters. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} must be a text")
    value.encode()  # half a character (a lone surrogate) is a ValueError
    return value
