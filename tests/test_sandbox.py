"""The sandbox of code_run against hostile code, with the real bubblewrap: what cannot be written, read or reached."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gad.browser.visits import keep, open_downloads
from gad.cli.walls import choose_sandbox, own_temporary
from gad.config import SandboxSettings, load
from gad.errors import ConfigError
from gad.tools.code import CodeRun
from gad.tools.sandbox import NoSandbox, Sandbox, Walls, mounts, trouble
from tests.test_tools_code import dead, pids, until
from tests.walls import Place, needs_bwrap
from tests.world import outside

pytestmark = needs_bwrap


@pytest.fixture(params=["tmp", "home"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A home below /tmp, of which the sandbox has its own, and one elsewhere."""
    if request.param == "tmp":
        yield Place(tmp_path / "home")
        return
    with tempfile.TemporaryDirectory(prefix=".gad-test-", dir=outside()) as directory:
        yield Place(Path(directory) / "home")


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path / "home")


# -- writing --------------------------------------------------------------------------------------

KEPT = "# as it was\n"
ATTACK = """
import os, shutil, sys
for path in PATHS:
    def append():
        with open(path, "a") as file: file.write("EVIL")
    def replace():
        with open("new", "w") as file: file.write("EVIL")
        os.replace("new", path)
    def move(): os.rename(path, path + ".gone")
    def remove(): os.unlink(path)
    def link(): os.link(path, "link"); open("link", "a").write("EVIL")
    def mode(): os.chmod(path, 0o777)
    def away(): os.rename(os.path.dirname(path), os.path.dirname(path) + ".gone")
    def tree(): shutil.rmtree(os.path.dirname(path))
    for attempt in (append, replace, move, remove, link, mode, away, tree):
        try:
            attempt()
            print("DONE", attempt.__name__, path)
        except OSError as exc:
            pass
"""


def targets(place: Place) -> list[Path]:
    found = [
        place.home / name
        for name in (
            "gad.yaml",
            "memory/facts.md",
            "triggers/t.py",
            "spool/me/journal.jsonl",
            "spool/boss/journal.jsonl",
            "spool/sib/journal.jsonl",
            "spool/.daemon/status.txt",
            "work/sib/file",
        )
    ]
    for path in found:
        with path.open("a") as file:
            file.write(KEPT)
    return found


def untouched(*outside: Path) -> bool:
    """Return whether these files are there as they were."""
    return all(path.read_text().endswith(KEPT) and path.stat().st_mode & 0o777 != 0o777 for path in outside)


def test_what_is_not_the_command_s_cannot_be_changed(place: Place) -> None:
    outside = targets(place)
    outcome = place.run(f"PATHS = {[str(path) for path in outside]}" + ATTACK, "python")
    assert outcome.status == "ok" and "DONE" not in outcome.output
    assert untouched(*outside)


def test_without_a_sandbox_the_same_code_changes_all_of_it(here: Place) -> None:
    outside = targets(here)
    code = ATTACK.replace("replace, move, remove, link, mode, away, tree", "")
    outcome = here.run(f"PATHS = {[str(path) for path in outside]}" + code, "python", walls=False)
    assert outcome.output.count("DONE append") == len(outside)
    assert not any(untouched(path) for path in outside)


@pytest.mark.parametrize("path", ["/etc/gad-test", "/usr/gad-test", "/gad-test", "~/.gad-test", "/proc/sys/kernel/x",
                                  "/sys/fs/cgroup/gad-test", "/var/gad-test"])  # fmt: skip
def test_the_system_and_the_user_s_home_are_read_only(here: Place, path: str) -> None:
    where = os.path.expanduser(path)
    try:
        outcome = here.run(f"echo evil > {where}; mkdir {where}; ln -s /etc {where}")
        assert outcome.status == "error" and not os.path.lexists(where)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(where)


