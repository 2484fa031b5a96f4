"""The archive: every conversation that has ended, compressed, to be searched and never shown to a model unasked.

archive/<day>/<session>-<began in ms>.jsonl.zst holds a journal's whole lines in one zstd frame (RFC 8878) that names
its uncompressed size and ends in a checksum. The day is the one on which the conversation began, in UTC. A
conversation that goes on and ends again replaces its file. archive/index.jsonl has a line for each time; the latest
line of a path counts. A crash between the two leaves a file that no line names; archiving again mends that.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, BinaryIO

import zstandard

from gad.errors import GadError
from gad.memory import files
from gad.memory.lock import MemoryLock

log = logging.getLogger(__name__)

DIRECTORY = "archive"
INDEX = "index.jsonl"
LEVEL = 9
"""zstd's level: what comes above saves little on journals and takes much longer."""
TASK_LENGTH = 200
"""Characters that the index keeps of the task's first line."""
EXCERPT = 60
"""Characters that an excerpt shows before the match, and so many behind its beginning twice."""
LONGEST = 64 * 2**20
"""Bytes that one line may have when an archived journal is read; more is damage."""

_PATH = re.compile(rf"{DIRECTORY}/(\d{{4}}-\d\d-\d\d)/([A-Za-z0-9][A-Za-z0-9._-]*-\d+\.jsonl\.zst)", re.ASCII)
_CHUNK = 2**18
_HEADER = 18
"""The longest header of a zstd frame, in bytes."""


