"""Sessions and memory together, where it hurts: crashes, replies and verdicts at the wrong moment, broken memory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gad.cli import gad
from gad.core.sop import Sop, render_sop
from gad.core.sop_line import sop_of
from gad.memory.store import MemoryStore
from tests.scripted_server import Call, Reply, Say, Silence
from tests.test_crash import Daemons, daemons, rests, wait_for
from tests.test_memory_sessions import echo, output, told, write
from tests.world import World, play, until

__all__ = ["daemons"]

FAILS = Call("code_run", {"type": "bash", "code": "exit 3"})
NOTHING = "Nothing worth keeping."


def script(world: World, code: str, *, file: str = "run.sh", name: str = "report") -> MemoryStore:
    """Put a procedure with a script into memory."""
    store = MemoryStore(str(world.home / "memory"))
    store.prepare()
    store.commit(
        f"sops/{name}/SOP.md",
        lambda before: render_sop(Sop(name, ("report",), "work", stage="code", body="## Key steps\nDo it.\n")),
        who="user",
    )
    store.commit(f"sops/{name}/{file}", lambda before: code, who="user")
    return store


@contextlib.contextmanager
def locked(world: World) -> Iterator[None]:
    """Hold the memory lock, as another process does."""
    with open(world.home / "memory" / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def reviews(world: World) -> list[str]:
    return sorted(name for name in os.listdir(world.spool) if name.startswith("review-"))


# -- scripts ---------------------------------------------------------------------------------------


def test_a_reply_while_the_script_runs_is_answered(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        script(world, f"touch {tmp_path}/began\nuntil [ -e {tmp_path}/go ]; do sleep 0.02; done\necho made\n")
        async with world.running():
            world.task("s", "task: report")
            await until(lambda: (tmp_path / "began").exists())
            world.put("s", "reply.txt", "and mail it")
            await until(lambda: world.kinds("s").count("message") == 2)
            (tmp_path / "go").touch()
            await world.rests("s")
        assert world.text("s", "result.txt") == "mailed\n"
        messages = world.server.requests[0].body["messages"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
        assert "made" in json.dumps(messages[2]) and "mail it" in json.dumps(messages[3])
        assert "mail it" not in json.dumps(messages[1])

    play(tmp_path, ["mailed"], scene)


def test_without_memory_no_procedure_runs(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        script(world, f"touch {tmp_path}/ran\n")
        async with world.running():
            world.task("s", "task: report", memory=False)
            await world.rests("s")
        assert not (tmp_path / "ran").exists() and world.text("s", "result.txt") == "by hand\n"

    play(tmp_path, ["by hand"], scene)


@pytest.mark.parametrize("mark", ["\u00a0", "\u2028", "\x1c", "\x85", "\u3000"])
def test_only_blanks_part_the_words_of_a_task_line(mark: str) -> None:
    assert sop_of(f"task: report a=x{mark}y b=2", None) == ("report", (f"a=x{mark}y", "b=2"))
    assert sop_of(f"a=x{mark}y b=2", "report") == ("report", (f"a=x{mark}y", "b=2"))
    assert sop_of(f"task: report a=x{mark}", None) == ("report", (f"a=x{mark}",))


def test_arguments_are_words_and_never_shell_text(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        script(world, 'printf "%s\\n" "$@"; printf "%s\\n" "$GAD_ARG_A"\n')
        odd = "a=$(touch${IFS}x);`touch${IFS}y`'\"\\\u00a0结|&>z"
        async with world.running():
            world.task("s", f"task: report {odd} -n b=1")
            world.task("t", f"task: report {odd} b-c=--help")
            await world.rests("s")
            await world.rests("t")
        assert world.text("s", "result.txt") == "no procedure named\n"  # `-n` is no key=value: not a task line
        assert world.text("t", "result.txt") == f"{odd}\nb-c=--help\n{odd[2:]}\n"
        assert os.listdir(world.home / "work" / "t") == []

    play(tmp_path, ["no procedure named"], scene)


def test_what_a_script_prints_may_be_anything_and_any_amount(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        script(world, "head -c 3000000 /dev/zero | tr '\\0' x; printf '\\000\\377\\033[31m\\r end'\n")
        async with world.running():
            world.task("s", "task: report")
            await world.rests("s")
            world.put("s", "reply.txt", "thanks")
            await world.rests("s", round=2)
        shown = CliRunner().invoke(gad, ["--home", str(world.home), "show", "--context", "--json", "s"])
        assert shown.exit_code == 0 and json.loads(shown.output)["exact"]
        assert len((world.spool / "s" / "output.txt").read_bytes()) > 1_000_000  # output.txt shows so much of it
        assert len(world.server.requests[0].raw) < 60_000

    play(tmp_path, ["welcome"], scene)


def test_a_stop_and_a_time_limit_end_a_script_and_it_is_not_run_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        script(world, f"echo ran >> {tmp_path}/log\nsleep 300\n")
        async with world.running():
            world.task("s", "task: report")
            await until(lambda: (tmp_path / "log").exists())
            world.put("s", "stop.txt", "")
            await world.rests("s", "stopped")
            world.put("s", "reply.txt", "go on")
            await world.rests("s", round=2)
            world.task("t", "task: report", seconds=1)
            await world.rests("t", "failed")
            assert "time limit" in world.status("t")["error"]
            world.put("t", "reply.txt", "go on")
            await world.rests("t", round=2)
        assert (tmp_path / "log").read_text() == "ran\n" * 2
        assert "broken off" in told(world, 0) and "broken off" in told(world, 1)

    play(tmp_path, ["ok", "ok"], scene)


def test_a_script_that_a_crash_broke_off_is_never_run_again(daemons: Callable[[Any], Daemons], tmp_path: Path) -> None:
    one = daemons(["did the rest"])
    world = one.world
    script(world, f"echo ran >> {tmp_path}/log; echo $$ > {tmp_path}/pid; sleep 300\n")
    one.start()
    world.task("s", "task: report")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    pid = int((tmp_path / "pid").read_text())
    one.restart()
    rests(world, "s", "done")
    assert (tmp_path / "log").read_text() == "ran\n" and "broken off" in told(world, 0)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


# -- verdicts --------------------------------------------------------------------------------------


def test_a_verdict_is_of_the_round_that_it_was_given_on(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            world.task("t")
            await world.rests("s")
            await world.rests("t")
        for session, after in (("s", "reply.txt"), ("t", "input.txt")):
            world.put(session, "verdict.txt", "ok")
            os.utime(world.spool / session / "verdict.txt", (1e9, 1e9))
            world.put(session, after, "and then?")
        async with world.running():
            await world.rests("s", round=2)
            await until(lambda: "archived-0001-journal.jsonl" in world.files("t"))
            await world.rests("t")
            await until(lambda: reviews(world) == ["review-s-1", "review-t-1"])
        kinds = world.kinds("s")
        assert kinds.index("judged") < kinds.index("message", kinds.index("ended"))
        assert "judged" not in world.kinds("t")
        assert "judged" in world.text("t", "archived-0001-journal.jsonl")

    def rule(body: dict[str, Any]) -> Any:
        said = json.dumps(body["messages"])
        if "worth keeping in memory" in said:
            return NOTHING
        results = [message for message in body["messages"] if message["role"] == "tool"]
        return "Done." if len(results) == 2 or "and then?" in said else [FAILS, echo()][len(results)]

    play(tmp_path, rule, scene)


def test_an_ok_before_the_end_does_not_make_a_failure_a_success(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", check="false", turns=20)
            await until(lambda: len(world.server.requests) == 2)
            world.put("s", "verdict.txt", "ok so far")
            await until(lambda: "judged" in world.kinds("s"))
            (tmp_path / "go").touch()
            await world.rests("s", "failed")
        assert reviews(world) == []

    waits = Call("code_run", {"type": "bash", "code": f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"})
    play(tmp_path, [FAILS, waits, *["Done."] * 4], scene)


@pytest.mark.parametrize("text", ["ok\tfine", "OK\r\nfine", "bad  fine", "ok\u00a0fine"])
def test_the_first_word_of_a_verdict_decides(tmp_path: Path, text: str) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
            world.put("s", "verdict.txt", text)
            await until(lambda: "judged" in world.kinds("s"))
        judged = next(record for record in world.records("s") if record["kind"] == "judged")
        assert (judged["ok"], judged["words"]) == (text[0] != "b", "fine")

    play(tmp_path, ["Done."], scene)


# -- reviews ---------------------------------------------------------------------------------------


def test_only_the_round_that_earned_it_is_reviewed(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", check="true")
            await world.rests("s")
            await until(lambda: world.status("review-s-1").get("state") == "done")
            world.put("s", "reply.txt", "thanks")
            await world.rests("s", round=2)
            world.put("s", "reply.txt", "again")
            await world.rests("s", round=3)
            await until(lambda: world.status("review-s-3").get("state") == "done")
        assert reviews(world) == ["review-s-1", "review-s-3"]

    script = [FAILS, echo(), "Done.", NOTHING, "Welcome.", FAILS, echo(), "Done.", NOTHING]
    play(tmp_path, script, scene)


def test_a_reply_in_the_same_moment_does_not_take_the_review_s_place(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            with locked(world):  # learning has to wait
                world.task("s", check="true", memory=True)
                await world.rests("s")
                world.put("s", "reply.txt", "once more")
                await world.rests("s", round=2)
            await until(lambda: len(reviews(world)) == 2)
        assert reviews(world) == ["review-s-1", "review-s-2"]
        first = world.text("review-s-1", "journal.jsonl")
        assert "1 code_run" in first and "3 code_run" not in first

    def rule(body: dict[str, Any]) -> Any:
        said = json.dumps(body["messages"])
        if "worth keeping in memory" in said:
            return NOTHING
        results = [message for message in body["messages"] if message["role"] == "tool"]
        more = 4 if "once more" in said else 2
        return "Done." if len(results) == more else [FAILS, echo()][len(results) % 2]

    play(tmp_path, rule, scene, settings={"memory": {"controller": False}})


def test_each_conversation_is_reviewed_by_its_own_calls(tmp_path: Path) -> None:
    fact = "## A\n- it is so\n[proof: 2]\n"
    calls: list[Any] = []

    async def scene(world: World) -> None:
        calls.extend([FAILS, echo("first"), "Done.", Silence(), FAILS, echo("second"), "Done."])
        calls.extend([write(world, "facts/two.md", fact), NOTHING])
        async with world.running():
            world.task("s", check="true")
            await world.rests("s")
            await until(lambda: len(world.server.requests) == 4)
            world.put("review-s-1", "stop.txt", "")
            await world.rests("review-s-1", "stopped")
            world.task("s", check="true")
            await until(lambda: "archived-0001-journal.jsonl" in world.files("s"))
            await world.rests("s")
            await until(lambda: len(reviews(world)) == 2)
            second = next(name for name in reviews(world) if name != "review-s-1")
            await world.rests(second)
            calls.extend([write(world, "facts/one.md", fact), NOTHING])
            world.task("mine", "task of my own", review="s")
            await world.rests("mine")
        changes = [json.loads(line) for line in (world.home / "memory" / "changes.jsonl").read_text().splitlines()]
        proofs = {change["path"]: change["evidence"] for change in changes if change["path"].startswith("facts")}
        assert "second" in json.dumps(proofs["facts/two.md"]) and "second" in json.dumps(proofs["facts/one.md"])

    play(tmp_path, lambda request: calls.pop(0), scene)


def test_a_review_keeps_to_the_conversation_that_it_reviews(tmp_path: Path) -> None:
    calls: list[Any] = []

    async def scene(world: World) -> None:
        gate = tmp_path / "go"
        waits = Call("file_read", {"path": str(world.home / "memory" / "meta.md")})
        calls.extend([FAILS, echo("first"), "Done.", Reply((waits,), wait=0.5)])
        async with world.running():
            world.task("s", check="true")
            await world.rests("s")
            await until(lambda: len(world.server.requests) == 4)
            calls.extend([FAILS, echo("second"), "Done."])
            world.task("s", "other", check="true", memory=False)
            await until(lambda: "archived-0001-journal.jsonl" in world.files("s"))
            calls.extend([write(world, "facts/one.md", "## A\n- it is so\n[proof: 2]\n"), NOTHING])
            await world.rests("s")
            await world.rests("review-s-1")
        changes = (world.home / "memory" / "changes.jsonl").read_text().splitlines()
        assert "first" in json.dumps(json.loads(changes[-1])["evidence"]), changes[-1]
        assert not gate.exists()

    def rule(body: dict[str, Any]) -> Any:
        review = "worth keeping in memory" in json.dumps(body["messages"])
        mine = [call for call in calls if _of_review(call) == review]
        calls.remove(mine[0])
        return mine[0]

    def _of_review(call: Any) -> bool:
        return call == NOTHING or isinstance(call, Reply) or (isinstance(call, Call) and call.name != "code_run")

    play(tmp_path, rule, scene)


@pytest.mark.parametrize("name", ["a" * 126 + "bc", "a.-" * 42])
def test_a_session_with_a_long_name_is_reviewed(tmp_path: Path, name: str) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task(name, check="true")
            await world.rests(name)
            await until(lambda: reviews(world))
            await world.rests(reviews(world)[0])

    play(tmp_path, [FAILS, echo(), "Done.", NOTHING], scene)


def test_a_review_that_was_handed_in_by_halves_is_handed_in_whole(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        (world.spool / "review-s-1").mkdir()  # a crash came before its files
        async with world.running():
            world.task("s", check="true")
            await world.rests("s")
            await until(lambda: world.status("review-s-1").get("state") == "done")

    play(tmp_path, [FAILS, echo(), "Done.", NOTHING], scene)


def test_reviewing_leaves_a_journal_that_is_being_written_alone(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        calls.extend([echo(), "Done.", write(world, "facts/a.md", "## A\n- it is so\n[proof: 1]\n"), NOTHING])
        async with world.running():
            world.task("s")
            await world.rests("s")
            journal = world.spool / "s" / "journal.jsonl"
            with open(journal, "ab") as file:
                file.write(b'{"kind":"half a re')  # the rest is still to come
            whole = journal.read_bytes()
            world.task("r", "review it", review="s")
            await world.rests("r")
            assert journal.read_bytes() == whole and output(world, "r", 1)["status"] == "ok"

    calls: list[Any] = []
    play(tmp_path, lambda request: calls.pop(0), scene)


# -- crashes and trouble ---------------------------------------------------------------------------


def test_what_a_crash_kept_from_being_learnt_is_learnt_at_the_next_start(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([FAILS, echo(), "Done.", NOTHING])
    world = one.world
    one.start()
    script(world, "echo made\n")
    with locked(world):
        world.task("used", "task: report")  # learning from it waits for the lock
        rests(world, "used", "done")
        world.task("s", check="true")
        rests(world, "s", "done")
        one.kill()
    assert reviews(world) == []
    one.start()
    wait_for(lambda: world.status("review-s-1").get("state") == "done")
    one.restart()
    wait_for(lambda: not world.waiting("s"))
    assert reviews(world) == ["review-s-1"]


def test_a_relative_path_and_a_strange_one_are_paths_too(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        store = script(world, "echo made\n")
        calls.extend(
            [Call("file_read", {"path": "a\0b"}), Call("file_read", {"path": "../../memory/sops/report/SOP.md"})]
        )
        calls.extend(["Done.", NOTHING])
        async with world.running():
            world.task("s", check="true")
            await world.rests("s")
            await until(lambda: (store.sop("report") or Sop("x", (), "y")).uses == 1)

    calls: list[Any] = []
    play(tmp_path, lambda request: calls.pop(0), scene)


def test_a_use_counts_once_however_often_the_daemon_starts(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        store = script(world, "echo made\n")
        for _ in range(3):
            async with world.running():
                world.task("s", "task: report") if not (world.spool / "s").exists() else None
                await world.rests("s")
        sop = store.sop("report")
        assert sop is not None and (sop.uses, sop.successes, sop.streak) == (1, 1, 1)

    play(tmp_path, [], scene)


def test_a_verdict_on_an_earlier_daemon_s_session_is_learnt_from(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        world.put("s", "verdict.txt", "ok")
        async with world.running():
            await until(lambda: world.status("review-s-1").get("state") == "done")

    play(tmp_path, [FAILS, echo(), "Done.", NOTHING], scene)


def test_a_daemon_leaves_soon_while_memory_is_locked(daemons: Callable[[Any], Daemons]) -> None:
    one = daemons([FAILS, echo(), "Done.", "Done.", "Done."])
    world = one.world
    script(world, "echo made\n")
    one.start()
    with locked(world):
        for name in ("a", "b", "c", "d"):
            world.task(name, "task: report")
            rests(world, name, "done")
        began = time.monotonic()
        assert one.process is not None
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(30) == 0
        assert time.monotonic() - began < 25
    one.start()
    store = MemoryStore(str(world.home / "memory"))
    wait_for(lambda: (store.sop("report") or Sop("x", (), "y")).uses == 4)


def test_a_locked_memory_holds_up_nobody_else(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        script(world, "echo made\n")
        async with world.running():
            with locked(world):
                for n in range(40):
                    world.task(f"s{n}")
                await until(lambda: all("begin" in world.kinds(f"s{n}") for n in range(40)))
                world.task("t", "task: report")
                world.task("free", memory=False)
                await world.rests("t", seconds=4)
                await world.rests("free", seconds=4)
            for n in range(40):
                await world.rests(f"s{n}", seconds=15)

    play(tmp_path, lambda request: "Done.", scene, settings={"sessions": 50})


def test_a_daemon_starts_while_memory_cannot_be_written(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        memory = world.home / "memory"
        memory.mkdir(exist_ok=True)
        os.symlink(tmp_path, memory / "facts")
        async with world.running():
            world.task("s")
            await world.rests("s")

    play(tmp_path, ["Done."], scene)


def test_memory_may_vanish_and_turn_to_rubbish_while_the_daemon_runs(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        memory = world.home / "memory"
        script(world, "echo made\n")
        async with world.running():
            (memory / "log.md").write_bytes(b"## Preferences\n- \xff\xfe\xed\xa0\x80 caf\xe9\n")
            world.task("odd")
            await world.rests("odd")
            shutil.rmtree(memory, ignore_errors=True)
            world.task("s", check="true")
            await world.rests("s")
            world.put("s", "verdict.txt", "ok")
            world.task("t", "task: report")
            await world.rests("t")
            shutil.rmtree(memory, ignore_errors=True)
            with contextlib.suppress(IsADirectoryError):
                memory.write_text("a file in its place")
            world.task("u", "task: report", check="true")
            await world.rests("u")

    play(tmp_path, lambda request: "Done.", scene)


# -- replay ----------------------------------------------------------------------------------------


def test_every_request_can_be_computed_again_with_memory_scripts_and_decisions(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        store = script(world, "echo half; exit 3\n")
        store.commit("facts/hosts.md", lambda before: "# Hosts\n\n## Report\n- report runs on alpha\n", who="user")
        async with world.running():
            world.task("s", "task: report month=5")
            await world.rests("s")
            world.put("s", "reply.txt", "report again")
            await world.rests("s", round=2)
        assert "decided" in world.kinds("s") and "script_ran" in world.kinds("s")
        sent = [record for record in world.records("s") if record["kind"] == "calling"]
        assert len(sent) == len(world.server.requests) == 5
        directives = 0
        for record, request in zip(sent, world.server.requests, strict=True):
            shown = CliRunner().invoke(
                gad, ["--home", str(world.home), "show", "--context", "--json", "s", str(record["turn"])]
            )
            found = json.loads(shown.output)
            assert found["exact"]
            raw = json.dumps(request.body["messages"], ensure_ascii=False)
            texts = [part["text"] for message in found["request"]["messages"] for part in message["parts"]
                     if "text" in part]  # fmt: skip
            assert all(json.dumps(text, ensure_ascii=False)[1:-1] in raw for text in texts)
            anchor = found["request"]["anchor"]
            assert json.dumps(anchor, ensure_ascii=False)[1:-1] in raw
            assert ("memory: read" in raw) == ("memory: read" in anchor)
            directives += "memory: read" in anchor
        assert directives

    play(tmp_path, [FAILS, echo(), Reply((Say("Done."),)), echo("x"), "Done."], scene)
