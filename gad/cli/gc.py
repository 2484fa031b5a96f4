"""gad gc, and the same once an hour beside the daemon: what `retain` of gad.yaml does not keep goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gad.cli import Place, exits
from gad.errors import GadError
from gad.spool.claim import user_name
from gad.spool.space import size
from gad.spool.status import timestamp

if TYPE_CHECKING:
    from pathlib import Path

    from gad.config import Config
    from gad.spool.retain import Due, Kept, Retention

log = logging.getLogger(__name__)

HOUR = 3600.0
REST = 3.0
"""How long the daemon rests after each session, as a multiple of the time that it took: one second at most."""
_BOOTED = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def retention(config: Config, now: float) -> Retention:
    """Return what is kept of a home."""
    from gad.memory.archive import Archive
    from gad.memory.vouch import Vouch
    from gad.spool.retain import Ages, Retention

    ages = Ages(config.retain.sessions, config.retain.work)
    archived = Vouch(Archive(str(config.memory_dir)))
    awaited = partial(_awaited, config.home)
    return Retention(str(config.spool_dir), str(config.work_dir), ages, archived, now, awaited)


def _awaited(home: Path) -> dict[str, str]:
    """Return the sessions whose end somebody has yet to take note of, who needs them for that."""
    from gad.cli.explore_work import Explorer
    from gad.triggers.instances import SCHEDULES, STATE_DIR

    found: dict[str, str] = {}
    with contextlib.suppress(GadError, OSError):
        for task, directory in Explorer(home).unfiled():
            found[directory.name] = (
                f"its report on task {task.id} has not been filed: gad explore file {directory.name}"
            )
    triggers = home / "triggers"
    for file in sorted((triggers / STATE_DIR).glob("*.json")):
        plugin = any((triggers / f"{file.stem}{kind}").exists() for kind in (".py", ".yaml"))
        if plugin or (file.stem == "scheduled" and (triggers / SCHEDULES).is_dir()):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(file.read_bytes())
                for session in (*record["open"], *(result["session"] for result in record["rested"])):
                    found[session] = f"the trigger {file.stem} has not been told of its end"
    return found


@dataclass(slots=True)
class Found:
    """What a go has found: what went, or would go, and what stays though it is old enough."""

    gone: list[Due] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Return how many bytes of the disk that was, or would be."""
        return sum(due.bytes for due in self.gone)


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@click.pass_obj
def gc_command(place: Place, dry_run: bool, as_json: bool) -> None:
    """Put away what `retain` in gad.yaml does not keep: ended sessions, and what they worked on.

    A running daemon does the same once an hour. A session's journal is in memory's archive before the session goes.
    Exits with 1 when something could not be put away that should be.
    """
    config = place.config()
    if not dry_run and os.geteuid() == 0 != (owner := config.home.stat().st_uid):
        who = user_name(owner)
        raise GadError(
            f"{config.home} belongs to {who}, and what root writes there could shut the daemon out; run this as that "
            f"user: sudo -u {who} gad --home {config.home} gc"
        )
    keep = retention(config, time.time())
    found = Found()
    if not dry_run:
        found.trouble += keep.recover()
    standing = keep.look()
    for name in keep.candidates(standing):
        take(keep.due(name, standing), found, (lambda due: None) if dry_run else keep.put_away)
    if as_json:
        click.echo(json.dumps(_json(found, dry_run), ensure_ascii=False))
    else:
        for line in _lines(found, dry_run, config):
            click.echo(line)
    sys.exit(exits.ERROR if found.trouble or any(one.trouble for one in found.kept) else exits.DONE)


def take(due: Due | Kept | None, found: Found, put_away: Callable[[Due], Kept | None]) -> None:
    """Let one session go, if it is due, and note what came of it."""
    from gad.spool.retain import Due

    if isinstance(due, Due):
        kept = put_away(due)
        if kept is None:
            found.gone.append(due)
        due = kept
    if due is not None:
        found.kept.append(due)


