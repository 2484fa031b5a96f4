"""Sessions that a session has handed in: who may be at work, who is stopped with whom, and who pays."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.cli.submit import parent_here
from gad.core.admission import Admission
from gad.core.limits import Allowance, Left
from gad.core.sop import parse_sop
from gad.core.task import TaskOptions
from gad.memory.shipped import prepare
from gad.memory.store import MemoryStore
from gad.spool.intake import survey
from tests.scripted_server import Call, Reply, Say, Silence
from tests.test_crash import Daemons, daemons, rests, wait_for  # noqa: F401 - a fixture
from tests.world import World, play, until

OK = Reply((Say("ok"),))
HELD = "until [ -e go ]; do sleep 0.02; done"
"""What a parent's command waits for: a file in its directory."""


def bash(code: str) -> Call:
    return Call("code_run", {"type": "bash", "code": code, "timeout": 60})


def said(body: dict[str, Any]) -> str:
    """Return a session's first words: what its task is."""
    return str(next(message for message in body["messages"] if message["role"] == "user")["content"])


def turns(body: dict[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


def by_task(**scripts: Any) -> Callable[[dict[str, Any]], Any]:
    """Answer by the word that a task holds: with an entry of its list a turn, the last one again and again."""

    def rule(body: dict[str, Any]) -> Any:
        script = next((script for word, script in scripts.items() if word in said(body)), OK)
        return script[min(turns(body), len(script) - 1)] if isinstance(script, list) else script

    return rule


def go(world: World, session: str) -> None:
    (world.home / "work" / session / "go").touch()


async def at_work(world: World, *sessions: str) -> None:
    for session in sessions:
        await until(lambda session=session: world.status(session).get("state") == "running")  # type: ignore[misc]


async def boss_waits(world: World, **options: Any) -> None:
    """Have a parent in the middle of a command."""
    world.task("boss", "BOSS", **options)
    await until(lambda: "tool_started" in (world.kinds("boss") if "journal.jsonl" in world.files("boss") else ()))


# -- handing in from inside -----------------------------------------------------------------------


def test_a_parent_waits_for_its_child_where_only_one_session_may_work(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("boss", "BOSS: the password is xyzzy", labels=["x"])
            status = await world.rests("boss", seconds=20)
            assert status["children"] == ["kid"]
            assert status["children_tokens"] == 15 and status["children_cost_usd"] == 15e-6
            assert status["cost_usd"] == 30e-6  # its own alone
            assert world.status("kid")["parent"] == "boss" and world.status("kid")["state"] == "done"
            assert "children: 15 tokens" in world.text("boss", "output.txt")
            await world.rests("free")
            assert "parent" not in world.status("free")
        assert [message["content"] for message in world.server.requests[2].body["messages"] if "four" in str(message)]
        (kid,) = (request for request in world.server.requests if "KID" in said(request.body))
        assert "xyzzy" not in kid.raw.decode() and "BOSS" not in kid.raw.decode()

    code = "gad submit --name free --set parent= FREE; gad submit --wait --json --name kid KID: what is two and two?"
    play(tmp_path, by_task(BOSS=[bash(code), "ok"], KID="four"), scene, settings={"sessions": 1})


@pytest.mark.parametrize("polling", ["auto", "on"])
def test_gad_run_without_a_daemon_does_the_children_as_well(tmp_path: Path, polling: str) -> None:
    async def scene(world: World) -> None:
        world.task("boss", "BOSS")
        world.task("other", "OTHER")
        async with world.running(only="boss") as daemon:
            await world.rests("boss", seconds=20)
            await until(lambda: daemon._ending.is_set())
        assert world.text("kid", "result.txt") == "four\n" and world.status("boss")["children"] == ["kid"]
        assert world.text("grandkid", "result.txt") == "five\n"
        assert not world.status("other")

    kid = [bash("gad submit --wait --name grandkid GRAND"), "four"]
    scripts = by_task(BOSS=[bash("gad submit --wait --name kid KID"), "ok"], KID=kid, GRAND="five")
    play(tmp_path, scripts, scene, settings={"spool": {"polling": polling}})


def test_whose_command_this_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gad.cli import Place
    from gad.home import make_home

    home, other = tmp_path / "home", tmp_path / "other"
    make_home(home)
    make_home(other)
    (home / "spool" / "s").mkdir()
    (other / "spool" / "s").mkdir()
    monkeypatch.setenv("GAD_HOME", str(home))
    assert parent_here(Place()) is None
    monkeypatch.setenv("GAD_SESSION", "s")
    assert parent_here(Place()) == "s"
    assert parent_here(Place(str(other))) is None
    monkeypatch.setenv("GAD_SESSION", "gone")
    assert parent_here(Place()) is None


def test_a_child_asks_nobody_unless_its_parent_may(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            for name, ask in (("silent", "never"), ("asks", "user")):
                world.task(name, ask=ask)
                await world.rests(name)
                world.task(f"{name}-kid", parent=name)
                await world.rests(f"{name}-kid")
                assert world.records(f"{name}-kid")[0]["options"]["ask"] == ask
            world.task("bold", parent="silent", ask="user")
            await world.rests("bold")
            assert world.records("bold")[0]["options"]["ask"] == "user"

    play(tmp_path, OK, scene)


def test_who_cannot_be_a_parent(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("orphan", parent="nobody")
            assert "there is no session nobody" in (await world.rests("orphan", "rejected", round=0))["error"]
            world.task("own", parent="own")
            assert "its own parent" in (await world.rests("own", "rejected", round=0))["error"]
            world.task("s0")
            await world.rests("s0")
            for level in range(1, 4):
                world.task(f"s{level}", parent=f"s{level - 1}")
                await world.rests(f"s{level}")
            world.task("s4", parent="s3")
            error = (await world.rests("s4", "rejected", round=0))["error"]
            assert "s3 is 3 levels below" in error and "let s3 do the work itself" in error
            world.task("s0", parent="s2")
            await world.rests("s0", "rejected")
            assert "s2 is itself a descendant of s0" in world.status("s0")["error"]
            assert "children" not in world.status("s3")

    play(tmp_path, OK, scene)


def test_a_new_memory_tells_of_sub_agents(tmp_path: Path) -> None:
    store = MemoryStore(str(tmp_path / "memory"))
    prepare(store)
    text = (tmp_path / "memory" / "sops" / "sub-agents" / "SOP.md").read_text("utf-8")
    assert parse_sop(text).name == "sub-agents"
    assert "sops/sub-agents/SOP.md" in (tmp_path / "memory" / "sops" / "by" / "agents.md").read_text("utf-8")
    assert "gad submit --wait" in text and "gad map" in text


# -- who may be at work ---------------------------------------------------------------------------


def test_children_of_a_session_at_work_are_beyond_the_limit_up_to_their_own(tmp_path: Path) -> None:
    most = 0

    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world)
            world.task("other", "OTHER")
            kids = [f"kid{n}" for n in range(5)]
            for name in kids:
                world.task(name, "KID", parent="boss")

            def over() -> bool:
                nonlocal most
                states = [world.status(name).get("state") for name in kids]
                most = max(most, states.count("running"))
                return states.count("done") == len(kids)

            await until(over)
            assert world.status("boss")["state"] == "running" and world.status("other")["state"] == "queued"
            go(world, "boss")
            await world.rests("boss")
            await world.rests("other")
            assert sorted(world.status("boss")["children"]) == kids
        assert most == 2

    scripts = by_task(BOSS=[bash(HELD), "ok"], KID=Reply((Say("ok"),), wait=0.1))
    play(tmp_path, scripts, scene, settings={"sessions": 1, "children": 2})


def test_children_of_a_session_at_rest_count_like_any_other(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world)
            world.task("kid1", "KID", parent="boss")
            await at_work(world, "kid1")
            go(world, "boss")
            await world.rests("boss")
            assert world.status("kid1")["state"] == "running"  # the end of its parent is not its own
            world.task("kid2", "KID", parent="boss")
            world.task("other")
            for name in ("kid2", "other"):
                await world.rests(name, "queued")
            await until(lambda: world.status("boss")["children"] == ["kid1", "kid2"])
            assert world.status("kid1")["state"] == "running" and world.status("kid2")["state"] == "queued"
            world.put("kid1", "stop.txt", "")
            await at_work(world, "kid2")
            world.put("kid2", "stop.txt", "")
            await world.rests("other")

    play(tmp_path, by_task(BOSS=[bash(HELD), "ok"], KID=Silence()), scene, settings={"sessions": 1})


_STEPS = st.lists(
    st.tuples(st.sampled_from(["enqueue", "take", "leave", "place"]), st.integers(0, 7), st.integers(-1, 7)),
    max_size=60,
)


@settings(deadline=None)
@given(_STEPS, st.integers(1, 3), st.integers(1, 3))
def test_nobody_is_given_a_place_that_is_not_there(steps: list[tuple[str, int, int]], slots: int, width: int) -> None:
    admission, queued, placed = Admission(slots, width), dict[str, str | None](), dict[str, str | None]()

    def free(parent: str | None) -> bool:
        if parent in placed:
            return sum(one == parent for one in placed.values()) < width
        return sum(above not in placed for above in placed.values()) < slots

    for number, (step, name, above) in enumerate(steps):
        session, parent = f"s{name}", f"s{above}" if 0 <= above != name else None
        if step == "enqueue" and session not in placed:
            admission.enqueue(session, parent, priority=0, since=number)
            if queued.get(session, "nobody") != parent:  # another parent, another queue: it is the newest there
                queued.pop(session, None)
                queued[session] = parent
        elif step == "place":
            admission.place(session, parent)
            placed.setdefault(session, parent)
            queued.pop(session, None)
        elif step == "leave":
            admission.leave(session)
            placed.pop(session, None)
        elif step == "take":
            able = [name for name, parent in queued.items() if free(parent)]
            taken = admission.take()
            assert taken == (able[0] if able else None)  # the oldest of those that may
            if taken is not None:
                placed[taken] = queued.pop(taken)
        assert all(admission.queued(name) == (name in queued) for name in map("s{}".format, range(8)))


# -- who is stopped with whom ---------------------------------------------------------------------


def test_stopping_a_parent_stops_all_below_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world)
            world.task("finished", parent="boss")
            await world.rests("finished")
            world.task("asks", "ASK", parent="boss", ask="user")
            await world.rests("asks", "asking")
            world.task("works", "KID", parent="boss")
            await at_work(world, "works")
            world.task("grandkid", "KID", parent="works")
            await at_work(world, "grandkid")
            world.task("waits", "KID", parent="boss")
            world.task("later", "KID", parent="boss", not_before=2**33)
            world.task("other", "KID")
            await at_work(world, "other")
            for name in ("waits", "later"):
                await world.rests(name, "queued")
            await until(lambda: len(world.status("boss").get("children", ())) == 5)
            world.put("boss", "stop.txt", "")
            stopped = ("boss", "asks", "works", "grandkid", "waits", "later")
            for name in stopped:
                await world.rests(name, "stopped")
                assert [kind for kind in world.kinds(name) if kind in ("stop", "ended")] == ["stop", "ended"]
            assert world.status("finished")["state"] == "done" and "stop" not in world.kinds("finished")
            assert world.status("other")["state"] == "running"
            world.put("works", "reply.txt", "go on")  # each may be resumed by itself
            await at_work(world, "works")
            world.task("newborn", "KID", parent="boss")  # what comes after the stop is not left to work on
            await world.rests("newborn", "stopped")
            assert world.status("works")["state"] == "running"
            world.put("boss", "reply.txt", "go on")
            await world.rests("boss", round=2)

    ask = Call("ask_user", {"question": "Which?"})
    scripts = by_task(BOSS=[bash(HELD), "ok"], KID=Silence(), ASK=ask)
    play(tmp_path, scripts, scene, settings={"children": 1, "sessions": 3})


@pytest.mark.parametrize("moment", [0.0, 0.01])
def test_a_stop_reaches_the_children_whenever_the_daemon_is_killed(
    daemons: Callable[[Any], Daemons],  # noqa: F811
    moment: float,
) -> None:
    one = daemons(by_task(BOSS=[bash(HELD)], KID=Silence()))
    world = one.world
    one.start()
    world.task("boss", "BOSS")
    rests(world, "boss", "running")
    for name in ("kid1", "kid2"):
        world.task(name, "KID", parent="boss")
        rests(world, name, "running")
    wait_for(lambda: len(world.status("boss").get("children", ())) == 2)
    world.put("boss", "stop.txt", "")
    if moment:
        wait_for(lambda: "stop" in world.kinds("boss"))
        asyncio.run(asyncio.sleep(moment))  # the moment of the kill
    one.restart()
    for name in ("boss", "kid1", "kid2"):
        rests(world, name, "stopped")


def test_a_stop_for_a_parent_at_rest_is_for_its_children(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("boss")
            await world.rests("boss")
            for name, parent in (("kid", "boss"), ("grandkid", "kid")):
                world.task(name, "KID", parent=parent)
                await at_work(world, name)
            await until(lambda: world.status("kid").get("children"))
            world.put("boss", "stop.txt", "")
            for name in ("kid", "grandkid"):
                await world.rests(name, "stopped")
            assert world.status("boss")["state"] == "done"

    play(tmp_path, by_task(KID=Silence()), scene)


# -- who pays -------------------------------------------------------------------------------------


def test_what_children_use_counts_against_their_parent_and_bounds_them(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world, tokens=100)
            world.task("kid", "KID", parent="boss", tokens=1000)
            error = (await world.rests("kid", "failed"))["error"]
            assert "session boss may use" in error and "token limit reached (100)" in error
            assert world.records("kid")[0]["options"]["tokens"] == 85  # the parent had used 15
            assert world.records("kid")[-1]["limit"]
            world.task("late", "KID", parent="boss")
            await world.rests("late", "failed")
            assert world.status("late")["turn"] == 0
            go(world, "boss")
            status = await world.rests("boss", "failed")
            assert "token limit reached (100)" in status["error"] and status["turn"] == 1
            assert status["children_tokens"] == 90 and status["tokens_in"] == 10
            assert status["children_cost_usd"] == 90e-6
            world.put("boss", "reply.txt", "go on")  # the same allowance again, for the children too
            assert (await world.rests("boss", round=2))["children_tokens"] == 90
            world.put("kid", "reply.txt", "go on")
            await world.rests("kid", "failed", round=2)
            await until(lambda: world.status("boss")["children_tokens"] == 180)

    look = Call("file_read", {"path": "/etc/hostname"})
    play(tmp_path, by_task(BOSS=[bash(HELD), "ok"], KID=look), scene)


def test_one_child_uses_up_what_another_would_need(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world, usd=100e-6)
            world.task("patient", "PATIENT", parent="boss")
            await until(lambda: "tool_started" in world.kinds("patient"))
            assert world.records("patient")[0]["options"]["usd"] == pytest.approx(85e-6)
            world.task("greedy", "GREEDY", parent="boss")
            await world.rests("greedy", "failed")
            go(world, "patient")
            error = (await world.rests("patient", "failed"))["error"]
            assert "session boss may use" in error and "dollar limit reached" in error
            assert world.status("patient")["turn"] == 1
            go(world, "boss")
            await world.rests("boss", "failed")

    look = Call("file_read", {"path": "/etc/hostname"})
    play(tmp_path, by_task(BOSS=[bash(HELD), "ok"], PATIENT=[bash(HELD), "ok"], GREEDY=look), scene)


def test_what_a_grandchild_uses_goes_all_the_way_up_also_to_those_at_rest(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            for name, above in (("a", None), ("b", "a"), ("c", "b"), ("d", "c")):
                world.task(name, **({"parent": above} if above else {}))
                await world.rests(name)
            told = {name: world.status(name).get("children_tokens") for name in "abcd"}
            assert told == {"a": 45, "b": 30, "c": 15, "d": None}
            world.put("d", "reply.txt", "more")
            await world.rests("d", round=2)
            assert world.status("a")["children_tokens"] == 60 and world.status("a")["state"] == "done"
            world.put("d", "input.txt", "anew")  # another conversation of a child adds to what the first one has used
            await until(lambda: world.status("d").get("round") == 1)
            await world.rests("d")
            assert world.status("c")["children_tokens"] == 45 and world.status("c")["children"] == ["d"]
            world.put("a", "input.txt", "anew")  # nothing of this is the new conversation's
            await until(lambda: "children" not in world.status("a"))
            await world.rests("a")
            world.put("d", "reply.txt", "more")
            await world.rests("d", round=2)
            assert world.status("b")["children_tokens"] == 75 and "children_tokens" not in world.status("a")
        async with world.running():
            assert world.status("b")["children_tokens"] == 75

    play(tmp_path, OK, scene)


def test_a_limit_half_way_up_ends_those_below_and_those_above_are_told_what_it_took(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("a", tokens=1000)
            await world.rests("a")
            world.task("b", parent="a", tokens=40)
            await world.rests("b")
            world.task("c", "KID", parent="b")
            error = (await world.rests("c", "failed"))["error"]
            assert "session b may use" in error and "a reply to b" in error
            assert world.status("c")["turn"] == 2 and world.status("b")["children_tokens"] == 30
            assert world.status("a")["children_tokens"] == 45 and world.status("a")["children"] == ["b"]
            assert world.records("b")[0]["options"]["tokens"] == 40
            world.task("d", "KID", parent="a")
            await world.rests("d", "failed", seconds=30)
            assert world.records("d")[0]["options"]["tokens"] == 940

    look = Call("file_read", {"path": "/etc/hostname"})
    play(tmp_path, by_task(KID=look), scene)


def test_reviews_are_nobody_s_errand(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            await boss_waits(world, tokens=100)
            world.task("review-boss", "KID", parent="boss", review="boss")
            await at_work(world, "review-boss")
            await until(lambda: world.status("boss").get("children") == ["review-boss"])
            assert world.records("review-boss")[0]["options"].get("tokens") is None
            world.put("boss", "stop.txt", "")
            await world.rests("boss", "stopped")
            assert world.status("review-boss")["state"] == "running"
            assert "children_tokens" not in world.status("boss")

    play(tmp_path, by_task(BOSS=[bash(HELD)], KID=Silence()), scene)


def test_what_a_child_used_is_counted_once_whenever_the_daemon_was_killed(
    daemons: Callable[[Any], Daemons],  # noqa: F811
) -> None:
    """A crash between the child's record and the parent's, which is made up for, and one after both."""
    look = Call("file_read", {"path": "/etc/hostname"})
    one = daemons(by_task(KID=[look, look, Silence()]))
    world = one.world
    one.start()
    world.task("boss", "BOSS")
    rests(world, "boss", "done")
    world.task("kid", "KID", parent="boss")
    wait_for(lambda: len(world.server.requests) == 4)
    assert world.status("boss")["children_tokens"] == 30
    one.kill()
    journal = world.spool / "boss" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == "child_used"
    journal.write_bytes(b"".join(line for line in lines if json.loads(line)["kind"] not in ("child", "child_used")))
    one.start()
    wait_for(lambda: len(world.server.requests) == 5)
    assert world.status("boss")["children"] == ["kid"] and world.status("boss")["children_tokens"] == 30
    one.restart()
    wait_for(lambda: len(world.server.requests) == 6)
    assert world.status("boss")["children_tokens"] == 30
    assert [record["tokens"] for record in world.records("boss") if record["kind"] == "child_used"] == [30]


def test_an_allowance_counts_children_and_gives_the_same_again() -> None:
    allowance = Allowance()
    allowance.limits = TaskOptions(tokens=100, usd=1.0, turns=5)
    allowance.turn(tokens=10, usd=0.1)
    allowance.charge("kid", 1.0, tokens=20, usd=0.2)
    allowance.charge("kid", 1.0, tokens=50, usd=0.5)
    allowance.charge("kid", 2.0, tokens=10, usd=0.1)
    assert allowance.children.tokens == 60 and allowance.children.usd == pytest.approx(0.6)
    assert allowance.left.tokens == 30 and allowance.left.usd == pytest.approx(0.3)
    assert allowance.over(0.0) == allowance.over_cost() == ""
    allowance.charge("kid", 2.0, tokens=40, usd=0.1)
    assert "token limit" in allowance.over(0.0) and "token limit" in allowance.over_cost()
    allowance.end_round(by_limit=True)
    allowance.begin_round()
    assert allowance.left.tokens == 100 and not allowance.over(0.0)
    allowance.charge("other", 3.0, tokens=1, usd=None)
    assert allowance.children.usd is None and "cannot be kept" in allowance.over_cost()
    for _ in range(4):
        allowance.turn(tokens=0, usd=0.0)
    assert "turn" not in allowance.over_cost()  # turns are each one's own


def test_a_bound_never_widens() -> None:
    assert Left(10, 1.0).bound(TaskOptions(tokens=5)) == TaskOptions(tokens=5, usd=1.0)
    assert Left(10, None).bound(TaskOptions(tokens=50, usd=2.0)) == TaskOptions(tokens=10, usd=2.0)
    assert Left().bound(TaskOptions()) == TaskOptions() == Left(0, -1.0).bound(TaskOptions())


def test_a_session_is_seen_to_rest_however_many_children_go_on(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        used = {"kind": "child_used", "at": 9e9, "child": "kid", "began": 1.0, "tokens": 1, "usd": 0.0}
        with open(world.spool / "s" / "journal.jsonl", "a", encoding="utf-8") as journal:
            journal.write((json.dumps(used) + "\n") * 3000)
        assert os.path.getsize(world.spool / "s" / "journal.jsonl") > 1 << 18
        assert survey(str(world.spool / "s")).settled == "done"

    play(tmp_path, OK, scene)
