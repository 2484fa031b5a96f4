"""The benchmark of the context pipeline: its replay is the real pipeline's, repeatable, and holds what it promises."""

from __future__ import annotations

import importlib
import json
import warnings
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import context, reference, traces
from bench.context import (
    WINDOW,
    Interval,
    Sent,
    common,
    cost_at_marks,
    figures,
    fixed_parts,
    parts_of_cost,
    replay,
    replay_reference,
)
from bench.measure import QUICK, Row
from bench.traces import Trace
from gad.core.context import CACHED, KEEP
from gad.core.prompt import SYSTEM

TRACES = [traces.sixty(), traces.web(), traces.chinese(), traces.short()]


@cache
def replayed(number: int) -> list[Sent]:
    return replay(TRACES[number])


@cache
def rows() -> list[Row]:
    return context.requests(QUICK, Path())


def test_the_sixty_turns_have_their_goals() -> None:
    goals = {(row.measure.removeprefix("60 turns: "), row.unit): row for row in rows() if row.goals}
    largest, cost = goals["largest request", "k chars"], goals["cost units", "M"]
    assert largest.goals == {"value": 90} and largest.met
    assert cost.goals == {"value": 0.47} and cost.met
    otherwise = goals["turns not alike", "turns"]
    assert otherwise.goals == {"value": 4}  # at most 3 of 60; one batch more or less is a matter of a few characters
    assert otherwise.figures["value"] <= 5


def test_every_trace_has_a_window_to_hold_and_a_reference_beside_it() -> None:
    for trace in TRACES:
        assert any(row.measure == f"{trace.name}: largest request" and row.goals for row in rows())
        assert sum(row.measure.startswith(f"{trace.name}: reference") for row in rows()) == 2


@pytest.mark.parametrize("number", range(len(TRACES)))
def test_no_request_is_over_the_window(number: int) -> None:
    assert max(sent.tokens for sent in replayed(number)) <= WINDOW


@pytest.mark.parametrize("number", range(len(TRACES)))
def test_two_replays_are_the_same(number: int) -> None:
    made_anew = (traces.sixty, traces.web, traces.chinese, traces.short)[number]()
    assert replay(made_anew) == replayed(number)


def test_the_traces_are_as_long_as_they_say() -> None:
    assert [len(trace.turns) for trace in TRACES] == [60, 40, 60, 200]
    sixty, web, *_ = TRACES
    printed = [turn.output.count("\n") + 1 for turn in sixty.turns if turn.tool == "code_run"]
    assert (min(printed), max(printed)) == (50, 650)
    assert all(len(turn.said) <= 60 for turn in sixty.turns)
    assert all(turn.output.count("\n") == 120 for turn in sixty.turns if turn.tool == "file_read")
    assert all(turn.arguments["content"].count("\n") == 60 for turn in sixty.turns if turn.tool == "file_write")
    pages = [len(turn.output) for turn in web.turns if turn.tool == "web_scan"]
    assert 34_000 < max(pages) <= 35_000 and min(pages) <= 5_000


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_a_scale_stretches_the_lines_and_nothing_else(scale: float) -> None:
    for plain, scaled in zip(traces.sixty().turns, traces.sixty(scale).turns, strict=True):
        assert plain.output.count("\n") == scaled.output.count("\n")
        if plain.tool == "code_run":
            assert (len(scaled.output) + 1) / (len(plain.output) + 1) == pytest.approx(scale, rel=0.15)


def test_a_request_is_the_body_in_the_order_of_the_cache_without_its_marks() -> None:
    for sent in (replayed(0)[0], replayed(0)[-1]):
        body = json.loads(sent.body)
        assert list(body) == ["tools", "system", "messages"]
        assert body["system"] == [{"type": "text", "text": SYSTEM}]
        assert "cache_control" not in sent.body
    assert "turn 60 of at most 80" in body["messages"][-1]["content"][-1]["text"]


def test_tokens_counted_by_messages_are_those_of_the_whole() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        encoding = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    for number in range(len(TRACES)):
        for sent in replayed(number)[::19]:
            assert sent.tokens == len(encoding.encode_ordinary(sent.body))


