"""Looking at one session directory: what clients have left there, taken in as journal records.

`survey` only looks. `take_in` claims, reads, journals and releases, in the order of the claims' numbers;
a claim that is still being written holds back the ones behind it, except a stop request.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gad import __version__
from gad.core.limits import Left
from gad.core.records import Begin, Judged, Pinned, Record, Said, StopAsked, TurnedDown
from gad.core.redact import Secrets
from gad.core.session import Session
from gad.core.states import ENDED
from gad.core.task import TaskOptions
from gad.errors import ConfigError, Rejected
from gad.spool import names
from gad.spool.claim import (
    Rules,
    Steadiness,
    Taken,
    claim,
    claimable,
    read_claim,
    read_client_file,
    reject,
    release,
    user_name,
)
from gad.spool.files import Folder, sync_directory
from gad.spool.journal import Journal, newest
from gad.spool.status import read_status

_REACHES = (1 << 12, 1 << 16, 1 << 20)
"""How many bytes of a journal's end are read to see whether the session rests."""
_NUMBERED = re.compile(r"(?:\.claim|rejected)-(\d+)-")


@dataclass(frozen=True, slots=True)
class Survey:
    """What lies in a session directory. `settled` is the state of a session that needs nothing, else empty."""

    claims: tuple[tuple[int, str], ...]
    waiting: frozenset[str]
    highest: int
    settled: str = ""
    begun: bool = False

    @property
    def anything(self) -> bool:
        """Whether there is a conversation, or something that a client has left."""
        return bool(self.claims or self.waiting or self.begun)


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a conversation begins: its effective options and the first message's preamble.

    `owner` is the id of the user that it belongs to.
    """

    options: TaskOptions
    preamble: str
    persist: bool
    memory: str = ""
    owner: int | None = None


@dataclass(slots=True)
class Intake:
    """The result of one look: the records journalled, in order.

    `fresh` means that they begin a new journal; `blocked` that a client is still writing; `trouble` is
    what kept the rest from being taken in: it is still there for the next look.
    """

    records: list[Record] = field(default_factory=list)
    fresh: bool = False
    blocked: bool = False
    trouble: OSError | None = None


def survey(directory: str, known: str = "") -> Survey:
    """Look at a session directory. A directory that has gone is an empty one, and so is a link to one.

    `known` is the resting state that was found at an earlier look, which spares reading the journal's end.
    """
    try:
        with Folder(directory) as folder:
            return _survey(folder.place, known)
    except (FileNotFoundError, NotADirectoryError):  # a link is no directory
        return Survey((), frozenset(), 0)


def _survey(place: str, known: str = "") -> Survey:
    claims: list[tuple[int, str]] = []
    waiting: set[str] = set()
    highest = 0
    try:
        found = os.listdir(place)
    except FileNotFoundError:
        found = []
    for name in found:
        if name in names.CLIENT_FILES:
            if name != names.TASK:
                waiting.add(name)
        elif numbered := _NUMBERED.match(name):
            highest = max(highest, int(numbered[1]))
            if claimed := names.parse_claim(name):
                claims.append(claimed)
    begun = names.JOURNAL in found
    settled = (known or _settled(place)) if begun and not claims and not waiting else ""
    return Survey(tuple(sorted(claims)), frozenset(waiting), highest, settled, begun)


def _settled(directory: str) -> str:
    """Return the state of a session that rests and whose status.txt says so; "" when a closer look is needed."""
    journal = os.path.join(directory, names.JOURNAL)
    state = next((found for reach in _REACHES if (found := _resting(newest(journal, reach))) is not None), "")
    return state if state and read_status(directory).get("state") == state else ""


def _resting(records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the state in which the newest records leave a session, "" when it does not rest, None when they are few.

    After a round's end there may be any number of records on what the session's children do.
    """
    state, stopped = "", False
    for record in records:
        match record.get("kind"):
            case "context" | "child" | "child_used" | "judged":
                continue
            case "stop":
                stopped = True
            case "rejected":
                state = "rejected"
            case "ended":
                return state or str(record.get("state"))
            case "asked" if not stopped:
                return state or "asking"
            case _:
                return ""
    return state or None