@dataclass(frozen=True, slots=True)
class Archived:
    """One conversation in the index.

    `began` and `ended` are in seconds since the epoch, `path` is relative to the memory directory, `size` is how many
    bytes of the journal are archived.
    """

    day: str
    session: str
    labels: tuple[str, ...]
    outcome: str
    turns: int
    tokens: int
    task: str
    path: str
    began: float
    ended: float
    size: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A conversation in which all words were found; `excerpt` is one line around the first one."""

    session: str
    day: str
    outcome: str
    path: str
    excerpt: str


class Archive:
    """The archive below one memory directory. `report` is told, in a line, what is damaged and was passed over."""

    def __init__(self, root: str, *, report: Callable[[str], object] = log.warning) -> None:
        self.root = root
        self._report = report

    def keep(
        self,
        journal_path: str,
        *,
        session: str,
        labels: Sequence[str],
        outcome: str,
        turns: int,
        tokens: int,
        task: str,
        began: float,
        ended: float,
    ) -> str:
        """Archive a conversation's journal and return its path relative to the memory directory.

        `began` is the time of the journal's first record. It tells a conversation from the session's others: archived
        again, it replaces its file. A torn last line is left out. Raises MemoryLocked, GadError when the journal is
        another conversation's, ValueError for a session name that is none, OSError.
        """
        day, path = place(session, began)
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        with files.directory(self.root, (DIRECTORY,), make=True):
            pass
        lock = os.path.join(self.root, DIRECTORY, ".lock")
        # The journal is read under the lock: of two who archive the same one, the later has read the longer one.
        with MemoryLock(lock, f"archiving session {session}"):
            with _open(journal_path) as journal:
                if _began(journal) != began:
                    raise GadError(f"{journal_path}: another conversation lies there now")
                size = self._write(journal, path)
            kept = Archived(
                day, session, tuple(labels), outcome, turns, tokens, _first_line(task), path, began, ended, size
            )
            self._append(kept)
        return path

    def entries(self) -> list[Archived]:
        """Return the index, the conversation that ended last first. A torn last line is passed over in silence."""
        try:
            with files.directory(self.root, (DIRECTORY,)) as fd, _open(INDEX, fd) as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        found: dict[str, Archived] = {}
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                entry = _entry(json.loads(line))
            except (KeyError, TypeError, ValueError) as exc:
                if number != len(lines):
                    self._report(f"{DIRECTORY}/{INDEX}, line {number}: cannot be read: {exc}")
                continue
            found[entry.path] = entry
        return sorted(found.values(), key=lambda entry: (-entry.ended, entry.path))

    def search(
        self,
        words: Sequence[str],
        *,
        day: str | None = None,
        label: str | None = None,
        outcome: str | None = None,
        limit: int = 20,
    ) -> list[Hit]:
        """Return the conversations in which every one of `words` occurs, newest first, `limit` at most.

        A word may occur anywhere in the task, the messages, the answers with their calls, or the results, in any case
        and within another word; so it may be a part of a text in Chinese or Japanese. `day` is a day or the beginning
        of one (`2026-11`). Without words every conversation is found. What is damaged is reported and passed over.
        """
        hits: list[Hit] = []
        for entry in self.entries():
            if len(hits) >= limit:
                break
            fits = entry.day.startswith(day or "") and outcome in (None, entry.outcome)
            if not fits or (label is not None and label not in entry.labels):
                continue
            try:
                excerpt = self._find(entry, words)
            except (OSError, GadError) as exc:
                self._report(f"{entry.path}: {exc}")
                continue
            if excerpt is not None:
                hits.append(Hit(entry.session, entry.day, entry.outcome, entry.path, excerpt))
        return hits

    def read(self, path: str) -> list[dict[str, Any]]:
        """Return an archived journal's records. Raises GadError when it is damaged or no path of the archive; OSError.

        All of it is held in memory; `records` yields one after the other.
        """
        return list(self.records(path))

    def records(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield an archived journal's records; see `read`."""
        for number, line in enumerate(self._lines(path), 1):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as exc:
                raise GadError(f"{path}, line {number}: cannot be read: {exc}") from exc
            if not isinstance(found, dict):
                raise GadError(f"{path}, line {number}: not a record")
            yield found

    def unlisted(self) -> list[str]:
        """Return the paths of archived journals that the index does not name."""
        known = {entry.path for entry in self.entries()}
        found = []
        for directory, _, names in os.walk(os.path.join(self.root, DIRECTORY)):
            below = os.path.relpath(directory, self.root)
            found += [f"{below}/{name}" for name in names if _PATH.fullmatch(f"{below}/{name}")]
        return sorted(set(found) - known)

    # -- writing -----------------------------------------------------------------------------------

    def _write(self, journal: BinaryIO, path: str) -> int:
        """Compress the journal's whole lines to a file aside, then rename it into place; return their size."""
        size = left = _whole_lines(journal)
        journal.seek(0)
        *above, name = files.parts_of(path)
        aside = f".{name}.tmp"  # one left by a crash is written over: we have the lock
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        with files.directory(self.root, tuple(above), make=True) as fd:
            try:
                with open(os.open(aside, flags, 0o600, dir_fd=fd), "wb") as file:
                    with compressor.stream_writer(file, size=size, closefd=False) as frame:
                        while left:
                            block = journal.read(min(left, _CHUNK))
                            if not block:
                                raise GadError(f"{journal.name}: became shorter while it was read")
                            left -= len(block)
                            frame.write(block)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(aside, name, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(aside, dir_fd=fd)
                raise
            os.fsync(fd)
        return size

    def _append(self, entry: Archived) -> None:
        line = json.dumps(asdict(entry), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        flags = os.O_APPEND | os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            files.directory(self.root, (DIRECTORY,)) as fd,
            open(os.open(INDEX, flags, 0o600, dir_fd=fd), "r+b", buffering=0) as file,
        ):
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line  # what a crash has torn becomes a line of its own, which is passed over
            if file.write(line) != len(line):
                file.truncate(size)
                raise OSError(errno.ENOSPC, "no space left", f"{DIRECTORY}/{INDEX}")
            os.fsync(file.fileno())
            os.fsync(fd)

    # -- reading -----------------------------------------------------------------------------------

    def _lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of an archived journal, of which a few are in memory at a time."""
        if not _PATH.fullmatch(path):
            raise GadError(f"{path}: not a path of the archive")
        *above, name = files.parts_of(path)
        with files.directory(self.root, tuple(above)) as fd, _open(name, fd) as file:
            left = 0
            try:
                left = zstandard.get_frame_parameters(file.read(_HEADER)).content_size
                file.seek(0)
                with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as frame:
                    text = io.BufferedReader(frame, _CHUNK)
                    while line := text.readline(LONGEST):
                        left -= len(line)
                        if not line.endswith(b"\n"):
                            break
                        yield line
            except zstandard.ZstdError as exc:
                raise GadError(f"damaged: {exc}") from exc
            if left:  # a frame that is cut off raises nothing
                raise GadError("damaged: it does not have the length that it should")

    def _find(self, entry: Archived, words: Sequence[str]) -> str | None:
        """Return an excerpt around the first of the words when all are there, else None."""
        missing = {word.casefold() for word in words}
        excerpt = ""
        for text in chain((entry.task,), _texts(self.records(entry.path))):
            if not missing:
                break
            folded = text.casefold()
            found = {word for word in missing if word in folded}
            if found and not excerpt:
                excerpt = _excerpt(text, min(found, key=folded.index))
            missing -= found
        return None if missing else excerpt or entry.task


def place(session: str, began: float) -> tuple[str, str]:
    """Return the day and the path of a conversation's file. Raises ValueError for a session name that is none."""
    day = datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%d")
    path = f"{DIRECTORY}/{day}/{session}-{round(began * 1000)}.jsonl.zst"
    if not _PATH.fullmatch(path):
        raise ValueError(f"not a session's name: {session!r}")
    return day, path


def began_at(journal_path: str) -> float | None:
    """Return when a journal's conversation began (seconds since the epoch), None where no beginning can be read."""
    with _open(journal_path) as journal:
        return _began(journal)


def _began(journal: BinaryIO) -> float | None:
    try:
        first = json.loads(journal.readline(LONGEST))
        return float(first["at"]) if first["kind"] == "begin" else None
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _open(path: str, directory: int | None = None) -> BinaryIO:
    """Open a regular file, in an open directory, for reading; a link, a pipe or a device raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return open(fd, "rb")


def _entry(found: dict[str, Any]) -> Archived:
    entry = Archived(**found | {"labels": tuple(found["labels"])})
    if not _PATH.fullmatch(entry.path):
        raise ValueError(f"not a path of the archive: {entry.path}")
    texts = (entry.day, entry.session, entry.outcome, entry.task, *entry.labels)
    numbers = (entry.turns, entry.tokens, entry.began, entry.ended, entry.size)
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(one, int | float) for one in numbers):
        raise ValueError("a value is of the wrong kind")
    return entry


def _whole_lines(file: BinaryIO) -> int:
    """Return how many bytes of a file are whole lines."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = file.seek(max(0, end - _CHUNK))
        if (at := file.read(end - start).rfind(b"\n")) >= 0:
            return start + at + 1
        end = start
    return 0


def _first_line(task: str) -> str:
    return next((line.strip()[:TASK_LENGTH] for line in task.splitlines() if line.strip()), "")


def _texts(records: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield what was said and done, text by text. What the engine puts before the task is left out, as it recurs."""
    for record in records:
        match record:
            case {"kind": "message" | "context", "text": str(text)}:
                yield text
            case {"kind": "answer", "parts": list(parts)}:
                for part in parts:
                    match part:
                        case {"text": str(text)}:
                            yield text
                        case {"call": _, "name": str(name), "arguments": arguments}:
                            yield f"{name} {json.dumps(arguments, ensure_ascii=False)}"
            case {"kind": "tool_finished", "result": {"output": str(text)}}:
                yield text
            case {"kind": "checked" | "script_ran", "output": str(text)} | {"kind": "asked", "question": str(text)}:
                yield text
            case {"kind": "judged", "words": str(text)}:
                yield text
            case {"kind": "ended", "error": str(text)}:
                yield text


def _excerpt(text: str, word: str) -> str:
    """Return one line of a text around a case-folded word that it contains."""
    match = re.search(re.escape(word), text, re.IGNORECASE)
    # Folding can change a text's length (a sharp s becomes two): then the place is near the one in the folded text.
    at = match.start() if match else min(text.casefold().index(word), max(0, len(text) - 1))
    start, end = max(0, at - EXCERPT), at + 2 * EXCERPT
    line = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{line}{'…' if end < len(text) else ''}"
