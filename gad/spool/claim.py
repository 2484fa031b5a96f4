"""Taking in what clients write: when a file counts, how it is claimed, what is turned down.

A file counts when it is not empty and nobody holds it open for writing. On Linux the kernel answers
that: a read lease on a read-only descriptor is refused while any writer has the file open. Where
leases are not to be had (network file systems, another owner's file), unchanged size and time for
`STEADY` seconds stand in.

Claiming renames the file first, so its name is free again at once and two replies become two messages.
A process that uses this module must not die of SIGIO, which the kernel sends when a writer comes while
the lease is held; `ignore_lease_breaks` sees to that.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import os
import pwd
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gad.errors import Rejected
from gad.spool import names

STEADY = 0.2
"""Seconds without a change that stand in for a lease."""

_REMEMBERED = 1000

_UNSUPPORTED = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}


@dataclass(frozen=True, slots=True)
class Rules:
    """What a client's file must be like; `max_bytes` bounds its size.

    `owners` are the ids of users who may write one, and so may the members of `group`, the id of one. Each but the
    `masters` may write into no session but those of their own.
    """

    max_bytes: int
    owners: frozenset[int]
    group: int | None = None
    masters: frozenset[int] = field(default_factory=lambda: frozenset({0, os.geteuid()}))

    def allow(self, user: int) -> bool:
        """Return whether this user may give tasks."""
        return user in self.owners or (self.group is not None and _belongs(user, self.group))


def _belongs(user: int, group: int) -> bool:
    """Return whether a user belongs to a group; asked each time, as that can change."""
    try:
        entry = pwd.getpwuid(user)
        return group in os.getgrouplist(entry.pw_name, entry.pw_gid)
    except (KeyError, OSError):
        return False


def user_name(user: int) -> str:
    """Return a user's name, or a number where there is none."""
    try:
        return pwd.getpwuid(user).pw_name
    except (KeyError, OSError):
        return str(user)


@dataclass(frozen=True, slots=True)
class Taken:
    """A claimed file, complete. Either `text` is its content, or `problem` says why it is turned down.

    `owner` is the user that it belongs to.
    """

    n: int
    file: str
    text: str = ""
    problem: str = ""
    owner: int = 0


@dataclass(slots=True)
class Steadiness:
    """Remembers size and time of files that no lease can be had on."""

    seen: dict[tuple[int, int], tuple[tuple[int, int], float]] = field(default_factory=dict)

    def steady(self, found: os.stat_result) -> bool:
        """Return whether the file has not changed for `STEADY` seconds of looking."""
        file, mark = (found.st_dev, found.st_ino), (found.st_size, found.st_mtime_ns)
        now, before = time.monotonic(), self.seen.get(file)
        if before is None or before[0] != mark:
            if len(self.seen) >= _REMEMBERED:  # files that have gone before they were steady
                self.seen = {one: found for one, found in list(self.seen.items()) if now - found[1] < 10 * STEADY}
            self.seen[file] = (mark, now)
            return False
        if now - before[1] < STEADY:
            return False
        self.seen.pop(file, None)
        return True


def ignore_lease_breaks() -> None:
    """Keep SIGIO, sent when a writer opens a file whose lease we hold, from ending this process.

    A function that does nothing, not SIG_IGN: children would inherit the latter.
    """
    signal.signal(signal.SIGIO, lambda *_: None)


def writer_gone(fd: int) -> bool | None:
    """Return whether nobody holds this file open for writing; None when the kernel will not tell."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as exc:
        if exc.errno == errno.EAGAIN:
            return False
        if exc.errno in _UNSUPPORTED:
            return None
        raise
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def claimable(directory: str, name: str) -> bool:
    """Return whether there is something to claim under this name: an empty file is not there yet, stop.txt may be."""
    try:
        found = os.lstat(os.path.join(directory, name))
    except OSError:
        return False
    return not stat.S_ISREG(found.st_mode) or found.st_size > 0 or name == names.STOP


def claim(directory: str, name: str, n: int) -> bool:
    """Rename a client's file to claim `n`. Return False when it has gone: losing a race is normal."""
    try:
        os.rename(os.path.join(directory, name), os.path.join(directory, names.claim_name(n, name)))
    except FileNotFoundError:
        return False
    return True


