"""Cron expressions: each against an oracle that looks at every minute, the day rule of Vixie's cron, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gad.core.cron import parse_cron
from gad.core.schedule import occurrences
from gad.core.schedule_file import parse
from gad.errors import ConfigError

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905
WEEKDAYS = "sun mon tue wed thu fri sat".split()  # noqa: SIM905
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@dataclass(frozen=True)
class Term:
    """`*`, `3`, `3-5`, each with a step or none, or `L`; written in one of several ways."""

    text: str
    first: int = 0
    last: int = 0
    step: int = 1
    final: bool = False

    def holds(self, value: int) -> bool:
        return not self.final and self.first <= value <= self.last and (value - self.first) % self.step == 0


@st.composite
def terms(draw: st.DrawFn, field: int) -> Term:
    least, most = BOUNDS[field]
    kind = draw(st.sampled_from(["*", "*/n", "n", "n", "n-m", "n-m/s", "n/s"] + ["L"] * (field == 2)))
    first = draw(st.integers(least, most))
    last = draw(st.integers(first, most))
    step = draw(st.integers(1, min(most, 12)))

    def name(value: int) -> str:
        names: list[str] = {3: ["", *MONTHS], 4: [*WEEKDAYS, "7"]}.get(field, [])
        by_name: bool = draw(st.booleans())
        word = names[value] if names and by_name else str(value)
        return word.upper() if draw(st.booleans()) else word

    match kind:
        case "*":
            return Term("*", least, most)
        case "*/n":
            return Term(f"*/{step}", least, most, step)
        case "n":
            return Term(name(first), first, first)
        case "n-m":
            return Term(f"{name(first)}-{name(last)}", first, last)
        case "n-m/s":
            return Term(f"{name(first)}-{name(last)}/{step}", first, last, step)
        case "n/s":
            return Term(f"{name(first)}/{step}", first, most, step)
        case _:
            return Term(draw(st.sampled_from("lL")), final=True)


expressions = st.tuples(*(st.lists(terms(field), min_size=1, max_size=3) for field in range(5)))


def text_of(fields: tuple[list[Term], ...]) -> str:
    return " ".join(",".join(term.text for term in field) for field in fields)


def due_on(fields: tuple[list[Term], ...], day: date) -> bool:
    _, _, days, months, weekdays = fields
    week = day.weekday() + 1  # Monday is 1, Sunday 7 and 0
    by_month = any((day + timedelta(days=1)).month != day.month if term.final else term.holds(day.day) for term in days)
    by_week = any(term.holds(week) or (week == 7 and term.holds(0)) for term in weekdays)
    stars = days[0].text.startswith("*") or weekdays[0].text.startswith("*")
    return any(term.holds(day.month) for term in months) and (by_month and by_week if stars else by_month or by_week)


def due_minutes(fields: tuple[list[Term], ...], start: datetime, minutes: int) -> Iterator[datetime]:
    for number in range(minutes):
        moment = start + timedelta(minutes=number)
        if (
            any(term.holds(moment.minute) for term in fields[0])
            and any(term.holds(moment.hour) for term in fields[1])
            and due_on(fields, moment.date())
        ):
            yield moment


def never(exc: ConfigError) -> bool:
    return "never due" in str(exc)


@given(expressions, st.datetimes(datetime(2026, 1, 1), datetime(2029, 1, 1)))
@settings(max_examples=40, deadline=None)
@example(
    ([Term("0", 0, 0)], [Term("0", 0, 0)], [Term("L", final=True)], [Term("*", 1, 12)], [Term("*", 0, 7)]),
    datetime(2028, 2, 28, 12),
)
def test_it_is_due_exactly_in_the_minutes_that_match(fields: tuple[list[Term], ...], start: datetime) -> None:
    start = start.replace(second=0, microsecond=0)
    minutes = 2 * 1440
    try:
        schedule = parse({"cron": text_of(fields), "prompt": "x"}, "x", lambda _: True)
    except ConfigError as exc:
        assert never(exc)
        assert not list(due_minutes(fields, start, minutes))
        return
    after = int(start.replace(tzinfo=UTC).timestamp())
    found = list(occurrences(schedule, after - 1, after + minutes * 60 - 1, UTC))
    assert found == [int(one.replace(tzinfo=UTC).timestamp()) for one in due_minutes(fields, start, minutes)]


@given(expressions)
@settings(max_examples=100, deadline=None)
def test_it_is_due_on_exactly_the_days_that_match(fields: tuple[list[Term], ...]) -> None:
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(3 * 365 + 1)]
    expected = [day for day in days if due_on(fields, day)]
    try:
        cron = parse_cron(text_of(fields))
    except ConfigError as exc:
        assert never(exc) and not expected
        return
    assert [day for day in days if cron.on(day)] == expected


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("0 0 13 11 fri", [6, 13, 20, 27]),  # both restricted: the 13th or a Friday
        ("0 0 13-14 11 *", [13, 14]),
        ("0 0 * 11 fri", [6, 13, 20, 27]),
        ("0 0 */10 11 sun", [1]),  # a star in front makes it both: the 1st, 11th, 21st and a Sunday
        ("0 0 13 11 */5", [13]),  # Sunday or Friday, and the 13th
        ("0 0 L 11 *", [30]),
        ("0 0 15,L 11 *", [15, 30]),
        ("0 0 L 11 7", [1, 8, 15, 22, 29, 30]),
        ("0 0 * 11 sat-sun", [1, 7, 8, 14, 15, 21, 22, 28, 29]),
        ("0 0 * 11 5-7/2", [1, 6, 8, 13, 15, 20, 22, 27, 29]),
        ("0 0 * Nov SUN,mon", [1, 2, 8, 9, 15, 16, 22, 23, 29, 30]),
        ("0 0 25/2 nov *", [25, 27, 29]),
    ],
)
def test_days_of_november_2026(text: str, days: list[int]) -> None:
    cron = parse_cron(text)
    assert [day for day in range(1, 31) if cron.on(date(2026, 11, day))] == days


def test_the_last_day_knows_leap_years() -> None:
    cron = parse_cron("0 0 L 2 *")
    for year, last in ((2026, 28), (2028, 29), (2100, 28), (2400, 29)):
        assert [day for day in range(25, last + 1) if cron.on(date(year, 2, day))] == [last]


def test_a_leap_day_that_must_be_a_sunday_is_found_decades_ahead() -> None:
    schedule = parse({"cron": "0 12 29 2 */7", "prompt": "x"}, "x", lambda _: True)
    after = datetime(2088, 3, 1, tzinfo=UTC).timestamp()  # 2100 has no leap day
    found = next(occurrences(schedule, after, float("inf"), UTC))
    assert datetime.fromtimestamp(found, UTC) == datetime(2128, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * *", ["five fields", "not 4"]),
        ("0 * * * * *", ["five fields", "not 6"]),
        ("@daily", ["five fields", "not 1"]),
        ("", ["five fields"]),
        ("60 * * * *", ["minute", "0 to 59", "'60'"]),
        ("* 24 * * *", ["hour", "0 to 23"]),
        ("* * 0 * *", ["day of month", "1 to 31"]),
        ("* * 32 * *", ["day of month", "1 to 31"]),
        ("* * * 13 *", ["month", "1 to 12 or jan to dec"]),
        ("* * * * 8", ["day of week", "0 to 7 or sun to sat"]),
        ("* * * * monday", ["day of week", "sun to sat", "'monday'"]),
        ("* * * mon *", ["month", "'mon'"]),
        ("*/0 * * * *", ["minute", "a step is from 1 to 59"]),
        ("*/60 * * * *", ["minute", "a step is from 1 to 59"]),
        ("5-1 * * * *", ["minute", "'5-1' runs backwards", "two ranges"]),
        ("* * * * fri-mon", ["day of week", "runs backwards"]),
        ("1,,2 * * * *", ["minute", "cannot read ''"]),
        ("-5 * * * *", ["minute", "cannot read '-5'"]),
        ("1.5 * * * *", ["minute", "cannot read"]),
        ("* * L-3 * *", ["day of month", "'l'"]),
        ("* * * * L", ["day of week", "'l'"]),
        ("٣ * * * *", ["minute", "cannot read"]),
        ("9999999999999 * * * *", ["minute", "cannot read"]),
        ("0 0 30 2 *", ["never due", "30", "L for the last day"]),
        ("0 0 31 2,4,6,9,11 *", ["never due"]),
        ("? * * * *", ["minute", "cannot read '?'"]),
    ],
)
def test_a_mistake_is_named_with_its_field_and_mend(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_cron(text)
    for word in words:
        assert word in str(caught.value)


def test_a_day_that_never_comes_is_allowed_where_a_weekday_does() -> None:
    assert parse_cron("0 0 30 2 mon").on(date(2026, 2, 2))


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_cron(text)
    except ConfigError:
        return
    assert len(text.split()) == 5
