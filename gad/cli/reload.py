"""Reading gad.yaml again while the daemon runs: what is taken up at once, and what waits for a restart."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gad.cli.compose import Providers, find_key, take_up
from gad.cli.logs import set_up
from gad.config import Config, load
from gad.daemon import Daemon
from gad.errors import GadError
from gad.spool.status import timestamp

log = logging.getLogger(__name__)

LIVE = frozenset(
    {
        "ask",
        "children",
        "drain",
        "limits",
        "log",
        "model",
        "models",
        "policy",
        "prices",
        "quota",
        "retain",
        "retry",
        "sessions",
        "usd_per_day",
    }
)
"""Keys of gad.yaml that a running daemon takes up; the entry of a local model that was there before does not change."""
_ABOUT = frozenset({"home", "sources"})


class Reload:
    """Reads gad.yaml anew each time it is called, in the running event loop; calls during that are one more."""

    def __init__(self, daemon: Daemon, providers: Providers, environ: Mapping[str, str]) -> None:
        self._daemon = daemon
        self._providers = providers
        self._environ = environ
        self._waiting = ""
        self._asked = False
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        """Begin to read."""
        self._asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._asked:
            self._asked = False
            self._daemon.reloading()
            notes: dict[str, object] = {"reloaded": timestamp(time.time())}
            try:
                config = await asyncio.to_thread(load, self._providers.config.home, self._environ)
                self._take_up(config)
            except Exception as exc:  # whatever it is, the daemon goes on
                unexpected = not isinstance(exc, GadError | OSError)
                log.error("gad.yaml is not taken up, the settings stay as they were: %s", exc, exc_info=unexpected)
                notes["reload_error"] = "; ".join(str(exc).splitlines())
            self._daemon.reloaded(notes | {"restart_needed": self._waiting or None})

    def _take_up(self, config: Config) -> None:
        before = self._providers.config
        chosen, waiting = merged(before, config)
        take_up(self._daemon, self._providers, chosen)
        set_up(chosen.log, self._providers.secrets)
        self._waiting = ", ".join(waiting)
        taken = ", ".join(key for key in changes(before, config) if key not in waiting)
        log.warning("gad.yaml was read again: %s", f"taken up: {taken}" if taken else "nothing to take up")
        if waiting:
            log.warning("gad.yaml: only a restart takes up what has changed in %s", self._waiting)
        for name in chosen.chain_of(chosen.model):
            try:
                find_key(chosen.models[name], self._environ)
            except GadError as exc:
                log.warning("%s", exc)


def merged(before: Config, after: Config) -> tuple[Config, list[str]]:
    """Return the settings to go on with, and the dotted keys that have changed and wait for a restart."""
    kept: dict[str, Any] = {
        key.name: getattr(before, key.name) for key in fields(Config) if key.name not in LIVE | _ABOUT
    }
    # Its weights are loaded in a process of its own, which sessions may be using.
    local = {name: entry for name, entry in before.models.items() if entry.provider == "local"}
    kept["models"] = {**after.models, **local}
    chosen = replace(after, **kept)
    return chosen, changes(chosen, after)


def changes(before: Config, after: Config) -> list[str]:
    """Return the dotted keys of gad.yaml in which two settings differ."""
    found = []
    for key in fields(Config):
        if key.name not in _ABOUT:
            found += _differing(key.name, getattr(before, key.name), getattr(after, key.name))
    return found


def _differing(path: str, before: Any, after: Any) -> list[str]:
    if before == after:
        return []
    if is_dataclass(before) and is_dataclass(after):
        names: list[str] = [key.name for key in fields(before)]
        return [f"{path}.{name}" for name in names if getattr(before, name) != getattr(after, name)]
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [f"{path}.{name}" for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return [path]
