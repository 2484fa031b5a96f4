"""The anchor, and the whole request that ends with it: computed from the journal alone, with nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.anchor import render
from gad.core.context import LOW, Plan, weigh_message
from gad.core.messages import Assistant, Text, ToolCall, ToolResult, Usage
from gad.core.ports import Request
from gad.core.records import (
    Answered,
    Asked,
    Calling,
    Deferred,
    Ended,
    Pinned,
    Record,
    Said,
    ToolFinished,
    ToolStarted,
    decode,
    encode,
)
from gad.core.request import build, plan_next, plan_stricter, prefix_digest, schemas_text
from gad.core.session import Session
from gad.core.steps import AwaitReply, CallModel, Finish, RunCheck, RunTool
from gad.core.summary import LENGTH
from gad.core.weights import ALPHA, weigh
from tests import histories, strategies
from tests.provider_cases import TOOL

TOOLS = (TOOL,)
SUMMARIES = 20
"""Turns that each stand in full or have their line."""


def test_nothing_to_hold_on_to() -> None:
    assert render(turn=1, key_info="", pinned="") == ""


def test_all_that_an_anchor_holds() -> None:
    lines = [(3, "file_read a.py: ok"), (4, "改好了。")]
    assert render(turn=5, limit=9, summaries=iter(lines), key_info="goal: x\nnext: y", pinned="be 礼貌") == (
        "<turns>\n3 file_read a.py: ok\n4 改好了。\n</turns>\n"
        "<pinned>\nbe 礼貌\n</pinned>\n"
        "<key_info>\ngoal: x\nnext: y\n</key_info>\n"
        "turn 5 of at most 9"
    )
    assert render(turn=2, key_info="k", pinned="") == "<key_info>\nk\n</key_info>\nturn 2"


def test_the_turns_that_are_left_are_told_when_the_end_is_near() -> None:
    shown = [render(turn=turn, limit=8, key_info="", pinned="") for turn in range(1, 9)]
    assert shown == [""] * 6 + ["turn 7 of at most 8", "turn 8 of at most 8"]


# -- sessions, driven as the runner drives them -----------------------------------------------------


@dataclass
class Drive:
    """Runs one session on invented answers and results; keeps its records, and the request of each `calling`."""

    window: int
    session: Session = field(default_factory=Session)
    records: list[Record] = field(default_factory=list)
    requests: list[tuple[int, Request]] = field(default_factory=list)
    now: float = 1_000.0

    def take(self, record: Record) -> None:
        self.session.record(record)
        self.records.append(record)
        self.now += 1.0

    def say(self, text: str) -> None:
        self.take(Said(self.now, self.session.claims + 1, "reply.txt", text))

    def call_model(self, plan: Plan, turn: int) -> Request:
        self.take(Calling(self.now, turn, "m", plan, prefix_digest(TOOLS)))
        request = build(self.session, TOOLS, turn)
        self.requests.append((len(self.records), request))
        return request

    def plan(self, turn: int) -> Plan:
        plan = plan_next(self.session, TOOLS, turn, self.window)
        return replace(plan, schemas=self.session.history.elision.due(turn, (prefix_digest(TOOLS),)))

    def answer(self, turn: int, message: Assistant, tokens_in: int) -> None:
        stop: Any = "tools" if message.calls else "end"
        self.take(Answered(self.now, turn, message, stop, "m", Usage(tokens_in, 10), None))

    def finish(self, call: ToolCall, output: str, status: Any = "ok") -> None:
        key_info = None
        if call.name == "update_working_checkpoint" and status == "ok":
            key_info = str(call.arguments.get("key_info", ""))
        self.take(ToolStarted(self.now, call.id, call.name))
        self.take(ToolFinished(self.now, ToolResult(call.id, status, output), 0.5, key_info))


def begun(window: int, **options: object) -> Drive:
    drive = Drive(window)
    for record in histories.begin(**options):
        drive.take(record)
    return drive


@st.composite
def drives(draw: st.DrawFn) -> Drive:
    """A session of up to two dozen steps, with whatever may happen between them."""
    drive = begun(draw(st.sampled_from([500, 4_000, 16_000, 10**6])))
    session = drive.session
    for number in range(draw(st.integers(1, 24))):
        event = draw(st.integers(0, 11))
        if event == 0:
            drive.take(Pinned(drive.now, session.claims + 1, draw(strategies.any_texts)))
        elif event == 1:
            drive.say(draw(strategies.said_texts))
        match session.next_step(drive.now):
            case CallModel(turn):
                drive.call_model(drive.plan(turn), turn)
                if event == 2:
                    drive.call_model(plan_stricter(session, TOOLS, turn), turn)
                if event == 3:
                    drive.take(Deferred(drive.now, "429", drive.now + 1, 1))
                else:
                    drive.answer(turn, draw(strategies.answers(f"c{number}")), draw(st.sampled_from([0, 100, 20_000])))
            case RunTool(call, refusal) if refusal:
                drive.take(ToolFinished(drive.now, ToolResult(call.id, "error", refusal)))
            case RunTool(call) if call.name == "ask_user" and session.can_ask:
                drive.take(Asked(drive.now, call.id, "Which?"))
            case RunTool(call):
                drive.finish(call, draw(strategies.any_texts), draw(st.sampled_from(["ok", "ok", "error"])))
            case AwaitReply(None):
                drive.say(draw(strategies.said_texts))
            case AwaitReply(question) if question is not None:
                drive.take(Asked(drive.now, "", question.text))
            case Finish(state, upto, error, limit):
                drive.take(Ended(drive.now, state, error, limit, upto))
            case RunCheck():
                raise AssertionError("there is no check")
    return drive


def turn_lines(anchor: str) -> dict[int, str]:
    """Return the lines of <turns>, by turn."""
    if not anchor.startswith("<turns>\n"):
        return {}
    body = anchor.removeprefix("<turns>\n").partition("\n</turns>")[0]
    return {int(number): text for number, _, text in (line.partition(" ") for line in body.split("\n"))}


@settings(max_examples=80, deadline=None)
@given(drives())
def test_no_request_loses_anything_that_must_be_held(drive: Drive) -> None:
    session, seen, answers = Session(), 0, dict[int, Assistant]()
    key_info = pinned = ""
    for count, request in drive.requests:
        for record in drive.records[seen:count]:
            session.record(record)
            match record:
                case Answered(turn=turn, message=message):
                    answers[turn] = message
                case ToolFinished(key_info=str(text)):
                    key_info = text
                case Pinned(text=text):
                    pinned = text
        seen = count
        calling = drive.records[count - 1]
        assert isinstance(calling, Calling)
        assert (f"<key_info>\n{key_info}\n</key_info>" in request.anchor) == bool(key_info)
        assert (f"<pinned>\n{pinned}\n</pinned>" in request.anchor) == bool(pinned)
        assert request.anchor == "" or request.anchor.endswith(f"\nturn {calling.turn}")
        lines = turn_lines(request.anchor)
        assert all(0 < len(line) <= LENGTH for line in lines.values())
        shown = {turn for turn, message in answers.items() if any(message is other for other in request.messages)}
        taken = [
            turn for turn, message in answers.items() if any(message is other for other in session.history.transcript)
        ]
        assert set(taken[-SUMMARIES:]) <= shown | set(lines)
        assert not shown & set(lines)


@settings(max_examples=60, deadline=None)
@given(drives())
def test_a_replayed_journal_gives_the_very_same_requests(drive: Drive) -> None:
    lines = [json.dumps(encode(record)) for record in drive.records]
    session = Session()
    requests = dict(drive.requests)
    for count, line in enumerate(lines, 1):
        record = decode(json.loads(line))
        session.record(record)
        if count in requests:
            assert isinstance(record, Calling)
            assert build(session, TOOLS, record.turn) == requests[count]
    # A daemon that takes over plans on as the one before would have.
    step = session.next_step(drive.now)
    if isinstance(step, CallModel):
        again = plan_next(session, TOOLS, step.turn, drive.window)
        assert again == plan_next(drive.session, TOOLS, step.turn, drive.window)


def run(drive: Drive, turns: int, output: str, summary: Callable[[int], str]) -> None:
    for turn in range(1, turns + 1):
        step = drive.session.next_step(drive.now)
        assert isinstance(step, CallModel) and step.turn == turn
        drive.call_model(drive.plan(turn), turn)
        call = ToolCall(f"c{turn}", "file_read", {"path": f"{turn}.py"})
        drive.answer(turn, Assistant((Text(f"<summary>{summary(turn)}</summary>"), call)), 0)
        drive.finish(call, output)


def test_each_turn_stands_in_full_or_has_its_line() -> None:
    drive = begun(10_000, turns=99)
    run(drive, 40, "word " * 400, lambda turn: f"did {turn}")
    _, request = drive.requests[-1]
    compressed = drive.session.history.plan.compressed
    newest = (compressed + 1) // 2  # the last turn that is not in full: the first message is no turn
    lines = turn_lines(request.anchor)
    assert lines == {turn: f"did {turn}" for turn in range(39 - SUMMARIES + 1, newest)}
    assert "turn 40 of at most 99" in request.anchor
    assert request.messages[-1] == drive.session.history.transcript[-2]  # the newest answer came after it


def test_a_whole_request_keeps_to_the_window_but_for_its_newest_lines() -> None:
    drive = begun(3_000)
    run(drive, 60, "词语" * 150, lambda turn: "改好了配置文件里的路径，" * 8)
    for _, request in drive.requests:
        rest = (request.system, schemas_text(request.tools), request.anchor)
        weight = sum(map(weigh_message, request.messages)) + sum(map(weigh, rest))
        lines = sum(map(weigh, turn_lines(request.anchor).values()))
        assert weight - lines <= ALPHA * drive.window and weight <= 1.1 * ALPHA * drive.window


def test_notes_are_replaced_and_cleared() -> None:
    drive = begun(10**6)
    for turn, notes in enumerate(("goal: x", "goal: 测试", "", "new"), 1):
        drive.call_model(drive.plan(turn), turn)
        call = ToolCall(f"c{turn}", "update_working_checkpoint", {"key_info": notes})
        drive.answer(turn, Assistant((call,)), 0)
        drive.finish(call, "noted")
        anchor = drive.call_model(drive.plan(turn + 1), turn + 1).anchor
        assert anchor == (f"<key_info>\n{notes}\n</key_info>\nturn {turn + 1}" if notes else "")


def test_a_refused_request_is_planned_anew_and_replayed_as_it_was() -> None:
    drive = begun(10**6)
    run(drive, 30, "word " * 400, lambda turn: f"did {turn}")
    refused = drive.plan(31)
    before = drive.call_model(refused, 31)
    drive.call_model(plan_stricter(drive.session, TOOLS, 31), 31)
    after = drive.requests[-1][1]
    assert drive.session.history.plan.weight <= LOW * refused.weight
    assert len(after.messages) < len(before.messages)
    assert len(turn_lines(after.anchor)) == SUMMARIES - 1  # the newest turn stands in full
    assert len(drive.session.history.summaries) == SUMMARIES  # two requests, one turn
