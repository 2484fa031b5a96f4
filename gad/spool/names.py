"""The names that have a meaning inside spool/, and the rule for those that have none."""

from __future__ import annotations

import re

INPUT = "input.txt"
TASK = "task.yaml"
REPLY = "reply.txt"
CONTEXT = "context.txt"
STOP = "stop.txt"
VERDICT = "verdict.txt"

OUTPUT = "output.txt"
RESULT = "result.txt"
STATUS = "status.txt"
JOURNAL = "journal.jsonl"

CLIENT_FILES = (INPUT, TASK, REPLY, CONTEXT, STOP, VERDICT)
"""What a client may write."""

DAEMON_FILES = (OUTPUT, RESULT, STATUS, JOURNAL)
"""What the daemon writes; a new conversation archives these."""

DAEMON_DIR = ".daemon"
"""The daemon's own directory in the spool: its lock and its status."""

LOCK = "lock"
"""The file in `DAEMON_DIR` that the running daemon holds locked."""

SESSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
"""What a session's name must match as a whole."""

STATES = ("queued", "running", "asking", "done", "deferred", "failed", "stopped", "rejected")

RESTING = frozenset({"done", "asking", "failed", "stopped", "rejected"})
"""The states in which nothing happens until a client does something."""

_CLAIM = re.compile(r"\.claim-(\d{4,})-(.+)", re.ASCII)


def valid_session_name(name: str) -> bool:
    """Return whether a directory of this name is a session."""
    return SESSION_NAME.fullmatch(name) is not None


def claim_name(number: int, name: str) -> str:
    """Return what client file `name` is called while the daemon takes it in as message `number`."""
    return f".claim-{number:04d}-{name}"


def parse_claim(name: str) -> tuple[int, str] | None:
    """Return the number and the client file's name of a claim, or None when `name` is not one."""
    found = _CLAIM.fullmatch(name)
    return (int(found[1]), found[2]) if found and found[2] in CLIENT_FILES else None


def rejected_name(number: int, name: str) -> str:
    """Return what client file `name` is called once it could not be accepted."""
    return f"rejected-{number:04d}-{name}"


def archived_name(number: int, name: str) -> str:
    """Return what `name` is called once conversation `number` has made room for a new one."""
    return f"archived-{number:04d}-{name}"


def ignored(name: str) -> bool:
    """Return whether a file of this name has no meaning in a session directory.

    A claim is not ignored: the daemon finds it after a crash. Archived and rejected files are kept for
    people, so they are.
    """
    if parse_claim(name) is not None:
        return False
    return name not in CLIENT_FILES and name not in DAEMON_FILES
