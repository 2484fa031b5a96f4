"""Trying out, in a directory of the spool's own, what the daemon relies on: locks, read leases and file events.

The directory's name begins with a dot, so a running daemon passes it over. Each function returns what is
wrong, or an empty text.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading

from gad.errors import GadError
from gad.spool.claim import writer_gone
from gad.spool.lock import SpoolLock, held
from gad.spool.watch import Watch

_EVENT_SECONDS = 2.0
_ASK_HELD = "import sys; from gad.spool.lock import held; sys.exit(0 if held(sys.argv[1]) else 7)"


def try_lock(spool: str) -> str:
    """Take a lock that another process must see, and must no longer see once it is released. Raises OSError."""
    with _scratch(spool) as place:
        try:
            with SpoolLock(place):
                asked = subprocess.run([sys.executable, "-c", _ASK_HELD, place], capture_output=True, check=False)
            if asked.returncode not in (0, 7):
                return f"another process could not try it: {asked.stderr.decode(errors='replace').strip()[-200:]}"
            if asked.returncode == 7:
                return "a lock does not keep another process out"
            return "a lock stays when it is released" if held(place) else ""
        except GadError as exc:
            return str(exc)


def try_lease(spool: str) -> str:
    """Ask the kernel about a file that is being written, and about one that is not. Raises OSError."""
    with _scratch(spool) as place:
        path = os.path.join(place, "file")
        with open(path, "w") as writer:
            reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                while_written = writer_gone(reader)
                writer.close()
                afterwards = writer_gone(reader)
            finally:
                os.close(reader)
    if while_written is None or afterwards is None:
        return "the kernel gives no read leases here"
    return "" if afterwards and not while_written else "read leases do not tell who writes a file"


def try_watch(spool: str) -> str:
    """Watch a directory and let something happen in it. Raises OSError."""
    came = threading.Event()
    with _scratch(spool) as place:
        watch = Watch(place, lambda name: came.set(), lambda: None)
        watch.start()
        try:
            if watch.problem:
                return watch.problem
            os.mkdir(os.path.join(place, "session"))
            return "" if came.wait(_EVENT_SECONDS) else f"no event came within {_EVENT_SECONDS:g} s"
        finally:
            watch.stop()


def _scratch(spool: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=".trial-", dir=spool)
