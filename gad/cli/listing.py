"""gad ps, models and config: what there is."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gad.cli import Place
from gad.cli.doing import RESTED, doing
from gad.cli.plain import one_line
from gad.cli.show import json_bytes
from gad.spool.names import INPUT, valid_session_name
from gad.spool.status import read_status, seconds_of

if TYPE_CHECKING:
    from gad.config import Config, Model


@click.command("ps")
@click.option("--all", "-a", "everything", is_flag=True, help="Sessions that are at rest as well.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@click.pass_obj
def ps_command(place: Place, everything: bool, as_json: bool) -> None:
    """List the sessions that are at work or ask a question, and what each does now, the newest change first."""
    spool = place.spool()
    found = sessions(spool)
    shown = found if everything else [one for one in found if str(one["state"]) not in RESTED]
    for one in shown:
        one["doing"] = doing(spool / one["session"], one).text
    if as_json:
        click.echo(json_bytes(shown))
        return
    now = time.time()
    rows = [
        (
            one["session"],
            one["state"],
            age(now, seconds_of(one.get("since"))),
            _text(one.get("turn")),
            _text(one.get("tokens_in"), one.get("tokens_out")),
            dollars(one.get("cost_usd")),
            _text(one.get("model")),
            one["doing"],
        )
        for one in shown
    ]
    table(("SESSION", "STATE", "FOR", "TURN", "TOKENS", "COST", "MODEL", "DOING"), rows)
    if len(found) > len(shown):
        click.echo(f"({len(found) - len(shown)} at rest; gad ps --all lists them)", err=True)


def sessions(spool: Path) -> list[dict[str, Any]]:
    """Return every session's name and status, the newest change first.

    A session that no daemon has taken yet has the state `new`.
    """
    found = []
    with os.scandir(spool) as entries:
        for entry in entries:
            if not valid_session_name(entry.name) or not entry.is_dir():
                continue
            try:
                status = read_status(entry.path)
            except PermissionError:  # another user's, who has closed it: gad doctor tells of it
                continue
            if "state" not in status:
                if not os.path.lexists(os.path.join(entry.path, INPUT)):
                    continue
                status = {"state": "new"} | status
            found.append({"session": entry.name} | status)
    return sorted(found, key=lambda one: (-(seconds_of(one.get("since")) or float("inf")), one["session"]))


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@click.pass_obj
def models_command(place: Place, as_json: bool) -> None:
    """List the models that a task can name. A star marks the one that answers when a task names none."""
    config, environ = place.config(), place.environ()
    found = [_model(config, entry, environ) for entry in config.models.values()]
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    rows = [
        (
            ("* " if one["default"] else "  ") + one["name"],
            one["provider"],
            " > ".join(one["chain"]) or one["model"],
            one["key"],
            _price(one),
            one["base_url"] or "",
        )
        for one in found
    ]
    table(("  NAME", "PROVIDER", "MODEL", "KEY", "USD PER MILLION", ""), rows)


def _price(one: dict[str, Any]) -> str:
    if one["chain"]:
        return "-"
    return "unknown" if one["price"] is None else f"{one['price']['input']:g} / {one['price']['output']:g}"


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.pass_obj
def config_command(place: Place, as_json: bool) -> None:
    """Show the settings in force and where each came from: a line of gad.yaml, the environment, or the default."""
    config = place.config()
    found = {key: {"value": value, "source": source} for key, value, source in _settings(config)}
    if as_json:
        click.echo(json.dumps({"home": str(config.home), "settings": found}, ensure_ascii=False))
        return
    click.echo(f"home: {config.home}")
    rows = [(key, json.dumps(one["value"], ensure_ascii=False), one["source"]) for key, one in found.items()]
    table(("SETTING", "VALUE", "FROM"), rows)


def _settings(config: Config) -> Iterable[tuple[str, Any, str]]:
    for key in ("model", "usd_per_day", "sessions", "children", "ask"):
        yield key, getattr(config, key), config.source(key)
    sections: dict[str, Any] = {"limits": config.limits, "retry": config.retry, "spool": config.spool}
    sections |= {"quota": config.quota, "memory": config.memory, "sandbox": config.sandbox}
    sections |= {"log": config.log, "retain": config.retain}
    for number, rule in enumerate(config.policy.rules, 1):
        yield f"policy.rules[{number}]", f"{rule.action}: {rule.tool} {rule.pattern}".rstrip(), rule.source
    yield "policy.roots", config.policy.roots, config.source("policy.roots")
    sections |= {f"models.{name}": entry for name, entry in config.models.items()}
    named = {key.rsplit(".", 1)[0] for key in config.sources if key.startswith("prices.") and key.count(".") > 1}
    sections |= {path: config.prices[path.removeprefix("prices.")] for path in sorted(named)}
    for path, section in sections.items():
        model = config.models.get(path.removeprefix("models.")) if path.startswith("models.") else None
        for part in dataclasses.fields(section):
            key = f"{path}.{part.name}"
            value = getattr(section, part.name)
            told = value is not None or key in config.sources or path in ("limits", "spool")
            if model is not None:
                told = _has_meaning(model, part.name) and (told or part.name == "window")
                value = config.window_of(model.name) if part.name == "window" else value
            if told:
                yield key, value, config.source(key)


def _has_meaning(entry: Model, key: str) -> bool:
    """Return whether a key is a setting of this kind of entry."""
    if entry.chain or key == "chain":
        return bool(entry.chain) and key == "chain"
    if key == "api":
        return entry.provider == "openai"
    return key != "name" and not (key == "tools" and entry.provider == "local")


def _key(config: Config, entry: Model, environ: dict[str, str]) -> str:
    """Return whether an entry's key is there; a chain needs the key of one of its entries at least."""
    from gad.config import read_key
    from gad.errors import ConfigError

    if entry.chain:
        lacking = [link for link in entry.chain if _key(config, config.models[link], environ).startswith("missing")]
        if not lacking:
            return "present"
        return f"{'missing' if len(lacking) == len(entry.chain) else 'present'}, not for {', '.join(lacking)}"
    if entry.provider == "local" or not entry.key_from:
        return "not needed"
    try:
        return "present" if read_key(entry, environ) else f"missing: {entry.key_from}"
    except ConfigError as exc:
        return f"missing: {exc}"


