"""gad.yaml as frozen values; every mistake is named with its line and how to mend it.

`values` holds what the settings are, `models` and `sections` read their parts of the file, `load` reads all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from gad import yaml_lines as rule
from gad.config.models import CREDENTIALS, default_model, read_key, read_models, read_prices
from gad.config.sections import (
    LIMIT_FIELDS,
    USD,
    read_browser,
    read_limits,
    read_log,
    read_memory,
    read_policy,
    read_quota,
    read_retain,
    read_retry,
    read_sandbox,
    read_spool,
)
from gad.config.values import (
    BUILT_IN,
    LEAST_WINDOW,
    LOCAL_CONTEXT,
    LOCAL_RESERVE,
    WINDOW,
    BrowserSettings,
    Config,
    Limits,
    LogSettings,
    MemorySettings,
    Model,
    PolicySettings,
    RetainSettings,
    Retry,
    SandboxSettings,
    SpoolSettings,
)
from gad.errors import ConfigError, HomeNotFound
from gad.home import CONFIG_NAME

__all__ = [
    "BUILT_IN",
    "CREDENTIALS",
    "LEAST_WINDOW",
    "LIMIT_FIELDS",
    "LOCAL_CONTEXT",
    "LOCAL_RESERVE",
    "WINDOW",
    "BrowserSettings",
    "Config",
    "Limits",
    "LogSettings",
    "MemorySettings",
    "Model",
    "PolicySettings",
    "RetainSettings",
    "Retry",
    "SandboxSettings",
    "SpoolSettings",
    "load",
    "read_key",
]

_TOP: dict[str, rule.Field] = {
    "model": rule.text,
    "models": rule.as_node,
    "limits": rule.as_node,
    "usd_per_day": USD,
    "quota": rule.as_node,
    "sessions": rule.whole(1, 10_000),
    "children": rule.whole(1, 10_000),
    "retry": rule.as_node,
    "prices": rule.as_node,
    "spool": rule.as_node,
    "memory": rule.as_node,
    "log": rule.as_node,
    "retain": rule.as_node,
    "browser": rule.as_node,
    "policy": rule.as_node,
    "sandbox": rule.as_node,
    "ask": rule.choice("user", "never"),
    "drain": rule.seconds(0, 86400),
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
    models = read_models(reader, reader.entries(given.get("models"), "models"), home, environ, sources)
    prices = read_prices(reader, reader.entries(given.get("prices"), "prices"))
    limits = read_limits(reader, given.get("limits"))
    spool = read_spool(reader, given.get("spool"))
    quota = read_quota(reader, given.get("quota"))
    memory = read_memory(reader, given.get("memory"))
    log = read_log(reader, given.get("log"))
    retain = read_retain(reader, given.get("retain"))
    browser = read_browser(reader, given.get("browser"), home)
    policy = read_policy(reader, given.get("policy"))
    sandbox = read_sandbox(reader, given.get("sandbox"))
    retry = read_retry(reader, given.get("retry"))
    name = given.get("model")
    if name is None:
        name, sources["model"] = default_model(environ)
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
        quota=quota,
        sessions=given.get("sessions", 16),
        children=given.get("children", 8),
        retry=retry,
        prices=MappingProxyType(prices),
        spool=spool,
        memory=memory,
        log=log,
        retain=retain,
        browser=browser,
        policy=policy,
        sandbox=sandbox,
        ask=given.get("ask", "user"),
        drain=given.get("drain", 60.0),
        sources=MappingProxyType(sources),
    )
