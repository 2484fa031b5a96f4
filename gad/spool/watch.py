"""The spool's watch: one recursive inotify watch whose events only say "look at this session".

Where that cannot work (a network file system, or an exhausted inotify limit) nothing is lost: the
daemon then looks at every session at short intervals instead, and says so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from gad.spool import names

log = logging.getLogger(__name__)

NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "fuse.rclone",
        "fuse.s3fs",
        "virtiofs",
        "ocfs2",
        "gfs2",
        "beegfs",
    ]
)
"""File systems on which another machine's writes raise no event here."""

_LIBRARY_LOG = "watchdog.observers"


class Watch:
    """Calls `look(name)` for a session that may have changed and `look_at_all()` when events were lost.

    Both are called from the watch's own threads. `problem` says why there are no events, once `start` or
    `covers` has found that out; it is empty while the watch works.
    """

    def __init__(self, spool: str, look: Callable[[str], None], look_at_all: Callable[[], None]) -> None:
        self.problem = ""
        self._spool = os.path.realpath(spool)
        self._look = look
        self._look_at_all = look_at_all
        self._stop: Callable[[], None] = lambda: None
        self._probe = -1

    def start(self, *, polling: bool = False) -> None:
        """Begin to watch; return when the watch is in place or `problem` says why it cannot be."""
        if polling:
            self.problem = "polling is configured"
            return
        if (kind := file_system(self._spool)) in NETWORK:
            self.problem = f"the spool is on a network file system ({kind})"
            return
        from watchdog.events import (
            DirCreatedEvent,
            DirMovedEvent,
            FileClosedEvent,
            FileMovedEvent,
            FileSystemEvent,
            FileSystemEventHandler,
        )
        from watchdog.observers.inotify import InotifyObserver

        watch = self

        class Events(FileSystemEventHandler):
            def dispatch(self, event: FileSystemEvent) -> None:
                moved = isinstance(event, (FileMovedEvent, DirMovedEvent))
                watch._saw(os.fsdecode(event.dest_path if moved else event.src_path), closed=not moved)

        try:
            # Full events: a file moved in from elsewhere has no source inside the watch.
            observer = InotifyObserver(generate_full_events=True)
            wanted: list[type[FileSystemEvent]] = [FileClosedEvent, FileMovedEvent, DirCreatedEvent, DirMovedEvent]
            observer.schedule(Events(), self._spool, recursive=True, event_filter=wanted)
            observer.start()
        except OSError as exc:
            self.problem = f"inotify: {exc.strerror or exc}"
            return
        overflow = _Overflow(self._look_at_all)
        logging.getLogger(_LIBRARY_LOG).addHandler(overflow)

        def stop() -> None:
            logging.getLogger(_LIBRARY_LOG).removeHandler(overflow)
            observer.stop()
            observer.join()

        self._stop = stop
        self.covers(self._spool)

    def covers(self, directory: str) -> bool:
        """Return whether the kernel still has room for a watch like that on `directory`; set `problem` if not.

        The library passes over a directory below the root that it could not watch, so we ask the kernel ourselves.
        """
        from watchdog.observers import inotify_c

        if self.problem:
            return False
        if self._probe < 0:
            self._probe = inotify_c.inotify_init()
        found = inotify_c.inotify_add_watch(
            self._probe, os.fsencode(directory), inotify_c.InotifyConstants.IN_DELETE_SELF
        )
        if found >= 0:
            inotify_c.inotify_rm_watch(self._probe, found)
        elif self._probe < 0 or os.path.isdir(directory):
            self.problem = "the inotify limit is reached (raise fs.inotify.max_user_watches)"
            return False
        return True

    def stop(self) -> None:
        """Stop watching."""
        self._stop()
        self._stop = lambda: None
        if self._probe >= 0:
            os.close(self._probe)
            self._probe = -1

    def _saw(self, path: str, *, closed: bool) -> None:
        """Pass on what a client may have done; what the daemon itself writes and renames is told by its names."""
        session, _, name = os.path.relpath(path, self._spool).partition(os.sep)
        if not names.valid_session_name(session) or os.sep in name:
            return
        if not name or name in names.CLIENT_FILES or (closed and names.parse_claim(name)):
            self._look(session)


class _Overflow(logging.Handler):
    """The library tells of a lost event only in its log."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._lost = lost

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage():
            self._lost()


def file_system(path: str) -> str:
    """Return the type of the file system that `path` is on, as the kernel's mount table names it; "" if unknown."""
    path = os.path.realpath(path)
    best, kind = "", ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
            for line in table:
                before, _, after = line.partition(" - ")
                mount = before.split()[4].encode().decode("unicode_escape")
                inside = path == mount or path.startswith(mount.rstrip("/") + "/")
                if inside and len(mount) >= len(best):
                    best, kind = mount, after.split()[0]
    except (OSError, IndexError, UnicodeError):
        return ""
    return kind
