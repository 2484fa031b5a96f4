"""The sandbox in a running daemon: sub-agents from inside, stops, checks, scripts, and what stays closed."""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from gad.cli.compose import build_memory, run_check
from gad.config import load
from gad.core.sop import Sop, render_sop
from gad.memory.scripts import Case
from gad.memory.store import MemoryStore
from tests.scripted_server import Call
from tests.test_children import by_task
from tests.test_tools_code import dead
from tests.walls import Place, needs_bwrap
from tests.world import World, outside, play, until

pytestmark = needs_bwrap

WALLED = {"sandbox": {"mode": "bwrap"}}


def bash(code: str) -> Call:
    return Call("code_run", {"type": "bash", "code": code, "timeout": 60})


def results(world: World, session: str) -> list[dict[str, Any]]:
    return [record["result"] for record in world.records(session) if record["kind"] == "tool_finished"]


def test_sub_agents_are_handed_in_from_inside_and_journals_are_not_theirs_to_change(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("other", "OTHER")
            await until(lambda: (world.home / "work" / "other" / "waits").exists())
            world.task("boss", "BOSS")
            await world.rests("boss", seconds=30)
            assert world.text("kid", "result.txt") == "four\n" and world.status("boss")["children"][0] == "kid"
            assert len(world.status("boss")["children"]) == 3
            (world.home / "work" / "other" / "go").touch()
            await world.rests("other")
        [outcome, tampered] = results(world, "boss")
        assert outcome["status"] == "ok" and outcome["output"].count('"done"') == 3
        assert "DONE" not in tampered["output"] and tampered["output"].count("Read-only") >= 6
        [tried] = results(world, "kid")
        assert "DONE" not in tried["output"]

    # The policy does not see where this leads, so that the sandbox is what holds it.
    tamper = (
        "home=$(printenv GAD_HOME); for s in boss other; do for f in journal.jsonl status.txt new stop.txt reply.txt; "
    )
    tamper += "do echo EVIL >> $home/spool/$s/$f && echo DONE; done; done"
    work = "gad submit --wait --json --name kid KID || exit 1; printf '1\\n2\\n' > lines; gad map -i lines 'SMALL {}'"
    scripts = by_task(
        BOSS=[bash(work), bash(tamper), "ok"],
        KID=[bash(tamper), "four"],
        OTHER=[bash("touch waits; until [ -e go ]; do sleep 0.02; done"), "ok"],
        SMALL="small",
    )
    play(tmp_path, scripts, scene, settings=WALLED)


def test_in_its_own_tmp_a_session_deletes_without_asking(tmp_path: Path) -> None:
    """Where gad's home lies in /tmp as well, it is asked for."""
    victim = tmp_path / "victim"
    victim.mkdir()
    code = f"mkdir -p {victim}/own && rm -rf {victim} && echo GONE"

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
        assert "GONE" in results(world, "s")[0]["output"] and victim.is_dir()

    async def asked(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s", "asking")

    with tempfile.TemporaryDirectory(prefix=".gad-test-", dir=outside()) as directory:
        play(Path(directory), [bash(code), "ok"], scene, settings=WALLED)
    play(tmp_path, [bash(code), "ok"], asked, settings=WALLED)
    assert victim.is_dir()


def test_a_stop_ends_all_that_runs_inside(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        listed = world.home / "work" / "s" / "p"
        async with world.running():
            world.task("s")
            await until(lambda: listed.exists() and len(listed.read_text().split()) == 3)
            world.put("s", "stop.txt", "")
            await world.rests("s", "stopped")
            assert all(dead(int(pid)) for pid in listed.read_text().split())
            assert (world.home / "work" / "s" / "tidied").exists()

    code = "trap 'touch tidied; exit' TERM; sleep 100 & echo $! >> p; timeout 99 sleep 98 & echo $! $$ >> p; wait"
    play(tmp_path, [bash(code)], scene, settings=WALLED)


def test_the_user_s_own_check_runs_outside(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", check=f"touch {tmp_path}/checked")
            await world.rests("s")
        assert (tmp_path / "checked").exists() and not (tmp_path / "ran").exists()

    play(tmp_path, [bash(f"touch {tmp_path}/ran"), "ok"], scene, settings=WALLED)


def test_a_procedure_s_script_runs_inside(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        store = MemoryStore(str(world.home / "memory"))
        store.prepare()
        sop = Sop("report", ("report",), "work", stage="code", body="## Key steps\nDo it.\n")
        store.commit("sops/report/SOP.md", lambda before: render_sop(sop), who="user")
        code = f"touch {world.home}/memory/evil {tmp_path}/evil; touch here; echo made\n"
        store.commit("sops/report/run.sh", lambda before: code, who="user")
        async with world.running():
            world.task("s", "task: report")
            await world.rests("s")
        assert "made" in world.text("s", "result.txt") and "Read-only" in world.text("s", "result.txt")
        assert (world.home / "work" / "s" / "here").exists()
        assert not (world.home / "memory" / "evil").exists() and not (tmp_path / "evil").exists()

    play(tmp_path, ["by hand"], scene, settings=WALLED)


def test_a_script_that_wants_into_memory_is_tried_inside(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    engine = build_memory(
        load(place.home, {}),
        lambda session, call: place.context(session, call=call).environment,
        partial(run_check, launch=place.sandbox),
        lambda step: None,
    )
    case = Case((), "test -s made")
    sop = Sop("report", ("report",), "work", body="## Key steps\nDo it.\n")
    engine.store.commit("sops/report/SOP.md", lambda before: render_sop(sop), who="user")
    engine.store.commit("sops/report/case.yaml", lambda before: case.render(), who="user")
    evil = [place.home / "memory" / "evil", place.home / "work" / "sib" / "evil", tmp_path / "evil"]
    script = "".join(f"echo EVIL > {path}; " for path in evil) + "echo 1 > made"
    assert engine.gate is not None
    assert "check passed" in asyncio.run(engine.gate.check("sops/report/run.sh", script, "me"))
    assert not any(path.exists() for path in evil)
