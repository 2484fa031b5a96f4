"""The examples, each run against a real daemon."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gad.cli import COMMANDS
from tests.scripted_replies import Call
from tests.world import World, play, until

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
QUESTION = Call("ask_user", {"question": 'Which "one"?'})
MEMORY = {"enabled": False}
ASK = pytest.mark.parametrize(
    "ask", [["sh", str(EXAMPLES / "ask.sh")], [sys.executable, str(EXAMPLES / "ask.py")]], ids=["sh", "python"]
)


async def run(world: World, command: Sequence[str], *, home: bool = True, **environ: str) -> tuple[int, str, str]:
    """Run a command as a client of this home would."""
    base: Mapping[str, str] = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    given = {**base, "HOME": str(world.home.parent), "LANG": "C.UTF-8", "TERM": "dumb", **environ}
    if home:
        given["GAD_HOME"] = str(world.home)
    process = await asyncio.create_subprocess_exec(
        *command, env=given, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, cwd=world.home.parent,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@ASK
def test_ask_hands_in_a_task_answers_a_question_and_goes_on(tmp_path: Path, ask: list[str]) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            code, out, err = await run(world, [*ask, "s", "grüße", "&", "tschüss"])
            assert (code, err) == (3, "") and "Which" in out
            code, out, err = await run(world, [*ask, "s", "the second"])
            assert (code, out.strip(), err) == (0, "the second one", "")
            code, out, err = await run(world, [*ask, "s", "and now?"])
            assert (code, out.strip(), err) == (0, "that is all", "")
        said = [one["text"].strip() for one in world.records("s") if one["kind"] == "message"]
        assert said == ["grüße & tschüss", "the second", "and now?"]
        assert not [name for name in world.files("s") if name.startswith(".")]

    play(tmp_path, [QUESTION, "the second one", "that is all"], scene, settings={"memory": MEMORY})


@ASK
def test_ask_tells_what_went_wrong(tmp_path: Path, ask: list[str]) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.put("s", "task.yaml", "turnes: 3\n")
            world.put("s", "input.txt", "x")
            await world.rests("s", "rejected", round=0)
            # It reads a former rejection, and waits for what comes of its own message.
            world.put("s", "task.yaml", "turns: 1\ncheck: 'false'\n")
            world.put("s", "input.txt", "x")
            await world.rests("s", "failed")
            code, out, err = await run(world, [*ask, "s", "again"])
            assert (code, out) == (5, "") and err.strip(), (code, out, err)
            code, out, err = await run(world, [*ask, "s", "\xff".join(["z"] * 50) * 200])
            assert (code, out) == (6, "") and "the limit is 5000" in err
        assert (await run(world, ask))[0] == 2
        world.put("s", "reply.txt", "not taken: there is no daemon now")
        code, out, err = await run(world, [*ask, "s", "again"])
        assert code in (1, 111) and "does the daemon run?" in err
        assert world.text("s", "reply.txt") == "not taken: there is no daemon now"

    settings = {"memory": MEMORY, "spool": {"max_bytes": 5000}}
    play(tmp_path, ["fine"] * 2, scene, settings=settings)


def test_ask_py_can_be_imported(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from ask import Session; from pathlib import Path\n"
        "session = Session(Path(sys.argv[2]), 's')\n"
        "print(session.send('do it', task={'turns': 5, 'labels': ['a']}).text, end='')\n"
        "session.stop(); print(session.status()['state'])\n"
        "try: Session(Path(sys.argv[2]), 't').send('x', patience=0)\n"
        "except TimeoutError as exc: print(exc)\n"
    )

    async def scene(world: World) -> None:
        async with world.running():
            command = [sys.executable, "-c", script, str(EXAMPLES), str(world.home)]
            code, out, err = await run(world, command)
            assert (code, err) == (0, "")
            assert out.splitlines()[:2] == ["fine", "done"] and "t is " in out
            await world.rests("t")
        options = world.records("s")[0]["options"]
        assert (options["turns"], options["labels"]) == (5, ["a"])

    play(tmp_path, ["fine", "fine"], scene, settings={"memory": MEMORY})


def test_ask_py_needs_nothing_but_the_standard_library() -> None:
    text = (EXAMPLES / "ask.py").read_text("utf-8")
    modules = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
    assert modules <= sys.stdlib_module_names


VIM = """
try
  edit task.txt
  Gad
  while GadState() !=# 'asking' | sleep 20m | endwhile
  GadReply the second
  while GadState() !=# 'done' | sleep 20m | endwhile
  while join(getline(1, '$')) !~# 'it is done' | sleep 20m | endwhile
  call writefile([b:gad_session, line('.') == line('$') ? 'at the end' : 'elsewhere'], 'seen.txt')
  GadStop
  1,1 Gad
  while GadState() !=# 'done' | sleep 20m | endwhile
