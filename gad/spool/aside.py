"""Taking a directory away for good, so that nothing which somebody puts into it at that moment is lost.

A directory `name` becomes `.away-name/it`, a name that the spool ignores. Then it is compared with what it was. Then
its files move to `.away-name/files`, and the empty directory is removed: the kernel does that only as long as it is
empty, so whoever still had it open and dropped a file has it put back. Only then are the files destroyed.

So `.away-name/it` means that nothing is decided, also after a crash: `recover` puts it back. Without it, what lies in
`.away-name` is gone for everybody, and `recover` destroys the rest.

Everything is done by names in open directories; no link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gad.errors import GadError
from gad.spool import names

PREFIX = ".away-"
LOCK = "gc.lock"
"""The file in `DAEMON_DIR` that is held locked while something is taken away."""
PATIENCE = 10.0
"""Seconds for which that lock is waited for."""

_IT, _FILES, _GONE = "it", "files", "gone"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})

Stopping = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a directory holds, file by file; `touched` is the latest change (seconds since the epoch)."""

    entries: frozenset[tuple[str, int, int, int]]
    directory: tuple[int, int]

    @property
    def touched(self) -> float:
        """When a file, or the directory itself, was changed last."""
        return max([self.directory[1], *(changed for *_, changed in self.entries)]) / 1e9


