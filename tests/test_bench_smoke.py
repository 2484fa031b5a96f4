"""Every benchmark runs, on little, and gives whole rows; how fast anything is here is not looked at."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS
from bench.measure import Row, Scale, spread, table

LITTLE = Scale(
    samples=3, stops=2, long_sessions=1, burst=8, waiting=20, finished=20, starts=1, commands=2, scans=3, warm=1
)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_gives_rows_with_figures(name: str, tmp_path: Path) -> None:
    rows = BENCHMARKS[name](LITTLE, tmp_path)
    assert any(row.goals for row in rows)
    for row in rows:
        assert set(row.goals) <= set(row.figures)
        assert all(math.isfinite(figure) for figure in row.figures.values())
        if name not in ("memory", "web"):  # so few sessions, and pages, may take no memory of their own
            assert all(figure > 0 for figure in row.figures.values())
    assert all(row.measure in table(rows) for row in rows)


def test_a_goal_is_met_when_every_part_of_it_is() -> None:
    samples = [*range(1, 101)]
    row = spread("m", "ms", samples, {"p50": 51.0, "p99": 100.0})
    assert row.figures == {"p50": 50.5, "p99": 99} and row.met
    assert spread("m", "ms", samples, {"p50": 51.0, "p99": 99.0}).met is False
    assert Row("m", "/s", {"value": 5}, {"value": 4}, at_least=True).met
    assert Row("m", "/s", {"value": 5}).met is None