def test_what_is_the_command_s_own_can_be_written_and_belongs_to_the_user(place: Place) -> None:
    cwd = place.home.parent / "project"
    cwd.mkdir()
    where = place.context(cwd=cwd)
    code = f"""set -e
        echo 1 > here; echo 2 > {where.work}/there; echo 3 > /tmp/temporary; echo 4 > /var/tmp/other; echo 5 > /dev/null
        mkdir {place.home}/spool/new; echo go > {place.home}/spool/new/input.txt
        echo reply > {place.home}/spool/kid/reply.txt
        cat {place.home}/gad.yaml {place.home}/memory/x; echo $TMPDIR; pwd"""
    (place.home / "memory" / "x").write_text("known\n")
    outcome = place.run(code, context=where)
    assert (outcome.status, outcome.output) == ("ok", f"known\n\n{cwd}\n")
    for path in (
        cwd / "here",
        Path(where.work, "there"),
        place.home / "spool" / "new",
        place.home / "spool/kid/reply.txt",
    ):
        assert path.stat().st_uid == os.getuid() and path.stat().st_gid == os.getgid()
    assert not os.path.exists("/tmp/temporary")
    kept = place.run("cat /tmp/temporary /tmp/other", context=where)
    # It is new for each command where something lies in /tmp that has to be seen.
    seen = (str(place.home), str(Path(__file__).parents[1]))
    assert (kept.output == "3\n4\n") == (not any(path.startswith("/tmp/") for path in seen))
    assert place.run("ls /tmp/temporary", context=place.context("sib")).status == "error"


def test_more_places_can_be_opened_but_not_what_is_closed(here: Place) -> None:
    base = here.home.parent
    (here.home / "gad.yaml").write_text(f"sandbox: {{writable: [{base}, {base}/missing]}}")
    memory = here.home / "memory"
    outcome = here.run(
        f"echo 1 > {base}/new; echo 2 > {memory}/x; echo 3 > {here.home}/work/sib/x; mv {memory} {base}/m"
    )
    assert (base / "new").read_text() == "1\n" and os.listdir(memory) == [] and memory.is_dir()
    assert outcome.output.count("Read-only") == 2 and "busy" in outcome.output
    assert os.listdir(here.home / "work" / "sib") == []


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_a_working_directory_around_the_home_does_not_open_it(tmp_path: Path, levels: int) -> None:
    place = Place(tmp_path / "a" / "b" / "home")
    outside = targets(place)
    cwd = place.home
    for _ in range(levels):
        cwd = cwd.parent
    inside = [place.home.parent, place.home, *(place.home / name for name in ("memory", "work", "spool/boss"))]
    inside = [path for path in inside if path != cwd and path.is_relative_to(cwd)]
    code = f"""
        for path in {" ".join(map(str, inside))}; do mv $path $path.gone && echo moved $path; done
        echo free > {place.home.parent if levels else place.home}/free; true"""
    outcome = place.run(code, context=place.context(cwd=cwd))
    assert "moved" not in outcome.output and outcome.output.count("busy") == len(inside)
    place.run(f"PATHS = {[str(path) for path in outside]}" + ATTACK, "python", context=place.context(cwd=cwd))
    assert untouched(*outside)
    assert ((place.home.parent if levels else place.home) / "free").exists()


def test_a_working_directory_in_a_closed_place_stays_closed(here: Place) -> None:
    sops = here.home / "memory" / "sops"
    sops.mkdir()
    outcome = here.run("ls; echo x > x", context=here.context(cwd=sops))
    assert "Read-only" in outcome.output and os.listdir(sops) == []
    assert "code writes below" in str(outcome.meta["sandbox"])