@contextlib.contextmanager
def locked(spool: str) -> Iterator[None]:
    """Keep others from taking anything away, for the block. Raises GadError when that takes too long, OSError."""
    fd = os.open(
        os.path.join(spool, names.DAEMON_DIR, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise GadError("another process is putting sessions away (the daemon, or a gad gc); "
                                   "try again when it is done") from None  # fmt: skip
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def mark(path: str) -> Mark:
    """Return what a directory holds. Raises OSError for a link and for what is no directory."""
    with _opened(path) as fd:
        return _mark(fd)


def take_away(top: str, name: str, known: Mark, stopping: Stopping = lambda: False) -> bool:
    """Remove the directory `name` in `top` with all in it; return False, with it put back, when it is not as `known`.

    Under `locked`. `stopping` may leave the rest to `recover`. Raises OSError, and GadError as `restore` does.
    """
    if not stash(top, name):
        return False
    with _opened(top) as fd, _opened(PREFIX + name, fd) as away:
        try:
            emptied = _empty(away, known)
        except OSError:
            restore(top, name)
            raise
        if not emptied:
            restore(top, name)
            return False
        destroy(away, stopping)
        _drop(fd, PREFIX + name)
    return True


def stash(top: str, name: str) -> bool:
    """Rename a directory away, not decided yet; return False when there is none. Under `locked`. Raises OSError."""
    with _opened(top) as fd:
        os.mkdir(PREFIX + name, 0o700, dir_fd=fd)
        with _opened(PREFIX + name, fd) as away:
            try:
                os.rename(name, _IT, src_dir_fd=fd, dst_dir_fd=away)
            except FileNotFoundError:
                _drop(fd, PREFIX + name)
                return False
    return True


def stashed(top: str, name: str) -> str:
    """Return where a directory is that was stashed."""
    return os.path.join(top, PREFIX + name, _IT)


def destroy_stashed(top: str, name: str, stopping: Stopping = lambda: False) -> None:
    """Decide that what was stashed goes. Under `locked`. Raises OSError."""
    with _opened(top) as fd, _opened(PREFIX + name, fd) as away:
        os.rename(_IT, _GONE, src_dir_fd=away, dst_dir_fd=away)
        destroy(away, stopping)
        _drop(fd, PREFIX + name)


def restore(top: str, name: str) -> None:
    """Put back what was stashed. Raises GadError when its name is taken by now: then it stays; OSError."""
    with _opened(top) as fd, _opened(PREFIX + name, fd) as away:
        with contextlib.suppress(FileNotFoundError), _opened(_FILES, away) as files:
            with _opened(_IT, away) as it:
                for entry in os.listdir(files):
                    if not _there(entry, it):
                        os.rename(entry, entry, src_dir_fd=files, dst_dir_fd=it)
            with contextlib.suppress(OSError):  # somebody has put another file in the place of one of them
                os.rmdir(_FILES, dir_fd=away)
        try:
            os.rename(_IT, name, src_dir_fd=away, dst_dir_fd=fd)
        except OSError as exc:
            if exc.errno not in _TAKEN:
                raise
            raise GadError(
                f"{os.path.join(top, name)} was made anew while the former one was being put away; that one, with what "
                f"came into it, lies in {os.path.join(top, PREFIX + name)}: look at it, move what you need, remove it"
            ) from None
        _drop(fd, PREFIX + name)


def recover(top: str, stopping: Stopping = lambda: False) -> list[str]:
    """Finish what a crash has left in `top`: put back what was not decided, destroy the rest; return what failed.

    Under `locked`.
    """
    trouble = []
    with _opened(top) as fd:
        for entry in os.listdir(fd):
            if not entry.startswith(PREFIX) or not names.valid_session_name(entry.removeprefix(PREFIX)):
                continue
            try:
                with _opened(entry, fd) as away:
                    undecided = _there(_IT, away)
                    if not undecided:
                        destroy(away, stopping)
                        _drop(fd, entry)
                if undecided:
                    restore(top, entry.removeprefix(PREFIX))
            except (GadError, OSError) as exc:
                trouble.append(str(exc) if isinstance(exc, GadError) else f"{os.path.join(top, entry)}: {exc}")
    return trouble


def destroy(fd: int, stopping: Stopping = lambda: False) -> None:
    """Remove all that is in an open directory, however deep; return early when `stopping` says so. Raises OSError.

    A directory inside is emptied by moving its own directories up to the top: no depth needs a stack.
    """
    number = 0
    while found := os.listdir(fd):
        for name in found:
            if stopping():
                return
            if _unlinked(name, fd):
                continue
            _open_up(name, fd)
            with _opened(name, fd) as inner:
                for entry in os.listdir(inner):
                    if stopping():
                        return
                    if _unlinked(entry, inner):
                        continue
                    _open_up(entry, inner)  # to be moved, it must be writable itself
                    while _there(f".{number}", fd):
                        number += 1
                    os.rename(entry, f".{number}", src_dir_fd=inner, dst_dir_fd=fd)
            os.rmdir(name, dir_fd=fd)


def _empty(away: int, known: Mark) -> bool:
    """Move the files of a stashed directory beside it and remove the directory; return False when it has changed."""
    try:
        it = os.open(_IT, _DIRECTORY, dir_fd=away)
    except OSError as exc:
        if exc.errno in (errno.ENOTDIR, errno.ELOOP):  # a link has taken its place
            return False
        raise
    try:
        if _mark(it) != known:
            return False
        os.mkdir(_FILES, 0o700, dir_fd=away)
        with _opened(_FILES, away) as files:
            for name, *_ in known.entries:
                os.rename(name, name, src_dir_fd=it, dst_dir_fd=files)
    finally:
        os.close(it)
    try:
        os.rmdir(_IT, dir_fd=away)
    except OSError as exc:
        if exc.errno not in _TAKEN:
            raise
        return False
    return True


def _mark(fd: int) -> Mark:
    entries = []
    for name in os.listdir(fd):
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            entries.append((name, found.st_ino, found.st_size, found.st_mtime_ns))
    itself = os.fstat(fd)
    return Mark(frozenset(entries), (itself.st_ino, itself.st_mtime_ns))


@contextlib.contextmanager
def _opened(name: str, directory: int | None = None) -> Iterator[int]:
    fd = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)


def _there(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _drop(directory: int, name: str) -> None:
    """Remove an empty directory; one that is not empty is left to `recover`."""
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=directory)


def _unlinked(name: str, directory: int) -> bool:
    """Remove what is no directory; return False for a directory."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    return True


def _open_up(name: str, directory: int) -> None:
    """Let its owner read and change a directory: caches of build tools are often read-only."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{fd}", mode | 0o700)
    finally:
        os.close(fd)
