"""Putting the parts together: the one place that chooses providers, tools and their settings."""

from __future__ import annotations

import logging
import os
import platform
import pwd
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gad.agent import Parts, RetryPolicy
from gad.browser.browser import WebBrowser
from gad.cli.memory_engine import MemoryEngine
from gad.cli.trigger_file import door_of, parser_of
from gad.cli.walls import choose_sandbox, is_confined, with_confinement
from gad.config import Config, Model, read_key
from gad.core.budget import Price
from gad.core.ports import Provider
from gad.core.task import TaskOptions
from gad.daemon import Beside, Daemon
from gad.errors import AuthError, ConfigError, GadError
from gad.memory.controller import Controller
from gad.memory.door import ClosedMemory
from gad.memory.evolution import Evolution
from gad.memory.scripts import ScriptGate, ScriptRunner
from gad.memory.shipped import prepare
from gad.memory.store import MemoryStore
from gad.spool.claim import Rules
from gad.spool.intake import Beginning, Door
from gad.spool.kin import parent_options
from gad.spool.ledger import Ledger
from gad.task_file import check_cwd, parse_task
from gad.tools.environment import child_environment
from gad.tools.orphans import HOME, SESSION, end_orphans, identity
from gad.tools.process import run_command
from gad.tools.sandbox import Launch, Sandbox, unwrapped
from gad.tools.toolset import all_tools
from gad.triggers.host import Host

if TYPE_CHECKING:
    from gad.providers.stream import StreamProvider

log = logging.getLogger(__name__)

CHECK_SECONDS = 600.0
"""How long a task's check may run."""
CHECK_OUTPUT = 4000
"""Characters of a failing check's output that the model sees."""
SCRIPT_SECONDS = 3600.0
"""How long a procedure's script may run."""
SCRIPT_OUTPUT = 10_000
"""Characters of a script's output that are its answer, or that the model sees when it failed."""


class Providers:
    """The models that gad.yaml names, each built when it is first asked for and kept."""

    def __init__(self, config: Config, environ: Mapping[str, str], progress: Callable[[str, int, int], None]) -> None:
        self._config = config
        self._environ = environ
        self._progress = progress
        self._built: dict[str, Provider] = {}

    def __call__(self, name: str) -> Provider:
        """Return the provider of one entry; of a chain, that of its first one.

        Raises ConfigError or AuthError that say how to mend it.
        """
        name = self._config.chain_of(name)[0]
        if name not in self._built:
            entry = self._config.models.get(name)
            if entry is None:
                known = ", ".join(self._config.models)
                raise ConfigError(f"no entry of models is called {name!r} in gad.yaml; there are: {known}")
            self._built[name] = self._build(entry)
        return self._built[name]

    # An SDK takes up to a second to import, so each is imported when it is first needed.

    def _build(self, entry: Model) -> Provider:
        if entry.provider == "local":
            return self._local(entry)
        provider = vendor_provider(entry, self._environ)
        if entry.tools == "native":
            return provider
        from gad.providers.text import TextProvider

        return TextProvider(provider)

    def _local(self, entry: Model) -> Provider:
        from gad.providers.local.provider import LocalProvider
        from gad.providers.local.weights import MODELS

        spec = MODELS.get(entry.model)
        if spec is None and entry.weights is None:
            raise ConfigError(f"models.{entry.name}.model: there are no weights for {entry.model!r}; choose "
                              f"{' or '.join(MODELS)}, or name a GGUF file with `weights:`")  # fmt: skip
        settings: dict[str, Any] = {"spec": spec} if spec is not None else {}
        if entry.context is not None:
            settings["context"] = entry.context
        return LocalProvider(
            weights=entry.weights,
            threads=entry.threads,
            max_tokens=entry.max_tokens,
            idle_timeout=entry.idle_timeout,
            progress=self._progress,
            **settings,
        )

    async def close(self) -> None:
        """Close them all."""
        for provider in self._built.values():
            await provider.close()


def vendor_provider(entry: Model, environ: Mapping[str, str]) -> StreamProvider:
    """Return the provider of an entry that is asked over HTTP. Raises what `find_key` does."""
    chosen: dict[str, Any] = {
        "model": entry.model,
        "api_key": find_key(entry, environ),
        "base_url": entry.base_url,
        "max_tokens": entry.max_tokens,
        "idle_timeout": entry.idle_timeout,
    }
    if entry.provider == "anthropic":
        from gad.providers.anthropic import AnthropicProvider

        return AnthropicProvider(**chosen)
    if entry.api == "responses":
        from gad.providers.openai_responses import ResponsesProvider

        return ResponsesProvider(**chosen)
    from gad.providers.openai_chat import ChatProvider

    return ChatProvider(**chosen)