def test_links_mounts_and_namespaces_lead_nowhere(here: Place) -> None:
    [victim] = targets(here)[1:2]
    code = f"""
        ln -s {victim} a; echo EVIL > a; ln -s {here.home}/memory b; echo EVIL > b/facts.md; echo EVIL > b/new
        ln {victim} c && echo EVIL > c
        mount -o remount,rw /; mount -o remount,rw,bind {here.home}/memory; umount -l {here.home}/memory; umount -l /tmp
        for flags in -Urm -Um -rm "-Urmpf --mount-proc"; do
            unshare $flags bash -c 'mount -o remount,rw,bind {here.home}/memory; umount -l {here.home}/memory
                mount -o remount,rw /; umount -l /; echo EVIL > {victim}; echo EVIL > /etc/gad-evil'
        done
        for pid in {os.getpid()} 1; do nsenter -t $pid -m -U bash -c 'echo EVIL > {victim}'; done
        mknod disk b 8 0; mknod disk2 b 254 0; chroot /proc/{os.getpid()}/root bash -c 'echo EVIL > {victim}'
        true"""
    assert here.run(code).status == "ok"
    assert untouched(victim) and os.listdir(victim.parent) == [victim.name]
    assert not os.path.exists("/etc/gad-evil")


def test_what_waits_in_the_background_stays_inside(here: Place) -> None:
    [victim] = targets(here)[1:2]
    where = here.context()
    go, said = Path(where.work, "go"), Path(where.work, "said")
    code = f"(until [ -e go ]; do sleep 0.01; done; echo EVIL > {victim}; echo $? > said; sleep 100) & true"
    outcome = here.run(code)
    try:
        go.touch()
        asyncio.run(until(lambda: said.exists() and said.read_text() == "1\n"))
        assert untouched(victim)
    finally:
        os.killpg(outcome.meta["background"], signal.SIGKILL)


@pytest.mark.parametrize("walls", [True, False])
def test_gad_s_own_writing_follows_no_link_that_a_command_has_put_there(here: Place, walls: bool) -> None:
    [victim] = targets(here)[1:2]
    where = here.context()
    name = f"{where.work}/code_run-{where.call_id}"
    outcome = here.run(f"ln -s {victim} {name}.txt; seq 1000", walls=walls)
    assert untouched(victim)
    assert Path(outcome.saved).read_text().startswith("1\n2\n") and not os.path.islink(outcome.saved)
    os.mkfifo(f"{name}.sh")
    os.unlink(f"{name}.txt")
    os.mkfifo(f"{name}.txt")
    assert here.run("seq 1000", walls=walls).status == "ok"


# -- reading --------------------------------------------------------------------------------------


def test_keys_and_logins_cannot_be_read(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".gad-test-", dir=outside()) as elsewhere:
        far, linked, credentials = (Path(elsewhere, name) for name in ("far", "linked", "credentials"))
        credentials.mkdir()
        near = tmp_path / "home" / "near"
        settings = "models:\n" + "".join(
            f"  m{n}: {{provider: openai, model: m, key_file: {path}}}\n" for n, path in enumerate((far, linked, near))
        )
        place = Place(tmp_path / "home", settings, {"CREDENTIALS_DIRECTORY": str(credentials)})
        (place.home / "browser" / "shopping").mkdir(parents=True)
        secrets = [
            far,
            Path(elsewhere, "real"),
            near,
            credentials / "key",
            place.home / "browser" / "shopping" / "cookies",
        ]
        for path in secrets:
            path.write_text("s3cr3t")
        linked.symlink_to("real")
        words = " ".join(map(str, (*secrets, linked)))
        code = f"""cat {words}
            for p in {words}; do ln $p x && cat x; cp $p y && cat y; head -c 9 < $p; done
            grep -r s3cr3t {elsewhere} {place.home}/browser {place.home}/near"""
        for cwd in (None, Path(elsewhere), tmp_path):
            outcome = place.run(code, context=place.context(cwd=cwd))
            assert "denied" in outcome.output and "s3cr3t" not in outcome.output
        assert "s3cr3t" in place.run(f"cat {words}", walls=False).output
        assert [path.read_text() for path in secrets] == ["s3cr3t"] * len(secrets)


