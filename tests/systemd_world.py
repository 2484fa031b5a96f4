"""A real systemd as process 1 of namespaces of its own, for tests of what a service manager does with the daemon.

The directory that it is given is /srv there. What must not be touched of the machine (/run, /tmp, /var/tmp, /var/cache,
/etc/systemd/system) is empty there at first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from gad.spool.status import read_status
from tests.world import World

MANAGER = "/usr/lib/systemd/systemd"
CODE = (str(Path(__file__).parents[1]), sys.base_prefix)
"""Where gad's code and its Python are: to be found in there wherever they lie."""
USER = "daemon"
"""Whom the homes belong to: a user that every system has, and that may do nothing."""
GROUP = """
set -e
mount --make-rprivate /
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
place=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/$1
"""
"""Finds a control group of a world's own: two worlds must not share one."""
ENTER = (
    GROUP
    + """
mkdir $place
echo $$ > $place/cgroup.procs
exec unshare --pid --fork --kill-child --cgroup --uts --ipc bash -c "$2" boot "${@:3}"
"""
)
LEAVE = (
    GROUP
    + """
find $place -depth -type d -exec rmdir {} +
"""
)
BOOT = """
set -e
umask 022
mount --bind "$1" /srv
covered=(/run /tmp /var/tmp /var/cache /etc/systemd/system)
while shift; [ "$1" != -- ]; do covered+=("$1"); done
shift
for code; do exec {handle}<"$code"; handles+=($handle); done
for place in "${covered[@]}"; do mount -t tmpfs tmpfs "$place"; done
for code; do
    [ -e "$code" ] || { mkdir -p "$code"; mount --no-canonicalize --bind /proc/self/fd/${handles[0]} "$code"; }
    handles=("${handles[@]:1}")
done
mkdir -p /run/systemd/system/service.d
for one in setup setup-dev clean; do ln -s /dev/null /run/systemd/system/systemd-tmpfiles-$one.service; done
umount /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t proc proc /proc
mount --make-rshared /
printf '[Unit]\\nDefaultDependencies=no\\n' > /run/systemd/system/world.target
cat > /run/systemd/system/service.d/world.conf <<END
[Unit]
DefaultDependencies=no
[Service]
$(for code; do case $code in /tmp/*|/var/tmp/*) echo "BindReadOnlyPaths=$code";; esac; done)
StandardOutput=append:/srv/%N.log
StandardError=append:/srv/%N.log
END
container=gad-tests exec /usr/lib/systemd/systemd --system --unit=world.target --show-status=0
"""


def _private() -> list[str]:
    """Return the directories around the code that only their owner may pass, as /root is."""
    around = [parent for path in CODE for parent in reversed(Path(path).parents)]
    return list(dict.fromkeys(str(one) for one in around if not one.stat().st_mode & 0o001))


