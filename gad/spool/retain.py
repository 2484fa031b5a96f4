"""Retention: which ended sessions have been left alone for so long that they go, and letting them go.

A session goes with what it worked on, or what it worked on goes first. One that is at work, waits, asks or has a file
of a client's waiting never goes, nor one of which a parent, a child or another session that uses its work directory
is in such a state. A session's journals are in the archive, compared with it, before anything is removed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gad.core.session import Session, replay
from gad.core.states import ENDED
from gad.errors import InvalidStep, JournalDamaged
from gad.spool import aside, names
from gad.spool.aside import Mark, Stopping
from gad.spool.intake import survey
from gad.spool.kin import DEPTH, named_cwd, named_parent, options_of
from gad.spool.rounds import conversations, read_records

_OVER = names.RESTING - {"asking"}
"""The states of status.txt in which a session has ended."""
_COARSE = 2.0
"""Seconds by which a directory's time may be older than what has changed it."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds after which an ended session goes, and after which what it worked on does; None: never."""

    sessions: float | None = None
    work: float | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """What may go: a session with what it worked on, or with `whole` False that alone.

    `state` is empty when the session's directory has gone already. `touched` is in seconds since the epoch, `bytes`
    counts what the disk has for it.
    """

    session: str
    state: str
    whole: bool
    touched: float
    bytes: int
    _mark: Mark | None = None
    _work: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True, slots=True)
class Kept:
    """A session that is old enough and stays all the same; `trouble` says that something is in disorder."""

    session: str
    why: str
    trouble: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """The sessions there are: those that have ended, by state, and those that others need."""

    ended: dict[str, str]
    needed: dict[str, str]


