"""What a trigger would hand in now: its check() is called on a copy of its state, and nothing is handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gad.errors import GadError
from gad.triggers.instances import Found
from gad.triggers.plugin import Refused
from gad.triggers.process import Child, Died
from gad.triggers.record import Record
from gad.triggers.sessions import Door, names_for, time_key
from gad.triggers.supervise import STARTING
from gad.triggers.talk import begin_message, read_answer, read_request, refuse


@dataclass(frozen=True, slots=True)
class Would:
    """A session that would be made; `exists` when there is one for its key already."""

    session: str
    text: str
    task: str
    exists: bool


@dataclass(slots=True)
class Rehearsal:
    """What came of it: the sessions, why nothing was handed in, what the plugin said, and what went wrong."""

    sessions: list[Would] = field(default_factory=list)
    skipped: str = ""
    lines: list[str] = field(default_factory=list)
    error: str = ""


async def rehearse(
    found: Found, record: Record, *, home: str, door: Door, environment: Mapping[str, str], now: Callable[[], float]
) -> Rehearsal:
    """Load the plugin and call its check() in a child of its own. Raises OSError when that cannot be started."""
    told = Rehearsal()
    made: dict[str, str] = {}

    def hand_in(text: str, key: str | None, task: Mapping[str, Any]) -> str:
        whole = dict(found.settings.task) | dict(task)
        _, written = door.prepare(found.name, text, whole)
        chosen = key if key is not None else time_key(now()) + (f"-{len(made) + 1}" if made else "")
        for name in names_for(found.name, chosen):
            if (claimed := door.claimed(found.name, name)) is not False:
                told.sessions.append(Would(name, text, written, bool(claimed)))
                made[chosen] = name
                return name
        raise Refused(f"the session's name for {chosen} is taken")

    async def serve(request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            wanted, _ = read_request(request)
            return {"session": hand_in(wanted.text, wanted.key, wanted.task)}
        except Refused as exc:
            return {"error": str(exc)}

    seconds = found.settings.limits.check_seconds
    moment = {"now": now(), "seconds": seconds, "open": list(record.open), "usd_today": record.spent_today()}
    child = await Child.start(environment=environment, cwd=home, say=lambda line, error: told.lines.append(line))
    try:
        begun = {"call": "init", "argument": None} | moment | begin_message(found, home, record.plugin)
        answer = read_answer(await child.call(begun, max(STARTING, seconds), refuse))
        if answer.raised:
            raise GadError(f"it cannot be loaded: {answer.raised}")
        if answer.facts is not None and "check" not in answer.facts.has:
            raise GadError("it has no check(): it hands in what its events say")
        answer = read_answer(await child.call({"call": "check", "argument": None} | moment, seconds, serve))
        if answer.raised:
            raise GadError(f"check() raised {answer.raised}")
        told.skipped = answer.skipped
        if (wanted := answer.returned) is not None:
            hand_in(wanted.text, wanted.key, wanted.task)
    except (Died, GadError, Refused) as exc:
        told.error = str(exc)
    finally:
        await child.end()
    return told
