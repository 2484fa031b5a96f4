"""gad.yaml is read again while the daemon works, and the daemon leaves when turns under way are over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gad import config as settings
from gad.cli import reload
from gad.cli.compose import Providers, build_daemon
from gad.cli.reload import Reload
from gad.config import load
from gad.daemon import Daemon
from gad.errors import ConfigError
from gad.home import make_home
from tests.scripted_server import Call, Fail, Reply, Say, Silence, serve_in_thread
from tests.test_crash import wait_for
from tests.world import World, play, until


class Served:
    """A daemon that runs, and how its settings are changed."""

    def __init__(self, world: World, daemon: Daemon, providers: Providers, task: asyncio.Task[None]) -> None:
        self.world = world
        self.daemon = daemon
        self.providers = providers
        self.task = task
        self._reload = Reload(daemon, providers, {})
        self._path = world.home / "gad.yaml"

    async def write(self, text: str) -> dict[str, Any]:
        """Write gad.yaml and have it read; return what is told of it."""
        self._path.write_text(text)
        return await self.read()

    async def read(self) -> dict[str, Any]:
        """Have gad.yaml read; return what is told of it."""
        told: list[dict[str, Any]] = []
        tell = self.daemon.reloaded

        def reloaded(notes: Mapping[str, object]) -> None:
            tell(notes)
            told.append(dict(notes))

        self.daemon.reloaded = reloaded  # type: ignore[method-assign]
        self._reload()
        await until(lambda: told)
        self.daemon.reloaded = tell  # type: ignore[method-assign]
        return told[-1]

    async def change(self, **changes: Any) -> dict[str, Any]:
        """Change keys of gad.yaml; `models__test` is models.test."""
        found = yaml.safe_load(self._path.read_text())
        for key, value in changes.items():
            outer, _, inner = key.partition("__")
            if inner:
                found.setdefault(outer, {}).setdefault(inner, {}).update(value)
            else:
                found[key] = value
        return await self.write(yaml.safe_dump(found))


@contextlib.asynccontextmanager
async def served(world: World) -> AsyncIterator[Served]:
    environ = {"PATH": os.environ["PATH"]}
    config = load(world.home, {})
    providers = Providers(config, environ, lambda what, done, total: None)
    daemon = build_daemon(config, environ, providers)
    task = asyncio.create_task(daemon.run())
    try:
        await until(lambda: world.status(".daemon").get("state") == "ready")
        yield Served(world, daemon, providers, task)
    finally:
        daemon.stop()
        await task
        await providers.close()


def waits(then: str = "echo finished") -> Call:
    """A tool that lasts until the file `go` is there."""
    code = f"touch began; until [ -e go ]; do sleep 0.02; done; {then}"
    return Call("code_run", {"type": "bash", "code": code, "timeout": 60})


async def under_way(world: World, session: str) -> Path:
    """Return the file that lets a session's tool go on, once the tool runs."""
    work = world.home / "work" / session
    await until(lambda: (work / "began").exists())
    return work / "go"


# -- reading gad.yaml again -----------------------------------------------------------------------


