"""What a benchmark returns: rows of one table, each with its figures and, where there is one, its goal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured: the whole, or little enough to see that a benchmark works."""

    samples: int = 250
    stops: int = 100
    long_sessions: int = 10
    burst: int = 600
    waiting: int = 2000
    finished: int = 10_000
    starts: int = 5
    commands: int = 20
    scans: int = 50
    warm: int = 5
    """Samples beforehand that are not counted: the SDK's import, the first connection."""


FULL = Scale()
QUICK = Scale(samples=40, stops=15, long_sessions=2, burst=100, waiting=200, finished=1000, starts=2, commands=5,
              scans=20)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `figures` and `goals` share their keys: p50, p99 or value.

    A goal is an upper bound, unless `at_least`.
    """

    measure: str
    unit: str
    figures: Mapping[str, float]
    goals: Mapping[str, float] = field(default_factory=dict)
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether every goal is met; None when there is none."""
        if not self.goals:
            return None
        if self.at_least:
            return all(self.figures[key] > goal for key, goal in self.goals.items())
        return all(self.figures[key] < goal for key, goal in self.goals.items())

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return {
            "measure": self.measure,
            "unit": self.unit,
            "figures": dict(self.figures),
            "goals": dict(self.goals),
            "met": self.met,
            "note": self.note,
        }


def spread(measure: str, unit: str, samples: Sequence[float], goals: Mapping[str, float]) -> Row:
    """Return a row with the median and the 99th percentile of samples."""
    ordered = sorted(samples)
    p99 = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
    told = f"{len(samples)} samples, max {ordered[-1]:.1f}"
    return Row(measure, unit, {"p50": statistics.median(ordered), "p99": p99}, goals, note=told)


def single(
    measure: str, unit: str, value: float, goal: float | None = None, *, at_least: bool = False, note: str = ""
) -> Row:
    """Return a row with one figure."""
    goals = {} if goal is None else {"value": goal}
    return Row(measure, unit, {"value": value}, goals, at_least, note)


HEAD = ("measure", "p50", "p99", "value", "goal", "met", "")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text in columns."""
    lines = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    written = []
    for line in lines:
        cells = [cell.ljust(width) if column in (0, 6) else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(line, widths, strict=True))]  # fmt: skip
        written.append("  ".join(cells).rstrip())
    return "\n".join([written[0], "-" * max(map(len, written)), *written[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    sign = ">" if row.at_least else "<"
    goals = [f"{sign} {goal:g}" if key == "value" else f"{key} {sign} {goal:g}" for key, goal in row.goals.items()]
    figures = [f"{row.figures[key]:.4g} {row.unit}" if key in row.figures else "" for key in ("p50", "p99", "value")]
    met = {True: "yes", False: "NO", None: ""}[row.met]
    return (row.measure, *figures, ", ".join(goals), met, row.note)
