"""Schedules as files: JSON objects with the fields of a Schedule; every mistake is named with its line.

The fields: `schedule` (HH:MM) with `repeat` (daily, which is the default, weekday, weekly, monthly, once, every_Nm,
every_Nh, every_Nd), or `cron`; `weekday` (mon) of a weekly one, `day` (1 to 31, or last) of a monthly one, `date` of
a `once`; `timezone`, `enabled`; `prompt`, `sop`, `task` (options of task.yaml); `overlap` (skip, queue, parallel),
`catch_up` (last, none, all), `max_delay_hours` (6) and `jitter` (seconds).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date, time
from typing import Any

from gad.core.cron import parse_cron
from gad.core.schedule import Schedule
from gad.core.task import TaskOptions
from gad.errors import ConfigError

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_REPEATS = ("daily", "weekday", "weekly", "monthly", "once")
_EVERY = re.compile(r"every_([1-9]\d{0,4})([mhd])", re.ASCII)
_ATTRIBUTES = {"schedule": "at", "date": "once_on", "max_delay_hours": "max_delay"}
"""What fields are called in a Schedule, where that differs."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)
_SOP = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)
_TASK_OPTIONS = tuple(option.name for option in fields(TaskOptions) if option.name != "sop")


class BadSchedule(ConfigError):
    """What is wrong with a schedule: each problem is the path of a field, such as ("task", "model"), and what."""

    def __init__(self, problems: Sequence[tuple[tuple[str, ...], str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(": ".join(filter(None, (".".join(path), what))) for path, what in problems))


class _Wrong(Exception):
    """A value is not what its field wants."""


def read(data: bytes, file: str, name: str, is_zone: Callable[[str], bool]) -> Schedule:
    """Read a schedule's file; `file` is what to call it.

    Raises ConfigError with one line a problem: file, line, field and how to mend it.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8; convert it with: iconv -t UTF-8") from None
    try:
        return parse(_mapping(json.loads(text, object_pairs_hook=_once_each)), name, is_zone)
    except json.JSONDecodeError as exc:
        before = text[: exc.pos].rstrip()
        if before.endswith(",") and text[exc.pos : exc.pos + 1] in ("}", "]"):
            line = before.count("\n") + 1
            raise ConfigError(f"{file}:{line}: not valid JSON: a comma after the last one; remove it") from None
        what = f"not valid JSON: {exc.msg[:1].lower()}{exc.msg[1:]}; mend the syntax on or before this line"
        raise ConfigError(f"{file}:{exc.lineno}: {what}") from None
    except BadSchedule as exc:
        found = sorted((_line(text, path), ".".join(path), what) for path, what in exc.problems)
        raise ConfigError(
            "\n".join(
                f"{file}:{line}: {path}: {what}" if path else f"{file}:{line}: {what}" for line, path, what in found
            )
        ) from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{file}:1: a number is too long or a list too deep; write it shorter") from None


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadSchedule([((), 'must be one object, such as {"schedule": "08:00", "prompt": "..."}')])
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadSchedule([((key,), "given twice; remove one")])
        found[key] = value
    return found


def _line(text: str, path: Sequence[str]) -> int:
    """Return the line of a field, counted from 1. A key inside of a text has backslashes before its quotes."""
    at = 0
    for key in path:
        quoted = re.escape(json.dumps(key, ensure_ascii=False))
        if found := re.compile(rf"(?<!\\){quoted}\s*:").search(text, at):
            at = found.start()
    return text.count("\n", 0, at) + 1


def parse(data: Mapping[str, Any], name: str, is_zone: Callable[[str], bool]) -> Schedule:
    """Read a schedule's fields; `is_zone` says whether there is a time zone of that name.

    Raises BadSchedule that names every problem.
    """
    problems: list[tuple[tuple[str, ...], str]] = []
    if not _NAME.fullmatch(name):
        problems.append(((), f"the file's name must be at most 80 letters, digits, '.', '_' and '-', not {name!r}"))
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key not in _FIELDS:
            problems.append(((key,), f"unknown field{_near(key, tuple(_FIELDS))}"))
        elif value is not None:
            try:
                found[key] = _FIELDS[key](value)
            except (_Wrong, ConfigError) as exc:
                problems.append(((key,), str(exc)))
    if isinstance(data.get("task"), dict):
        problems += [(("task", key), what) for key, what in _task_problems(data["task"])]
    if "timezone" in found and not is_zone(found["timezone"]):
        problems.append((("timezone",), f"there is no zone {found['timezone']!r}; write one such as Europe/Berlin"))
    problems += _at_odds(data, found)
    if problems:
        raise BadSchedule(problems)
    values = {_ATTRIBUTES.get(key, key): value for key, value in found.items()}
    values.setdefault("prompt", f"task: {found.get('sop')}")
    values["repeat"], values["every"] = found.get("repeat", ("cron" if "cron" in found else "daily", 0))
    return Schedule(name=name, **values)


def _at_odds(data: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is missing, and what has no meaning beside the rest."""
    given = {key for key, value in data.items() if value is not None}
    if not given & {"prompt", "sop"}:
        yield (), 'nothing to do; add "prompt": "..." or the name of a procedure as "sop"'
    if "cron" in given:
        for key in sorted(given & {"schedule", "repeat", "weekday", "day", "date"}):
            yield (key,), "has no meaning beside cron; remove one of them"
        return
    if "repeat" in given and "repeat" not in found:
        return
    repeat, every = found.get("repeat", ("daily", 0))
    if "schedule" not in given and not every:
        yield (), f'{repeat} needs a time; add "schedule": "08:00", or "cron" instead'
    if repeat == "once" and "date" not in given:
        yield ("repeat",), 'once needs a day; add "date": "2026-12-01"'
    for key, only in (("weekday", "weekly"), ("day", "monthly"), ("date", "once")):
        if key in given and repeat != only:
            yield (key,), f'has a meaning only with "repeat": "{only}"; remove it'


def _task_problems(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in task.items():
        if key == "sop":
            yield key, "belongs beside task, not into it"
        elif key not in _TASK_OPTIONS:
            yield key, f"unknown option{_near(key, _TASK_OPTIONS)}"
        elif not isinstance(value, str | int | float | bool) and not (
            isinstance(value, list) and all(isinstance(part, str) for part in value)
        ):
            yield key, "must be text, a number, true or false, or a list of texts"


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; known are: {', '.join(known)}"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Wrong(f"must be text, not {_shown(value)}")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _Wrong("must be plain text, without NUL and half characters (\\ud800 to \\udfff)")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(f"must be true or false, not {_shown(value)}")
    return value


def _one_of(*words: str) -> Callable[[Any], str]:
    def choose(value: Any) -> str:
        if value not in words:
            raise _Wrong(f"must be one of {', '.join(words)}, not {_shown(value)}")
        return str(value)

    return choose


def _number(least: int, most: int) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _Wrong(f"must be a number from {least} to {most}, not {_shown(value)}")
        return value

    return check


def _repeat(value: Any) -> tuple[str, int]:
    if value in _REPEATS:
        return value, 0
    found = _EVERY.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise _Wrong(f"must be {', '.join(_REPEATS)}, or every_15m, every_6h, every_2d, not {_shown(value)}")
    return value, int(found[1]) * {"m": 60, "h": 3600, "d": 1}[found[2]]


def _clock(value: Any) -> time:
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", value, re.ASCII) if isinstance(value, str) else None
    if not found:
        raise _Wrong(f"must be a time from 00:00 to 23:59, not {_shown(value)}")
    return time(int(found[1]), int(found[2]))


def _calendar_day(value: Any) -> date:
    try:
        if isinstance(value, str) and re.fullmatch(r"(19[7-9]|2\d\d)\d-\d\d-\d\d", value, re.ASCII):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise _Wrong(f"must be a day such as 2026-12-01, not {_shown(value)}")


def _day_of_month(value: Any) -> int:
    if value == "last":
        return 31
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 31:
        raise _Wrong(f"must be a number from 1 to 31, or last, not {_shown(value)}")
    return value


def _sop_name(value: Any) -> str:
    if not _SOP.fullmatch(_text(value)):
        raise _Wrong(f"must be a procedure's name: lower-case letters, digits and -, not {_shown(value)}")
    return str(value)


def _options(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"must be an object of task options, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "schedule": _clock,
    "repeat": _repeat,
    "enabled": _flag,
    "prompt": _text,
    "max_delay_hours": lambda value: _number(0, 8784)(value) * 3600,
    "cron": lambda value: parse_cron(_text(value)),
    "timezone": _text,
    "weekday": lambda value: _WEEKDAYS.index(_one_of(*_WEEKDAYS)(value)),
    "day": _day_of_month,
    "date": _calendar_day,
    "overlap": _one_of("skip", "queue", "parallel"),
    "catch_up": _one_of("none", "last", "all"),
    "jitter": lambda value: int(_number(0, 86400)(value)),
    "sop": _sop_name,
    "task": _options,
}
