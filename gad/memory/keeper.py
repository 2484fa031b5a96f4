"""The keeper: archives conversations that have ended, beside everything else that the daemon does.

`ended` takes note of a session and returns at once; `run` works off what was noted, one session at a time, in a
thread. What is to be archived is read from the journals themselves and compared with the index, so `ended` may be
called for any session and any number of times: also at the daemon's start, for what a crash kept from the archive.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gad.core.records import Answered, Begin, Ended, Said, decode
from gad.errors import GadError, JournalDamaged
from gad.memory.archive import Archive, began_at, place

log = logging.getLogger(__name__)

REST = 3.0
"""How long the keeper rests after each session, as a multiple of the time that it took."""
CLOSING = 5.0
"""Seconds that `close` gives to what is left."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the archive's index tells of one conversation; `began` and `ended` are in seconds since the epoch."""

    labels: tuple[str, ...]
    outcome: str
    turns: int
    tokens: int
    task: str
    began: float
    ended: float


class Keeper:
    """Archives the journals of sessions.

    `journals` returns the paths of all journals in a session's directory: the one of its present conversation, and
    those of the former ones. All methods belong to one event loop.
    """

    def __init__(self, archive: Archive, journals: Callable[[str], Sequence[str]]) -> None:
        self._archive = archive
        self._journals = journals
        self._noted: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._one = asyncio.Lock()
        self._closed = False
        self._closing = asyncio.Event()
        self._sizes: dict[str, int] | None = None  # of what is archived, by path
        self._damaged: set[str] = set()

    def ended(self, session_directory: str, session: str) -> None:
        """Take note of a session of which a round has ended. What could not be archived before is tried again."""
        if not self._closed:
            self._failed.pop(session_directory, None)
            self._noted[session_directory] = session
            self._wake.set()

    async def run(self) -> None:
        """Archive what is noted, until `close` is called."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            await self._work()

    async def close(self, seconds: float = CLOSING) -> None:
        """Finish what is noted, for some seconds at most; what is left then is archived after the next start."""
        self._closed = True
        self._closing.set()
        self._wake.set()
        try:
            await asyncio.wait_for(self._work(), seconds)
        except TimeoutError:
            log.warning("%d sessions are not archived yet", len(self._noted) + 1)
            self._noted.clear()

    async def _work(self) -> None:
        async with self._one:
            while self._noted:
                directory = next(iter(self._noted))
                session = self._noted.pop(directory)
                began = time.monotonic()
                try:
                    await asyncio.to_thread(self._archive_session, directory, session)
                except (GadError, OSError) as exc:
                    log.warning("session %s: not archived yet, trying again later: %s", session, exc)
                    self._failed[directory] = session
                except Exception:  # the daemon goes on without it
                    log.exception("session %s: not archived", session)
                else:
                    self._try_again()
                with contextlib.suppress(TimeoutError):  # the sessions at work need the disk more than the archive does
                    await asyncio.wait_for(self._closing.wait(), min(1.0, REST * (time.monotonic() - began)))

    def _try_again(self) -> None:
        """Note one that failed, since another has worked: on a full disk, all of them each time would be too many."""
        if self._failed:
            directory = next(iter(self._failed))
            self._noted[directory] = self._failed.pop(directory)

    def _archive_session(self, directory: str, session: str) -> None:
        if self._sizes is None:
            self._sizes = {entry.path: entry.size for entry in self._archive.entries()}
        with contextlib.suppress(FileNotFoundError):  # its client has removed the session
            for journal in self._journals(directory):
                with contextlib.suppress(FileNotFoundError):  # a new conversation has moved it: the next call finds it
                    self._archive_journal(journal, session, self._sizes)

    def _archive_journal(self, journal: str, session: str, sizes: dict[str, int]) -> None:
        """Archive one conversation, unless it is there as it is now or no round of it has ended."""
        size = os.stat(journal, follow_symlinks=False).st_size
        began = began_at(journal)
        if began is None or sizes.get(place(session, began)[1]) == size:
            return
        try:
            summary = summarise(journal)
        except JournalDamaged as exc:
            if journal not in self._damaged:
                log.warning("session %s: not archived: %s", session, exc)
            self._damaged.add(journal)
            return
        if summary is not None:
            path = keep(self._archive, journal, session, summary)
            sizes[path] = size  # when it has grown meanwhile, the next call archives it again


def keep(archive: Archive, journal: str, session: str, summary: Summary) -> str:
    """Archive a journal as its summary tells of it, and return its path in memory. Raises what `Archive.keep` does."""
    return archive.keep(
        journal,
        session=session,
        labels=summary.labels,
        outcome=summary.outcome,
        turns=summary.turns,
        tokens=summary.tokens,
        task=summary.task,
        began=summary.began,
        ended=summary.ended,
    )


def summarise(journal: str) -> Summary | None:
    """Return what the index is to tell of a journal, or None when no round of it has ended.

    Raises JournalDamaged naming the line, OSError. A torn last line is left out.
    """
    labels: tuple[str, ...] = ()
    outcome, task, began, ended, turns, tokens = "", None, 0.0, 0.0, 0, 0
    with open(journal, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                match decode(json.loads(line)):
                    case Begin() as begin:
                        labels, began = begin.options.labels, begin.at
                    case Said() as said if task is None:
                        task = said.text
                    case Answered() as answer:
                        turns += 1
                        tokens += answer.usage.tokens_in + answer.usage.tokens_out
                    case Ended() as end:
                        outcome, ended = end.state, end.at
            except (JournalDamaged, ValueError, RecursionError) as exc:
                raise JournalDamaged(f"{journal}, line {number}: {exc}") from exc
    return Summary(labels, outcome, turns, tokens, task or "", began, ended) if outcome else None
