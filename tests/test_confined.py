"""Confined sessions: what each tool may do, who is confined, and where such a session may work."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gad.cli.walls import with_confinement
from gad.config import load
from gad.core.page import Acted
from gad.core.ports import Outcome, ToolContext
from gad.core.session import Session
from gad.core.task import TaskOptions
from gad.errors import ConfigError, MemoryRefused
from gad.memory.door import SessionMemory
from gad.memory.store import MemoryStore
from gad.tools.file_patch import FilePatch
from gad.tools.file_read import FileRead
from gad.tools.file_write import FileWrite
from gad.tools.memory import StartLongTermUpdate
from gad.tools.sandbox import NoSandbox
from gad.tools.web import WebExecuteJs
from tests.scripted_server import Call
from tests.test_children import by_task
from tests.test_tools_web import Scripted
from tests.walls import Place, needs_bwrap
from tests.world import World, play


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    """A confined session in tmp/cwd, with tmp/work, beside tmp/out/file and tmp/memory."""
    for name in ("cwd", "work", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "file").write_text("as it was\n")
    store = MemoryStore(str(tmp_path / "memory"))
    store.prepare()
    session = Session()
    session.options = TaskOptions(confined=True)
    memory = SessionMemory(store, session)
    where = str(tmp_path / "cwd")
    return ToolContext("s", "c", where, str(tmp_path / "work"), print, {}, memory=memory, confined=True)


def outside(context: ToolContext) -> Path:
    return Path(context.cwd).parent / "out"


def untouched(context: ToolContext) -> bool:
    there = outside(context)
    return os.listdir(there) == ["file"] and (there / "file").read_text() == "as it was\n"


def write(context: ToolContext, path: str | Path, content: str = "new\n", **more: Any) -> Outcome:
    return asyncio.run(FileWrite().run({"path": str(path), "content": content, **more}, context))


def patch(context: ToolContext, path: str | Path, old: str = "as it", new: str = "EVIL") -> Outcome:
    arguments = {"path": str(path), "old_content": old, "new_content": new}
    return asyncio.run(FilePatch().run(arguments, context))


# -- the tools --------------------------------------------------------------------------------------


def test_it_writes_below_its_two_directories(context: ToolContext) -> None:
    for path in ("a", "deep/er/b", f"{context.cwd}/c", f"{context.work}/d", f"{context.work}/e/../f/g"):
        assert write(context, path).status == "ok"
        assert patch(context, path, "new", "newer").status == "ok"
        assert Path(context.cwd, path).resolve().read_text() == "newer\n"
    os.symlink(context.work, f"{context.cwd}/link")
    assert write(context, "link/h").status == "ok" and Path(context.work, "h").exists()


@pytest.mark.parametrize(
    "path", ["../out/file", "{out}/file", "../out/new", "{out}/deep/new", "dir/file", "dir/new", "file", "gone", "~/x",
             "up/out/file", "{cwd}x/new"],
)  # fmt: skip
def test_it_writes_nowhere_else(context: ToolContext, path: str) -> None:
    out = outside(context)
    os.symlink(out, f"{context.cwd}/dir")
    os.symlink(out.parent, f"{context.cwd}/up")
    os.symlink(out / "file", f"{context.cwd}/file")
    os.symlink(out / "new", f"{context.cwd}/gone")
    path = path.format(out=out, cwd=context.cwd)
    outcomes = [write(context, path, mode=mode) for mode in ("overwrite", "append", "prepend")]
    for outcome in (*outcomes, patch(context, path)):
        assert outcome.status == "error"
        assert outcome.output.startswith(f"this session is confined: it writes below {context.cwd} and {context.work} ")
    assert untouched(context) and not os.path.exists(f"{context.cwd}x")
    tool = WebExecuteJs(Scripted(Acted((), 1, True)))
    outcome = asyncio.run(tool.run({"script": "1", "save_to_file": path}, context))
    assert outcome.status == "error" and "this session is confined" in outcome.output
    assert untouched(context)


def test_it_reads_as_before(context: ToolContext) -> None:
    outcome = asyncio.run(FileRead().run({"path": "../out/file"}, context))
    assert "as it was" in outcome.output
    assert write(context, "copy", "{{file:../out/file:1:1}}\n").status == "ok"
    assert Path(context.cwd, "copy").read_text() == "as it was\n"


def test_memory_is_read_only(context: ToolContext) -> None:
    assert context.memory is not None
    root = Path(context.memory.root)
    before = sorted(root.rglob("*"))
    told = "this session is confined: memory is read-only"
    assert write(context, root / "facts" / "x.md", "# X\n- y\n[proof: 1]\n").output.startswith(told)
    assert patch(context, root / "index.md").output.startswith(told)
    assert told[1:] in asyncio.run(StartLongTermUpdate().run({}, context)).output
    with pytest.raises(MemoryRefused):
        asyncio.run(context.memory.write("facts/x.md", "- y", lambda before, new: new))
    assert sorted(root.rglob("*")) == before


def test_a_link_that_comes_in_the_way_meanwhile_leads_nowhere(context: ToolContext) -> None:
    """A command in the background swaps a directory for a link, again and again, while files are written in it."""
    out, place, aside = outside(context), f"{context.cwd}/place", f"{context.cwd}/aside"
    os.mkdir(place)
    os.symlink(out, aside)
    over = threading.Event()
    libc = ctypes.CDLL(None)

    def swap() -> None:
        while not over.is_set():  # exchanged in one step: there is always one of the two
            assert libc.renameat2(-100, place.encode(), -100, aside.encode(), 2) == 0

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        outcomes = [write(context, f"place/{n}/new") for n in range(300)]
    finally:
        over.set()
        thread.join()
    assert untouched(context)
    assert {outcome.status for outcome in outcomes} == {"ok", "error"}


def test_a_cwd_that_has_become_a_link_is_no_root(context: ToolContext) -> None:
    os.rmdir(context.cwd)
    os.symlink(outside(context), context.cwd)
    outcome = write(context, "new")
    assert outcome.status == "error" and "leads to another place" in outcome.output
    assert untouched(context)


@needs_bwrap
def test_code_writes_below_its_two_directories(tmp_path: Path) -> None:
    place = Place(tmp_path / "home", f"sandbox: {{writable: [{tmp_path}]}}")
    cwd = tmp_path / "project"
    cwd.mkdir()
    place.begin("c", confined=True)
    where = place.context("c", cwd=cwd)
    home = place.home
    outside = [
        tmp_path / "x",
        *(home / name for name in ("x", "spool/x", "spool/kid/x", "spool/c/x", "memory/x", "work/x")),
    ]
    code = f"""for path in {" ".join(map(str, outside))}
        do echo > $path && echo DONE $path; mkdir $path && echo DONE $path; done
        echo 1 > x; echo 2 > {where.work}/x; echo 3 > /tmp/x; cat /tmp/x"""
    outcome = place.run(code, context=where)
    assert outcome.status == "ok" and f"DONE {home}" not in outcome.output and outcome.output.endswith("3\n")
    assert (cwd / "x").exists() and (home / "work" / "c" / "x").exists()
    assert not [path for path in outside if path.exists()]
    os.rename(cwd, tmp_path / "moved")
    os.symlink(home, cwd)
    assert "leads to another place" in place.run("echo > y", context=where).output and not (home / "y").exists()


def test_without_a_sandbox_code_does_not_run(tmp_path: Path) -> None:
    place = Place(tmp_path / "home", "sandbox: none")
    place.begin("c", confined=True)
    place.begin("torn")
    (place.home / "spool" / "torn" / "journal.jsonl").write_text("{")
    from gad.cli.walls import choose_sandbox
    from gad.tools.code import CodeRun

    for name in ("c", "torn"):
        launch = choose_sandbox(load(place.home, {}), {"PATH": ""}, list)
        assert isinstance(launch, NoSandbox)
        call = CodeRun(launch).run({"type": "bash", "code": "touch ran"}, place.context(name))
        outcome = asyncio.run(call)
        assert outcome.status == "error" and "set sandbox: auto" in outcome.output
        assert os.listdir(place.home / "work" / name) == []
    call = CodeRun(launch).run({"type": "bash", "code": "touch ran"}, place.context("sib"))
    assert asyncio.run(call).status == "ok"
    (place.home / "gad.yaml").write_text("")
    launch = choose_sandbox(load(place.home, {}), {"PATH": ""}, list)
    with pytest.raises(PermissionError, match="apt install bubblewrap"):
        launch(["true"], session="c", cwd="/", work="/")


# -- who is confined, and where -----------------------------------------------------------------------


def test_where_a_confined_session_may_work(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    config, spool = load(place.home, {}), str(place.home / "spool")
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(project)

    def effective(**options: Any) -> TaskOptions:
        return with_confinement(TaskOptions(**options), config, spool)

    assert effective(cwd="/") == TaskOptions(cwd="/")
    assert effective(confined=True).cwd is None
    assert effective(confined=True, cwd=str(tmp_path / "link")).cwd == str(project)
    assert effective(confined=True, cwd=str(place.home / "work" / "sib")).confined
    for cwd in ("/", tmp_path, place.home, place.home / "work", place.home / "spool", place.home / "memory"):
        with pytest.raises(ConfigError, match="name a directory outside of"):
            effective(confined=True, cwd=str(cwd))
    place.begin("c", confined=True, cwd=str(project))
    for options in ({}, {"confined": False}, {"review": "sib"}):
        assert effective(parent="c", **options).confined
    for inside in (project, project / "sub", tmp_path / "link" / "sub", place.home / "work" / "c"):
        assert effective(parent="c", cwd=str(inside)).confined
    (project / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    for cwd in (tmp_path / "elsewhere", project / "out", place.home / "work" / "sib", f"{project}x"):
        with pytest.raises(ConfigError, match="c is confined, and its children with it"):
            effective(parent="c", cwd=str(cwd))
    place.begin("kid2", **effective(parent="c").to_json())
    assert effective(parent="kid2").confined


def test_a_child_of_a_confined_session_is_confined(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("c", confined=True)
            await world.rests("c")
            world.task("kid", parent="c", confined=False)
            await world.rests("kid")
            assert world.records("kid")[0]["options"]["confined"] is True
            world.task("out", parent="c", cwd=str(tmp_path))
            error = (await world.rests("out", "rejected", round=0))["error"]
            assert "holds files of gad's own" in error and "drop a correct task.yaml" in error
            world.task("free")
            await world.rests("free")
            assert "confined" not in world.records("free")[0]["options"]

    play(tmp_path, "ok", scene)


@needs_bwrap
def test_in_a_daemon_every_tool_is_held(tmp_path: Path) -> None:
    """The check of a confined task is held as well: it may run what the agent has written."""
    victim = tmp_path / "victim"

    async def scene(world: World) -> None:
        victim.write_text("as it was\n")
        async with world.running():
            world.task("c", "HOSTILE", confined=True, check=f"echo EVIL > {victim}; test -e mine && touch checked")
            await world.rests("c", seconds=20)
            assert world.status("c")["state"] == "done"
        results = [record["result"] for record in world.records("c") if record["kind"] == "tool_finished"]
        assert [one["status"] for one in results] == ["error", "error", "ok", "error", "ok"]
        assert "Read-only" in results[0]["output"]
        assert "this session is confined" in results[1]["output"] and "memory is read-only" in results[3]["output"]
        assert victim.read_text() == "as it was\n" and os.listdir(world.home / "memory") != []
        assert set(os.listdir(world.home / "work" / "c")) == {"mine", "checked"}
        assert "sneaky" not in os.listdir(world.spool)

    code = (
        f"echo EVIL > {victim}; mkdir $GAD_HOME/spool/sneaky; gad submit --name sneaky --set parent= --set check=id x"
    )
    hostile = [
        Call("code_run", {"type": "bash", "code": code}),
        Call("file_write", {"path": str(victim), "content": "EVIL"}),
        Call("file_write", {"path": "mine", "content": "x"}),
        Call(
            "file_write", {"path": str(tmp_path / "home" / "memory" / "facts" / "x.md"), "content": "- x\n[proof: 1]"}
        ),
        Call("start_long_term_update", {}),
        "ok",
    ]
    play(tmp_path, by_task(HOSTILE=hostile), scene)
