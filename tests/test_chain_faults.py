"""Chains of models where they hurt: everything down, clocks that jump, waits without end, and half answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.config import load
from gad.core.failover import SPRING_BACK, Standing
from gad.errors import AuthError, ConfigError, Overloaded, RateLimited
from tests.scripted_server import Call, Cut, Entry, Fail, Say, Silence, StreamError
from tests.test_failover import BAD_KEY, BUSY, MOVED, NOTE, Pair, play
from tests.world import until

CHAIN = ("a", "b", "c")

# -- the rules -----------------------------------------------------------------------------------


@given(st.floats(1, 1e7), st.floats(0, 1e7))
def test_a_rest_ends_when_the_clock_goes_backwards(back: float, later: float) -> None:
    standing = Standing()
    standing.failed("a", AuthError("bad key"), 1e9)
    assert standing.link(CHAIN, 1e9) == "b"
    assert standing.link(CHAIN, 1e9 - back) == "a"
    standing.failed("a", AuthError("bad key"), 1e9 - back)
    assert standing.link(CHAIN, 1e9 - back) == "b"
    assert standing.link(CHAIN, 1e9 - back + SPRING_BACK + later) == "a"


@pytest.mark.parametrize("wait", [1e5, 1e12, 1e300])
def test_no_rest_lasts_for_ever(wait: float) -> None:
    standing = Standing()
    standing.failed("a", RateLimited("slow down", retry_after=wait), 1e9)
    rest = standing.rest("a", 1e9)
    assert rest is not None and rest.until <= 1e9 + 86_400


def test_a_failure_is_for_good_only_when_it_was_seen_lately() -> None:
    standing = Standing()
    for entry in CHAIN:
        standing.failed(entry, AuthError("bad key"), 10.0)
    assert standing.lasting(CHAIN, 11.0, since=10.0)
    assert not standing.lasting(CHAIN, 21.0, since=20.0)
    standing.failed("a", AuthError("bad key"), 20.0)
    assert not standing.lasting(CHAIN, 21.0, since=20.0)
    standing.failed("b", AuthError("bad key"), 20.5)
    standing.failed("c", Overloaded("busy"), 20.5)
    assert not standing.lasting(CHAIN, 21.0, since=20.0)


# -- through the daemon --------------------------------------------------------------------------


def test_a_mended_link_is_found_though_all_were_known_to_fail_for_good(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            await world.rests("s", "failed")
            pair.two.add("Done.")  # somebody has mended the second one, within its rest
            pair.one.add(BAD_KEY)
            world.task("t")
            status = await world.rests("t")
        assert status["model"] == "second" and "no such key" in status["failover"]

    play(tmp_path, [BAD_KEY], [BAD_KEY], scene)


@pytest.mark.parametrize("retry", [{"give_up": 0}, {"first": 5, "most": 5, "give_up": 1}])
def test_one_that_will_not_be_waited_for_is_replaced(tmp_path: Path, retry: dict[str, Any]) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s")
        assert status["model"] == "second" and pair.world.kinds("s") == MOVED

    play(tmp_path, [BUSY], ["Done."], scene, retry=retry)


def test_a_wait_without_end_breaks_nothing(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s")
        assert status["model"] == "second" and "tried again from" in status["failover"]
        moved = pair.world.records("s")[3]
        assert moved["until"] <= moved["at"] + 86_401

    play(tmp_path, [Fail(429, headers={"retry-after": "999999999999"})], ["Done."], scene)


def test_when_all_want_a_wait_without_end_the_session_fails_in_words(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s", "failed")
        assert "gave up after" in status["error"] and "internal" not in status["error"]

    endless = Fail(429, headers={"retry-after": "999999999999"})
    play(tmp_path, lambda body: endless, lambda body: endless, scene)


def test_when_all_want_to_be_left_alone_they_are(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            await until(lambda: world.status("s").get("state") == "deferred")
            deferred = world.records("s")[-1]
            assert deferred["kind"] == "deferred" and deferred["retry_at"] - deferred["at"] > 3590
        assert (len(pair.one.requests), len(pair.two.requests)) == (1, 1)

    def limited(seconds: int) -> Fail:
        return Fail(429, headers={"retry-after": str(seconds)})

    play(tmp_path, [limited(3600)], [limited(7200)], scene)


@pytest.mark.parametrize("broken", [Cut(), StreamError(), StreamError("authentication_error", "no such key")])
def test_half_an_answer_is_shown_as_such_and_not_kept(tmp_path: Path, broken: Cut | StreamError) -> None:
    half: list[Any] = ["I think that", broken]

    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            await pair.world.rests("s")
        output = pair.world.text("s", "output.txt")
        at = [output.rindex(text) for text in ("I think that\n[", "is out of reach: ", "; going on with two", "Done.")]
        assert at == sorted(at) and output.index("turn 1, second") > at[2]
        assert "I think" not in str(pair.two.requests[0].body)
        assert pair.world.text("s", "result.txt") == "Done.\n"
        assert "I think" not in pair.world.text("s", "journal.jsonl")

    play(tmp_path, [half, half] if pair_of(broken) else [half], ["Done."], scene)


def pair_of(broken: Cut | StreamError) -> bool:
    """Say whether a fault has to come twice to count."""
    return not (isinstance(broken, StreamError) and "authentication" in broken.kind)


def test_a_reply_while_it_moves_is_part_of_the_conversation(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world

        def fail_late(body: dict[str, Any]) -> Entry:
            world.put("s", "reply.txt", "use blue")
            return BAD_KEY

        pair.one.add(NOTE, fail_late)
        pair.two.add(NOTE, "Done.")
        async with world.running():
            world.task("s")
            status = await world.rests("s")
        assert status["round"] == 1
        assert "use blue" in str(pair.two.requests[-1].body)
        assert not world.waiting("s")

    play(tmp_path, [], [], scene)


def test_a_new_task_after_a_move_begins_with_the_first_again(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running() as daemon:
            world.task("s")
            await world.rests("s")
            daemon._parts.standing.answered("one")
            world.put("s", "input.txt", "something else")
            await until(lambda: world.status("s").get("model") == "first" and world.status("s")["state"] == "done")
        assert "failover" not in world.status("s") and "moved" not in world.kinds("s")

    play(tmp_path, [BAD_KEY, "New."], ["Done."], scene)


def test_two_sessions_learn_from_each_other_and_spring_back_together(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running() as daemon:
            pair.turn_clock(daemon)
            for name in ("s", "t"):
                world.task(name)
            for name in ("s", "t"):
                await world.rests(name)
            pair.ahead = SPRING_BACK + 1
            for name in ("s", "t"):
                world.put(name, "reply.txt", "more")
            for name in ("s", "t"):
                status = await world.rests(name, round=2)
                assert status["model"] == "first" and "failover" not in status

    def first(body: dict[str, Any]) -> Entry:
        return "Back." if "more" in str(body["messages"]) else BAD_KEY

    play(tmp_path, first, lambda body: "Done.", scene)


def test_a_clock_that_goes_back_leaves_nobody_resting(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running() as daemon:
            pair.turn_clock(daemon)
            world.task("s")
            await world.rests("s")
            pair.ahead = -7200
            world.task("t")
            assert (await world.rests("t"))["model"] == "first"
            world.put("s", "reply.txt", "more")
            status = await world.rests("s", round=2)
            assert status["model"] == "first" and "failover" not in status

    play(tmp_path, [BAD_KEY, "Done.", "Done."], ["Done."], scene)


def test_an_unreachable_host_and_a_missing_key(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        async with pair.world.running():
            pair.world.task("s")
            status = await pair.world.rests("s")
        assert status["model"] == "second" and "no connection" in status["failover"]
        assert pair.world.kinds("s").count("deferred") == 1

    nowhere = {"provider": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    play(tmp_path, [], ["Done."], scene, first_entry=nowhere)


def test_stop_in_the_middle_of_a_wait_between_two_links(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            await until(lambda: world.status("s").get("state") == "deferred")
            world.put("s", "stop.txt", "")
            await world.rests("s", "stopped")
            world.put("s", "reply.txt", "go on")
            assert (await world.rests("s", round=2))["model"] == "second"

    play(tmp_path, [BUSY, BUSY], ["Done."], scene, retry={"first": 30, "most": 30})


def test_windows_that_differ_hold_for_each_link(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        text = "word " * 1500
        pair.one.add(*[Say(text)] * 0, *[Call("code_run", {"type": "bash", "code": f"echo {text}"})] * 6, BAD_KEY)
        pair.two.add("Done.")
        async with world.running():
            world.task("s")
            await world.rests("s")
        assert len(pair.one.requests[-1].raw) > 40_000 > len(pair.two.requests[0].raw)

    play(tmp_path, [], [], scene, second_entry={"window": 4000})


def test_the_last_link_is_silent_and_the_daemon_leaves(tmp_path: Path) -> None:
    async def scene(pair: Pair) -> None:
        world = pair.world
        async with world.running():
            world.task("s")
            await until(lambda: pair.two.requests)
        assert world.kinds("s")[-1] == "paused"
        async with world.running():
            status = await world.rests("s")
        assert status["model"] == "second" and "no such key" in status["failover"]

    play(tmp_path, [BAD_KEY, BAD_KEY], [Silence(), "Done."], scene)


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model: main\nmodels:\n  main:\n    chain: [main, gpt]\n", "main is a chain itself"),
        ("models:\n  claude:\n    chain: [claude, gpt]\n", "claude is a chain itself"),
        ("models:\n  main:\n    chain: [gpt, gpt]\n", "more than once"),
        ("models:\n  main:\n    chain: [gpt]\n", "at least two"),
        ("models:\n  main:\n    chain: []\n", "at least two"),
        ("models:\n  main:\n    chain: gpt\n", "chain"),
        ("models:\n  a:\n    chain: [b, gpt]\n  b:\n    chain: [a, gpt]\n", "is a chain itself"),
    ],
)
def test_a_chain_that_cannot_be_one_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "gad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        load(tmp_path, {})
    assert "gad.yaml:" in str(caught.value)
