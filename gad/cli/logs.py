"""The daemon's log on standard error: one line an event, for people or as JSON, without secrets.

A message that tells of a session or a trigger names it as `session %s` or `trigger %s`; in JSON these are fields as
well. Where standard error is the journal of systemd each line begins with its priority, and has no time of its own.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

from gad.config import LogSettings
from gad.core.redact import Secrets

log = logging.getLogger(__name__)

NOTICE = 25
"""The level of what the daemon says of itself whatever the level of the log is: where it is, that it is ready."""
NOISY = ("httpx2", "httpcore2", "openai", "anthropic", "asyncio", "watchdog", "playwright")
"""Libraries that write whole requests into a log at its finer levels, headers included."""

_NAMED = re.compile(r"\b(session|trigger) %s")
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (NOTICE, 5), (logging.INFO, 6))
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
)
"""What steers a terminal, breaks a line, or makes text look like what it is not."""


def announce(line: str) -> None:
    """Write what the daemon says of itself, whatever the log's level."""
    log.log(NOTICE, "%s", line)


class Line(logging.Formatter):
    """Makes one line of a record, its traceback included, so that a log can be searched and counted."""

    def __init__(self, *, as_json: bool = False, journal: bool = False, secrets: Secrets | None = None) -> None:
        """Write for `journal`, the journal of systemd, or for whoever reads."""
        super().__init__()
        self._as_json = as_json
        self._journal = journal
        self._secrets = secrets or Secrets()

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text without line breaks."""
        message = self._secrets.redact(_message(record))
        trace = self._secrets.redact(self.formatException(record.exc_info)) if record.exc_info else ""
        line = self._object(record, message, trace) if self._as_json else self._human(record, message, trace)
        return f"<{priority(record.levelno)}>{line}" if self._journal else line

    def _human(self, record: logging.LogRecord, message: str, trace: str) -> str:
        lines = (line.strip() for line in f"{message}\n{trace}".split("\n"))
        text = _UNSEEN.sub(_escape, " | ".join(line for line in lines if line))
        if record.levelno == NOTICE:
            return f"gad: {text}"
        when = "" if self._journal else f"{_time(record):%Y-%m-%dT%H:%M:%SZ} "
        return f"{when}{record.levelname} {text}"

    def _object(self, record: logging.LogRecord, message: str, trace: str) -> str:
        found: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **{key: self._secrets.redact(name) for key, name in named(record).items()},
            "message": message,
        }
        if trace:
            found["traceback"] = trace
        return _UNSEEN.sub(_escape_json, json.dumps(found, ensure_ascii=False))


def named(record: logging.LogRecord) -> dict[str, str]:
    """Return which session and which trigger a record's message names, as its template says, not its text."""
    found: dict[str, str] = {}
    arguments = record.args
    if isinstance(record.msg, str) and isinstance(arguments, tuple):
        for match in _NAMED.finditer(record.msg):
            at = record.msg.count("%", 0, match.start())
            if at < len(arguments):
                found.setdefault(match[1], str(arguments[at]))
    return found


def priority(level: int) -> int:
    """Return a level's priority for the journal, as sd-daemon(3) numbers them."""
    return next((number for least, number in _PRIORITIES if level >= least), 7)


def is_journal(environ: Mapping[str, str], descriptor: int = 2) -> bool:
    """Return whether what is written there goes to the journal: systemd names the stream, which others inherit."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes what has the level, and what the daemon says of itself."""

    least = logging.WARNING

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        return record.levelno == NOTICE or record.levelno >= self.least


def set_up(settings: LogSettings, secrets: Secrets | None = None) -> None:
    """Send the log to standard error from now on; called again, go on as the new settings say.

    Nothing happens where somebody else, such as a test, has taken hold of the log.
    """
    root = logging.getLogger()
    handler = next((one for one in root.handlers if isinstance(one, _Stderr)), None)
    if handler is None:
        if root.handlers:
            return
        handler = _Stderr(sys.stderr)
        root.addHandler(handler)
        logging.addLevelName(NOTICE, "NOTICE")
        logging.captureWarnings(True)
        sys.excepthook = _broke
        sys.unraisablehook = _ignored
        threading.excepthook = lambda about: _broke(about.exc_type, about.exc_value, about.exc_traceback)
        for noisy in NOISY:
            logging.getLogger(noisy).setLevel(logging.WARNING)
    handler.least = logging.getLevelNamesMapping()[settings.level.upper()]
    handler.setFormatter(Line(as_json=settings.format == "json", journal=is_journal(os.environ), secrets=secrets))
    root.setLevel(min(NOTICE, handler.least))


def _broke(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        log.critical("this process broke", exc_info=(kind, error, trace))


def _ignored(about: sys.UnraisableHookArgs) -> None:
    """Tell of what broke where nobody could be told, as when an object is thrown away."""
    trace = (about.exc_type, about.exc_value or about.exc_type(), about.exc_traceback)
    where = f" in {about.object!r}" if about.object is not None else ""
    log.error("%s%s", about.err_msg or "an error was ignored", where, exc_info=trace)


def _message(record: logging.LogRecord) -> str:
    """Return a record's message, also of one whose arguments do not fit its template."""
    try:
        return record.getMessage()
    except Exception as exc:  # logging itself would print a traceback of many lines
        return f"{record.msg!s} {record.args!r} ({exc})"


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_json(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(found[0])[1:-1]
