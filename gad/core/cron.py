"""Cron's five fields: minute, hour, day of month, month and day of week, as Vixie's cron reads them.

Values, names (`jan`, `mon`, in any case), ranges `1-5`, steps `*/15` and `8-18/2`, lists with commas; `7` is Sunday as
`0` is; `5/15` is every 15th from 5 on; `L` as a day is the month's last. When both the day of month and the day of
week are restricted, a day counts that matches either; when one of them begins with `*`, it must match both
(crontab(5)). Which instant a minute of the wall clock is, is gad.core.schedule's affair.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from gad.errors import ConfigError

_TERM = re.compile(r"(?:\*|([0-9a-z]{1,9})(?:-([0-9a-z]{1,9}))?)(?:/(\d{1,4}))?", re.ASCII)
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""How many days each month can have."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One of the five fields: what it is called, its bounds, and the names of its values from the least one on."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()


_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
_WEEKDAY = _Field("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression that has been read; `text` is how it was written. Weekdays count from Sunday, 0.

    `either` says that a day needs to match only one of day of month and day of week.
    """

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    last_day: bool
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def on(self, day: date) -> bool:
        """Return whether it is due on this day."""
        if day.month not in self.months:
            return False
        by_month = day.day in self.days or (self.last_day and day.day == last_of_month(day))
        by_week = day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either else by_month and by_week


def parse_cron(text: str) -> Cron:
    """Read an expression. Raises ConfigError that names the field and says how to mend it."""
    parts = text.lower().split()
    if len(parts) != 5:
        raise ConfigError(
            f"must be five fields (minute, hour, day of month, month, day of week) such as '30 8 * * mon-fri', "
            f"not {len(parts)} in {text!r}"
        )
    minute, hour, day, month, weekday = parts
    days = [term for term in day.split(",") if term != "l"]
    cron = Cron(
        text=text,
        minutes=tuple(sorted(set(_values(_MINUTE, minute)))),
        hours=tuple(sorted(set(_values(_HOUR, hour)))),
        days=frozenset(_values(_DAY, ",".join(days)) if days else ()),
        last_day=len(days) < len(day.split(",")),
        months=frozenset(_values(_MONTH, month)),
        weekdays=frozenset(value % 7 for value in _values(_WEEKDAY, weekday)),
        either=not day.startswith("*") and not weekday.startswith("*"),
    )
    if not cron.either and not cron.last_day and min(cron.days) > max(_LONGEST[number - 1] for number in cron.months):
        raise ConfigError(f"{text!r} is never due: no such month has a day {min(cron.days)}; use L for the last day")
    return cron


def last_of_month(day: date) -> int:
    """Return the number of the last day of the month that `day` lies in."""
    return monthrange(day.year, day.month)[1]


def _values(field: _Field, text: str) -> Iterator[int]:
    for term in text.split(","):
        found = _TERM.fullmatch(term)
        if not found:
            raise ConfigError(f"{field.name}: cannot read {term!r}; write *, a value, a range 1-5 or a step */2")
        low, high, step = found[1], found[2], int(found[3] or 1)
        first = _value(field, low) if low else field.least
        # A value by itself is a range of one; with a step it is where the range begins.
        last = _value(field, high) if high else first if low and not found[3] else field.most
        if high and field is _WEEKDAY and last == 0 < first:
            last = 7  # fri-sun: Sunday ends a week as well as it begins one
        if not 1 <= step <= field.most:
            raise ConfigError(f"{field.name}: a step is from 1 to {field.most}, not {step}")
        if last < first:
            raise ConfigError(f"{field.name}: {term!r} runs backwards; write two ranges with a comma between")
        yield from range(first, last + 1, step)


def _value(field: _Field, word: str) -> int:
    if word in field.names:
        return field.names.index(word) + field.least
    if not word.isdigit() or not field.least <= int(word) <= field.most:
        names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise ConfigError(f"{field.name}: must be {field.least} to {field.most}{names}, not {word!r}")
    return int(word)
