"""The client's side of the protocol: making a session's directory and putting files into it, complete at once."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import subprocess
import time
from pathlib import Path

from gad.errors import GadError, Rejected
from gad.spool.files import SHARED, Folder
from gad.spool.names import INPUT, REPLY, STOP, TASK, VERDICT, valid_session_name

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_NO_REPLACE = 1
_AT_FDCWD = -100
_UNFINISHED = ".new-"
_NO_SUCH_CALL = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})


def new_session_name(now: float) -> str:
    """Return a name for a new session that sorts by its local time and does not repeat."""
    return time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + "".join(secrets.choice(_LETTERS) for _ in range(4))


def submit(spool: Path, name: str, text: bytes, task: str | None = None) -> Path:
    """Hand in a task as a new session and return its directory.

    Raises GadError when the name is not a session's name, is taken, or the spool is not there.
    """
    _check_name(name)
    directory = spool / name
    try:
        _make(directory)
    except FileExistsError:
        raise GadError(
            f"session {name} exists already; go on with it (gad reply {name} ...) or take another name"
        ) from None
    except FileNotFoundError:
        raise _no_spool(spool) from None
    if task:
        put(directory, TASK, task.encode())
    put(directory, INPUT, text)
    return directory


def submit_once(spool: Path, name: str, text: bytes, task: str | None = None) -> bool:
    """Hand in a task as a new session whose directory appears whole and on disk, or not at all.

    Return False, with nothing changed, when the name is taken: of all who try, at once or one after the other, one
    is told True. A crash leaves the whole session, or nothing but what `remove_unfinished` removes.

    Raises GadError when the name is not a session's name or the spool is not there; OSError.
    """
    _check_name(name)
    aside = spool / f"{_UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        _make(aside)
    except FileNotFoundError:
        raise _no_spool(spool) from None
    try:
        if task:
            _write_new(aside / TASK, task.encode())
        _write_new(aside / INPUT, text)
        _sync(aside)
        if not _rename_whole(aside, spool / name):
            return False
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _sync(spool)
    return True


def remove_unfinished(spool: Path) -> None:
    """Remove what `submit_once` left behind in processes that died in the middle of it."""
    for aside in spool.glob(f"{_UNFINISHED}*"):
        number = aside.name.removeprefix(_UNFINISHED).partition("-")[0]
        if number.isdecimal() and not alive(int(number)):
            shutil.rmtree(aside, ignore_errors=True)


def reply(directory: Path, text: bytes, *, patience: float = 2.0) -> None:
    """Put the next message into a session.

    A former reply that nobody has taken yet is never overwritten: after `patience` seconds this gives up
    with GadError.
    """
    _check_session(directory)
    until = time.monotonic() + patience
    while True:
        try:
            put(directory, REPLY, text)
            return
        except FileExistsError:
            if time.monotonic() >= until:
                raise GadError(
                    f"{directory / REPLY} is there already and was not taken; is the daemon running (gad up)? "
                    f"Try again, or remove that file"
                ) from None
        time.sleep(0.01)


def stop(directory: Path) -> None:
    """Ask for a session to be halted. Raises GadError when there is no such session."""
    _check_session(directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with Folder(str(directory)) as folder:
        try:
            descriptor = os.open(os.path.join(folder.place, STOP), flags, 0o666)
        except OSError as exc:
            if exc.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # something else lies there, and will be refused
                raise GadError(f"{directory / STOP} is no regular file; remove it") from exc
            raise
        try:
            _share(descriptor, os.stat(directory.parent))
        finally:
            os.close(descriptor)


def verdict(directory: Path, ok: bool, words: str = "") -> None:
    """Say whether a session's work was good, and why. Raises GadError when there is no such session.

    A former verdict that nobody has taken yet is replaced: the latest counts.
    """
    _check_session(directory)
    with Folder(str(directory)) as folder:
        place = Path(folder.place)
        aside = place / f".{VERDICT}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        _write_new(aside, f"{'ok' if ok else 'bad'} {words}".strip().encode() + b"\n")
        os.rename(aside, place / VERDICT)
        _sync(place)


def check_text(text: bytes, what: str, most: int) -> None:
    """Raise Rejected when the daemon would not accept this as a message; `what` names where it came from."""
    if not text.strip():
        raise Rejected(f"{what} is empty; write what is to be done")
    if len(text) > most:
        raise Rejected(f"{what} has {len(text)} bytes, more than {most}; put it into a file and name the file instead")
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Rejected(f"{what} is not UTF-8 at byte {exc.start}; convert it with: iconv -t UTF-8") from None


def put(directory: Path, name: str, data: bytes) -> None:
    """Write a file that appears complete and on disk, or not at all. Raises FileExistsError rather than overwrite."""
    with Folder(str(directory)) as folder:
        place = Path(folder.place)
        aside = place / f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            _write_new(aside, data)
            if not _rename_new(aside, place / name):
                # Also right by the protocol: the file counts when its writer has closed it.
                _write_new(place / name, data)
        finally:
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
        _sync(place)


def _make(directory: Path) -> None:
    """Make a session's directory; in a group's spool it is the group's as well, whatever the umask says.

    Raises FileExistsError, FileNotFoundError when there is no spool, OSError.
    """
    spool = os.stat(directory.parent)
    if spool.st_mode & SHARED != SHARED:
        directory.mkdir()
        return
    mode = stat.S_IMODE(spool.st_mode) & ~stat.S_ISVTX  # the daemon takes files that are not its own
    directory.mkdir()
    with Folder(str(directory)) as folder:
        try:
            os.chmod(folder.place, mode)
            return
        except PermissionError:  # a service may not set the set-group-ID bit; it is inherited
            directory.rmdir()
    subprocess.run(["mkdir", "--", str(directory)], umask=0o777 & ~mode, check=True, capture_output=True)


def _share(descriptor: int, spool: os.stat_result) -> None:
    """Let the group read a file in its spool, the daemon among it."""
    found = os.fstat(descriptor)
    if spool.st_mode & SHARED == SHARED and found.st_uid == os.geteuid() and not found.st_mode & stat.S_IRGRP:
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode) | stat.S_IRGRP)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:
        _share(descriptor, os.stat(path.parent / ".."))
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _rename_new(source: Path, target: Path) -> bool:
    """Rename without replacing; return False where the system cannot. A hard link would do, but a link is refused."""
    import ctypes

    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _NO_REPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_SUCH_CALL:
        return False
    raise OSError(code, os.strerror(code), str(target))


def _rename_whole(source: Path, target: Path) -> bool:
    """Rename a directory that is not empty; return False when something is there already."""
    try:
        if not _rename_new(source, target):
            # As good here: a plain rename replaces no file, and no directory but an empty one.
            os.rename(source, target)
    except OSError as exc:
        if exc.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True


def alive(process: int) -> bool:
    """Return whether there is a process of this number, whoever's it is."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _check_name(name: str) -> None:
    if not valid_session_name(name):
        raise GadError(
            f"{name!r} is not a session's name; use at most 128 letters, digits, '.', '_' and '-', "
            f"the first a letter or a digit"
        )


def _no_spool(spool: Path) -> GadError:
    return GadError(f"{spool} is not there; make the home whole with: gad init {spool.parent}")


def _check_session(directory: Path) -> None:
    if not valid_session_name(directory.name) or not directory.is_dir():
        raise GadError(f"there is no session {directory.name}; gad ps --all lists them")
