"""What gad doctor says of a home that sessions have been working in: who may read and write it, and what piles up."""

from __future__ import annotations

import json
import os
import pwd
import resource
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gad.cli.doctor import GIB, Check
from gad.core.records import VERSION
from gad.errors import ConfigError, GadError
from gad.spool import names
from gad.spool.files import open_regular
from gad.spool.intake import survey
from gad.spool.lock import held
from gad.spool.space import size
from gad.spool.status import read_status

if TYPE_CHECKING:
    from gad.config import Config

AHEAD = 120.0
"""Seconds by which a file may be newer than the clock before the clock is doubted."""
INODES = 10_000
"""Files that a file system should have room for."""
MANY = 1000
"""Sessions from which on it matters that none is ever put away."""
BEHIND = 600.0
"""Seconds within which an ended session is archived, even when many end at once."""
_PRIVATE = ("spool", "work", "memory", "triggers", "browser")


def permissions(home: Path, config: Config | None) -> Check:
    """Check that others can neither change what the daemon does nor read what was said, and no key."""
    said: list[str] = []
    mend: list[str] = []

    def allow(path: Path, bits: int, what: str, change: str) -> None:
        try:
            found = path.stat()
        except OSError:
            return
        if found.st_mode & bits:
            said.append(f"{path} {what} (mode {stat.S_IMODE(found.st_mode):04o})")
            mend.append(f"chmod {change} {path}")
        if found.st_uid not in (0, os.geteuid()):
            said.append(f"{path} belongs to {_user(found.st_uid)}")
            mend.append(f"run gad, and this command, as that user; or: chown {_user(os.geteuid())} {path}")

    allow(home, 0o022, "can be written by others", "go-w")
    allow(home / "gad.yaml", 0o022, "can be written by others", "go-w")
    for name in _PRIVATE:
        shared = name == "spool" and config is not None and config.spool.group is not None
        what = "is open to everybody" if shared else "is open to others"
        allow(home / name, 0o007 if shared else 0o077, what, "o-rwx" if shared else "go-rwx")
    keys = {entry.key_file for entry in config.models.values() if entry.key_file} if config is not None else set()
    for key in sorted(keys):
        allow(Path(key), 0o077, "holds a key and can be read by others", "600")
    if said:
        return Check("permissions", "warn", "; ".join(dict.fromkeys(said)), tuple(dict.fromkeys(mend)))
    what = f", and of {len(keys)} key file{'s' * (len(keys) > 1)}" if keys else ""
    return Check("permissions", "ok", f"others cannot read or change what is in the home{what}")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def disk(home: Path, config: Config | None) -> Check:
    """Check the space of each file system that sessions, their work and memory are on."""
    least = config.spool.min_free if config is not None else 0
    places: dict[int, list[str]] = {}
    for name in ("spool", "work", "memory"):
        if (home / name).is_dir():
            places.setdefault((home / name).stat().st_dev, []).append(name)
    said, mend, short = [], [], False
    for found in places.values():
        info = os.statvfs(home / found[0])
        free = info.f_bavail * info.f_frsize
        where = ", ".join(found)
        said.append(f"{where}: {size(free)} free")
        if free < least and "spool" in found:
            said.append(f"less than spool.min_free, {size(least)}: nothing new begins")
        if free < max(GIB, least):
            short = True
            mend.append(f"free some space for {where}: a full disk stops every session; gad gc --dry-run says what "
                        f"could go, df {home / found[0]} what is there")  # fmt: skip
        if info.f_files and info.f_favail < INODES:
            short = True
            said.append(f"{where}: room for {info.f_favail} more files only")
            mend.append(f"remove small files, see: df -i {home / found[0]}")
    return Check("disk", "warn" if short else "ok", "; ".join(said), tuple(mend))


def descriptors(spool: Path, config: Config | None) -> Check:
    """Check that as many files can be open as the sessions that work at once need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    where, used = "of this shell", ""
    if held(str(spool)):
        pid = read_status(spool / names.DAEMON_DIR).get("pid")
        limits = _limits_of(pid)
        if limits is not None:
            (soft, hard), where = limits, "of the daemon"
            try:
                used = f", {len(os.listdir(f'/proc/{pid}/fd'))} in use"
            except OSError:
                used = ""
    at_once = (config.sessions + config.children) if config is not None else 24
    wanted = 256 + 16 * at_once
    shown = "no limit" if soft == resource.RLIM_INFINITY else f"{soft} open files"
    detail = f"{shown} {where}{used}; {at_once} sessions at once want {wanted}"
    if soft != resource.RLIM_INFINITY and soft < wanted:
        more = max(wanted, 65_536)
        top = "" if hard == resource.RLIM_INFINITY or hard >= wanted else f" (the hard limit is {hard}: as root)"
        mend = f"ulimit -n {wanted} before gad up{top}, or LimitNOFILE={more} in the unit; then restart the daemon"
        return Check("open files", "warn", detail, (mend,))
    return Check("open files", "ok", detail)


def _limits_of(pid: object) -> tuple[int, int] | None:
    try:
        for line in Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines():
            if line.startswith("Max open files"):
                soft, hard = (-1 if word == "unlimited" else int(word) for word in line.split()[3:5])
                return soft, hard
    except (OSError, ValueError):
        pass
    return None


def clock(spool: Path, now: float) -> Check:
    """Check that the clock is not behind what it has been: retention, limits and schedules go by it."""
    newest, where = os.stat(__file__).st_mtime, "gad itself"
    with os.scandir(spool) as entries:
        for entry in entries:
            if names.valid_session_name(entry.name) and entry.is_dir(follow_symlinks=False):
                changed = entry.stat(follow_symlinks=False).st_mtime
                if changed > newest:
                    newest, where = changed, f"session {entry.name}"
    shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if newest > now + AHEAD:
        mend = ("set it, and let it be kept right: timedatectl set-ntp true (timedatectl status shows it)",)
        return Check("clock", "warn", f"{shown}, but {where} is from {newest - now:.0f} s later", mend)
    return Check("clock", "ok", shown)


def journals(spool: Path) -> Check:
    """Check that this gad can read the sessions' journals: their first records are looked at."""
    count, newer, damaged, closed = 0, dict[str, str](), list[str](), list[str]()
    for name in _sessions(spool):
        try:
            with open(open_regular(str(spool / name / names.JOURNAL), os.O_RDONLY), "rb") as file:
                line = file.readline()
        except PermissionError:
            closed.append(name)
            line = b"?"
        except OSError:
            continue
        count += 1
        if not line.endswith(b"\n"):  # a crash has torn it, and it is cut off when it is next read
            continue
        try:
            first = json.loads(line)
            if not isinstance(first["kind"], str):
                damaged.append(name)
            elif isinstance(first.get("v"), int) and first["v"] > VERSION:
                newer[name] = str(first.get("gad") or "?")[:20]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damaged.append(name)
    said, mend = [], []
    if newer:
        said.append(f"{len(newer)} of {count} are from a newer gad: {_some(newer)}")
        writers = ", ".join(sorted(set(newer.values())))
        mend.append(f"go back to the gad that wrote them ({writers}); until then they are left as they are")
    if damaged:
        said.append(f"{len(damaged)} of {count} are damaged: {_some(damaged)}")
        mend.append("look at the disk; a new input.txt begins anew there, and keeps the damaged journal aside")
    if closed:
        said.append(f"{len(closed)} of {count} cannot be opened: {_some(closed)}")
        mend.append("their owners must let gad in: chmod g+rwx of the directory, or umask 007 before it is made")
    if said:
        return Check("journals", "warn", "; ".join(said), tuple(mend))
    return Check("journals", "ok", f"{count}, format {VERSION}")


