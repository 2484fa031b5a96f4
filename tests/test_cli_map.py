"""gad map: a session a line, results in the lines' order, and what an earlier run has done is not done again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gad.cli import exits, gad
from gad.cli import map as mapping
from gad.cli.follow import at_rest
from gad.cli.map import items_of
from gad.home import make_home
from gad.spool import drop
from gad.spool.lock import SpoolLock
from tests.scripted_server import Call, Fail, Reply, Say, Silence
from tests.test_children import bash, by_task, said
from tests.world import World, play, until

KEYS = ["index", "input", "session", "state", "text", "error", "usd"]


async def start(world: World, *arguments: str, stdin: str = "") -> asyncio.subprocess.Process:
    """Start gad map on lines that come by standard input, unless the arguments name another."""
    given = arguments if any(word in ("-i", "--input") for word in arguments) else (*arguments, "--input", "-")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gad", "--home", str(world.home), "map", *given),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
        cwd=Path(__file__).parent.parent,
    )
    assert process.stdin is not None
    process.stdin.write(stdin.encode())
    process.stdin.close()
    return process


async def gad_map(world: World, *arguments: str, stdin: str = "") -> tuple[int, list[dict[str, Any]]]:
    """Run gad map to its end; return its exit code and its rows."""
    process = await start(world, *arguments, stdin=stdin)
    out, err = await process.communicate()
    assert process.returncode is not None and b"Traceback" not in err, err.decode()
    return process.returncode, [json.loads(line) for line in out.splitlines()]


def lines(count: int) -> str:
    return "".join(f"line-{number}\n" for number in range(1, count + 1))


def shout(body: dict[str, Any]) -> Any:
    """Answer with the line in capitals, some lines later than others."""
    line = said(body).split("[[")[1].split("]]")[0]
    return Reply((Say(line.upper()),), wait=0.02 * (len(line) * 7 % 4))


def test_fifty_lines_where_two_sessions_may_work(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            code, rows = await gad_map(
                world, "--jobs", "8", "shout [[{}]], that is {}", stdin=lines(49) + "\n  \nñandú 🙂"
            )
        assert code == exits.DONE and [row["index"] for row in rows] == list(range(1, 51))
        assert [row["text"] for row in rows] == [f"LINE-{number}" for number in range(1, 50)] + ["ÑANDÚ 🙂"]
        assert rows[49]["input"] == "ñandú 🙂" and rows[0]["input"] == "line-1"
        assert all(list(row) == KEYS and row["state"] == "done" and row["error"] is None for row in rows)
        assert all(row["usd"] == 15e-6 for row in rows)
        assert "shout [[line-1]], that is line-1" in world.text(rows[0]["session"], "output.txt")
        assert rows[0]["session"].startswith("map-") and rows[0]["session"].endswith("-0001")

    play(tmp_path, shout, scene, settings={"sessions": 2})


def test_results_come_in_order_as_soon_as_they_are_due_and_no_more_than_jobs_are_under_way(tmp_path: Path) -> None:
    most = 0

    async def count(world: World) -> None:
        nonlocal most
        while True:
            names = [name for name in os.listdir(world.spool) if name.startswith("map-")]
            most = max(most, sum(world.status(name).get("state") not in ("done", "stopped") for name in names))
            await asyncio.sleep(0.005)

    async def scene(world: World) -> None:
        counting = asyncio.create_task(count(world))
        async with world.running() as daemon:
            process = await start(world, "--jobs", "2", "[[{}]]", stdin=lines(6))
            assert process.stdout is not None
            first = json.loads(await process.stdout.readline())
            assert first["text"] == "LINE-1"
            # The second is not there yet, so nothing more is printed; the others are done meanwhile.
            await until(lambda: sum(state == "done" for state in daemon.states.values()) == 5, 30)
            (slow,) = (name for name, state in daemon.states.items() if state != "done")
            assert slow.endswith("-0002")
            world.put(slow, "stop.txt", "")
            rest = [json.loads(line) for line in (await process.communicate())[0].splitlines()]
            assert [row["state"] for row in rest] == ["stopped", *["done"] * 4] and rest[0]["text"] is None
            assert process.returncode == exits.STOPPED
        counting.cancel()
        assert most == 2

    play(tmp_path, lambda body: Silence() if "line-2" in said(body) else shout(body), scene)


def test_some_fail_and_only_those_are_done_again_when_that_is_asked_for(tmp_path: Path) -> None:
    bad = True

    def rule(body: dict[str, Any]) -> Any:
        return Fail(401, "bad key") if bad and "line-2" in said(body) else shout(body)

    async def scene(world: World) -> None:
        nonlocal bad
        async with world.running():
            code, rows = await gad_map(world, "[[{}]]", stdin=lines(3))
            assert code == exits.FAILED and [row["state"] for row in rows] == ["done", "failed", "done"]
            assert "bad key" in rows[1]["error"] and rows[1]["text"] is None and rows[2]["text"] == "LINE-3"
            asked = len(world.server.requests)
            bad = False
            assert await gad_map(world, "[[{}]]", stdin=lines(3)) == (code, rows)  # as it is
            assert len(world.server.requests) == asked
            code, again = await gad_map(world, "--retry-failed", "[[{}]]", stdin=lines(3))
            assert code == exits.DONE and [row["text"] for row in again] == ["LINE-1", "LINE-2", "LINE-3"]
            assert [row["session"] for row in again] == [row["session"] for row in rows]
            assert len(world.server.requests) == asked + 1

    play(tmp_path, rule, scene)


def test_what_asks_or_is_not_accepted_is_told_of(tmp_path: Path) -> None:
    def rule(body: dict[str, Any]) -> Any:
        return Call("ask_user", {"question": "Which?"}) if "line-1" in said(body) and "blue" not in str(body) else "ok"

    async def scene(world: World) -> None:
        async with world.running():
            code, rows = await gad_map(world, "[[{}]]", stdin=lines(2))
            assert code == exits.ASKING and rows[0]["state"] == "asking" and rows[0]["error"] == "Which?"
            world.put(rows[0]["session"], "reply.txt", "blue")
            await world.rests(rows[0]["session"])
            code, rows = await gad_map(world, "[[{}]]", stdin=lines(2))
            assert code == exits.DONE and rows[0]["text"] == "ok"
            code, rows = await gad_map(world, "--set", "parent=nobody", "[[{}]]", stdin="x")
            assert code == exits.REJECTED and "there is no session nobody" in rows[0]["error"]
            world.task("nobody", "x")
            await world.rests("nobody")
            code, rows = await gad_map(world, "--set", "parent=nobody", "--retry-failed", "[[{}]]", stdin="x")
            assert code == exits.DONE and world.status(rows[0]["session"])["parent"] == "nobody"

    play(tmp_path, rule, scene)


def test_killed_in_the_middle_it_is_gone_on_with_and_nothing_is_done_twice(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            for number in (3, 9):
                process = await start(world, "--jobs", "3", "[[{}]]", stdin=lines(15))
                assert process.stdout is not None
                for _ in range(number):
                    await process.stdout.readline()
                process.kill()
                await process.communicate()
            code, rows = await gad_map(world, "--jobs", "3", "[[{}]]", stdin=lines(15))
            assert code == exits.DONE and [row["text"] for row in rows] == [f"LINE-{n}" for n in range(1, 16)]
        assert len(world.server.requests) == 15

    play(tmp_path, shout, scene)


def test_ctrl_c_leaves_the_sessions_at_work_and_says_how_to_go_on(tmp_path: Path) -> None:
    held = True

    def rule(body: dict[str, Any]) -> Any:
        return Reply((Say("late"),), wait=1.5) if held else "late"

    async def scene(world: World) -> None:
        nonlocal held
        async with world.running():
            process = await start(world, "--jobs", "2", "[[{}]]", stdin=lines(3))
            await until(lambda: len(world.server.requests) == 2, 30)
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
            assert process.returncode == exits.INTERRUPTED and out == b""
            assert b"2 sessions go on" in err and b"the same command again" in err and b"-0002 halts" in err
            held = False
            code, rows = await gad_map(world, "[[{}]]", stdin=lines(3))
            assert code == exits.DONE and len(rows) == 3
        assert len(world.server.requests) == 3

    play(tmp_path, rule, scene)


def test_inside_a_session_they_are_its_children(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("boss", "BOSS")
            status = await world.rests("boss", seconds=30)
            assert len(status["children"]) == 4 and status["children_tokens"] == 60
            assert all(world.status(name)["parent"] == "boss" for name in status["children"])
            code, rows = await gad_map(world, "KID {}", stdin="1\n2")  # somebody else's are others
            assert code == exits.DONE and not {row["session"] for row in rows} & set(status["children"])
        shown = next(message for message in world.server.requests[-3].body["messages"] if message["role"] == "tool")
        rows = [json.loads(line) for line in shown["content"].splitlines() if line.startswith("{")]
        assert [row["input"] for row in rows] == ["1", "2", "3", "4"]

    scripts = by_task(BOSS=[bash("seq 4 | gad map -i - 'KID {}'"), "ok"], KID="ok")
    play(tmp_path, scripts, scene, settings={"sessions": 1, "children": 2})


# -- what needs no daemon -------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GAD_SESSION", raising=False)
    monkeypatch.setattr(mapping, "GRACE", 0.0)
    return tmp_path / "home"


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(gad, ["map", *arguments], input=stdin)


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["no hole", "-i", "-"], b"x", "the prompt has no {}"),
        (["{}", "-i", "-"], b"", "standard input holds no lines"),
        (["{}", "-i", "-"], b" \n\n\t\n", "standard input holds no lines"),
        (["{}", "-i", "-"], b"x\n" * 10_001, "10,001 lines, more than 10,000"),
        (["{}", "-i", "-"], b"a\nb\xff\n", "line 2: not UTF-8"),
        (["{}", "-i", "-"], b"a\n" + b"b" * (1 << 20) + b"bb", "the task of line 2 has"),
        (["{}", "-i", "-", "--files"], b"/etc/passwd\n/no/such/file", "line 2: /no/such/file: No such file"),
        (["{}", "-i", "-", "--files"], b"a\0b", "embedded null byte"),
        (["{}", "-i", "-", "--jobs", "0"], b"x", "0 is not in the range"),
        (["{}"], None, "Missing option '--input'"),
        (["{}", "-i", "-", "--set", "nonsense"], b"x", "not key=value"),
    ],
)
def test_bad_input_is_a_usage_error(home: Path, arguments: list[str], stdin: bytes | None, words: str) -> None:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == exits.USAGE and words in result.stderr, result.stderr
    assert os.listdir(home / "spool") == []


@pytest.mark.parametrize("arguments", [["map", "{}", "--input"], ["submit", "--file"]])
def test_a_user_s_directory_that_is_nobody_s_is_a_file_that_is_not_there(home: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(gad, [*arguments, "~nobody-here/x"])
    assert result.exit_code == exits.ERROR and "~nobody-here/x: No such file" in result.stderr


def test_without_a_daemon_it_says_so(home: Path) -> None:
    result = run("{}", "-i", "-", stdin=b"x\ny")
    assert result.exit_code == exits.TEMPORARY and "gad up" in result.stderr
    assert "the same command again" in result.stderr and len(os.listdir(home / "spool")) == 2


def test_a_session_that_is_removed_meanwhile_is_told_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop, "submit_once", lambda spool, name, text, task: not (spool / name).mkdir())
    begun: list[str] = []

    def removing(directory: Path) -> Any:
        begun.append(directory.name)
        shutil.rmtree(directory, ignore_errors=True)
        return at_rest(directory)

    monkeypatch.setattr(mapping, "at_rest", removing)
    with SpoolLock(str(home / "spool")):
        result = run("{}", "-i", "-", stdin=b"x")
    row = json.loads(result.stdout)
    assert row["state"] == "removed" and result.exit_code == exits.FAILED and begun


def test_a_name_follows_from_prompt_line_number_and_options(tmp_path: Path) -> None:
    def names(prompt: str, *texts: str, task: str = "", files: bool = False) -> list[str]:
        return [item.session for item in items_of(prompt, texts, task, files=files, most=1000)]

    before = names("do {}", "a", "b", "b")
    assert len(set(before)) == 3 and names("do {}", "a", "b", "b") == before
    assert names("do {}", "a", "c", "b")[::2] == before[::2] and names("do {}", "a", "c", "b")[1] != before[1]
    assert not set(before) & set(names("do it {}", "a", "b", "b"))
    assert not set(before) & set(names("do {}", "a", "b", "b", task="model: x\n"))
    file = tmp_path / "a.txt"
    file.write_text("one")
    (item,) = items_of("read {}", [os.path.relpath(file)], "", files=True, most=1000)
    assert item.text == str(file) and item.message == f"read {file}".encode()
    file.write_text("three")  # another content is another task
    assert names("read {}", str(file), files=True) != [item.session]
