"""gad.yaml as frozen values; every mistake is named with its line and how to mend it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from yaml import Node, ScalarNode

from gad import yaml_lines as rule
from gad.core.budget import FREE, Price, find_price
from gad.core.prices import SHIPPED
from gad.errors import ConfigError, HomeNotFound
from gad.home import CONFIG_NAME


@dataclass(frozen=True, slots=True)
class Limits:
    """What one session may use; None is no limit. `seconds` is wall-clock time spent working."""

    turns: int = 80
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of `models`.

    `key_env` names an environment variable, `key_file` an absolute path; with neither no key is sent.
    `context` is how many tokens the model can read and write at once when it is known, `window` how many one request
    may take when the entry says so: see `Config.window_of`. `tools: text` writes the tools into the prompt instead of
    using the server's own tool calls. `weights` (an absolute path) and `threads` are the local model's.
    `idle_timeout` is in seconds.

    A chain has the provider `chain` and names other entries; it cannot be asked itself, and nothing else holds of it.
    """

    name: str
    provider: Literal["anthropic", "openai", "local", "chain"]
    model: str
    api: Literal["chat", "responses"] = "chat"
    base_url: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    max_tokens: int = 8192
    idle_timeout: float = 120.0
    context: int | None = None
    window: int | None = None
    tools: Literal["native", "text"] = "native"
    weights: str | None = None
    threads: int | None = None
    chain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to wait for a model that is out of reach, in seconds: at first, at most, and altogether."""

    first: float = 1.0
    most: float = 60.0
    give_up: float = 86400.0


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """What is accepted from clients.

    `users` are names or numeric ids besides the daemon's own. `polling` None: where events do not work.
    """

    max_bytes: int = 1_048_576
    users: tuple[str, ...] = ()
    polling: bool | None = None


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Long-term memory: whether there is any, whether the controller chooses how it is used, whether gad reviews."""

    enabled: bool = True
    controller: bool = True
    reviews: bool = True


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """How web pages are met.

    `executable` is a path; None: Playwright's own browser, else the system's. `cdp_url` is the address of a browser
    that a person uses, which is attached to. Sessions with a label in `profiles` share cookies that are kept for
    good. `idle` is in seconds.
    """

    executable: str | None = None
    headless: bool = True
    cdp_url: str | None = None
    profiles: tuple[str, ...] = ()
    proxy: str | None = None
    user_agent: str | None = None
    idle: float = 300.0
    sandbox: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Where the code that agents write runs.

    `auto`: in bubblewrap's sandbox where that works. `writable` are absolute paths that code may write to besides the
    session's own directories. Without `network` it reaches none.
    """

    mode: Literal["auto", "none", "bwrap"] = "auto"
    network: bool = True
    writable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force. `sources` says where each value that is not a default came from, by dotted key."""

    home: Path
    model: str
    models: Mapping[str, Model]
    limits: Limits = field(default_factory=Limits)
    usd_per_day: float | None = None
    sessions: int = 16
    children: int = 8
    retry: Retry = field(default_factory=Retry)
    prices: Mapping[str, Price] = field(default_factory=lambda: SHIPPED)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    browser: BrowserSettings = field(default_factory=BrowserSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    ask: Literal["user", "never"] = "user"
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def spool_dir(self) -> Path:
        """Where sessions are handed in."""
        return self.home / "spool"

    @property
    def work_dir(self) -> Path:
        """Where tools work, one directory a session."""
        return self.home / "work"

    @property
    def memory_dir(self) -> Path:
        """What agents keep between sessions."""
        return self.home / "memory"

    @property
    def browser_dir(self) -> Path:
        """Where browsers keep their profiles, and their files while they run."""
        return self.home / "browser"

    @property
    def triggers_dir(self) -> Path:
        """Programs that start sessions by themselves."""
        return self.home / "triggers"

    def source(self, key: str) -> str:
        """Return where the value of a dotted key came from."""
        return self.sources.get(key, "default")

    def chain_of(self, name: str) -> tuple[str, ...]:
        """Return the entries that may answer for `name`, the preferred one first; a name that is no chain is its own.

        A name that is not known is its own as well: a journal may remember an entry that has been removed.
        """
        entry = self.models.get(name)
        return (entry.chain if entry is not None else ()) or (name,)

    def window_of(self, name: str) -> int:
        """Return how many tokens one request to an entry may take; for a chain, what each of its entries can take.

        That is `window`, or by default `WINDOW`, for the local model all that it has room for; and never more than
        its context leaves beside an answer. Raises KeyError for a name that is not known.
        """
        entry = self.models[name]
        if entry.chain:
            return min(self.window_of(link) for link in entry.chain)
        room = _room(entry)
        if entry.provider == "local" and entry.window is None and room is not None:
            return room - LOCAL_RESERVE
        window = entry.window or WINDOW
        return window if room is None else min(window, room)

    def price_of(self, entry: Model, reported: str | None = None) -> Price | None:
        """Return the price of what an entry answers with; `reported` is the model id that the server named."""
        if entry.provider == "local":
            return FREE
        found = find_price(self.prices, reported) if reported else None
        return found or find_price(self.prices, entry.model)


WINDOW = 30_000
"""Tokens that one request may take by default: a model is dear, slow and forgetful long before its context is full."""
LEAST_WINDOW = 1000
"""Tokens without which there is no room for a request at all."""
LOCAL_CONTEXT = 16_384
"""Tokens of the local model's context by default."""
LOCAL_RESERVE = 512
"""Tokens that stay free in the local model's context, as a request's size is estimated."""

BUILT_IN: Mapping[str, Model] = MappingProxyType(
    {
        "claude": Model(
            "claude",
            "anthropic",
            "claude-sonnet-5-5",
            key_env="ANTHROPIC_API_KEY",
            max_tokens=32_000,
            context=1_000_000,
        ),
        # This generation calls functions through the Responses API only.
        "gpt": Model(
            "gpt",
            "openai",
            "gpt-6.2-sol",
            api="responses",
            key_env="OPENAI_API_KEY",
            max_tokens=32_000,
            context=1_050_000,
        ),
        # Prompts are read at some 50 tokens a second on a small machine, so silence is long.
        "local": Model(
            "local",
            "local",
            "qwen2.5-coder-1.5b-instruct",
            max_tokens=2048,
            idle_timeout=600.0,
            context=LOCAL_CONTEXT,
        ),
    }
)
_DEFAULT_KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
_BASE_URLS = {"claude": "ANTHROPIC_BASE_URL", "gpt": "OPENAI_BASE_URL"}

_YEAR = 366 * 86400.0
_USD = rule.number(0.0001, 1e6, "US dollars")
_PER_MILLION = rule.number(0, 1e5, "US dollars per million tokens")
LIMIT_FIELDS: dict[str, rule.Field] = {
    "turns": rule.whole(1, 1_000_000),
    "tokens": rule.whole(1, 10**12),
    "usd": _USD,
    "seconds": rule.seconds(1, _YEAR),
}
_MODEL: dict[str, rule.Field] = {
    "provider": rule.choice("anthropic", "openai", "local"),
    "model": rule.text,
    "api": rule.choice("chat", "responses"),
    "base_url": rule.matching(r"https?://[^\s/]+\S*", "a URL that begins with http:// or https://"),
    "key_env": rule.matching(
        r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, never the key itself", secret=True
    ),
    "key_file": rule.text,
    "max_tokens": rule.whole(1, 10_000_000),
    "idle_timeout": rule.seconds(0.1, 86400),
    "context": rule.whole(512, 100_000_000),
    "window": rule.whole(LEAST_WINDOW, 100_000_000),
    "tools": rule.choice("native", "text"),
    "weights": rule.text,
    "threads": rule.whole(1, 1024),
    "chain": rule.texts,
}
_RETRY: dict[str, rule.Field] = {
    "first": rule.seconds(0.01, 3600),
    "most": rule.seconds(0.01, 86400),
    "give_up": rule.seconds(0, _YEAR),
}
_PRICE: dict[str, rule.Field] = {
    "input": _PER_MILLION,
    "output": _PER_MILLION,
    "cached": _PER_MILLION,
    "cache_write": _PER_MILLION,
    "above": rule.whole(1, 100_000_000),
    "above_input": rule.number(1, 100, "a factor"),
    "above_output": rule.number(1, 100, "a factor"),
}


def _polling(node: Node) -> bool | None:
    return None if isinstance(node, ScalarNode) and node.value == "auto" else rule.flag(node)


_SPOOL: dict[str, rule.Field] = {
    "max_bytes": rule.whole(1, 2**30),
    "users": rule.texts,
    "polling": _polling,
}
_MEMORY: dict[str, rule.Field] = {"enabled": rule.flag, "controller": rule.flag, "reviews": rule.flag}
_BROWSER: dict[str, rule.Field] = {
    "executable": rule.text,
    "headless": rule.flag,
    "cdp_url": rule.matching(r"(https?|wss?)://[^\s/]+\S*", "a URL such as http://127.0.0.1:9222"),
    "profiles": rule.texts,
    "proxy": rule.matching(
        r"(https?|socks5)://[^\s/]+", "a URL such as http://host:3128 or socks5://host:1080", secret=True
    ),
    "user_agent": rule.text,
    "idle": rule.seconds(1, 86400),
    "sandbox": rule.choice("auto", "on", "off"),
}
_SANDBOX: dict[str, rule.Field] = {
    "mode": rule.choice("auto", "none", "bwrap"),
    "network": rule.flag,
    "writable": rule.texts,
}
_TOP: dict[str, rule.Field] = {
    "model": rule.text,
    "models": rule.as_node,
    "limits": rule.as_node,
    "usd_per_day": _USD,
    "sessions": rule.whole(1, 10_000),
    "children": rule.whole(1, 10_000),
    "retry": rule.as_node,
    "prices": rule.as_node,
    "spool": rule.as_node,
    "memory": rule.as_node,
    "browser": rule.as_node,
    "sandbox": rule.as_node,
    "ask": rule.choice("user", "never"),
}


def load(home: Path, environ: Mapping[str, str]) -> Config:
    """Read a home's gad.yaml. Raises ConfigError that names every mistake, one a line."""
    path = home / CONFIG_NAME
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise HomeNotFound(f"{home} holds no {CONFIG_NAME}; make it a home with: gad init {home}") from None
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{CONFIG_NAME}: not UTF-8 at byte {exc.start}; save it as UTF-8") from None
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from None
    reader = rule.Reader(CONFIG_NAME)
    given = reader.table(reader.compose(text), "", _TOP)
    sources: dict[str, str] = {}
    models = _models(reader, reader.entries(given.get("models"), "models"), home, environ, sources)
    prices = _prices(reader, reader.entries(given.get("prices"), "prices"))
    limits = Limits(**reader.table(given.get("limits"), "limits", LIMIT_FIELDS))
    spool = SpoolSettings(**reader.table(given.get("spool"), "spool", _SPOOL))
    memory = MemorySettings(**reader.table(given.get("memory"), "memory", _MEMORY))
    browser = _browser(reader, given.get("browser"), home)
    sandbox = _sandbox(reader, given.get("sandbox"))
    retry = Retry(**reader.table(given.get("retry"), "retry", _RETRY))
    if retry.first > retry.most:
        line = reader.lines.get("retry.first") or reader.lines.get("retry.most", 1)
        reader.fail(line, "retry.first", f"{retry.first:g} s is more than retry.most, {retry.most:g} s; swap them")
    name = given.get("model")
    if name is None:
        name, sources["model"] = _default_model(environ)
    elif name not in models:
        reader.fail(
            reader.lines["model"], "model", f"no entry of models is called {name!r}" + rule.did_you_mean(name, models)
        )
    reader.finish()
    sources |= {key: f"{CONFIG_NAME}:{line}" for key, line in reader.lines.items()}
    return Config(
        home=home,
        model=name,
        models=MappingProxyType(models),
        limits=limits,
        usd_per_day=given.get("usd_per_day"),
        sessions=given.get("sessions", 16),
        children=given.get("children", 8),
        retry=retry,
        prices=MappingProxyType(prices),
        spool=spool,
        memory=memory,
        browser=browser,
        sandbox=sandbox,
        ask=given.get("ask", "user"),
        sources=MappingProxyType(sources),
    )


def read_key(entry: Model, environ: Mapping[str, str]) -> str | None:
    """Return an entry's key, or None when it has none. Raises ConfigError when its key file cannot be read."""
    if entry.key_file:
        try:
            return Path(entry.key_file).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as exc:
            said = exc.strerror if isinstance(exc, OSError) else "it is not text"
            raise ConfigError(f"models.{entry.name}.key_file: {entry.key_file} cannot be read: {said}") from None
    return environ.get(entry.key_env) or None if entry.key_env else None


def _default_model(environ: Mapping[str, str]) -> tuple[str, str]:
    for name in ("claude", "gpt"):
        variable = BUILT_IN[name].key_env
        if variable and environ.get(variable):
            return name, f"environment {variable}"
    return "local", "default"


def _models(
    reader: rule.Reader,
    given: Mapping[str, Node],
    home: Path,
    environ: Mapping[str, str],
    sources: dict[str, str],
) -> dict[str, Model]:
    models = dict(BUILT_IN)
    for name, variable in _BASE_URLS.items():
        if environ.get(variable):
            models[name] = replace(models[name], base_url=environ[variable], api="chat")
            sources[f"models.{name}.base_url"] = f"environment {variable}"
    for name, node in given.items():
        path = f"models.{name}"
        values = reader.table(node, path, _MODEL)
        if f"{path}.chain" in reader.lines:
            chain = _chain(reader, path, values, known={*models, *given})
            models[name] = Model(name, "chain", ", ".join(chain), chain=chain)
            continue
        for key in ("key_file", "weights"):
            if key in values:
                values[key] = os.path.normpath(home / os.path.expanduser(values[key]))
        if entry := _model(reader, path, values, models.get(name)):
            models[name] = entry
            if f"{path}.base_url" in reader.lines:
                sources.pop(f"{path}.base_url", None)
    for name, entry in models.items():
        for link in entry.chain:
            if link in models and models[link].chain:
                what = f"{link} is a chain itself; name the entries that it is made of"
                reader.fail(reader.lines[f"models.{name}.chain"], f"models.{name}.chain", what)
    return models


def _chain(reader: rule.Reader, path: str, values: dict[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """Return the names in an entry's `chain`, its mistakes noted. Whether one is a chain itself is not looked at."""
    for key in sorted(set(_MODEL) - {"chain"}):
        if line := reader.lines.get(f"{path}.{key}"):
            reader.fail(line, f"{path}.{key}", "has no meaning beside chain; write it into the entries of the chain")
    links: tuple[str, ...] = values.get("chain", ())
    problems = []
    if "chain" in values and len(links) < 2:
        problems.append("must name at least two entries of models, the preferred one first")
    problems += [f"names {link} more than once; remove one" for link in dict.fromkeys(links) if links.count(link) > 1]
    for link in dict.fromkeys(links):
        if link not in known:
            problems.append(f"no entry of models is called {link!r}" + rule.did_you_mean(link, known))
    for problem in problems:
        reader.fail(reader.lines[f"{path}.chain"], f"{path}.chain", problem)
    return links


def _model(reader: rule.Reader, path: str, values: dict[str, Any], base: Model | None) -> Model | None:
    """Merge one entry over the built-in one of its name; the merge starts anew when it names another provider."""
    line = reader.lines[path]
    if base is not None and values.get("provider", base.provider) != base.provider:
        base = None
    if base is None:
        missing = [key for key in ("provider", "model") if key not in values and f"{path}.{key}" not in reader.lines]
        for key in missing:
            reader.fail(line, path, f"{key} is missing; add the line `{key}: ...` to this entry")
        if "provider" not in values or "model" not in values:
            return None
    provider = values.get("provider") or (base.provider if base else "")
    unused = {
        "openai": ("weights", "threads"),
        "anthropic": ("api", "weights", "threads"),
        "local": ("api", "base_url", "key_env", "key_file", "tools"),
    }
    for key in unused.get(provider, ()):
        if key in values:
            reader.fail(
                reader.lines[f"{path}.{key}"], f"{path}.{key}", f"has no meaning for provider {provider}; remove it"
            )
    if "key_env" in values and "key_file" in values:
        reader.fail(
            reader.lines[f"{path}.key_file"], f"{path}.key_file", "key_env is given as well; keep one of the two"
        )
    if "key_file" in values:
        values.setdefault("key_env", None)
    if "base_url" in values:
        # Another server gets a vendor's key only when the entry says so, and most speak chat alone.
        values.setdefault("key_env", None)
        values.setdefault("api", "chat")
    elif base is None and "key_env" not in values:
        values["key_env"] = _DEFAULT_KEYS.get(provider)
    if provider == "local" and base is None:
        values.setdefault("context", LOCAL_CONTEXT)
    name = path.removeprefix("models.")
    entry = replace(base, **values) if base else Model(name=name, **values)
    _check_room(reader, path, entry)
    return entry


def _room(entry: Model) -> int | None:
    """Return the tokens that an entry's context leaves for a request beside an answer, or None when it is not known."""
    return None if entry.context is None else entry.context - entry.max_tokens


def _check_room(reader: rule.Reader, path: str, entry: Model) -> None:
    room = _room(entry)
    reserve = LOCAL_RESERVE if entry.provider == "local" else 0
    if room is None or room - reserve >= LEAST_WINDOW:
        return
    key = next((f"{path}.{key}" for key in ("context", "max_tokens") if f"{path}.{key}" in reader.lines), path)
    what = (
        f"a context of {entry.context} tokens, less max_tokens ({entry.max_tokens}), has no room for a request; "
        f"at least {LEAST_WINDOW + reserve} must be left: lower max_tokens or raise context"
    )
    reader.fail(reader.lines[key], key, what)


def _browser(reader: rule.Reader, node: Node | None, home: Path) -> BrowserSettings:
    values = reader.table(node, "browser", _BROWSER)
    for label in values.get("profiles", ()):
        if not re.fullmatch(r"[\w][\w.-]{0,63}", label):
            what = f"{label!r} cannot name a profile; use letters, digits, dots and dashes, at most 64"
            reader.fail(reader.lines["browser.profiles"], "browser.profiles", what)
    if "cdp_url" in values:
        for key in ("executable", "headless", "profiles", "proxy", "user_agent", "sandbox"):
            if line := reader.lines.get(f"browser.{key}"):
                what = "has no meaning beside cdp_url, as that browser runs already; remove one of the two"
                reader.fail(line, f"browser.{key}", what)
    if "executable" in values:
        values["executable"] = os.path.normpath(home / os.path.expanduser(values["executable"]))
    return BrowserSettings(**values)


def _sandbox(reader: rule.Reader, node: Node | None) -> SandboxSettings:
    """Read `sandbox`, whose mode may stand alone."""
    if isinstance(node, ScalarNode):
        try:
            return SandboxSettings(mode=_SANDBOX["mode"](node))
        except rule.Wrong as exc:
            reader.fail(node, "sandbox", str(exc))
            return SandboxSettings()
    values = reader.table(node, "sandbox", _SANDBOX)
    if values.get("mode") == "none":
        for key in ("network", "writable"):
            if line := reader.lines.get(f"sandbox.{key}"):
                reader.fail(line, f"sandbox.{key}", "has no meaning beside mode: none; remove one of the two")
    places = []
    for path in values.get("writable", ()):
        expanded = os.path.expanduser(path)
        if not os.path.isabs(expanded):
            what = f"must be absolute paths, or such that begin with ~/, not {path!r}"
            reader.fail(reader.lines["sandbox.writable"], "sandbox.writable", what)
        places.append(os.path.normpath(expanded))
    if places:
        values["writable"] = tuple(places)
    return SandboxSettings(**values)


def _prices(reader: rule.Reader, given: Mapping[str, Node]) -> dict[str, Price]:
    prices = dict(SHIPPED)
    for name, node in given.items():
        path = f"prices.{name}"
        values = reader.table(node, path, _PRICE)
        missing = [key for key in ("input", "output") if f"{path}.{key}" not in reader.lines]
        for key in missing:
            reader.fail(reader.lines[path], path, f"{key} is missing; add its US dollars per million tokens")
        if "input" in values and "output" in values:
            prices[name] = Price(**values)
    return prices