class Systemd:
    """The service manager. A context manager; entering it skips the test, loudly, where it cannot run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.chmod(0o755)
        self._first: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        needs = ["unshare", "nsenter", "systemctl", MANAGER]
        if missing := [name for name in needs if shutil.which(name) is None]:
            pytest.skip(f"THE SERVICE IS NOT TESTED UNDER SYSTEMD: there is no {', '.join(missing)} here")
        if os.geteuid() != 0:
            pytest.skip("THE SERVICE IS NOT TESTED UNDER SYSTEMD: only root can make the namespaces for it")
        with open(self.directory / "boot.log", "wb") as log:
            command = [*self._in_group(ENTER), BOOT, str(self.directory), *_private(), "--", *CODE]
            self._first = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(self._up, 20)
        except AssertionError:
            self.__exit__(None, None, None)
            said = (self.directory / "boot.log").read_text("utf-8", "replace").strip()
            pytest.skip(f"THE SERVICE IS NOT TESTED UNDER SYSTEMD: it does not come up in a namespace here: {said}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, and with process 1 everything in its world."""
        if self._first is not None:
            if self._pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            else:
                self._first.kill()
            self._first.wait(20)
            subprocess.run(self._in_group(LEAVE), check=False, capture_output=True)

    def _in_group(self, script: str) -> list[str]:
        return ["unshare", "--mount", "bash", "-c", script, "world", f"gad-tests-{os.getpid()}"]

    def _up(self) -> bool:
        assert self._first is not None
        if self._first.poll() is not None:
            raise AssertionError("it has ended")
        if Path(f"/proc/{self._first.pid}/comm").read_text() != "unshare\n":
            return False
        children = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()
        self._pid = int(children[0]) if children else 0
        return bool(self._pid) and self.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    def run(self, *command: str, text: str = "", seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in there."""
        enter = ["nsenter", "-t", str(self._pid), "-m", "-p", "-C", "-u", "-i", "-w/"]
        environment = {"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8"}
        return subprocess.run(
            [*enter, *command], env=environment, input=text, capture_output=True, text=True, timeout=seconds
        )

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        done = self.run("systemctl", *arguments)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def show(self, unit: str, key: str) -> str:
        return self.systemctl("show", "--value", "-p", key, unit).strip()


class Unit:
    """One home's service, `gad@NAME`, and the home as its clients see it."""

    def __init__(self, systemd: Systemd, world: World, *arguments: str) -> None:
        self.systemd = systemd
        self.world = world
        self.name = world.home.name
        self.service = f"gad@{self.name}.service"
        shutil.chown(world.home, USER)
        for place in world.home.iterdir():
            shutil.chown(place, USER)
        self.gad = gad_of(world.home)
        done = systemd.run(*self.gad, "service", "install", "--name", self.name, *arguments)
        assert done.returncode == 0, done.stderr

    def drop_in(self, **settings: str) -> None:
        """Change settings of the unit; `Unit_X` is one of its first section."""
        place = f"/etc/systemd/system/{self.service}.d"
        lines = ["[Unit]", *(f"{key[5:]}={value}" for key, value in settings.items() if key.startswith("Unit_"))]
        lines += ["[Service]", *(f"{key}={value}" for key, value in settings.items() if not key.startswith("Unit_"))]
        self.systemd.run("mkdir", "-p", place)
        self.systemd.run("tee", f"{place}/test.conf", text="\n".join(lines) + "\n")
        self.systemd.systemctl("daemon-reload")

    def start(self) -> None:
        """Start it; return when it has said that it is ready."""
        done = self.systemd.run("systemctl", "start", self.service)
        assert done.returncode == 0, f"{done.stderr}\n{self.log()}"

    def stop(self) -> None:
        self.systemd.systemctl("stop", self.service)

    def show(self, key: str) -> str:
        return self.systemd.show(self.service, key)

    def log(self) -> str:
        path = self.systemd.directory / f"gad@{self.name}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def daemon(self) -> dict[str, Any]:
        return read_status(self.world.spool / ".daemon")

    def processes(self) -> dict[int, str]:
        """Return the processes in the unit's control group, by their ids in there."""
        listed = self.systemd.run("cat", f"/sys/fs/cgroup{self.show('ControlGroup')}/cgroup.procs").stdout.split()
        return {int(pid): self.command(int(pid)) for pid in listed}

    def command(self, pid: int) -> str:
        """Return a process's command line, empty when it is gone."""
        return self.systemd.run("cat", f"/proc/{pid}/cmdline").stdout.replace("\0", " ")

    def task(self, session: str, text: str = "do it", **options: Any) -> None:
        hand_in(self.world, session, text, **options)

    def rests(self, session: str, state: str = "done", seconds: float = 40) -> dict[str, Any]:
        status = self.world.status
        wait_for(lambda: status(session).get("state") == state, seconds, lambda: f"{status(session)}\n{self.log()}")
        return status(session)


def gad_of(home: Path) -> list[str]:
    """Return the command line of gad for a home, as it is in there."""
    return [os.path.join(os.path.dirname(sys.executable), "gad"), "--home", f"/srv/{home.name}"]


def hand_in(world: World, session: str, text: str = "do it", **options: Any) -> None:
    """Hand in a task as the service's own user."""
    place = world.spool / f".{session}"
    place.mkdir()
    if options:
        (place / "task.yaml").write_text(yaml.safe_dump(options))
    (place / "input.txt").write_text(text)
    for path in (place, *place.iterdir()):
        shutil.chown(path, USER)
    place.rename(world.spool / session)


def wait_for(condition: Callable[[], object], seconds: float = 40.0, why: Callable[[], str] = lambda: "") -> None:
    """Poll a condition; fail with `why` when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {why()}"
        time.sleep(0.02)  # polling


@contextlib.contextmanager
def booted(directory: Path) -> Iterator[Systemd]:
    """Run a systemd until the block ends."""
    with Systemd(directory) as systemd:
        yield systemd