def read_claim(
    directory: str,
    n: int,
    name: str,
    rules: Rules,
    steadiness: Steadiness,
    foreign: Callable[[int], str] = lambda user: "",
) -> Taken | None:
    """Read claim `n` of client file `name`; None while somebody still writes it, or when it was never filled.

    `foreign` says why a file of this user is not for this session, whether it is complete or not.

    A claim that turns out empty is removed: its writer truncated it and left.
    """
    path = os.path.join(directory, names.claim_name(n, name))
    try:
        found = read_client_file(path, rules, steadiness, foreign)
    except FileNotFoundError:
        return None
    except Rejected as exc:
        return Taken(n, name, problem=str(exc))
    if found is None:
        return None
    text, owner = found
    if name != names.STOP and not text.strip():
        if not text:
            os.unlink(path)
            return None
        return Taken(n, name, problem="it holds only white space: write some text")
    return Taken(n, name, text=text, owner=owner)


def read_client_file(
    path: str, rules: Rules, steadiness: Steadiness, foreign: Callable[[int], str] = lambda user: ""
) -> tuple[str, int] | None:
    """Return a client file's text and its owner's id, or None while it is not complete.

    Raises Rejected when it is not acceptable, OSError.
    """
    kind = os.lstat(path).st_mode  # to open a pipe or a device can have an effect
    if stat.S_ISLNK(kind):
        raise Rejected("it is a symbolic link: write a regular file")
    if not stat.S_ISREG(kind):
        raise Rejected("it is not a regular file: directories, pipes, sockets and devices are not read")
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise Rejected("it is a symbolic link: write a regular file") from exc
        if exc.errno in (errno.ENXIO, errno.EACCES, errno.EPERM, errno.ENODEV):
            raise Rejected(f"it cannot be opened ({exc.strerror}): write a file that the daemon's user may read "
                           "(in a group's spool: chmod g+r)") from exc  # fmt: skip
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Rejected("it is not a regular file: directories, pipes, sockets and devices are not read")
        if not rules.allow(found.st_uid):
            who = user_name(found.st_uid)
            where = "`spool.users` and `spool.group`"
            raise Rejected(f"it belongs to user {who}, who may not give tasks: see {where} in gad.yaml")
        if why := foreign(found.st_uid):
            raise Rejected(why)
        gone = writer_gone(fd)
        if gone is False:
            return None
        # A second link may be a client's `ln tmp name; rm tmp` in mid-step: it gets the same grace.
        if (gone is None or found.st_nlink != 1) and not steadiness.steady(os.fstat(fd)):
            return None
        found = os.fstat(fd)
        if found.st_nlink != 1:
            raise Rejected(f"it has {found.st_nlink} hard links: write a file of its own")
        if found.st_size > rules.max_bytes:
            raise Rejected(f"it is {found.st_size} bytes long, the limit is {rules.max_bytes}: put bulk data in a file "
                           "of its own and name its path")  # fmt: skip
        return decode_text(_read_all(fd, rules.max_bytes)), found.st_uid
    finally:
        os.close(fd)


def decode_text(data: bytes) -> str:
    """Decode a client's bytes: UTF-8, or UTF-8 or UTF-16 with a byte order mark. Raises Rejected."""
    try:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise Rejected(f"it is not UTF-8 (byte {exc.start}, line {line}): save it as UTF-8, or as UTF-16 with a "
                       "byte order mark") from exc  # fmt: skip


def reject(directory: str, n: int, name: str) -> str:
    """Keep a claimed file that was turned down, under its rejected name; return that name."""
    kept = names.rejected_name(n, name)
    os.rename(os.path.join(directory, names.claim_name(n, name)), os.path.join(directory, kept))
    return kept


def release(directory: str, n: int, name: str) -> None:
    """Remove a claim whose text is in the journal."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, names.claim_name(n, name)))


def _read_all(fd: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    left = limit + 1
    while left > 0 and (chunk := os.read(fd, min(left, 1 << 16))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
