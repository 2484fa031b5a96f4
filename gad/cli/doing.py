"""What a session does now, told by its status and the end of its journal; nothing is written or locked."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gad.spool.names import JOURNAL

LIVE = frozenset({"new", "queued", "running", "deferred"})
"""The states that pass by themselves."""
RESTED = frozenset({"done", "failed", "stopped", "rejected"})
"""The states in which nobody waits for anything."""

_REACH = 1 << 16
"""Bytes of the journal's end that are read: a call whose arguments are longer is told by its name alone."""
_LONGEST = 300
_TELLING = ("code", "path", "url", "script", "question")
"""Arguments that say by themselves what a call does."""
_AFTER = {"checked": "goes on after its check", "resumed": "goes on after a crash", "script_ran": "goes on by itself"}


@dataclass(frozen=True, slots=True)
class Doing:
    """What a session does, on one line or several, and since when (seconds since the epoch) if that is known."""

    text: str = ""
    since: float | None = None


def doing(directory: str | os.PathLike[str], status: Mapping[str, Any]) -> Doing:
    """Return what the session in a directory does now; `status` is what its status.txt says."""
    match status.get("state"):
        case "new":
            return Doing("waits to be taken")
        case "queued":
            return Doing("waits for a free place, or its time")
        case "running":
            from gad.spool.journal import newest  # takes a moment, and most looks need it not

            return of_records(newest(str(Path(directory) / JOURNAL), _REACH))
        case "asking":
            return Doing(f"asks: {status.get('question', '')}")
        case "deferred":
            until = str(status.get("retry_at", "")).partition("T")[2]
            return Doing(f"deferred until {until}: {status.get('error', '')}")
        case _:
            return Doing(str(status.get("error") or ""))


def of_records(records: Sequence[Mapping[str, Any]]) -> Doing:
    """Return what a running session does, given its journal's last records, the newest first."""
    for record in records:
        kind, at = record.get("kind"), record.get("at")
        text = ""
        if kind == "calling":
            text = f"waits for {record.get('model')}, turn {record.get('turn')}"
        elif kind == "tool_started":
            text = _call(str(record.get("call")), str(record.get("name")), records)
        elif kind in ("answer", "tool_finished"):
            text = "goes on by itself"
        elif kind == "checking":
            text = "runs its check"
        elif kind == "script_started":
            text = f"runs the procedure {record.get('sop')} as a script"
        elif kind == "moved":
            text = f"goes on with {record.get('model_to')}"
        elif kind == "stop":
            text = "is being stopped"
        elif kind in _AFTER:
            text = _AFTER[kind]
        if text:
            return Doing(text, at if isinstance(at, int | float) else None)
    return Doing("works")


def _call(call: str, name: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return a call with what tells most of its arguments, which stand in the answer that it came with."""
    parts = next((record.get("parts") for record in records if record.get("kind") == "answer"), None)
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("call") == call and isinstance(part.get("arguments"), dict):
            arguments = part["arguments"]
            told = next((arguments[key] for key in _TELLING if isinstance(arguments.get(key), str)), None)
            words = json.dumps(arguments, ensure_ascii=False) if told is None else told
            return f"{name}: {words if len(words) <= _LONGEST else words[:_LONGEST] + '…'}"
    return name
