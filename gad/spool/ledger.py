"""What is used by the day: US dollars, and what each user has begun and spent; a restart does not forget it."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable

from gad.core.quota import Quota
from gad.core.session import Session
from gad.spool import names
from gad.spool.claim import user_name
from gad.spool.files import open_regular

log = logging.getLogger(__name__)


class Ledger:
    """One spool's use of the day, in an append-only file. A day is the local calendar day."""

    def __init__(self, spool: str) -> None:
        self._path = os.path.join(spool, names.DAEMON_DIR, "spend.jsonl")
        self._unwritten = b""  # lines that the disk had no room for
        self._day = ""
        self._usd: defaultdict[int | None, float] = defaultdict(float)  # by user; None is all of them
        self._begun: dict[tuple[str, float], int] = {}  # conversations, by name and beginning: whose they are

    def spent_today(self, user: int | None = None) -> float:
        """Return today's spend so far: a user's, or of all."""
        self._turn_page()
        return self._usd[user]

    def begun_today(self, user: int) -> int:
        """Return how many conversations of a user have got to work today for the first time."""
        self._turn_page()
        return sum(1 for one in self._begun.values() if one == user)

    def spend(self, session: str, usd: float, user: int | None = None) -> None:
        """Add one request's cost. A disk that does not take it is no reason to lose an answer that is paid for."""
        self._turn_page()
        self._add({"session": session, "usd": usd, "user": user})

    def begin(self, session: str, began: float, user: int) -> None:
        """Count a conversation, once."""
        self._turn_page()
        if (session, began) not in self._begun:
            self._add({"session": session, "began": began, "user": user})

    def _add(self, entry: dict[str, object]) -> None:
        self._count(entry)
        line = json.dumps({"day": self._day} | entry)
        self._unwritten += line.encode() + b"\n"
        try:
            self._write()
        except OSError as exc:
            log.error("%s could not be written to %s, tried again with the next: %s", line, self._path, exc)

    def _write(self) -> None:
        """Write what has not been, all or nothing, as lines of their own."""
        fd = open_regular(self._path, os.O_APPEND | os.O_CREAT | os.O_RDWR)
        try:
            size = os.fstat(fd).st_size
            torn = size and os.pread(fd, 1, size - 1) != b"\n"  # by a crash
            lines = b"\n" * bool(torn) + self._unwritten
            try:
                if os.write(fd, lines) != len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            except OSError:
                os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)
        self._unwritten = b""

    def _count(self, entry: dict[str, object]) -> None:
        user, usd, began = entry.get("user"), entry.get("usd", 0.0), entry.get("began")
        if isinstance(usd, int | float):
            self._usd[None] += usd
            if isinstance(user, int):
                self._usd[user] += usd
        if isinstance(began, float) and isinstance(user, int):
            self._begun[str(entry.get("session")), began] = user

    def _turn_page(self) -> None:
        today = _today()
        if today == self._day:
            return
        self._day = today
        self._usd.clear()
        self._begun.clear()
        try:
            with open(open_regular(self._path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        entry = json.loads(line)
                    except ValueError:  # torn by a crash; the journals hold the truth
                        continue
                    if isinstance(entry, dict) and entry.get("day") == today:
                        self._count(entry)
        except FileNotFoundError:
            return
        except OSError as exc:
            log.error("what was spent today cannot be read: %s", exc)


class Quotas:
    """What each user may still have. `masters` are the ids of users without any limit."""

    def __init__(self, ledger: Ledger, quota: Quota, masters: frozenset[int], name: Callable[[int], str] = user_name):
        self.quota = quota
        self._ledger = ledger
        self._masters = masters
        self._name = name

    def payer(self, session: Session) -> int | None:
        """Return the user whose quota a session counts against; None when there is none."""
        return session.owner if session.owner not in self._masters else None

    def at_work(self, user: int, count: int) -> str:
        """Return why a user who has so many sessions at work must wait with the next; empty when not."""
        return self.quota.over_sessions(self._name(user), count)

    def spent(self, session: Session) -> str:
        """Return why a session may cost nothing more today; empty when it may."""
        user = self.payer(session)
        if user is None or self.quota.usd_per_day is None:
            return ""
        return self.quota.over_usd(self._name(user), self._ledger.spent_today(user))

    def today(self, session: Session) -> str:
        """Return why a session may not get to work today; empty when it may."""
        user = self.payer(session)
        if user is None:
            return ""
        if self._first(session) and (over := self.quota.over_day(self._name(user), self._ledger.begun_today(user))):
            return over
        return self.spent(session)

    def begins(self, session: Session) -> None:
        """Take note that a session gets to work."""
        user = self.payer(session)
        if user is not None and self._first(session) and not session.stop_requested:
            self._ledger.begin(session.name, session.began, user)

    @staticmethod
    def _first(session: Session) -> bool:
        """Return whether a conversation has not been at work: a child is part of what its parent has begun."""
        return session.round == 1 and not session.allowance.spent.turns and session.options.parent is None


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def midnight(now: float) -> float:
    """Return when the local day ends, in seconds since the epoch."""
    day = time.localtime(now)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday + 1, 0, 0, 0, 0, 0, -1))
