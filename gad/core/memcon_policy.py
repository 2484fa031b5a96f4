"""How the memory controller chooses and learns: a tabular UCB policy with credit in reverse order.

Source: MemCon, arXiv 2607.13591. There is no bootstrap from later values and a value is no sample mean: with a
constant learning rate it follows the latest rewards, and no convergence is promised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, MutableMapping, Sequence
from dataclasses import dataclass, field

from gad.core.memcon_state import ACTIONS, StateKey

LEARNING_RATE = 0.15
"""alpha: the share of the difference between reward and value that is learnt at once."""
DISCOUNT = 0.9
"""gamma: what a decision's credit is multiplied by for each decision that came after it."""
EXPLORATION = 1.4
"""c: the weight of the exploration term."""
STEP_LIMIT = 30
"""T_max: from so many steps on a task earns no bonus for being short."""
EFFICIENCY = 0.3
"""The bonus of a task without steps."""
FAILURE = -0.5
"""What a failure earns, before the bonus; a success earns 1."""


@dataclass(slots=True)
class Row:
    """What is known in one state: each action's value (Q), beginning with the priors, and how often it was chosen."""

    values: list[float] = field(default_factory=lambda: [action.prior for action in ACTIONS])
    counts: list[int] = field(default_factory=lambda: [0] * len(ACTIONS))


Table = MutableMapping[StateKey, Row]
Policy = Callable[[Row, Collection[int]], tuple[int, str]]
"""Takes a state's row and the actions that are allowed, and returns one of them and why; `choose` is the one in use."""


def choose(row: Row, allowed: Collection[int]) -> tuple[int, str]:
    """Return the index of the action to take among `allowed`, which is not empty, and why.

    An action that was never chosen in this state comes first, the one of the highest value before the others; when
    there is none left, the one with the largest Q + c * sqrt(ln(sum of the row's counts) / the action's count). The
    lowest index wins a tie.
    """
    candidates = sorted(allowed)
    if untried := [index for index in candidates if row.counts[index] == 0]:
        best = max(untried, key=lambda index: row.values[index])
        return best, f"never chosen in this state, value {row.values[best]:.3f}"
    total = sum(row.counts)
    bonus = {index: EXPLORATION * math.sqrt(math.log(total) / row.counts[index]) for index in candidates}
    best = max(candidates, key=lambda index: row.values[index] + bonus[index])
    times = f"chosen {row.counts[best]} of {total} times in this state"
    return best, f"value {row.values[best]:.3f} + exploration {bonus[best]:.3f}, {times}"


def reward(success: bool, steps: int, *, bonus_on_failure: bool = True) -> float:
    """Return (1 or -0.5) + 0.3 * max(0, 1 - steps / 30); a failure gets the bonus too unless told otherwise."""
    if steps < 0:
        raise ValueError(f"steps count from zero: {steps}")
    bonus = EFFICIENCY * max(0.0, 1 - steps / STEP_LIMIT) if success or bonus_on_failure else 0.0
    return (1.0 if success else FAILURE) + bonus


def credit(table: Table, decisions: Sequence[tuple[StateKey, int]], earned: float) -> None:
    """Credit an episode's reward to its decisions, last first: Q += alpha * (gamma**i * reward - Q).

    i counts from the last decision. A pair of state and action that was decided twice is credited twice.
    """
    for i, (state, action) in enumerate(reversed(decisions)):
        values = table[state].values
        values[action] += LEARNING_RATE * (DISCOUNT**i * earned - values[action])
