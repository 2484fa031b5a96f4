"""Who may be at work: so many sessions in all, and so many children of each session that is at work itself.

A child of a session at work takes no place of the former: its parent may be waiting for it. A child whose parent is
not at work is a session like any other. Of a user who has a quota only so many sessions have a place at once.
"""

from __future__ import annotations

import heapq
from collections import Counter

_Line = tuple[str, int | None]
_Waits = tuple[int, float, str]


class Admission:
    """The queue, and who has left it for a place.

    `slots` is for all sessions, `children` for those of one parent, and `each` for those of one user.
    """

    def __init__(self, slots: int, children: int, each: int | None = None) -> None:
        self._slots = slots
        self._children = children
        self._each = each
        # By parent and user; those without one under "" or None.
        self._queues: dict[_Line, list[_Waits]] = {}
        self._queued: dict[str, tuple[_Line, _Waits]] = {}  # who still waits, and where
        self._placed: dict[str, str] = {}  # who is at work, and for which parent
        self._users: dict[str, int | None] = {}  # the users of those who are at work
        self._of: Counter[str] = Counter()  # how many of each parent's children are at work

    def resize(self, slots: int, children: int, each: int | None = None) -> None:
        """Have another number of places; who has one keeps it."""
        self._slots = slots
        self._children = children
        self._each = each

    def at_work(self, user: int) -> int:
        """Return how many of a user's sessions have a place of their own."""
        return sum(
            1 for name, parent in self._placed.items() if self._users[name] == user and parent not in self._placed
        )

    def queued(self, name: str) -> bool:
        """Return whether a session waits for a place."""
        return name in self._queued

    def oldest(self) -> float | None:
        """Return since when the session has waited that has waited longest; None when none does."""
        return min((since for _, (_, since, _) in self._queued.values()), default=None)

    def enqueue(self, name: str, parent: str | None, *, priority: int, since: float, user: int | None = None) -> None:
        """Let a session wait; among those that may come next the highest priority does, then the oldest.

        One that waits already for the same parent keeps its place in the queue.
        """
        line = (parent or "", user)
        if name not in self._queued or self._queued[name][0] != line:
            waits = (-priority, since, name)
            self._queued[name] = line, waits
            heapq.heappush(self._queues.setdefault(line, []), waits)

    def take(self) -> str | None:
        """Give the next session a place and return its name; None when nobody can have one."""
        if not self._queued:
            return None
        full = self._taken() >= self._slots
        chosen: list[_Waits] | None = None
        for line, queue in list(self._queues.items()):
            while queue and self._queued.get(queue[0][2]) != (line, queue[0]):  # it waits here no longer
                heapq.heappop(queue)
            if not queue:
                del self._queues[line]
                continue
            parent, user = line
            if parent in self._placed:
                may = self._of[parent] < self._children
            else:
                may = not full and (self._each is None or user is None or self.at_work(user) < self._each)
            if may and (chosen is None or queue[0] < chosen[0]):
                chosen = queue
        if chosen is None:
            return None
        name = heapq.heappop(chosen)[2]
        self.place(name, *self._queued[name][0])
        return name

    def place(self, name: str, parent: str | None, user: int | None = None) -> None:
        """Give a session a place whether there is one or not: ending one, for example, does not wait."""
        self._queued.pop(name, None)
        if name not in self._placed:
            self._placed[name] = parent or ""
            self._users[name] = user
            self._of[parent or ""] += 1

    def leave(self, name: str) -> None:
        """Take a session's place back, if it has one."""
        parent = self._placed.pop(name, None)
        self._users.pop(name, None)
        if parent is not None:
            self._of[parent] -= 1
            if not self._of[parent]:
                del self._of[parent]

    def _taken(self) -> int:
        """Return how many of the slots are taken: children of those at work take none."""
        return len(self._placed) - sum(count for parent, count in self._of.items() if parent in self._placed)
