"""Reads a small YAML file against a table of keys, and names every mistake with its line.

A table maps a key to a `Field`: a function that turns a node into a value or raises `Wrong`. All mistakes
are collected; `Reader.finish` raises one ConfigError that holds them, one a line.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import yaml

from gad.errors import ConfigError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 16
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Field = Callable[[yaml.Node], Any]


class Wrong(Exception):
    """A value is not what its key wants; says what it must be."""


def as_node(node: yaml.Node) -> yaml.Node:
    """Leave a value for a table of its own."""
    return node


class Reader:
    """The mistakes of one file, and where each value was found."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[tuple[int, str]] = []
        self.lines: dict[str, int] = {}

    def fail(self, node: yaml.Node | int, path: str, what: str) -> None:
        """Note a mistake at a node, or at a line counted from 1."""
        line = node if isinstance(node, int) else line_of(node)
        self.problems.append((line, f"{path}: {what}" if path else what))

    def finish(self) -> None:
        """Raise ConfigError when there were mistakes."""
        if self.problems:
            found = sorted(self.problems, key=lambda problem: problem[0])
            raise ConfigError("\n".join(f"{self.name}:{line}: {what}" for line, what in found))

    def compose(self, text: str) -> yaml.Node | None:
        """Return the file's one document as nodes, or None when it is empty. Raises ConfigError when it is not YAML."""
        try:
            self._check_events(text)
            self.finish()
            node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as exc:
            mark = exc.problem_mark or exc.context_mark
            said = " ".join(part for part in (exc.context, exc.problem) if part)
            self.fail(
                min(mark.line + 1, len(text.splitlines()) or 1) if mark else 1,
                "",
                f"not valid YAML: {said}; mend the syntax on or before this line",
            )
        except (yaml.YAMLError, UnicodeError) as exc:
            self.fail(1, "", f"not valid YAML: {str(exc).splitlines()[0]}; remove what is not plain text")
        else:
            return None if _is_null(node) else node
        self.finish()
        return None

    def _check_events(self, text: str) -> None:
        """Refuse what a settings file needs not and what can make a small file expand or recurse without end."""
        depth = documents = 0
        for event in yaml.parse(text, Loader=_Loader):
            line = line_of(event)
            if isinstance(event, yaml.AliasEvent):
                return self.fail(line, "", f"an alias (*{event.anchor}) is not allowed; write the value out")
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    return self.fail(line, "", "a second document (---) is not allowed; keep one")
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _DEEPEST:
                    return self.fail(line, "", f"nested more than {_DEEPEST} deep; flatten it")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return None

    def entries(self, node: yaml.Node | None, path: str) -> dict[str, yaml.Node]:
        """Return a mapping's entries by key; an entry without a value counts as not given."""
        if _is_null(node) or node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.fail(node, path, f"must be `key: value` lines, not {_shown(node)}")
            return {}
        found: dict[str, yaml.Node] = {}
        seen: dict[str, int] = {}
        for key_node, value in node.value:
            line = line_of(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.fail(line, path, "a key must be a plain word")
                continue
            key = key_node.value
            inner = f"{path}.{key}" if path else key
            if key in seen:
                self.fail(line, inner, f"given twice, first on line {seen[key]}; remove one")
                continue
            seen[key] = line
            if not _is_null(value):
                self.lines[inner] = line
                found[key] = value
        return found

    def table(self, node: yaml.Node | None, path: str, known: Mapping[str, Field]) -> dict[str, Any]:
        """Read a mapping whose keys are those of `known`; return the values that were given and are right."""
        values: dict[str, Any] = {}
        for key, value_node in self.entries(node, path).items():
            inner = f"{path}.{key}" if path else key
            if key not in known:
                self.fail(self.lines[inner], inner, f"unknown key{did_you_mean(key, known)}")
                continue
            try:
                values[key] = known[key](value_node)
            except Wrong as exc:
                self.fail(value_node, inner, str(exc))
        return values


def line_of(place: yaml.Node | yaml.Event) -> int:
    """Return the line on which a node or an event begins, counted from 1."""
    return place.start_mark.line + 1 if place.start_mark else 1


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return what to say after an unknown word: the nearest known one, or all of them."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are: {', '.join(sorted(known))}" if known else ""


def text(node: yaml.Node) -> str:
    """Read text. A bare word such as `true` is taken as it is written."""
    if not isinstance(node, yaml.ScalarNode):
        raise Wrong(f"must be text, not {_shown(node)}")
    if not node.value.strip():
        raise Wrong("must not be empty; remove the line to use the default")
    if "\0" in node.value:
        raise Wrong("must not contain a NUL character")
    return str(node.value)


def matching(pattern: str, rule: str, *, secret: bool = False) -> Field:
    """Return a field of text that must match `pattern` as a whole; a `secret` value is never repeated."""
    compiled = re.compile(pattern, re.ASCII)

    def read(node: yaml.Node) -> str:
        value = text(node)
        if not compiled.fullmatch(value):
            raise Wrong(f"must be {rule}" + ("" if secret else f", not {_shown(node)}"))
        return value

    return read


def whole(least: int, most: int) -> Field:
    """Return a field of whole numbers."""

    def read(node: yaml.Node) -> int:
        value = _to_number(node)
        if value is None or not value.is_integer() or not least <= value <= most:
            raise Wrong(f"must be a whole number from {least} to {most}, not {_shown(node)}")
        return int(value)

    return read


def number(least: float, most: float, unit: str) -> Field:
    """Return a field of numbers, bounds included; `unit` says what is counted."""

    def read(node: yaml.Node) -> float:
        value = _to_number(node)
        if value is None or not least <= value <= most:
            raise Wrong(f"must be {unit}, from {least:g} to {most:g}, not {_shown(node)}")
        return value

    return read


def seconds(least: float, most: float) -> Field:
    """Return a field of durations: seconds, or a number with s, m, h or d behind it."""

    def read(node: yaml.Node) -> float:
        found = _DURATION.fullmatch(node.value.strip()) if isinstance(node, yaml.ScalarNode) else None
        value = float(found[1]) * _UNITS[found[2]] if found else math.nan
        if not least <= value <= most:
            raise Wrong(
                f"must be seconds or a duration such as 90s, 10m or 2h, "
                f"from {least:g} to {most:g} seconds, not {_shown(node)}",
            )
        return value

    return read


def choice(*options: str) -> Field:
    """Return a field that is one of a few words."""

    def read(node: yaml.Node) -> str:
        value = node.value if isinstance(node, yaml.ScalarNode) else None
        if value not in options:
            raise Wrong(f"must be one of {', '.join(options)}, not {_shown(node)}")
        return str(value)

    return read


def flag(node: yaml.Node) -> bool:
    """Read on or off, true or false, yes or no."""
    word = node.value.lower() if isinstance(node, yaml.ScalarNode) else ""
    if word in ("on", "true", "yes"):
        return True
    if word in ("off", "false", "no"):
        return False
    raise Wrong(f"must be on or off, not {_shown(node)}")


def texts(node: yaml.Node) -> tuple[str, ...]:
    """Read a list of words, or one line of them with commas between."""
    if isinstance(node, yaml.ScalarNode):
        return tuple(part.strip() for part in node.value.split(",") if part.strip())
    if not isinstance(node, yaml.SequenceNode) or not all(isinstance(part, yaml.ScalarNode) for part in node.value):
        raise Wrong(f"must be a list of words, not {_shown(node)}")
    return tuple(part.value.strip() for part in node.value if part.value.strip())


def _to_number(node: yaml.Node) -> float | None:
    if not isinstance(node, yaml.ScalarNode) or not _NUMBER.fullmatch(node.value):
        return None
    value = float(node.value.replace("_", ""))
    return value if math.isfinite(value) else None


def _is_null(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null")


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    value = str(node.value)
    return repr(value if len(value) <= 60 else value[:57] + "...")
