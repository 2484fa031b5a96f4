"""The memory controller: decides how memory is used, and learns from how tasks end. No model is asked.

An episode is one task: `begin`, then any number of decisions (`decide`, or `execute` to have the action performed on
a backend too), then `finish`. The outcome must be a fact, such as an exit code, a task's own check or a user's word;
never what the model claims. When it is not known, nothing is learnt until `feedback` tells it.

A `MemCon` is a value: it reads no clock and draws no lots, so the same calls give the same decisions, and what
`to_json` returns is all of it. It has no lock: whoever keeps it in a file loads, calls and saves under one, together
with the memory that the records go to, before acting on what was decided.

Source: MemCon, arXiv 2607.13591.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gad.core.memcon_actions import Backend, Performed, need, perform
from gad.core.memcon_json import (
    SCHEMA,
    Episode,
    episode_from_json,
    episode_to_json,
    number,
    table_from_json,
    table_to_json,
    text,
    texts,
)
from gad.core.memcon_policy import Policy, Row, Table, choose, credit, reward
from gad.core.memcon_state import ACTIONS, Action, Situation, StateKey, state_key
from gad.core.retrieval import EVERYTHING, Entry, Support

PLAN_STORED, PLAN_SHOWN = 15, 8
"""Actions of a plan that are stored, and of these the ones that are shown."""
ACTION_LENGTH = 120
"""Characters that are kept of one action, in a plan and in a record."""
QUERY_LENGTH = 500
"""Characters that are kept of an episode's first query, which is what its record is found by."""
HELD = 500
"""Open episodes that are held, and so many that wait for feedback; the oldest one gives way."""

_NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?![A-Za-z\d])")


