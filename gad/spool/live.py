"""A session that is being worked on: its directory, its journal, its state and its output, kept in step.

Everything that happens goes through `append`: first the journal, then the fold, then what people see.
One asyncio lock a session keeps the runner and the intake from interleaving.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from gad.core.records import Answered, Checked, Record, ToolFinished, ToolStarted
from gad.core.report import status_of
from gad.core.session import Session
from gad.errors import JournalDamaged
from gad.spool import names
from gad.spool.intake import Door, Intake
from gad.spool.journal import DURABLE, Journal, load
from gad.spool.narrate import narrate
from gad.spool.output import Output, replace
from gad.spool.status import write_status

_UNSEEN = (Answered, ToolStarted, ToolFinished, Checked)
"""Records in the middle of a turn: status.txt is written again when the turn goes on or ends."""


class Live:
    """One open session."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.name = os.path.basename(directory)
        self.session = Session()
        self.lock = asyncio.Lock()
        self.damage = ""
        self.torn = 0
        self._journal: Journal | None = None
        self._output: Output | None = None
        self._shown: dict[str, object] = {}
        self._result: str | None = None

    def load(self) -> None:
        """Replay the journal. Damage is remembered in `damage`, and the journal is left alone."""
        try:
            loaded = load(self.path(names.JOURNAL))
        except (JournalDamaged, OSError) as exc:
            self.damage = f"the journal is damaged and was left as it is: {exc}"
            return
        self.session, self.torn = loaded.session, loaded.torn

    def path(self, name: str) -> str:
        """Return the path of a file in the session's directory."""
        return os.path.join(self.directory, name)

    @property
    def output(self) -> Output:
        """output.txt, opened when first needed."""
        if self._output is None:
            self._output = Output(self.path(names.OUTPUT))
        return self._output

    def journal(self) -> Journal:
        """Return the journal, opened when first needed, and again when a new conversation has begun."""
        if self._journal is not None and not os.path.exists(self._journal.path):
            self._journal.close()
            self._journal = None
        if self._journal is None:
            self._journal = Journal(self.path(names.JOURNAL))
        return self._journal

    async def append(self, record: Record) -> None:
        """Journal one record, fold it in, show it. Raises OSError when it could not be written.

        A cancelled caller does not leave a record half done: it is journalled and folded, or neither.
        """
        if isinstance(record, DURABLE) or self.lock.locked():
            await asyncio.shield(self._append(record))
        else:  # nothing is waited for, so nobody can come between
            self.journal().append(record)
            self._took_place(record)

    async def _append(self, record: Record) -> None:
        async with self.lock:
            if isinstance(record, DURABLE):  # the disk may take its time; the other sessions go on meanwhile
                await asyncio.to_thread(self.journal().append, record)
            else:
                self.journal().append(record)
            self._took_place(record)

    async def take_in(self, door: Door) -> Intake:
        """Take in what clients have left in the directory."""
        async with self.lock:
            intake = await asyncio.to_thread(
                door.take_in, self.directory, self.session, self.journal, damaged=bool(self.damage)
            )
            if intake.fresh:
                self._begin_anew()
            self._took_place(*intake.records)
            return intake

    def _begin_anew(self) -> None:
        self.session = Session()
        self.damage = ""
        self._result = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def _took_place(self, *records: Record) -> None:
        for record in records:
            self.session.record(record)
            narrate(record, self.session, self.output)
        if any(not isinstance(record, _UNSEEN) for record in records):
            self.publish()

    def publish(self, extra: Iterable[tuple[str, object]] = ()) -> None:
        """Write result.txt and status.txt as the state demands, in that order, where they say something else yet."""
        if self.damage:
            self._show({"state": "failed", "error": self.damage})
            return
        if self.session.state == "done" and self._result != (result := self.session.answer.rstrip("\n") + "\n"):
            replace(self.directory, names.RESULT, result)
            self._result = result
        if self.session.state != "new" or self.session.rejection:
            self._show(status_of(self.session) | dict(extra))

    def _show(self, status: dict[str, object]) -> None:
        if status != self._shown:
            write_status(self.directory, status)
            self._shown = status

    def close(self) -> None:
        """Close the files."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._output is not None:
            self._output.close()
            self._output = None