class Retention:
    """What is kept of one spool and of the work directories beside it.

    `archived` is given a journal and its session and returns when it is in the archive, whole; it raises GadError or
    OSError when it cannot be. `now` is in seconds since the epoch. `awaited` returns the sessions whose end somebody
    has yet to take note of, and who that is.
    """

    def __init__(
        self,
        spool: str,
        work: str,
        ages: Ages,
        archived: Callable[[str, str], object],
        now: float,
        awaited: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._spool = spool
        self._work = work
        self._ages = ages
        self._archived = archived
        self._now = now
        self._awaited = awaited
        self._looked = 0.0

    def recover(self, stopping: Stopping = lambda: False) -> list[str]:
        """Finish what a crash has left half done; return what could not be. Raises GadError, OSError."""
        if not self._used():
            return []
        with aside.locked(self._spool):
            places = [place for place in (self._spool, self._work) if os.path.isdir(place)]
            return [trouble for place in places for trouble in aside.recover(place, stopping)]

    def look(self) -> Standing:
        """Look at all sessions. Raises OSError."""
        self._looked = time.time() - _COARSE
        ended: dict[str, str] = {}
        needed = dict(self._awaited())
        for name in _directories(self._spool):
            if state := self._ended(name):
                ended[name] = state
                continue
            for other, why in self._needs(name):
                needed.setdefault(other, why)
        for number, place in _processes():  # what an agent has left running was meant to stay
            if where := self._worked_in(place):
                needed.setdefault(where, f"process {number} works in its work directory")
        return Standing(ended, needed)

    def candidates(self, standing: Standing) -> list[str]:
        """Return the names of those that may be due: `due` looks closer."""
        ages = [age for age in (self._ages.sessions, self._ages.work) if age is not None]
        if not ages or not self._used():
            return []
        old = [name for name in standing.ended if self._now - _changed(self._in_spool(name)) >= min(ages)]
        return old + [name for name in _directories(self._work) if not os.path.lexists(self._in_spool(name))]

    def due(self, name: str, standing: Standing) -> Due | Kept | None:
        """Return what of a session may go now, why it may not though it is old enough, or None."""
        try:
            return self._due(name, standing)
        except Exception as exc:  # whatever somebody has put there: the others' turn comes all the same
            return Kept(name, str(exc) or repr(exc), trouble=True)

    def _due(self, name: str, standing: Standing) -> Due | Kept | None:
        try:
            mark = aside.mark(self._in_spool(name))
        except (FileNotFoundError, NotADirectoryError):
            return self._orphan(name, standing)
        whole = _passed(self._ages.sessions, self._now - mark.touched)
        if not whole and not (_passed(self._ages.work, self._now - mark.touched) and self._has_work(name)):
            return None
        if not (state := self._ended(name)):
            return None
        if why := self._why_kept(name, standing):
            return why
        size, newest = _measure(os.path.join(self._work, name))
        latest = max(mark.touched, newest)
        whole = _passed(self._ages.sessions, self._now - latest)
        if not whole and not _passed(self._ages.work, self._now - latest):
            return None
        all_of_it = size + (_measure(self._in_spool(name))[0] if whole else 0)
        return Due(name, state, whole, latest, all_of_it, mark, (size, newest))

    def put_away(self, due: Due, stopping: Stopping = lambda: False) -> Kept | None:
        """Let it go; return why it stayed, if it did. `stopping` may leave the rest of it to `recover`."""
        try:
            if due.whole and due.state:
                for _, journal in conversations(self._in_spool(due.session)):
                    self._archived(journal, due.session)
            with aside.locked(self._spool):
                gone = self._take(due, stopping)
        except Exception as exc:  # as in `due`
            return Kept(due.session, str(exc) or repr(exc), trouble=True)
        return None if gone else Kept(due.session, "something came in at this moment")

    def _take(self, due: Due, stopping: Stopping) -> bool:
        # What it worked on is away before the session is: who makes the session anew gets a directory of its own.
        worked = self._has_work(due.session) and aside.stash(self._work, due.session)
        try:
            gone = not self._joined(due, worked) and self._let_go(due, stopping)
        except BaseException:
            if worked:
                aside.restore(self._work, due.session)
            raise
        if worked and not gone:
            aside.restore(self._work, due.session)
        elif worked:
            aside.destroy_stashed(self._work, due.session, stopping)
        return gone

    def _joined(self, due: Due, stashed: bool) -> bool:
        """Return whether somebody has come to need this session, or what it worked on, since we looked."""
        if stashed and _measure(aside.stashed(self._work, due.session)) != due._work:
            return True
        return any(
            other == due.session
            for name in _directories(self._spool)
            if name != due.session and _changed(self._in_spool(name)) >= self._looked and not self._ended(name)
            for other, _ in self._needs(name)
        )

    def _let_go(self, due: Due, stopping: Stopping) -> bool:
        if due._mark is None:
            return not os.path.lexists(self._in_spool(due.session))
        if due.whole:
            return aside.take_away(self._spool, due.session, due._mark, stopping)
        return aside.mark(self._in_spool(due.session)) == due._mark

    def _orphan(self, name: str, standing: Standing) -> Due | None:
        """Return what a session has left behind whose directory its client, or a crash, has removed."""
        age = self._ages.work if self._ages.work is not None else self._ages.sessions
        if name in standing.needed or not self._has_work(name):
            return None
        size, newest = _measure(os.path.join(self._work, name))
        return Due(name, "", False, newest, size, None, (size, newest)) if _passed(age, self._now - newest) else None

    def _ended(self, name: str) -> str:
        """Return the state in which a session has ended, "" when it has not."""
        try:
            state = survey(self._in_spool(name)).settled
        except PermissionError:  # another user's, who has closed it
            return ""
        if state not in _OVER:
            return ""
        if state == "rejected":  # the file that was turned down may hide that the session asks
            try:
                session = self._replayed(name)
            except (JournalDamaged, InvalidStep, OSError):
                return ""
            return state if session.state in ENDED or session.state == "new" else ""
        return state

    def _replayed(self, name: str) -> Session:
        return replay(read_records(os.path.join(self._in_spool(name), names.JOURNAL)))

    def _why_kept(self, name: str, standing: Standing) -> Kept | None:
        if why := standing.needed.get(name):
            return Kept(name, why)
        try:
            children = self._replayed(name).children
        except (JournalDamaged, InvalidStep) as exc:
            return Kept(name, str(exc), trouble=True)
        for kind, kin in [("parent", one) for one in self._above(name)] + [("child", one) for one in children]:
            if os.path.isdir(self._in_spool(kin)) and not self._ended(kin):
                return Kept(name, f"its {kind} {kin} has not ended")
        return None

    def _needs(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the sessions that one which has not ended needs, and what for."""
        for above in self._above(name):
            yield above, f"its child {name} has not ended"
        cwd = named_cwd(self._in_spool(name))
        if cwd and (where := self._worked_in(cwd)):
            yield where, f"session {name} works in its work directory"

    def _above(self, name: str) -> Iterator[str]:
        """Yield a session's parent, also that of a review, and the sessions above it."""
        for _ in range(DEPTH + 1):
            options = options_of(self._in_spool(name))
            parent = options.parent if options is not None else named_parent(self._in_spool(name))
            if parent is None or not names.valid_session_name(parent):
                return
            yield (name := parent)

    def _used(self) -> bool:
        """Return whether a daemon has ever worked here. An empty spool may be one that is not mounted."""
        return os.path.isdir(os.path.join(self._spool, names.DAEMON_DIR))

    def _worked_in(self, path: str) -> str:
        """Return the session in whose work directory a path is, "" when it is in none."""
        below = os.path.relpath(os.path.realpath(path), os.path.realpath(self._work))
        return "" if below.startswith(".") else below.split(os.sep)[0]

    def _in_spool(self, name: str) -> str:
        return os.path.join(self._spool, name)

    def _has_work(self, name: str) -> bool:
        path = os.path.join(self._work, name)
        return os.path.isdir(path) and not os.path.islink(path)


def _changed(directory: str) -> float:
    try:
        return os.stat(directory, follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _passed(age: float | None, since: float) -> bool:
    return age is not None and since >= age


def _processes() -> Iterator[tuple[str, str]]:
    """Yield this user's processes, each its number and its working directory."""
    for number in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if number.isdigit():
            with contextlib.suppress(OSError):
                yield number, os.readlink(f"/proc/{number}/cwd")


def _directories(place: str) -> list[str]:
    """Return the names of the sessions that have a directory here."""
    try:
        with os.scandir(place) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return sorted(name for name in found if names.valid_session_name(name))


def _measure(path: str) -> tuple[int, float]:
    """Return how many bytes of the disk a directory has, and when something in it was changed last.

    What cannot be looked at is left out.
    """
    size, newest, left = 0, 0.0, [path]
    while left:
        try:
            place = left.pop()
            found = os.stat(place, follow_symlinks=False)
            size, newest = size + 512 * found.st_blocks, max(newest, found.st_mtime)
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                        continue
                    info = entry.stat(follow_symlinks=False)
                    size, newest = size + 512 * info.st_blocks, max(newest, info.st_mtime)
        except OSError:
            continue
    return size, newest