def _some(found: Collection[str]) -> str:
    return ", ".join(list(found)[:3]) + (", ..." if len(found) > 3 else "")


def users(spool: Path, config: Config) -> Check:
    """Check that those whose files are accepted can hand them in, and cannot spend without an end."""
    from gad.cli.compose import owners
    from gad.spool.group import group_id

    given = config.spool
    others = [*given.users, *([f"the members of group {given.group}"] if given.group else [])]
    if not others:
        return Check("users", "ok", "files of this user and of root are accepted")
    try:
        owners(given.users)
        group = group_id(given.group) if given.group else None
    except ConfigError as exc:
        what, _, mend = str(exc).partition("; ")
        return Check("users", "fail", what, (mend or "correct spool.users in gad.yaml",))
    said, mends = [f"files of {', '.join(others)} are accepted as well"], []
    found = spool.stat()
    if not found.st_mode & 0o022 or (group is not None and found.st_gid != group):
        said.append("but they cannot write into the spool")
        mends.append(f"as root: chgrp {given.group or 'GROUP'} {spool} && chmod {given.mode} {spool}"
                     + ("" if given.group else ", with spool.group in gad.yaml"))  # fmt: skip
    if config.usd_per_day is None and config.quota.usd_per_day is None:
        said.append("and nothing limits what their sessions cost")
        mends.append("set quota.usd_per_day in gad.yaml for each of them, or usd_per_day for all together")
    return Check("users", "warn" if mends else "ok", ", ".join(said), tuple(mends))


def piled_up(spool: Path, config: Config) -> Iterator[Check]:
    """Check what is done with sessions that have ended."""
    yield _retention(spool, config)
    if config.memory.enabled:
        yield _archive(spool, config)


def _retention(spool: Path, config: Config) -> Check:
    count = len(_sessions(spool))
    kept = [f"{name} {age / 86400:g}d" for name in ("sessions", "work") if (age := getattr(config.retain, name))]
    if kept:
        return Check("retention", "ok", f"{', '.join(kept)}; {count} sessions; gad gc --dry-run says what is due")
    detail = f"everything is kept for ever; {count} sessions"
    if count < MANY:
        return Check("retention", "ok", detail)
    mend = "write retain: {sessions: 30d, work: 7d} into gad.yaml; gad gc --dry-run says what that does"
    return Check("retention", "warn", detail, (mend,))


def _archive(spool: Path, config: Config) -> Check:
    from gad.memory.archive import Archive, began_at, place

    problems: list[str] = []
    try:
        sizes = {entry.path: entry.size for entry in Archive(str(config.memory_dir), report=problems.append).entries()}
    except (GadError, OSError) as exc:
        return Check("archive", "warn", str(exc), ("gad memory check says more",))
    behind, ended, now = [], 0, time.time()
    for name in _sessions(spool):
        try:
            if survey(str(spool / name)).settled not in ("done", "failed", "stopped"):
                continue
            ended += 1
            path = str(spool / name / names.JOURNAL)
            info = os.stat(path, follow_symlinks=False)
            began = began_at(path)
            late = info.st_mtime < now - BEHIND and began is not None
            if late and began is not None and sizes.get(place(name, began)[1]) != info.st_size:
                behind.append(name)
        except (OSError, ValueError):
            continue
    if behind:
        mend = ("a daemon archives them after it has started: gad up; its log says what it could not archive",)
        return Check("archive", "warn", f"{len(behind)} of {ended} ended sessions are not in it: {_some(behind)}", mend)
    if problems:
        return Check("archive", "warn", problems[0], ("gad memory check says more",))
    return Check("archive", "ok", f"{len(sizes)} conversations")


def _sessions(spool: Path) -> list[str]:
    with os.scandir(spool) as entries:
        found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(name for name in found if names.valid_session_name(name))
