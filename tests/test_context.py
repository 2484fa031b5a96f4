"""The stages of compression: properties that hold for any conversation, and the cases that they turn on."""

from __future__ import annotations

import copy
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.context import (
    LOW,
    OLD,
    PART,
    SAID,
    Context,
    Plan,
    cut_weighted,
    old_form,
    result_limit,
    stale_results,
    weigh_message,
)
from gad.core.cut import copied_mark, is_cut
from gad.core.messages import Assistant, Message, Text, Thinking, ToolCall, ToolResult, User, canonical
from gad.core.ports import Request
from gad.core.weights import ALPHA, weigh
from tests import strategies
from tests.provider_cases import TOOL
from tests.test_hello import tokens
from tests.test_provider_render import CHECKS, PROVIDERS

KEEP, KEEP_OVER, KEEP_REFUSED = 10, 4, 2
"""Newest messages that are shown whole: in general, over the budget, and after a refusal."""


@dataclass(frozen=True)
class Turn:
    """One request of a conversation: what was known, what was planned, and what is shown."""

    transcript: tuple[Message, ...]
    limit: float
    fixed: float
    last: Plan
    plan: Plan
    view: tuple[Message, ...]

    @property
    def budget(self) -> float:
        return min(self.limit, self.last.ceiling) if self.last.ceiling else self.limit


Budgets = Sequence[tuple[float, float]]
"""The limit and the fixed weight of each turn, the last ones repeated as often as needed."""


def grow(transcript: tuple[Message, ...], budgets: Budgets, context: Context | None = None) -> Iterator[Turn]:
    """Plan each request of a conversation, one after the other, as its transcript grows."""
    context, last = context or Context(), Plan()
    for number, size in enumerate(range(1, len(transcript) + 1, 2)):
        limit, fixed = budgets[min(number, len(budgets) - 1)]
        so_far = transcript[:size]
        plan = context.plan(so_far, last, limit=limit, fixed=fixed)
        yield Turn(so_far, limit, fixed, last, plan, context.view(so_far, plan))
        last = plan


def fresh(transcript: tuple[Message, ...], limit: float, fixed: float = 0.0, last: Plan | None = None) -> Turn:
    """Plan one request without a past."""
    context, last = Context(), last or Plan()
    plan = context.plan(transcript, last, limit=limit, fixed=fixed)
    return Turn(transcript, limit, fixed, last, plan, context.view(transcript, plan))


@st.composite
def budgets(draw: st.DrawFn) -> Budgets:
    """A budget that stays, or that moves a little from turn to turn as the calibration does."""
    limit, fixed = draw(strategies.limits), draw(st.sampled_from([0.0, 100.0, 2_500.0]))
    factors = draw(st.one_of(st.just([1.0]), st.lists(st.floats(0.7, 1.5), min_size=2, max_size=17)))
    return [(limit * factor, fixed) for factor in factors]


ANY = (strategies.transcripts(), budgets())


def weight_of(messages: Sequence[Message]) -> float:
    return sum(map(weigh_message, messages))


def all_gone(turn: Turn, keep: int = KEEP_OVER) -> bool:
    """Whether nothing is left but the task, with a limited part of what people said, and the newest messages."""
    size = len(turn.transcript)
    if size <= keep:
        return len(turn.view) == size
    extra = weigh_message(turn.view[0]) - weigh_message(turn.transcript[0])
    note = PART + weigh("[... 1,000 older messages left out ...]")
    return len(turn.view) == 1 + keep and extra <= turn.plan.said + note


# -- properties of every view ---------------------------------------------------------------------


def check_pairs(messages: Sequence[Message]) -> None:
    assert isinstance(messages[0], User) and isinstance(messages[-1], User)
    waiting: list[str] = []
    for number, message in enumerate(messages):
        assert isinstance(message, Assistant if number % 2 else User)
        assert message.parts
        if isinstance(message, Assistant):
            assert message.calls or message.text.strip()
            waiting = [call.id for call in message.calls]
        else:
            assert [part.call_id for part in message.parts if isinstance(part, ToolResult)] == waiting
            waiting = []