def test_sessions_at_work_go_on_with_the_new_settings(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            world.task("s", usd=100)
            go = await under_way(world, "s")
            told = await one.change(models__test={"model": "other"}, prices__other={"input": 1000, "output": 1000})
            assert (told["restart_needed"], told.get("reload_error")) == (None, None)
            go.touch()
            done = await world.rests("s")
        assert [one.body["model"] for one in world.server.requests] == ["scripted", "other"]
        assert done["cost_usd"] > 0.001  # by the new price

    play(tmp_path, [waits(), "done"], scene)


def test_a_session_at_work_keeps_to_a_new_cap(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            world.task("s")
            go = await under_way(world, "s")
            await one.change(usd_per_day=0.0001, prices__scripted={"input": 1000, "output": 1000})
            world.task("t")  # costs something at the new price
            await until(lambda: world.status("t").get("state") in ("done", "failed"))
            go.touch()
            failed = await world.rests("s", "failed")
        assert "the day's dollar cap is reached" in failed["error"]

    play(tmp_path, [waits(), "done"], scene)


def test_more_sessions_work_at_once(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            world.task("a")
            await until(lambda: len(world.server.requests) == 1)
            world.task("b")
            await until(lambda: one.daemon.states.get("b") == "queued")
            assert "calling" not in world.kinds("b")
            await one.change(sessions=2)
            await until(lambda: len(world.server.requests) == 2)

    play(tmp_path, Silence(), scene, settings={"sessions": 1})


def test_new_conversations_have_the_new_defaults(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            world.task("a")
            await world.rests("a")
            changed = {"limits": {"turns": 3}, "ask": "never", "retry": {"first": 7, "most": 8, "give_up": 9}}
            await one.change(**changed, usd_per_day=5, children=2, drain=1)
            world.task("b")
            await world.rests("b")
            begun = [world.records(name)[0]["options"] for name in ("a", "b")]
            assert [(one["turns"], one["ask"]) for one in begun] == [(80, "user"), (3, "never")]
            parts = one.daemon.parts
            assert (parts.retry.first, parts.retry.most, parts.retry.give_up, parts.usd_per_day) == (7, 8, 9, 5)
            assert one.providers.config.drain == 1

    play(tmp_path, Reply((Say("ok"),)), scene)


def test_a_bad_file_changes_nothing_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            before = one.providers.config
            good = (world.home / "gad.yaml").read_text()
            told = await one.write("modl: x\nsessions: many\n")
            assert one.providers.config is before
            assert told["reload_error"].startswith("gad.yaml:1: modl: unknown key; did you mean model?; gad.yaml:2: ")
            assert world.status(".daemon")["reload_error"] == told["reload_error"]
            assert world.status(".daemon")["state"] == "ready"
            world.task("s")
            await world.rests("s")
            (world.home / "gad.yaml").unlink()
            assert "holds no gad.yaml" in (await one.read())["reload_error"]
            assert "reload_error" not in await one.write(good)
            assert "reload_error" not in world.status(".daemon")

    play(tmp_path, Reply((Say("ok"),)), scene)
    assert "gad.yaml is not taken up, the settings stay as they were: gad.yaml:1: modl" in caplog.text


def test_what_needs_a_restart_is_named_until_it_is_undone(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            good = (world.home / "gad.yaml").read_text()
            told = await one.change(browser={"headless": False}, spool={"users": ["root"]}, sessions=3)
            assert told["restart_needed"] == "spool.users, browser.headless"
            assert world.status(".daemon")["restart_needed"] == told["restart_needed"]
            assert one.providers.config.browser.headless and one.providers.config.sessions == 3
            assert (await one.write("nonsense"))["restart_needed"] == told["restart_needed"]
            assert (await one.write(good))["restart_needed"] is None

    play(tmp_path, [], scene)


def test_every_key_is_taken_up_or_told_of(tmp_path: Path) -> None:
    make_home(tmp_path)
    (tmp_path / "gad.yaml").write_text("")
    plain = load(tmp_path, {})
    changed = {
        "model": "gpt", "models": {"x": {"provider": "local", "model": "m"}}, "limits": {"turns": 1}, "usd_per_day": 1,
        "sessions": 1, "children": 1, "retry": {"first": 2}, "prices": {"x": {"input": 1, "output": 1}},
        "spool": {"max_bytes": 5}, "memory": {"reviews": False}, "browser": {"idle": 2}, "ask": "never", "drain": 1,
        "policy": {"roots": ["/x"]}, "retain": {"work": "2h"},
    }  # fmt: skip
    for key in settings._TOP:
        if key not in changed:  # of those who added it
            continue
        (tmp_path / "gad.yaml").write_text(yaml.safe_dump({key: changed[key]}))
        chosen, waiting = reload.merged(plain, after := load(tmp_path, {}))
        taken = getattr(chosen, key) == getattr(after, key) != getattr(plain, key)
        assert taken == (key in reload.LIVE) == (not waiting), key
    assert set(settings._TOP) >= reload.LIVE


def test_a_local_model_s_entry_waits_for_a_restart(tmp_path: Path) -> None:
    make_home(tmp_path)
    (tmp_path / "gad.yaml").write_text("models: {local: {threads: 1}, claude: {window: 5000}}")
    before = load(tmp_path, {})
    (tmp_path / "gad.yaml").write_text("models: {local: {threads: 2}, claude: {window: 6000}}")
    chosen, waiting = reload.merged(before, load(tmp_path, {}))
    assert waiting == ["models.local"]
    assert (chosen.models["local"].threads, chosen.models["claude"].window) == (1, 6000)


def test_a_key_that_was_replaced_is_used_and_requests_under_way_are_left_alone(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        key = world.home / "key"
        key.write_text("first")
        async with served(world) as one:
            await one.change(models__test={"key_file": "key"})
            world.task("a")
            await until(lambda: world.server.requests)
            provider = one.providers("test")
            key.write_text("second")
            await one.change()
            assert one.providers("test") is not provider
            same = one.providers("test")
            await one.change(sessions=5)
            assert one.providers("test") is same
            world.task("b")
            await world.rests("b")
            await world.rests("a")
        keys = [request.headers["authorization"] for request in world.server.requests]
        assert keys == ["Bearer first", "Bearer second"]

    play(tmp_path, [Reply((Say("slow"),), wait=0.5), "quick"], scene)


def test_models_that_rested_are_tried_again(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            second = {"provider": "openai", "model": "second", "base_url": world.server.openai_url}
            await one.change(models__second=second, models__both={"chain": ["test", "second"]}, model="both")
            for name, asked in (("a", ["scripted", "second"]), ("b", ["second"])):
                world.server.requests.clear()
                world.task(name)
                await world.rests(name)
                assert [request.body["model"] for request in world.server.requests] == asked
            world.server.requests.clear()
            await one.change()
            world.task("c")
            await world.rests("c")
            assert [request.body["model"] for request in world.server.requests] == ["scripted"]

    script = [Fail(401, "no such key"), "from the second", "from the second", "mended"]
    play(tmp_path, script, scene)


def test_triggers_see_models_that_came_later(tmp_path: Path) -> None:
    from gad.cli.trigger_file import parser_of

    make_home(tmp_path)
    parse = parser_of(lambda: load(tmp_path, {}))
    with pytest.raises(ConfigError, match="late"):
        parse("task: {model: late}", "triggers/x.yaml")
    (tmp_path / "gad.yaml").write_text("models: {late: {provider: openai, model: m}}")
    assert parse("task: {model: late}", "triggers/x.yaml").task["model"] == "late"


# -- leaving --------------------------------------------------------------------------------------


def test_a_turn_comes_to_its_end_and_the_next_daemon_goes_on(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            world.task("s")
            go = await under_way(world, "s")
            assert one.daemon.drain(60) == 1
            await until(lambda: world.status(".daemon")["state"] == "draining")
            assert not one.task.done()
            go.touch()
            await one.task
        assert world.kinds("s")[-2:] == ["tool_finished", "paused"]
        assert len(world.server.requests) == 1
        async with served(world):
            await world.rests("s")
        assert "finished" in world.server.requests[1].raw.decode()
        assert "resumed" not in world.kinds("s")  # that would count as a crash

    play(tmp_path, [waits(), "done"], scene)


def test_a_last_answer_ends_its_session_while_others_stay_in_the_queue(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            world.task("a")
            await until(lambda: world.server.requests)
            world.task("b")
            await until(lambda: one.daemon.states.get("b") == "queued")
            one.daemon.drain(60)
            await one.task
        assert world.status("a")["state"] == "done" and world.text("a", "result.txt") == "slow\n"
        assert "calling" not in world.kinds("b")

    play(tmp_path, [Reply((Say("slow"),), wait=0.3)], scene, settings={"sessions": 1})


@pytest.mark.parametrize("how", ["late", "stopped"])
def test_what_takes_too_long_is_broken_off(tmp_path: Path, how: str) -> None:
    async def scene(world: World) -> None:
        async with served(world) as one:
            world.task("s")
            await until(lambda: world.server.requests)
            one.daemon.drain(0.1 if how == "late" else 600)
            await until(lambda: world.status(".daemon")["state"] in ("draining", "stopped"))
            if how == "stopped":
                one.daemon.stop()
            await asyncio.wait_for(one.task, 10)
        assert world.kinds("s")[-1] == "paused"

    play(tmp_path, Silence(), scene)


# -- signals, on a process of its own -------------------------------------------------------------


@contextlib.contextmanager
def up(world: World, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "gad", "--home", str(world.home), "up"]
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    process = subprocess.Popen(command, env=environ, **streams)
    try:
        wait_for(lambda: world.status(".daemon").get("state") == "ready", 20)
        yield process
    finally:
        process.kill()
        process.wait()


def test_sighup_has_the_settings_read_again(tmp_path: Path) -> None:
    with serve_in_thread([]) as server:
        world = World(tmp_path / "home", server)
        with up(world, stderr=subprocess.DEVNULL) as process:
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: "reloaded" in world.status(".daemon"))
            assert world.status(".daemon")["state"] == "ready"


def test_a_terminal_that_is_closed_ends_the_daemon(tmp_path: Path) -> None:
    try:
        person, program = pty.openpty()
    except OSError as exc:
        pytest.skip(f"THE TERMINAL IS NOT TESTED: this machine gives out no pseudo-terminals ({exc})")
    with serve_in_thread([]) as server:
        world = World(tmp_path / "home", server)
        with up(world, stdin=program, stdout=program, stderr=program, start_new_session=True) as process:
            os.close(program)
            os.close(person)
            process.send_signal(signal.SIGHUP)
            assert process.wait(20) == 0
        assert world.status(".daemon")["state"] == "stopped"
