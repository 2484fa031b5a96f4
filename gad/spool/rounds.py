"""A journal read for what its rounds came to; another may be appending to it meanwhile, and nothing is written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gad.core.records import Ended, Judged, Record, Said
from gad.core.session import Session, replay
from gad.core.states import ENDED
from gad.spool import names
from gad.spool.files import open_regular
from gad.spool.journal import decoded

_ARCHIVED = re.compile(rf"archived-(\d{{4,}})-{re.escape(names.JOURNAL)}", re.ASCII)


def conversations(directory: str) -> list[tuple[int, str]]:
    """Return a session's conversations, each its number and its journal's path, the present one last.

    Raises OSError.
    """
    entries = os.listdir(directory)
    found = sorted((int(match[1]), name) for name in entries if (match := _ARCHIVED.fullmatch(name)))
    if names.JOURNAL in entries:
        found.append((found[-1][0] + 1 if found else 1, names.JOURNAL))
    return [(number, os.path.join(directory, name)) for number, name in found]


def read_records(path: str) -> list[Record]:
    """Return a journal's records; a last line that is not whole is left out. Raises JournalDamaged, OSError."""
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        data = file.read()
    return list(decoded(data[: data.rfind(b"\n") + 1], path))


def rounds(records: Sequence[Record]) -> Iterator[tuple[Session, float]]:
    """Yield the session as it was when each of its rounds was over, and when that was or the user judged it last.

    The session is the same object each time: look at it before the next one. Raises InvalidStep.
    """
    session = Session()
    over: float | None = None
    for index, record in enumerate(records):
        if isinstance(record, Said) and over is not None:
            yield session, over
            over = None
        session.record(record)
        if isinstance(record, Ended) and session.state not in ENDED:
            # A message came too late for this round and has opened the next one already.
            yield replay([*records[:index], replace(record, upto=None)]), record.at
        elif isinstance(record, Ended | Judged) and session.state in ENDED:
            over = record.at
    if over is not None:
        yield session, over
