"""A check that the memory controller's parts work together: decisions, execution, credit, recovery. No model.

It runs the real policy (MemCon, arXiv 2607.13591) on the real built-in memory, in a small generated world:

- Memory begins with 12 generated records, each an SOP that says where one service listens. They compete for `top_k`
  with what is stored later.
- 60 episodes ask for the records, each five times; the seed changes the order and nothing else. All have one goal
  type. The query is made of the record's own words; a record is shorter than what is stored of an episode that asked
  for it, so it ranks before it.
- An episode has two decisions with the same query, at steps 0 and 1, and takes T = 2 steps. It is a success when the
  requested record was in what retrieval really returned at either decision. So it fails when both decisions return
  nothing or something else. (Looking at the second decision alone gives the same figures.)
- Consolidate, forget and no memory return nothing: flags at their defaults.
- Every episode is stored, as a failed record when it failed. The size of memory counts active entries, failed ones
  included, until `forget` takes them out.
- Every decision is made by a controller and a memory that have just been restored from their JSON text.

It follows that memory crosses the bins 1 to 5, and that there is one row more before the first plan and one more where
the cold stage ends within a bin.

This is no evidence of ability: to always take action 0 does better. The report says so in its marks and its figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gad.core.memcon import MemCon
from gad.core.memcon_actions import perform
from gad.core.memcon_policy import reward
from gad.core.memcon_state import ACTIONS, Situation
from gad.core.retrieval import Entry, LexicalMemory

SEEDS = (42, 43, 44)
EPISODES, DECISIONS = 60, 2
GOAL_TYPE = "lookup"

_SERVICES = (
    "amber", "basalt", "coral", "diamond", "emerald", "flint", "garnet", "jade", "marble", "onyx", "pearl", "quartz",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """What a run of the diagnostic gave. `actions` counts the decisions for each action, 0 to 8.

    `always_0_...` is what the same episodes give when action 0 is always taken.
    """

    seed: int
    episodes: int
    decisions: int
    updates: int
    hit_rate: float
    mean_reward: float
    state_rows: int
    memory_entries: int
    actions: tuple[int, ...]
    always_0_hit_rate: float
    always_0_mean_reward: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures with the marks that say what they are not good for."""
        marks = {"diagnostic_only": True, "formal_comparison": False, "promotion_eligible": False}
        return marks | asdict(self) | {"actions": list(self.actions)}

    def lines(self) -> list[str]:
        """Return the report as lines for people."""
        return [
            f"seed {self.seed}: {self.episodes} episodes, {self.updates} updates, {self.decisions} decisions",
            f"hit rate {self.hit_rate:.7f}, mean reward {self.mean_reward:.4f}",
            f"{self.state_rows} state rows, {self.memory_entries} memory entries",
            "actions " + ", ".join(f"{action.name} {self.actions[action.index]}" for action in ACTIONS),
            f"always action 0: hit rate {self.always_0_hit_rate:.7f}, mean reward {self.always_0_mean_reward:.4f}",
            "diagnostic_only = true, formal_comparison = false, promotion_eligible = false",
        ]


def run(seed: int) -> Report:
    """Run the diagnostic with the order of queries that belongs to a seed."""
    records = _records()
    requests = shuffled([number % len(records) for number in range(EPISODES)], seed)
    controller, memory = MemCon(), LexicalMemory(records)
    outcomes = []
    for request in requests:
        episode = controller.begin(GOAL_TYPE)
        returned: set[str] = set()
        for step in range(DECISIONS):
            controller, memory = _restored(controller, memory)
            situation = Situation(step=step, memory=len(memory))
            _, performed = controller.execute(episode, _query(request), situation, memory)
            returned.update(performed.found.ids)
        success = records[request].id in returned
        settled = controller.finish(episode, success, DECISIONS, _observed(request))
        assert settled is not None, "an open episode with a known outcome is settled"
        memory.add(settled.record)
        outcomes.append((success, settled.reward))
    counts = [row.counts for row in controller.table.values()]
    actions = tuple(map(sum, zip(*counts, strict=True)))
    always_0 = _always_0(requests)
    return Report(
        seed=seed,
        episodes=len(outcomes),
        decisions=sum(actions),
        updates=controller.updates,
        hit_rate=_mean([success for success, _ in outcomes]),
        mean_reward=_mean([earned for _, earned in outcomes]),
        state_rows=len(counts),
        memory_entries=len(memory),
        actions=actions,
        always_0_hit_rate=_mean(always_0),
        always_0_mean_reward=_mean([reward(success, DECISIONS) for success in always_0]),
    )


def shuffled(items: Sequence[int], seed: int) -> list[int]:
    """Return the items in an order that depends on the seed alone: Fisher-Yates with a linear congruential generator.

    The generator is Knuth's MMIX (x = 6364136223846793005 x + 1442695040888963407 modulo 2**64), of which the upper
    32 bits are used. It is meant for orders, not for statistics.
    """
    result, state = list(items), seed
    for last in range(len(result) - 1, 0, -1):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        other = (state >> 32) % (last + 1)
        result[last], result[other] = result[other], result[last]
    return result


def _always_0(requests: Sequence[int]) -> list[bool]:
    """Return which episodes succeed when every decision is action 0; what they leave in memory is stored as well."""
    records = _records()
    memory, outcomes = LexicalMemory(records), []
    for number, request in enumerate(requests):
        found = [perform(ACTIONS[0], _query(request), memory).found.ids for _ in range(DECISIONS)]
        success = any(records[request].id in ids for ids in found)
        told = f"{_query(request)}\n{'done' if success else 'failed'}: {'; '.join(_observed(request))}"
        memory.add(Entry(f"episode-{number}", told, kind="episode", failed=not success))
        outcomes.append(success)
    return outcomes


def _records() -> list[Entry]:
    return [
        Entry(f"record-{number}", f"service {name} listens on port {8100 + number}", kind="sop")
        for number, name in enumerate(_SERVICES)
    ]


def _query(request: int) -> str:
    return f"service {_SERVICES[request]} port"


def _observed(request: int) -> tuple[str, str]:
    return f"look up record {request}", f"answer question {request}"


def _restored(controller: MemCon, memory: LexicalMemory) -> tuple[MemCon, LexicalMemory]:
    """Return both as they come back from their JSON text."""
    return (
        MemCon.from_json(json.loads(json.dumps(controller.to_json())), controller.flags),
        LexicalMemory.from_json(json.loads(json.dumps(memory.to_json())), memory.supports),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
