"""What the daemon tells its service manager, as it arrives on a real socket."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gad.cli.compose import Providers, build_daemon
from gad.config import load
from gad.notify import Notifier
from tests.scripted_server import Call
from tests.world import World, play, until


class Manager:
    """The service manager's side."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)
        self.heard: list[str] = []
        self.environ = {"NOTIFY_SOCKET": address}

    def listen(self) -> list[str]:
        """Return all messages so far."""
        while True:
            try:
                self.heard.append(self.socket.recv(65536).decode())
            except BlockingIOError:
                return self.heard

    def lines(self) -> list[str]:
        return [line for message in self.listen() for line in message.split("\n")]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


def test_messages_are_those_of_the_protocol(manager: Manager) -> None:
    notifier = Notifier(manager.environ)
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.status("ready: 1 running")
    notifier.ready()
    notifier.status("ready: 1 running")
    notifier.reloading()
    notifier.status("two\nlines")
    notifier.stopping()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    first, second, third, fourth, fifth = manager.listen()
    assert (first, second) == ("STATUS=ready: 1 running", "READY=1")
    reloading, _, usec = third.partition("\nMONOTONIC_USEC=")
    assert reloading == "RELOADING=1" and before <= int(usec) <= after
    assert fourth == "STATUS=two | lines"
    assert fifth.split("\n")[0] == "STOPPING=1" and fifth.split("\n")[1].startswith("EXTEND_TIMEOUT_USEC=")


def test_text_that_cannot_be_sent_is_sent_as_far_as_it_can(manager: Manager) -> None:
    Notifier(manager.environ).status("not taken up: models.\ud800")  # as a mistake in gad.yaml may be named
    assert manager.lines() == ["STATUS=not taken up: models.?"]


def test_an_abstract_address() -> None:
    manager = Manager(f"@gad-test-{os.getpid()}")
    try:
        Notifier(manager.environ).ready()
        assert manager.listen() == ["READY=1"]
    finally:
        manager.socket.close()


def test_nobody_listens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Notifier({}).ready()
    asyncio.run(Notifier({}).tick(lambda: True))  # returns
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert "could not be told READY=1" in caplog.text


@pytest.mark.parametrize(
    ("environ", "watched"),
    [
        ({}, False),
        ({"WATCHDOG_USEC": "2000000"}, True),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
    ],
)
def test_signs_of_life_come_at_under_half_of_the_watchdog_s_time(
    manager: Manager, environ: dict[str, str], watched: bool
) -> None:
    notifier = Notifier(manager.environ | environ)
    assert notifier.pause < 1.0 if watched else notifier.pause > 1.0

    async def scene() -> None:
        for ready in (False, True):
            if ready:
                notifier.ready()
            ticking = asyncio.create_task(notifier.tick(lambda: False))
            await asyncio.sleep(0)
            ticking.cancel()

    asyncio.run(scene())
    assert manager.listen() == ["READY=1", *(["WATCHDOG=1"] if watched else [])]  # none before it is ready


def test_a_loop_that_stands_still_gives_no_sign_of_life(manager: Manager) -> None:
    notifier = Notifier(manager.environ | {"WATCHDOG_USEC": "30000"})

    async def scene() -> None:
        notifier.ready()
        ticking = asyncio.create_task(notifier.tick(lambda: False))
        await until(lambda: len(manager.listen()) >= 3)
        count = len(manager.listen())
        time.sleep(0.1)  # the loop stands still
        assert len(manager.listen()) == count
        await until(lambda: len(manager.listen()) > count)
        ticking.cancel()

    asyncio.run(scene())


def test_a_daemon_s_life(tmp_path: Path, manager: Manager) -> None:
    async def scene(world: World) -> None:
        world.task("s")
        environ = {"PATH": os.environ["PATH"], "WATCHDOG_USEC": "60000", **manager.environ}
        config = load(world.home, {})
        providers = Providers(config, environ, lambda what, done, total: None)
        daemon = build_daemon(config, environ, providers)
        task = asyncio.create_task(daemon.run())
        await until(lambda: "READY=1" in manager.listen())
        assert "begin" in world.kinds("s")  # what lay there has been taken up
        assert [line for line in manager.lines() if line.startswith("EXTEND_TIMEOUT_USEC=")]
        go = world.home / "work" / "s"
        await until(lambda: (go / "began").exists())
        await until(lambda: "STATUS=ready: 1 running" in manager.listen(), why=lambda: str(manager.heard))
        daemon.reloading()
        daemon.reloaded({"reload_error": "gad.yaml:1: no"})
        at = manager.lines().index("RELOADING=1")
        assert manager.lines()[at + 1].startswith("MONOTONIC_USEC=")
        told = [line for line in manager.lines()[at + 2 :] if not line.startswith("WATCHDOG")]
        assert told == ["STATUS=ready: 1 running; reload error: gad.yaml:1: no", "READY=1"]
        daemon.drain(20)
        await until(lambda: "STOPPING=1" in manager.lines())
        known = len(manager.listen())
        signs = {"WATCHDOG=1", "EXTEND_TIMEOUT_USEC=20000000"}
        await until(lambda: signs <= set("\n".join(manager.listen()[known:]).split("\n")))
        (go / "go").touch()
        await task
        await providers.close()
        assert manager.listen()[-1] == "STATUS=stopped: 1 queued; reload error: gad.yaml:1: no"

    code = "touch began; until [ -e go ]; do sleep 0.02; done"
    play(tmp_path, [Call("code_run", {"type": "bash", "code": code})], scene)