class Door:
    """Takes clients' files in for one spool.

    `begin` turns a session's name, the text of its task.yaml (None when there is none) and the id of the user who hands
    it in into a Beginning; it raises ConfigError or Rejected. `secrets` are kept out of the journal.
    """

    def __init__(
        self,
        rules: Rules,
        begin: Callable[[str, str | None, int], Beginning],
        now: Callable[[], float] = time.time,
        secrets: Secrets | None = None,
    ) -> None:
        self._secrets = secrets or Secrets()
        self.rules = rules
        self._now = now
        self._begin = begin
        self._steadiness = Steadiness()

    def take_in(
        self,
        directory: str,
        session: Session,
        journal: Callable[[], Journal],
        *,
        damaged: bool = False,
        left: Callable[[str], Left] = lambda parent: Left(),
        full: bool = False,
        name: str = "",
    ) -> Intake:
        """Claim and journal what clients have left. `journal` opens the session's journal for appending.

        The session is only read: the caller folds the records in. A damaged session takes a new input.txt
        and nothing else. `left` says what a parent's limits still allow: a child's own are no more. When it is `full`,
        an input.txt stays where it lies. `name` is the session's, where it is not that of the directory's path.
        """
        intake = Intake()
        try:
            self._take_all(directory, session, journal, intake, damaged, left, full, name)
        except OSError as exc:
            intake.trouble = exc
        return intake

    def _take_all(
        self,
        directory: str,
        session: Session,
        journal: Callable[[], Journal],
        intake: Intake,
        damaged: bool,
        left: Callable[[str], Left],
        full: bool,
        own: str,
    ) -> None:
        seen = _survey(directory)
        claims = list(seen.claims)
        number = max(session.claims, seen.highest)
        begun = session.state != "new" and not damaged
        idle = not begun or session.state in ENDED
        owner = session.owner
        # A reply that is older than the input beside it still belongs to the conversation before.
        held = {names.INPUT} if begun and _older(directory, names.REPLY, names.INPUT) else set[str]()
        if full:
            held.add(names.INPUT)
        order = [names.INPUT, names.REPLY, names.CONTEXT, names.STOP, names.VERDICT]
        # A verdict is of what was there when it was given: a message that is not older comes after it.
        if begun and names.VERDICT in seen.waiting:
            if not _older(directory, names.INPUT, names.VERDICT):
                held.add(names.INPUT)
            if not _older(directory, names.REPLY, names.VERDICT):
                order.insert(1, order.pop())
        for name in order:
            if name not in seen.waiting - held:
                continue
            if not self._may_claim(name, begun, idle, [file for _, file in claims]):
                continue
            if claimable(directory, name) and claim(directory, name, number + 1):
                number += 1
                claims.append((number, name))
        # A reply that came before the first input (or before one that was accepted) follows it.
        claims.sort(key=lambda found: (begun or found[1] != names.INPUT, found[0]))
        for n, name in claims:
            if n in session.turned_down:
                reject(directory, n, name)
                continue
            if n in session.taken:
                release(directory, n, name)
                continue
            if (intake.blocked and name != names.STOP) or (not idle if name == names.INPUT else not begun):
                continue
            # A session that was turned down before it began is nobody's.
            foreign = partial(self._foreign, owner=owner) if begun else lambda user: ""
            taken = read_claim(directory, n, name, self.rules, self._steadiness, foreign)
            if taken is None:
                there = os.path.lexists(os.path.join(directory, names.claim_name(n, name)))
                intake.blocked = intake.blocked or there
            elif name == names.INPUT:
                self._take_input(directory, session, taken, intake, journal, left, own or os.path.basename(directory))
                begun = begun or intake.fresh
                owner = _owner(intake, owner)
                idle = idle and not intake.fresh
            else:
                self._take(directory, taken, intake, journal)
                idle = idle and name != names.REPLY
        refused = session.turned_down or any(isinstance(record, TurnedDown) for record in intake.records)
        if not begun and refused and not intake.blocked:
            self._drop_stop(directory, number, claims)

    @staticmethod
    def _drop_stop(directory: str, number: int, claims: list[tuple[int, str]]) -> None:
        """Remove a stop request that was meant for a task that was turned down."""
        if names.INPUT not in (name for _, name in claims) and claim(directory, names.STOP, number + 1):
            release(directory, number + 1, names.STOP)
        for n, name in claims:
            if name == names.STOP:
                release(directory, n, name)

    @staticmethod
    def _may_claim(name: str, begun: bool, idle: bool, claims: list[str]) -> bool:
        if name != names.INPUT:
            return begun or names.INPUT in claims
        # A new conversation begins when all that belongs to the former one has been taken in.
        return idle and (not claims if begun else names.INPUT not in claims)

    def _take(self, directory: str, taken: Taken, intake: Intake, journal: Callable[[], Journal]) -> None:
        if taken.problem:
            self._turn_down(directory, taken, taken.problem, intake, journal)
            return
        record: Record
        match taken.file:
            case names.STOP:
                record = StopAsked(self._now(), taken.n)
            case names.CONTEXT:
                record = Pinned(self._now(), taken.n, taken.text)
            case names.VERDICT:
                verdict, words = (*taken.text.split(maxsplit=1), "", "")[:2]
                if verdict.lower() not in ("ok", "bad"):
                    why = "verdict.txt was not accepted: its first word must be ok or bad"
                    self._turn_down(directory, taken, why, intake, journal)
                    return
                record = Judged(self._now(), taken.n, verdict.lower() == "ok", words.strip())
            case _:
                record = Said(self._now(), taken.n, taken.file, taken.text)
        self._write(intake, journal, record)
        release(directory, taken.n, taken.file)

    def _take_input(
        self,
        directory: str,
        session: Session,
        taken: Taken,
        intake: Intake,
        journal: Callable[[], Journal],
        left: Callable[[str], Left],
        name: str,
    ) -> None:
        if taken.problem:
            self._turn_down(directory, taken, taken.problem, intake, journal)
            return
        try:
            task = self._read_options(directory, taken.owner)
            if task is _UNFINISHED:
                intake.blocked = True
                return
            beginning = self._begin(name, task, taken.owner)
        except (ConfigError, Rejected) as exc:
            why = f"{exc}. Both files are kept; drop a correct task.yaml, then input.txt again"
            self._turn_down(directory, taken, why, intake, journal)
            kept = names.rejected_name(taken.n, names.TASK)
            with contextlib.suppress(FileNotFoundError):
                os.rename(os.path.join(directory, names.TASK), os.path.join(directory, kept))
            return
        archive(directory)
        intake.fresh = True
        intake.records.clear()
        options = beginning.options
        if options.sponsor is not None:
            options = left(options.sponsor).bound(options)
        at = self._now()
        begin = Begin(at, name, options, beginning.preamble, beginning.persist, beginning.memory, gad=__version__,
                      owner=beginning.owner)  # fmt: skip
        self._write(intake, journal, begin, Said(at, taken.n, taken.file, taken.text))
        release(directory, taken.n, taken.file)

    def _foreign(self, user: int, owner: int | None) -> str:
        """Return why a user's file is not for the owner's session, or an empty text."""
        if user in self.rules.masters or user == owner:
            return ""
        whose = "the daemon's own user" if owner is None else f"user {user_name(owner)}"
        return (
            f"it belongs to user {user_name(user)}, and this session to {whose}: "
            f"make a session of your own, in another directory"
        )

    def _read_options(self, directory: str, owner: int) -> str | None:
        path = os.path.join(directory, names.TASK)
        try:
            found = read_client_file(path, self.rules, self._steadiness)
        except FileNotFoundError:
            return None
        except Rejected as exc:
            raise Rejected(f"task.yaml: {exc}") from exc
        if found is None:
            return _UNFINISHED
        text, writer = found
        if writer != owner and writer not in self.rules.masters:
            raise Rejected(f"task.yaml: it belongs to user {user_name(writer)}, and input.txt to {user_name(owner)}")
        return text

    def _turn_down(
        self, directory: str, taken: Taken, why: str, intake: Intake, journal: Callable[[], Journal]
    ) -> None:
        error = f"{taken.file} was not accepted: {why} (kept as {names.rejected_name(taken.n, taken.file)})"
        self._write(intake, journal, TurnedDown(self._now(), taken.n, taken.file, error))
        reject(directory, taken.n, taken.file)

    def _write(self, intake: Intake, journal: Callable[[], Journal], *records: Record) -> None:
        """Journal records, all or none."""
        first, *more = (self._secrets.clean(record) for record in records)
        journal().append(first, *more)
        intake.records += [first, *more]


