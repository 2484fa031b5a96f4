"""The sandbox of what agents run: bubblewrap's command line, and whether bubblewrap works here.

Inside, the system can be read and not written; the working directory, the session's work directory and a /tmp of its
own can be written. A user namespace of its own keeps the command from every process outside: it can neither trace
them nor read their memory, environment or root. Process ids are those of the machine, because a command's background
processes may outlive it, and are found by their session's number: so it can send signals to the user's processes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

BASE = ("--unshare-user", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
_UNSET = ("TMPDIR", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""Variables that name what is not there inside."""
PRIVATE = ("/tmp", "/var/tmp")
"""Directories of which a session has its own inside."""
_RUN = "/run"
"""Where services listen: a command that reaches systemd, D-Bus or Docker is outside."""
_PROBE_SECONDS = 10.0
_AS = {"pin": "rw", "seen": "ro"}
"""What can be done in a place of these kinds."""


@dataclass(frozen=True, slots=True)
class Walls:
    """What a session's commands find, besides its working directory and its work directory; absolute paths.

    `open` can be written. `fenced` cannot, except for what is open inside it; `closed` cannot, whatever lies in it or
    around it; `hidden` cannot even be read. `visible` is to be seen although it may lie where programs keep temporary
    files. `temporary` is a directory that becomes the session's /tmp; where one of all these places lies in /tmp, each
    command has a new one instead.
    """

    temporary: str
    open: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    confined: bool = False


class Launch(Protocol):
    """Turn a command into the one to start for it in a session."""

    def __call__(self, argv: Sequence[str], *, session: str, cwd: str, work: str) -> list[str]:
        """Return the command as it is, or one that runs it in a sandbox. Raises OSError when it may not run at all."""
        ...


class Sandbox:
    """Runs commands under bubblewrap, the program at `bwrap`; `walls` says what a session's commands find.

    It is asked at each command, as sessions come and go.
    """

    def __init__(self, bwrap: str, walls: Callable[[str], Walls], *, network: bool = True) -> None:
        self._bwrap = bwrap
        self._walls = walls
        self._network = network

    def __call__(self, argv: Sequence[str], *, session: str, cwd: str, work: str) -> list[str]:
        """Return the command line that runs `argv` inside."""
        walls = self._walls(session)
        if walls.confined and cwd != work and os.path.realpath(cwd) != cwd:
            raise PermissionError(f"this session is confined to {cwd}, which leads to another place by now")
        if not os.path.isdir(cwd):
            raise FileNotFoundError(2, "No such file or directory", cwd)
        os.makedirs(walls.temporary, mode=0o700, exist_ok=True)
        network = () if self._network else ("--unshare-net",)
        unset = [word for name in _UNSET for word in ("--unsetenv", name)]
        return [self._bwrap, *BASE, *network, *unset, *mounts(cwd, work, walls), "--chdir", cwd, "--", *argv]


class NoSandbox:
    """Runs commands as they are, and those of confined sessions not at all.

    `why` says what is missing and how to mend it, `confined` whether a session is confined.
    """

    def __init__(self, why: str, confined: Callable[[str], bool]) -> None:
        self._why = why
        self._confined = confined

    def __call__(self, argv: Sequence[str], *, session: str, cwd: str, work: str) -> list[str]:
        """Return the command, or refuse it."""
        if self._confined(session):
            raise PermissionError(f"this session is confined, and no sandbox can hold its commands: {self._why}")
        return list(argv)


def unwrapped(argv: Sequence[str], *, session: str, cwd: str, work: str) -> list[str]:
    """Return a command as it is."""
    return list(argv)


