"""What is under way in the daemon's event loop, and what will be: tasks, and at most one timer a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """The tasks that are under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin some work."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def one_over(self) -> None:
        """Return when one of them is over; there must be one."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def over(self) -> None:
        """Return when all of them are, and those that they have begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)


class Alarms:
    """At most one timer a session; `ring` is told the session's name."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring = ring
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    def __contains__(self, name: str) -> bool:
        return name in self._timers

    def set(self, name: str, seconds: float) -> None:
        """Ring after so many seconds, and not when was said before."""
        self.drop(name)
        if not self._closed:
            self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._rings, name)

    def drop(self, name: str) -> None:
        """Do not ring for a session."""
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def close(self) -> None:
        """Ring no more."""
        self._closed = True
        for name in list(self._timers):
            self.drop(name)

    def _rings(self, name: str) -> None:
        del self._timers[name]
        self._ring(name)
