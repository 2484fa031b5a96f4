"""What the daemon does with memory around its sessions: what it tells them, and what it learns when they end.

Sessions never wait for any of this, and nothing of it can fail one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import yaml

from gad.config import Config
from gad.core.lessons import earned_review, outcome, review_text
from gad.core.session import Session
from gad.errors import GadError
from gad.memory.archive import Archive
from gad.memory.door import SessionMemory
from gad.memory.keeper import Keeper
from gad.memory.scripts import ScriptGate
from gad.memory.store import MemoryStore
from gad.spool import drop, names
from gad.spool.journal import load
from gad.spool.live import Live

log = logging.getLogger(__name__)

REVIEW_TURNS = 12
"""Turns that a review may take."""
REVIEW_TOOLS = ["file_read", "file_patch", "file_write"]


class Learner(Protocol):
    """Learns from a round that is over; `success` is None when nobody but the model says how it went."""

    def ended(self, session: Session, success: bool | None) -> object:
        """Take it in; called in a thread. What is returned is of no interest."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """A round that is over, as it was at that moment."""

    directory: str
    session: Session
    success: bool | None
    review: bool


class MemoryEngine:
    """Everything about memory that a daemon needs.

    `learners` are told of each round that ends; `gate` is what a procedure's script must pass to be kept.
    """

    def __init__(self, config: Config, store: MemoryStore) -> None:
        self.store = store
        self.learners: list[Learner] = []
        self.gate: ScriptGate | None = None
        self._config = config
        self._keeper = Keeper(Archive(store.root), journals_of)
        self._endings: asyncio.Queue[Ending | None] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[tuple[str, float, int], bool | None] = {}

    # -- what sessions see -----------------------------------------------------------------------

    def told(self) -> str:
        """Return what every session is told of memory; empty, with a line in the log, when it cannot be read."""
        try:
            return self.store.always_on()
        except (OSError, GadError) as exc:
            log.error("memory cannot be read, so a session begins without it: %s", exc)
            return ""

    def door(self, session: Session) -> SessionMemory:
        """Return a session's way into memory."""
        return SessionMemory(self.store, session, self._reviewed, self.gate)

    def _reviewed(self, name: str) -> Session | None:
        with contextlib.suppress(GadError, OSError):
            return load(str(self._config.spool_dir / name / names.JOURNAL)).session
        return None

    # -- what sessions leave ---------------------------------------------------------------------

    def ended(self, live: Live) -> None:
        """Take note that a round is over or was judged; returns at once."""
        session = live.session
        success = outcome(session)
        key = (session.name, session.began, session.round)
        if key in self._told and self._told[key] == success:
            return
        self._told[key] = success
        review = success is True and earned_review(session, success=True)
        self._endings.put_nowait(Ending(live.directory, session, success, review))

    def start(self) -> None:
        """Begin to work off what is noted, and what a daemon before this one has not archived any more."""
        with contextlib.suppress(OSError), os.scandir(self._config.spool_dir) as found:
            for entry in found:
                if names.valid_session_name(entry.name):
                    self._keeper.ended(entry.path, entry.name)
        self._tasks = [asyncio.create_task(self._keeper.run()), asyncio.create_task(self._learn())]

    async def close(self) -> None:
        """Finish what is noted."""
        self._endings.put_nowait(None)
        if self._tasks:
            await asyncio.wait({self._tasks[1]}, timeout=10.0)
        await self._keeper.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _learn(self) -> None:
        while (ending := await self._endings.get()) is not None:
            self._keeper.ended(ending.directory, ending.session.name)
            for learner in self.learners:
                await self._quietly(ending, partial(learner.ended, ending.session, ending.success))
            if ending.review and self._config.memory.reviews:
                await self._quietly(ending, partial(self._drop_review, ending.session))

    async def _quietly(self, ending: Ending, work: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(work)
        except (GadError, OSError) as exc:
            log.warning("session %s: not learnt from: %s", ending.session.name, exc)
        except Exception:  # learning must never end the daemon
            log.exception("session %s: not learnt from", ending.session.name)

    def _drop_review(self, session: Session) -> None:
        """Hand in the review of a session; its name is the claim, so there is one at most for each round."""
        name = f"review-{session.name}-{session.round}"[-128:]
        door = self.door(session)
        task = {
            "review": session.name,
            "parent": session.name,
            "model": session.options.model,
            "tools": REVIEW_TOOLS,
            "turns": REVIEW_TURNS,
            "ask": "never",
            "labels": ["review"],
            "priority": -10,
        }
        self.drop(name, yaml.safe_dump(task), review_text(session, self.store.root, door.proofs_of(session)))

    def drop(self, name: str, task: str, text: str) -> None:
        """Hand in a task as a new session, unless there is one of this name."""
        if not (self._config.spool_dir / name).exists():
            drop.submit(self._config.spool_dir, name, text.encode(), task)


def journals_of(directory: str) -> list[str]:
    """Return the journals of a session's conversations: the present one and those archived beside it."""
    found = set(os.listdir(directory))
    paths = [names.JOURNAL]
    while (name := names.archived_name(len(paths), names.JOURNAL)) in found:
        paths.append(name)
    return [os.path.join(directory, name) for name in paths if name in found]