@dataclass(frozen=True, slots=True)
class Flags:
    """Where the paper and its authors' code differ; the defaults are the paper's.

    `bonus_on_failure`: a failure earns the bonus for few steps too. `maintenance_retrieves`: consolidate and forget
    also retrieve, as much as the action medium. `feasibility_mask`: an action without effect is not chosen: the plan
    where there is none, and what the backend does not support.
    """

    bonus_on_failure: bool = True
    maintenance_retrieves: bool = False
    feasibility_mask: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided in which state; `reason` is for people."""

    episode: str
    state: StateKey
    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """An episode whose outcome is learnt: its reward, how many decisions were credited, and its record to store."""

    episode: str
    success: bool
    reward: float
    credited: int
    record: Entry


class MemCon:
    """The controller. Episodes are named by the ids that `begin` returns and may overlap.

    `policy` is how an action is chosen; another one than the default is for comparisons.
    """

    def __init__(self, flags: Flags | None = None, policy: Policy = choose) -> None:
        self.flags = flags or Flags()
        self._policy = policy
        self.task_index = 0
        self.updates = 0
        self._table: Table = {}
        self._plans: dict[str, tuple[str, ...]] = {}
        self._open: dict[str, Episode] = {}
        self._waiting: dict[str, Episode] = {}

    @property
    def table(self) -> Mapping[StateKey, Row]:
        """Every state that a decision was made in, with its values and counts; to be read only."""
        return self._table

    @property
    def open(self) -> tuple[str, ...]:
        """The episodes that are not finished, oldest first."""
        return tuple(self._open)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The finished episodes whose outcome is not known, oldest first."""
        return tuple(self._waiting)

    @property
    def plans(self) -> Mapping[str, tuple[str, ...]]:
        """The part that is shown of each goal type's plan."""
        return {goal_type: plan[:PLAN_SHOWN] for goal_type, plan in self._plans.items()}

    def plan(self, goal_type: str) -> tuple[str, ...]:
        """Return the part of a goal type's plan that is shown, empty when there is no plan."""
        return self._plans.get(goal_type, ())[:PLAN_SHOWN]

    def begin(self, goal_type: str, query: str = "") -> str:
        """Begin an episode and return its id. Every goal type has a table of its own: let there be few of them.

        `query` is what the episode's record will be found by; without it, the first one that is executed.
        """
        begun = Episode(goal_type, self.task_index, _clip(query, QUERY_LENGTH))
        _hold(self._open, begun)
        self.task_index += 1
        return begun.id

    def decide(self, episode: str, situation: Situation, supports: Collection[Support] = EVERYTHING) -> Decision:
        """Choose an action. An episode that is not open raises KeyError.

        The choice counts at once, so that two decisions of one episode in the same state try different actions.
        """
        held = self._open[episode]
        has_plan = held.goal_type in self._plans
        state = state_key(held.goal_type, situation, plan=has_plan, task=held.task)
        row = self._table.setdefault(state, Row())
        index, reason = self._policy(row, self._allowed(has_plan, supports))
        row.counts[index] += 1
        self._open[episode] = replace(held, decisions=(*held.decisions, (state, index)))
        return Decision(episode, state, ACTIONS[index], reason)

    def execute(
        self,
        episode: str,
        query: str,
        situation: Situation,
        backend: Backend,
        read: Collection[str] = frozenset(),
    ) -> tuple[Decision, Performed]:
        """Choose an action and perform it; `read` are the ids that this session has read, see `perform`.

        The first query of an episode is kept for its record. An episode that is not open raises KeyError.
        """
        decision = self.decide(episode, situation, backend.supports)
        held = self._open[episode]
        if not held.query:
            self._open[episode] = replace(held, query=_clip(query, QUERY_LENGTH))
        plan = self.plan(held.goal_type)
        retrieves = self.flags.maintenance_retrieves
        return decision, perform(decision.action, query, backend, plan, read, maintenance_retrieves=retrieves)

    def finish(self, episode: str, success: bool | None, steps: int, observed_actions: Sequence[str]) -> Settled | None:
        """End an episode after `steps` steps; `success` is None when the outcome is unknown or it was cancelled.

        An unknown outcome changes no value and returns None: the episode waits for `feedback`. An episode that is
        not open, for one because it was finished before, changes nothing and returns None too.
        """
        if steps < 0:
            raise ValueError(f"steps count from zero: {steps}")
        held = self._open.pop(episode, None)
        if held is None:
            return None
        actions = tuple(_clip(action, ACTION_LENGTH) for action in observed_actions[:PLAN_STORED])
        held = replace(held, steps=steps, actions=actions)
        if success is None:
            _hold(self._waiting, held)
            return None
        return self._settle(held, success)

    def feedback(self, episode: str, success: bool) -> Settled | None:
        """Tell the outcome of a finished episode whose outcome was unknown.

        It is applied once. For any other episode (settled before, open, never begun) nothing changes and None is
        returned.
        """
        held = self._waiting.pop(episode, None)
        return None if held is None else self._settle(held, success)

    def to_json(self) -> dict[str, Any]:
        """Return all that is known, as a value for `json.dumps`; the flags are configuration and no part of it."""
        return {
            "schema": SCHEMA,
            "task_index": self.task_index,
            "updates": self.updates,
            "rows": table_to_json(self._table),
            "plans": {goal_type: list(plan) for goal_type, plan in self._plans.items()},
            "open": list(map(episode_to_json, self._open.values())),
            "waiting": list(map(episode_to_json, self._waiting.values())),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], flags: Flags | None = None, policy: Policy = choose) -> MemCon:
        """Return the controller that `to_json` told of; another schema version or a damaged value raises ValueError."""
        made = cls(flags, policy)
        try:
            if value["schema"] != SCHEMA:
                raise ValueError(f"controller state of schema {value['schema']!r}, expected {SCHEMA}")
            made.task_index, made.updates = number(value["task_index"]), number(value["updates"])
            made._table = table_from_json(value["rows"])
            made._plans = {text(goal_type): texts(plan) for goal_type, plan in value["plans"].items()}
            for held, kept in (("open", made._open), ("waiting", made._waiting)):
                for item in value[held]:
                    episode = episode_from_json(item, made._table)
                    if episode.id in made._open or episode.id in made._waiting or episode.task >= made.task_index:
                        raise ValueError(f"an episode out of line: {episode.id}")
                    kept[episode.id] = episode
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise ValueError(f"controller state is damaged: {error!r}") from error
        return made

    def _allowed(self, has_plan: bool, supports: Collection[Support]) -> Collection[int]:
        """Return the actions to choose among: all, unless the feasibility mask is on."""
        if not self.flags.feasibility_mask:
            return range(len(ACTIONS))
        return [a.index for a in ACTIONS if (has_plan if a.operation == "plan" else need(a) in (None, *supports))]

    def _settle(self, held: Episode, success: bool) -> Settled:
        earned = reward(success, held.steps, bonus_on_failure=self.flags.bonus_on_failure)
        if held.decisions:
            credit(self._table, held.decisions, earned)
            self.updates += 1
        if success and held.actions:
            self._plans[held.goal_type] = tuple(map(generalise, held.actions))
        return Settled(held.id, success, earned, len(held.decisions), _record(held, success))


def generalise(action: str) -> str:
    """Return an action with each number that stands by itself replaced: "open report_17" gives "open report_<id>"."""
    return _NUMBER.sub("<id>", action)


def _record(held: Episode, success: bool) -> Entry:
    """Return what memory should keep of an episode. Its links are for the caller to add."""
    actions = "; ".join(held.actions) or "no actions"
    told = f"{held.query or held.goal_type}\n{'done' if success else 'failed'} in {held.steps} steps: {actions}"
    return Entry(f"episode-{held.task}", told, kind="episode", failed=not success)


def _hold(episodes: dict[str, Episode], episode: Episode) -> None:
    """Hold an episode; the oldest one gives way when there are too many."""
    if len(episodes) >= HELD:
        del episodes[next(iter(episodes))]
    episodes[episode.id] = episode


def _clip(told: str, length: int) -> str:
    return told if len(told) <= length else told[: length - 1] + "…"
