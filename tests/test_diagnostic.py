"""The diagnostic of the memory controller: its figures must come out of really running policy and memory."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.core import diagnostic
from gad.core.diagnostic import SEEDS, Report, run, shuffled
from gad.core.retrieval import LexicalMemory, Retrieved


@pytest.fixture(scope="module", params=SEEDS)
def report(request: pytest.FixtureRequest) -> Report:
    return run(request.param)


def test_the_seeds() -> None:
    assert SEEDS == (42, 43, 44)


def test_the_figures(report: Report) -> None:
    assert report.hit_rate == pytest.approx(0.8666667, abs=5e-8)
    assert report.mean_reward == pytest.approx(1.08)
    assert (report.episodes, report.updates, report.decisions) == (60, 60, 120)
    assert (report.state_rows, report.memory_entries) == (7, 65)
    assert report.actions == (17, 21, 16, 15, 11, 8, 8, 16, 8)


def test_always_action_0_does_better(report: Report) -> None:
    assert report.always_0_hit_rate == 1.0 > report.hit_rate
    assert report.always_0_mean_reward == pytest.approx(1.28)


def test_it_says_what_it_is_not_good_for(report: Report) -> None:
    value = json.loads(json.dumps(report.to_json()))
    assert (value["diagnostic_only"], value["formal_comparison"], value["promotion_eligible"]) == (True, False, False)
    assert value["actions"] == [17, 21, 16, 15, 11, 8, 8, 16, 8] and value["seed"] == report.seed
    text = "\n".join(report.lines())
    for shown in ("0.8666667", "1.0800", "1.2800", "65 memory entries", "diagnostic_only = true", "medium 21"):
        assert shown in text


def test_a_seed_changes_the_order_only() -> None:
    orders = [shuffled(range(60), seed) for seed in SEEDS]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(60)) for order in orders)
    assert shuffled(range(60), 42) == orders[0]


@given(st.lists(st.integers(), max_size=50), st.integers(0, 2**64))
def test_shuffling_keeps_every_item(items: list[int], seed: int) -> None:
    before = list(items)
    assert sorted(shuffled(items, seed)) == sorted(items) and items == before


def test_a_memory_that_finds_nothing_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LexicalMemory, "retrieve", lambda *_: Retrieved())
    broken = run(42)
    assert (broken.hit_rate, broken.always_0_hit_rate) == (0.0, 0.0) and broken.mean_reward == pytest.approx(-0.22)


def test_a_memory_that_cannot_forget_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LexicalMemory, "forget", lambda _: ())
    assert run(42).memory_entries == 72


def test_it_depends_on_what_is_retrieved_not_on_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostic, "_query", lambda _request: "nothing of the kind")
    assert run(42).hit_rate == 0.0
