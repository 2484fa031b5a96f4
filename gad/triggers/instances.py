"""Which triggers there are: the files in `triggers/`, read as values.

`X.py` is a plugin and runs as the instance X; `X.yaml` gives it options, or makes another instance of a plugin that
it names. The plugins that ship with gad run when a yaml file says so, and `scheduled` when there is a schedule.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gad.errors import ConfigError

SHIPPED = ("idle", "scheduled", "watchdog")
UNCAPPED = "scheduled"
PER_DAY = 100
"""Sessions a day, where nothing else is said."""
STATE_DIR = ".state"
SCHEDULES = "schedules"
LARGEST = 1 << 20
"""Bytes of the largest plugin or yaml file that is read."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}", re.ASCII)
_SHIPPED_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shipped")


@dataclass(frozen=True, slots=True)
class Caps:
    """What an instance may do: sessions that have not ended, sessions and dollars a day (by the local calendar).

    Without `per_day` a plugin may make `PER_DAY`; but for `scheduled`, whose files say how many there are to be.
    """

    open: int = 3
    per_day: int | None = None
    usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What an instance's process may use: seconds a call, megabytes of memory."""

    check_seconds: float = 60.0
    memory_mb: int = 512


@dataclass(frozen=True, slots=True)
class Settings:
    """What X.yaml says. `task` are options of task.yaml for the instance's sessions."""

    plugin: str | None = None
    enabled: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    task: Mapping[str, Any] = field(default_factory=dict)
    caps: Caps = Caps()
    limits: Limits = Limits()


Parse = Callable[[str, str], Settings]
"""Reads the text of X.yaml, whose name is the second argument. Raises ConfigError that names every mistake."""


@dataclass(frozen=True, slots=True)
class Found:
    """An instance as its files are now. `version` is another one when they are; `problem` says why it cannot run."""

    name: str
    version: str
    settings: Settings = Settings()
    plugin: str = ""
    path: str = ""
    source: str = ""
    problem: str = ""


class Finder:
    """Finds the instances of one home. A file is read again only when its size, time or place have changed."""

    def __init__(self, home: str, parse: Parse) -> None:
        self.directory = os.path.join(home, "triggers")
        self._parse = parse
        self._read: dict[str, tuple[tuple[int, int, int], str]] = {}

    def find(self) -> dict[str, Found]:
        """Return the instances by name, in order. Raises OSError."""
        try:
            entries = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return {}
        stems = {stem for entry in entries for stem, dot in [os.path.splitext(entry)] if dot in (".py", ".yaml")}
        if self._has_schedules():
            stems.add("scheduled")
        # A name that begins so is no instance: what plugins share, and editors' files.
        found = [self._find(stem) for stem in sorted(stems) if stem[0] not in "._"]
        return {one.name: one for one in found}

    def _has_schedules(self) -> bool:
        try:
            return any(name.endswith(".json") for name in os.listdir(os.path.join(self.directory, SCHEDULES)))
        except OSError:
            return False

    def _find(self, name: str) -> Found:
        settings_path = os.path.join(self.directory, f"{name}.yaml")
        seen: list[str] = []
        try:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"triggers/{name}: use at most 48 letters, digits, _ and - for a trigger's name, "
                    f"the first a letter or a digit"
                )
            settings = Settings()
            if os.path.lexists(settings_path):
                seen.append(self._text(settings_path))
                settings = self._parse(seen[-1], f"triggers/{name}.yaml")
            plugin = settings.plugin or name
            path = self._path_of(plugin, name)
            seen.append(self._text(path))
            if settings.caps.per_day is None and plugin != UNCAPPED:
                settings = replace(settings, caps=replace(settings.caps, per_day=PER_DAY))
        except (ConfigError, OSError) as exc:
            what = str(exc) if isinstance(exc, ConfigError) else f"{exc.filename}: {exc.strerror}"
            return Found(name, _digest(*seen, what), problem=what)
        return Found(name, _digest(path, *seen), settings, plugin, path, seen[-1])

    def _path_of(self, plugin: str, instance: str) -> str:
        own = os.path.join(self.directory, f"{plugin}.py")
        if os.path.lexists(own):
            return own
        if plugin in SHIPPED:
            return os.path.join(_SHIPPED_DIR, f"{plugin}.py")
        shipped = ", ".join(SHIPPED)
        raise ConfigError(
            f"triggers/{instance}.yaml:1: plugin: there is no triggers/{plugin}.py, and none of that name ships with "
            f"gad; name a plugin of yours or one of {shipped}"
        )

    def _text(self, path: str) -> str:
        """Return a file's text. Raises ConfigError when it is no text, OSError."""
        status = os.stat(path)
        mark = (status.st_ino, status.st_size, status.st_mtime_ns)
        if (known := self._read.get(path)) is not None and known[0] == mark:
            return known[1]
        short = f"triggers/{os.path.basename(path)}"
        if status.st_size > LARGEST or not os.path.isfile(path):
            raise ConfigError(f"{short}: not a regular file of at most {LARGEST} bytes")
        with open(path, "rb") as file:
            data = file.read(LARGEST)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise ConfigError(f"{short}:{data[: exc.start].count(10) + 1}: not UTF-8; save it as UTF-8") from None
        self._read[path] = (mark, text)
        return text


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
