"""The service under a real systemd: what `gad service install` writes is started, stopped, frozen and killed."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gad.spool.status import read_status
from tests.scripted_server import Call, Reply, Say, Silence, serve_in_thread
from tests.systemd_world import MANAGER, USER, Systemd, Unit, booted, gad_of, hand_in, wait_for
from tests.world import World

Make = Callable[..., Unit]

FREEZE = """
import asyncio, gc, os, threading, time

def freeze():
    while not os.path.exists(f'/srv/freeze-{os.getpid()}'):
        time.sleep(0.02)
    for one in gc.get_objects():
        if isinstance(one, asyncio.BaseEventLoop) and one.is_running():
            one.call_soon_threadsafe(time.sleep, 1000)

threading.Thread(target=freeze, daemon=True).start()
"""
"""A sitecustomize.py that stops a process's event loop, and nothing else of it, when a file appears."""


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    with booted(tmp_path_factory.mktemp("systemd")) as one:
        yield one


@pytest.fixture
def make(systemd: Systemd, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Make a home with its installed service; the model follows a script."""
    with contextlib.ExitStack() as stack:
        made: list[Unit] = []

        def make_unit(script: Any, *arguments: str, name: str = "", **settings: Any) -> Unit:
            server = stack.enter_context(serve_in_thread(script))
            home = systemd.directory / (name or request.node.name.removeprefix("test_").replace("_", "-"))
            made.append(Unit(systemd, World(home, server, **{"drain": 0} | settings), *arguments))
            return made[-1]

        yield make_unit
        for one in made:
            for kind in ("path", "service"):
                systemd.systemctl("stop", f"gad@{one.name}.{kind}", check=False)


def bash(code: str) -> Call:
    return Call("code_run", {"type": "bash", "code": code, "timeout": 100})


def result(unit: Unit, session: str) -> str:
    """Return what the last call of a tool gave."""
    return str([one for one in unit.world.records(session) if one["kind"] == "tool_finished"][-1]["result"])


def test_it_is_ready_when_everything_has_been_taken_up(make: Make) -> None:
    unit = make(Silence())
    for n in range(20):
        unit.task(f"s{n}")
    unit.start()
    assert unit.daemon()["state"] == "ready"
    assert all(unit.world.status(f"s{n}")["state"] in ("queued", "running") for n in range(20))
    wait_for(lambda: unit.show("StatusText") == "ready: 4 queued, 16 running", why=lambda: unit.show("StatusText"))
    assert (unit.show("ActiveState"), unit.show("NRestarts")) == ("active", "0")
    main = int(unit.show("MainPID"))
    owner = unit.systemd.run("stat", "-c", "%U", f"/proc/{main}").stdout.strip()
    assert owner == USER
    # What the unit takes away has been taken away.
    status = unit.systemd.run("cat", f"/proc/{main}/status").stdout
    assert "CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
    told = unit.systemd.run(*unit.gad, "service", "status", "--name", unit.name)
    assert (told.returncode, "Active: active (running)" in told.stdout) == (0, True), told.stderr


def test_a_key_comes_as_a_credential(make: Make, systemd: Systemd) -> None:
    key = systemd.directory / "the.key"
    key.write_text("s3cret-credential\n")
    key.chmod(0o600)
    look = bash("env; cat /srv/the.key")
    scripted = {"provider": "openai", "model": "scripted", "key_credential": "vendor"}
    with serve_in_thread([look, "done"]) as server:
        model = scripted | {"base_url": server.openai_url}
        unit = make([], "--credential", "vendor:/srv/the.key", models={"test": model})
        unit.start()
        unit.task("s")
        unit.rests("s")
        assert server.requests[0].headers["authorization"] == "Bearer s3cret-credential"
        assert "s3cret" not in result(unit, "s") and "CREDENTIALS_DIRECTORY" not in result(unit, "s")
    assert "s3cret" not in unit.systemd.systemctl("show", unit.service)


def test_settings_are_read_again(make: Make) -> None:
    unit = make(["before", "after", "still"], sessions=3)
    path = unit.world.home / "gad.yaml"
    settings = yaml.safe_load(path.read_text())
    unit.start()
    unit.task("a")
    unit.rests("a")

    settings |= {"browser": {"headless": False}, "sessions": 4}
    settings["models"]["test"]["model"] = "scripted-2"
    path.write_text(yaml.safe_dump(settings))
    unit.systemd.systemctl("reload", unit.service)
    wait_for(lambda: "reloaded" in unit.daemon(), why=unit.log)
    assert unit.daemon()["restart_needed"] == "browser.headless"
    unit.task("b", usd=1)
    assert unit.rests("b", "failed")["error"].count("scripted-2"), "the new model has no price"
    unit.task("c")
    unit.rests("c")
    assert [one.body["model"] for one in unit.world.server.requests] == ["scripted", "scripted-2"]

    path.write_text("model: test\nsesions: 3\n")
    unit.systemd.systemctl("reload", unit.service)
    wait_for(lambda: "reload_error" in unit.daemon(), why=unit.log)
    wait_for(lambda: "reload error: gad.yaml:" in unit.show("StatusText"), why=lambda: unit.show("StatusText"))
    assert "restart needed: browser.headless" in unit.show("StatusText")
    assert "gad.yaml:2: sesions: unknown key; did you mean sessions?" in unit.log()
    unit.task("d")
    unit.rests("d")
    wait_for(lambda: unit.show("SubState") == "running")
    assert unit.show("NRestarts") == "0"


def test_a_loop_that_stands_still_is_ended_by_the_watchdog(make: Make, systemd: Systemd) -> None:
    hooks = systemd.directory / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(FREEZE)
    unit = make([Silence(), "resumed"])
    unit.drop_in(WatchdogSec="8s", Environment="PYTHONPATH=/srv/hooks", RestartSec="50ms")
    unit.start()
    unit.task("s")
    wait_for(lambda: len(unit.world.server.requests) == 1)
    main = unit.show("MainPID")
    first = unit.show("WatchdogTimestampMonotonic")
    wait_for(lambda: unit.show("WatchdogTimestampMonotonic") != first)  # the loop turns
    assert (unit.show("MainPID"), unit.show("NRestarts")) == (main, "0")
    (systemd.directory / f"freeze-{main}").write_text("")
    wait_for(lambda: unit.show("NRestarts") == "1", 40, unit.log)
    unit.rests("s")
    assert unit.show("MainPID") != main
    assert "Fatal Python error: Aborted" in unit.log()  # with where the loop stood


def test_a_killed_daemon_comes_back_and_goes_on(make: Make) -> None:
    unit = make([bash("echo $$ > pid; setsid sleep 1000 & wait"), "resumed"])
    unit.drop_in(RestartSec="50ms")
    unit.start()
    unit.task("s")
    pid = unit.world.home / "work" / "s" / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip(), why=unit.log)
    wait_for(lambda: any("sleep 1000" in command for command in unit.processes().values()))
    before = unit.processes()
    unit.systemd.systemctl("kill", "--kill-whom=main", "-s", "KILL", unit.service)
    unit.rests("s")
    assert unit.show("NRestarts") == "1"
    assert "may or may not have happened; check before repeating" in unit.world.server.requests[1].raw.decode()
    assert not [command for pid, command in before.items() if unit.command(pid) == command]


def test_turns_come_to_their_end_before_it_stops(make: Make) -> None:
    unit = make([bash("touch began; until [ -e go ]; do sleep 0.05; done; echo finished"), "resumed"], drain=60)
    unit.drop_in(TimeoutStopSec="1s")
    unit.start()
    unit.task("s")
    work = unit.world.home / "work" / "s"
    wait_for((work / "began").exists, why=unit.log)
    unit.systemd.systemctl("stop", "--no-block", unit.service)
    wait_for(lambda: unit.daemon()["state"] == "draining")
    assert unit.show("StatusText") == "draining: 1 running"
    # It has been given more time than the unit has for it.
    left = int(unit.show("StateChangeTimestampMonotonic"))
    wait_for(lambda: monotonic_of(unit) - left > 1_500_000)
    assert unit.show("ActiveState") == "deactivating"
    (work / "go").touch()
    wait_for(lambda: unit.show("ActiveState") == "inactive", why=unit.log)
    assert unit.show("Result") == "success"
    assert "finished" in result(unit, "s") and unit.world.kinds("s")[-1] == "paused"
    assert len(unit.world.server.requests) == 1
    unit.start()
    unit.rests("s")
    assert "finished" in unit.world.server.requests[1].raw.decode()


def monotonic_of(unit: Unit) -> int:
    """Return the machine's clock as systemd counts it, in microseconds."""
    return int(float(unit.systemd.run("cat", "/proc/uptime").stdout.split()[0]) * 1e6)


def test_a_second_sigterm_breaks_off(make: Make) -> None:
    unit = make([bash("trap '' TERM; touch began; while :; do sleep 0.1; done")], drain=600)
    unit.start()
    unit.task("s")
    wait_for((unit.world.home / "work" / "s" / "began").exists, why=unit.log)
    unit.systemd.systemctl("stop", "--no-block", unit.service)
    wait_for(lambda: unit.daemon()["state"] == "draining")
    unit.systemd.systemctl("kill", "--kill-whom=main", "-s", "TERM", unit.service)
    wait_for(lambda: unit.show("ActiveState") == "inactive", why=unit.log)
    assert (unit.show("Result"), unit.show("ExecMainStatus")) == ("success", "0")
    assert unit.world.kinds("s")[-1] == "paused"


def test_sandboxes_work_and_nothing_is_left(make: Make) -> None:
    code = "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --die-with-parent echo sandboxed"
    page = Call("web_scan", {"url": "data:text/html,<p>eyes-open</p>"})
    escape = bash("setsid sleep 1000 > /dev/null 2>&1 & echo away")
    unit = make([bash(code), page, escape, "done"], browser={"sandbox": "on"})
    unit.start()
    unit.task("s")
    unit.rests("s", seconds=60)
    said = [one["result"] for one in unit.world.records("s") if one["kind"] == "tool_finished"]
    assert "sandboxed" in str(said[0]), said[0]
    assert "eyes-open" in str(said[1]) and said[1]["status"] != "error", said[1]
    before = unit.processes()
    named = " ".join(before.values())
    assert "--type=renderer" in named and "--no-sandbox" not in named and "sleep 1000" in named
    unit.stop()
    assert not [command for pid, command in before.items() if unit.command(pid) == command]
    assert (unit.show("Result"), unit.show("ActiveState")) == ("success", "inactive")


def test_a_daemon_that_does_not_stay_up_is_left_alone(make: Make) -> None:
    unit = make([])
    unit.drop_in(RestartSec="10ms")
    (unit.world.home / "spool").rmdir()
    (unit.world.home / "spool").write_text("no directory")
    unit.systemd.systemctl("start", unit.service, check=False)
    wait_for(lambda: unit.show("Result") == "start-limit-hit" or unit.show("SubState") == "failed", why=unit.log)
    assert (unit.show("ActiveState"), unit.show("NRestarts"), unit.show("ExecMainStatus")) == ("failed", "5", "1")


def test_what_a_restart_cannot_mend_is_not_restarted(make: Make) -> None:
    unit = make([])
    unit.drop_in(RestartSec="10ms")
    path = unit.world.home / "gad.yaml"
    good = path.read_text()
    path.write_text("sesions: 3\n")
    unit.systemd.systemctl("start", unit.service, check=False)
    wait_for(lambda: unit.show("ActiveState") == "failed", why=unit.log)
    assert (unit.show("ExecMainStatus"), unit.show("NRestarts")) == ("100", "0")
    path.write_text(good)
    unit.systemd.systemctl("reset-failed", unit.service)
    unit.start()
    second = unit.systemd.run(*unit.gad, "up")
    assert (second.returncode, "another daemon has this spool" in second.stderr) == (100, True), second.stderr


def test_a_task_starts_it(make: Make) -> None:
    unit = make(Reply((Say("here I am"),)), "--path-unit")
    path = f"gad@{unit.name}.path"
    assert unit.systemd.run("systemctl", "is-enabled", path).stdout.strip() == "enabled"
    assert unit.systemd.run("systemctl", "is-enabled", unit.service).stdout.strip() == "disabled"
    unit.systemd.systemctl("start", path)
    assert unit.show("ActiveState") == "inactive"
    unit.task("s")
    unit.rests("s")
    assert unit.show("ActiveState") == "active"
    unit.systemd.systemctl("stop", path, unit.service)
    unit.task("t")  # handed in while nobody looks
    unit.systemd.systemctl("start", path)
    unit.rests("t")
    removed = unit.systemd.run(*unit.gad, "service", "uninstall", "--name", unit.name)
    assert removed.returncode == 0, removed.stderr
    assert unit.show("LoadState") == "not-found" and unit.show("ActiveState") == "inactive"
    assert os.path.isdir(unit.world.spool / "s")


def test_units_of_others_are_left_alone(make: Make) -> None:
    unit = make([])
    place = f"/etc/systemd/system/{unit.service}"
    unit.systemd.run("tee", place, text="[Service]\nExecStart=/bin/true\n")
    for command in ("install", "uninstall"):
        done = unit.systemd.run(*unit.gad, "service", command, "--name", unit.name)
        assert (done.returncode, "was not written by gad service install" in done.stderr) == (1, True)
    assert unit.systemd.run("cat", place).stdout == "[Service]\nExecStart=/bin/true\n"


def test_a_user_s_own_service(systemd: Systemd) -> None:
    root = Path(__file__).parent.parent
    key = systemd.directory / "user.key"
    key.write_text("s3cret-of-a-user")
    runtime = f"/run/user/{pwd.getpwnam(USER).pw_uid}"
    manager = f"""
        [Service]
        Type=notify
        User={USER}
        Delegate=yes
        Environment=XDG_RUNTIME_DIR={runtime} XDG_CONFIG_HOME=/srv/of-a-user
        ExecStart={MANAGER} --user
        ProtectHome=tmpfs
        BindPaths={runtime}
        BindReadOnlyPaths={root} {sys.base_prefix}
    """
    systemd.run("install", "-d", "-o", USER, "-m", "700", runtime)
    systemd.run("tee", "/run/systemd/system/user-manager.service", text=textwrap.dedent(manager))
    with serve_in_thread(["done"]) as server:
        model = {"provider": "openai", "model": "scripted", "base_url": server.openai_url, "key_credential": "vendor"}
        world = World(systemd.directory / "of-a-user", server, models={"test": model})
        for path in (world.home, *world.home.iterdir(), key):
            shutil.chown(path, USER)
        systemd.systemctl("start", "user-manager.service")
        place = ["nsenter", "-t", systemd.show("user-manager.service", "MainPID"), "-m", "setpriv", "--reuid", USER]
        variables = [f"XDG_RUNTIME_DIR={runtime}", f"XDG_CONFIG_HOME=/srv/{world.home.name}"]

        def as_user(*command: str) -> str:
            done = systemd.run(*place, "--regid", USER, "--clear-groups", "env", *variables, *command)
            assert done.returncode == 0, done.stderr
            return done.stdout

        install = [*gad_of(world.home), "service", "install", "--user", "--credential", "vendor:/srv/user.key"]
        as_user(*install)
        as_user("systemctl", "--user", "start", "gad")
        assert 'Status: "ready: no sessions"' in as_user("systemctl", "--user", "status", "gad")
        hand_in(world, "s")
        wait_for(lambda: world.status("s").get("state") == "done", why=lambda: str(world.status("s")))
        assert server.requests[0].headers["authorization"] == "Bearer s3cret-of-a-user"
        as_user("systemctl", "--user", "stop", "gad")
        assert read_status(world.spool / ".daemon")["state"] == "stopped"
        systemd.systemctl("stop", "user-manager.service")
