"""The spool's watch: inotify on the spool and each session's directory; an event only says "look at this session".

Where that cannot work (a network file system, or an exhausted inotify limit) nothing is lost: the
daemon then looks at every session at short intervals instead, and says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from gad.spool import names

if TYPE_CHECKING:
    from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

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
_NOT_THIS_ONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES})


class Watch:
    """Calls `look(name)` for a session that may have changed and `look_at_all()` when events were lost.

    Both are called from the watch's own thread. `problem` says why there are no events, once `start` or
    `covers` has found that out; it is empty while the watch works.

    This stands on the library's inotify thread alone. Its observer hands every event through two more
    threads, and one of them sleeps half a second when it meets the first half of a rename before the
    second half has arrived; the daemon itself renames a file for each status it writes.
    """

    def __init__(self, spool: str, look: Callable[[str], None], look_at_all: Callable[[], None]) -> None:
        self.problem = ""
        self._spool = os.path.realpath(spool)
        self._look = look
        self._look_at_all = look_at_all
        self._stop: Callable[[], None] = lambda: None
        self._source: InotifyFD | None = None
        self._watched: dict[str, _Directory] = {}
        self._adding = threading.Lock()

    def start(self, *, polling: bool = False) -> None:
        """Begin to watch; return when the watch is in place or `problem` says why it cannot be."""
        if polling:
            self.problem = "polling is configured"
            return
        if (kind := file_system(self._spool)) in NETWORK:
            self.problem = f"the spool is on a network file system ({kind})"
            return
        from watchdog.observers.inotify_c import InotifyFD

        try:
            source = InotifyFD()
        except OSError as exc:
            self.problem = f"inotify: {exc.strerror or exc}"
            return
        self._source = source
        source.start()

        def stop() -> None:
            source.stop()
            source.join()

        self._stop = stop
        if not self._covered(self._spool):
            return
        with os.scandir(self._spool) as entries:
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in found:
            if names.valid_session_name(name) and not self._covered(os.path.join(self._spool, name)):
                return

    def covers(self, directory: str) -> bool:
        """Return whether there is a watch on a session's directory, made now if need be; set `problem` if not."""
        return self._covered(os.path.join(self._spool, os.path.basename(directory)))

    def _covered(self, path: str) -> bool:
        if self.problem:
            return False
        try:
            self._add(path)
        except OSError as exc:
            # A directory that cannot be watched itself, a link for example, is found by the next full look.
            if exc.errno not in _NOT_THIS_ONE and os.path.isdir(path):
                self.problem = "the inotify limit is reached (raise fs.inotify.max_user_watches)"
                return False
        return True

    def stop(self) -> None:
        """Stop watching."""
        self._stop()
        self._stop = lambda: None

    def _add(self, path: str) -> None:
        """Watch a directory. Raises OSError."""
        from watchdog.observers.inotify_c import CallbackId, InotifyConstants, Mask

        assert self._source is not None
        with self._adding:  # the daemon and the watch's thread may meet here
            if path in self._watched:
                return
            of_spool = path == self._spool
            kinds = InotifyConstants.IN_MOVED_TO | InotifyConstants.IN_ONLYDIR | InotifyConstants.IN_DONT_FOLLOW
            kinds |= InotifyConstants.IN_CREATE if of_spool else InotifyConstants.IN_CLOSE_WRITE
            directory = _Directory(self, path)
            id_ = CallbackId(id(directory))
            wd = self._source.add_callback(os.fsencode(path), Mask(kinds), directory, id_)
            if wd < 0:  # the library passes over this error and would take the directory for watched
                self._source.remove_callbacks([(wd, id_)])
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
            self._watched[path] = directory

    def _in_spool(self, path: str) -> None:
        """Take note of a directory that was made or moved here."""
        name = os.path.basename(path)
        if names.valid_session_name(name):
            with contextlib.suppress(OSError):  # the daemon asks `covers` when it looks, and is told
                self._add(path)
            self._look(name)

    def _in_session(self, session: str, name: str, *, closed: bool) -> None:
        """Pass on what a client may have done; what the daemon itself writes and renames is told by its names."""
        if name in names.CLIENT_FILES or (closed and names.parse_claim(name)):
            self._look(session)

    def _gone(self, directory: _Directory) -> None:
        with self._adding:
            if self._watched.get(directory.path) is directory:
                del self._watched[directory.path]


class _Directory:
    """What the library calls for one directory's events."""

    __slots__ = ("path", "watch")

    def __init__(self, watch: Watch, path: str) -> None:
        self.watch = watch
        self.path = path

    def on_event(self, event: InotifyEvent) -> None:
        name = os.fsdecode(event.name)
        if self.path == self.watch._spool:
            if event.is_directory and name:
                self.watch._in_spool(os.path.join(self.path, name))
        else:  # a directory in a client file's place is refused like what else is no file
            self.watch._in_session(os.path.basename(self.path), name, closed=event.is_close_write)

    def on_watch_deleted(self, wd: int) -> None:
        self.watch._gone(self)

    def on_queue_overflow(self) -> None:
        if self.path == self.watch._spool:  # every directory is told; once is enough
            self.watch._look_at_all()


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