def _model(config: Config, entry: Model, environ: dict[str, str]) -> dict[str, Any]:
    price = None if entry.chain else config.price_of(entry)
    return {
        "name": entry.name,
        "default": entry.name == config.model,
        "provider": entry.provider,
        "model": entry.model,
        "api": entry.api,
        "base_url": entry.base_url,
        "context": entry.context,
        "window": config.window_of(entry.name),
        "chain": list(entry.chain),
        "key": _key(config, entry, environ),
        "price": None if price is None else dataclasses.asdict(price),
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns that fit the terminal; on anything else nothing is cut."""
    cells = [head, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(head))]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for row in cells:
        line = "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(_cut(line, columns) if columns else line)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text if letter != "\ufe0f")


def _cut(line: str, columns: int) -> str:
    if _width(line) <= columns:
        return line
    kept = line[:columns]
    while kept and _width(kept) >= columns:
        kept = kept[:-1]
    return kept + "…"


def _text(*values: object) -> str:
    return "/".join(str(value) for value in values) if any(value is not None for value in values) else "-"


def dollars(value: object) -> str:
    """Return an amount, or - when it is unknown."""
    return f"${value:.4f}" if isinstance(value, int | float) else "-"


def age(now: float, start: float | None) -> str:
    """Return how long ago something was, in its largest unit: 12s, 3m, 5h, 2d."""
    if start is None:
        return "-"
    left = max(0, int(now - start))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if left >= size:
            return f"{left // size}{unit}"
    return f"{left}s"