def _json(found: Found, dry_run: bool) -> dict[str, Any]:
    gone = [
        {
            "session": due.session,
            "state": due.state or None,
            "what": "session" if due.whole else "work",
            "untouched_since": timestamp(due.touched),
            "bytes": due.bytes,
        }
        for due in found.gone
    ]
    kept = [{"session": one.session, "why": one.why, "trouble": one.trouble} for one in found.kept]
    return {"dry_run": dry_run, "gone": gone, "kept": kept, "trouble": found.trouble, "bytes": found.bytes}


def _lines(found: Found, dry_run: bool, config: Config) -> list[str]:
    put = "would put away" if dry_run else "put away"
    lines = []
    for due in found.gone:
        what = due.session if due.whole else f"work/{due.session}"
        state = due.state or "its session is gone"
        lines.append(f"{put}: {what} ({state}, untouched since {timestamp(due.touched)}), {size(due.bytes)}")
    lines += [f"stays: {one.session}: {one.why}" for one in found.kept]
    lines += [f"trouble: {one}" for one in found.trouble]
    if config.retain.sessions is None and config.retain.work is None:
        lines.append("everything is kept: retain is not set in gad.yaml (retain: {sessions: 30d, work: 7d})")
    elif not found.gone:
        lines.append("nothing to do")
    else:
        lines.append(f"{size(found.bytes)} of {len(found.gone)} {'session' if len(found.gone) == 1 else 'sessions'}")
        lines += ["nothing was changed; gad gc does it"] if dry_run else []
    return lines


class Hourly:
    """Does it once an hour while the daemon runs, a session at a time and in a thread, so that no other session waits.

    `current` gives the settings in force. `sleep`, `now` and `booted` are the clocks: both of the latter are in
    seconds. After the wall clock was set by more than an hour, an hour passes before anything is taken for old.
    """

    def __init__(
        self,
        current: Callable[[], Config],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
        booted: Callable[[], float] = _BOOTED,
    ) -> None:
        self._current = current
        self._sleep = sleep
        self._now = now
        self._booted = booted
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._go: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, in the daemon's event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Leave; what is half done is finished by the next go."""
        self._closing.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._go is not None:
            await asyncio.gather(self._go, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            before = self._now() - self._booted()
            await self._sleep(HOUR)
            if abs(self._now() - self._booted() - before) > HOUR:
                log.warning("the clock was set, so nothing is put away for an hour")
                continue
            self._go = asyncio.get_running_loop().create_task(self._once())
            await asyncio.shield(self._go)  # a thread cannot be cancelled: `close` waits for the step under way

    async def _once(self) -> None:
        config = self._current()
        if config.retain.sessions is None and config.retain.work is None:
            return
        found = Found()
        try:
            await self._work(retention(config, self._now()), found)
        except Exception:  # the daemon goes on without it
            log.exception("old sessions could not be put away, trying again in an hour")
        for one in [f"session {one.session}: not put away: {one.why}" for one in found.kept if one.trouble]:
            log.warning("%s", one)
        for trouble in found.trouble:
            log.warning("putting old sessions away: %s", trouble)
        if found.gone:
            log.info("put away %d sessions or work directories, %s", len(found.gone), size(found.bytes))

    async def _work(self, keep: Retention, found: Found) -> None:
        stopping = self._closing.is_set
        found.trouble += await asyncio.to_thread(keep.recover, stopping)
        standing = await asyncio.to_thread(keep.look)
        candidates = await asyncio.to_thread(keep.candidates, standing)

        def one(name: str) -> None:
            take(keep.due(name, standing), found, partial(keep.put_away, stopping=stopping))

        for name in candidates:
            if stopping():
                return
            began = time.monotonic()
            await asyncio.to_thread(one, name)
            with contextlib.suppress(TimeoutError):  # those who work need the disk more
                await asyncio.wait_for(self._closing.wait(), min(1.0, REST * (time.monotonic() - began)))
