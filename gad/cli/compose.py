"""Putting the parts together: the one place that chooses providers, tools and their settings."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import pwd
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gad.agent import Parts, RetryPolicy
from gad.browser.browser import WebBrowser
from gad.cli.gc import Hourly
from gad.cli.memory_engine import MemoryEngine
from gad.cli.secrets import find_secrets
from gad.cli.trigger_file import door_of, parser_of
from gad.cli.walls import choose_sandbox, is_confined, own_temporary, with_confinement
from gad.config import Config, Model, read_key
from gad.core.budget import Price
from gad.core.failover import Standing
from gad.core.policy import Policy, make_policy
from gad.core.ports import Provider, RunCommand
from gad.core.redact import Secrets
from gad.core.task import TaskOptions
from gad.daemon import Beside, Daemon
from gad.errors import AuthError, ConfigError, GadError
from gad.home import CONFIG_NAME
from gad.memory.controller import Controller
from gad.memory.door import ClosedMemory
from gad.memory.evolution import Evolution
from gad.memory.scripts import ScriptGate, ScriptRunner
from gad.memory.shipped import prepare
from gad.memory.store import MemoryStore
from gad.metrics import Metrics
from gad.notify import Notifier
from gad.spool import names
from gad.spool.claim import Rules
from gad.spool.group import group_id, loose, make_spool
from gad.spool.intake import Beginning, Door
from gad.spool.kin import owner_below, parent_options
from gad.spool.ledger import Ledger, Quotas
from gad.spool.space import Space
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
    """The models that gad.yaml names, each built when it is first asked for and kept.

    `config` is what is in force; `take_up` changes it. `secrets` are the keys and what else must be seen by nobody.
    """

    def __init__(self, config: Config, environ: Mapping[str, str], progress: Callable[[str, int, int], None]) -> None:
        self.config = config
        self.secrets = Secrets()
        self._environ = environ
        self._progress = progress
        self._built: dict[str, Provider] = {}
        self._keys: dict[str, str | None] = {}  # of vendors' entries that have been built
        self._retired: list[Provider] = []
        self._learn_secrets()

    def take_up(self, config: Config) -> None:
        """Go on with other settings. A vendor's client is built anew when its entry or its key is another one.

        The former one ends with the daemon: requests may be under way in it.
        """
        for name, key in list(self._keys.items()):
            entry = config.models.get(name)
            if entry != self.config.models[name] or self._key(entry) != key:
                self._retired.append(self._built.pop(name))
                del self._keys[name]
        self.config = config
        self._learn_secrets()

    def _learn_secrets(self) -> None:
        for name, value in find_secrets(self.config, self._environ):
            self.secrets.add(name, value)

    def _key(self, entry: Model | None) -> str | None:
        with contextlib.suppress(ConfigError):  # the next request says what is wrong with it
            return read_key(entry, self._environ) if entry is not None else None
        return None

    def __call__(self, name: str) -> Provider:
        """Return the provider of one entry; of a chain, that of its first one.

        Raises ConfigError or AuthError that say how to mend it.
        """
        name = self.config.chain_of(name)[0]
        if name not in self._built:
            entry = self.config.models.get(name)
            if entry is None:
                known = ", ".join(self.config.models)
                raise ConfigError(f"no entry of models is called {name!r} in gad.yaml; there are: {known}")
            self._built[name] = self._build(entry)
        return self._built[name]

    # An SDK takes up to a second to import, so each is imported when it is first needed.

    def _build(self, entry: Model) -> Provider:
        if entry.provider == "local":
            return self._local(entry)
        self._learn_secrets()  # its key may be another one by now
        provider = vendor_provider(entry, self._environ)
        self._keys[entry.name] = self._key(entry)
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
        for provider in (*self._built.values(), *self._retired):
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
    if place := entry.key_file or entry.key_credential:
        raise AuthError(f"no key for model {entry.name}: {place} is empty; write the key into it")
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
    """Return a daemon for this home, not yet running. `take_up` gives it other settings."""
    spool = str(config.spool_dir)
    group = group_id(config.spool.group) if config.spool.group is not None else None
    make_spool(spool, group, int(config.spool.mode, 8))
    if wrong := loose(spool, group):
        log.warning("%s", wrong)
    rules = Rules(config.spool.max_bytes, owners(config.spool.users), group)
    home = str(config.home)
    ledger = Ledger(spool)
    base = with_gad(child_environment(environ, {}))

    def environment(session: str, call: str) -> Mapping[str, str]:
        return base | identity(home, session, call)

    browser = build_browser(config, base)
    secrets = providers.secrets
    metrics = Metrics(os.path.join(spool, names.DAEMON_DIR))
    launch = choose_sandbox(config, environ, lambda: daemon.unfinished(), lambda: providers.config)
    inside = partial(run_check, launch=launch, secrets=secrets)
    engine = build_memory(config, environment, inside, metrics.committed) if config.memory.enabled else None
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
        model = providers.config.models.get(entry)
        return providers.config.price_of(model, reported) if model is not None else None

    quotas = Quotas(ledger, config.quota, rules.masters)

    def begin(session: str, task: str | None, user: int) -> Beginning:
        config = providers.config
        options = parse_task(task, models=config.models) if task is not None else TaskOptions()
        check_cwd(options)
        effective = with_defaults(options, config, parent_options(spool, session, options))
        effective = with_confinement(effective, config, spool)
        first = config.chain_of(effective.model or config.model)[0]
        persist = config.models[first].provider == "local"
        # A small model loses its task in what it is told beside it.
        told = engine.told() if engine is not None and effective.memory and not persist else ""
        owner = owner_below(spool, options, user, rules.masters)
        return Beginning(effective, preamble(effective.cwd or str(config.work_dir / session)), persist, told, owner)

    parts = Parts(
        provider=providers,
        tools={tool.schema.name: tool for tool in all_tools(browser, launch)},
        run_check=partial(run_check, launch=only_confined(launch, spool), secrets=secrets),
        price=price,
        window=lambda name: providers.config.window_of(name),
        chain=lambda name: providers.config.chain_of(name),
        environment=environment,
        work=work,
        memory=engine.door if engine is not None else lambda session: closed,
        run_script=ScriptRunner(engine.store, partial(run_script, launch=launch, secrets=secrets))
        if engine is not None
        else None,
        decide=decide,
        ended=engine.ended if engine is not None else lambda live: None,
        spent_today=ledger.spent_today,
        spend=ledger.spend,
        over_quota=quotas.spent,
        secrets=secrets,
        seen=metrics.seen,
        **_values(config, own_temporary(launch, config)),
    )
    beside: list[Beside] = [browser] if engine is None else [engine, browser]
    if only is None:
        beside.append(build_triggers(lambda: providers.config, base))
        beside.append(Hourly(lambda: providers.config))
        beside.append(metrics)
    daemon = Daemon(
        spool,
        parts,
        Door(rules, begin, secrets=secrets),
        sessions=config.sessions,
        children=config.children,
        polling=bool(config.spool.polling),
        only=only,
        reap=lambda session, calls: end_orphans(home, session, (*calls, "gate")),
        beside=beside,
        notifier=Notifier(environ) if only is None else None,
        space=Space(spool, config.spool.min_free),
        quotas=quotas,
    )
    metrics.watch(daemon.counts, daemon.oldest_queued)
    return daemon


def _values(config: Config, temporary: tuple[str, ...]) -> dict[str, Any]:
    """Return those of a daemon's parts that are plain values of its settings."""
    retry = RetryPolicy(config.retry.first, config.retry.most, config.retry.give_up)
    policy = replace(build_policy(config, os.environ), temporary=temporary)
    return {"retry": retry, "usd_per_day": config.usd_per_day, "policy": policy}


