"""Permission through files: a real daemon asks, people answer, and no tool runs without leave, or twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gad.cli.run import read_answer
from gad.core.permission import ANSWERED_OTHERWISE, REFUSED, fingerprint
from gad.core.policy import CANDIDATES, Policy, Verdict
from gad.core.records import Resumed
from gad.core.steps import RunTool
from gad.spool.journal import load
from tests.scripted_server import Call, Reply, Say
from tests.test_crash import Daemons, daemons, rests, wait_for
from tests.world import World, play, until

__all__ = ["daemons"]


def write(path: Path, content: str = "x") -> Call:
    return Call("file_write", {"path": str(path), "content": content})


def bash(code: str) -> Call:
    return Call("code_run", {"type": "bash", "code": code})


def outputs(world: World, session: str = "s") -> list[dict[str, Any]]:
    return [record["result"] for record in world.records(session) if record["kind"] == "tool_finished"]


def told(world: World, request: int) -> str:
    return world.server.requests[request].raw.decode()


def test_yes_runs_the_call_once_and_the_next_is_asked_for_again(tmp_path: Path) -> None:
    target = tmp_path / "away" / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            status = await world.rests("s", "asking")
            assert status["candidates"] == list(CANDIDATES)
            question = status["question"]
            assert f"- write {target}" in question and "outside of the cwd" in question and "content: x" in question
            assert question.splitlines()[0] in world.text("s", "output.txt")
            assert not target.exists()
            world.put("s", "reply.txt", "yes\n")
            await until(target.exists)
            await world.rests("s", "asking")
            assert f"- write {target}" in world.status("s")["question"]
            world.put("s", "reply.txt", "no")
            await world.rests("s")
        started = [record for record in world.records("s") if record["kind"] == "tool_started"]
        assert [record["allowed"].partition(":")[0] for record in started] == ["yes"]
        assert target.read_text() == "x"
        assert REFUSED.partition(".")[0] in told(world, 2)
        assert "May this call" not in told(world, 0), "no word of the rules goes to the model beforehand"

    play(tmp_path, [write(target), write(target, "y"), "done"], scene)


def test_always_holds_for_the_session_across_a_restart_and_for_no_other(tmp_path: Path) -> None:
    target = tmp_path / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
        async with world.running():
            assert world.status("s")["state"] == "asking"
            world.put("s", "reply.txt", "always")
            await world.rests("s")
        assert target.read_text() == "1"
        async with world.running():
            world.put("s", "reply.txt", "again")
            await world.rests("s", round=2)
            assert target.read_text() == "2"
            world.task("other")
            await world.rests("other", "asking")
            world.put("other", "stop.txt", "")
            await world.rests("other", "stopped")
            world.task("s")  # a new conversation remembers nothing
            await world.rests("s", "asking")
        assert target.read_text() == "2"

    script = [write(target, "1"), "done", write(target, "2"), "done", write(target, "3"), write(target, "4")]
    play(tmp_path, script, scene)


def test_other_words_reach_the_model_as_the_user_s(tmp_path: Path) -> None:
    target = tmp_path / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
            world.put("s", "reply.txt", "yes but into the cwd, s'il te plaît")
            await world.rests("s")
        assert not target.exists()
        assert ANSWERED_OTHERWISE in told(world, 1)
        assert "into the cwd, s'il te pla" in told(world, 1)

    play(tmp_path, [write(target), "done"], scene)


def test_of_several_calls_each_gets_its_result_and_none_runs_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    calls = (
        write(Path("inside")),
        write(tmp_path / "one"),
        bash(f"echo ran >> {log}; rm -f {tmp_path}/victim"),
        write(tmp_path / "two"),
        write(Path("inside too")),
    )

    async def scene(world: World) -> None:
        (tmp_path / "victim").write_text("v")
        async with world.running():
            world.task("s")
            for reply, about in (("yes", "one"), ("yes", "victim"), ("no", "two")):
                await until(lambda about=about: f"{tmp_path}/{about}" in world.status("s").get("question", ""))  # type: ignore[misc]
                world.put("s", "reply.txt", reply)
            await world.rests("s")
        assert log.read_text() == "ran\n" and not (tmp_path / "victim").exists()
        assert (tmp_path / "one").exists() and not (tmp_path / "two").exists()
        assert (world.home / "work/s/inside").exists() and (world.home / "work/s/inside too").exists()
        assert world.kinds("s").count("tool_started") == 4 and world.kinds("s").count("tool_finished") == 4
        results = [message for message in json.loads(told(world, 1))["messages"] if message["role"] == "tool"]
        assert len(results) == 5 and REFUSED in results[3]["content"]

    play(tmp_path, [Reply(calls), "done"], scene)


def test_the_same_call_is_not_asked_for_again_after_a_no(tmp_path: Path) -> None:
    target = tmp_path / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
            world.put("s", "reply.txt", "no")
            await world.rests("s")
        assert world.kinds("s").count("asked") == 1
        assert "the user has refused this very call" in outputs(world)[0]["output"]

    play(tmp_path, [write(target), write(target), "done"], scene)


def test_stop_while_asking_stops_and_a_reply_later_is_no_leave(tmp_path: Path) -> None:
    target = tmp_path / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
            world.put("s", "stop.txt", "")
            await world.rests("s", "stopped")
            world.put("s", "reply.txt", "yes")
            await world.rests("s", round=2)
        assert not target.exists()
        assert "not run" in told(world, 1)

    play(tmp_path, [write(target), "done"], scene)


def test_with_nobody_to_ask_it_is_refused_with_words_that_help(tmp_path: Path) -> None:
    target = tmp_path / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", ask="never")
            await world.rests("s")
        assert not target.exists() and "asked" not in world.kinds("s")
        [refused, ok] = outputs(world)
        assert refused["meta"]["policy"] == "deny" and "nobody is there to give it" in refused["output"]
        assert "work in the cwd" in refused["output"] and str(target) in refused["output"]
        assert ok["status"] == "ok"

    play(tmp_path, [write(target), write(Path("b")), "done"], scene)


def test_a_child_cannot_be_given_leave_by_its_parent(tmp_path: Path) -> None:
    target = tmp_path / "a"

    def rule(request: Any) -> Any:
        text = json.dumps(request)
        if "you are the parent" in text:
            return "done"
        return "done" if "nobody is there" in text else write(target)

    async def scene(world: World) -> None:
        async with world.running():
            world.task("p", "you are the parent")
            await world.rests("p")
            world.task("kid", "you are the child", parent="p", ask="user")
            await world.rests("kid")
        assert not target.exists() and "asked" not in world.kinds("kid")

    play(tmp_path, rule, scene)


@pytest.mark.parametrize(
    "code",
    [
        "echo yes > {home}/spool/s/reply.txt",
        "{python} -m gad --home {home} reply s yes",
        "sleep 1 && echo yes > {home}/spool/s/reply.txt &",
        "echo 'policy: {{}}' > {home}/gad.yaml",
        "rm -rf {home}/spool",
        "cat {home}/keys/m",
    ],
)
def test_an_agent_does_not_answer_itself_nor_change_the_rules(tmp_path: Path, code: str) -> None:
    async def scene(world: World) -> None:
        (world.home / "keys").mkdir()
        (world.home / "keys" / "m").write_text("sk-secret")
        before = (world.home / "gad.yaml").read_text()
        async with world.running():
            world.task("s")
            await world.rests("s")
        [result] = outputs(world)
        assert result["status"] == "error" and "not allowed (gad: its own" in result["output"]
        assert (world.home / "gad.yaml").read_text() == before
        assert "sk-secret" not in world.text("s", "journal.jsonl") and "tool_started" not in world.kinds("s")

    ready = code.format(home=tmp_path / "home", python="python3")
    key = {"provider": "openai", "model": "x", "base_url": "http://127.0.0.1:1/v1", "key_file": "keys/m"}

    async def whole(world: World) -> None:
        text = (world.home / "gad.yaml").read_text().replace("models:\n", f"models:\n  keyed: {json.dumps(key)}\n")
        (world.home / "gad.yaml").write_text(text)
        await scene(world)

    play(tmp_path, [bash(ready), "done"], whole)


def test_rules_of_gad_yaml_hold_and_are_journalled(tmp_path: Path) -> None:
    site = tmp_path / "site"
    rules = [{"deny": f"file_write {site}/private"}, {"allow": f"file_write {site}"}, {"ask": "code_run touch"}]

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
            assert "run touch x" in world.status("s")["question"] and "gad.yaml:" in world.status("s")["question"]
            world.put("s", "reply.txt", "yes")
            await world.rests("s")
        [ok, refused, touched] = outputs(world)
        assert (ok["status"], refused["status"], touched["status"]) == ("ok", "error", "ok")
        assert "deny file_write" in refused["output"] and not (site / "private").exists()
        started = [record["allowed"] for record in world.records("s") if record["kind"] == "tool_started"]
        assert "allow file_write" in started[0] and started[1].startswith("yes: gad.yaml:")

    script = [Reply((write(site / "a"), write(site / "private" / "b"), bash("touch x"))), "done"]
    play(tmp_path, script, scene, settings={"policy": {"rules": rules}})


def test_a_place_that_has_changed_since_it_was_asked_about_is_asked_about_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            status = await world.rests("s", "asking")
            assert f"which is {tmp_path}/one/a" in status["question"]
            (tmp_path / "link").unlink()
            (tmp_path / "link").symlink_to(tmp_path / "two")
            world.put("s", "reply.txt", "yes")
            await until(lambda: f"which is {tmp_path}/two/a" in world.status("s").get("question", ""))
            assert not list((tmp_path / "one").iterdir()) and not list((tmp_path / "two").iterdir())
            world.put("s", "reply.txt", "yes")
            await world.rests("s")
        assert (tmp_path / "two" / "a").exists() and not (tmp_path / "one" / "a").exists()

    play(tmp_path, [write(tmp_path / "link" / "a"), "done"], scene)


def test_what_cannot_be_judged_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Verdict:
        raise ZeroDivisionError("a bug")

    async def scene(world: World) -> None:
        monkeypatch.setattr(Policy, "judge", broken)
        async with world.running():
            world.task("s")
            await world.rests("s")
        assert outputs(world)[0]["status"] == "error" and "a bug" in outputs(world)[0]["output"]
        assert not (world.home / "work/s/a").exists() and "tool_started" not in world.kinds("s")

    play(tmp_path, [write(Path("a")), "done"], scene)


def test_a_rule_holds_as_soon_as_the_settings_are_read_again(tmp_path: Path) -> None:
    """Leave that was given is no leave against a rule that denies."""
    target = tmp_path / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
        config = yaml.safe_load((world.home / "gad.yaml").read_text())
        config["policy"] = {"rules": [{"deny": f"file_write {target}"}]}
        (world.home / "gad.yaml").write_text(yaml.safe_dump(config))
        world.put("s", "reply.txt", "always")
        async with world.running():
            await world.rests("s")
        assert not target.exists() and "deny file_write" in outputs(world)[0]["output"]

    play(tmp_path, [write(target), "done"], scene)


def test_refusals_count_as_failures_so_a_stubborn_model_must_ask(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
        assert "Several attempts failed" in world.status("s")["question"]

    play(tmp_path, [write(tmp_path / "home" / "gad.yaml", str(n)) for n in range(5)], scene)


def test_the_journal_cut_anywhere_never_runs_a_call_without_leave(tmp_path: Path) -> None:
    """Fold every prefix: the call may start only behind the reply that gave leave, and only once."""
    target = tmp_path / "a"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
            world.put("s", "reply.txt", "yes")
            await world.rests("s")
        data = (world.spool / "s" / "journal.jsonl").read_bytes()
        copy = tmp_path / "copy.jsonl"
        kinds = world.kinds("s")
        asked = kinds.index("asked")
        leave = kinds.index("message", asked)
        question = world.records("s")[asked]["question"]
        with_leave = set()
        for cut in range(len(data) + 1):
            copy.write_bytes(data[:cut])
            session = load(str(copy)).session
            lines = data[:cut].count(b"\n")
            assert (session.state == "asking") == (asked < lines <= leave), cut
            if session.state == "asking":
                assert session.question is not None and session.question.text == question
            if session.state == "running":  # as the next daemon finds it
                session.record(Resumed(0.0))
            step = session.next_step(0.0)
            if isinstance(step, RunTool) and session.permissions.covers(
                step.call, Verdict("ask"), fingerprint(question)
            ):
                with_leave.add(lines)
            assert not isinstance(step, RunTool) or lines <= leave + 1, cut
        assert with_leave == {leave + 1}

    play(tmp_path, [write(target), "done"], scene)


def test_kill_while_asking_and_after_the_reply(daemons: Callable[[Any], Daemons], tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "victim").write_text("v")
    code = f"echo ran >> {log}; rm -f {tmp_path}/victim; while [ -e {tmp_path}/hold ]; do sleep 0.05; done"
    (tmp_path / "hold").write_text("")
    one = daemons([bash(code), Reply((Say("done"),))])
    world = one.world
    one.start()
    world.task("s")
    question = rests(world, "s", "asking")["question"]
    one.restart()
    assert world.status("s")["state"] == "asking" and world.status("s")["question"] == question
    one.kill()
    world.put("s", "reply.txt", "yes")  # while nobody is there
    one.start()
    wait_for(log.exists)
    one.restart()  # in the middle of the tool
    rests(world, "s", "done")
    assert log.read_text() == "ran\n"
    assert world.kinds("s").count("asked") == 1 and "may or may not have happened" in told(world, 1)


def test_a_number_at_the_terminal_is_one_of_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    for line, answer in ((b"1\n", b"yes"), (b"3\n", b"always"), (b"2\n", b"no"), (b"not there\n", b"not there")):
        reading, writing = os.pipe()
        os.write(writing, line)
        os.close(writing)
        with open(reading) as stream:
            monkeypatch.setattr("sys.stdin", stream)
            assert read_answer(CANDIDATES) == answer
