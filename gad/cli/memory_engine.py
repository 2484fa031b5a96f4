"""What the daemon does with memory around its sessions: what it tells them, and what it learns when they end.

Sessions never wait for any of this, and nothing of it can fail one. What is learnt is read from the journals, where a
round stands as it was at its end whatever has happened since; so a crash delays learning and loses nothing of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import yaml

from gad.config import Config
from gad.core.lessons import earned_review, outcome, review_text
from gad.core.records import Ended
from gad.core.session import Session, replay
from gad.errors import GadError, InvalidStep, JournalDamaged, MemoryLocked
from gad.memory.archive import Archive
from gad.memory.door import SessionMemory
from gad.memory.keeper import Keeper
from gad.memory.scripts import ScriptGate
from gad.memory.store import MemoryStore
from gad.spool import drop, names
from gad.spool.files import replace
from gad.spool.intake import survey
from gad.spool.live import Live
from gad.spool.rounds import conversations, read_records, rounds

log = logging.getLogger(__name__)

REVIEW_TURNS = 12
"""Turns that a review may take."""
REVIEW_TOOLS = ["file_read", "file_patch", "file_write"]
LEARNT = "learnt.json"
"""The file beside the daemon's status that says up to when everything has been learnt, and what since."""
KEPT = 3600.0
"""Seconds for which it is remembered, while the daemon works, that a round was learnt."""
OVERLAP = 10.0
"""Seconds before the moment up to which all is learnt that are looked at again: a round may just have been ending."""
NOTED_AFTER = 1.0
"""Seconds after which it is written down what has been learnt: what is learnt meanwhile goes with it."""
LEAVING = 5.0
"""Seconds that are given to learning at shutdown; the next daemon learns the rest."""

_Key = tuple[str, float, int]
"""A round: its session's name, when its conversation began, its number."""


class Learner(Protocol):
    """Learns from a round that is over; `success` is None when nobody but the model says how it went."""

    def ended(self, session: Session, success: bool | None) -> object:
        """Take it in; called in a thread, now and then twice for one round. What is returned is of no interest."""
        ...