def test_a_key_file_that_is_named_later_cannot_be_read_either(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".gad-test-", dir=outside()) as elsewhere:
        key = Path(elsewhere, "key")
        key.write_text("s3cr3t")
        place = Place(tmp_path / "home")
        config = load(place.home, {})
        launch = choose_sandbox(config, place.environ, list, lambda: config)
        tool = CodeRun(launch)

        def seen() -> bool:
            asked = tool.run({"type": "bash", "code": f"cat {key}"}, place.context())
            return "s3cr3t" in asyncio.run(asked).output

        assert seen()
        (place.home / "gad.yaml").write_text(f"models: {{m: {{provider: openai, model: m, key_file: {key}}}}}\n")
        config = load(place.home, {})
        assert not seen()


PROBE = """
import ctypes, os
pid = PID
for name in ("environ", "root", "cwd", "exe", "fd/0", "maps", "mem", "auxv", "map_files", "io", "root/etc/passwd"):
    for look in (os.readlink, os.listdir, lambda path: os.read(os.open(path, os.O_RDONLY), 1)):
      try:
        look(f"/proc/{pid}/{name}")
        print("DONE", name)
      except OSError:
        pass
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, pid, 0, 0) == 0 or ctypes.get_errno() != 1:
    print("DONE ptrace", ctypes.get_errno())
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
space = ctypes.create_string_buffer(8)
mine, theirs = Piece(ctypes.addressof(space), 8), Piece(ADDRESS, 8)
if libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) != -1:
    print("DONE process_vm_readv")
"""


def test_the_daemon_s_process_is_out_of_reach(here: Place) -> None:
    with subprocess.Popen(["sleep", "100"], env={"SECRET": "s3cr3t"}) as daemon:
        try:
            asyncio.run(until(lambda: b"s3cr3t" in Path(f"/proc/{daemon.pid}/environ").read_bytes()))
            address = Path(f"/proc/{daemon.pid}/maps").read_text().partition("-")[0]
            code = PROBE.replace("PID", str(daemon.pid)).replace("ADDRESS", f"0x{address}")
            outcome = here.run(code, "python")
            assert (outcome.status, outcome.output) == ("ok", "")
            told = here.run(code.partition("libc =")[0], "python", walls=False).output
            assert {"DONE environ", "DONE root", "DONE fd/0", "DONE maps"} <= set(told.splitlines())
        finally:
            daemon.kill()


def test_services_do_not_hear_a_command(here: Place, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{directory}/s")
        server.listen()
        code = f"import os, socket; print(os.listdir('/run')); socket.socket(socket.AF_UNIX).connect('{directory}/s')"
        assert here.run(code, "python", walls=False).status == "ok"
        outcome = here.run(code, "python")
        assert "No such file" in outcome.output
    resolver = os.path.realpath("/etc/resolv.conf")
    names = [resolver.split("/")[2]] if resolver.startswith("/run/") else []
    assert outcome.output.startswith(f"{names}\n")


@pytest.mark.parametrize("network", ["on", "off"])
def test_the_network_can_be_switched_off(here: Place, network: str) -> None:
    (here.home / "gad.yaml").write_text(f"sandbox: {{network: {network}}}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = here.run(f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('in')", "python")
    assert (outcome.output == "in\n") == (network == "on")
    assert (outcome.status == "ok") == (network == "on")


# -- what a command is promised --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code", "exit_code", "output"),
    [
        ("bash", "echo 你好; echo err >&2", 0, "你好\nerr\n"),
        ("bash", "exit 3", 3, ""),
        ("bash", "kill -9 $$", 137, ""),
        ("bash", "cat; echo end", 0, "end\n"),
        ("python", "import sys\nsys.exit(4)", 4, ""),
        ("python", "import os; print(os.getcwd() == os.environ['PWD'] or os.getcwd())", 0, None),
    ],
)
def test_what_a_run_gives(here: Place, kind: str, code: str, exit_code: int, output: str | None) -> None:
    outcome = here.run(code, kind)
    assert outcome.meta["exit"] == exit_code and outcome.status == ("ok" if exit_code == 0 else "error")
    assert output is None or outcome.output == output


