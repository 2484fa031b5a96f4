"""journal.jsonl on disk: append one record a line, read them back, cut off a torn last line.

A record is one write of one line, so after a crash only the last line can be incomplete: it is the
one without a newline. Damage anywhere else is not ours to mend; the file is then left as it is.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from gad.core.records import (
    Asked,
    Ended,
    Pinned,
    Record,
    Said,
    StopAsked,
    ToolStarted,
    TurnedDown,
    decode,
    encode,
)
from gad.core.session import Session
from gad.errors import InvalidStep, JournalDamaged

DURABLE = (Said, Pinned, StopAsked, TurnedDown, ToolStarted, Asked, Ended)
"""Records that are on the disk before what they say is acted on: a client's file is removed, a tool runs,
a state is announced. The others lie in order before them, so one fsync covers what came since the last."""

_FLAGS = os.O_APPEND | os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Journal:
    """One session's journal, open for appending."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, _FLAGS, 0o600)
        if os.fstat(self._fd).st_size == 0:  # the client made the directory, and has not made it durable
            sync_directory(os.path.dirname(path))
            sync_directory(os.path.dirname(os.path.dirname(path)))

    def append(self, record: Record) -> None:
        """Write one record; return once it is as durable as its kind needs. Raises OSError, with nothing written."""
        line = json.dumps(encode(record), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        written = os.write(self._fd, line)
        if written != len(line):  # a full disk: half a line must not stay before the next one
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            raise OSError(28, "no space left for the journal", self.path)
        if isinstance(record, DURABLE):
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session read back. `torn` is the number of bytes of a torn last line that were cut off."""

    session: Session
    torn: int


def load(path: str) -> Loaded:
    """Read a journal, cut off a torn last line in the file itself, and fold the rest.

    A missing file is an empty journal. Raises JournalDamaged, with the file untouched, when a complete
    line is not a record or the records do not fit together.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Loaded(Session(), 0)
    try:
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        session = fold(whole, path)
        torn = len(data) - len(whole)
        if torn:
            os.ftruncate(fd, len(whole))
            os.fsync(fd)
        return Loaded(session, torn)
    finally:
        os.close(fd)


def fold(data: bytes, path: str = "journal") -> Session:
    """Return the session that complete journal lines make. Raises JournalDamaged naming the line."""
    session = Session()
    for number, line in enumerate(data.splitlines(), 1):
        try:
            session.record(decode(json.loads(line)))
        except (JournalDamaged, InvalidStep, ValueError) as exc:
            raise JournalDamaged(f"{path}, line {number}: {exc}") from exc
    return session


def last_kind(path: str) -> dict[str, object] | None:
    """Return the last record's JSON object, reading only the file's end; None when that does not tell."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, 4096, max(0, size - 4096))
    finally:
        os.close(fd)
    if not data.endswith(b"\n"):
        return None
    line = data[data.rfind(b"\n", 0, -1) + 1 :] if data.count(b"\n") > 1 or size <= 4096 else b""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def sync_directory(path: str) -> None:
    """Make a new or renamed entry of this directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
