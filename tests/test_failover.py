"""Chains of models: which entry is asked, as pure rules and through the real daemon with two scripted servers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.core.failover import PATIENCE, SPRING_BACK, Standing
from gad.core.records import Calling, Deferred, Moved
from gad.core.report import status_of
from gad.core.session import replay
from gad.core.steps import CallModel
from gad.daemon import Daemon
from gad.errors import AuthError, BadRequest, NetworkError, Overloaded, RateLimited
from tests.histories import answer, begin
from tests.scripted_replies import Rule
from tests.scripted_server import Call, Entry, Fail, Refuse, ScriptedServer, Silence
from tests.world import World, until

CHAIN = ("a", "b", "c")

# -- the rules -----------------------------------------------------------------------------------


def test_the_first_answers_until_it_fails_for_good() -> None:
    standing = Standing()
    assert standing.link(CHAIN, 0.0) == "a"
    standing.failed("a", AuthError("bad key"), 10.0)
    assert standing.link(CHAIN, 10.0) == "b"
    rest = standing.rest("a", 10.0)
    assert rest is not None and (rest.until, rest.error, rest.lasting) == (10.0 + SPRING_BACK, "bad key", True)
    assert standing.link(CHAIN, 9.0 + SPRING_BACK) == "b"
    assert standing.link(CHAIN, 10.0 + SPRING_BACK) == "a"


def test_a_temporary_failure_counts_when_it_is_repeated() -> None:
    standing = Standing()
    standing.failed("a", Overloaded("busy"), 0.0)
    assert standing.link(CHAIN, 0.0) == "a"
    standing.answered("a")
    standing.failed("a", NetworkError("gone"), 1.0)
    assert standing.link(CHAIN, 1.0) == "a"
    standing.failed("a", NetworkError("gone"), 2.0)
    assert standing.link(CHAIN, 2.0) == "b"
    assert standing.link(("c", "a"), 2.0) == "c" and standing.link(("a", "c"), 2.0) == "c"


def test_after_its_rest_one_failure_is_enough() -> None:
    standing = Standing()
    for at in (0.0, 1.0, 2.0 + SPRING_BACK):
        standing.failed("a", Overloaded("busy"), at)
    assert standing.link(CHAIN, 3.0 + SPRING_BACK) == "b"


@pytest.mark.parametrize(
    ("wait", "rests"), [(None, 0.0), (PATIENCE, 0.0), (PATIENCE + 1, SPRING_BACK), (1000.0, 1000.0)]
)
def test_a_server_that_asks_for_a_long_wait_gets_it(wait: float | None, rests: float) -> None:
    standing = Standing()
    standing.failed("a", RateLimited("slow down", retry_after=wait), 0.0)
    rest = standing.rest("a", 0.0)
    assert (rest.until if rest else 0.0) == rests


def test_when_all_rest_they_take_turns() -> None:
    standing = Standing()
    for at, entry in enumerate(CHAIN):
        standing.failed(entry, BadRequest("no such model"), float(at))
    assert standing.all_rest(CHAIN, 3.0) and standing.lasting(CHAIN, 3.0)
    assert standing.link(CHAIN, 3.0) == "a"
    standing.failed("a", Overloaded("busy"), 3.0)
    assert not standing.lasting(CHAIN, 3.0)
    assert standing.link(CHAIN, 4.0) == "b"
    standing.answered("b")
    assert standing.link(CHAIN, 5.0) == "b" and not standing.all_rest(CHAIN, 5.0)


_errors = st.sampled_from([AuthError("key"), Overloaded("busy"), RateLimited("slow", retry_after=900.0), None])
_events = st.lists(st.tuples(st.sampled_from(CHAIN), _errors, st.floats(0, 200)), max_size=30)


@given(_events, st.lists(st.sampled_from(CHAIN), min_size=1, unique=True))
def test_whatever_happens_one_entry_is_asked_and_a_rest_ends(
    events: list[tuple[str, Exception | None, float]], chain: list[str]
) -> None:
    standing, now = Standing(), 0.0
    for entry, error, pause in events:
        now += pause
        if error is None:
            standing.answered(entry)
        else:
            standing.failed(entry, error, now)
        link = standing.link(chain, now)
        ready = [one for one in chain if standing.rest(one, now) is None]
        assert link == ready[0] if ready else link in chain
        assert standing.all_rest(chain, now) is not bool(ready)
        if error is None:
            assert standing.rest(entry, now) is None
    assert standing.link(chain, now + 900.0) == chain[0]


def test_a_move_is_part_of_the_session_s_state() -> None:
    head = [*begin(), Calling(101.0, 1, "m"), Deferred(102.0, "503", 103.0, 1), Calling(103.0, 1, "m")]
    session = replay([*head, Moved(104.0, "a", "b", "503 again.", 404.0)])
    assert (session.state, session.reach.attempts, session.reach.link, session.error) == ("running", 0, "b", "")
    assert session.next_step(105.0) == CallModel(1)
    told = "a: 503 again; tried again from 1970-01-01T00:06:44Z"
    assert status_of(session)["failover"] == told
    session.record(Moved(106.0, "b", "c", "401", 406.0))
    assert (session.reach.link, status_of(session)["failover"]) == ("c", told)
    session.record(Moved(107.0, "c", "b"))
    assert (session.reach.link, status_of(session)["failover"]) == ("b", told)
    session.record(Moved(405.0, "b", "a"))
    assert session.reach.link == "a" and "failover" not in status_of(session)
    assert session.reach.deferred_since == 102.0  # nobody has answered since
    session.record(answer(1, "Well.")[1])
    assert session.reach.deferred_since == 0.0


# -- through the daemon --------------------------------------------------------------------------

BAD_KEY = Fail(401, "no such key")
BUSY = Fail(503, "too busy")
NOTE = Call("update_working_checkpoint", {"key_info": "so far, so good"})
Script = Sequence[Entry | Rule] | Entry | Rule
MOVED = ["begin", "message", "calling", "moved", "calling", "answer", "ended"]


@dataclasses.dataclass
class Pair:
    """A home whose model is a chain of two scripted servers."""

    world: World
    one: ScriptedServer
    two: ScriptedServer
    ahead: float = 0.0

    def turn_clock(self, daemon: Daemon) -> None:
        """Let the daemon's clock run `ahead` of the true one by so many seconds."""
        daemon._parts = dataclasses.replace(daemon._parts, now=lambda: time.time() + self.ahead)

    def moves(self, session: str) -> list[tuple[str, str, bool]]:
        """Return each move of a session: from, to, and whether an error was the reason."""
        found = [record for record in self.world.records(session) if record["kind"] == "moved"]
        return [(record["model_from"], record["model_to"], bool(record["error"])) for record in found]


