"""task.yaml as TaskOptions; every mistake is named with its line and how to mend it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import fields
from datetime import datetime

from yaml import Node, ScalarNode

from gad import yaml_lines as rule
from gad.config import LIMIT_FIELDS
from gad.core.task import TaskOptions
from gad.errors import ConfigError
from gad.home import CONFIG_NAME

TOOLS = (
    "file_read",
    "file_patch",
    "file_write",
    "code_run",
    "ask_user",
    "update_working_checkpoint",
    "start_long_term_update",
    "web_scan",
    "web_execute_js",
)
"""The tools that task.yaml can name."""

SOP_NAME = r"[a-z0-9][a-z0-9-]{0,63}"
"""What an SOP's name must match as a whole."""


def _tools(known: Collection[str]) -> rule.Field:
    def read(node: Node) -> tuple[str, ...]:
        names = rule.texts(node)
        for name in names:
            if name not in known:
                raise rule.Wrong(f"there is no tool {name!r}{rule.did_you_mean(name, known)}")
        return names

    return read


def _model_name(known: Collection[str]) -> rule.Field:
    def read(node: Node) -> str:
        name = rule.text(node)
        if name not in known:
            raise rule.Wrong(f"no entry of {CONFIG_NAME}'s models is called {name!r}{rule.did_you_mean(name, known)}")
        return name

    return read


def _absolute(node: Node) -> str:
    value = rule.text(node)
    expanded = os.path.expanduser(value)
    if not os.path.isabs(expanded):
        raise rule.Wrong(f"must be an absolute path or begin with ~/, not {value!r}")
    return os.path.normpath(expanded)


def _moment(node: Node) -> float:
    value = node.value.strip() if isinstance(node, ScalarNode) else ""
    wanted = "a time such as 2026-11-30T06:12:00Z or +02:00 instead of Z, or seconds since 1970"
    if re.fullmatch(r"\d{1,12}(\.\d*)?", value, re.ASCII):
        return float(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise rule.Wrong(f"must be {wanted}, not {value!r}") from None
    if moment.tzinfo is None:
        raise rule.Wrong(f"{value!r} has no time zone; write {wanted}")
    return moment.timestamp()


def parse_task(
    text: str, name: str = "task.yaml", *, models: Collection[str], tools: Collection[str] = TOOLS
) -> TaskOptions:
    """Read a task.yaml; `models` are the names that it may choose from. An empty one gives the defaults.

    Raises ConfigError that names every mistake, one a line. Whether cwd exists is not looked at.
    """
    table: dict[str, rule.Field] = {
        **LIMIT_FIELDS,
        "model": _model_name(models),
        "cwd": _absolute,
        "check": rule.text,
        "tools": _tools(tools),
        "memory": rule.flag,
        "sop": rule.matching(SOP_NAME, "an SOP's name: lower-case letters, digits and -"),
        "review": rule.matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", "a session's name"),
        "ask": rule.choice("user", "never"),
        "confined": rule.flag,
        "parent": rule.matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", "a session's name"),
        "priority": rule.whole(-1_000_000, 1_000_000),
        "not_before": _moment,
        "labels": rule.texts,
    }
    assert table.keys() == {option.name for option in fields(TaskOptions)}
    reader = rule.Reader(name)
    values = reader.table(reader.compose(text), "", table)
    reader.finish()
    return TaskOptions(**values)


def check_cwd(options: TaskOptions, name: str = "task.yaml") -> None:
    """Raise ConfigError when the directory that a task wants to work in is not there or not usable."""
    if options.cwd is None:
        return
    if not os.path.isdir(options.cwd):
        raise ConfigError(f"{name}: cwd: {options.cwd} is not a directory; make it or name another")
    if not os.access(options.cwd, os.R_OK | os.X_OK):
        raise ConfigError(
            f"{name}: cwd: {options.cwd} may not be entered by the daemon's user; change its mode or name another"
        )