def test_output_streams_while_it_runs(here: Place) -> None:
    seen: list[str] = []
    where = here.context()

    def emit(text: str) -> None:
        seen.append(text)
        Path(where.work, "go").touch()  # only output that came before the end lets the command end

    outcome = here.run(
        "echo first; until [ -e go ]; do sleep 0.01; done", context=dataclasses.replace(where, emit=emit)
    )
    assert outcome.status == "ok" and "".join(seen) == "first\n"


def test_a_missing_cwd_is_an_error_result(here: Place) -> None:
    outcome = here.run("true", context=here.context(cwd=here.home / "gone"))
    assert outcome.status == "error" and "No such file" in outcome.output


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("sleep 100 & echo $! >> p; (sleep 100 & echo $! >> p; wait) & echo $! >> p; echo $$ >> p; wait", 4),
        ("timeout 100 sleep 100 & echo $! >> p; set -m; sleep 100 & echo $! >> p; echo $$ >> p; wait", 3),
        ("trap '' TERM; sleep 100 & echo $! >> p; echo $$ >> p; wait", 2),
    ],
)
def test_a_stop_kills_all_of_it(here: Place, code: str, count: int) -> None:
    listed = Path(here.context().work, "p")

    async def scenario() -> None:
        task = asyncio.create_task(here.start(code))
        await until(pids(listed, count))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert all(dead(int(pid)) for pid in listed.read_text().split())


def test_a_command_can_tidy_up_when_it_is_told_to_end(here: Place) -> None:
    code = "trap 'sleep 0.2; echo tidied > tidy; exit 0' TERM; touch p; while true; do sleep 0.01; done"
    outcome = here.run(code, timeout=0.5)
    assert outcome.status == "error" and outcome.meta["timeout"] == 0.5
    assert Path(here.context().work, "tidy").read_text() == "tidied\n"


def test_a_timeout_kills_and_returns_what_was_said(here: Place) -> None:
    outcome = here.run("echo $$; sleep 100 & echo $!; wait", timeout=0.5)
    assert outcome.status == "error" and outcome.meta["exit"] == -signal.SIGTERM
    assert all(dead(int(pid)) for pid in outcome.output.split())


def test_it_dies_with_the_daemon(here: Place) -> None:
    where = here.context()
    command = ["bash", "-c", "echo $$ > p; while true; do sleep 0.01; done"]
    argv = here.sandbox(command, session="me", cwd=where.cwd, work=where.work)
    with subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *argv]
    ) as daemon:
        listed = Path(where.work, "p")
        asyncio.run(until(pids(listed, 1)))
        daemon.kill()
    asyncio.run(until(lambda: dead(int(listed.read_text()))))


# -- which sandbox ----------------------------------------------------------------------------------


def broken(directory: Path) -> dict[str, str]:
    """Return an environment whose bwrap is refused its namespaces."""
    program = directory / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


