"""A session that is being worked on: its directory, its journal, its state and its output, kept in step.

Everything that happens goes through `append`: first the journal, then the fold, then what people see.
One asyncio lock a session keeps the runner and the intake from interleaving.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import time
from collections.abc import Callable, Mapping

from gad.core.limits import Left
from gad.core.records import Answered, Checked, Checking, Ended, Record, ToolFinished, ToolStarted
from gad.core.redact import Secrets
from gad.core.report import status_of
from gad.core.session import Session
from gad.errors import JournalDamaged, JournalTooNew
from gad.spool import names
from gad.spool.files import FULL, TROUBLE, Folder, open_own, overwrite, replace
from gad.spool.intake import Door, Intake
from gad.spool.journal import DURABLE, Journal, load
from gad.spool.narrate import narrate
from gad.spool.output import Output
from gad.spool.status import render, timestamp, write_status

log = logging.getLogger(__name__)

TRY_FIRST, TRY_MOST = 0.5, 15.0
"""Seconds until what the machine did not allow is tried again: at first, and at most."""

_HELD = re.compile(r"/proc/self/fd/\d+")
"""A path to an open directory."""
_UNSEEN = (Answered, ToolStarted, ToolFinished, Checking, Checked)
"""Records in the middle of a turn: status.txt is written again when the turn goes on or ends."""


class Live:
    """One open session. `secrets` are kept out of all its files; `seen` is told each record that was folded in.

    `silenced`: the log says already that what happens cannot be shown.
    """

    def __init__(
        self,
        directory: str,
        secrets: Secrets | None = None,
        seen: Callable[[Session, Record], None] = lambda session, record: None,
        *,
        silenced: bool = False,
    ) -> None:
        self.directory = directory
        self.unshown: OSError | None = None  # why the last thing could not be shown, if that can pass
        self.held = ""  # why the daemon does not let the session go on, for status.txt
        self.changed: Callable[[], None] = lambda: None  # told when `trouble` comes or goes
        self._told: Mapping[str, object] = {}  # what status.txt says of trouble
        self.trouble = ""  # what is wrong with the machine, while a record waits to be written
        self._folder = Folder(directory)
        self._pressed = asyncio.Event()  # by what ends the wait for the machine
        self._secrets = secrets or Secrets()
        self._seen = seen
        self.name = os.path.basename(directory)
        self.session = Session()
        self.lock = asyncio.Lock()
        self.damage = ""
        self.torn = 0
        self._journal: Journal | None = None
        self._output: Output | None = None
        self._shown: dict[str, object] = {}
        self._result: str | None = None
        self._silenced = silenced

    @property
    def gone(self) -> bool:
        """Whether the client has removed the directory, or put another in its place."""
        return self._folder.gone

    @property
    def place(self) -> str:
        """A path to the directory itself, whatever has its name by now."""
        return self._folder.place

    def load(self) -> None:
        """Replay the journal. Damage is remembered in `damage`, and the journal is left alone. Raises OSError."""
        try:
            loaded = load(self.path(names.JOURNAL))
        except JournalTooNew as exc:
            self.damage = str(exc).replace(self.place, self.directory)
            return
        except JournalDamaged as exc:
            self.damage = f"the journal is damaged and was left as it is: {exc}".replace(self.place, self.directory)
            return
        self.session, self.torn = loaded.session, loaded.torn

    def path(self, name: str) -> str:
        """Return the path of a file in the session's directory."""
        return os.path.join(self.place, name)

    @property
    def output(self) -> Output:
        """output.txt, opened when first needed."""
        if self._output is None:
            self._output = Output(self.path(names.OUTPUT), self._secrets)
        return self._output

    def journal(self) -> Journal:
        """Return the journal, opened when first needed, and again when a new conversation has begun."""
        if self._journal is not None and not os.path.exists(self._journal.path):
            self._journal.close()
            self._journal = None
        if self._journal is None:
            self._journal = Journal(self.path(names.JOURNAL))
        return self._journal

    async def append(self, record: Record, *, patient: bool = True) -> None:
        """Journal one record without the secrets in it, fold it in, show it.

        While the machine is in trouble (no room, no descriptors, read-only) the session pauses and says so. A `patient`
        caller's record is tried again until it is written or `press` is called. Raises InvalidStep or OSError, with
        nothing written. A cancelled caller does not leave a record half done: it is journalled and folded, or neither.
        """
        pause = TRY_FIRST
        while True:
            try:
                await asyncio.shield(self._append(record))
            except OSError as exc:
                if exc.errno not in TROUBLE or self.gone:
                    raise
                self._pause(exc, pause)
                if not patient or self._pressed.is_set():
                    raise
            else:
                self.go_on()
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pressed.wait(), pause)
            pause = min(2 * pause, TRY_MOST)

    def press(self) -> None:
        """Do not wait for the machine any longer: what cannot be written is not."""
        self._pressed.set()

    def _pause(self, exc: OSError, pause: float) -> None:
        trouble = explain(exc, self.directory)
        if trouble != self.trouble:
            log.error("session %s: paused, tried again until it works: %s", self.name, trouble)
            self.trouble = trouble
            self.changed()
        self._told = {"state": "deferred", "error": trouble, "retry_at": timestamp(time.time() + pause)}
        self.publish()

    def go_on(self) -> None:
        """Take note that what the machine did not allow has worked."""
        if not self.trouble:
            return
        log.warning("session %s: goes on; it was paused: %s", self.name, self.trouble)
        self.trouble, self._told = "", {}
        self._silenced = False
        self.changed()
        self.publish()

    async def _append(self, record: Record) -> None:
        record = self._secrets.clean(record)
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

    async def take_in(
        self, door: Door, left: Callable[[str], Left] = lambda parent: Left(), *, full: bool = False
    ) -> Intake:
        """Take in what clients have left in the directory; what could not be taken is named in `trouble`.

        `left` says, in any thread, what a parent's limits still allow. While it is `full`, no input.txt is touched.
        """
        async with self.lock:
            self._check_place()
            intake = await asyncio.to_thread(
                door.take_in,
                self.place,
                self.session,
                self.journal,
                damaged=bool(self.damage),
                left=left,
                full=full,
                name=self.name,
            )
            if not self.trouble:
                waiting = explain(intake.trouble, self.directory) if intake.trouble is not None else ""
                self._told = {"waiting": waiting} if waiting else {}
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
            self._seen(self.session, record)
        for record in records:
            try:
                narrate(record, self.session, self.output)
            except OSError as exc:
                self._cannot_show(exc)
        if any(isinstance(record, Ended) and record.state == "done" for record in records):
            try:
                self._write_result()
            except OSError as exc:
                self._cannot_show(exc)
        if any(not isinstance(record, _UNSEEN) for record in records):
            self.publish()

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
        if exc.errno in TROUBLE:
            self.unshown = exc
        if not self._silenced:
            self._silenced = True
            said = explain(exc, self.directory)
            log.error("session %s: what happens cannot be shown in its directory: %s", self.name, said)

    def _write_result(self) -> None:
        result = self.session.answer.rstrip("\n") + "\n"
        if self._result is None:
            self._result = self._written_result(len(result))
        if result != self._result:
            replace(self.place, names.RESULT, result, in_spool=True)
            self._result = result

    def _written_result(self, about: int) -> str | None:
        """Return what result.txt holds, as far as it can be what is to be written."""
        try:
            with open(open_own(self.path(names.RESULT), os.O_RDONLY), "rb") as file:
                return file.read(4 * about + 1).decode("utf-8", "replace")
        except OSError:
            return None

    def publish(self) -> None:
        """Write result.txt and status.txt as the state demands, in that order, where they say something else yet."""
        self.unshown = None
        try:
            if self.damage:
                self._show({"state": "failed", "error": self.damage})
                return
            if self.session.state == "done":
                self._write_result()
            if self.session.state == "new" and not self.session.rejection:
                if self._told:
                    self._show({"state": "queued", **self._told})
                return
            self._show({**status_of(self.session), **({"waiting": self.held} if self.held else {}), **self._told})
        except OSError as exc:
            self._cannot_show(exc)

    def _show(self, status: dict[str, object]) -> None:
        if status == self._shown:
            return
        clean = self._secrets.clean(status)
        try:
            write_status(self.place, clean)
        except OSError as exc:
            if exc.errno not in FULL or not overwrite(self.place, names.STATUS, render(clean)):
                raise
        self._shown = status

    def close(self) -> None:
        """Close the files."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._output is not None:
            self._output.close()
            self._output = None
        self._folder.close()


def explain(exc: OSError, directory: str = "") -> str:
    """Return what is wrong with the machine, and how to mend it, for people.

    `directory` is the session's, which they know by its name and not by the descriptor that held it open.
    """
    mend = _MENDS.get(exc.errno or 0, "")
    said = _HELD.sub(lambda _: directory, str(exc)) if directory else str(exc)
    return f"{said}; {mend}" if mend else said


_MENDS = {
    errno.ENOSPC: "free some space on the disk of the home",
    errno.EDQUOT: "free some space, or raise the disk quota of the daemon's user",
    errno.EROFS: "the file system is read-only: look into the kernel's log, then remount it",
    errno.EMFILE: "raise the daemon's limit of open files (LimitNOFILE=), or lower `sessions` in gad.yaml",
    errno.ENFILE: "raise fs.file-max, the machine's limit of open files",
    errno.EACCES: "let the daemon's user write there: in a group's spool, chmod g+rwxs",
}
