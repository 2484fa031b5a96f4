"""A session that is being worked on: its directory, its journal, its state and its output, kept in step.

Everything that happens goes through `append`: first the journal, then the fold, then what people see.
One asyncio lock a session keeps the runner and the intake from interleaving.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable

from gad.core.limits import Left
from gad.core.records import Answered, Checked, Checking, Ended, Record, ToolFinished, ToolStarted
from gad.core.report import status_of
from gad.core.session import Session
from gad.errors import JournalDamaged
from gad.spool import names
from gad.spool.files import replace
from gad.spool.intake import Door, Intake
from gad.spool.journal import DURABLE, Journal, load
from gad.spool.narrate import narrate
from gad.spool.output import Output
from gad.spool.status import write_status

log = logging.getLogger(__name__)

_UNSEEN = (Answered, ToolStarted, ToolFinished, Checking, Checked)
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
        self._identity = _identity(directory)
        self._silenced = False

    @property
    def gone(self) -> bool:
        """Whether the client has removed the directory, or put another in its place."""
        try:
            return _identity(self.directory) != self._identity
        except OSError:
            return True

    def load(self) -> None:
        """Replay the journal. Damage is remembered in `damage`, and the journal is left alone. Raises OSError."""
        try:
            loaded = load(self.path(names.JOURNAL))
        except JournalDamaged as exc:
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
        """Journal one record, fold it in, show it.

        Raises InvalidStep or OSError, with nothing written. A cancelled caller does not leave a record half
        done: it is journalled and folded, or neither.
        """
        await asyncio.shield(self._append(record))

    async def _append(self, record: Record) -> None:
        async with self.lock:
            self._check_place()
            self.session.admit(record)
            if isinstance(record, DURABLE):  # the disk may take its time; the other sessions go on meanwhile
                await asyncio.to_thread(self.journal().append, record)
            else:
                self.journal().append(record)
            self._took_place(record)

    async def quiet(self) -> None:
        """Return when no record is being written."""
        async with self.lock:
            pass

    async def take_in(self, door: Door, left: Callable[[str], Left] = lambda parent: Left()) -> Intake:
        """Take in what clients have left in the directory; what could not be taken is named in `trouble`.

        `left` says, in any thread, what a parent's limits still allow.
        """
        async with self.lock:
            self._check_place()
            intake = await asyncio.to_thread(
                door.take_in, self.directory, self.session, self.journal, damaged=bool(self.damage), left=left
            )
            if intake.fresh:
                self._begin_anew()
            self._took_place(*intake.records)
            return intake

    def _check_place(self) -> None:
        if self.gone:
            raise FileNotFoundError(errno.ENOENT, "the session's directory has gone", self.directory)

    def _begin_anew(self) -> None:
        self.session = Session()
        self.damage = ""
        self._result = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def _took_place(self, *records: Record) -> None:
        """Fold records in, all of them, then show them; what cannot be shown is no reason to forget what happened."""
        for record in records:
            self.session.record(record)
        try:
            for record in records:
                narrate(record, self.session, self.output)
                if isinstance(record, Ended) and record.state == "done":
                    self._write_result()
            if any(not isinstance(record, _UNSEEN) for record in records):
                self.publish()
        except OSError as exc:
            self._cannot_show(exc)

    def emit(self, text: str) -> None:
        """Append streamed text to output.txt, as it is."""
        try:
            self.output.write(text)
        except OSError as exc:
            self._cannot_show(exc)

    def say(self, text: str) -> None:
        """Append text to output.txt as lines of its own."""
        try:
            self.output.line(text)
        except OSError as exc:
            self._cannot_show(exc)

    def _cannot_show(self, exc: OSError) -> None:
        if not self._silenced:
            self._silenced = True
            log.error("session %s: what happens cannot be shown in its directory: %s", self.name, exc)

    def _write_result(self) -> None:
        result = self.session.answer.rstrip("\n") + "\n"
        if result != self._result:
            replace(self.directory, names.RESULT, result)
            self._result = result

    def publish(self) -> None:
        """Write result.txt and status.txt as the state demands, in that order, where they say something else yet."""
        try:
            if self.damage:
                self._show({"state": "failed", "error": self.damage})
                return
            if self.session.state == "done":
                self._write_result()
            if self.session.state != "new" or self.session.rejection:
                self._show(status_of(self.session))
        except OSError as exc:
            self._cannot_show(exc)

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


def _identity(directory: str) -> tuple[int, int]:
    found = os.stat(directory, follow_symlinks=False)
    return found.st_dev, found.st_ino