def test_where_it_does_not_work_auto_does_without_and_says_so(
    here: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for environ, said in ((broken(tmp_path), "user.max_user_namespaces"), ({"PATH": ""}, "apt install bubblewrap")):
        caplog.clear()
        launch = choose_sandbox(load(here.home, {}), environ, list)
        assert isinstance(launch, NoSandbox)
        assert said in caplog.text and "sandbox: none" in caplog.text
        assert launch(["true"], session="me", cwd="/", work="/") == ["true"]


@pytest.mark.parametrize("settings", ["sandbox: bwrap", "sandbox: {mode: bwrap}", "sandbox: {network: off}"])
def test_where_it_is_insisted_on_the_daemon_does_not_start(here: Place, tmp_path: Path, settings: str) -> None:
    (here.home / "gad.yaml").write_text(settings)
    with pytest.raises(ConfigError, match=r"No permissions.*max_user_namespaces.*remove that line"):
        choose_sandbox(load(here.home, {}), broken(tmp_path), list)
    assert isinstance(choose_sandbox(load(here.home, {}), here.environ, list), Sandbox)


def test_none_is_none(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    (here.home / "gad.yaml").write_text("sandbox: none")
    assert isinstance(choose_sandbox(load(here.home, {}), here.environ, list), NoSandbox)
    assert not caplog.text


def test_settings_are_read(here: Place) -> None:
    for text, settings in (
        ("", SandboxSettings()),
        ("sandbox: bwrap", SandboxSettings("bwrap")),
        (
            "sandbox: {network: off, writable: [~/x, /y/]}",
            SandboxSettings("auto", False, (str(Path.home() / "x"), "/y")),
        ),
    ):
        (here.home / "gad.yaml").write_text(text)
        assert load(here.home, {}).sandbox == settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("sandbox: docker", "gad.yaml:1: sandbox: must be one of auto, none, bwrap"),
        ("sandbox:\n  mode: on", "gad.yaml:2: sandbox.mode: must be one of"),
        ("sandbox:\n  mode: none\n  network: off", "gad.yaml:3: sandbox.network: has no meaning beside mode: none"),
        ("sandbox:\n  writable: [here]", "gad.yaml:2: sandbox.writable: must be absolute"),
        ("sandbox:\n  net: off", "gad.yaml:2: sandbox.net: unknown key"),
    ],
)
def test_mistakes_are_named(here: Place, settings: str, said: str) -> None:
    (here.home / "gad.yaml").write_text(settings)
    with pytest.raises(ConfigError) as caught:
        load(here.home, {})
    assert said in str(caught.value)


def test_a_program_that_is_no_bwrap_is_trouble(tmp_path: Path) -> None:
    assert "does not work" in trouble(str(tmp_path / "missing"))
    assert "exit code 1" in trouble(shutil.which("false"))


def test_few_mounts_are_made(tmp_path: Path) -> None:
    """What can be read only anyway takes no mount."""
    work = tmp_path / "work"
    work.mkdir()
    closed = tuple(f"/usr/{name}" for name in os.listdir("/usr"))
    found = mounts("/", "/", Walls(str(tmp_path / "t"), open=("/",), closed=closed))
    assert all(f"/usr/{name}" in found for name in os.listdir("/usr"))
    found = mounts("/opt", "/opt", Walls(str(tmp_path / "t"), open=("/srv",), closed=closed))
    assert not any(word.startswith("/usr/") for word in found)


def test_a_download_goes_through_no_link(tmp_path: Path) -> None:
    work, out, source = tmp_path / "work", tmp_path / "out", tmp_path / "source"
    out.mkdir()
    source.write_text("data")
    (work / "downloads").mkdir(parents=True)
    (work / "downloads" / "a.bin").symlink_to(out / "new")
    directory = open_downloads(str(work))
    try:
        assert keep(str(source), directory, "a.bin") == ("a-2.bin", 4)
    finally:
        os.close(directory)
    assert (work / "downloads" / "a-2.bin").read_text() == "data" and os.listdir(out) == []
    shutil.rmtree(work / "downloads")
    (work / "downloads").symlink_to(out)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        open_downloads(str(work))


def test_which_temporary_directories_are_a_session_s_own(tmp_path: Path) -> None:
    """Where gad's home lies in one, what is in it may be more than the session's."""
    far = replace(load(Place(tmp_path / "home").home, {}), home=Path("/srv/home"))
    sandbox = Sandbox("bwrap", lambda session: Walls(""))
    assert own_temporary(sandbox, far) == ("/tmp", "/var/tmp")
    assert own_temporary(NoSandbox("none", lambda session: False), far) == ()
    assert own_temporary(sandbox, replace(far, home=Path("/tmp/home"))) == ("/var/tmp",)
    shared = replace(far.sandbox, writable=("/var/tmp/shared",))
    assert own_temporary(sandbox, replace(far, sandbox=shared)) == ("/tmp",)