def build_policy(config: Config, environ: Mapping[str, str]) -> Policy:
    """Return what agents of this home may do. Links in its paths are followed now."""
    spool = str(config.spool_dir)
    daemons = (*names.DAEMON_FILES, "archived-*", "rejected-*", ".claim-*")
    keys = [entry.key_file for entry in config.models.values() if entry.key_file]
    return make_policy(
        config.policy.rules,
        home=os.path.expanduser("~"),
        real=os.path.realpath,
        roots=config.policy.roots,
        own=(
            str(config.home / CONFIG_NAME),
            str(config.triggers_dir),
            f"{spool}/{names.DAEMON_DIR}",
            *(f"{spool}/*/{name}" for name in daemons),
        ),
        secrets=(*keys, str(config.browser_dir), *filter(None, [environ.get("CREDENTIALS_DIRECTORY")])),
        spool=spool,
    )


def take_up(daemon: Daemon, providers: Providers, config: Config) -> None:
    """Have a running daemon go on with other settings. All models are tried again, whatever was learnt of them."""
    parts = replace(daemon.parts, standing=Standing(), **_values(config, daemon.parts.policy.temporary))
    providers.take_up(config)
    daemon.take_up(parts, sessions=config.sessions, children=config.children, quota=config.quota)


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


def build_triggers(current: Callable[[], Config], environment: Mapping[str, str]) -> Host:
    """Return the host of this home's triggers, which see the given environment; `current` gives the settings."""
    config = current()
    return Host(
        str(config.home),
        parse=parser_of(current),
        door=door_of(current),
        environment=environment,
        polling=bool(config.spool.polling),
    )


def build_memory(
    config: Config,
    environment: Callable[[str, str], Mapping[str, str]],
    check: RunCommand,
    on_step: Callable[[str], None],
) -> MemoryEngine:
    """Return the memory of this home, its directories made, and what learns from sessions.

    `check` runs what a procedure's script must pass; `on_step` is told each step of a commit.
    """
    store = MemoryStore(str(config.memory_dir), on_step=on_step)
    try:
        prepare(store)
    except (GadError, OSError) as exc:  # sessions do without; what is wrong is told to those who want to write
        log.error("memory is not in order: %s", exc)
    engine = MemoryEngine(config, store)
    engine.gate = ScriptGate(store, check, lambda session: environment(session, "gate"))

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
    secrets: Secrets | None = None,
    launch: Launch = unwrapped,
) -> tuple[int, str]:
    """Run a shell command; return its exit code, and at most `limit` characters of its output.

    `spill` names the file below `work` that takes the whole output when it is long. `secrets` are kept out of it.
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
            secrets=secrets,
            kept=argv != plain,
        )
    except OSError as exc:
        return 127, f"the command could not be started: {exc}"
    if finished.timed_out:
        return 124, f"{finished.output}\n[timed out after {seconds:g} s]"
    return finished.exit, finished.output


run_check = partial(run_shell, seconds=CHECK_SECONDS, limit=CHECK_OUTPUT, spill="check.txt")
run_script = partial(run_shell, seconds=SCRIPT_SECONDS, limit=SCRIPT_OUTPUT, spill="script.txt")
