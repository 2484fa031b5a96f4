"""Reads, names and replaces text files for the file tools: whole files, exact bytes, never half a write.

Functions raise ValueError with a text meant for the model, or OSError.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from gad.core.ports import Outcome, ToolContext
from gad.tools.confine import directory_of
from gad.tools.encodings import UTF8, Encoding, binary_kind, detect

EDIT_LIMIT = 50_000_000
"""Bytes of the largest file that is edited; it has to fit into memory a few times."""

_WALK_LIMIT = 3_000
"""Directory entries looked at, at most, for "did you mean"."""

_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".ruff_cache"})

_REFERENCE = re.compile(r"\{\{file:([^{}\n]+?):(\d+):(\d+)\}\}")


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file as it was when it was read."""

    path: str
    data: bytes
    encoding: Encoding
    text: str
    info: os.stat_result

    @property
    def newline(self) -> str:
        """The line end that most lines have; a file without any has LF."""
        crlf = self.text.count("\r\n")
        return "\r\n" if crlf * 2 > self.text.count("\n") else "\n"


async def perform(work: Callable[[], Outcome], stop: Callable[[], None] = lambda: None) -> Outcome:
    """Run blocking file work beside the event loop; what goes wrong becomes an error result.

    A cancellation calls `stop` and is raised after the work has ended, so that nothing is written afterwards.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except ValueError as trouble:
        return Outcome("error", str(trouble))
    except OSError as trouble:
        where = f": {trouble.filename}" if isinstance(trouble.filename, str) else ""
        return Outcome("error", f"{trouble.strerror or trouble}{where}")
    except asyncio.CancelledError:
        stop()
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # seen, and of no interest any more
        raise


def resolve(path: str, context: ToolContext) -> str:
    """Return the absolute path: `~` is the child's home, relative paths start in the working directory."""
    if not path.strip() or "\0" in path:
        raise ValueError("path is empty" if not path.strip() else "path holds a NUL character")
    if path == "~" or path.startswith("~/"):
        home = context.environment.get("HOME") or os.path.expanduser("~")
        path = home + path[1:]
    return os.path.normpath(os.path.join(context.cwd, path))


@contextlib.contextmanager
def opened(path: str, context: ToolContext) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Raises ValueError for anything else, and tells what is there instead."""
    try:
        # Non-blocking: opening a named pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        near = similar_paths(path, context)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"no such file: {path}{hint}") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise ValueError(f"{path} is a directory: {_listing(path)}")
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is not a regular file")
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def load(path: str, context: ToolContext) -> TextFile:
    """Read a whole text file, exactly."""
    target = os.path.realpath(path)
    with opened(target, context) as file:
        info = os.fstat(file.fileno())
        if info.st_size > EDIT_LIMIT:
            raise ValueError(f"{path} is too large to edit here ({info.st_size:,} bytes); use code_run")
        data = file.read()
    kind = binary_kind(data)
    if kind is not None:
        raise ValueError(f"{path} is not text: {kind}, {len(data):,} bytes")
    encoding = detect(data)
    return TextFile(target, data, encoding, encoding.decode(data), info)


def replace_file(path: str, data: bytes, former: os.stat_result | None, context: ToolContext) -> None:
    """Put `data` in the place of a file in one step, with the former file's mode and owner; make its directory.

    The path holds no links.

    `former` is what the file was when it was read, None when there was none. Raises ValueError
    when it has changed since, so that nobody else's change is lost, and when the session may not write there.
    """
    with directory_of(path, context, make=former is None) as directory:
        _replace(directory, path, data, former)


def _replace(directory: int, path: str, data: bytes, former: os.stat_result | None) -> None:
    name = os.path.basename(path)
    if former is not None and not os.access(path, os.W_OK):
        raise ValueError(f"{path} is read-only")
    temporary = f".{name[:80]}.{secrets.token_hex(6)}.tmp"
    mode = 0o666 if former is None else 0o600
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if former is not None:
                with contextlib.suppress(PermissionError):  # not ours to give away
                    os.fchown(descriptor, former.st_uid, former.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(former.st_mode))
            os.fsync(descriptor)
        if _identity(name, directory) != _stamp(former):
            raise ValueError(f"{path} was changed by somebody else meanwhile; read it again")
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)


def _stamp(info: os.stat_result | None) -> tuple[int, ...] | None:
    return None if info is None else (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


def _identity(name: str, directory: int) -> tuple[int, ...] | None:
    try:
        return _stamp(os.stat(name, dir_fd=directory))
    except FileNotFoundError:
        return None


def expand_references(content: str, context: ToolContext) -> str:
    """Replace every {{file:path:start:end}} by those lines of that file, the last one without its line end.

    Raises ValueError when a file is missing, not text, or has no such lines.
    """

    def lines(match: re.Match[str]) -> str:
        name, first, last = match[1], int(match[2]), int(match[3])
        found = load(resolve(name, context), context).text.replace("\r\n", "\n").split("\n")
        if found[-1] == "":
            found.pop()
        if not 1 <= first <= last <= len(found):
            raise ValueError(f"{match[0]}: {name} has lines 1 to {len(found)}")
        return "\n".join(found[first - 1 : last])

    return _REFERENCE.sub(lines, content)


def similar_paths(path: str, context: ToolContext) -> list[str]:
    """Return up to three existing paths that a missing one may have meant, relative to the working directory."""
    directory, name = os.path.split(path)
    found: list[str] = []
    with contextlib.suppress(OSError):
        found += [os.path.join(directory, near) for near in _close(name, os.listdir(directory))]
    below: dict[str, list[str]] = {}
    seen = 0
    for here, directories, files in os.walk(context.cwd):
        directories[:] = sorted(set(directories) - _SKIPPED)
        for file in files:
            below.setdefault(file, []).append(os.path.join(here, file))
        seen += len(files) + len(directories)
        if seen > _WALK_LIMIT:
            break
    exact = below.get(name, [])
    found = exact + found + [place for near in _close(name, list(below)) for place in below[near]]
    shown = [os.path.relpath(place, context.cwd) if _inside(place, context.cwd) else place for place in found]
    return list(dict.fromkeys(shown))[:3]


def _inside(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def _close(name: str, names: list[str]) -> list[str]:
    folded = {other.lower(): other for other in names}
    return [folded[near] for near in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.65)]


def _listing(path: str) -> str:
    with os.scandir(path) as entries:
        names = sorted(entry.name + "/" * entry.is_dir() for entry in entries)
    more = f" and {len(names) - 40} more" if len(names) > 40 else ""
    return ("  ".join(names[:40]) + more) or "(empty)"


def encoding_meta(encoding: Encoding) -> dict[str, str]:
    """Return the fact for a result's meta: nothing for plain UTF-8."""
    return {} if encoding == UTF8 else {"encoding": encoding.label}
