"""The host: runs the triggers of one home beside its daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gad.spool import drop
from gad.triggers import record
from gad.triggers.account import Site
from gad.triggers.instances import STATE_DIR, Finder, Parse
from gad.triggers.process import end_abandoned, on_disk
from gad.triggers.sessions import Door
from gad.triggers.supervise import Supervisor

log = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks at the files of triggers and at the sessions that they have made."""


class Host:
    """Runs each instance that `triggers/` holds, and follows what is changed there.

    `parse` reads a yaml file of triggers; `door` hands sessions in. `environment` is what plugins see of the daemon's
    environment. `now` gives seconds since the epoch; `look` is in seconds. `polling`: no file events.
    """

    def __init__(
        self,
        home: str,
        *,
        parse: Parse,
        door: Door,
        environment: Mapping[str, str],
        now: Callable[[], float] = time.time,
        look: float = LOOK,
        polling: bool = False,
    ) -> None:
        self._finder = Finder(home, parse)
        state = os.path.join(self._finder.directory, STATE_DIR)
        self._site = Site(home, state, door, {**environment, "GAD_HOME": home}, now, look, polling)
        self._supervisors: dict[str, Supervisor] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End every child and stop. What was promised has been done, or is written down for the next host."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        found = await asyncio.gather(*(one.close() for one in self._supervisors.values()), return_exceptions=True)
        for trouble in found:
            if isinstance(trouble, BaseException):
                log.error("a trigger could not be ended: %s", trouble)
        self._supervisors.clear()

    async def _run(self) -> None:
        prepared = False
        said = ""
        while True:
            try:
                if not prepared:
                    await on_disk(self._prepare)
                    prepared = True
                await self._look()
                said = ""
            except OSError as exc:
                if str(exc) != said:
                    log.error("triggers cannot be looked at: %s", exc)
                said = str(exc)
            except Exception:
                log.exception("looking at the triggers failed")
            await asyncio.sleep(self._site.look)

    def _prepare(self) -> None:
        """Remove what a host that was killed has left."""
        os.makedirs(self._site.state, mode=0o700, exist_ok=True)
        if ended := end_abandoned(self._site.home):
            log.warning("ended %d processes of triggers that an earlier daemon had left", ended)
        record.remove_unfinished(self._site.state)
        drop.remove_unfinished(Path(self._site.door.spool))

    async def _look(self) -> None:
        found = await on_disk(self._finder.find)
        for name in [name for name in self._supervisors if name not in found]:
            await self._supervisors.pop(name).close()
            log.info("trigger %s: its files are gone", name)
        for name, one in found.items():
            if name in self._supervisors:
                self._supervisors[name].want(one)
            else:
                self._supervisors[name] = Supervisor(one, self._site)
