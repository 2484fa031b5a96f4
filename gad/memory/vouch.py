"""Making sure that a journal is in the archive, whole, before the journal itself is removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from gad.errors import GadError
from gad.memory.archive import Archive, began_at, place
from gad.memory.keeper import keep, summarise


class Vouch:
    """Compares journals with the archive, line by line, and archives what is not there as it is.

    The archive's index is read once: make a new one each time.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._listed: set[str] | None = None

    def __call__(self, journal: str, session: str) -> None:
        """Return when the journal is in the archive. Raises GadError when it cannot be, OSError."""
        began, summary = began_at(journal), summarise(journal)
        if summary is None:
            if began is not None:
                raise GadError(f"{journal}: no round of it has ended, so it is not archived")
            return  # there was no conversation, only files that were not accepted
        path = place(session, summary.began)[1]
        if self._listed is None:
            self._listed = {entry.path for entry in self._archive.entries()}
        if path in self._listed and self._holds(path, journal):
            return
        keep(self._archive, journal, session, summary)
        if not self._holds(path, journal):
            raise GadError(f"{path} in memory is not what {journal} is, though it was just archived; look at the disk")

    def _holds(self, path: str, journal: str) -> bool:
        try:
            pairs = zip_longest(self._archive.records(path), _records(journal))
            return all(archived == there for archived, there in pairs)
        except (GadError, OSError):  # damaged, or not there: it is archived again
            return False


def _records(journal: str) -> Iterator[dict[str, Any]]:
    with open(journal, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
