"""What the host and a child say to each other, as values. What a plugin wrote into the socket by itself is none.

The host sends calls, the child answers each, and may ask for sessions in between.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gad.triggers.instances import Found
from gad.triggers.plugin import Refused
from gad.triggers.process import GARBLED, Died


@dataclass(slots=True)
class Facts:
    """What a plugin says of itself after a call."""

    interval: float = 60.0
    once: bool = False
    watch: list[str] = field(default_factory=list)
    has: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A session that is to be made."""

    text: str
    key: str | None
    task: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call: what was raised or is to be handed in, and what is kept and said."""

    raised: str = ""
    returned: Wanted | None = None
    state: dict[str, Any] | None = None
    skipped: str = ""
    facts: Facts | None = None


def begin_message(found: Found, home: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a child must know to load its plugin, besides what each call says."""
    return {
        "host": os.getpid(),
        "instance": found.name,
        "path": found.path,
        "source": found.source,
        "home": home,
        "options": dict(found.settings.options),
        "state": dict(state),
        "memory_mb": found.settings.limits.memory_mb,
    }


def read_answer(found: Mapping[str, Any]) -> Answer:
    """Read a child's answer. Raises Died when it is none."""
    returned, state, raised = found.get("returned"), found.get("state"), found.get("raised", "")
    facts = _facts(found) if "interval" in found else None
    if not isinstance(raised, str) or not isinstance(state, dict | None) or not (raised or facts):
        raise Died(GARBLED)
    try:
        wanted = None if returned is None else _wanted(returned | {"task": _options(returned)})
    except (Refused, TypeError, AttributeError):
        raise Died(GARBLED) from None
    return Answer(raised, wanted, state, str(found.get("skipped") or ""), facts)


def read_request(found: Mapping[str, Any]) -> tuple[Wanted, dict[str, Any] | None]:
    """Return the session that a child asks for, and what the plugin keeps. Raises Refused."""
    state = found.get("state")
    return _wanted(found.get("submit")), state if isinstance(state, dict) else None


async def refuse(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer a child that asks for a session where there can be none."""
    return {"error": "a plugin cannot submit while it is loaded"}


def _wanted(found: Any) -> Wanted:
    if not isinstance(found, dict) or not isinstance(found.get("text"), str):
        raise Refused("the text must be text")
    if not isinstance(found.get("key"), str | None) or not isinstance(found.get("task"), dict):
        raise Refused("the key must be text")
    return Wanted(found["text"], found.get("key"), found["task"])


def _options(returned: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in returned.items() if name not in ("text", "key")}


def _facts(found: Mapping[str, Any]) -> Facts:
    interval, watch, has = found["interval"], found.get("watch"), found.get("has")
    good = isinstance(interval, int | float) and interval > 0
    if not good or not isinstance(watch, list) or not isinstance(has, list):
        raise Died(GARBLED)
    return Facts(float(interval), bool(found.get("once")), [str(one) for one in watch], [str(one) for one in has])