@settings(max_examples=100, deadline=None)
@given(*ANY)
def test_every_view_is_valid_for_every_vendor(transcript: tuple[Message, ...], budgets: Budgets) -> None:
    check_pairs(transcript)
    turns = list(grow(transcript, budgets))
    for turn in turns:
        check_pairs(turn.view)
    for view in (turns[-1].view, fresh(transcript, *budgets[-1]).view):
        check_pairs(view)
        for api, check in CHECKS.items():
            body = PROVIDERS[api].render(Request("System.", (TOOL,), view, "ANCHOR"))
            assert json.dumps(body, ensure_ascii=False).encode()
            check(json.loads(json.dumps(body)))


@settings(max_examples=100, deadline=None)
@given(*ANY)
def test_the_budget_holds_as_far_as_the_spared_messages_allow(
    transcript: tuple[Message, ...], budgets: Budgets
) -> None:
    for turn in (*grow(transcript, budgets), fresh(transcript, *budgets[0])):
        assert turn.plan.weight == pytest.approx(turn.fixed + weight_of(turn.view))
        assert turn.plan.weight <= turn.budget or all_gone(turn)


@settings(max_examples=100, deadline=None)
@given(*ANY)
def test_the_newest_messages_are_shown_as_they_are(transcript: tuple[Message, ...], budgets: Budgets) -> None:
    exceeded = False
    for turn in grow(transcript, budgets):
        exceeded = exceeded or turn.fixed + weight_of(turn.transcript) > turn.budget
        keep = min(len(turn.transcript), KEEP_OVER if exceeded else KEEP)
        newest = [*zip(turn.view[-keep:], turn.transcript[-keep:], strict=True)]
        # The first message is shown with what people said later, once that is gone.
        assert all(shown is message for shown, message in newest if message is not transcript[0] or not exceeded)
        if len(turn.transcript) < KEEP and not exceeded:
            assert turn.view == turn.transcript


@settings(max_examples=100, deadline=None)
@given(*ANY)
def test_the_task_and_the_newest_words_stay(transcript: tuple[Message, ...], budgets: Budgets) -> None:
    def said(message: Message) -> list[str]:
        return [part.text for part in message.parts if isinstance(part, Text) and not part.note]

    def replies(messages: Sequence[Message], message: Message) -> list[str]:
        """The replies in a message to the model's questions, as they are shown once the questions are gone."""
        calls = {call.id: call for other in messages if isinstance(other, Assistant) for call in other.calls}
        return [
            f"[asked: {cut_weighted(str(calls[part.call_id].arguments.get('question', '')), OLD / 4)}]\n{part.output}"
            for part in message.parts
            if isinstance(part, ToolResult) and calls[part.call_id].name == "ask_user" and not part.is_error
        ]

    for turn in (*grow(transcript, budgets), fresh(transcript, *budgets[0])):
        task = said(turn.transcript[0])
        assert said(turn.view[0])[: len(task)] == task
        shown = {text for message in turn.view[::2] for text in (*said(message), *replies(turn.transcript, message))}
        newest = next(
            text
            for message in turn.transcript[::-2]
            for text in reversed((*replies(turn.transcript, message), *said(message)))
        )
        room = SAID * min(limit for limit, _ in budgets) - PART >= OLD
        cut = [text.partition("\n[... ")[0] for text in shown if is_cut(text)]
        assert newest in shown or any(head and newest.startswith(head) for head in cut) or not room


@settings(max_examples=100, deadline=None)
@given(*ANY)
def test_plans_and_views_follow_from_the_transcript_alone(transcript: tuple[Message, ...], budgets: Budgets) -> None:
    before = copy.deepcopy(transcript)
    turns, again = list(grow(transcript, budgets)), list(grow(transcript, budgets))
    assert turns == again
    for turn in turns:  # a daemon that has just begun knows the transcript and the plan only
        assert Context().view(turn.transcript, turn.plan) == turn.view
        assert fresh(turn.transcript, turn.limit, turn.fixed, turn.last).plan == turn.plan
    assert transcript == before


@settings(max_examples=100, deadline=None)
@given(strategies.transcripts(), strategies.limits, st.sampled_from([0.0, 500.0]))
def test_the_view_of_a_view_is_itself(transcript: tuple[Message, ...], limit: float, fixed: float) -> None:
    view = fresh(transcript, limit, fixed).view
    assert fresh(view, limit, fixed).view == view


