"""What the memory controller looks at and what it may do: the state key and the nine actions.

Source of all constants: MemCon, arXiv 2607.13591. The controller itself is `gad.core.memcon`, its policy
`gad.core.memcon_policy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

Phase = Literal["early", "mid", "late"]
Stage = Literal["cold", "warm"]
Point = Literal["start", "stuck", "phase"]
Operation = Literal["retrieve", "plan", "widen", "consolidate", "forget", "none"]

MID, LATE = 8, 18
"""The steps at which the phases mid and late begin."""
STUCK = 2
"""Consecutive repeats of an action with which an agent counts as stuck: the same action three times running."""
COLD_TASKS = 16
"""The first tasks (zero-based index 0 to 15) are the cold stage of learning."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What the caller knows at a decision point; every number counts from zero, a negative one raises ValueError.

    `step`: completed tool calls of this task. `repeats`: how often the latest action has just been repeated (see
    `repeats`). `held`: outputs written and not yet checked. `visited`: distinct files and hosts touched.
    `memory`: active records in memory, failed ones included and forgotten ones not.
    """

    step: int = 0
    repeats: int = 0
    held: int = 0
    visited: int = 0
    memory: int = 0

    def __post_init__(self) -> None:
        if min(self.step, self.repeats, self.held, self.visited, self.memory) < 0:
            raise ValueError(f"a situation counts from zero: {self}")

    @property
    def phase(self) -> Phase:
        """How far the task has come: early (steps 0 to 7), mid (8 to 17) or late."""
        if self.step < MID:
            return "early"
        return "mid" if self.step < LATE else "late"

    @property
    def stuck(self) -> bool:
        """Whether the same action came three times running."""
        return self.repeats >= STUCK


class StateKey(NamedTuple):
    """One row of the table. `held`, `visited` and `memory` are bins, not counts; the order is the paper's."""

    goal_type: str
    phase: Phase
    stuck: bool
    held: int
    visited: int
    memory: int
    plan: bool
    stage: Stage

    def __str__(self) -> str:
        told = ("no", "yes")
        return (
            f"goal={self.goal_type} phase={self.phase} stuck={told[self.stuck]} held={self.held} "
            f"visited={self.visited} memory={self.memory} plan={told[self.plan]} stage={self.stage}"
        )


def state_key(goal_type: str, situation: Situation, *, plan: bool, task: int) -> StateKey:
    """Return the row for a situation; `plan`: the goal type has one; `task`: the zero-based index of the task."""
    return StateKey(
        goal_type,
        situation.phase,
        situation.stuck,
        min(situation.held, 2),
        min(situation.visited // 3, 4),
        min(situation.memory // 10, 5),
        plan,
        "cold" if task < COLD_TASKS else "warm",
    )


def repeats(actions: Sequence[str]) -> int:
    """Return how many of the latest actions repeat the one before: 0 for a, 1 for a a, 2 for a a a (stuck)."""
    count = 0
    for before, after in reversed(list(pairwise(actions))):
        if before != after:
            break
        count += 1
    return count


def decision_point(last: Situation | None, now: Situation) -> Point | None:
    """Say why a decision is due now, or None when none is.

    It is due at the start of a task (`last`, the situation at the step before, is None), when the agent has just
    got stuck (not as long as it stays so), and when a phase has just begun.
    """
    if last is None:
        return "start"
    if now.stuck and not last.stuck:
        return "stuck"
    return "phase" if now.phase != last.phase else None


@dataclass(frozen=True, slots=True)
class Action:
    """A way to use memory. `top_k` pointers and `insight_k` facts are retrieved, links followed `hop` times."""

    index: int
    name: str
    operation: Operation
    prior: float
    top_k: int = 0
    insight_k: int = 0
    hop: int = 0


ACTIONS = (
    Action(0, "shallow", "retrieve", 0.5, 1, 3, 1),
    Action(1, "medium", "retrieve", 0.5, 2, 5, 1),
    Action(2, "deep", "retrieve", 0.5, 3, 8, 2),
    Action(3, "plan", "plan", 0.3, 1, 3, 0),
    Action(4, "alternative", "widen", 0.1, 2, 5, 2),
    Action(5, "consolidate", "consolidate", 0.0),
    Action(6, "forget", "forget", -0.1),
    Action(7, "minimal", "retrieve", 0.5, 1, 2, 0),
    Action(8, "none", "none", -0.2),
)
"""The nine actions, by index. `prior` is what an action is believed to be worth before anything is learnt."""

ALTERNATIVE = "alternative approach"
"""What `widen` appends to the query."""