def find_key(entry: Model, environ: Mapping[str, str]) -> str:
    """Return the key to ask a model with. Raises AuthError or ConfigError that say how to give one."""
    key = read_key(entry, environ)
    if key:
        return key
    if entry.key_file:
        raise AuthError(f"no key for model {entry.name}: {entry.key_file} is empty; write the key into it")
    if entry.key_env and entry.base_url is None:
        raise AuthError(f"no key for model {entry.name}: set {entry.key_env} in the daemon's environment, "
                        f"or models.{entry.name}.key_file in gad.yaml")  # fmt: skip
    return "none"  # a compatible server of one's own may want no key; the SDKs insist on some text


def build_daemon(
    config: Config,
    environ: Mapping[str, str],
    providers: Providers,
    *,
    only: str | None = None,
) -> Daemon:
    """Return a daemon for this home, not yet running."""
    spool = str(config.spool_dir)
    os.makedirs(spool, mode=0o700, exist_ok=True)
    home = str(config.home)
    ledger = Ledger(spool)
    base = with_gad(child_environment(environ, {}))

    def environment(session: str, call: str) -> Mapping[str, str]:
        return base | identity(home, session, call)

    browser = build_browser(config, base)
    launch = choose_sandbox(config, environ, lambda: daemon.unfinished())
    engine = build_memory(config, environment, launch) if config.memory.enabled else None
    closed = ClosedMemory(str(config.memory_dir))
    decide = None
    if engine is not None and config.memory.controller:
        controller = Controller(engine.store, place=engine.place)
        engine.learners.append(controller)
        decide = controller.decide

    def work(session: str) -> str:
        path = str(config.work_dir / session)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def price(entry: str, reported: str | None) -> Price | None:
        model = config.models.get(entry)
        return config.price_of(model, reported) if model is not None else None

    def begin(session: str, task: str | None) -> Beginning:
        options = parse_task(task, models=config.models) if task is not None else TaskOptions()
        check_cwd(options)
        effective = with_defaults(options, config, parent_options(spool, session, options))
        effective = with_confinement(effective, config, spool)
        first = config.chain_of(effective.model or config.model)[0]
        persist = config.models[first].provider == "local"
        # A small model loses its task in what it is told beside it.
        told = engine.told() if engine is not None and effective.memory and not persist else ""
        return Beginning(effective, preamble(effective.cwd or str(config.work_dir / session)), persist, told)

    parts = Parts(
        provider=providers,
        tools={tool.schema.name: tool for tool in all_tools(browser, launch)},
        run_check=partial(run_check, launch=only_confined(launch, spool)),
        retry=RetryPolicy(config.retry.first, config.retry.most, config.retry.give_up),
        price=price,
        window=config.window_of,
        chain=config.chain_of,
        environment=environment,
        work=work,
        memory=engine.door if engine is not None else lambda session: closed,
        run_script=ScriptRunner(engine.store, partial(run_script, launch=launch)) if engine is not None else None,
        decide=decide,
        ended=engine.ended if engine is not None else lambda live: None,
        usd_per_day=config.usd_per_day,
        spent_today=ledger.spent_today,
        spend=ledger.spend,
    )
    beside: list[Beside] = [browser] if engine is None else [engine, browser]
    if only is None:
        beside.append(build_triggers(config, base))
    daemon = Daemon(
        spool,
        parts,
        Door(Rules(config.spool.max_bytes, owners(config.spool.users)), begin),
        sessions=config.sessions,
        children=config.children,
        polling=bool(config.spool.polling),
        only=only,
        reap=lambda session, calls: end_orphans(home, session, (*calls, "gate")),
        beside=beside,
    )
    return daemon


def only_confined(launch: Launch, spool: str) -> Launch:
    """Return how the user's own commands are started: as they are, those of confined sessions in the sandbox.

    A check may run what the agent wrote, as `make test` does.
    """

    def start(argv: Sequence[str], *, session: str, cwd: str, work: str) -> list[str]:
        walled = isinstance(launch, Sandbox) and is_confined(spool, session)
        return launch(argv, session=session, cwd=cwd, work=work) if walled else list(argv)

    return start


