"""A trigger's yaml file as Settings, every mistake named with its line; and what triggers are given of gad.yaml."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

import yaml

from gad import yaml_lines as rule
from gad.config import Config
from gad.errors import ConfigError
from gad.task_file import check_cwd, parse_task
from gad.triggers.instances import Caps, Limits, Parse, Settings
from gad.triggers.sessions import Door

_CAPS: dict[str, rule.Field] = {
    "open": rule.whole(1, 1000),
    "per_day": rule.whole(1, 1_000_000),
    "usd_per_day": rule.number(0.0001, 1e6, "US dollars"),
}
_LIMITS: dict[str, rule.Field] = {
    "check_seconds": rule.seconds(0.1, 3600),
    "memory_mb": rule.whole(64, 1_000_000),
}
_TABLE: dict[str, rule.Field] = {
    "plugin": rule.matching(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}", "a plugin's name, without .py"),
    "enabled": rule.flag,
    "options": rule.as_node,
    "task": rule.as_node,
    "caps": rule.as_node,
    "limits": rule.as_node,
}


def parser_of(current: Callable[[], Config]) -> Parse:
    """Return what reads the yaml files of a home's triggers; `current` gives the settings in force."""
    return lambda text, name: parse_settings(text, name, models=current().models)


def door_of(current: Callable[[], Config]) -> Door:
    """Return how triggers of a home hand in sessions; `current` gives the settings in force."""

    def check(task: str) -> None:
        check_cwd(parse_task(task, "task", models=current().models), "task")

    return Door(str(current().spool_dir), check, current().spool.max_bytes)


def parse_settings(text: str, name: str, *, models: Collection[str]) -> Settings:
    """Read a trigger's yaml file; `models` are the names that its task may choose from.

    Raises ConfigError that names every mistake, one a line.
    """
    reader = rule.Reader(name)
    values = reader.table(reader.compose(text), "", _TABLE)
    values["options"] = _options(reader, values.get("options"))
    values["task"] = _task(reader, values.get("task"), models)
    values["caps"] = Caps(**reader.table(values.get("caps"), "caps", _CAPS))
    values["limits"] = Limits(**reader.table(values.get("limits"), "limits", _LIMITS))
    reader.finish()
    return Settings(**values)


def _options(reader: rule.Reader, node: yaml.Node | None) -> dict[str, Any]:
    """Return the plugin's options: plain YAML, as far as JSON can hold it."""
    found = {}
    for key, value_node in reader.entries(node, "options").items():
        try:
            found[key] = yaml.SafeLoader("").construct_document(value_node)
            json.dumps(found[key], allow_nan=False)
        except (yaml.YAMLError, TypeError, ValueError):
            reader.fail(value_node, f"options.{key}", "must be text, numbers, lists and mappings; put it in quotes")
    return found


def _task(reader: rule.Reader, node: yaml.Node | None, models: Collection[str]) -> dict[str, Any]:
    """Return options of task.yaml, read one by one, so that each mistake has its line."""
    found: dict[str, Any] = {}
    for key, value_node in reader.entries(node, "task").items():
        pair = (yaml.ScalarNode("tag:yaml.org,2002:str", key), value_node)
        text = yaml.serialize(yaml.MappingNode("tag:yaml.org,2002:map", [pair]))
        try:
            found |= parse_task(text, "", models=models).to_json()
        except ConfigError as exc:
            what = str(exc).splitlines()[0].split(": ", 1)[1]
            reader.fail(value_node, f"task.{key}", what.removeprefix(f"{key}: "))
    return found
