"""journal.jsonl on disk: append one record a line, read them back, cut off a torn last line.

A record is one write of one line, so after a crash only the last line can be incomplete: it is the
one without a newline. Damage anywhere else is not ours to mend; the file is then left as it is.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gad import __version__
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
from gad.errors import InvalidStep, JournalDamaged, JournalTooNew
from gad.spool.files import NotRegular, open_own, open_regular, sync_directory

DURABLE = (Said, Pinned, StopAsked, TurnedDown, ToolStarted, Asked, Ended)
"""Records that are on the disk before what they say is acted on: a client's file is removed, a tool runs,
a state is announced. The others lie in order before them, so one fsync covers what came since the last."""

_TAIL = 4096


class Journal:
    """One session's journal, open for appending."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._end: int | None = None  # where what was acknowledged ends, while what follows could not be cut off
        self._fd = open_own(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        try:
            if os.fstat(self._fd).st_size == 0:  # the client made the directory, and has not made it durable
                sync_directory(os.path.dirname(path))
                sync_directory(os.path.join(os.path.dirname(path), ".."))
        except OSError:
            os.close(self._fd)
            raise

    def append(self, record: Record, *more: Record) -> None:
        """Write records, all or none; return once they are as durable as their kinds need.

        Raises OSError, with nothing written.
        """
        records = (record, *more)
        lines = b"".join(
            json.dumps(encode(one), ensure_ascii=True, separators=(",", ":")).encode() + b"\n" for one in records
        )
        size = self._cut()
        try:
            if os.write(self._fd, lines) != len(lines):
                raise OSError(errno.ENOSPC, "no space left for the journal", self.path)
            if any(isinstance(one, DURABLE) for one in records):
                os.fdatasync(self._fd)
        except OSError:
            self._end = size
            with contextlib.suppress(OSError):  # then before the next record
                self._cut()
            raise

    def _cut(self) -> int:
        """Cut off what was not acknowledged, which must not be there at the next replay; return where the file ends."""
        if self._end is not None:
            os.ftruncate(self._fd, self._end)
            self._end = None
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._cut()
        os.close(self._fd)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session read back. `torn` is the number of bytes of a torn last line that were cut off."""

    session: Session
    torn: int


def load(path: str) -> Loaded:
    """Read a journal, cut off a torn last line in the file itself, and fold the rest.

    A missing file is an empty journal. Raises JournalDamaged, with the file untouched, when a complete
    line is not a record or the records do not fit together, and JournalTooNew when a newer gad wrote it.
    """
    try:
        fd = open_own(path, os.O_RDWR)
    except FileNotFoundError:
        return Loaded(Session(), 0)
    except NotRegular as exc:
        raise JournalDamaged(str(exc)) from exc
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
    for number, record in enumerate(decoded(data, path), 1):
        try:
            session.record(record)
        except InvalidStep as exc:
            raise JournalDamaged(f"{path}, line {number}: {exc}") from exc
    return session


def decoded(data: bytes, path: str) -> Iterator[Record]:
    """Yield the records of complete journal lines. Raises JournalTooNew or JournalDamaged naming the line."""
    writer = ""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            found = json.loads(line)
            writer = writer or _writer(found)
            yield decode(found)
        except JournalTooNew as exc:
            raise JournalTooNew(
                f"{path}, line {number}: {exc}; a newer gad has written it (this is gad {__version__}, the "
                f"conversation was begun by gad {writer or '?'}). It was left as it is: go back to that gad, or drop "
                f"an input.txt, which begins anew and keeps this journal aside"
            ) from None
        except (JournalDamaged, ValueError, RecursionError) as exc:
            raise JournalDamaged(f"{path}, line {number}: {exc}") from exc


def _writer(record: object) -> str:
    """Return the version of the gad that wrote a first record; only what looks like one is repeated."""
    told = record.get("gad") if isinstance(record, dict) else None
    return told if isinstance(told, str) and re.fullmatch(r"[\w.+-]{1,40}", told) else ""


def newest(path: str, reach: int = _TAIL) -> list[dict[str, Any]]:
    """Return the last records' JSON objects, newest first, reading only the file's end; none when that is torn.

    `reach` is how many bytes the end has.
    """
    try:
        fd = open_regular(path, os.O_RDONLY)
    except OSError:
        return []
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, reach, max(0, size - reach))
    finally:
        os.close(fd)
    if not data.endswith(b"\n"):
        return []
    lines = data.splitlines()
    found: list[dict[str, Any]] = []
    for line in reversed(lines if size <= reach else lines[1:]):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(record, dict):
            break
        found.append(record)
    return found