def with_gad(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which `gad` is found: agents hand in sessions of their own with it."""
    path = environment.get("PATH", os.defpath)
    here = os.path.dirname(sys.executable)
    if shutil.which("gad", path=path) is None and os.access(os.path.join(here, "gad"), os.X_OK):
        path = f"{path}{os.pathsep}{here}"
    return {**environment, "PATH": path}


def build_browser(config: Config, environment: Mapping[str, str]) -> WebBrowser:
    """Return the browser of this home, which starts when a session first needs it."""
    chosen = config.browser
    return WebBrowser(
        str(config.browser_dir),
        environment={**environment, HOME: str(config.home)},
        executable=chosen.executable or "",
        headless=chosen.headless,
        cdp_url=chosen.cdp_url or "",
        profiles=chosen.profiles,
        proxy=chosen.proxy or "",
        user_agent=chosen.user_agent or "",
        idle=chosen.idle,
        sandbox=chosen.sandbox,
    )


def build_triggers(config: Config, environment: Mapping[str, str]) -> Host:
    """Return the host of this home's triggers, which see the given environment."""
    return Host(
        str(config.home),
        parse=parser_of(config),
        door=door_of(config),
        environment=environment,
        polling=bool(config.spool.polling),
    )


def build_memory(config: Config, environment: Callable[[str, str], Mapping[str, str]], launch: Launch) -> MemoryEngine:
    """Return the memory of this home, its directories made, and what learns from sessions."""
    store = MemoryStore(str(config.memory_dir))
    try:
        prepare(store)
    except (GadError, OSError) as exc:  # sessions do without; what is wrong is told to those who want to write
        log.error("memory is not in order: %s", exc)
    engine = MemoryEngine(config, store)
    gate = partial(run_check, launch=launch)
    engine.gate = ScriptGate(store, gate, lambda session: environment(session, "gate"))

    engine.learners.append(Evolution(store, drop=engine.drop, place=engine.place))
    return engine


def with_defaults(options: TaskOptions, config: Config, parent: TaskOptions | None = None) -> TaskOptions:
    """Return the options that are in force: what the task says, else what gad.yaml says.

    A child asks nobody where its parent may not.
    """
    limits = config.limits
    found = options.to_json()
    for name in ("turns", "tokens", "usd", "seconds"):
        found.setdefault(name, getattr(limits, name))
    found.setdefault("model", config.model)
    found.setdefault("ask", (parent.ask if parent is not None else None) or config.ask)
    return TaskOptions.from_json(found)


def preamble(cwd: str) -> str:
    """Return the line that opens a session's first message: what the system prompt must not hold, since it changes."""
    now = time.strftime("%A %Y-%m-%d %H:%M %Z")
    return f"[{now}; {platform.system()}; cwd {cwd}]"


def owners(users: tuple[str, ...]) -> frozenset[int]:
    """Return the user ids that may hand in files: the daemon's own, root's, and those that gad.yaml names."""
    found = {os.geteuid(), 0}
    for user in users:
        try:
            found.add(int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid)
        except KeyError:
            raise ConfigError(f"gad.yaml: spool.users: there is no user {user!r} on this machine") from None
    return frozenset(found)


async def run_shell(
    command: str,
    *,
    cwd: str,
    work: str,
    environment: Mapping[str, str],
    emit: Callable[[str], None],
    seconds: float,
    limit: int,
    spill: str,
    launch: Launch = unwrapped,
) -> tuple[int, str]:
    """Run a shell command; return its exit code, and at most `limit` characters of its output.

    `spill` names the file below `work` that takes the whole output when it is long.
    """
    plain = ["bash", "-c", command]
    try:
        argv = launch(plain, session=environment.get(SESSION, ""), cwd=cwd, work=work)
        finished = await run_command(
            argv,
            cwd=cwd,
            environment=environment,
            timeout=seconds,
            emit=emit,
            spill_path=str(Path(work) / spill),
            limit=limit,
            kept=argv != plain,
        )
    except OSError as exc:
        return 127, f"the command could not be started: {exc}"
    if finished.timed_out:
        return 124, f"{finished.output}\n[timed out after {seconds:g} s]"
    return finished.exit, finished.output


run_check = partial(run_shell, seconds=CHECK_SECONDS, limit=CHECK_OUTPUT, spill="check.txt")
run_script = partial(run_shell, seconds=SCRIPT_SECONDS, limit=SCRIPT_OUTPUT, spill="script.txt")