def test_what_the_user_says_meanwhile_reaches_the_model() -> None:
    (said,) = [turn.reply for turn in traces.chinese().turns[:12] if turn.reply]
    assert said not in replayed(2)[11].body and said in replayed(2)[12].body


def test_figures_of_a_few_requests() -> None:
    found = figures([Sent("a" * 10, 3), Sent("a" * 10 + "b" * 10, 6), Sent("a" * 10 + "c" * 10, 5)])
    assert (found.turns, found.chars, found.tokens, found.largest, found.largest_tokens) == (3, 50, 14, 20, 6)
    assert found.alike == 2  # the first, which has nothing before it, and the second
    assert found.cost == pytest.approx(10 + (10 + 10 * CACHED) + (10 + 10 * CACHED))


@pytest.mark.parametrize("number", range(len(TRACES)))
def test_the_parts_of_the_cost_are_all_of_it(number: int) -> None:
    parts = parts_of_cost(replayed(number))
    assert sum(parts.values()) == pytest.approx(figures(replayed(number)).cost)
    assert all(units >= 0 for units in parts.values())


def test_a_cache_that_ends_at_marks_costs_more_after_a_batch_and_only_there() -> None:
    sent = replayed(0)
    first = next(n for n, request in enumerate(sent) if request.plan.compressed)
    assert cost_at_marks(sent[:first]) == pytest.approx(figures(sent[:first]).cost)
    assert cost_at_marks(sent) > figures(sent).cost


@given(st.text("ab"), st.text("ab"))
def test_common_is_the_length_of_the_common_prefix(one: str, other: str) -> None:
    assert common(one, other) == sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(one, other, strict=False)))


def test_a_fixed_interval_runs_its_batches_on_time() -> None:
    sent = replay(traces.sixty(), Interval(5))
    starts = [request.plan.compressed for request in sent]
    batches = [turn for turn, (before, now) in enumerate(pairwise(starts), 2) if now > before]
    assert batches and all(later - turn == 5 for turn, later in pairwise(batches))
    assert all(2 * turn - 1 - starts[turn - 1] == KEEP for turn in batches)
    assert figures(replay(traces.short(), Interval(None))).batches == 0


def test_the_reference_has_the_published_shape() -> None:
    """Published for 60 turns: the largest request 112 k characters, 83 % of turns alike."""
    published, _ = replay_reference(traces.sixty(), *fixed_parts(replayed(0)))
    found = figures(published)
    assert 100_000 < found.largest < 125_000
    assert 75 <= found.share <= 90
    assert found.cost > figures(replayed(0)).cost


def test_the_reference_compresses_every_fifth_request_and_drops_over_its_budget() -> None:
    trace: Trace = traces.sixty(4)
    sent = [json.loads(text) for text in reference.histories(trace)]
    assert [len(messages) for messages in sent[:6]] == [1, 3, 5, 7, 9, 11]
    eighth, ninth, tenth = (messages[2]["content"] for messages in sent[7:10])
    assert eighth == ninth != tenth  # the tenth request is the first fifth one with more than ten messages
    assert "[truncated]" in tenth[0]["content"] and "<history>[...]</history>" in tenth[1]["text"]
    dropped = [n for n in range(1, 60) if len(sent[n]) < len(sent[n - 1])]
    assert dropped
    for n in dropped:
        assert [message["role"] for message in sent[n][:2]] == ["user", "assistant"]
        assert all(block["type"] == "text" for block in sent[n][0]["content"])
    assert (
        len(sent[-1][-1]["content"][1]["text"]) > 30 * 20 and "<earlier_context>" in sent[-1][-1]["content"][1]["text"]
    )


def test_the_curve_compares_every_interval_at_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "INTERVALS", (5,))
    monkeypatch.setattr(context, "SCALES", (1.0,))
    monkeypatch.setattr(context, "OLDS", (400, 800))
    tables = context.curve()
    lines = [line.split(" | ") for line in tables.splitlines() if line.startswith("| ")]
    cells = {line[0].strip("| "): line[1] for line in lines}
    assert {"5", "never", "the rule", "400", "800"} <= set(cells)
    assert cells["the rule"] == cells["800"] != cells["400"]
