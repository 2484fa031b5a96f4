"""Hands in a session for new or changed files, or for lines of logs.

Options: `prompt`; `files` and `logs`, patterns relative to the home; `lines`, a regular expression that a log's line
must hold, and `context` (3), the lines around it that are shown; `settle` (2), seconds for which a file must not have
changed; `batch` (5), seconds from the first event to the session; `cooldown` (0), seconds between two sessions;
`existing` (false): files that are there at the first start count as new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gad.triggers.batch import Batch
from gad.triggers.files import changed, scan
from gad.triggers.logs import Excerpts, search
from gad.triggers.plugin import Event, Trigger

INTERVAL = 1
LOOK = 30  # seconds after which files are looked at, whatever events came

trigger: Trigger = globals()["trigger"]  # it is there before this file runs
WATCH: list[str] = []
_sources: dict[str, list[str]] = {}
_news, _looked = True, 0.0


def init(options: Mapping[str, Any]) -> None:
    """Take the options. Raises ValueError when they leave nothing to do, or the expression is wrong."""
    _sources.update({key: [got] if isinstance(got := options.get(key, []), str) else got for key in ("files", "logs")})
    WATCH.extend(_sources["files"] + _sources["logs"])
    if not WATCH or not options.get("prompt") or (_sources["logs"] and not options.get("lines")):
        raise ValueError("options must hold prompt, and files, or logs and lines")
    Excerpts(options.get("lines", ""), 0, {})


def on_event(event: Event) -> None:
    """Look at the files at once."""
    global _news
    _news = True
    check()


def check() -> None:
    """Look where there may be something new, and hand in what is due."""
    global _news, _looked
    options, state, now = trigger.options, trigger.state, trigger.now()
    first = not state
    batch = Batch(state, window=options.get("batch", 5), cooldown=options.get("cooldown", 0))
    if _news or state.get("waiting") or not 0 <= now - _looked < LOOK:
        _news, _looked = False, now
        found = scan(_sources["files"], trigger.home)
        existing = options.get("existing", False)
        for path, (size, written) in changed(found, state, now, options.get("settle", 2), existing=existing).items():
            batch.add(path, f"- {path} ({size} bytes)", now, written)
    logs = scan(_sources["logs"], trigger.home)
    for name, path, excerpt in search(logs, state, options.get("lines", ""), options.get("context", 3), from_end=first):
        batch.add(name, f"{path}:\n{excerpt}\n", now)
    batch.hand_in(trigger, options["prompt"])
