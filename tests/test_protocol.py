"""The spool protocol, row by row, with a real daemon on real files."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import ctypes
import errno
import json
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gad.cli.follow import at_rest
from gad.daemon.looks import Looks
from gad.daemon.standing import Standing
from gad.errors import SpoolLocked
from gad.notify import Notifier
from gad.spool import claim, names, watch
from gad.spool.lock import held
from tests.scripted_server import Call, Fail, Reply, Say, Silence
from tests.world import World, play, until

OK = Reply((Say("ok"),))
ASK = Call("ask_user", {"question": "Which colour?", "candidates": ["red", "blue: light"]})


# -- the files ------------------------------------------------------------------------------------


def test_input_starts_a_session_and_everything_is_there_when_status_says_done(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "say 你好 🙂")
            status = await world.rests("s")
            assert world.text("s", "result.txt") == "你好 🙂\n"
            assert "say 你好 🙂" in world.text("s", "output.txt") and "\n你好 🙂" in world.text("s", "output.txt")
            assert status["round"] == 1 and status["turn"] == 1 and status["model"] == "scripted"
            assert status["tokens_in"] == 10 and status["tokens_out"] == 5 and status["cost_usd"] > 0
            assert world.files("s") == {"journal.jsonl", "output.txt", "result.txt", "status.txt", "input.txt"} - {
                "input.txt"
            }
            assert world.kinds("s") == ["begin", "message", "calling", "answer", "ended"]
            lines = (world.spool / "s" / "status.txt").read_text("utf-8").splitlines()
            assert "state: done" in lines
            assert all(isinstance(yaml.safe_load(line), dict) for line in lines)

    play(tmp_path, [Say("你好 🙂", chunks=4)], scene)


def test_calls_that_cannot_run_go_back_as_errors_and_the_others_run(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        results = [message for message in world.server.requests[1].body["messages"] if message["role"] == "tool"]
        assert len(results) == 4
        expected = ["unknown tool 'make_coffee'", "JSON", "has no argument colour", "wrote"]
        for result, words in zip(results, expected, strict=True):
            assert words in result["content"], result
        assert world.kinds("s").count("tool_started") == 1
        assert (world.home / "work" / "s" / "a.txt").read_text() == "x"

    calls = [
        Call("make_coffee", {}),
        Call("file_read", '{"path": "a.tx'),
        Call("update_working_checkpoint", {"key_info": "k", "colour": "red"}),
        Call("file_write", {"path": "a.txt", "content": "x"}),
    ]
    play(tmp_path, [calls, "ok"], scene)


def test_task_yaml_sets_the_options(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        place = tmp_path / "elsewhere"
        place.mkdir()
        async with world.running():
            world.task("s", cwd=str(place), tools=["file_write"], check="test -f a.txt", labels=["x"], ask="never")
            await world.rests("s")
        assert (place / "a.txt").read_text("utf-8") == "héllo 世界"
        sent = world.server.requests[0].body
        assert [tool["function"]["name"] for tool in sent["tools"]] == ["file_write"]
        assert str(place) in world.server.requests[0].raw.decode()
        assert world.records("s")[0]["options"]["labels"] == ["x"]

    play(tmp_path, [Call("file_write", {"path": "a.txt", "content": "héllo 世界"}), "done"], scene)


def test_a_task_may_ask_where_the_home_says_never(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", ask="user")
            await world.rests("s", "asking")
            world.task("t")
            await world.rests("t")
        offered = [[tool["function"]["name"] for tool in request.body["tools"]] for request in world.server.requests]
        assert "ask_user" in offered[0] and "ask_user" not in offered[1]

    play(tmp_path, [ASK, "ok"], scene, settings={"ask": "never"})


def test_every_file_holds_any_language(tmp_path: Path) -> None:
    words = "你好, こんにちは, مرحبا 👩‍👩‍👧 𝔊"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", f"Aufgabe {words}", labels=[words], check=f"test -f '{words}.txt'", ask="user")
            status = await world.rests("s", "asking")
            assert status["question"] == f"Which? {words}" and status["candidates"] == [words]
            world.put("s", "context.txt", f"pinned {words}")
            await until(lambda: "context" in world.kinds("s"))
            world.put("s", "reply.txt", f"this {words}")
            await world.rests("s")
            assert world.text("s", "result.txt") == f"done {words}\n"
            for part in ("Aufgabe", "Which?", "this", "done"):
                assert f"{part} {words}" in world.text("s", "output.txt")
            assert (world.home / "work" / "s" / f"{words}.txt").read_text("utf-8") == words
            world.put("s", "input.txt", words.encode("utf-16"))
            await until(lambda: "archived-0001-journal.jsonl" in world.files("s"))
            await world.rests("s", "asking")
        sent = json.dumps(world.server.requests[1].body, ensure_ascii=False)
        assert f"pinned {words}" in sent and f"this {words}" in sent
        assert world.records("s")[0]["options"]["labels"] == [words]

    ask = Call("ask_user", {"question": f"Which? {words}", "candidates": [words]})
    write = Call("file_write", {"path": f"{words}.txt", "content": words})
    play(tmp_path, [ask, write, Say(f"done {words}", chunks=9), ask], scene)


def test_parent_and_children_know_each_other(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("boss")
            await world.rests("boss")
            for name in ("kid-1", "kid-2"):
                world.task(name, parent="boss")
                assert (await world.rests(name))["parent"] == "boss"
            world.task("orphan", parent="nobody")
            assert "nobody" in str((await world.rests("orphan", "rejected", round=0))["error"])
            await until(lambda: world.status("boss").get("children") == ["kid-1", "kid-2"])
            assert world.status("boss")["state"] == "done" and at_rest(world.spool / "boss")
        async with world.running():
            world.put("boss", "reply.txt", "and?")
            assert (await world.rests("boss", round=2))["children"] == ["kid-1", "kid-2"]

    play(tmp_path, OK, scene)


def test_reply_continues_a_finished_session_with_its_whole_history(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "first")
            await world.rests("s")
            before = (world.spool / "s" / "output.txt").read_bytes()
            inode = (world.spool / "s" / "output.txt").stat().st_ino
            world.put("s", "reply.txt", "second 二")
            status = await world.rests("s", round=2)
            assert status["turn"] == 2
            assert world.text("s", "result.txt") == "two\n"
            after = (world.spool / "s" / "output.txt").read_bytes()
            assert after.startswith(before) and (world.spool / "s" / "output.txt").stat().st_ino == inode
        said = [
            message["content"] for message in world.server.requests[1].body["messages"] if message["role"] != "system"
        ]
        assert len(said) == 3 and "first" in said[0] and said[1] == "one" and said[2] == "second 二"

    play(tmp_path, ["one", "two"], scene)


def test_reply_to_a_running_session_steers_its_next_turn(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await until(lambda: len(world.server.requests) == 1)
            world.put("s", "reply.txt", "use blue")
            await until(lambda: not world.waiting("s"))
            assert world.status("s")["state"] == "running"
            await world.rests("s")
        assert world.server.requests[1].text == "use blue"
        assert world.status("s")["round"] == 1

    play(tmp_path, [Reply((Say("let me see"),), wait=0.3), "blue it is"], scene)


def test_context_is_pinned_into_every_later_request_and_never_stored(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
            world.put("s", "context.txt", "the port is 8081 端口")
            await until(lambda: "context" in world.kinds("s"))
            world.put("s", "reply.txt", "go")
            await world.rests("s", round=2)
            world.put("s", "reply.txt", "again")
            await world.rests("s", round=3)
        for request in world.server.requests[1:]:
            assert request.raw.decode().count("8081") == 1
        assert "8081" not in world.server.requests[0].raw.decode()

    play(tmp_path, ["one", "two", "three"], scene)


def test_key_info_of_the_checkpoint_tool_stands_in_later_requests(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        newest = world.server.requests[1].body["messages"][-1]
        assert "the answer is 42" in str(newest)

    play(tmp_path, [Call("update_working_checkpoint", {"key_info": "the answer is 42"}), "ok"], scene)


def test_input_again_is_a_new_conversation_and_the_former_one_is_archived(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "the former task")
            await world.rests("s")
            former = world.text("s", "journal.jsonl")
            world.put("s", "input.txt", "fresh")
            await until(lambda: world.text("s", "result.txt") == "two\n")
            await world.rests("s")
            assert world.text("s", "archived-0001-journal.jsonl") == former
            assert world.text("s", "archived-0001-result.txt") == "one\n"
            assert "former" in world.text("s", "archived-0001-output.txt")
            assert "former" not in world.text("s", "output.txt")
            assert [record["n"] for record in world.records("s") if record["kind"] == "message"] == [2]
        assert "former" not in world.server.requests[1].raw.decode()

    play(tmp_path, ["one", "two"], scene)


@pytest.mark.parametrize("first", ["reply.txt", "input.txt"])
def test_of_a_reply_and_an_input_at_once_the_older_decides(tmp_path: Path, first: str) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "the former task")
            await world.rests("s")
        second = "input.txt" if first == "reply.txt" else "reply.txt"
        for age, name in ((20, first), (10, second)):
            path = world.put("s", name, f"this is {name}")
            os.utime(path, (time.time() - age,) * 2)
        async with world.running():
            await until(lambda: "archived-0001-journal.jsonl" in world.files("s"))
            await until(lambda: world.status("s")["state"] == "done" and not world.waiting("s"))
        former = world.text("s", "archived-0001-journal.jsonl")
        assert ("this is reply.txt" in former) == (first == "reply.txt")
        assert ("this is reply.txt" in world.text("s", "journal.jsonl")) == (first == "input.txt")

    play(tmp_path, OK, scene)


def test_input_waits_while_the_session_has_not_ended(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "first")
            await world.rests("s", "asking")
            world.put("s", "input.txt", "fresh")
            world.put("s", "context.txt", "looked at")
            await until(lambda: "context" in world.kinds("s"))
            assert "input.txt" in world.files("s")
            world.put("s", "reply.txt", "red")
            await until(lambda: world.text("s", "result.txt") == "two\n")
        assert "archived-0001-journal.jsonl" in world.files("s")

    play(tmp_path, [ASK, "one", "two"], scene)


@pytest.mark.parametrize(
    "name", ["notes.txt", ".input.txt.swp", "input.txt~", "input.tmp", "input.part", "input.txt.swp"]
)
def test_other_names_are_left_alone(tmp_path: Path, name: str) -> None:
    async def scene(world: World) -> None:
        world.put("s", name, "not a task")
        (world.spool / "s" / "sub").mkdir()
        (world.spool / "s" / "sub" / "input.txt").write_text("not a task")
        async with world.running() as daemon:
            world.task("t")
            await world.rests("t")
            await daemon._looks.look_at_all()
        assert world.files("s") == {name, "sub"}
        assert world.text("s", name) == "not a task"

    play(tmp_path, OK, scene)


@pytest.mark.parametrize("name", [".hidden", "a b", "-x", "x" * 129, "schön"])
def test_a_directory_with_another_name_is_no_session(tmp_path: Path, name: str) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task(name)
            world.task("t")
            await world.rests("t")
            await daemon._looks.look_at_all()
            assert world.files(name) == {"input.txt"}

    play(tmp_path, OK, scene)


def test_a_reply_without_a_conversation_waits_for_its_input(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.put("s", "reply.txt", "and be quick")
            world.put("s", "input.txt", "the task")
            await world.rests("s")
        assert "and be quick" in world.server.requests[-1].raw.decode()

    play(tmp_path, OK, scene)


def test_a_tool_s_output_streams_while_it_runs(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await until(lambda: "早 early" in world.text("s", "output.txt").replace("echo 早 early", ""))
            assert world.status("s")["state"] == "running"
            (tmp_path / "go").touch()
            await world.rests("s")

    code = f"echo 早 early; until test -e {tmp_path}/go; do sleep 0.02; done"
    play(tmp_path, [Call("code_run", {"type": "bash", "code": code}), "ok"], scene)


# -- when a client's file counts ------------------------------------------------------------------


def shell(directory: Path, text: str) -> None:
    (directory / "input.txt").write_text(text, "utf-8")


def moved_in(directory: Path, text: str) -> None:
    outside = directory.parent.parent / "outside.txt"
    outside.write_text(text, "utf-8")
    os.rename(outside, directory / "input.txt")


def write_and_rename(directory: Path, text: str) -> None:
    (directory / ".input.txt.tmp").write_text(text, "utf-8")
    os.rename(directory / ".input.txt.tmp", directory / "input.txt")


def linked_in(directory: Path, text: str) -> None:
    (directory / "input.tmp").write_text(text, "utf-8")
    os.link(directory / "input.tmp", directory / "input.txt")
    time.sleep(0.01)  # the client's own pace, between its two steps
    os.unlink(directory / "input.tmp")


def truncate_and_write(directory: Path, text: str) -> None:
    with open(directory / "input.txt", "w", encoding="utf-8"):
        pass
    with open(directory / "input.txt", "w", encoding="utf-8") as file:
        for letter in text:
            file.write(letter)
            file.flush()


def slowly(directory: Path, text: str) -> None:
    with open(directory / "input.txt", "wb", buffering=0) as file:
        for byte in text.encode():
            file.write(bytes([byte]))
            time.sleep(0.02)  # the client's own pace


WRITERS: list[Callable[[Path, str], None]] = [shell, moved_in, write_and_rename, linked_in, truncate_and_write, slowly]


@pytest.mark.parametrize("leases", [True, False])
@pytest.mark.parametrize("write", WRITERS)
def test_every_way_of_writing_gives_one_whole_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], None], leases: bool
) -> None:
    if not leases:
        monkeypatch.setattr(claim, "writer_gone", lambda fd: None)

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            (world.spool / "s").mkdir()
            await asyncio.to_thread(write, world.spool / "s", "schreib 全部 🙂 auf")
            if write is linked_in:
                await daemon._looks.look_at_all()  # no event tells of a link: the next look at everything finds it
            await world.rests("s")
        said = [record["text"] for record in world.records("s") if record["kind"] == "message"]
        assert said == ["schreib 全部 🙂 auf"]
        assert len(world.server.requests) == 1

    play(tmp_path, OK, scene)


def test_half_a_file_is_never_read(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            (world.spool / "s").mkdir()
            with open(world.spool / "s" / "input.txt", "w", encoding="utf-8") as file:
                file.write("first half, ")
                file.flush()
                daemon.poke("s")  # the file is open, so no event tells of it
                await until(lambda: ".claim-0001-input.txt" in world.files("s"))
                for _ in range(20):
                    daemon.poke("s")
                    await asyncio.sleep(0)
                assert world.kinds("s") == []
                file.write("second half")
            await world.rests("s")
        assert world.records("s")[1]["text"] == "first half, second half"

    play(tmp_path, OK, scene)


def test_an_empty_file_is_not_there_yet(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.put("s", "input.txt", "")
            world.task("t")
            await world.rests("t")
            await daemon._looks.look_at_all()
            assert world.files("s") == {"input.txt"}
            world.put("s", "input.txt", "now")
            await world.rests("s")

    play(tmp_path, OK, scene)


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + "höre 听".encode(),
        "höre 听".encode("utf-16"),
        codecs.BOM_UTF16_BE + "höre 听".encode("utf-16-be"),
    ],
)
def test_byte_order_marks_are_understood(tmp_path: Path, data: bytes) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.put("s", "input.txt", data)
            await world.rests("s")
        assert world.records("s")[1]["text"] == "höre 听"

    play(tmp_path, OK, scene)


# -- claims ---------------------------------------------------------------------------------------


def test_two_replies_become_two_messages_in_order(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await until(lambda: len(world.server.requests) == 1)
            for text in ("eins", "zwei", "drei"):
                world.put("s", "reply.txt", text)
                await until(lambda: "reply.txt" not in world.files("s"))
            await world.rests("s")
        said = [record["text"] for record in world.records("s") if record["kind"] == "message"]
        assert said == ["do it", "eins", "zwei", "drei"]
        assert [record["n"] for record in world.records("s") if record["kind"] == "message"] == [1, 2, 3, 4]

    play(tmp_path, [Reply((Say("one"),), wait=0.3), "two", "three", "four"], scene)


def test_a_claim_still_being_written_holds_back_the_next_but_not_a_stop(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
            slow = open(world.spool / "s" / "reply.txt", "w", encoding="utf-8")  # noqa: SIM115
            slow.write("first")
            slow.flush()
            world.put("s", "context.txt", "x")
            await until(lambda: ".claim-0002-reply.txt" in world.files("s"))
            world.put("s", "reply.txt", "second")
            await until(lambda: "reply.txt" not in world.files("s"))
            assert [record["text"] for record in world.records("s") if record["kind"] == "message"] == ["do it"]
            world.put("s", "stop.txt", "")
            await world.rests("s", "stopped")
            slow.close()
            await until(lambda: world.kinds("s").count("message") == 3)
            said = [record["text"] for record in world.records("s") if record["kind"] == "message"]
            assert said == ["do it", "first", "second"]

    play(tmp_path, [ASK, "x", "y"], scene)


def test_a_claim_that_was_turned_down_before_the_crash_is_kept(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.put("s", "input.txt", b"\xff\xff\xff")
            await until(lambda: world.status("s").get("state") == "rejected")
        os.rename(world.spool / "s" / "rejected-0001-input.txt", world.spool / "s" / names.claim_name(1, "input.txt"))
        async with world.running():
            await until(lambda: "rejected-0001-input.txt" in world.files("s"))

    play(tmp_path, [], scene)


@pytest.mark.parametrize("journalled", [True, False])
def test_a_left_claim_is_journalled_once(tmp_path: Path, journalled: bool) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        number = 1 if journalled else 2
        world.put("s", names.claim_name(number, "reply.txt"), "from before the crash")
        async with world.running():
            await until(lambda: not world.waiting("s"))
            await world.rests("s", round=1 if journalled else 2)
        said = [record["text"] for record in world.records("s") if record["kind"] == "message"]
        assert said == ["do it"] + ([] if journalled else ["from before the crash"])

    play(tmp_path, OK, scene)


# -- what cannot be accepted ----------------------------------------------------------------------


def not_utf8(path: Path) -> None:
    path.write_bytes("fünf".encode("latin-1"))


def too_large(path: Path) -> None:
    path.write_bytes(b"x" * (1_048_576 + 1))


def white_space(path: Path) -> None:
    path.write_text(" \n\n")


def symbolic_link(path: Path) -> None:
    path.parent.parent.joinpath("target.txt").write_text("secret")
    path.symlink_to("../target.txt")


def hard_link(path: Path) -> None:
    path.parent.parent.joinpath("target.txt").write_text("secret")
    os.link(path.parent.parent / "target.txt", path)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


def foreign(path: Path) -> None:
    path.with_name(".x").write_text("from another user")
    os.chown(path.with_name(".x"), 4242, 4242)
    os.rename(path.with_name(".x"), path)


BAD: list[tuple[Callable[[Path], None], str]] = [
    (not_utf8, "not UTF-8"),
    (too_large, "the limit is 1048576"),
    (white_space, "white space"),
    (symbolic_link, "symbolic link"),
    (hard_link, "hard links"),
    (fifo, "not a regular file"),
    (directory, "not a regular file"),
    (device, "not a regular file"),
    (foreign, "belongs to user 4242"),
]


@pytest.mark.parametrize(("make", "word"), BAD)
@pytest.mark.parametrize("name", ["input.txt", "reply.txt"])
def test_what_cannot_be_accepted_is_kept_and_explained(
    tmp_path: Path, name: str, make: Callable[[Path], None], word: str
) -> None:
    if make in (foreign, device) and os.geteuid() != 0:
        pytest.skip("only root can make another user's file or a device")

    async def scene(world: World) -> None:
        (world.spool / "s").mkdir()
        async with world.running() as daemon:
            if name == "reply.txt":
                world.task("s")
                await world.rests("s")
            try:
                make(world.spool / "s" / name)
            except PermissionError:
                pytest.skip("devices cannot be made here")
            await daemon._looks.look_at_all()  # a link or a pipe is never closed after writing, so no event tells of it
            await until(lambda: world.status("s").get("state") == "rejected")
            number = 1 if name == "input.txt" else 2
            error = world.status("s")["error"]
            assert word in error and f"rejected-000{number}-{name}" in error
            assert os.path.lexists(world.spool / "s" / f"rejected-000{number}-{name}")
            world.put("s", name, "a correct one")
            await world.rests("s", round=1 if name == "input.txt" else 2)
            assert "error" not in world.status("s")

    play(tmp_path, OK, scene)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: test\nmodle: x\n", ["task.yaml:2", "modle", "model"]),
        ("model: gpt-17\n", ["task.yaml:1", "gpt-17"]),
        ("cwd: relative/path\n", ["task.yaml:1", "cwd"]),
        ("cwd: /no/such/place\n", ["/no/such/place"]),
        ("turns: [1\n", ["task.yaml:"]),
        ("- a\n- b\n", ["task.yaml:1"]),
        ("tools: [file_red]\n", ["file_red", "file_read"]),
    ],
)
def test_a_bad_task_yaml_keeps_both_files_and_names_the_line(tmp_path: Path, text: str, words: list[str]) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.put("s", "task.yaml", text)
            world.put("s", "input.txt", "the task")
            await until(lambda: world.status("s").get("state") == "rejected")
            error = world.status("s")["error"]
            assert all(word in error for word in words), error
            assert world.text("s", "rejected-0001-task.yaml") == text
            assert world.text("s", "rejected-0001-input.txt") == "the task"
            world.put("s", "reply.txt", "said too early")
            world.task("s", turns=3)
            await world.rests("s")
            said = [record["text"] for record in world.records("s") if record["kind"] == "message"]
            assert said == ["do it", "said too early"]

    play(tmp_path, OK, scene)


def test_a_rejected_file_is_still_told_of_after_a_restart(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.put("s", "input.txt", b"\xff\xff\xff")
            await until(lambda: world.status("s").get("state") == "rejected")
        os.unlink(world.spool / "s" / "status.txt")
        async with world.running():
            assert world.status("s")["state"] == "rejected"

    play(tmp_path, OK, scene)


# -- states ---------------------------------------------------------------------------------------


def test_queued_sessions_wait_for_a_slot_in_order_of_priority(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("first")
            await until(lambda: len(world.server.requests) == 1)
            for name, priority in (("low", -1), ("middle", 0), ("high", 5)):
                world.task(name, name, priority=priority)
                await world.rests(name, "queued")
            world.put("first", "stop.txt", "")
            for name in ("high", "middle", "low"):
                await world.rests(name)
        assert [request.text.split()[-1] for request in world.server.requests[1:]] == ["high", "middle", "low"]

    play(tmp_path, [Silence(), "a", "b", "c"], scene, settings={"sessions": 1})


def test_a_queued_session_can_be_stopped(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("first")
            await until(lambda: len(world.server.requests) == 1)
            world.task("second")
            await world.rests("second", "queued")
            world.put("second", "stop.txt", "")
            await world.rests("second", "stopped")
            assert len(world.server.requests) == 1

    play(tmp_path, [Reply((Say("ok"), Silence(1.0)))], scene, settings={"sessions": 1})


def test_not_before_waits_for_its_time(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            due = time.time() + 0.6
            world.task("s", not_before=due)
            await world.rests("s", "queued")
            await world.rests("s")
            assert time.time() >= due and world.server.requests[0].wall >= due

    play(tmp_path, OK, scene)


def test_asking_shows_the_question_and_the_reply_is_the_call_s_result(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            status = await world.rests("s", "asking")
            assert status["question"] == "Which colour?" and status["candidates"] == ["red", "blue: light"]
            assert "Which colour?" in world.text("s", "output.txt") and "blue: light" in world.text("s", "output.txt")
            world.put("s", "reply.txt", "blue: light")
            status = await world.rests("s")
            assert status["round"] == 1 and "question" not in status
        last = world.server.requests[1].body["messages"][-1]
        assert last["role"] == "tool" and last["content"] == "blue: light"

    play(tmp_path, [ASK, "ok"], scene)


def test_asking_survives_a_restart(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
        async with world.running():
            assert world.status("s")["state"] == "asking"
            world.put("s", "reply.txt", "red")
            await world.rests("s")

    play(tmp_path, [ASK, "ok"], scene)


def test_deferred_says_when_and_asks_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            status = await world.rests("s", "deferred")
            assert status["attempts"] >= 1 and status["retry_at"].endswith("Z") and status["error"]
            await world.rests("s")
            assert "retry_at" not in world.status("s") and "error" not in world.status("s")
        assert world.server.requests[1].wall - world.server.requests[0].wall >= 0.5

    play(tmp_path, [Fail(429, headers={"Retry-After": "0.5"}), Fail(529), "ok"], scene)


def test_a_reply_to_a_deferred_session_retries_at_once_and_a_stop_stops_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            world.task("t")
            await world.rests("s", "deferred")
            await world.rests("t", "deferred")
            world.put("t", "stop.txt", "")
            await world.rests("t", "stopped")
            world.put("s", "reply.txt", "now")
            await world.rests("s")

    far = Fail(429, headers={"Retry-After": "600"})
    play(tmp_path, [far, far, "ok"], scene)


def test_giving_up_after_the_configured_age(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            status = await world.rests("s", "failed")
            assert "gave up after" in status["error"]

    play(tmp_path, Fail(503), scene, settings={"retry": {"first": 0.02, "most": 0.05, "give_up": 0.2}})


@pytest.mark.parametrize(
    ("failure", "word"),
    [(Fail(401), "key"), (Fail(404, "no such model: scripted"), "no such model"), (Fail(400, "bad"), "bad")],
)
def test_failed_for_good_says_why_and_a_reply_retries(tmp_path: Path, failure: Fail, word: str) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            status = await world.rests("s", "failed")
            assert word in status["error"]
            world.put("s", "reply.txt", "again")
            await world.rests("s", round=2)

    play(tmp_path, [failure, "ok"], scene)


def test_a_missing_key_fails_with_what_to_set(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", model="claude")
            status = await world.rests("s", "failed")
            assert "ANTHROPIC_API_KEY" in status["error"]

    play(tmp_path, OK, scene)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"turns": 2}, "turn limit"), ({"tokens": 20}, "token limit"), ({"usd": 0.0002}, "dollar limit")],
)
def test_a_limit_ends_in_failed_and_names_itself(tmp_path: Path, options: dict[str, Any], word: str) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", **options)
            status = await world.rests("s", "failed")
            assert word in status["error"] and len(world.server.requests) == 2

    calls = [Call("code_run", {"type": "bash", "code": f"echo {n}"}) for n in range(9)]
    # One turn is 15 tokens, so it costs 0.00015 USD.
    play(tmp_path, calls, scene, settings={"prices": {"scripted": {"input": 10, "output": 10}}})


@pytest.mark.parametrize("slow", [Reply((Silence(),)), Call("code_run", {"type": "bash", "code": "sleep 60"})])
def test_the_time_limit_breaks_off_what_is_under_way(tmp_path: Path, slow: Any) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", seconds=1)
            status = await world.rests("s", "failed")
            assert "time limit" in status["error"]

    play(tmp_path, [slow], scene)


def test_the_day_s_dollar_cap_counts_over_sessions_and_restarts(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        async with world.running():
            world.task("t")
            status = await world.rests("t", "failed")
            assert "day's dollar cap" in status["error"] and len(world.server.requests) == 1

    # One turn costs 15 tokens at 100 USD a million, which is 0.0015 USD.
    settings = {"usd_per_day": 0.001, "prices": {"scripted": {"input": 100, "output": 100}}}
    play(tmp_path, OK, scene, settings=settings)


def test_a_dollar_limit_on_a_model_without_a_price_is_refused(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", usd=1)
            status = await world.rests("s", "failed")
            assert "price" in status["error"] and not world.server.requests
            world.task("t")
            status = await world.rests("t")
            assert status["cost_usd"] == "unknown"

    play(tmp_path, OK, scene, settings={"prices": {}})


def test_a_failing_check_goes_back_to_the_model_and_then_fails(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", check="echo missing a.txt; test -f a.txt")
            await world.rests("s")
            assert world.status("s")["turn"] == 3
            world.task("t", check="echo never; exit 3")
            status = await world.rests("t", "failed")
            assert "check" in status["error"] and status["turn"] == 4
        assert "missing a.txt" in world.server.requests[1].text

    write = Call("file_write", {"path": "a.txt", "content": "x"})
    play(tmp_path, ["done", write, "done now", "1", "2", "3", "4"], scene)


def test_a_stopped_session_keeps_its_progress_and_a_reply_resumes_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await until(lambda: len(world.server.requests) == 2)
            world.put("s", "stop.txt", "")
            await world.rests("s", "stopped")
            await until(lambda: world.server.requests[1].closed_at is not None)
            assert "stop.txt" not in world.files("s")
            world.put("s", "reply.txt", "go on")
            await world.rests("s", round=2)
        roles = [message["role"] for message in world.server.requests[2].body["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "user"]

    read = Call("code_run", {"type": "bash", "code": "echo hi"})
    play(tmp_path, [read, Reply((Say("half an ans"), Silence())), "ok"], scene)


def test_a_stop_ends_the_tool_s_whole_process_group(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            pids = tmp_path / "pids"
            await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
            world.put("s", "stop.txt", "")
            await world.rests("s", "stopped")
            for pid in pids.read_text().split():
                await until(lambda pid=pid: not alive(int(pid)))  # type: ignore[misc]
        finished = [record for record in world.records("s") if record["kind"] == "tool_finished"]
        assert not finished  # nobody knows how far it came: the replayed session says so to the model

    code = f"sleep 300 & echo $$ > {tmp_path}/p; echo $! >> {tmp_path}/p; mv {tmp_path}/p {tmp_path}/pids; wait"
    play(tmp_path, [Call("code_run", {"type": "bash", "code": code, "timeout": 250})], scene)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_stop_wins_over_a_reply_beside_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")
        world.put("s", "reply.txt", "red")
        world.put("s", "stop.txt", "")
        async with world.running():
            await world.rests("s", "stopped")
            assert len(world.server.requests) == 1
            world.put("s", "reply.txt", "go")
            await world.rests("s", round=2)
        assert "red" in world.server.requests[1].raw.decode()

    play(tmp_path, [ASK, "ok"], scene)


# -- events are hints -----------------------------------------------------------------------------


def test_polling_works_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.daemon.POLL", 0.05)

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
            world.put("s", "reply.txt", "more")
            await world.rests("s", round=2)

    play(tmp_path, OK, scene, settings={"spool": {"polling": True}})


def test_a_network_file_system_is_polled_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.daemon.POLL", 0.05)
    monkeypatch.setattr(watch, "file_system", lambda path: "nfs4")

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")

    logged = logged_by(lambda: play(tmp_path, OK, scene))
    assert "network file system (nfs4)" in logged


def test_an_exhausted_inotify_limit_falls_back_to_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gad.daemon.POLL", 0.05)

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            # From here on the kernel refuses every new watch, the library's and ours.
            from watchdog.observers import inotify_c

            def full(fd: int, path: bytes, mask: int) -> int:
                ctypes.set_errno(errno.ENOSPC)
                return -1

            monkeypatch.setattr(inotify_c, "inotify_add_watch", full)
            world.task("s")
            await world.rests("s")
            world.put("s", "reply.txt", "more")
            await world.rests("s", round=2)
            assert "inotify limit" in daemon._watch.problem

    assert "inotify limit" in logged_by(lambda: play(tmp_path, OK, scene))


def test_lost_events_are_made_up_for_by_looking_at_everything(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            daemon._hint = lambda name: None  # type: ignore[method-assign]
            daemon._watch._look = lambda name: None
            world.task("s")
            for directory in list(daemon._watch._watched.values()):  # as the library does when the queue is full
                directory.on_queue_overflow()
            await world.rests("s")

    play(tmp_path, OK, scene)


def test_what_the_daemon_writes_does_not_wake_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s")
            await until(lambda: len(world.server.requests) == 1)
            seen: list[str] = []
            daemon._watch._look = seen.append
            await world.rests("s")
            assert seen == []

    play(tmp_path, [Reply((Say("streamed " * 50, chunks=50),), wait=0.1, delay=0.001)], scene)


def logged_by(work: Callable[[], None]) -> str:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keep = Keep()
    logging.getLogger("gad").addHandler(keep)
    try:
        work()
    finally:
        logging.getLogger("gad").removeHandler(keep)
    return "\n".join(lines)


# -- one writer -----------------------------------------------------------------------------------


def test_a_second_daemon_is_refused_and_told_who_has_the_spool(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            assert held(str(world.spool))
            with pytest.raises(SpoolLocked, match=f"pid {os.getpid()}"):
                async with world.running():
                    pass
            world.task("s")
            await world.rests("s")
        assert not held(str(world.spool))

    play(tmp_path, OK, scene)


def test_a_tool_s_child_in_the_background_does_not_keep_the_lock(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        pid = int((tmp_path / "pid").read_text())
        try:
            assert alive(pid) and not held(str(world.spool))
            async with world.running():
                pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    code = f"sleep 100 & echo $! > {tmp_path}/pid"
    play(tmp_path, [Call("code_run", {"type": "bash", "code": code}), "ok"], scene)


def test_ready_is_said_after_the_recovery_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    recover, write = Looks.recover, Standing.write

    async def recovering(self: Looks) -> None:
        await recover(self)
        order.append("recovered")

    def writing(self: Standing) -> None:
        write(self)
        order.append(self.state)

    monkeypatch.setattr(Looks, "recover", recovering)
    monkeypatch.setattr(Standing, "write", writing)
    monkeypatch.setattr(Notifier, "ready", lambda self: order.append("READY=1"))

    async def scene(world: World) -> None:
        world.task("s")
        async with world.running():
            assert world.kinds("s")  # taken in before ready
            await world.rests("s")

    play(tmp_path, OK, scene)
    assert order[:4] == ["starting", "recovered", "ready", "READY=1"]
    assert "draining" in order