def play(
    tmp_path: Path,
    one: Script,
    two: Script,
    scene: Callable[[Pair], Awaitable[None]],
    first_entry: dict[str, Any] | None = None,
    second_entry: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Run a scene with two servers that follow their scripts; `first_entry` stands in place of the first one's
    entry, `second_entry` is added to the second one's.
    """

    async def whole() -> None:
        async with ScriptedServer(one) as first, ScriptedServer(two) as other:
            model = {"provider": "openai", "idle_timeout": 20}
            models = {
                "one": first_entry or model | {"model": "first", "base_url": first.openai_url},
                "two": model | {"model": "second", "base_url": other.openai_url} | (second_entry or {}),
                "main": {"chain": ["one", "two"]},
            }
            prices = {"first": {"input": 1000, "output": 1000}, "second": {"input": 2, "output": 4}}
            world = World(tmp_path / "home", first, **{"model": "main", "models": models, "prices": prices} | settings)
            await scene(Pair(world, first, other))

    asyncio.run(whole())


def test_a_model_that_fails_for_good_is_replaced_at_once(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            status = await world.rests("s")
            assert world.kinds("s") == MOVED
            assert pair.moves("s") == [("one", "two", True)]
            moved = world.records("s")[3]
            assert moved["until"] == pytest.approx(moved["at"] + SPRING_BACK)
            assert status["model"] == "second"
            assert status["cost_usd"] == pytest.approx((10 * 2 + 5 * 4) / 1e6)
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moved["until"]))
            assert (
                status["failover"].startswith("one: model first at 127.0.0.1") and "no such key" in status["failover"]
            )
            assert status["failover"].endswith(f"; tried again from {when}") and "error" not in status
            line = next(line for line in world.text("s", "output.txt").splitlines() if line.startswith("[one is out"))
            assert line.endswith(f"; going on with two; one is tried again from {when[11:]}]") and "no such key" in line
            assert world.text("s", "result.txt") == "Done.\n"

            # Another session knows of it, and so does the next round.
            world.task("t")
            assert "no such key" in (await world.rests("t"))["failover"]
            assert world.kinds("t") == [kind for n, kind in enumerate(MOVED) if n != 2]
            world.put("s", "reply.txt", "and more")
            await world.rests("s", round=2)
            assert world.kinds("s") == [*MOVED, "message", "calling", "answer", "ended"]
        assert (len(pair.one.requests), len(pair.two.requests)) == (1, 3)

    play(tmp_path, [BAD_KEY], ["Done."] * 3, scene)


def test_a_temporary_failure_is_waited_for_once(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s", model="main")
            await pair.world.rests("s")
        head = ["begin", "message", "calling", "deferred", "calling", "moved"]
        assert pair.world.kinds("s") == [*head, "calling", "answer", "ended"]

    play(tmp_path, [BUSY, BUSY], ["Done."], scene, model="one")


def test_an_answer_clears_an_earlier_failure(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s")
        assert pair.world.kinds("s").count("deferred") == 2 and pair.moves("s") == []
        assert status["model"] == "first"

    play(tmp_path, [BUSY, NOTE, BUSY, "Done."], [], scene)


def test_a_server_that_wants_a_long_rest_is_left_at_once(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            await pair.world.rests("s")
        moved = pair.world.records("s")[3]
        assert pair.world.kinds("s") == MOVED and moved["until"] == pytest.approx(moved["at"] + 3600)

    play(tmp_path, [Fail(429, headers={"retry-after": "3600"})], ["Done."], scene)


def test_a_model_without_its_key_is_passed_over(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s")
        assert "set NO_SUCH_KEY" in status["failover"]
        assert pair.moves("s") == [("one", "two", True)] and pair.world.kinds("s")[2:4] == ["moved", "calling"]

    keyless = {"provider": "openai", "model": "m", "key_env": "NO_SUCH_KEY"}
    play(tmp_path, [], ["Done."], scene, first_entry=keyless)


def test_the_first_is_tried_again_after_its_rest(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        def later(body: dict[str, Any]) -> Entry:
            pair.ahead = SPRING_BACK + 1
            return NOTE

        def much_later(body: dict[str, Any]) -> Entry:
            pair.ahead = 2 * SPRING_BACK + 3
            return NOTE

        pair.two.add(NOTE, later, much_later)
        async with pair.world.running() as daemon:
            pair.turn_clock(daemon)
            pair.world.task("s")
            status = await pair.world.rests("s")
        assert pair.moves("s") == [
            ("one", "two", True),
            ("two", "one", False),
            ("one", "two", True),
            ("two", "one", False),
        ]
        assert status["model"] == "first" and "failover" not in status
        assert "\n[one is tried again, in place of two]\n" in pair.world.text("s", "output.txt")
        usd = [record["usd"] for record in pair.world.records("s") if record["kind"] == "answer"]
        assert usd == pytest.approx([4e-5, 4e-5, 4e-5, 1.5e-2])
        # The conversation came along, with everything that was said elsewhere.
        assert sum(message["role"] == "tool" for message in pair.one.requests[-1].body["messages"]) == 3

    play(tmp_path, [BAD_KEY, BAD_KEY, "Done."], [], scene)


def test_status_tells_when_another_session_has_tried_the_first_in_vain(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        code = f"until [ -e {world.home}/go ]; do sleep 0.01; done"
        pair.two.add(Call("code_run", {"type": "bash", "code": code}), "Done.", "Done.")
        async with world.running() as daemon:
            pair.turn_clock(daemon)
            world.task("s")
            await until(lambda: "tool_started" in world.kinds("s"))
            pair.ahead = SPRING_BACK + 1
            world.task("t")
            await world.rests("t")
            (world.home / "go").touch()
            status = await world.rests("s")
        told = world.records("t")[3]
        assert told["kind"] == "moved"
        assert pair.moves("s") == [("one", "two", True)] * 2
        assert status["failover"] == world.status("t")["failover"]

    play(tmp_path, [BAD_KEY, BAD_KEY], [], scene)


@pytest.mark.parametrize("back", ["one", "two"])
def test_when_none_can_be_reached_the_session_waits_and_goes_on(tmp_path: Path, back: str) -> None:
    working: set[str] = set()

    def say(name: str) -> Rule:
        return lambda body: "Done." if name in working else BUSY

    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            await until(lambda: world.status("s").get("state") == "deferred" and world.status("s")["attempts"] > 6)
            assert "too busy" in world.status("s")["error"]
            asked = len(pair.one.requests), len(pair.two.requests)
            assert min(asked) > 3 and pair.moves("s") == [("one", "two", True)]
            working.add(back)
            status = await world.rests("s")
        assert status["model"] == {"one": "first", "two": "second"}[back]
        assert ("failover" in status) is (back == "two")
        assert pair.moves("s")[1:] == ([("two", "one", True)] if back == "one" else [])

    play(tmp_path, say("one"), say("two"), scene)


def test_one_that_fails_for_good_does_not_end_a_chain_that_may_work_later(tmp_path: Path) -> None:
    working: set[str] = set()

    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            await until(lambda: len(pair.one.requests) > 2 and world.status("s").get("state") == "deferred")
            working.add("two")
            assert (await world.rests("s"))["model"] == "second"

    play(tmp_path, lambda body: BAD_KEY, lambda body: "Done." if working else BUSY, scene)


def test_a_chain_gives_up_when_a_single_model_would(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s", "failed")
        assert "gave up after" in status["error"] and "too busy" in status["error"]

    retry = {"first": 0.02, "most": 0.05, "give_up": 0.5}
    play(tmp_path, lambda body: BUSY, lambda body: BUSY, scene, retry=retry)


def test_a_chain_whose_models_take_longer_to_fail_than_they_rest_gives_up_as_well(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        def slowly(body: dict[str, Any]) -> Entry:
            pair.ahead += SPRING_BACK + 1
            return BAD_KEY

        pair.one.add(*[slowly] * 9)
        pair.two.add(*[slowly] * 9)
        async with pair.world.running() as daemon:
            pair.turn_clock(daemon)
            pair.world.task("s")
            status = await pair.world.rests("s", "failed")
        assert "gave up after" in status["error"]
        assert 1000 < pair.ahead < 1000 + 3 * SPRING_BACK

    play(tmp_path, [], [], scene, retry={"first": 0.02, "most": 0.05, "give_up": 1000})


def test_a_chain_whose_models_all_fail_for_good_fails_at_once_and_says_why(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s", "failed")
            assert "one: model first at" in status["error"] and "no such key" in status["error"]
            assert "two: model second at" in status["error"] and "no such model" in status["error"]
            pair.one.add("Done.")  # a reply retries
            pair.world.put("s", "reply.txt", "again")
            assert (await pair.world.rests("s", round=2))["model"] == "first"

    play(tmp_path, [BAD_KEY], [Fail(404, "no such model")], scene)


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s", "failed")
            assert "declined" in status["error"] and pair.moves("s") == []
            pair.world.task("t")
            assert (await pair.world.rests("t"))["model"] == "first"
        assert not pair.two.requests

    play(tmp_path, [Refuse(), "Done."], [], scene)


def test_stop_after_a_move_and_go_on(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            await until(lambda: pair.two.requests)
            world.put("s", "stop.txt", "")
            status = await world.rests("s", "stopped")
            assert status["model"] == "second" and "no such key" in status["failover"]
            world.put("s", "reply.txt", "go on")
            await world.rests("s", round=2)
        assert len(pair.one.requests) == 1 and pair.moves("s") == [("one", "two", True)]

    play(tmp_path, [BAD_KEY], [Silence(), "Done."], scene)


def test_a_session_goes_on_wherever_its_journal_ends(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("whole")
            await world.rests("whole")
        lines = world.text("whole", "journal.jsonl").splitlines(keepends=True)
        ends = range(3, len(lines))
        assert {world.kinds("whole")[end - 1] for end in ends} >= {"calling", "moved", "answer"}
        shutil.rmtree(world.spool / "whole")
        for end in ends:
            lines[0] = lines[0].replace('"whole"', f'"cut-{end}"')
            world.put(f"cut-{end}", "journal.jsonl", "".join(lines[:end]))
            lines[0] = lines[0].replace(f'"cut-{end}"', '"whole"')
        async with world.running():
            for end in ends:
                status = await world.rests(f"cut-{end}")
                assert status["state"] == "done" and world.text(f"cut-{end}", "result.txt") == "Done.\n"
                kinds = world.kinds(f"cut-{end}")
                assert "resumed" in kinds and kinds[-1] == "ended"

    def second(body: dict[str, Any]) -> Entry:
        return "Done." if any(message["role"] == "tool" for message in body["messages"]) else NOTE

    play(tmp_path, lambda body: BAD_KEY, second, scene)


def test_a_link_s_own_price_decides_whether_it_is_affordable(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s", usd=1)
            status = await pair.world.rests("s", "failed")
        assert "the price of second is unknown" in status["error"] and not pair.two.requests

    play(tmp_path, [BAD_KEY], [], scene, prices={"first": {"input": 1, "output": 1}})


def test_a_link_without_tool_calls_of_its_own_takes_over(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        pair.one.add(NOTE, BAD_KEY)
        pair.two.add('Once more.\n<tool_use>{"name": "file_read", "arguments": {"path": "nil"}}</tool_use>', "Done.")
        async with pair.world.running():
            pair.world.task("s")
            await pair.world.rests("s")
        native, text = pair.one.requests[0].body, pair.two.requests[0].body
        assert native["tools"] and "tools" not in text
        told = json.dumps(pair.two.requests[0].body)
        assert "file_patch" in told and "properties" in told  # in full, to who has not seen them yet
        assert pair.world.kinds("s").count("tool_finished") == 2

    play(tmp_path, [], [], scene, second_entry={"tools": "text"})
