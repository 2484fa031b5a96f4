"""What the memory controller sees of a session, and the directive that it leaves in the anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.core import anchor, directive
from gad.core.directive import LENGTH, Spot
from gad.core.messages import Assistant, ToolCall, ToolResult, Usage
from gad.core.records import Answered, Begin, Calling, Decided, Ended, Record, Said, ToolFinished, ToolStarted
from gad.core.request import build
from gad.core.session import Session, replay
from gad.core.situation import (
    GOAL_TYPES,
    ask,
    due,
    goal_type,
    join,
    keepable,
    observed,
    over,
    reads,
    situation,
    split,
    standing,
    steps_of,
    task_of,
)
from gad.core.task import TaskOptions


def begun(text: str = "tidy the logs", **options: object) -> list[Record]:
    chosen = TaskOptions(**options)  # type: ignore[arg-type]
    return [
        Begin(100.0, "s", chosen, preamble="[Monday; Linux; cwd /w]", memory="Memory: /m"),
        Said(100.0, 1, "input.txt", text),
    ]


def turn(number: int, *calls: tuple[str, Mapping[str, object]], failed: bool = False) -> list[Record]:
    """A turn that makes these calls, all of which work, or fail."""
    made = tuple(ToolCall(f"c{number}-{at}", name, arguments) for at, (name, arguments) in enumerate(calls))
    message = Assistant(made)
    records: list[Record] = [Calling(100.0 + number, number, "m")]
    records.append(Answered(100.5 + number, number, message, "tools", "m", Usage(), None))
    for call in made:
        records.append(ToolStarted(101.0 + number, call.id, call.name))
        records.append(ToolFinished(101.0 + number, ToolResult(call.id, "error" if failed else "ok", "out")))
    return records


def look(number: int, path: str = "/etc/hosts", **more: object) -> list[Record]:
    return turn(number, ("file_read", {"path": path, **more}))


def decided(step: int, point: str = "start", text: str = "", round: int = 1, episode: str = "e0-1") -> Decided:
    return Decided(100.0, point, step, join(episode, round), "shallow", "state", text)


def session_of(*parts: Sequence[Record] | Record) -> Session:
    records: list[Record] = []
    for part in parts:
        records.extend([part] if isinstance(part, Record) else part)
    return replay(records)


# -- when ----------------------------------------------------------------------------------------------


def test_a_round_begins_with_a_decision_and_only_one() -> None:
    assert due(session_of(begun())) == "start"
    assert due(session_of(begun(), decided(0))) is None
    assert due(session_of(begun(), decided(0), look(1))) is None


@pytest.mark.parametrize("step", [8, 18])
def test_a_decision_is_due_where_a_phase_begins(step: int) -> None:
    last = decided(8, "phase") if step == 18 else decided(0)
    first = [record for number in range(1, 9) for record in look(number, f"/f{number}")]
    rest = [record for number in range(9, step) for record in look(number, f"/f{number}")]
    before = [*begun(), decided(0), *first, *([last] if step == 18 else []), *rest]
    if step == 8:
        before = [*begun(), decided(0), *first[: -len(look(8))]]
        assert due(session_of(before)) is None  # step 7
        assert due(session_of(before, look(8, "/f8"))) == "phase"
    else:
        assert due(session_of(before)) is None  # step 17
        assert due(session_of(before, look(18, "/f18"))) == "phase"


def test_a_batch_of_calls_may_step_over_the_boundary() -> None:
    many = turn(1, *(("file_read", {"path": f"/f{at}"}) for at in range(11)))
    assert due(session_of(begun(), decided(0), many)) == "phase"
    assert due(session_of(begun(), decided(0), many, decided(11, "phase"))) is None


def test_a_decision_is_due_on_the_rising_edge_of_stuck_alone() -> None:
    twice = [*begun(), decided(0), *look(1), *look(2)]
    assert due(session_of(twice)) is None
    assert due(session_of(twice, look(3))) == "stuck"
    assert due(session_of(twice, look(3), decided(3, "stuck"))) is None
    assert due(session_of(twice, look(3), decided(3, "stuck"), look(4))) is None  # it stays so: no edge
    off = [*twice, *look(3), decided(3, "stuck"), *look(4, "/other")]
    assert due(session_of(off)) is None
    # A second edge, before the phase ends.
    assert due(session_of(off, look(5), look(6), look(7))) == "stuck"


def test_the_order_of_arguments_makes_no_other_call_but_another_argument_does() -> None:
    one = turn(1, ("file_read", {"path": "/a", "start": 2}))
    other = turn(2, ("file_read", {"start": 2, "path": "/a"}))
    assert (
        due(session_of(begun(), decided(0), one, other, turn(3, ("file_read", {"path": "/a", "start": 2})))) == "stuck"
    )
    third = turn(3, ("file_read", {"path": "/a", "start": 3}))
    assert due(session_of(begun(), decided(0), one, other, third)) is None


def test_what_somebody_says_meanwhile_breaks_a_row_of_equal_calls() -> None:
    steered = [*begun(), decided(0), *look(1), *look(2), *look(3), Said(103.5, 2, "reply.txt", "look elsewhere")]
    assert due(session_of(steered)) is None


def test_each_round_is_a_task_of_its_own() -> None:
    answered = Answered(120.0, 2, Assistant(()), "end", "m", Usage(), None)
    first = [*begun(), decided(0), *look(1), Calling(119.0, 2, "m"), answered, Ended(121.0, "done")]
    session = session_of(first)
    assert (last := over(session)) is not None and steps_of(session, last) == (0, 1)
    again = [*first, Said(130.0, 2, "reply.txt", "now the other one")]
    session = session_of(again)
    assert due(session) == "start"
    assert (asked := ask(session)) is not None
    assert (asked.round, asked.step, asked.situation.step) == (2, 1, 0)
    assert asked.query == "tidy the logs\nnow the other one"
    session = session_of(again, decided(1, round=2, episode="e1-1"), look(3))
    assert due(session) is None
    assert (last := over(session)) is not None and split(last.episode) == ("e0-1", 1)  # the second is under way
    assert steps_of(session, last) == (0, 1)


def test_a_session_that_is_not_told_of_memory_is_left_alone() -> None:
    records = begun()
    assert ask(session_of(records)) is not None
    assert isinstance(first := records[0], Begin)
    assert ask(session_of(replace(first, memory=""), records[1:])) is None


# -- what ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text", "kind"),
    [
        ({}, "do it", "general"),
        ({"review": "other", "parent": "other", "labels": ("review",)}, "do it", "review"),
        ({"sop": "tidy-logs"}, "keep=3", "procedure"),
        ({}, "task: tidy-logs keep=3", "procedure"),
        ({"labels": ("nightly", "trigger:backup")}, "do it", "trigger"),
        ({"labels": ("code",), "parent": "p"}, "do it", "code"),
        ({"parent": "p"}, "do it", "child"),
        ({"tools": ("file_read", "file_write")}, "do it", "files"),
        ({"tools": ("code_run", "ask_user")}, "do it", "code"),
        ({"tools": ("file_read", "code_run")}, "do it", "general"),
        ({"labels": ("urgent",)}, "do it", "general"),
    ],
)
def test_the_goal_type_comes_from_the_tasks_source(options: dict[str, object], text: str, kind: str) -> None:
    assert goal_type(session_of(begun(text, **options))) == kind
    assert kind in GOAL_TYPES


def test_later_the_tools_in_use_tell_the_goal_type() -> None:
    used = [
        *begun(),
        *turn(1, ("code_run", {"code": "ls"}), ("code_run", {"code": "id"}), ("file_read", {"path": "/a"})),
    ]
    assert goal_type(session_of(used)) == "code"


def test_the_query_is_what_was_asked_without_what_the_engine_adds() -> None:
    assert task_of(session_of(begun())) == "tidy the logs"
    assert task_of(session_of(begun("[x] is mine\n\nkeep it"))) == "[x] is mine\n\nkeep it"


def test_distinct_files_and_hosts_are_visited() -> None:
    calls = turn(
        1,
        ("file_read", {"path": "/a/./b"}),
        ("file_read", {"path": "/a/b"}),
        ("web_scan", {"url": "https://example.org/x"}),
        ("code_run", {"code": "curl https://example.org/y http://other.net:8080/z http://[bad"}),
    )
    assert situation(session_of(begun(), calls), 4).visited == 3


def test_what_is_written_is_held_until_it_is_looked_at_or_used() -> None:
    wrote = [*begun(), *turn(1, ("file_write", {"path": "/w/a.py"}), ("file_patch", {"path": "/w/b.py"}))]
    assert situation(session_of(wrote), 2).held == 2
    assert situation(session_of(wrote, look(2, "/w/a.py")), 3).held == 1
    assert situation(session_of(wrote, turn(2, ("code_run", {"code": "python a.py b.py"}))), 3).held == 0
    assert situation(session_of(wrote, turn(2, ("code_run", {"code": "python a.py"}), failed=True)), 3).held == 2
    assert situation(session_of(begun(), turn(1, ("file_write", {"path": "/w/a"}), failed=True)), 1).held == 0


def test_what_was_read_is_known_by_its_lines() -> None:
    session = session_of(
        begun(),
        look(1, "/m/facts/a.md", start=3, count=2),
        look(2, "/m/sops/x/SOP.md"),
        look(3, "/m/facts/b.md", keyword="port", count=5),
        turn(4, ("file_read", {"path": "/gone"}), failed=True),
    )
    assert [(one.path, one.first, one.last) for one in reads(session)] == [
        ("/m/facts/a.md", 3, 4),
        ("/m/sops/x/SOP.md", 1, 200),
        ("/m/facts/b.md", 1, 10**9),
    ]


def test_a_plan_is_made_of_what_worked_and_may_be_kept() -> None:
    session = session_of(
        begun(),
        look(1, "/srv/app.conf"),
        look(2, "/m/facts/a.md"),
        turn(3, ("code_run", {"code": "cat /tmp/x/y"})),
        turn(4, ("code_run", {"code": "export PASSWORD=hunter2hunter"})),
        turn(5, ("code_run", {"code": "make deploy"}), failed=True),
        turn(6, ("code_run", {"code": "make test"})),
        turn(7, ("update_working_checkpoint", {"key_info": "x"})),
    )
    assert observed(session, 0, 7, "/m") == ("file_read /srv/app.conf", "code_run make test")
    assert keepable("deploy it\npassword: hunter2hunter\nto staging", "s") == "deploy it to staging"


@given(st.text("ab#0", max_size=8), st.integers(0, 99))
def test_an_episodes_name_and_round_come_back(episode: str, number: int) -> None:
    if episode:
        assert split(join(episode, number)) == (episode, number)


# -- the directive ---------------------------------------------------------------------------------------

_paths = st.sampled_from(
    ["facts/hosts.md", "facts/日志.md", "sops/tidy-logs/SOP.md", "episodes/e1-2.md", "sops/b/SOP.md"]
)
_spots = st.lists(
    st.builds(Spot, _paths, st.lists(st.integers(1, 300), min_size=1, max_size=30).map(tuple)), max_size=20
)


@given(st.sampled_from(["/m", "/home/me; you/a: b/memory", "/" + "long/" * 30 + "memory"]), _spots)
def test_a_directive_is_short_and_can_be_read_back(root: str, spots: list[Spot]) -> None:
    told = directive.render(root, spots)
    assert bool(told) == bool(spots)
    if "; " in root and " below " not in told:
        return  # such a root cannot be taken apart; the directive then stands until the next decision
    if len(root) < 150:
        first = directive.spots(told)[:1]
        assert not spots or first[0].path == f"{root}/{spots[0].path}"
        assert set(directive.paths(told)) <= {f"{root}/{spot.path}" for spot in spots}
    if spots and len(told) > LENGTH:
        assert told.count(";") == root.count(";")  # a single item that is too long by itself
    assert directive.remaining(told, set(directive.paths(told))) == ""


def test_lines_are_told_as_ranges_and_files_once() -> None:
    spots = [Spot("sops/a/SOP.md", (1, 2, 3)), Spot("facts/x.md", (7,)), Spot("facts/x.md", (3, 4, 8))]
    assert directive.render("/m", spots) == "memory: read /m/sops/a/SOP.md:1-3; /m/facts/x.md:3-4,7-8"
    assert directive.spots(directive.render("/m", spots)) == (
        Spot("/m/sops/a/SOP.md", (1, 2, 3)),
        Spot("/m/facts/x.md", (3, 4, 7, 8)),
    )


def test_a_long_root_stands_once() -> None:
    root = "/home/somebody/" + "deep/" * 10 + "memory"
    spots = [Spot(f"facts/f{n}.md", (n,)) for n in range(1, 9)]
    told = directive.render(root, spots)
    assert told.startswith(f"memory: read below {root}: facts/f1.md:1; ") and len(told) <= LENGTH
    assert directive.remaining(told, {f"{root}/facts/f1.md"}) == told.replace("facts/f1.md:1; ", "")


def test_the_directive_stands_in_the_anchor_until_it_was_followed() -> None:
    told = "memory: read /m/sops/a/SOP.md:1-3; /m/facts/x.md:3"
    start = [*begun(), decided(0, text=told)]

    def shown(*more: Sequence[Record] | Record) -> str:
        session = session_of(start, *more)
        request = build(session, (), session.allowance.spent.turns)
        assert standing(session) in request.anchor
        return request.anchor

    assert told in shown()
    assert told in shown(turn(1, ("file_read", {"path": "/m/sops/a/SOP.md"}), failed=True))
    assert "memory: read /m/facts/x.md:3\n" in shown(look(1, "/m/sops/a/SOP.md"))
    assert shown(look(1, "/m/sops/a/SOP.md"), look(2, "/m/facts/./x.md", start=3, count=1)) == ""
    assert shown(look(1), decided(1, "stuck")) == ""  # the next decision has nothing to read
    answered = Answered(120.0, 1, Assistant(()), "end", "m", Usage(), None)
    over_now: list[Record] = [
        Calling(119.0, 1, "m"),
        answered,
        Ended(121.0, "done"),
        Said(130.0, 2, "reply.txt", "next"),
    ]
    assert shown(over_now) == ""  # another round


def test_the_anchor_of_a_session_without_a_directive_is_as_it_was() -> None:
    assert anchor.render(turn=1, key_info="", pinned="") == ""
    assert anchor.render(turn=1, key_info="", pinned="", memory="memory: read /m/a:1") == "memory: read /m/a:1\nturn 1"
