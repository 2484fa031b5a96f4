"""What has changed among the files that a plugin's WATCH names.

inotify only says that it is time to look; what has changed is found by comparing what lies there with what lay there
before. So nothing is lost with an event that is, and the halves of renames need not be paired. Where inotify does
not work, the look comes at intervals.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gad.spool.watch import NETWORK, file_system
from gad.triggers.files import Mark, Pattern
from gad.triggers.plugin import Event

if TYPE_CHECKING:
    from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

log = logging.getLogger(__name__)

FULL_LOOK = 30.0
"""Seconds between two looks while events come."""
POLL = 1.0
"""The same while they do not."""
BURST = 0.1
"""Seconds between two looks at least."""


class FileWatch:
    """Tells of the files that patterns name. `wake` is called, in a thread of its own, when there may be news.

    This stands on the library's inotify thread alone, as the spool's watch does, which says why.
    """

    def __init__(self, patterns: Sequence[str], home: str, wake: Callable[[], None], *, polling: bool = False) -> None:
        self.problem = "polling is configured" if polling else ""
        self._patterns = [Pattern(one, home) for one in patterns]
        self._wake = wake
        self._source: InotifyFD | None = None
        self._watched: dict[str, _Directory] = {}
        self._known: dict[str, Mark] | None = None
        self._hinted = True
        self._looked = 0.0

    def changes(self) -> list[Event]:
        """Return what has changed since the last call, by path; nothing at the first one. Not for the event loop."""
        now = time.monotonic()
        pause = (POLL if self.problem else FULL_LOOK) if not self._hinted else BURST
        if self._known is not None and now - self._looked < pause:
            return []
        # Taken back before the look: what happens in the middle of it is looked at again.
        self._hinted = False
        found = self._look()
        self._looked = time.monotonic()
        before, self._known = self._known, found
        if before is None:
            return []
        events = [Event(path, "deleted") for path in before if path not in found]
        for path, mark in found.items():
            if path not in before:
                events.append(Event(path, "created"))
            elif before[path] != mark:
                events.append(Event(path, "modified"))
        return sorted(events, key=lambda event: event.path)

    def _look(self) -> dict[str, Mark]:
        while True:
            files: dict[str, Mark] = {}
            added = False
            for pattern in self._patterns:
                found, directories = pattern.look()
                files |= found
                if not directories:  # the base is not there yet: its directory will tell
                    directories = [_nearest(pattern.base)]
                for directory in directories:
                    added |= self._cover(directory)
            if not added:
                return files
            # What came into a directory before it was watched raised no event: look once more.

    def _cover(self, directory: str) -> bool:
        """Watch a directory; return whether the watch is new."""
        if self.problem or directory in self._watched:
            return False
        if (kind := file_system(directory)) in NETWORK:
            return self._give_up(f"{directory} is on a network file system ({kind})")
        from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyFD, Mask

        try:
            if self._source is None:
                self._source = InotifyFD()
                self._source.start()
            one = _Directory(self, directory)
            kinds = InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVE | InotifyConstants.IN_DELETE
            kinds |= InotifyConstants.IN_CLOSE_WRITE | InotifyConstants.IN_MODIFY | InotifyConstants.IN_ONLYDIR
            self._source.add_callback(os.fsencode(directory), Mask(kinds), one, CallbackId(id(one)))
        except OSError as exc:
            if not os.path.isdir(directory):
                return False
            return self._give_up(f"inotify: {exc.strerror or exc} (raise fs.inotify.max_user_watches)")
        self._watched[directory] = one
        return True

    def _give_up(self, why: str) -> bool:
        self.problem = why
        log.warning("no file events for triggers, looking every %g s instead: %s", POLL, why)
        return False

    def hint(self) -> None:
        """Take note, from the watch's thread, that something may have changed."""
        if not self._hinted:
            self._hinted = True
            self._wake()

    def gone(self, directory: _Directory) -> None:
        """Take note, from the watch's thread, that a directory is no longer watched."""
        if self._watched.get(directory.path) is directory:
            del self._watched[directory.path]
        self._hinted = True

    def stop(self) -> None:
        """Stop watching. Not for the event loop."""
        if self._source is not None:
            with contextlib.suppress(RuntimeError):
                self._source.stop()
                self._source.join()
            self._source = None


class _Directory:
    """What the library calls for one directory's events."""

    __slots__ = ("_watch", "path")

    def __init__(self, watch: FileWatch, path: str) -> None:
        self._watch = watch
        self.path = path

    def on_event(self, event: InotifyEvent) -> None:
        self._watch.hint()

    def on_watch_deleted(self, wd: int) -> None:
        self._watch.gone(self)

    def on_queue_overflow(self) -> None:
        self._watch.hint()


def _nearest(path: str) -> str:
    """Return the nearest directory above that is there."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path
