"""The JSON forms of the memory controller's parts. What is read is checked: the file may be damaged or edited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from gad.core.memcon_policy import Row, Table
from gad.core.memcon_state import ACTIONS, Phase, Stage, StateKey

SCHEMA = 1
"""The version of the controller's JSON form."""

_KEY_TYPES = (str, str, bool, int, int, int, bool, str)


@dataclass(frozen=True, slots=True)
class Episode:
    """What is held of one task: `task` is its zero-based index, `decisions` its states and actions, in order.

    `query` is the first one. `steps` and `actions`, what the agent really did, are known once it is finished.
    """

    goal_type: str
    task: int
    query: str = ""
    decisions: tuple[tuple[StateKey, int], ...] = ()
    steps: int = 0
    actions: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The name that it is known by outside."""
        return f"e{self.task}"


def table_to_json(table: Table) -> list[dict[str, Any]]:
    """Return the table's rows, in the order in which they were first seen."""
    return [{"state": list(state), "values": [*row.values], "counts": [*row.counts]} for state, row in table.items()]


def table_from_json(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table; a row without all its values and counts raises ValueError."""
    table: Table = {}
    for item in rows:
        row = Row([_real(value) for value in item["values"]], [number(count) for count in item["counts"]])
        if not len(row.values) == len(row.counts) == len(ACTIONS):
            raise ValueError(f"a row needs {len(ACTIONS)} values and as many counts: {item}")
        state = _state(item["state"])
        if state in table:
            raise ValueError(f"a state has two rows: {item['state']}")
        table[state] = row
    return table


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """Return an episode with each decision as a pair of state and action."""
    decisions = [[list(state), action] for state, action in episode.decisions]
    return asdict(episode) | {"decisions": decisions, "actions": list(episode.actions)}


def episode_from_json(item: Mapping[str, Any], table: Table) -> Episode:
    """Return an episode; a decision that `table` has no row for raises ValueError."""
    decisions = tuple((_state(state), number(action)) for state, action in item["decisions"])
    for state, action in decisions:
        if state not in table or action >= len(ACTIONS):
            raise ValueError(f"a decision without a row: {state}, action {action}")
    return Episode(
        text(item["goal_type"]),
        number(item["task"]),
        text(item["query"]),
        decisions,
        number(item["steps"]),
        texts(item["actions"]),
    )


def number(value: object) -> int:
    """Return a whole number from zero on as it is; raise ValueError for anything else."""
    if type(value) is not int or value < 0:
        raise ValueError(f"not a whole number from zero on: {value!r}")
    return value


def text(value: object) -> str:
    """Return a string as it is; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"not a text: {value!r}")
    return value


def texts(value: object) -> tuple[str, ...]:
    """Return a list of strings as a tuple; raise ValueError for anything else."""
    if not isinstance(value, list):
        raise ValueError(f"not a list of texts: {value!r}")
    return tuple(text(item) for item in value)


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"not a finite number: {value!r}")
    return float(value)


def _state(parts: list[Any]) -> StateKey:
    if [type(part) for part in parts] != list(_KEY_TYPES):
        raise ValueError(f"not a state: {parts!r}")
    state = StateKey(*parts)
    if state.phase not in get_args(Phase) or state.stage not in get_args(Stage):
        raise ValueError(f"not a state: {parts!r}")
    return state