def wire(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Return what an Anthropic server counts as the prefix: without the breakpoints and the anchor."""
    body = json.loads(json.dumps(PROVIDERS["anthropic"].render(Request("", (), messages, "ANCHOR"))))
    found: list[dict[str, Any]] = body["messages"]
    assert found[-1]["content"].pop()["text"] == "ANCHOR"
    for message in found:
        for block in message["content"]:
            block.pop("cache_control", None)
    return found


@settings(max_examples=100, deadline=None)
@given(*ANY)
def test_a_request_begins_with_the_one_before(transcript: tuple[Message, ...], budgets: Budgets) -> None:
    turns = list(grow(transcript, budgets))
    for now, later in itertools.pairwise(turns):
        if (now.plan.compressed, now.plan.evicted) == (later.plan.compressed, later.plan.evicted):
            assert later.view[: len(now.view)] == now.view
            assert wire(later.view)[: len(now.view)] == wire(now.view)


@settings(max_examples=100, deadline=None)
@given(*ANY, st.integers(0, 5))
def test_after_a_refusal_requests_are_well_below_and_stay_there(
    transcript: tuple[Message, ...], budgets: Budgets, before: int
) -> None:
    context = Context()
    turns = list(grow(transcript, budgets, context))
    refused = turns[max(0, len(turns) - 1 - before)]
    context = Context()
    context.plan(refused.transcript, refused.last, limit=refused.limit, fixed=refused.fixed)
    plan = context.stricter(refused.transcript, refused.plan, fixed=refused.fixed)
    stricter = replace(refused, plan=plan, last=plan, view=context.view(refused.transcript, plan))
    check_pairs(stricter.view)
    assert plan.weight == pytest.approx(refused.fixed + weight_of(stricter.view))
    assert plan.weight <= LOW * refused.plan.weight or all_gone(stricter, KEEP_REFUSED)
    newest = zip(stricter.view[-KEEP_REFUSED:], refused.transcript[-KEEP_REFUSED:], strict=True)
    cut = plan.compressed == len(refused.transcript)  # the newest as well, where they alone are too much
    assert cut or all(shown is message for shown, message in newest if message is not transcript[0])
    assert not cut or len(stricter.view) <= KEEP_REFUSED + 1
    again = context.stricter(refused.transcript, plan, fixed=refused.fixed)
    assert again.ceiling <= plan.ceiling and again.weight <= plan.weight + 1e-6
    for size in range(len(refused.transcript) + 2, len(transcript) + 1, 2):
        after = fresh(transcript[:size], refused.limit, refused.fixed, plan)
        assert after.plan.weight <= plan.ceiling or all_gone(after)
        plan = after.plan


@settings(max_examples=300, deadline=None)
@given(strategies.messages, st.booleans())
def test_an_old_form_is_final(message: Message, stale: bool) -> None:
    ids = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
    outdated = dict.fromkeys(ids, "[stale: a.py was read again later]") if stale else {}
    old = old_form(message, outdated)
    assert old_form(old, outdated) == old
    assert all(weigh(part.output) <= OLD for part in old.parts if isinstance(part, ToolResult))


# -- the newest message may grow between two plans --------------------------------------------------


def test_a_message_that_grows_is_weighed_anew() -> None:
    task = User((Text("Do it."),))
    grown = User((*task.parts, Text("word " * 100)))
    context = Context()
    first = context.plan([task], Plan(), limit=1e6)
    second = context.plan([grown], first, limit=1e6)
    assert second.weight == pytest.approx(weigh_message(grown)) and second.weight > first.weight
    assert context.view([grown], second) == (grown,)


# -- the batches ----------------------------------------------------------------------------------


def session(turns: int, output: str = "word " * 200, said: str = "") -> tuple[Message, ...]:
    """A plain run of reads, each of another file."""
    found: list[Message] = [User((Text("Do it."),))]
    for turn in range(turns):
        call = ToolCall(f"c{turn}", "file_read", {"path": f"{turn}.py"})
        words = (Text(said),) if said else ()
        found += [Assistant((Text("Reading."), call)), User((ToolResult(call.id, "ok", output), *words))]
    return tuple(found)


def batches(turns: Sequence[Turn]) -> list[int]:
    return [
        number for number in range(1, len(turns)) if turns[number].plan.compressed != turns[number - 1].plan.compressed
    ]


def test_batches_lie_apart_and_pay() -> None:
    turns = list(grow(session(120, "word " * 1_000), [(1e9, 0.0)]))
    at = batches(turns)
    assert at and min(later - now for now, later in itertools.pairwise(at)) >= 5
    assert turns[-1].plan.weight < weight_of(turns[-1].transcript) / 2
    assert all(a is b for turn in turns[5:] for a, b in zip(turn.view[-KEEP:], turn.transcript[-KEEP:], strict=True))

    def cost(shown: Sequence[tuple[Message, ...]]) -> float:
        """What a vendor bills: a tenth for what stands in its cache, the longest prefix of the last request."""
        total, before = 0.0, tuple[Message, ...]()
        for view in shown:
            same = next((n for n, (a, b) in enumerate(zip(before, view, strict=False)) if a != b), len(before))
            total += 0.1 * weight_of(view[:same]) + weight_of(view[same:])
            before = view
        return total

    ours = cost([turn.view for turn in turns])
    assert ours < cost([turn.transcript for turn in turns])
    every = [(*(old_form(m, {}) for m in turn.transcript[:-KEEP]), *turn.transcript[-KEEP:]) for turn in turns]
    assert ours < cost(every)


def test_batches_lie_apart_even_where_each_turn_would_pay_for_one() -> None:
    transcript = list(session(30, "ok"))
    for turn, size in enumerate((480_000, 24_000, 1_500)):  # each drops far more than all that comes after it
        transcript[2 + 2 * turn] = User((ToolResult(f"c{turn}", "ok", "x" * size),))
    at = batches(list(grow(tuple(transcript), [(1e9, 0.0)])))
    assert len(at) > 1 and min(later - now for now, later in itertools.pairwise(at)) >= 5


def test_a_batch_that_would_drop_next_to_nothing_is_not_run() -> None:
    assert batches(list(grow(session(60, "ok"), [(1e9, 0.0)]))) == []
    assert batches(list(grow(session(40, "word " * 280, said="word " * 1_500), [(1e9, 0.0)]))) == []


def test_eviction_leaves_room_for_turns_without_one() -> None:
    turns = list(grow(session(100), [(40_000.0, 0.0)]))
    changes = [now for now, later in itertools.pairwise(turns) if now.plan.evicted != later.plan.evicted]
    assert 1 <= len(changes) <= 8
    assert all(turn.plan.weight <= 40_000 for turn in turns)


# -- what is shown --------------------------------------------------------------------------------


def test_what_an_old_message_keeps() -> None:
    long = "word " * 1_000
    said = Assistant(
        (
            Thinking(long),
            Thinking("signed", "SIG"),
            Thinking("", "", "RED"),
            Text(long),
            ToolCall("c1", "file_write", {"path": "a.py", "content": long, "mode": "append"}),
            ToolCall("c2", "update_working_checkpoint", {"key_info": long}),
            ToolCall("c3", "code_run", {"code": long, "nested": [{"deep": long}], "n": 1}),
        )
    )
    thought, text, write, notes, run = old_form(said, {}).parts
    assert isinstance(thought, Thinking) and weigh(thought.text) <= OLD
    assert text == Text(long)
    assert isinstance(write, ToolCall) and isinstance(notes, ToolCall) and isinstance(run, ToolCall)
    assert write.arguments["path"] == "a.py" and write.arguments["mode"] == "append"
    assert len(write.arguments["content"]) <= 100 and copied_mark("content", write.arguments["content"])
    assert notes.arguments == {"key_info": "[see <key_info>]"}
    assert weigh(canonical(run.arguments)) < 2 * OLD + 100 and run.arguments["n"] == 1
    told = User((ToolResult("c3", "ok", long, {"exit": 0}, "/work/out.txt"), Text(long), Text(long, note=True)))
    result, words, note = old_form(told, {}).parts
    assert isinstance(result, ToolResult) and weigh(result.output) <= OLD
    assert "all of it is in /work/out.txt" in result.output and result.meta == {"exit": 0}
    assert words == Text(long)
    assert isinstance(note, Text) and note.note and weigh(note.text) <= OLD


def test_a_message_of_sealed_thinking_only_still_says_something() -> None:
    assert old_form(Assistant((Thinking("a", "SIG"),)), {}) == Assistant((Text("..."),))


def test_what_people_said_outlives_the_turns_around_it() -> None:
    transcript = list(session(40))
    told = transcript[6]
    assert isinstance(told, User)
    transcript[6] = User((*told.parts, Text("Mind the 测试."), Text("an engine's note", note=True)))
    first = fresh(tuple(transcript), 8_000.0).view[0]
    assert first.parts[0] == Text("Do it.")
    note = first.parts[1]
    assert isinstance(note, Text) and note.note and "older messages left out" in note.text
    assert first.parts[2:] == (Text("Mind the 测试."),)


def test_the_newest_words_are_whole_and_older_ones_cut() -> None:
    transcript = session(30, said="word " * 500)
    turn = fresh(transcript, 20_000.0)
    words = [part.text for part in turn.view[0].parts[2:] if isinstance(part, Text)]
    assert words[-1] == "word " * 500 and words[0] == cut_weighted("word " * 500, OLD)
    assert sum(PART + weigh(text) for text in words) <= SAID * 20_000
    assert turn.plan.weight <= LOW * 20_000 + 100


def test_a_persons_answer_to_a_question_is_what_people_said() -> None:
    transcript = list(session(40))
    answer = "Use the 第二 one. " + "word " * 300
    ask = ToolCall("q", "ask_user", {"question": "Which?"})
    transcript[5:7] = [Assistant((ask,)), User((ToolResult("q", "ok", answer),))]
    old = fresh(tuple(transcript), 1e9, last=Plan(compressed=31)).view
    assert old[6] == transcript[6]  # never cut, as their other words
    first = fresh(tuple(transcript), 10_000.0).view[0]
    assert first.parts[2:] == (Text(f"[asked: Which?]\n{answer}"),)


def test_gone_turns_take_their_calls_and_results_along() -> None:
    turn = fresh(session(40), 8_000.0)
    check_pairs(turn.view)
    assert len(turn.view) < len(turn.transcript) and turn.plan.weight <= LOW * 8_000 + 100


@pytest.mark.parametrize(
    ("tool", "results", "expected"),
    [("code_run", 1, 10_000), ("web_scan", 1, 35_000), ("file_read", 4, 5_000), ("other", 0, 10_000)],
)
def test_a_results_share_of_its_message(tool: str, results: int, expected: int) -> None:
    assert result_limit(tool, results, 30_000) == expected
    assert result_limit(tool, results, 2_000) <= 3_000 // max(1, results)


# -- stale snapshots ------------------------------------------------------------------------------

READ = ("file_read", {"path": "a"})
WRITE = ("file_write", {"path": "a", "content": "x"})
PATCH = ("file_patch", {"path": "a", "old_content": "x", "new_content": "y"})
SCAN: tuple[str, dict[str, Any]] = ("web_scan", {})
JS = ("web_execute_js", {"script": "1"})
FAILED = "error"


@pytest.mark.parametrize(
    ("turns", "stale"),
    [
        ([[READ], [READ]], {0}),
        ([[READ], [READ], [READ]], {0, 1}),
        ([[READ], [("file_read", {"path": "a", "start": 200})]], set()),
        ([[READ], [("file_read", {"path": "b"})]], set()),
        ([[READ], [WRITE]], {0}),
        ([[READ], [PATCH]], {0}),
        ([[READ], [("file_read", {"path": "a", "start": 200})], [PATCH]], {0, 1}),
        ([[READ], [("file_write", {"path": "b", "content": ""})]], set()),
        ([[READ], [(*WRITE, FAILED)]], set()),
        ([[READ], [(*PATCH, "interrupted")]], set()),
        ([[READ], [(*READ, FAILED)]], set()),
        ([[(*READ, FAILED)], [READ]], set()),
        ([[WRITE], [READ]], set()),
        ([[READ, WRITE, READ]], {0}),
        ([[READ], [WRITE], [READ], [WRITE]], {0, 2}),
        ([[SCAN], [SCAN]], {0}),
        ([[SCAN], [JS]], {0}),
        ([[JS], [SCAN]], set()),
        ([[JS], [JS]], set()),
        ([[SCAN], [(*JS, FAILED)]], set()),
        ([[SCAN], [JS], [SCAN], [READ]], {0}),
        ([[("code_run", {"code": "1"})], [("code_run", {"code": "1"})]], set()),
    ],
)
def test_stale_results(turns: list[list[tuple[Any, ...]]], stale: set[int]) -> None:
    transcript: list[Message] = [User((Text("Do it."),))]
    number = 0
    for turn in turns:
        calls, told = [], []
        for name, arguments, *status in turn:
            calls.append(ToolCall(str(number), name, arguments))
            told.append(ToolResult(str(number), status[0] if status else "ok", "out"))
            number += 1
        transcript += [Assistant(tuple(calls)), User(tuple(told))]
    found = stale_results(transcript)
    assert set(found) == {str(at) for at in stale}
    assert all(why.startswith("[stale: ") for why in found.values())
    assert stale_results(transcript[:-1]) == stale_results(
        transcript[:-2]
    )  # without its result a call has done nothing


def test_a_stale_result_is_replaced_once_it_is_old() -> None:
    transcript = list(session(12))
    again = ToolCall("again", "file_read", {"path": "0.py"})
    transcript[3:5] = [Assistant((again,)), User((ToolResult("again", "ok", "new"),))]
    view = Context().view(transcript, Plan(compressed=15))
    assert view[2] == User((ToolResult("c0", "ok", "[stale: 0.py was read again later]"),))
    assert view[4] == transcript[4]
    young = Context().view(transcript, Plan(compressed=3))  # the later read is not among the old messages yet
    assert "stale" not in str(young[2])


# -- weights and cuts -----------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(strategies.any_texts, st.integers(1, 2_000), st.sampled_from(["", "/work/out.txt"]))
def test_a_weighted_cut_keeps_to_its_limit(text: str, limit: int, where: str) -> None:
    shown = cut_weighted(text, limit, where)
    assert weigh(shown) <= limit or len(shown) <= 1
    assert shown == text or weigh(text) > limit
    assert cut_weighted(shown, limit, where) == shown or len(shown) <= 1


SENTENCES = (
    "先看一下目录里有什么文件，然后再决定怎么改。",
    "测试失败了，因为配置里的路径不存在；我把它改成了相对路径。",
    "第三季度的销售额比去年同期增长了百分之十二点五，主要来自华东地区。",
    "请注意：不要覆盖用户已有的数据，先备份再写入！",
    "服务器返回了错误代码500，日志显示数据库连接超时。",
    "函数process_order()在第128行抛出了异常KeyError: 'price'。",
    "今天天气很好🙂，我们去公园散步吧。",
    "“你到底想要什么样的结果？”他皱着眉头问道。",
)


@pytest.mark.parametrize("window", [4_000, 8_000, 24_000])
def test_chinese_requests_fit_the_window(window: int) -> None:
    chance = random.Random(window)

    def prose(characters: int) -> str:
        found = ""
        while len(found) < characters:
            found += chance.choice(SENTENCES)
        return found

    transcript: list[Message] = [User((Text(prose(200)),))]
    for turn in range(60):
        call = ToolCall(f"call_{turn}", "code_run", {"code": f"print('{prose(60)}')"})
        words = (Text(prose(80)),) if turn % 7 == 0 else ()
        output = prose(chance.choice([20, 200, 600]))
        transcript += [Assistant((Text(prose(40)), call)), User((ToolResult(call.id, "ok", output), *words))]
    for shown in list(grow(tuple(transcript), [(ALPHA * window, 0.0)]))[::6]:
        assert shown.plan.weight <= ALPHA * window
        body = PROVIDERS["chat"].render(Request("", (), shown.view))
        assert tokens(json.dumps(body["messages"], ensure_ascii=False)) <= window


# -- speed ----------------------------------------------------------------------------------------


def test_a_long_conversation_is_planned_in_no_time() -> None:
    transcript = session(1_000)
    began = time.process_time()
    turn = fresh(transcript, weight_of(transcript) / 3)
    assert turn.plan.evicted > 500
    assert time.process_time() - began < 2
