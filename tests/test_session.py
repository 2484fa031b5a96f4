"""The session machine, row by row: what may follow what, and what is to be done next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from gad.core.messages import Assistant, Text, ToolResult, User
from gad.core.records import (
    KINDS,
    Asked,
    Begin,
    Calling,
    Checked,
    Checking,
    ChildBegan,
    ChildUsed,
    Decided,
    Deferred,
    Ended,
    Judged,
    Moved,
    Paused,
    Pinned,
    Record,
    Resumed,
    Said,
    ScriptRan,
    ScriptStarted,
    StopAsked,
    ToolFinished,
    ToolStarted,
    TurnedDown,
    decode,
    encode,
    kind_of,
)
from gad.core.report import status_of
from gad.core.session import Session, replay
from gad.core.states import TABLE, State
from gad.core.steps import AwaitReply, CallModel, Finish, RunCheck, RunTool
from gad.core.task import TaskOptions
from gad.errors import InvalidStep
from tests.histories import WHOLE, answer, begin, call, ran

NOW = 200.0
ANSWER = answer(1, "ok")[1]
TOOL = begin() + answer(1, call())

REACH: dict[State, list[Record]] = {
    "new": [],
    "queued": begin(),
    "running": [*begin(), Calling(101.0, 1, "m")],
    "deferred": [*begin(), Calling(101.0, 1, "m"), Deferred(102.0, "429", 150.0, 1)],
    "asking": [*begin(), *answer(1, call("ask_user", 1, question="?")), Asked(103.0, "c1", "?")],
    "done": [*begin(), *answer(1, "ok"), Ended(104.0, "done")],
    "failed": [*begin(), Ended(104.0, "failed", "why")],
    "stopped": [*begin(), StopAsked(103.0, 2), Ended(104.0, "stopped")],
}
SAMPLES: dict[str, Record] = {
    "begin": Begin(100.0, "s", TaskOptions()),
    "message": Said(140.0, 9, "reply.txt", "hi"),
    "context": Pinned(140.0, 9, "pin"),
    "child": ChildBegan(140.0, "kid"),
    "child_used": ChildUsed(140.0, "kid", 139.0, 15, 0.5),
    "stop": StopAsked(140.0, 9),
    "rejected": TurnedDown(140.0, 9, "reply.txt", "no"),
    "calling": Calling(140.0, 1, "m"),
    "deferred": Deferred(140.0, "503", 150.0, 1),
    "moved": Moved(140.0, "a", "b", "401", 440.0),
    "answer": ANSWER,
    "tool_started": ToolStarted(140.0, "c1", "code_run"),
    "tool_finished": ToolFinished(140.0, ToolResult("c1", "ok", "out")),
    "asked": Asked(140.0, "", "?"),
    "judged": Judged(140.0, 9, True),
    "script_started": ScriptStarted(140.0, "tidy"),
    "script_ran": ScriptRan(140.0, 1, "no"),
    "decided": Decided(140.0, "start", 0, "e0", "shallow", "goal=file"),
    "checking": Checking(140.0),
    "checked": Checked(140.0, 0, ""),
    "resumed": Resumed(140.0),
    "paused": Paused(140.0),
    "ended": Ended(140.0, "failed", "why"),
}
PAIRS = [(state, kind) for state in REACH for kind in KINDS]


@pytest.mark.parametrize(("state", "kind"), PAIRS)
def test_every_pair_of_state_and_record(state: State, kind: str) -> None:
    session = replay(REACH[state])
    assert session.state == state
    record = SAMPLES[kind]
    if state not in TABLE[kind]:
        with pytest.raises(InvalidStep):
            session.record(record)
        return
    if kind == "tool_finished":  # needs an open call
        with pytest.raises(InvalidStep):
            session.record(record)
        return
    session.record(record)
    # In `queued` a message has not been seen yet, so nothing is asked.
    special = {("queued", "asked"): "queued"}.get((state, kind), TABLE[kind][state])
    assert session.state == ("failed" if kind == "ended" else special)


def test_an_unlisted_pair_changes_nothing() -> None:
    session = replay(REACH["done"])
    before = status_of(session)
    with pytest.raises(InvalidStep):
        session.record(SAMPLES["answer"])
    assert status_of(session) == before


def after(*records: Record | Sequence[Record]) -> Session:
    flat: list[Record] = []
    for record in records:
        flat += record if isinstance(record, Sequence) else [record]
    return replay(flat)


# The recovery table: the journal's end, and what follows.
def test_an_accepted_message_without_answer_asks_the_model() -> None:
    assert after(begin()).next_step(NOW) == CallModel(1)


def test_a_half_streamed_answer_asks_again_and_says_what_was_broken_off() -> None:
    session = after(begin(), Calling(101.0, 1, "m"), Resumed(102.0))
    assert session.interrupted == "answer"
    assert session.next_step(NOW) == CallModel(1)


def test_a_started_tool_is_never_run_again() -> None:
    session = after(TOOL, ToolStarted(103.0, "c1", "code_run"), Resumed(104.0))
    assert session.next_step(NOW) == CallModel(2)
    session.record(Calling(105.0, 2, "m"))
    last = session.history.transcript[-1]
    assert isinstance(last, User) and isinstance(last.parts[0], ToolResult)
    assert last.parts[0].status == "interrupted"
    assert "may or may not have happened; check before repeating" in last.parts[0].output


def test_a_call_that_had_not_started_runs_after_a_crash() -> None:
    session = after(begin(), answer(1, call(n=1), call("file_read", 2, path="a")), ran("c1"), Resumed(112.0))
    step = session.next_step(NOW)
    assert isinstance(step, RunTool) and step.call.id == "c2" and not step.refusal


def test_all_results_in_asks_the_model() -> None:
    assert after(TOOL, ran("c1")).next_step(NOW) == CallModel(2)


def test_a_stop_request_stops_also_across_a_restart() -> None:
    session = after(begin(), Calling(101.0, 1, "m"), StopAsked(102.0, 2), Resumed(103.0))
    assert session.next_step(NOW) == Finish("stopped", 2)


def test_asking_stays_asking() -> None:
    assert after(REACH["asking"]).next_step(NOW) == AwaitReply()


def test_three_crashes_in_a_row_are_enough() -> None:
    history: list[Record] = list(begin())
    for crash in range(3):
        session = after(history)
        assert session.next_step(NOW) == CallModel(1), crash
        history += [Calling(101.0, 1, "m"), Resumed(102.0)]
    step = after(history).next_step(NOW)
    assert isinstance(step, Finish) and step.state == "failed" and "crashed 3 times" in step.error


def test_progress_between_crashes_counts_anew() -> None:
    crash: list[Record] = [Calling(101.0, 1, "m"), Resumed(102.0)]
    session = after(begin(), crash, crash, answer(1, call()), ran("c1"), Calling(112.0, 2, "m"), Resumed(113.0))
    assert session.next_step(NOW) == CallModel(2)


def test_a_result_written_by_recovery_is_no_progress() -> None:
    history = [*TOOL, ToolStarted(103.0, "c1", "code_run"), Resumed(104.0)]
    history += [Calling(105.0, 2, "m"), Resumed(106.0), Calling(107.0, 2, "m"), Resumed(108.0)]
    step = after(history).next_step(NOW)
    assert isinstance(step, Finish) and step.state == "failed"


# What clients may do.
def test_a_message_that_comes_while_the_model_answers_is_part_of_the_next_turn() -> None:
    session = after(begin(), Calling(101.0, 1, "m"), Said(101.2, 2, "reply.txt", "wait"), answer(1, "Done.")[1])
    assert session.next_step(NOW) == CallModel(2)
    session.record(Calling(103.0, 2, "m"))
    assert session.history.transcript[-1] == User((Text("wait"),))
    assert isinstance(session.history.transcript[-2], Assistant)


def test_results_come_before_what_people_say() -> None:
    session = after(TOOL, Said(102.0, 2, "reply.txt", "also this"), ran("c1"), Calling(112.0, 2, "m"))
    last = session.history.transcript[-1]
    assert isinstance(last, User)
    assert [type(part) for part in last.parts] == [ToolResult, Text]


def test_a_reply_to_a_question_is_that_call_s_result() -> None:
    session = after(REACH["asking"], Said(104.0, 2, "reply.txt", "blue"), Said(104.0, 3, "reply.txt", "or red"))
    session.record(Calling(105.0, 2, "m"))
    assert session.history.transcript[-1] == User((ToolResult("c1", "ok", "blue"), Text("or red")))


def test_a_question_is_not_put_to_somebody_who_has_just_spoken() -> None:
    history = [*begin(), Calling(101.0, 1, "m"), Said(101.2, 2, "reply.txt", "use blue")]
    session = after(history, answer(1, call("ask_user", 1, question="Which?"))[1])
    step = session.next_step(NOW)
    assert isinstance(step, RunTool) and step.not_run and "said something" in step.refusal
    race = after(begin(), answer(1, call("ask_user", 1, question="Which?")), Said(102.0, 2, "reply.txt", "use blue"))
    race.record(Asked(102.0, "c1", "Which?"))
    assert race.next_step(NOW) == CallModel(2)
    race.record(Calling(103.0, 2, "m"))
    last = race.history.transcript[-1]
    assert isinstance(last, User) and [type(part) for part in last.parts] == [ToolResult, Text]


def test_stop_wins_over_a_reply_that_lay_beside_it() -> None:
    session = after(
        REACH["running"], Said(102.0, 2, "reply.txt", "go on"), StopAsked(102.0, 3), Ended(103.0, "stopped")
    )
    assert session.state == "stopped"
    session.record(Said(104.0, 4, "reply.txt", "now"))
    session.record(Calling(105.0, 1, "m"))
    last = session.history.transcript[-1]
    assert isinstance(last, User)
    assert [part.text for part in last.parts if isinstance(part, Text)][-2:] == ["go on", "now"]


def test_a_reply_after_the_stop_resumes_even_before_the_stop_is_carried_out() -> None:
    session = after(
        REACH["running"], StopAsked(102.0, 2), Said(102.0, 3, "reply.txt", "go on"), Ended(103.0, "stopped", upto=2)
    )
    assert session.state == "queued"


def test_a_message_that_comes_while_the_round_ends_opens_the_next() -> None:
    session = after(begin(), answer(1, "Done."), Said(102.0, 2, "reply.txt", "more"), Ended(103.0, "done", upto=1))
    assert (session.state, session.round) == ("queued", 2)


def test_stopping_gives_every_open_call_a_result() -> None:
    session = after(begin(), answer(1, call(n=1), call("file_read", 2, path="a")), ToolStarted(102.0, "c1", "code_run"))
    for record in (
        StopAsked(103.0, 2),
        Ended(104.0, "stopped"),
        Said(105.0, 3, "reply.txt", "go"),
        Calling(106.0, 2, "m"),
    ):
        session.record(record)
    last = session.history.transcript[-1]
    assert isinstance(last, User)
    results = [part for part in last.parts if isinstance(part, ToolResult)]
    assert [result.call_id for result in results] == ["c1", "c2"]
    assert all(result.status == "interrupted" for result in results)
    assert "may or may not" in results[0].output and "not run" in results[1].output


# Limits.
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"turns": 1}, "turn limit"),
        ({"tokens": 110}, "token limit"),
        ({"usd": 0.5}, "dollar limit"),
        ({"seconds": 3}, "time"),
    ],
)
def test_every_limit_fails_with_its_name_and_a_reply_allows_the_same_again(
    options: dict[str, object], word: str
) -> None:
    session = after(begin(**options), answer(1, call()), ran("c1"))
    step = session.next_step(NOW)
    assert isinstance(step, Finish) and step.state == "failed" and step.limit and word in step.error
    session.record(Ended(NOW, "failed", step.error, limit=True))
    session.record(Said(NOW, 2, "reply.txt", "go on"))
    assert session.next_step(NOW) == CallModel(2)


def test_limits_count_over_the_whole_session() -> None:
    session = after(
        begin(turns=2), answer(1, "one"), Ended(104.0, "done"), Said(105.0, 2, "reply.txt", "x"), answer(2, call())
    )
    session.record(ToolFinished(110.0, ToolResult("c1", "ok", "")))
    step = session.next_step(NOW)
    assert isinstance(step, Finish) and "turn limit" in step.error


def test_an_answer_at_the_limit_is_still_the_answer() -> None:
    assert after(begin(turns=1), answer(1, "Done.")).next_step(NOW) == Finish("done", 1)


def test_time_does_not_run_while_nobody_works() -> None:
    session = after(REACH["asking"], Said(100_000.0, 2, "reply.txt", "b"), Calling(100_001.0, 2, "m"))
    assert session.allowance.active_seconds(100_002.0) == pytest.approx(2.0 + 1.0)
    crashed = after(begin(), Calling(101.0, 1, "m"), Resumed(90_000.0))
    assert crashed.allowance.active_seconds(90_001.0) == pytest.approx(0.0)


def test_an_unknown_price_makes_the_whole_cost_unknown() -> None:
    session = after(begin(), answer(1, call()), ran("c1"), answer(2, "Done.", usd=None))
    assert session.allowance.spent.usd is None
    assert status_of(session)["cost_usd"] == "unknown"


# The check.
def test_the_check_decides_and_goes_back_three_times() -> None:
    session = after(begin(check="make test"))
    for turn in range(1, 5):
        for record in answer(turn, "Done."):
            session.record(record)
        assert session.next_step(NOW) == RunCheck("make test")
        session.record(Checked(150.0, 2, f"failure {turn}"))
        if turn < 4:
            assert session.next_step(NOW) == CallModel(turn + 1)
    step = session.next_step(NOW)
    assert isinstance(step, Finish) and step.state == "failed" and "make test" in step.error
    texts = [part.text for message in session.history.transcript for part in message.parts if isinstance(part, Text)]
    assert sum("failure" in text and "exit code 2" in text for text in texts) == 3


def test_a_passed_check_ends_the_round() -> None:
    assert after(begin(check="true"), answer(1, "Done."), Checked(150.0, 0, "")).next_step(NOW) == Finish("done", 1)


# Empty and cut answers.
def test_an_empty_answer_is_asked_again_three_times() -> None:
    session = after(begin())
    for turn in range(1, 5):
        assert session.next_step(NOW) == CallModel(turn)
        for record in answer(turn, "  "):
            session.record(record)
    step = session.next_step(NOW)
    assert isinstance(step, Finish) and step.state == "failed" and "empty answer 4 times" in step.error
    assert len(session.history.transcript) == 1


def test_a_cut_off_answer_goes_on() -> None:
    session = after(begin(), answer(1, "Once upon", stop="length"))
    assert session.next_step(NOW) == CallModel(2)


# Staged escalation.
def failing(n: int, turn: int, **arguments: object) -> list[Record]:
    return [*answer(turn, call("file_read", n, **arguments)), *ran(f"c{n}", "error", f"error {n}")]


def next_call(session: Session, turn: int, name: str, **arguments: object) -> RunTool:
    for record in answer(turn, call(name, 90 + turn, **arguments)):
        session.record(record)
    step = session.next_step(NOW)
    assert isinstance(step, RunTool)
    return step


def test_the_first_failure_carries_its_error_alone() -> None:
    assert next_call(after(begin()), 1, "file_read", path="a").note == ""


def test_the_same_failing_call_is_refused_until_something_is_learnt() -> None:
    again = next_call(after(begin(), failing(1, 1, path="a", start=1)), 2, "file_read", start=1, path="a")
    assert "this very call has failed" in again.refusal
    assert not next_call(after(begin(), failing(1, 1, path="a")), 2, "file_read", path="b").refusal
    learnt = after(begin(), failing(1, 1, path="a"), answer(2, call(n=2)), ran("c2"))
    assert not next_call(learnt, 3, "file_read", path="a").refusal
    told = after(begin(), failing(1, 1, path="a"), Said(115.0, 2, "reply.txt", "I have made it"))
    assert not next_call(told, 2, "file_read", path="a").refusal


def test_the_second_failure_asks_for_another_approach() -> None:
    step = next_call(after(begin(), failing(1, 1, path="a")), 2, "file_read", path="b")
    assert "different approach" in step.note


def test_after_the_third_failure_only_ask_user_runs() -> None:
    session = after(begin(), failing(1, 1, path="a"), failing(2, 2, path="b"), failing(3, 3, path="c"))
    assert "call ask_user" in next_call(session, 4, "file_read", path="d").refusal
    session = after(begin(), failing(1, 1, path="a"), failing(2, 2, path="b"), failing(3, 3, path="c"))
    assert not next_call(session, 4, "ask_user", question="?").refusal


def test_a_model_that_does_not_ask_has_its_question_put_by_the_engine() -> None:
    history = [*begin()]
    for n in range(1, 6):
        history += failing(n, n, path=str(n))
    step = after(history).next_step(NOW)
    assert isinstance(step, AwaitReply) and step.question is not None and "error 5" in step.question.text
    said = after(
        begin(), failing(1, 1, path="a"), failing(2, 2, path="b"), failing(3, 3, path="c"), answer(4, "I give up.")
    )
    step = said.next_step(NOW)
    assert isinstance(step, AwaitReply) and step.question is not None and step.question.text == "I give up."


def test_with_nobody_to_ask_the_third_failure_fails() -> None:
    history = begin(ask="never") + failing(1, 1, path="a") + failing(2, 2, path="b")
    assert after(history).next_step(NOW) == CallModel(3)
    step = after(history, failing(3, 3, path="c")).next_step(NOW)
    assert isinstance(step, Finish) and step.state == "failed" and "error 3" in step.error
    assert next_call(after(begin(ask="never")), 1, "ask_user", question="?").refusal


def test_calls_of_one_answer_fail_once_together() -> None:
    paths = [call("file_read", n, path=str(n)) for n in (1, 2, 3)]
    session = after(begin(), answer(1, *paths))
    for n in (1, 2, 3):
        step = session.next_step(NOW)
        assert isinstance(step, RunTool) and not step.refusal and step.note == ""
        session.record(ToolFinished(111.0, ToolResult(f"c{n}", "error", "no such file")))
    assert session.escalation.failures == 1 and session.next_step(NOW) == CallModel(2)
    assert "different approach" in next_call(session, 2, "file_read", path="z").note


def test_success_starts_the_count_anew() -> None:
    session = after(begin(), failing(1, 1, path="a"), failing(2, 2, path="b"), answer(3, call(n=3)), ran("c3"))
    assert next_call(session, 4, "file_read", path="z").note == ""


def test_one_code_run_a_turn_and_that_is_no_failure() -> None:
    session = after(begin(), answer(1, call(n=1), call(n=2, type="bash", code="other")), ran("c1"))
    step = session.next_step(NOW)
    assert isinstance(step, RunTool) and step.not_run and "one code_run a turn" in step.refusal
    session.record(ToolFinished(112.0, ToolResult("c2", "error", step.refusal, {"not_run": True})))
    assert session.escalation.failures == 0


def test_a_model_that_gives_up_after_a_failure_is_sent_back_once_when_asked_for() -> None:
    start: list[Record] = [Begin(100.0, "s", TaskOptions(), persist=True), Said(100.0, 1, "input.txt", "x")]
    session = after(start, failing(1, 1, path="a"), answer(2, "I cannot."))
    assert session.next_step(NOW) == CallModel(3)
    for record in answer(3, "Really not."):
        session.record(record)
    assert session.next_step(NOW) == Finish("done", 1)


# Everything, cut everywhere.
def test_records_survive_their_encoding() -> None:
    assert {kind_of(record) for record in WHOLE} == set(KINDS)
    for record in WHOLE:
        assert decode(encode(record)) == record


def test_every_prefix_of_a_history_has_a_next_step_and_a_valid_transcript() -> None:
    for end in range(len(WHOLE) + 1):
        session = replay(WHOLE[:end])
        session.next_step(NOW)
        roles = [isinstance(message, User) for message in session.history.transcript]
        assert all(first != second for first, second in itertools.pairwise(roles))
        assert not roles or roles[0]
        for message, following in itertools.pairwise(session.history.transcript):
            if isinstance(message, Assistant):
                assert isinstance(following, User)
                results = [part.call_id for part in following.parts if isinstance(part, ToolResult)]
                assert results == [one.id for one in message.calls]


def test_a_dollar_limit_that_cannot_be_watched_ends_the_round() -> None:
    session = after(begin(usd=5.0), answer(1, call(), usd=None), ran())
    step = session.next_step(NOW)
    assert isinstance(step, Finish) and step.state == "failed" and step.limit
    assert "cannot be kept" in step.error