@dataclass(frozen=True, slots=True)
class _Told:
    """What learners were told of a round, and when it ended or was judged."""

    success: bool | None
    at: float


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
        self._endings: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
        self._failed: dict[str, str] = {}  # by directory: sessions of which something could not be learnt yet
        self._later: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # A thread of its own: while it waits for memory, nobody else waits for a thread.
        self._thread = ThreadPoolExecutor(1, "learning")
        self._started = self._until = self._since = time.time()
        self._told: dict[_Key, _Told] = {}
        self._hurry = False

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
        return SessionMemory(self.store, session, partial(self._reviewed, began=session.began), self.gate, self.place)

    def place(self, session: Session) -> str:
        """Return where a session's relative paths start."""
        return session.options.cwd or str(self._config.work_dir / session.name)

    def _reviewed(self, name: str, began: float) -> Session | None:
        """Return the session of that name: the latest conversation that had ended when the review began.

        When none had, it is the first one.
        """
        with contextlib.suppress(GadError, OSError):
            found = conversations(str(self._config.spool_dir / name))
            for _, journal in reversed(found):
                records = read_records(journal)
                if journal == found[0][1] or any(isinstance(one, Ended) and one.at <= began for one in records):
                    return replay(records)
        return None

    # -- what sessions leave ---------------------------------------------------------------------

    def ended(self, live: Live) -> None:
        """Take note that a round is over or was judged; returns at once."""
        self._endings.put_nowait((live.directory, live.name))

    def start(self) -> None:
        """Begin to work off what is noted, and what a daemon before this one has not learnt or archived any more."""
        self._tasks = [asyncio.create_task(self._keeper.run()), asyncio.create_task(self._learn())]

    async def close(self) -> None:
        """Finish what is noted, for some seconds at most; the next daemon does what is left then."""
        self._endings.put_nowait(None)
        if self._tasks:
            await asyncio.wait({self._tasks[1]}, timeout=LEAVING)
        self._hurry = True
        if self._later is not None:
            self._later.cancel()
        await self._keeper.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._tasks:
            self._learnt()

    async def _learn(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            behind = await loop.run_in_executor(self._thread, self._left_behind)
        except OSError as exc:
            log.error("what an earlier daemon left to learn is left alone: %s", exc)
            behind = []
        for directory, name, due in behind:
            self._keeper.ended(directory, name)
            if due:
                self._endings.put_nowait((directory, name))
        self._learnt()
        while (ending := await self._endings.get()) is not None:
            directory, name = ending
            self._keeper.ended(directory, name)
            if not await loop.run_in_executor(self._thread, self._learn_from, directory, name):
                self._failed[directory] = name
            elif self._failed:  # one at a time: it may fail again, and take its time
                again = next(iter(self._failed))
                self._endings.put_nowait((again, self._failed.pop(again)))
            if self._later is None:  # once for many: it is written durably
                self._later = loop.call_later(NOTED_AFTER, self._note)

    def _note(self) -> None:
        self._later = None
        with contextlib.suppress(RuntimeError):  # the daemon leaves, and notes it then
            self._thread.submit(self._learnt)

    def _left_behind(self) -> list[tuple[str, str, bool]]:
        """Return all sessions, the latest last, and whether each may hold what has not been learnt."""
        self._recall()
        found = []
        with os.scandir(self._config.spool_dir) as entries:
            for entry in entries:
                if names.valid_session_name(entry.name):
                    with contextlib.suppress(OSError):
                        changed = os.stat(os.path.join(entry.path, names.JOURNAL), follow_symlinks=False).st_mtime
                        found.append((changed, entry.path, entry.name))
        return [(directory, name, changed >= self._since) for changed, directory, name in sorted(found)]

    def _recall(self) -> None:
        """Read what the daemon before this one has learnt; without that, there is nothing to make up for."""
        try:
            data = json.loads((self._config.spool_dir / names.DAEMON_DIR / LEARNT).read_text("utf-8"))
            told = {(str(n), float(b), int(r)): _Told(success, float(at)) for n, b, r, success, at in data["told"]}
            until = float(data["until"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as exc:
            log.warning("%s cannot be read, so nothing that a crash left is made up for: %s", LEARNT, exc)
            return
        self._until = min(until, self._until)
        self._since, self._told = self._until - OVERLAP, told | self._told

    def _learnt(self) -> None:
        """Write down up to when everything is learnt, and what of the time since."""
        if self._endings.empty() and not self._failed:
            self._until = time.time()
            self._since = max(self._since, self._until - KEPT)
            self._told = {key: told for key, told in self._told.items() if told.at >= self._since}
        known = list(self._told.items())  # the thread may be adding to it
        recent = [[*key, told.success, told.at] for key, told in known if told.at >= self._until - 2 * OVERLAP]
        try:
            replace(
                str(self._config.spool_dir / names.DAEMON_DIR),
                LEARNT,
                json.dumps({"until": self._until, "told": recent}) + "\n",
            )
        except OSError as exc:
            log.warning("%s cannot be written: %s", LEARNT, exc)

    # In the thread

    def _learn_from(self, directory: str, name: str) -> bool:
        """Learn from the rounds of a session that are over; return False when that is to be tried again."""
        try:
            for number, journal in conversations(directory):
                if os.stat(journal).st_mtime >= self._since and not self._learn_conversation(journal, number):
                    return False
        except (JournalDamaged, InvalidStep) as exc:
            log.warning("session %s: not learnt from: %s", name, exc)
        except OSError as exc:
            if os.path.isdir(directory):  # its client has not removed it: a new conversation has moved the journal
                log.warning("session %s: not learnt from yet: %s", name, exc)
                return False
        return True

    def _learn_conversation(self, journal: str, number: int) -> bool:
        for session, at in rounds(read_records(journal)):
            key, success = (session.name, session.began, session.round), outcome(session)
            known = self._told.get(key)
            # While memory was off, nothing was promised to those who did not know of it.
            unasked = at < self._started and not session.told
            if at < self._since or unasked or (known is not None and known.success == success):
                continue
            work: list[Callable[[], object]] = [partial(one.ended, session, success) for one in self.learners]
            worth = self._config.memory.reviews and success and not session.options.confined
            if worth and earned_review(session, success=True):
                work.append(partial(self._drop_review, session, number))
            failed = [one for one in work if not self._quietly(session.name, one)]
            if failed:  # all of it is done again then, in the order of the rounds
                return False
            self._told[key] = _Told(success, at)
        return True

    def _quietly(self, session: str, work: Callable[[], object]) -> bool:
        """Do one thing; return False when it is to be tried again."""
        if self._hurry:
            return False
        try:
            work()
        except (MemoryLocked, OSError) as exc:
            log.warning("session %s: not learnt from yet: %s", session, exc)
            return False
        except GadError as exc:
            log.warning("session %s: not learnt from: %s", session, exc)
        except Exception:  # learning must never end the daemon
            log.exception("session %s: not learnt from", session)
        return True

    def _drop_review(self, session: Session, conversation: int) -> None:
        """Hand in the review of a round; its name is the claim, so there is one at most."""
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
        text = review_text(session, self.store.root, self.door(session).proofs_of(session))
        self.drop(review_name(session.name, conversation, session.round), yaml.safe_dump(task), text)

    def drop(self, name: str, task: str, text: str) -> None:
        """Hand in a task as a new session, unless there is one of this name; one that a crash left empty is filled."""
        directory = self._config.spool_dir / name
        if not directory.exists():
            drop.submit(self._config.spool_dir, name, text.encode(), task)
        elif (seen := survey(str(directory))).highest == 0 and not seen.anything:
            with contextlib.suppress(FileExistsError):
                drop.put(directory, names.TASK, task.encode())
            drop.put(directory, names.INPUT, text.encode())


def review_name(session: str, conversation: int, number: int) -> str:
    """Return the name of the review of one round: `review-<session>-<round>` in a session's first conversation."""
    end = f"-{number}" if conversation == 1 else f"-{conversation}.{number}"
    name = f"review-{session}{end}"
    if len(name) <= 128:
        return name
    return f"review-{session[:80]}-{hashlib.sha256(session.encode()).hexdigest()[:16]}{end}"


def journals_of(directory: str) -> list[str]:
    """Return the journals of a session's conversations: those archived, and the present one."""
    return [journal for _, journal in conversations(directory)]
