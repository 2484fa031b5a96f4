"""When the full schemas are due: the rule's five reasons, and that a replay decides the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gad.core.elision import TOKENS, TURNS, Elision
from gad.core.messages import Assistant, Text, ToolCall

TOOLS = ("file_read", "code_run")
FINE = Assistant((Text("Reading."), ToolCall("c1", "file_read", {"path": "a"})))
BROKEN = Assistant((ToolCall("c2", "file_read", {}), ToolCall("c3", "", {}, "not valid JSON")))


def told(turn: int = 1) -> Elision:
    """Return the state after a full request."""
    elision = Elision()
    elision.sent(turn, TOOLS, True)
    return elision


def ask(elision: Elision, turn: int, tools: tuple[str, ...] = TOOLS) -> bool:
    """Send the request of this turn as it is due; return whether it was full."""
    full = elision.due(turn, tools)
    elision.sent(turn, tools, full)
    return full


def test_the_first_request_is_full_and_the_next_is_not() -> None:
    elision = Elision()
    assert [ask(elision, turn) for turn in (1, 2, 3)] == [True, False, False]


def test_full_every_ten_turns() -> None:
    elision = Elision()
    full = [turn for turn in range(1, 42) if ask(elision, turn)]
    assert full == [1, 11, 21, 31, 41] and TURNS == 10


def test_the_ten_turns_count_from_the_last_full_request() -> None:
    elision = told()
    elision.sent(5, TOOLS, True)
    assert [turn for turn in range(6, 20) if ask(elision, turn)] == [15]


def test_full_when_the_tool_set_changed_and_when_it_changed_back() -> None:
    elision = told()
    assert ask(elision, 2, (*TOOLS, "web_scan"))
    assert not ask(elision, 3, (*TOOLS, "web_scan"))
    assert ask(elision, 4)
    assert not ask(elision, 5)


def test_an_elided_request_does_not_count_as_having_told_a_tool_set() -> None:
    elision = told()
    elision.sent(2, ("web_scan",), False)
    assert elision.due(3, ("web_scan",)) and not elision.due(3, TOOLS)


def test_full_right_after_a_call_that_could_not_be_read() -> None:
    elision = told()
    elision.answered(BROKEN)
    assert ask(elision, 2)
    elision.answered(FINE)
    assert not ask(elision, 3)


def test_only_the_newest_answer_counts() -> None:
    elision = told()
    elision.answered(BROKEN)
    elision.answered(FINE)
    assert not elision.due(3, TOOLS)


def test_full_once_enough_tokens_have_gone_by() -> None:
    elision = told()
    elision.added(TOKENS - 1.5)
    assert not ask(elision, 2)
    elision.added(1.5)
    assert ask(elision, 3)
    assert not ask(elision, 4)
    elision.added(TOKENS - 1)
    assert not ask(elision, 5)


def test_a_full_request_that_is_sent_again_is_full_again() -> None:
    elision = Elision()
    assert ask(elision, 1) and ask(elision, 1) and ask(elision, 1)
    assert not ask(elision, 2) and not ask(elision, 2)


_events = st.lists(
    st.one_of(
        st.sampled_from(["ask", FINE, BROKEN]),
        st.floats(0, 5000),
        st.sampled_from([TOOLS, ("code_run",)]),
    ),
    max_size=60,
)


@given(_events)
def test_never_longer_without_the_schemas_than_the_rule_allows(events: list[object]) -> None:
    elision, replayed = Elision(), Elision()
    turn, tools, since, tokens, broken = 0, TOOLS, 0, 0.0, False
    last_tools: tuple[str, ...] = ()
    for event in events:
        match event:
            case "ask":
                turn += 1
                full = ask(elision, turn, tools)
                assert replayed.due(turn, tools) == full
                replayed.sent(turn, tools, full)
                expected = since == 0 or turn - since >= 10 or tools != last_tools or broken or tokens >= 9000
                assert full == expected
                if full:
                    since, last_tools, tokens, broken = turn, tools, 0.0, False
            case float():
                tokens += event
                elision.added(event)
                replayed.added(event)
            case Assistant():
                broken = event is BROKEN
                elision.answered(event)
                replayed.answered(event)
            case tuple():
                tools = event
