"""The host with real children: what plugins hand in, caps, the breaker, hot reload, enabling and disabling."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gad.cli.trigger_file import parse_settings
from gad.home import make_home
from gad.spool import drop, status
from gad.task_file import parse_task
from gad.triggers.host import Host
from gad.triggers.record import Store
from gad.triggers.sessions import Door
from tests.world import until

MODELS = ("test", "other")


class Rig:
    """A home whose triggers are run by a host; the test plays the daemon, and holds the clock."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        make_home(self.home)
        self.spool = self.home / "spool"
        self.triggers = self.home / "triggers"
        self.state = self.triggers / ".state"
        self.time = time.time()

    def plugin(self, name: str, source: str, settings: str | None = None) -> None:
        """Save a plugin, and its yaml, as an editor does."""
        if settings is not None:
            self._save(f"{name}.yaml", textwrap.dedent(settings))
        self._save(f"{name}.py", textwrap.dedent(source))

    def settings(self, name: str, text: str) -> None:
        self._save(f"{name}.yaml", textwrap.dedent(text))

    def _save(self, name: str, text: str) -> None:
        aside = self.triggers / f".{name}.swp"
        aside.write_text(text, "utf-8")
        aside.rename(self.triggers / name)

    def host(self, **settings: Any) -> Host:
        door = Door(str(self.spool), lambda text: void(parse_task(text, "task", models=MODELS)), 1 << 20)
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        parse = partial(parse_settings, models=MODELS)
        chosen: dict[str, Any] = {"now": lambda: self.time, "look": 0.01} | settings
        return Host(str(self.home), parse=parse, door=door, environment=environment, **chosen)

    @contextlib.asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[Host]:
        host = self.host(**settings)
        host.start()
        try:
            yield host
        finally:
            await host.close()

    def record(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.state / f"{name}.json").read_text("utf-8"))
        except (FileNotFoundError, ValueError):  # a test may have damaged it
            return {}
        return found

    def store(self, name: str) -> Store:
        return Store(str(self.state), name)

    def sessions(self) -> list[str]:
        return sorted(name for name in os.listdir(self.spool) if not name.startswith("."))

    def text(self, session: str) -> str:
        return (self.spool / session / "input.txt").read_text("utf-8")

    def task(self, session: str) -> dict[str, Any]:
        return status.parse((self.spool / session / "task.yaml").read_text("utf-8"))

    def end(self, session: str, state: str = "done", **values: Any) -> None:
        """Let a session come to its end, as the daemon tells it."""
        if "result" in values:
            (self.spool / session / "result.txt").write_text(values.pop("result"), "utf-8")
        status.write_status(self.spool / session, {"state": state, "cost_usd": 0.0, "turn": 1} | values)

    async def made(self, count: int, why: str = "") -> list[str]:
        await until(lambda: len(self.sessions()) >= count, 15, lambda: f"{why} {self.sessions()} {self.state_text()}")
        return self.sessions()

    async def reaches(self, name: str, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        await until(lambda: (found := self.record(name)) and condition(found), 15, lambda: str(self.record(name)))
        return self.record(name)

    def state_text(self) -> str:
        return "\n".join(path.read_text() for path in self.state.glob("*.json"))

    async def passes(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


def void(value: object) -> None:
    del value


def scene(tmp_path: Path, play: Callable[[Rig], Awaitable[None]]) -> None:
    """Run an async function that is given a rig."""

    async def whole() -> None:
        await play(Rig(tmp_path))

    asyncio.run(whole())


# -- what is handed in ---------------------------------------------------------------------------------------------


def test_a_text_becomes_a_session_that_is_whole_and_labelled(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "mail",
            """
            INTERVAL = 60
            def check():
                return {"text": "read 你好", "key": "7", "turns": 3, "labels": ["post"]}
            """,
            "task: {model: other, turns: 9, check: 'true'}\n",
        )
        async with rig.running():
            assert await rig.made(1) == ["mail-7"]
        assert rig.text("mail-7") == "read 你好"
        assert rig.task("mail-7") == {
            "ask": "never", "model": "other", "turns": 3, "check": "true",
            "labels": ["post", "trigger", "trigger:mail"],
        }  # fmt: skip
        assert sorted(os.listdir(rig.spool / "mail-7")) == ["input.txt", "task.yaml"]
        record = rig.record("mail")
        assert (record["last_session"], record["last_fired"], record["sessions_today"]) == ("mail-7", rig.time, 1)

    scene(tmp_path, play)


def test_without_a_key_each_is_a_session_of_its_own(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.time = 1796019120.25
        rig.plugin(
            "tick",
            """
            def check():
                names = [trigger.submit(f"n {n}") for n in range(2)]
                trigger.state["names"] = names
                return "third"
            """,
        )
        async with rig.running():
            made = await rig.made(3)
            record = await rig.reaches("tick", lambda record: "names" in record["plugin"])
        assert made == [
            "tick-20261130T061200.250Z", "tick-20261130T061200.250Z-2", "tick-20261130T061200.250Z-3",
        ]  # fmt: skip
        assert [rig.text(name) for name in made] == ["n 0", "n 1", "third"]
        assert record["plugin"]["names"] == made[:2]

    scene(tmp_path, play)


def test_a_key_is_one_session_whatever_is_in_it(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            KEYS = ["a", "a", "a b", "a/b", "ä", "k" * 200, "k" * 201]
            def check():
                trigger.state["names"] = [trigger.submit(key, key=key) for key in KEYS]
            """,
            "caps: {open: 50}\n",
        )
        async with rig.running():
            record = await rig.reaches("x", lambda record: "names" in record["plugin"])
        names = record["plugin"]["names"]
        assert names[0] == names[1] == "x-a"
        assert len(set(names)) == 6 and set(names) == set(rig.sessions())
        assert all(len(name) <= 128 for name in names)

    scene(tmp_path, play)


def test_names_that_others_have_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        (rig.spool / "a-mine").mkdir()
        rig.plugin("a", "def check(): return {'text': 'of a', 'key': 'mine'}")
        rig.plugin("b", "def check(): return {'text': 'of b', 'key': 'c-d'}")
        rig.plugin("b-c", "def check(): return {'text': 'of b-c', 'key': 'd'}")
        async with rig.running():
            made = await rig.made(4)
        assert sorted(rig.text(name) for name in made if name != "a-mine") == ["of a", "of b", "of b-c"]

    scene(tmp_path, play)


def test_what_is_wrong_with_a_session_is_said_to_the_plugin(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            def check():
                for task in ({"turn": 3}, {"model": "none"}, {"turns": object}):
                    try:
                        trigger.submit("do", "k", **task)
                    except Exception as exc:
                        trigger.state.setdefault("told", []).append(f"{type(exc).__name__}: {exc}")
                for text in ("", " ", "x" * 2_000_000):
                    try:
                        trigger.submit(text)
                    except Exception as exc:
                        trigger.state["told"].append(str(exc)[:40])
            """,
        )
        async with rig.running():
            record = await rig.reaches("x", lambda record: len(record["plugin"].get("told", ())) >= 6)
        told = record["plugin"]["told"]
        assert told[0] == "Refused: task:2: turn: unknown key; did you mean turns?"
        assert "no entry of gad.yaml's models is called 'none'" in told[1]
        assert told[2].startswith("TypeError")
        assert told[3].startswith("the text is empty") and told[5].startswith("the text has 2000000 bytes")
        assert rig.sessions() == []

    scene(tmp_path, play)


def test_the_interval_is_kept_by_the_clock_that_is_given(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            INTERVAL = 3600
            def check():
                trigger.state["at"] = trigger.state.get("at", []) + [trigger.now()]
            """,
        )
        start = rig.time
        async with rig.running():
            await rig.reaches("x", lambda record: len(record["plugin"].get("at", ())) == 1)
            await rig.passes(3599)
        async with rig.running():  # a restart does not make it due
            await rig.reaches("x", lambda record: record["status"] == "on")
            await rig.passes(1)
            record = await rig.reaches("x", lambda record: len(record["plugin"]["at"]) == 2)
            assert record["plugin"]["at"] == [start, start + 3600]
            assert record["next_due"] == start + 7200
            rig.time -= 86400  # a clock that is set back does not make it wait for a day
            await rig.reaches("x", lambda record: len(record["plugin"]["at"]) == 3)

    scene(tmp_path, play)


def test_once_means_once_also_over_a_restart_until_it_is_enabled_again(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            INTERVAL, ONCE = 0.01, True
            def check():
                trigger.state["n"] = trigger.state.get("n", 0) + 1
                return "do" if trigger.state["n"] % 3 == 0 else None
            def on_done(result):
                trigger.state["done"] = result["state"]
            """,
        )
        async with rig.running():
            for n in (1, 2, 3):
                await rig.reaches("x", lambda record, n=n: record["plugin"].get("n") == n)  # type: ignore[misc]
                await rig.passes(1)
            [first] = await rig.made(1)
        async with rig.running():
            await rig.passes(60)
            rig.end(first)
            record = await rig.reaches("x", lambda record: record["status"] == "disabled")
            assert record["plugin"] == {"n": 3, "done": "done"} and "ONCE" in record["disabled"]
            rig.store("x").enable()
            for n in (4, 5, 6):
                await rig.reaches("x", lambda record, n=n: record["plugin"].get("n") == n)  # type: ignore[misc]
                await rig.passes(1)
            assert len(await rig.made(2)) == 2

    scene(tmp_path, play)


# -- what becomes of sessions --------------------------------------------------------------------------------------


def test_on_done_is_told_once_when_a_session_has_ended_also_after_a_restart(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            def check():
                for key in "abcd":
                    trigger.submit("do", key)
            def on_done(result):
                trigger.state.setdefault("done", []).append(result)
            """,
            "caps: {open: 9}\n",
        )
        async with rig.running():
            await rig.made(4)
            rig.end("x-a", "asking", question="?")
            rig.end("x-b", "done", result="the answer\n", cost_usd=0.25, turn=4)
            record = await rig.reaches("x", lambda record: len(record["plugin"].get("done", ())) == 1)
            assert sorted(record["open"]) == ["x-a", "x-c", "x-d"]
        rig.end("x-a", "failed", error="no more turns", cost_usd="unknown")
        for path in sorted((rig.spool / "x-d").iterdir()):
            path.unlink()
        (rig.spool / "x-d").rmdir()
        async with rig.running():
            rig.end("x-c", "stopped")
            record = await rig.reaches("x", lambda record: len(record["plugin"]["done"]) >= 4)
            await rig.passes(100)
            record = await rig.reaches("x", lambda record: not record["open"])
        done = {one["session"]: one for one in record["plugin"]["done"]}
        assert len(record["plugin"]["done"]) == len(done) == 4
        assert done["x-b"] == {
            "session": "x-b", "key": "b", "state": "done", "text": "the answer\n", "error": "", "usd": 0.25, "turns": 4,
        }  # fmt: skip
        assert (done["x-a"]["state"], done["x-a"]["error"], done["x-a"]["usd"]) == ("failed", "no more turns", None)
        assert (done["x-c"]["state"], done["x-d"]["state"]) == ("stopped", "removed")
        assert record["usd_today"] == 0.25 and record["usd_unknown"]

    scene(tmp_path, play)


def test_a_session_that_is_removed_counts_as_ended(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", "def check(): trigger.submit('do', 'a')\ndef on_done(result): trigger.state['end'] = result")
        async with rig.running():
            await rig.made(1)
            await rig.reaches("x", lambda record: record["open"])
            os.rename(rig.spool / "x-a", tmp_path / "away")
            record = await rig.reaches("x", lambda record: record["plugin"])
        assert record["plugin"]["end"]["state"] == "removed"

    scene(tmp_path, play)


def test_what_the_disk_did_not_take_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(rig: Rig) -> None:
        full = True
        submit_once = drop.submit_once

        def submit(spool: Path, name: str, text: bytes, task: str | None = None) -> bool:
            if full:
                raise OSError(errno.ENOSPC, "no space left", str(spool))
            return submit_once(spool, name, text, task)

        monkeypatch.setattr(drop, "submit_once", submit)
        rig.plugin(
            "x",
            """
            def check():
                trigger.state["n"] = trigger.state.get("n", 0) + 1
                try:
                    trigger.submit("first", "a")
                except Exception as exc:
                    trigger.state["told"] = str(exc)
                return {"text": "second", "key": "b"}
            """,
        )
        async with rig.running():
            record = await rig.reaches("x", lambda record: len(record["open"]) == 2)
            assert "no space left" in record["plugin"]["told"] and rig.sessions() == []
        full = False
        async with rig.running():
            assert await rig.made(2) == ["x-a", "x-b"]
            record = await rig.reaches("x", lambda record: not any("text" in one for one in record["open"].values()))
        assert rig.text("x-b") == "second" and sorted(record["open"]) == rig.sessions() == ["x-a", "x-b"]

    scene(tmp_path, play)


EVERY = """
    INTERVAL = 1
    def check():
        trigger.state["n"] = n = trigger.state.get("n", 0) + 1
        trigger.state["last"] = trigger.submit("do", str(n))
"""


def test_the_cap_of_open_sessions(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", EVERY, "caps: {open: 2}\n")
        async with rig.running():
            for n in range(1, 4):
                await rig.reaches("x", lambda record, n=n: record["plugin"].get("n") == n)  # type: ignore[misc]
                await rig.passes(1)
            record = await rig.reaches("x", lambda record: record["skipped"])
            assert record["skipped"] == "2 of its sessions are open, and caps.open allows no more"
            assert record["plugin"]["last"] is None and rig.sessions() == ["x-1", "x-2"]
            rig.end("x-1")
            await rig.passes(1)
            await rig.made(3)

    scene(tmp_path, play)


def test_the_caps_of_a_day(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("many", EVERY, "caps: {per_day: 2, open: 9}\n")
        rig.plugin("dear", EVERY, "caps: {usd_per_day: 1, open: 9}\ntask: {usd: 5}\n")
        async with rig.running():
            await rig.made(2)
            rig.end("dear-1", cost_usd=0.75)
            await rig.reaches("dear", lambda record: record["usd_today"] == 0.75)
            await rig.passes(1)
            await rig.made(4)
            assert rig.task("dear-1")["usd"] == 1.0 and rig.task("dear-2")["usd"] == 0.25
            rig.end("dear-2", "running", cost_usd=0.25)  # what is under way counts too
            await rig.reaches("dear", lambda record: record["open"]["dear-2"].get("usd") == 0.25)
            await rig.passes(1)
            dear = await rig.reaches("dear", lambda record: record["skipped"])
            many = await rig.reaches("many", lambda record: record["skipped"])
            assert dear["skipped"] == "its sessions have cost 1.00 USD today: caps.usd_per_day is reached"
            assert many["skipped"] == "it has made 2 sessions today, and caps.per_day allows no more"
            rig.end("dear-2", cost_usd=0.25)
            await rig.reaches("dear", lambda record: not record["open"])
            await rig.passes(86400)
            await rig.reaches("many", lambda record: record["sessions_today"] == 1)
            await rig.reaches("dear", lambda record: record["sessions_today"] == 1 and not record["usd_today"])

    scene(tmp_path, play)


@pytest.mark.parametrize(
    ("errors", "kind", "reason"),
    [
        (["the server's own words"], "auth", "no valid key: the server's own words"),
        # What a tool was answered is not what the model's server has said.
        (["HTTP 401", "Check the API key", "c"], None, "3 sessions in a row have failed, the last, x-3: c"),
    ],
    ids=["auth", "three"],
)
def test_the_breaker(tmp_path: Path, errors: list[str], kind: str | None, reason: str) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", EVERY)
        async with rig.running():
            for n, error in enumerate(errors, 1):
                await rig.made(n)
                rig.end(f"x-{n}", "failed", error=error, error_kind=kind)
                await rig.reaches("x", lambda record, n=n: record["failed_sessions"] == n)  # type: ignore[misc]
                await rig.passes(1)
            record = await rig.reaches("x", lambda record: record["status"] == "disabled")
            assert reason in record["disabled"]
            await rig.passes(10)
            count = len(rig.sessions())
            rig.store("x").enable()
            await rig.made(count + 1)
            assert (await rig.reaches("x", lambda record: record["status"] == "on"))["failed_sessions"] == 0

    scene(tmp_path, play)


def test_stopped_and_done_sessions_do_not_break_the_circuit(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", EVERY)
        ends = ["failed", "failed", "done", "failed", "stopped", "failed", "done"]
        async with rig.running():
            for n, state in enumerate(ends, 1):
                await rig.made(n)
                rig.end(f"x-{n}", state)
                await rig.reaches("x", lambda record, n=n: f"x-{n}" not in record["open"])  # type: ignore[misc]
                await rig.passes(1)
            await rig.made(len(ends) + 1)
            assert rig.record("x")["failed_sessions"] == 0

    scene(tmp_path, play)


# -- changes of files ----------------------------------------------------------------------------------------------


def test_hot_reload_of_good_and_broken_versions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(rig: Rig) -> None:
        source = "INTERVAL = 1\ndef init(options):\n    {init}\ndef check(): return {{'text': 'v{n}', 'key': '{n}'}}\n"
        rig.plugin("x", source.format(n=1, init="pass"))
        async with rig.running():
            await rig.made(1)
            rig.plugin("x", source.format(n=2, init="pass") + "def broken(:\n")
            record = await rig.reaches("x", lambda record: record["problem"])
            assert "SyntaxError" in record["problem"] and record["status"] == "on"
            rig.plugin("x", source.format(n=3, init="raise RuntimeError('not today')"))
            record = await rig.reaches("x", lambda record: "not today" in record["problem"])
            assert record["failures"] == 0 and rig.sessions() == ["x-1"]
            rig.settings("x", "capsules: {}\n")
            record = await rig.reaches("x", lambda record: "capsules" in record["problem"])
            assert record["problem"] == "triggers/x.yaml:1: capsules: unknown key; did you mean caps?"
            rig.settings("x", "task: {turns: 5}\n")
            rig.plugin("x", source.format(n=4, init="pass"))
            await rig.reaches("x", lambda record: not record["problem"])
            await rig.passes(2)
            await until(lambda: "x-4" in rig.sessions())
            assert rig.task("x-4")["turns"] == 5
            (rig.triggers / "x.py").unlink()
            (rig.triggers / "x.yaml").unlink()
            await rig.passes(2)
            await until(lambda: "trigger x: its files are gone" in caplog.text)

    with caplog.at_level(logging.INFO):
        scene(tmp_path, play)
    assert caplog.text.count("the newest version is not used") == 3
    assert "the version before it goes on" in caplog.text


def test_the_old_version_goes_on_even_when_its_process_dies(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            import os
            INTERVAL = 1
            def check():
                if not trigger.state.get("died"):
                    trigger.state["died"] = True
                    trigger.submit("first", "1")
                elif "x-1" not in trigger.open:
                    return {"text": "second", "key": "2"}
                else:
                    os._exit(3)
            """,
        )
        async with rig.running():
            await rig.made(1)
            rig.plugin("x", "nonsense = ")
            await rig.reaches("x", lambda record: record["problem"])
            await rig.passes(1)
            record = await rig.reaches("x", lambda record: record["failures"])
            assert record["error"] == "its process ended with exit code 3"
            rig.end("x-1")
            await rig.reaches("x", lambda record: not record["open"])
            await rig.passes(10)
            assert await rig.made(2) == ["x-1", "x-2"]

    scene(tmp_path, play)


def test_state_is_kept_over_restarts_and_reloads_and_a_damaged_one_is_put_aside(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        source = "INTERVAL = 1\ndef check(): trigger.state['n'] = trigger.state.get('n', 0) + 1"
        rig.plugin("x", source)
        async with rig.running():
            await rig.reaches("x", lambda record: record["plugin"].get("n") == 1)
            rig.plugin("x", source + "\n# saved\n")
            await rig.passes(1)
            await rig.reaches("x", lambda record: record["plugin"].get("n") == 2)
        async with rig.running():
            await rig.passes(1)
            await rig.reaches("x", lambda record: record["plugin"].get("n") == 3)
        (rig.state / "x.json").write_text("{torn")
        async with rig.running():
            await rig.reaches("x", lambda record: record["plugin"].get("n") == 1)
        assert (rig.state / "x.json.damaged").read_text() == "{torn"

    scene(tmp_path, play)


def test_one_plugin_runs_as_several_instances(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("_words", "WORD = 'shared'")
        rig.plugin(
            "base",
            """
            import _words
            def init(options):
                global INTERVAL
                INTERVAL = options.get("every", 7)
            def check():
                return {"text": f"{trigger.name} {trigger.options.get('who')} {_words.WORD}", "key": "k"}
            """,
        )
        rig.settings("ann", "plugin: base\noptions: {who: Ann, every: 2}\n")
        rig.settings("bob", "plugin: base\noptions: {who: Bob}\nenabled: off\n")
        rig.settings("eve", "plugin: basic\n")
        async with rig.running():
            assert await rig.made(2) == ["ann-k", "base-k"]
            assert rig.text("ann-k") == "ann Ann shared"
            assert (await rig.reaches("bob", lambda record: record["status"] == "off"))["open"] == {}
            eve = await rig.reaches("eve", lambda record: record["status"] == "broken")
            assert "triggers/eve.yaml:1: plugin: there is no triggers/basic.py" in eve["problem"]
            assert (await rig.reaches("ann", lambda record: record["interval"]))["interval"] == 2
            rig.settings("bob", "plugin: base\noptions: {who: Bob}\n")
            await until(lambda: "bob-k" in rig.sessions())

    scene(tmp_path, play)


def test_disable_enable_and_fire(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin("x", "INTERVAL = 86400\ndef check(): trigger.skip('nothing new')\ndef fire(): return 'now'")
        rig.plugin("y", "WATCH = 'in/*'\ndef on_event(event): pass")
        async with rig.running():
            assert (await rig.reaches("x", lambda record: record["skipped"]))["skipped"] == "nothing new"
            rig.store("x").ask_to_fire()
            rig.store("y").ask_to_fire()
            [name] = await rig.made(1)
            assert rig.text(name) == "now"
            assert "neither fire() nor check()" in (await rig.reaches("y", lambda record: record["skipped"]))["skipped"]
            rig.store("x").disable("on holiday")
            record = await rig.reaches("x", lambda record: record["status"] == "disabled")
            assert record["disabled"] == "on holiday"
            rig.end(name)
            record = await rig.reaches("x", lambda record: not record["open"])
            rig.store("x").enable()
            await rig.reaches("x", lambda record: record["status"] == "on")

    scene(tmp_path, play)


@pytest.mark.parametrize("polling", [False, True], ids=["inotify", "polling"])
def test_on_event_is_told_what_becomes_of_the_files_that_watch_names(tmp_path: Path, polling: bool) -> None:
    async def play(rig: Rig) -> None:
        rig.plugin(
            "x",
            """
            WATCH = ["in/**/*.csv"]
            def check():
                trigger.state["watching"] = True
            def on_event(event):
                trigger.state.setdefault("seen", []).append([event.path.rpartition("in/")[2], event.kind])
                if event.kind == "created":
                    return {"text": event.path, "key": event.path}
            """,
            "caps: {open: 9}\n",
        )
        (rig.home / "in").mkdir()
        (rig.home / "in/old.csv").write_text("a")

        async def seen(*wanted: list[str]) -> None:
            await rig.reaches("x", lambda record: record["plugin"].get("seen", []) == list(wanted))

        async with rig.running(polling=polling):
            await rig.reaches("x", lambda record: record["plugin"].get("watching"))
            (rig.home / "in/sub").mkdir()
            (rig.home / "in/sub/new.csv").write_text("b")
            (rig.home / "in/sub/not.txt").write_text("b")
            first = ["sub/new.csv", "created"]
            await seen(first)
            await rig.made(1)
            with open(rig.home / "in/sub/new.csv", "a") as file:
                file.write("c")
            second = ["sub/new.csv", "modified"]
            await seen(first, second)
            (rig.home / "in/old.csv").unlink()
            await seen(first, second, ["old.csv", "deleted"])

    scene(tmp_path, play)
