"""JavaScript values as JSON, from the browser's own "deep" serialisation.

That one is native code, which no page can tamper with; its format is that of WebDriver BiDi (script.RemoteValue,
https://w3c.github.io/webdriver-bidi/#type-script-RemoteValue). What has no like in JSON becomes a short text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEEPEST = 12
"""Levels of objects in objects; what lies below is "[...]"."""
LARGEST = 20_000_000
"""Characters that a value may have as JSON, roughly."""
MOST_OPAQUE = 200
"""Values of which the serialisation says no more than the type, that are asked about."""
ATTRIBUTES = ("href", "src", "type", "name", "value", "role", "aria-label", "alt", "title", "placeholder")
"""Of an element, those that tell what it is."""

OPAQUE = frozenset({"error", "function", "typedarray", "platformobject"})
NESTED = frozenset({"object", "array", "map", "set", "nodelist", "htmlcollection"})

Key = str | int
Path = tuple[Any, ...]
"""The way to a part of a value: nothing at the top, else the way to what it is in, and its key there."""


class TooLarge(Exception):
    """A value that has more than `LARGEST` characters."""


class Reading:
    """A value that is being read: `data` is how the browser gave it, `value` is JSON.

    `opaque` are those parts of which the serialisation says the type only: the type, then the keys that lead there
    from `value`. Raises TooLarge.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.opaque: list[list[Key]] = []
        self._known: dict[int, tuple[Any, int]] = {}  # by the serialisation's number: a value and its size
        self.value, _ = self._read(data, ())

    def fill(self, plain: Mapping[str, Any]) -> None:
        """Put in what was found out about the opaque parts; the keys of `plain` are their places in the list."""
        for number, (kind, *path) in enumerate(self.opaque):
            found = plain.get(str(number))
            if isinstance(found, dict):
                found = list(found.values()) if kind == "typedarray" else _without_constants(found)
            if not found and kind != "typedarray":
                continue
            if not path:
                self.value = found
                continue
            place = self.value
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = found

    def _read(self, data: Mapping[str, Any], path: Path | None) -> tuple[Any, int]:
        """Return a value and its size; `path` is None where no keys lead to it. The browser bounds the depth."""
        number = data.get("weakLocalObjectReference")
        if number in self._known:
            return self._known[number]
        if number is not None:
            self._known[number] = ("[circular]", 12)
        found = self._read_new(data["type"], data.get("value"), path)
        if number is not None:
            self._known[number] = found
        return found

    def _read_new(self, kind: str, content: Any, path: Path | None) -> tuple[Any, int]:
        value: Any
        match kind:
            case "undefined" | "null":
                return None, 4
            case "boolean":
                return content, 5
            case "string":
                value = content
            case "number":
                value = 0 if content == "-0" else content  # NaN and the infinities come as texts, and stay so
            case "bigint":
                value = int(content) if len(content) <= 30 else content
            case "date":
                value = content
            case "regexp":
                value = f"/{content['pattern']}/{content.get('flags', '')}"
            case "node" if content is not None:
                value = describe_node(content)
            case "array" | "set" | "nodelist" | "htmlcollection" if content is not None:
                return self._read_items(content, None if kind == "set" else path)
            case "object" | "map" if content is not None:
                if all(isinstance(name, str) for name, _ in content):
                    return self._read_members(content, path if kind == "object" else None)
                pairs = [{"type": "array", "value": [_as_data(name), item]} for name, item in content]
                return self._read_items(pairs, None)
            case _:
                if kind in OPAQUE and path is not None and len(self.opaque) < MOST_OPAQUE:
                    self.opaque.append([kind, *_keys(path)])
                value = "[...]" if kind in NESTED else f"[{kind}]"
        return value, len(str(value)) + 2

    def _read_items(self, content: list[Any], path: Path | None) -> tuple[list[Any], int]:
        items = []
        size = 2
        for index, item in enumerate(content):
            value, more = self._read(item, None if path is None else (path, index))
            items.append(value)
            size = _sum(size, more)
        return items, size

    def _read_members(self, content: list[Any], path: Path | None) -> tuple[dict[str, Any], int]:
        members = {}
        size = 2
        for name, item in content:
            members[name], more = self._read(item, None if path is None else (path, name))
            size = _sum(size, more + len(name) + 4)
        return members, size


def _keys(path: Path) -> list[Key]:
    keys: list[Key] = []
    while path:
        path, key = path
        keys.append(key)
    return keys[::-1]


def _sum(size: int, more: int) -> int:
    """Add sizes. What is shared counts wherever it stands, since as JSON it stands there in full."""
    if size + more > LARGEST:
        raise TooLarge
    return size + more + 2


def _as_data(name: Any) -> Any:
    return {"type": "string", "value": name} if isinstance(name, str) else name


def _without_constants(members: dict[str, Any]) -> dict[str, Any]:
    """Leave out what interfaces of the DOM carry along, such as Event.AT_TARGET."""
    return {name: value for name, value in members.items() if not name.isupper()}


def describe_node(node: Mapping[str, Any]) -> str:
    """Return a DOM node in short: an element as its opening tag, a text as it is."""
    if node.get("nodeType") == 9:
        return "[document]"
    if node.get("nodeType") != 1:
        return str(node.get("nodeValue") or f"[node of type {node.get('nodeType')}]")
    attributes: Mapping[str, str] = node.get("attributes") or {}
    name = str(node.get("localName"))
    if attributes.get("id"):
        name += f"#{attributes['id']}"
    name += "".join(f".{each}" for each in attributes.get("class", "").split())
    more = [f'{key}="{attributes[key][:200]}"' for key in ATTRIBUTES if attributes.get(key)]
    return f"<{' '.join([name, *more])}>"
