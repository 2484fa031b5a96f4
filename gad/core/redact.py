"""Keeps keys and passwords out of what is written and shown: a known value is replaced by `[secret NAME]`.

It works by value, so it knows a secret wherever it comes from, and only in the forms that it has in programs' output:
as it is, in JSON, in a URL, line by line. Whoever wants to hide one (in base64, backwards, with a space between two
letters) can. What is short or plain is not taken for a secret: to replace every `postgres` would ruin the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast
from urllib.parse import quote, quote_plus

from gad.core.messages import Thinking

LEAST = 8
"""Characters that a secret has at least."""
_WORD = 12
"""Characters that one has at least when it is made of letters alone or of digits alone."""
_VARIETY = 5
"""Different characters that one has at least."""
_LINE = 16
"""Characters that a line of a secret of several lines has at least to be one by itself."""
_NAMES = frozenset({"session", "child", "parent", "review", "signature", "data"})
"""Fields that stay as they are: names of directories, and what only a vendor can read."""

_ESCAPED = re.compile("%[0-9A-F]{2}")

T = TypeVar("T")


def trivial(value: str) -> bool:
    """Return whether a value is too short or too plain to be looked for."""
    plain = value.isalpha() or value.isdigit()
    return len(value) < (_WORD if plain else LEAST) or len(set(value)) < _VARIETY


def _lower(found: re.Match[str]) -> str:
    return found[0].lower()


def forms(value: str) -> set[str]:
    """Return the forms in which a value is looked for, none for one that is trivial."""
    value = value.strip()
    found = {value}
    if "\n" in value:  # as a tool shows it, with something before each line
        lines = (line.strip() for line in value.splitlines())
        found |= {line for line in lines if len(line) >= _LINE and not line.startswith("-----")}
    for one in tuple(found):
        texts = {json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1]}
        texts |= {text.replace("/", "\\/") for text in texts}
        texts |= {json.dumps(text)[1:-1] for text in texts}  # such as a call's arguments, which are a text in JSON
        whole = one.encode("utf-8", "replace")
        addresses = {quote(whole), quote(whole, safe=""), quote_plus(whole)}
        found |= texts | addresses
        found |= {form for text in addresses for form in (text.lower(), _ESCAPED.sub(_lower, text))}
    return {one for one in found if not trivial(one)}


def redact(text: str, known: Mapping[str, str]) -> str:
    """Return the text with what is known in it replaced; `known` has the name of the secret by each form of it."""
    spans = _spans(text, known)
    if not spans:
        return text
    parts, at = [], 0
    for start, end, name in spans:
        parts += [text[at:start], f"[secret {name}]"]
        at = end
    return "".join([*parts, text[at:]])


def settled(text: str, known: Mapping[str, str]) -> int:
    """Return up to where a text can be redacted while more of it is to come: behind that a secret may have begun."""
    end = len(text)
    for value in list(known):
        tail = max(0, len(text) - len(value) + 1)
        at = text.find(value[0], tail)
        while 0 <= at < end:
            if value.startswith(text[at:]):
                end = at
            at = text.find(value[0], at + 1)
    for start, stop, _ in reversed(_spans(text, known)):
        if start < end < stop:
            end = start
    return end


def _spans(text: str, known: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """Return where secrets stand, in order; those that overlap are one."""
    found = []
    for value, name in list(known.items()):  # another thread may add to them
        at = text.find(value)
        while at >= 0:
            found.append((at, at + len(value), name))
            at = text.find(value, at + 1)
    found.sort(key=lambda span: (span[0], -span[1]))
    merged: list[tuple[int, int, str]] = []
    for start, end, name in found:
        if merged and start < merged[-1][1]:
            first, last, former = merged[-1]
            merged[-1] = first, max(last, end), former
        else:
            merged.append((start, end, name))
    return merged


class Secrets:
    """The secrets that are known by now."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        """Begin with values by name."""
        self._known: dict[str, str] = {}
        for name, value in (known or {}).items():
            self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Know one more; a former value of that name stays known. What is trivial is let be."""
        for form in forms(value):
            self._known.setdefault(form, name)

    def redact(self, text: str) -> str:
        """Return a text without them."""
        return redact(text, self._known)

    def clean(self, value: T) -> T:
        """Return a value, such as a record of the journal, without them in any of its texts."""
        return cast(T, self._clean(value)) if self._known else value

    def stream(self) -> Stream:
        """Return what keeps them out of a text that comes in pieces."""
        return Stream(self)

    def settled(self, text: str) -> int:
        """Return up to where a text can be redacted while more of it is to come."""
        return settled(text, self._known)

    def _clean(self, value: Any) -> Any:
        """Return the value itself where nothing is to be replaced."""
        if isinstance(value, str):
            return redact(value, self._known)
        if isinstance(value, Mapping):
            cleaned = {self._clean(key): self._clean(one) for key, one in value.items()}
            return value if cleaned == value else cleaned
        if isinstance(value, list | tuple):
            items = [self._clean(one) for one in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
        if is_dataclass(value) and not isinstance(value, type):
            return self._clean_fields(value)
        return value

    def _clean_fields(self, value: Any) -> Any:
        changed = {}
        for one in fields(value):
            if one.name not in _NAMES and (new := self._clean(old := getattr(value, one.name))) is not old:
                changed[one.name] = new
        if changed and isinstance(value, Thinking):  # its maker takes it back only as it was
            changed |= {"signature": "", "data": ""}
        return replace(value, **changed) if changed else value


class Stream:
    """One text that comes in pieces. What may be the beginning of a secret is held back until more is there."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = ""

    def feed(self, text: str) -> str:
        """Take a piece; return what can be passed on."""
        text = self._held + text
        end = self._secrets.settled(text)
        self._held = text[end:]
        return self._secrets.redact(text[:end])

    def rest(self) -> str:
        """Return what is still held back: nothing more comes."""
        text, self._held = self._held, ""
        return self._secrets.redact(text)
