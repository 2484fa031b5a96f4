"""The sessions that are a daemon's: which there are, the state of each, and those that are open."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from gad.spool import names
from gad.spool.intake import survey
from gad.spool.kin import ancestors, descendants, named_parent
from gad.spool.live import Live

log = logging.getLogger(__name__)


class Roster:
    """All sessions of a spool, or `only` one and those below it. `changed` is told when a state is another."""

    def __init__(self, spool: str, only: str | None, changed: Callable[[], None]) -> None:
        self.only = only
        self.states: dict[str, str] = {}
        self.live: dict[str, Live] = {}
        self._spool = spool
        self._changed = changed
        self._family = set() if only is None else {only} | descendants(spool, only)
        self._made = time.time()

    def directory(self, name: str) -> str:
        """Return a session's directory."""
        return os.path.join(self._spool, name)

    def survey(self) -> dict[str, str]:
        """Return, in any thread, the sessions that there are, each with its state when it needs nothing, else empty."""
        with os.scandir(self._spool) as entries:
            found = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        chosen = [entry.name for entry in found if names.valid_session_name(entry.name)]
        if self.only is not None:  # a child of it is new
            recent = {entry.name for entry in found if _changed_at(entry) >= self._made}
            chosen = [name for name in chosen if name in self._family or (name in recent and self.concerned(name))]
        settled = {name: self._settled(name) for name in chosen}
        return settled if self.only is None else settled | {self.only: ""}

    def _settled(self, name: str) -> str:
        try:
            return survey(self.directory(name)).settled
        except OSError:  # one that cannot be opened now: the look at it says why
            return ""

    def concerned(self, name: str) -> bool:
        """Return whether a session is this daemon's."""
        if self.only is None or name in self._family:
            return True
        above = named_parent(self.directory(name))
        if above is None or self.only not in ancestors(self._spool, above):
            return False
        self._family.add(name)
        return True

    def set_state(self, name: str, state: str) -> None:
        """Take note of a session's state."""
        if self.states.get(name) != state and state != "new":
            self.states[name] = state
            log.info("session %s: %s", name, state)
            self._changed()

    def drop(self, live: Live) -> None:
        """Let go of a session that waits: the journal has all of it."""
        live.close()
        self.live.pop(live.name, None)

    def forget(self, name: str) -> None:
        """Let go of a session whose directory has gone."""
        if (live := self.live.get(name)) is not None:
            self.drop(live)
        self.states.pop(name, None)
        self._changed()


def _changed_at(entry: os.DirEntry[str]) -> float:
    """Return when a directory was changed; long ago when it has gone meanwhile."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0
