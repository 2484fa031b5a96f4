"""The readers of `models` and `prices` in gad.yaml, and of the keys that an entry names."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from yaml import Node

from gad import yaml_lines as rule
from gad.config.values import BUILT_IN, LEAST_WINDOW, LOCAL_CONTEXT, LOCAL_RESERVE, Model
from gad.core.budget import Price
from gad.core.prices import SHIPPED
from gad.errors import ConfigError

CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The variable in which systemd names the directory of a unit's credentials."""
_KEYS = ("key_env", "key_file", "key_credential")
_DEFAULT_KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
_BASE_URLS = {"claude": "ANTHROPIC_BASE_URL", "gpt": "OPENAI_BASE_URL"}
_PER_MILLION = rule.number(0, 1e5, "US dollars per million tokens")
_MODEL: dict[str, rule.Field] = {
    "provider": rule.choice("anthropic", "openai", "local"),
    "model": rule.text,
    "api": rule.choice("chat", "responses"),
    "base_url": rule.matching(r"https?://[^\s/]+\S*", "a URL that begins with http:// or https://"),
    "key_env": rule.matching(
        r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable, never the key itself", secret=True
    ),
    "key_file": rule.text,
    "key_credential": rule.matching(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "the name of a credential, never the key itself", secret=True
    ),
    "max_tokens": rule.whole(1, 10_000_000),
    "idle_timeout": rule.seconds(0.1, 86400),
    "context": rule.whole(512, 100_000_000),
    "window": rule.whole(LEAST_WINDOW, 100_000_000),
    "tools": rule.choice("native", "text"),
    "weights": rule.text,
    "threads": rule.whole(1, 1024),
    "chain": rule.texts,
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


def read_key(entry: Model, environ: Mapping[str, str]) -> str | None:
    """Return an entry's key, or None when it has none. Raises ConfigError when its key file cannot be read."""
    if entry.key_file:
        try:
            return Path(entry.key_file).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as exc:
            said = exc.strerror if isinstance(exc, OSError) else "it is not text"
            raise ConfigError(f"models.{entry.name}.key_file: {entry.key_file} cannot be read: {said}") from None
    if entry.key_credential:
        return _read_credential(entry.name, entry.key_credential, environ)
    return environ.get(entry.key_env) or None if entry.key_env else None


def _read_credential(entry: str, name: str, environ: Mapping[str, str]) -> str | None:
    mend = f"give the unit LoadCredential={name}:FILE (gad service install --credential {name}:FILE), or use key_file"
    directory = environ.get(CREDENTIALS)
    if not directory:
        raise ConfigError(f"models.{entry}.key_credential: no service manager has handed over {name}; {mend}")
    try:
        return Path(directory, name).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as exc:
        said = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise ConfigError(f"models.{entry}.key_credential: {name} cannot be read: {said}; {mend}") from None


def default_model(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the entry that is the default in this environment, and why."""
    for name in ("claude", "gpt"):
        variable = BUILT_IN[name].key_env
        if variable and environ.get(variable):
            return name, f"environment {variable}"
    return "local", "default"


def read_models(
    reader: rule.Reader,
    given: Mapping[str, Node],
    home: Path,
    environ: Mapping[str, str],
    sources: dict[str, str],
) -> dict[str, Model]:
    """Return the entries, the built-in ones included; `sources` is told what the environment has changed in those."""
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
        "local": ("api", "base_url", *_KEYS, "tools"),
    }
    for key in unused.get(provider, ()):
        if key in values:
            reader.fail(
                reader.lines[f"{path}.{key}"], f"{path}.{key}", f"has no meaning for provider {provider}; remove it"
            )
    told = [key for key in _KEYS if key in values]
    for key in told[1:]:
        what = f"{told[0]} is given as well; keep one of the two"
        reader.fail(reader.lines[f"{path}.{key}"], f"{path}.{key}", what)
    if told:  # it takes the place of the one that is built in
        values |= {key: None for key in _KEYS if key not in told}
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


def _check_room(reader: rule.Reader, path: str, entry: Model) -> None:
    room = entry.room
    reserve = LOCAL_RESERVE if entry.provider == "local" else 0
    if room is None or room - reserve >= LEAST_WINDOW:
        return
    key = next((f"{path}.{key}" for key in ("context", "max_tokens") if f"{path}.{key}" in reader.lines), path)
    what = (
        f"a context of {entry.context} tokens, less max_tokens ({entry.max_tokens}), has no room for a request; "
        f"at least {LEAST_WINDOW + reserve} must be left: lower max_tokens or raise context"
    )
    reader.fail(reader.lines[key], key, what)


def read_prices(reader: rule.Reader, given: Mapping[str, Node]) -> dict[str, Price]:
    """Return the prices, the shipped ones included."""
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