catch
  call writefile([v:exception], 'trouble.txt')
finally
  qall!
endtry
"""


def test_vim(tmp_path: Path) -> None:
    vim = shutil.which("vim")
    if vim is None:
        pytest.skip("vim is not installed")

    async def scene(world: World) -> None:
        if not (await run(world, [vim, "--version"]))[1].count("+timers"):
            pytest.skip("this vim has no timers")
        place = world.home.parent
        (place / "task.txt").write_text("first line\nsecond line\n")
        (place / "script.vim").write_text(VIM)
        command = [vim, "-Nes", "-u", "NONE", "-i", "NONE", "-S", str(EXAMPLES / "gad.vim"), "-S", "script.vim"]
        async with world.running():
            code, out, err = await run(world, command)
            assert not (place / "trouble.txt").exists(), (place / "trouble.txt").read_text()
            assert code == 0, (out, err)
            first, where = (place / "seen.txt").read_text().splitlines()
            assert where == "at the end"
            (other,) = {name for name in os.listdir(world.spool) if name.startswith("vim-")} - {first}
        texts = [one["text"] for one in world.records(first) if one["kind"] == "message"]
        assert texts == ["first line\nsecond line\n", "the second\n"]
        (line,) = [one["text"] for one in world.records(other) if one["kind"] == "message"]
        assert line.strip() and "\n" not in line.strip()  # the first line of the output that the cursor was in
        assert not [name for name in os.listdir(world.spool / first) if name.endswith((".swp", "~"))]

    play(tmp_path, [QUESTION, "it is done", "another"], scene, settings={"memory": MEMORY})


def test_tasks_json(tmp_path: Path) -> None:
    whole = json.loads((EXAMPLES / "vscode/tasks.json").read_text("utf-8"))
    assert whole["version"] == "2.0.0"
    asked = {one["id"] for one in whole["inputs"]}
    tasks = {one["label"].removeprefix("gad: "): one for one in whole["tasks"]}
    used = re.findall(r"\$\{(.*?)\}", json.dumps(whole["tasks"]))
    assert set(used) <= {"file", "workspaceFolder", "selectedText", *(f"input:{name}" for name in asked)}
    for task in tasks.values():
        assert (task["type"], task["command"]) == ("process", "gad") and task["args"][0] in COMMANDS

    async def scene(world: World) -> None:
        project = tmp_path / "pro ject"
        project.mkdir()
        (project / "task.md").write_text("the file's task")
        values = {
            "file": str(project / "task.md"), "workspaceFolder": str(project), "selectedText": "--set 'x'; $(y)\nz",
            "input:session": "mine", "input:text": "do it",
        }  # fmt: skip

        async def task(label: str) -> tuple[int, str, str]:
            given: list[Any] = tasks[label]["args"]
            arguments = [re.sub(r"\$\{(.*?)\}", lambda found: values[found[1]], one) for one in given]
            return await run(world, ["gad", *arguments])

        done = {}
        async with world.running():
            for label in [*tasks]:
                done[label] = await task(label)
                if label == "begin a session":
                    await world.rests("mine")
            assert {label: code for label, (code, _, _) in done.items()} == dict.fromkeys(tasks, 0), done
            await until(lambda: world.status("mine")["round"] == 2)
        assert "one" in done["hand in this file and follow the answer"][1]
        assert "three" in done["follow a session"][1] and "four" in done["reply to a session"][1]
        assert "mine" in done["list sessions"][1]
        texts = [one["text"] for name in os.listdir(world.spool) if name[0] != "."
                 for one in world.records(name) if one["kind"] == "message"]  # fmt: skip
        assert sorted(texts) == sorted(["the file's task", values["selectedText"], "do it", "do it"])
        assert world.records("mine")[0]["options"]["cwd"] == str(project)

    play(tmp_path, ["one", "two", "three", "four"], scene, settings={"memory": MEMORY})


def test_each_example_is_told_of() -> None:
    told = (EXAMPLES / "README.md").read_text("utf-8")
    files = [
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    assert all(f"({name})" in told for name in files if name != "README.md")
