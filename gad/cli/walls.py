"""Which sandbox a daemon's sessions get, what each of them finds inside, and what confinement means for a new one."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from gad.config import Config
from gad.core.task import TaskOptions
from gad.errors import ConfigError
from gad.home import CONFIG_NAME
from gad.spool import names
from gad.spool.kin import ancestors, options_of
from gad.tools.sandbox import PRIVATE, Launch, NoSandbox, Sandbox, Walls, trouble

log = logging.getLogger(__name__)

UNITS = ("/etc/systemd", "~/.config/systemd")
"""Where systemd reads what it is to start."""
MOST_CLOSED = 100
"""Sessions whose files a command of another one cannot change, at most: each takes a mount."""
TEMPORARY = ".tmp"
"""The directory below work/ that holds each session's /tmp."""


def sandbox_trouble(config: Config, environ: Mapping[str, str]) -> str:
    """Try the sandbox that gad.yaml wants; return why there is none, and how to mend it, or an empty text."""
    if config.sandbox.mode == "none":
        return f"sandbox: none in {CONFIG_NAME}; set sandbox: auto"
    return trouble(shutil.which("bwrap", path=environ.get("PATH")), network=config.sandbox.network)


def choose_sandbox(
    config: Config,
    environ: Mapping[str, str],
    busy: Callable[[], Collection[str]],
    current: Callable[[], Config] | None = None,
) -> Launch:
    """Return how sessions' commands are started; `busy` names the sessions that are not over.

    `current` gives the settings in force, which may name other key files by then.

    Raises ConfigError where gad.yaml insists on a sandbox and there is none.
    """
    chosen = config.sandbox
    problem = sandbox_trouble(config, environ)
    program = shutil.which("bwrap", path=environ.get("PATH"))
    if not problem and program is not None:
        return Sandbox(program, SessionWalls(config, environ, busy, current), network=chosen.network)
    if chosen.mode == "bwrap" or not chosen.network:
        key = "mode: bwrap" if chosen.mode == "bwrap" else "network: off"
        raise ConfigError(f"{CONFIG_NAME}: sandbox: {key} cannot be kept to: {problem}; or remove that line")
    if chosen.mode == "auto":
        log.warning("no sandbox for what agents run: %s; or say that none is wanted: sandbox: none", problem)

    return NoSandbox(problem, lambda session: is_confined(str(config.spool_dir), session))


def own_temporary(launch: Launch, config: Config) -> tuple[str, ...]:
    """Return the temporary directories of which each session's commands have their own, with nothing else in it."""
    if not isinstance(launch, Sandbox):
        return ()
    others = [os.path.realpath(path) for path in (str(config.home), *config.sandbox.writable)]
    return tuple(place for place in PRIVATE if not any(_within(path, os.path.realpath(place)) for path in others))


def is_confined(spool: str, session: str) -> bool:
    """Return whether a session is confined; one whose journal cannot be read counts as such."""
    options = options_of(os.path.join(spool, session))
    return options is None or options.confined


class SessionWalls:
    """What each session's commands find in the sandbox."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        busy: Callable[[], Collection[str]],
        current: Callable[[], Config] | None = None,
    ) -> None:
        self._config = config
        self._current = current or (lambda: config)
        self._spool = str(config.spool_dir)
        self._busy = busy
        home = config.home
        credentials = environ.get("CREDENTIALS_DIRECTORY")
        self._hidden = (str(config.browser_dir), *([credentials] if credentials else []))
        own = (home / CONFIG_NAME, config.memory_dir, config.triggers_dir, config.spool_dir / names.DAEMON_DIR)
        self._closed = (*map(str, own), *map(os.path.expanduser, UNITS))
        # What may lie below /tmp, and is needed: gad's home, its code and its Python.
        code = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self._visible = (str(home), code, sys.prefix, sys.base_prefix)

    def __call__(self, session: str) -> Walls:
        """Return the walls for one session, as of now."""
        confined = is_confined(self._spool, session)
        line = ancestors(self._spool, session)
        others = [name for name in self._busy() if name not in line][:MOST_CLOSED]
        found = [*line, *(name for name in others if not self._is_child(name, session))]
        closed = (path for name in found if not os.path.islink(path := os.path.join(self._spool, name)))
        return Walls(
            temporary=str(self._config.work_dir / TEMPORARY / session),
            open=() if confined else (self._spool, *self._config.sandbox.writable),
            fenced=(str(self._config.work_dir), *((self._spool,) if confined else ())),
            closed=(*self._closed, *closed),
            hidden=(*self._hidden, *(model.key_file for model in self._current().models.values() if model.key_file)),
            visible=self._visible,
            confined=confined,
        )

    def _is_child(self, name: str, parent: str) -> bool:
        options = options_of(os.path.join(self._spool, name))
        return options is not None and options.sponsor == parent


def with_confinement(options: TaskOptions, config: Config, spool: str) -> TaskOptions:
    """Return a new session's options with what confinement makes of them.

    What a confined session hands in is confined, whatever its task.yaml says, and works where that session may write.
    Raises ConfigError for a working directory that is not for confined sessions.
    """
    parent = options_of(os.path.join(spool, options.parent)) if options.parent else None
    inherited = parent is not None and parent.confined
    if not options.confined and not inherited:
        return options
    if options.cwd is None:
        return replace(options, confined=True)
    cwd = os.path.realpath(options.cwd)
    home, work = os.path.realpath(config.home), os.path.realpath(config.work_dir)
    if _within(home, cwd) or (_within(cwd, home) and not _within(cwd, work)) or cwd == work:
        raise ConfigError(
            f"task.yaml: cwd: a confined session cannot work in {cwd}, which holds files of gad's own; "
            f"name a directory outside of {home}, or leave cwd out"
        )
    if parent is not None and inherited:
        theirs = [os.path.join(work, str(options.parent)), *([parent.cwd] if parent.cwd else [])]
        if not any(_within(cwd, place) for place in theirs):
            raise ConfigError(
                f"task.yaml: cwd: {options.parent} is confined, and its children with it: {cwd} is not below "
                f"{' or '.join(theirs)}; name a directory there, or leave cwd out"
            )
    return replace(options, confined=True, cwd=cwd)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
