"""The memory controller: state, actions, choosing, credit, episodes, plans, and that saving changes nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.memcon import ACTION_LENGTH, HELD, PLAN_SHOWN, PLAN_STORED, Flags, MemCon, Settled, generalise
from gad.core.memcon_actions import Performed, perform
from gad.core.memcon_policy import Row, Table, choose, credit, reward
from gad.core.memcon_state import ACTIONS, Situation, StateKey, decision_point, repeats, state_key
from gad.core.retrieval import Entry, LexicalMemory, Retrieved

KEY = state_key("code", Situation(), plan=False, task=0)
ALL = range(9)


def key(*, plan: bool = False, task: int = 0, **counts: int) -> StateKey:
    return state_key("code", Situation(**counts), plan=plan, task=task)


# -- the state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "phase"), [(0, "early"), (7, "early"), (8, "mid"), (17, "mid"), (18, "late"), (400, "late")]
)
def test_the_phase_changes_at_steps_8_and_18(step: int, phase: str) -> None:
    assert key(step=step).phase == phase


@pytest.mark.parametrize(("times", "stuck"), [(0, False), (1, False), (2, True), (3, True)])
def test_the_second_repeat_is_stuck(times: int, stuck: bool) -> None:
    assert key(repeats=times).stuck is stuck
    assert key(repeats=repeats(["other", *["same"] * (times + 1)])).stuck is stuck


def test_only_the_latest_repeats_count() -> None:
    assert repeats([]) == repeats(["a"]) == repeats(["a", "a", "a", "b"]) == 0
    assert repeats(["a", "b", "a", "a"]) == 1


@pytest.mark.parametrize(("held", "bin_"), [(0, 0), (1, 1), (2, 2), (3, 2), (99, 2)])
def test_held_bins(held: int, bin_: int) -> None:
    assert key(held=held).held == bin_


@pytest.mark.parametrize(("visited", "bin_"), [(0, 0), (2, 0), (3, 1), (5, 1), (6, 2), (11, 3), (12, 4), (15, 4)])
def test_visited_bins(visited: int, bin_: int) -> None:
    assert key(visited=visited).visited == bin_


@pytest.mark.parametrize(("memory", "bin_"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (49, 4), (50, 5), (999, 5)])
def test_memory_bins(memory: int, bin_: int) -> None:
    assert key(memory=memory).memory == bin_


@pytest.mark.parametrize(("task", "stage"), [(0, "cold"), (15, "cold"), (16, "warm"), (900, "warm")])
def test_task_16_counted_from_zero_is_warm(task: int, stage: str) -> None:
    assert key(task=task).stage == stage


def test_the_17th_episode_is_the_first_warm_one() -> None:
    controller = MemCon()
    stages = [controller.decide(controller.begin("code"), Situation()).state.stage for _ in range(17)]
    assert stages == ["cold"] * 16 + ["warm"]


def test_the_key_has_the_papers_order_and_reads_as_a_line() -> None:
    state = key(step=8, repeats=2, held=1, visited=3, memory=10, plan=True, task=16)
    assert tuple(state) == ("code", "mid", True, 1, 1, 1, True, "warm")
    assert str(state) == "goal=code phase=mid stuck=yes held=1 visited=1 memory=1 plan=yes stage=warm"


def test_a_situation_counts_from_zero() -> None:
    for name in ("step", "repeats", "held", "visited", "memory"):
        with pytest.raises(ValueError, match="from zero"):
            Situation(**{name: -1})


def test_decision_points_are_the_start_getting_stuck_and_a_new_phase() -> None:
    trail = [Situation(step=step, repeats={4: 1, 5: 2, 6: 3, 12: 2}.get(step, 0)) for step in range(30)]
    points = {now.step: decision_point(last, now) for last, now in zip([None, *trail], trail, strict=False)}
    assert {step: point for step, point in points.items() if point} == {
        0: "start", 5: "stuck", 8: "phase", 12: "stuck", 18: "phase",
    }  # fmt: skip


# -- the actions -------------------------------------------------------------------------------------


def test_the_nine_actions_are_the_papers() -> None:
    assert [(a.index, a.prior, (a.top_k, a.insight_k, a.hop)) for a in ACTIONS] == [
        (0, 0.5, (1, 3, 1)),
        (1, 0.5, (2, 5, 1)),
        (2, 0.5, (3, 8, 2)),
        (3, 0.3, (1, 3, 0)),
        (4, 0.1, (2, 5, 2)),
        (5, 0.0, (0, 0, 0)),
        (6, -0.1, (0, 0, 0)),
        (7, 0.5, (1, 2, 0)),
        (8, -0.2, (0, 0, 0)),
    ]
    assert len({action.name for action in ACTIONS}) == 9


class Watched:
    """A memory that writes down what it is asked."""

    def __init__(self, *supports: str) -> None:
        self.supports: Any = supports or ("retrieve", "consolidate", "forget")
        self.calls: list[tuple[Any, ...]] = []

    def retrieve(self, query: str, top_k: int, insight_k: int, hop: int, leave_out: Collection[str]) -> Retrieved:
        self.calls.append(("retrieve", query, top_k, insight_k, hop, set(leave_out)))
        return Retrieved(pointers=(Entry("p", "p", kind="sop"),))

    def consolidate(self) -> dict[str, str]:
        self.calls.append(("consolidate",))
        return {"b": "a"}

    def forget(self) -> tuple[str, ...]:
        self.calls.append(("forget",))
        return ("x", "y")


def performed(action: int, *supports: str, retrieves: bool = False) -> tuple[Performed, list[tuple[Any, ...]]]:
    memory = Watched(*supports)
    result = perform(ACTIONS[action], "q", memory, ("one", "two"), {"seen"}, maintenance_retrieves=retrieves)
    return result, memory.calls


def test_what_each_action_asks_of_memory() -> None:
    nothing: set[str] = set()
    assert [performed(action)[1] for action in ALL] == [
        [("retrieve", "q", 1, 3, 1, nothing)],
        [("retrieve", "q", 2, 5, 1, nothing)],
        [("retrieve", "q", 3, 8, 2, nothing)],
        [("retrieve", "q", 1, 3, 0, nothing)],
        [("retrieve", "q alternative approach", 2, 5, 2, {"seen"})],
        [("consolidate",)],
        [("forget",)],
        [("retrieve", "q", 1, 2, 0, nothing)],
        [],
    ]


def test_only_the_plan_action_shows_the_plan() -> None:
    assert [performed(action)[0].plan for action in ALL] == [("one", "two") if a == 3 else () for a in ALL]
    assert "no plan" in perform(ACTIONS[3], "q", Watched()).note


@pytest.mark.parametrize("action", [5, 6, 8])
def test_maintenance_and_no_memory_return_nothing(action: int) -> None:
    result, _ = performed(action)
    assert (result.query, result.found, result.plan) == (None, Retrieved(), ())


@pytest.mark.parametrize("action", [5, 6])
def test_maintenance_retrieves_with_its_flag(action: int) -> None:
    result, calls = performed(action, retrieves=True)
    assert calls[1:] == [("retrieve", "q", 2, 5, 1, set())] and result.found.ids == ("p",)
    assert performed(action, "consolidate", "forget", retrieves=True)[0].found == Retrieved()


def test_no_memory_never_asks_memory_whatever_the_flag() -> None:
    assert performed(8, retrieves=True)[1] == []


@pytest.mark.parametrize("action", range(8))
def test_what_a_memory_does_not_support_is_not_done_and_says_so(action: int) -> None:
    result, calls = performed(action, "nothing")
    assert calls == [] and result.found == Retrieved() and "does not support" in result.note


# -- choosing ----------------------------------------------------------------------------------------


def test_untried_actions_come_by_prior_then_by_index() -> None:
    row, order = Row(), []
    for _ in ALL:
        index, _reason = choose(row, ALL)
        row.counts[index] += 1
        order.append(index)
    assert order == [0, 1, 2, 7, 3, 4, 5, 6, 8]


def test_afterwards_the_upper_confidence_bound_decides() -> None:
    row = Row(values=[0.0] * 9, counts=[10] * 9)
    assert choose(row, ALL)[0] == 0
    row.values[4] = 0.2
    assert choose(row, ALL)[0] == 4
    # ln 85 = 4.4427: action 6 gets 1.4 * sqrt(4.4427 / 5) = 1.3197, action 4 gets .2 + 1.4 * sqrt(4.4427 / 10) = 1.1332
    row.counts[6] = 5
    index, reason = choose(row, ALL)
    assert index == 6 and "1.320" in reason and "5 of 85" in reason


def test_only_allowed_actions_are_chosen() -> None:
    assert choose(Row(), [8, 3])[0] == 3
    assert choose(Row(counts=[1] * 9), [8])[0] == 8


def test_without_the_mask_every_action_comes_even_without_effect() -> None:
    controller = MemCon()
    episode = controller.begin("code")
    chosen = [controller.decide(episode, Situation(), supports=()).action.index for _ in ALL]
    assert sorted(chosen) == list(ALL)


def test_the_mask_leaves_out_what_has_no_effect() -> None:
    controller = MemCon(Flags(feasibility_mask=True))
    episode = controller.begin("code")
    chosen = {controller.decide(episode, Situation(), supports={"retrieve"}).action.index for _ in range(40)}
    assert chosen == {0, 1, 2, 4, 7, 8}
    controller.finish(episode, True, 1, ["do it"])
    episode = controller.begin("code")
    assert 3 in {controller.decide(episode, Situation(), supports={"retrieve"}).action.index for _ in range(40)}


# -- reward and credit -------------------------------------------------------------------------------


def test_rewards() -> None:
    assert reward(True, 2) == pytest.approx(1.28)
    assert reward(False, 2) == pytest.approx(-0.22)
    assert reward(False, 2, bonus_on_failure=False) == -0.5
    assert reward(True, 0) == pytest.approx(1.3)
    assert reward(True, 15) == pytest.approx(1.15)
    assert reward(True, 29) == pytest.approx(1.01)
    assert (reward(True, 30), reward(True, 31), reward(False, 31)) == (1.0, 1.0, -0.5)
    with pytest.raises(ValueError, match="from zero"):
        reward(True, -1)


def test_a_pair_seen_twice_is_credited_last_first() -> None:
    table: Table = {KEY: Row()}
    credit(table, [(KEY, 0), (KEY, 0)], 1.28)
    assert table[KEY].values[0] == pytest.approx(0.69725, abs=1e-9)
    assert table[KEY].values[0] != pytest.approx(0.70013, abs=1e-4)


def test_earlier_decisions_get_less() -> None:
    table: Table = {KEY: Row()}
    credit(table, [(KEY, 1), (KEY, 2), (KEY, 7)], 1.0)
    expected = {1: 0.5 + 0.15 * (0.81 - 0.5), 2: 0.5 + 0.15 * (0.9 - 0.5), 7: 0.5 + 0.15 * (1.0 - 0.5)}
    assert {index: table[KEY].values[index] for index in expected} == pytest.approx(expected)


# -- episodes ----------------------------------------------------------------------------------------


def decided(controller: MemCon, goal_type: str = "code", decisions: int = 2) -> str:
    episode = controller.begin(goal_type)
    for step in range(decisions):
        controller.decide(episode, Situation(step=step))
    return episode


def values(controller: MemCon) -> list[float]:
    return [value for row in controller.table.values() for value in row.values]


def test_a_failure_with_two_steps_earns_minus_022() -> None:
    controller = MemCon()
    settled = controller.finish(decided(controller), False, 2, ["a", "b"])
    assert settled is not None and settled.reward == pytest.approx(-0.22) and settled.credited == 2
    row = controller.table[KEY]
    assert row.values[1] == pytest.approx(0.5 + 0.15 * (-0.22 - 0.5))
    assert row.values[0] == pytest.approx(0.5 + 0.15 * (-0.22 * 0.9 - 0.5))
    assert controller.updates == 1


def test_the_flag_takes_the_bonus_from_failures_only() -> None:
    controller = MemCon(Flags(bonus_on_failure=False))
    results = [controller.finish(decided(controller), success, 2, ["a"]) for success in (False, True)]
    assert [r.reward for r in results if r] == [-0.5, pytest.approx(1.28)]


def test_an_unknown_outcome_changes_no_value_and_makes_no_plan() -> None:
    controller = MemCon()
    episode = decided(controller)
    before = values(controller)
    assert controller.finish(episode, None, 2, ["a"]) is None
    assert values(controller) == before and controller.updates == 0 and controller.plan("code") == ()
    assert controller.open == () and controller.waiting == (episode,)


def test_late_feedback_counts_once_and_as_if_it_had_come_in_time() -> None:
    late, prompt = MemCon(), MemCon()
    episode = decided(late)
    late.finish(episode, None, 2, ["open 3", "close 3"])
    settled = late.feedback(episode, True)
    assert settled == prompt.finish(decided(prompt), True, 2, ["open 3", "close 3"])
    assert settled is not None and late.to_json() == prompt.to_json()
    for again in (True, False):
        assert late.feedback(episode, again) is None
    assert late.finish(episode, False, 2, []) is None
    assert late.to_json() == prompt.to_json()


def test_feedback_for_any_other_episode_changes_nothing() -> None:
    controller = MemCon()
    running, over = decided(controller), decided(controller)
    controller.finish(over, True, 1, ["a"])
    before = controller.to_json()
    assert [controller.feedback(episode, False) for episode in (running, over, "e99", "")] == [None] * 4
    assert controller.finish(over, False, 1, ["a"]) is None and controller.finish("e99", True, 1, []) is None
    assert controller.to_json() == before


def test_an_episode_that_is_not_open_decides_nothing() -> None:
    controller = MemCon()
    episode = decided(controller)
    controller.finish(episode, True, 1, [])
    before = controller.to_json()
    with pytest.raises(KeyError):
        controller.decide(episode, Situation())
    with pytest.raises(KeyError):
        controller.execute("e7", "query", Situation(), LexicalMemory())
    with pytest.raises(ValueError, match="from zero"):
        controller.finish(controller.begin("code"), True, -1, [])
    assert controller.to_json()["rows"] == before["rows"]


def test_an_episode_without_decisions_is_no_update_but_may_give_a_plan() -> None:
    controller = MemCon()
    settled = controller.finish(controller.begin("code"), True, 3, ["a"])
    assert settled is not None and settled.credited == 0
    assert controller.updates == 0 and len(controller.table) == 0 and controller.plan("code") == ("a",)


def test_episodes_may_overlap() -> None:
    controller = MemCon()
    first, second = controller.begin("code"), controller.begin("web")
    states = [controller.decide(episode, Situation()).state.goal_type for episode in (second, first, second)]
    assert states == ["web", "code", "web"]
    settled = controller.finish(second, True, 1, ["x"])
    assert settled is not None and settled.credited == 2 and controller.open == (first,)


def test_the_oldest_episodes_give_way() -> None:
    controller = MemCon()
    begun = [controller.begin("code") for _ in range(HELD + 2)]
    assert controller.open == tuple(begun[2:])
    for episode in begun:
        controller.finish(episode, None, 0, [])
    assert len(controller.waiting) == HELD
    controller.finish(controller.begin("code"), None, 0, [])
    assert len(controller.waiting) == HELD and controller.waiting[0] == begun[3]


# -- plans and records -------------------------------------------------------------------------------


def test_a_success_makes_a_plan_without_number_ids() -> None:
    controller = MemCon()
    done = [f"open report_{number}.txt" for number in range(20)]
    controller.finish(decided(controller), True, 20, done)
    assert controller.plan("code") == ("open report_<id>.txt",) * PLAN_SHOWN and PLAN_SHOWN == 8
    assert controller.to_json()["plans"] == {"code": ["open report_<id>.txt"] * PLAN_STORED} and PLAN_STORED == 15
    assert controller.plan("web") == ()


@pytest.mark.parametrize(
    ("action", "general"),
    [
        ("go to shelf 3", "go to shelf <id>"),
        ("fetch /orders/4711?page=2", "fetch /orders/<id>?page=<id>"),
        ("sha256sum of utf8 in python3", "sha256sum of utf8 in python3"),
        ("打开第12页", "打开第<id>页"),
        ("no number", "no number"),
    ],
)
def test_numbers_that_stand_by_themselves_are_replaced(action: str, general: str) -> None:
    assert generalise(action) == general


def test_only_a_success_that_did_something_replaces_a_plan() -> None:
    controller = MemCon()
    for success, actions, plan in [
        (False, ["bad"], ()),
        (True, [], ()),
        (True, ["good"], ("good",)),
        (False, ["bad"], ("good",)),
        (None, ["unsure"], ("good",)),
        (True, [], ("good",)),
        (True, ["better"], ("better",)),
    ]:
        controller.finish(decided(controller), success, 1, actions)
        assert controller.plan("code") == plan


def test_a_plan_is_part_of_the_state_of_its_goal_type_only() -> None:
    controller = MemCon()
    controller.finish(decided(controller), True, 1, ["a"])
    states = [controller.decide(controller.begin(goal_type), Situation()).state for goal_type in ("code", "web")]
    assert [state.plan for state in states] == [True, False]


def test_every_known_outcome_gives_a_record_and_a_failure_a_failed_one() -> None:
    controller, memory = MemCon(), LexicalMemory()
    settled = []
    for success in (True, False):
        episode = controller.begin("code")
        controller.execute(episode, "mend the parser", Situation(), memory)
        controller.execute(episode, "something else", Situation(step=8), memory)
        settled.append(controller.finish(episode, success, 2, ["read a.py", "x" * 500]))
    records = [item.record for item in settled if isinstance(item, Settled)]
    assert [(record.id, record.kind, record.failed) for record in records] == [
        ("episode-0", "episode", False),
        ("episode-1", "episode", True),
    ]
    assert all("mend the parser" in record.text and "read a.py" in record.text for record in records)
    assert "something else" not in records[0].text and len(records[0].text) < 2 * ACTION_LENGTH + 60
    assert records[0].text.replace("done", "failed") == records[1].text


def test_execute_shows_the_plan_of_the_goal_type() -> None:
    controller, memory = MemCon(), LexicalMemory([Entry("s", "how to deploy", kind="sop")])
    controller.finish(controller.begin("code"), True, 1, ["deploy build 5"])
    episode = controller.begin("code")
    results = [controller.execute(episode, "deploy", Situation(), memory) for _ in range(9)]
    shown = {decision.action.index: (found.plan, found.found.ids) for decision, found in results}
    assert shown[3] == (("deploy build <id>",), ("s",)) and shown[0] == ((), ("s",)) and shown[8] == ((), ())


# -- JSON --------------------------------------------------------------------------------------------


def restored(controller: MemCon) -> MemCon:
    text = json.dumps(controller.to_json(), sort_keys=True)
    return MemCon.from_json(json.loads(text), controller.flags)


Step = tuple[str, int, int, bool | None]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "execute", "execute", "execute", "finish", "feedback", "forget"]),
        st.integers(0, 6),
        st.integers(0, 60),
        st.sampled_from([True, False, None]),
    ),
    max_size=40,
)


def play(steps: list[Step], save: Callable[[int], bool], flags: Flags) -> tuple[list[Any], MemCon, LexicalMemory]:
    """Play a history; before each step that `save` names, everything is replaced by its restored copy."""
    controller, memory = MemCon(flags), LexicalMemory([Entry("s", "alpha beta", kind="sop"), Entry("f", "beta")])
    begun: list[str] = []
    log: list[Any] = []
    for at, (verb, which, number, success) in enumerate(steps):
        if save(at):
            controller = restored(controller)
            memory = LexicalMemory.from_json(json.loads(json.dumps(memory.to_json())))
        episode = begun[which % len(begun)] if begun else "e0"
        match verb:
            case "begin":
                begun.append(controller.begin("ab"[which % 2]))
            case "execute" if episode in controller.open:
                counts = Situation(number // 2, which, which, number, len(memory) + number)
                log.append(controller.execute(episode, f"alpha {number}", counts, memory, {"s"}))
            case "finish" | "feedback":
                if verb == "finish":
                    settled = controller.finish(episode, success, number, [f"act {which}"] * which)
                else:
                    settled = controller.feedback(episode, bool(success))
                log.append(settled)
                if settled is not None:
                    memory.add(settled.record)
            case "forget":
                log.append(memory.forget())
    return log, controller, memory


@settings(max_examples=60, deadline=None)
@given(STEPS, st.builds(Flags, st.booleans(), st.booleans(), st.booleans()))
def test_saving_and_restoring_at_any_point_changes_nothing_that_follows(steps: list[Step], flags: Flags) -> None:
    log, controller, memory = play(steps, lambda at: False, flags)
    everywhere = play(steps, lambda at: True, flags)
    for saves in [everywhere, *(play(steps, lambda at, only=only: at == only, flags) for only in range(len(steps)))]:  # type: ignore[misc]
        assert saves[0] == log
        assert saves[1].to_json() == controller.to_json() and saves[2].to_json() == memory.to_json()


def test_a_restart_at_every_point_of_one_long_episode() -> None:
    steps: list[Step] = [("begin", 0, 0, None), *[("execute", 0, n, None) for n in (0, 4, 16, 36)]]
    steps += [("finish", 3, 5, None), ("feedback", 0, 0, True), ("feedback", 0, 0, True), *steps[:3]]
    plain = play(steps, lambda at: False, Flags())
    for only in range(len(steps)):
        log, controller, _ = play(steps, lambda at, only=only: at == only, Flags())  # type: ignore[misc]
        assert log == plain[0] and controller.to_json() == plain[1].to_json()


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_what_holds_after_any_history(steps: list[Step]) -> None:
    log, controller, _ = play(steps, lambda at: False, Flags())
    decisions = sum(isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Performed) for item in log)
    settled = [item for item in log if isinstance(item, Settled)]
    assert sum(sum(row.counts) for row in controller.table.values()) == decisions
    assert controller.updates == sum(item.credited > 0 for item in settled) <= len(settled)
    for row in controller.table.values():
        assert len(row.values) == len(row.counts) == 9 and sum(row.counts) > 0
        assert all(-0.5 <= value <= 1.3 for value in row.values)
        for action, value, count in zip(ACTIONS, row.values, row.counts, strict=True):
            assert count > 0 or value == action.prior
    assert len({item.episode for item in settled}) == len(settled)
    assert restored(controller).to_json() == controller.to_json()
    assert set(controller.open).isdisjoint(controller.waiting)


def sample() -> dict[str, Any]:
    controller = MemCon()
    controller.finish(decided(controller), True, 2, ["a"])
    controller.finish(decided(controller), None, 2, ["b"])
    decided(controller)
    value: dict[str, Any] = json.loads(json.dumps(controller.to_json()))
    return value


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="schema 2, expected 1"):
        MemCon.from_json(sample() | {"schema": 2})


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: value.pop("rows"),
        lambda value: value.update(task_index=-1),
        lambda value: value.update(task_index=1),
        lambda value: value.update(updates=True),
        lambda value: value["rows"][0]["values"].pop(),
        lambda value: value["rows"][0]["counts"].append(1),
        lambda value: value["rows"][0]["values"].__setitem__(0, float("nan")),
        lambda value: value["rows"][0]["values"].__setitem__(0, 10**400),
        lambda value: value["rows"][0]["counts"].__setitem__(0, 0.5),
        lambda value: value["rows"][0]["state"].__setitem__(1, "later"),
        lambda value: value["rows"].append(value["rows"][0]),
        lambda value: value["open"][0]["decisions"][0].__setitem__(1, 9),
        lambda value: value["open"][0]["decisions"][0][0].__setitem__(0, "unknown"),
        lambda value: value["open"].append(value["waiting"][0]),
        lambda value: value["plans"].update(code="abc"),
        lambda value: value["waiting"].__setitem__(0, None),
    ],
)
def test_a_damaged_state_is_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    value = sample()
    MemCon.from_json(value)
    damage(value)
    with pytest.raises(ValueError, match=r"."):
        MemCon.from_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(sample())), JSON)
def test_any_value_in_any_place_is_read_or_refused(name: str, junk: Any) -> None:
    for value in (junk, sample() | {name: junk}):
        try:
            controller = MemCon.from_json(value)
        except ValueError:
            continue
        assert MemCon.from_json(controller.to_json()).to_json() == controller.to_json()


# -- what it is worth --------------------------------------------------------------------------------

BEST = {"known": 8, "research": 2, "routine": 3}
"""A toy world: for each goal type one action succeeds and no other does."""


def outcomes(tasks: int, pick: Callable[[str, MemCon, str], int], best: dict[str, int]) -> list[bool]:
    controller, result = MemCon(), []
    for task in range(tasks):
        goal_type = list(best)[task % len(best)]
        episode = controller.begin(goal_type)
        result.append(pick(goal_type, controller, episode) == best[goal_type])
        controller.finish(episode, result[-1], 10, ["act"])
    return result


def learned(_goal: str, controller: MemCon, episode: str) -> int:
    return controller.decide(episode, Situation(memory=20)).action.index


def share(result: list[bool]) -> float:
    return sum(result) / len(result)


def compared(tasks: int, best: dict[str, int]) -> tuple[float, float, float]:
    """Return the share of successes of the learned policy, of chance, and of the best single action."""
    lots = random.Random(7)
    singles = [share(outcomes(tasks, lambda g, c, e, a=action: a, best)) for action in ALL]  # type: ignore[misc]
    chance = share(outcomes(tasks, lambda g, c, e: lots.randrange(9), best))
    found = share(outcomes(tasks, learned, best)), chance, max(singles)
    print(f"{tasks} tasks: learned {found[0]:.3f}, chance {found[1]:.3f}, best single action {found[2]:.3f}")
    return found


def test_where_the_best_action_depends_on_the_state_it_wins_in_the_long_run() -> None:
    policy, chance, single = compared(600, BEST)
    assert policy > 0.7 and policy > 2 * single and single == pytest.approx(1 / 3) and chance < 0.2


def test_there_it_loses_to_the_best_single_action_at_first() -> None:
    policy, _, single = compared(60, BEST)
    assert policy < single


def test_where_one_action_is_always_best_it_loses_to_that_action() -> None:
    policy, chance, single = compared(600, dict.fromkeys(BEST, 0))
    assert chance < policy < single == 1.0


def test_changing_what_to_json_returned_changes_nothing() -> None:
    controller = MemCon()
    decided(controller)
    value, before = controller.to_json(), json.dumps(controller.to_json())
    value["rows"][0]["values"][0] = 99.0
    value["rows"][0]["counts"][0] = 99
    value["open"][0]["decisions"].clear()
    assert json.dumps(controller.to_json()) == before