def mounts(cwd: str, work: str, walls: Walls) -> list[str]:
    """Return bubblewrap's arguments for what can be seen and written. What is there already takes no mount.

    Each mount costs a third of a millisecond, and more when there are hundreds.
    """
    kinds = _kinds(cwd, work, walls)
    seen = {os.sep: "rw" if kinds.pop(os.sep, "") == "rw" else "ro"}
    found = ["--bind" if seen[os.sep] == "rw" else "--ro-bind", os.sep, os.sep, "--dev", "/dev", "--proc", "/proc"]
    for path in sorted(kinds, key=lambda path: path.split(os.sep)):  # what lies around before what lies in it
        kind, around = kinds[path], seen[_nearest(path, seen)]
        seen[path] = around if kind == "seen" and around != "private" else _AS.get(kind, kind)
        match kind:
            case "private":
                # Where mounts are to be made in it, nothing that an earlier command has left may lead them astray.
                anew = path == os.path.realpath(_RUN) or any(_within(other, path) for other in kinds if other != path)
                found += ["--tmpfs", path] if anew else ["--bind", walls.temporary, path]
            case "pin":
                found += ["--bind", path, path]
            case "rw" if around != "rw":
                found += ["--bind", path, path]
            case "ro" | "seen" if around == "private" or kind == "ro" != around:
                found += ["--ro-bind-try", path, path]
            case "hidden" if around not in ("private", "hidden"):
                found += ["--perms", "0500", "--tmpfs", path] if os.path.isdir(path) else _masked(path)
    return found


def _masked(path: str) -> list[str]:
    return ["--ro-bind-try", "/dev/null", path]


def _kinds(cwd: str, work: str, walls: Walls) -> dict[str, str]:
    """Return what each place is to be."""
    real = os.path.realpath
    shut = {real(path): "ro" for path in walls.closed if os.path.exists(path)}
    shut |= {real(path): "hidden" for path in walls.hidden if os.path.exists(path)}
    fenced = {real(path) for path in walls.fenced if os.path.isdir(path)}
    writable = {path for path in map(real, (cwd, work, *walls.open)) if os.path.isdir(path)}
    writable = {path for path in writable if not any(_within(path, wall) for wall in shut)}
    kinds = {real(path): "private" for path in (*PRIVATE, _RUN) if os.path.isdir(path)}
    kinds |= {path: "seen" for path in map(real, (*walls.visible, *_resolver())) if path not in kinds}
    kinds |= dict.fromkeys(fenced, "ro") | dict.fromkeys(writable, "rw") | shut
    # A directory that holds a mount can be renamed, and another one put in its place, unless it is a mount itself.
    for path in (*fenced, *shut):
        above = os.path.dirname(path)
        between: list[str] = []
        while kinds.get(above, "seen") == "seen" and above != os.sep:
            between.append(above)
            above = os.path.dirname(above)
        if kinds.get(above) in ("rw", "pin"):
            kinds |= dict.fromkeys(between, "pin")
    return kinds


def _resolver() -> list[str]:
    """Return the directory below /run that names are resolved with, where there is one."""
    place = os.path.dirname(os.path.realpath("/etc/resolv.conf"))
    return [place] if _within(place, os.path.realpath(_RUN)) else []


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


def _nearest(path: str, places: dict[str, str]) -> str:
    while (path := os.path.dirname(path)) not in places:
        pass
    return path


def trouble(bwrap: str | None, *, network: bool = True) -> str:
    """Run bubblewrap once; return why it cannot be used and how to mend that, or an empty text."""
    if bwrap is None:
        return "bwrap is not installed; install it (Debian: apt install bubblewrap)"
    cut_off = () if network else ("--unshare-net",)
    places = ("--ro-bind", os.sep, os.sep, "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")
    try:
        ran = subprocess.run(
            [bwrap, *BASE, *cut_off, *places, "--", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{bwrap} does not work: {exc}; install bubblewrap anew"
    if ran.returncode == 0:
        return ""
    said = (ran.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
    return (
        f"{bwrap} does not work: {said}; let this user make user namespaces (sysctl user.max_user_namespaces above 0, "
        "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0 where there is one of "
        "these; in a container: a seccomp profile that allows them)"
    )
