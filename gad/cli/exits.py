"""The exit codes of the command line, one table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DONE = 0
ERROR = 1
USAGE = 2
ASKING = 3
STOPPED = 4
FAILED = 5
REJECTED = 6
HOPELESS = 100
TEMPORARY = 111
TIMEOUT = 124
INTERRUPTED = 130

BY_STATE: Mapping[str, int] = MappingProxyType(
    {"done": DONE, "asking": ASKING, "stopped": STOPPED, "failed": FAILED, "rejected": REJECTED}
)
"""What a command that waited for a session exits with."""

MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        DONE: "done",
        ERROR: "gad's own error: settings, files, the network",
        USAGE: "the command line is wrong",
        ASKING: "the session asks a question; gad reply answers it",
        STOPPED: "the session was stopped; gad reply resumes it",
        FAILED: "the session failed; its error says why",
        REJECTED: "a file that was handed in was not accepted",
        HOPELESS: "a daemon that no restart would help: wrong settings, or another one runs on this spool",
        TEMPORARY: "nobody is working: no daemon runs; what was handed in stays",
        TIMEOUT: "the time-out passed first",
        INTERRUPTED: "interrupted; the session goes on, or is paused when it was in this process",
    }
)
