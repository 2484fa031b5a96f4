"""Parents and children: what a child has used is part of what its parent may use, and a parent's stop is its too.

A child's use travels upwards as a bill, from journal to journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from gad.core.limits import Left, Spent
from gad.core.records import ChildBegan, ChildUsed
from gad.core.session import Session
from gad.core.states import ENDED
from gad.daemon.roster import Roster
from gad.spool.kin import DEPTH, left_of, stop_children
from gad.spool.live import Live


@dataclass(frozen=True, slots=True)
class Bill:
    """What a parent's journal is to say of a child: that it is there, and what it has used by now.

    `fresh` says that its conversation has just begun. `told` is given which limit is used up of those whom the bill
    concerns, or an empty text, when all have taken it: `limit` is what those so far have said, and at most `levels`
    more are asked.
    """

    child: str
    began: float
    used: Spent
    fresh: bool
    told: asyncio.Future[str]
    limit: str = ""
    levels: int = DEPTH


class Families:
    """The families of one spool's sessions (a runner's `Kin`). `poke` has a session looked at, soon."""

    def __init__(self, spool: str, roster: Roster, poke: Callable[[str], None]) -> None:
        self._spool = spool
        self._roster = roster
        self._poke = poke
        self._bills: dict[str, list[Bill]] = {}  # by parent: what its journal does not tell of yet
        self._stopping: set[str] = set()  # asked to halt while at work, and their children have not been yet
        self._closed = False

    # -- limits ----------------------------------------------------------------------------------

    async def settle(self, session: Session) -> str:
        """Have the journals of those above say what the session has used; return which limit of theirs is used up."""
        bill = self.report(session) if session.options.sponsor else None
        return await bill.told if bill is not None else ""

    def used_up(self, session: Session) -> str:
        """Return which limit is used up of those above that are at work."""
        above = session.options.sponsor
        for _ in range(DEPTH):
            live = self._roster.live.get(above) if above else None
            if live is None or session.name not in live.session.children:
                return ""
            session, above = live.session, live.session.options.sponsor
            if limit := _used_up(session):
                return limit
        return ""

    def left(self, parent: str) -> Left:
        """Return, in any thread, what a parent's limits still allow."""
        live = self._roster.live.get(parent)
        return live.session.allowance.left if live is not None else left_of(self._spool, parent)

    # -- bills -----------------------------------------------------------------------------------

    def report(self, session: Session, *, fresh: bool = False) -> Bill | None:
        """Tell a session's parent, soon, what the session has used; None when it has no parent."""
        options = session.options
        if options.parent is None:
            return None
        used = _cost(session) if options.sponsor is not None else Spent()
        told = asyncio.get_running_loop().create_future()
        bill = Bill(session.name, session.began, used, fresh, told)
        self._send(options.parent, bill)
        return bill

    def waits(self, name: str) -> bool:
        """Return whether there are bills for a session."""
        return name in self._bills

    def fetch(self, name: str) -> list[Bill]:
        """Return the bills for a session, which whoever fetches them takes or gives back."""
        return self._bills.pop(name, [])

    async def take(self, live: Live, bills: list[Bill], now: Callable[[], float]) -> None:
        """Journal what children report, and pass on to this session's own parent what it comes to with them.

        A child that began before this conversation is not part of it. What cannot be passed on any further is
        answered; what was not taken stays in the list.
        """
        session = live.session
        while bills and session.state != "new" and not live.damage:
            child, began, used, fresh = bills[0].child, bills[0].began, bills[0].used, bills[0].fresh
            born = child not in session.children and (fresh or began >= session.began)
            if (born or fresh) and session.halted:
                await self._stop(session.name, [child], lambda child: False)
            if born:
                await live.append(ChildBegan(now(), child), patient=False)
            if child in session.children and used != session.allowance.charged(child, began):
                await live.append(ChildUsed(now(), child, began, used.tokens, used.usd), patient=False)
            self._pass_on(session, bills.pop(0))

    @staticmethod
    def give_back(bills: Collection[Bill]) -> None:
        """Answer bills that could not be taken: each child reports again when it goes on."""
        for bill in bills:
            _answer(bill, bill.limit)

    def close(self) -> None:
        """Take no more bills."""
        self._closed = True
        for bills in self._bills.values():
            self.give_back(bills)
        self._bills.clear()

    def _send(self, parent: str, bill: Bill) -> None:
        if self._closed:
            _answer(bill, bill.limit)
            return
        self._bills.setdefault(parent, []).append(bill)
        self._poke(parent)

    def _pass_on(self, session: Session, bill: Bill) -> None:
        """Answer a bill that this session has taken, or have its own parent do so."""
        above = session.options.sponsor
        ours = bill.child in session.children
        limit = bill.limit or (_used_up(session) if ours else "")
        if ours and above is not None and bill.levels:
            used, levels = _cost(session), bill.levels - 1
            self._send(above, Bill(session.name, session.began, used, False, bill.told, limit, levels))
        else:
            _answer(bill, limit)

    # -- stops -----------------------------------------------------------------------------------

    def halts(self, name: str) -> None:
        """Take note that a session has been asked to halt while it was at work."""
        self._stopping.add(name)

    def begins(self, name: str) -> None:
        """Take note that a session's conversation is a new one."""
        self._stopping.discard(name)

    def halting(self, name: str) -> bool:
        """Return whether a session has been asked to halt and its children have not been yet."""
        return name in self._stopping

    async def stop_children(self, session: Session) -> None:
        """Ask for the session's children to be halted; return when that is on the disk. Raises OSError."""
        ended = self._roster.states
        await self._stop(session.name, list(session.children), lambda child: ended.get(child) in ENDED)
        self._stopping.discard(session.name)

    async def _stop(self, parent: str, children: Collection[str], ended: Callable[[str], bool]) -> None:
        for child in await asyncio.to_thread(stop_children, self._spool, parent, children, ended):
            self._poke(child)


def _cost(session: Session) -> Spent:
    """Return what a session and its children have used of what they share with those above."""
    total = session.allowance.total
    return Spent(tokens=total.tokens, usd=total.usd)


def _answer(bill: Bill, limit: str) -> None:
    """Answer a bill, unless somebody has done so."""
    if not bill.told.done():
        bill.told.set_result(limit)


def _used_up(session: Session) -> str:
    """Return which limit of a session is used up that its children share, in words for the user of one of those."""
    limit = session.allowance.over_cost()
    of = f"what session {session.name} may use, its children included, is used up"
    return f"{of}: {limit}; a reply to {session.name} allows the same again" if limit else ""
