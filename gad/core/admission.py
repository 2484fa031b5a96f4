"""Who may be at work: so many sessions in all, and so many children of each session that is at work itself.

A child of a session at work takes no place of the former: its parent may be waiting for it. A child whose parent is
not at work is a session like any other.
"""

from __future__ import annotations

import heapq
from collections import Counter


class Admission:
    """The queue, and who has left it for a place. `slots` is for all sessions, `children` for those of one parent."""

    def __init__(self, slots: int, children: int) -> None:
        self._slots = slots
        self._children = children
        self._queues: dict[str, list[tuple[int, float, str]]] = {}  # by parent; those without one under ""
        self._queued: dict[str, tuple[str, tuple[int, float, str]]] = {}  # who still waits, and where
        self._placed: dict[str, str] = {}  # who is at work, and for which parent
        self._of: Counter[str] = Counter()  # how many of each parent's children are at work

    def queued(self, name: str) -> bool:
        """Return whether a session waits for a place."""
        return name in self._queued

    def enqueue(self, name: str, parent: str | None, *, priority: int, since: float) -> None:
        """Let a session wait; among those that may come next the highest priority does, then the oldest.

        One that waits already for the same parent keeps its place in the queue.
        """
        above = parent or ""
        if name not in self._queued or self._queued[name][0] != above:
            waits = (-priority, since, name)
            self._queued[name] = above, waits
            heapq.heappush(self._queues.setdefault(above, []), waits)

    def take(self) -> str | None:
        """Give the next session a place and return its name; None when nobody can have one."""
        if not self._queued:
            return None
        full = self._taken() >= self._slots
        chosen: list[tuple[int, float, str]] | None = None
        for parent, queue in list(self._queues.items()):
            while queue and self._queued.get(queue[0][2]) != (parent, queue[0]):  # it waits here no longer
                heapq.heappop(queue)
            if not queue:
                del self._queues[parent]
                continue
            may = self._of[parent] < self._children if parent in self._placed else not full
            if may and (chosen is None or queue[0] < chosen[0]):
                chosen = queue
        if chosen is None:
            return None
        name = heapq.heappop(chosen)[2]
        self.place(name, self._queued[name][0])
        return name

    def place(self, name: str, parent: str | None) -> None:
        """Give a session a place whether there is one or not: ending one, for example, does not wait."""
        self._queued.pop(name, None)
        if name not in self._placed:
            self._placed[name] = parent or ""
            self._of[parent or ""] += 1

    def leave(self, name: str) -> None:
        """Take a session's place back, if it has one."""
        parent = self._placed.pop(name, None)
        if parent is not None:
            self._of[parent] -= 1
            if not self._of[parent]:
                del self._of[parent]

    def _taken(self) -> int:
        """Return how many of the slots are taken: children of those at work take none."""
        return len(self._placed) - sum(count for parent, count in self._of.items() if parent in self._placed)
