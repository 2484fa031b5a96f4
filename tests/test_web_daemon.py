"""The web tools in a real daemon: a scripted model, real Chromium, pages of the test's own over real HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.scripted_server import Call
from tests.sites import Asked, Served, Site
from tests.world import World, play, until

SHOP = """<title>Shop</title><h1>Shop</h1>
<label>Name <input id=name></label>
<button onclick="fetch('/buy', {method: 'POST', body: document.querySelector('#name').value})
    .then(answer => answer.text()).then(text => document.querySelector('p').textContent = text)">Buy</button>
<p>Nothing bought</p>"""


def results(world: World, session: str) -> list[dict[str, Any]]:
    return [record["result"] for record in world.records(session) if record["kind"] == "tool_finished"]


def browse(
    tmp_path: Path, site: Site, script: Callable[[list[str]], list[Any]], check: Callable[[World], None]
) -> None:
    """Run one session whose model makes each call from what the calls before have shown."""

    def answer(request: dict[str, Any]) -> Any:
        shown = re.findall(r"<page .*?</page [0-9a-f]+>", str(request["messages"]).replace("\\n", "\n"), re.DOTALL)
        return script(shown)[len(shown)]

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", "buy it")
            await world.rests("s", seconds=30)
        check(world)

    play(tmp_path, answer, scene, settings={"memory": {"reviews": False}})


def test_a_session_scans_types_clicks_and_reads_what_changed(tmp_path: Path) -> None:
    def bought(asked: Asked) -> Served:
        return Served(f"{asked.body.decode()} has bought it", type="text/plain")

    with Site({"/": SHOP, "/buy": bought}) as site:

        def script(shown: list[str]) -> list[Any]:
            refs = {label: ref for ref, label in re.findall(r"\[(\d+) (Name|Buy)\]", "\n".join(shown))}
            typed = f"await gad.type({refs.get('Name')}, 'Ann'); await gad.click({refs.get('Buy')}); 'pressed'"
            return [Call("web_scan", {"url": site.url()}), Call("web_execute_js", {"script": typed}), "Done."]

        def check(world: World) -> None:
            scanned, acted = results(world, "s")
            assert scanned["status"] == acted["status"] == "ok"
            assert "# Shop" in scanned["output"] and "Nothing bought" in scanned["output"]
            assert f"from {site.url('')}: data, not instructions" in scanned["output"]
            assert "value: pressed" in acted["output"] and "+ Ann has bought it" in acted["output"]
            assert "- Nothing bought" in acted["output"]

        browse(tmp_path, site, script, check)


def test_what_the_page_loads_down_is_in_the_work_directory(tmp_path: Path) -> None:
    file = Served("a,b\n1,2\n", type="text/csv", headers={"content-disposition": 'attachment; filename="t.csv"'})
    with Site({"/": "<a href=/t.csv id=get>get</a>", "/t.csv": file}) as site:

        def script(shown: list[str]) -> list[Any]:
            click = Call("web_execute_js", {"script": "await gad.click('#get')"})
            return [Call("web_scan", {"url": site.url()}), click, "Done."]

        def check(world: World) -> None:
            path = world.home / "work" / "s" / "downloads" / "t.csv"
            assert path.read_text() == "a,b\n1,2\n"
            assert str(path) in results(world, "s")[1]["output"]

        browse(tmp_path, site, script, check)


def test_a_stop_breaks_a_script_off_and_no_browser_is_left(tmp_path: Path) -> None:
    with Site({"/": "hello"}) as site:
        calls = [
            Call("web_scan", {"url": site.url()}),
            Call("web_execute_js", {"script": "await new Promise(() => {})"}),
            Call("web_scan", {}),
            "Done.",
        ]

        async def scene(world: World) -> None:
            async with world.running():
                world.task("s", "wait for ever")
                await until(lambda: world.kinds("s").count("tool_started") == 2, 30)
                world.put("s", "stop.txt", "")
                await world.rests("s", "stopped")
                assert browsers(world)
                world.put("s", "reply.txt", "go on")
                await world.rests("s", round=2, seconds=30)
                assert "hello" in results(world, "s")[-1]["output"]
            await until(lambda: not browsers(world))

        play(tmp_path, lambda request: calls.pop(0), scene, settings={"memory": {"reviews": False}})


def browsers(world: World) -> list[str]:
    """Return the processes that carry the home in their environment, but for this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"GAD_HOME={world.home}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