_UNFINISHED = "\0unfinished"


def _owner(intake: Intake, before: int | None) -> int | None:
    """Return to whom a session belongs after what was taken in."""
    return next((record.owner for record in intake.records if isinstance(record, Begin)), before)


def archive(directory: str) -> None:
    """Make room for a new conversation: the former one's files get the archive's names, the journal last.

    Safe to repeat: a crash in the middle leaves the journal in place, and nothing archived is written over. Without a
    journal, or with one that nothing could be written into, there has been no conversation.
    """
    try:
        found = os.lstat(os.path.join(directory, names.JOURNAL))
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode) and not found.st_size:
        return
    number = 1
    while os.path.exists(os.path.join(directory, names.archived_name(number, names.JOURNAL))):
        number += 1
    for name in (names.OUTPUT, names.RESULT, names.JOURNAL):
        free = number
        while os.path.lexists(target := os.path.join(directory, names.archived_name(free, name))):
            free += 1
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(directory, name), target)
    sync_directory(directory)


def _older(directory: str, name: str, other: str) -> bool:
    """Return whether both files are there and `name` was written first."""
    try:
        found, beside = (os.lstat(os.path.join(directory, one)).st_mtime_ns for one in (name, other))
    except FileNotFoundError:
        return False
    return found < beside
