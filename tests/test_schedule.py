"""When schedules are due, over years and in zones with each kind of clock change, and what is decided about it."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.schedule import GRACE, Decision, Schedule, decide, occurrences, stamp
from gad.core.schedule_file import parse

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
FIRST, LAST = date(2026, 1, 1), date(2028, 12, 31)
HOUR, DAY = 3600, 86400


def schedule(**fields: Any) -> Schedule:
    return parse({"prompt": "Work.", **fields}, "report", lambda _: True)


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """The instant of a wall-clock time, such as 2026-03-29 08:00."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp())


def shown(dues: Sequence[int], zone: str) -> list[str]:
    return [datetime.fromtimestamp(due, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M%z") for due in dues]


def due(made: Schedule, zone: str, after: str, until: str) -> list[str]:
    return shown(list(occurrences(made, at(after, zone), at(until, zone), ZoneInfo(zone))), zone)


# -- an oracle that watches a clock on the wall, half an hour at a time --------------------------


@functools.cache
def clock(zone: str) -> tuple[list[int], list[datetime]]:
    """Each half hour of the years, and the latest time that the zone's clock has shown up to then."""
    instants = list(range(at(f"{FIRST} 00:00") - DAY, at(f"{LAST} 00:00") + 2 * DAY, 1800))
    tz = ZoneInfo(zone)
    faces = [datetime.fromtimestamp(instant, tz).replace(tzinfo=None) for instant in instants]
    return instants, list(itertools.accumulate(faces, max))


def watched(zone: str, days: Callable[[date], bool], *times: str) -> list[int]:
    """The instants at which somebody who watches that clock would call."""
    instants, latest = clock(zone)
    found = set()
    day = FIRST
    while day <= LAST:
        if days(day):
            for text in times:
                wall = datetime.combine(day, time.fromisoformat(text))
                found.add(instants[bisect.bisect_left(latest, wall)])
        day += timedelta(days=1)
    return sorted(found)


def ends_month(day: date) -> bool:
    return (day + timedelta(days=1)).day == 1


TIMES = ("00:00", "01:30", "02:00", "02:30", "08:00", "23:30")
DAYS: dict[str, tuple[dict[str, Any], Callable[[date], bool]]] = {
    "daily": ({}, lambda day: True),
    "weekday": ({"repeat": "weekday"}, lambda day: day.strftime("%a") not in ("Sat", "Sun")),
    "weekly": ({"repeat": "weekly"}, lambda day: day.strftime("%a") == "Mon"),
    "weekly sun": ({"repeat": "weekly", "weekday": "sun"}, lambda day: day.strftime("%a") == "Sun"),
    "monthly": ({"repeat": "monthly"}, lambda day: day.day == 1),
    "monthly 30": (
        {"repeat": "monthly", "day": 30},
        lambda day: day.day == 30 or (day.month == 2 and ends_month(day)),
    ),
    "monthly 31": ({"repeat": "monthly", "day": 31}, ends_month),
    "monthly last": ({"repeat": "monthly", "day": "last"}, ends_month),
    "every_1d": ({"repeat": "every_1d"}, lambda day: True),
    "every_3d": ({"repeat": "every_3d"}, lambda day: day.toordinal() % 3 == 0),
    "once": ({"repeat": "once", "date": "2028-02-29"}, lambda day: day == date(2028, 2, 29)),
}


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("rule", DAYS)
def test_three_years_of_each_repeat_at_each_kind_of_time(zone: str, rule: str) -> None:
    fields, days = DAYS[rule]
    begin, end = at(f"{FIRST} 00:00", zone) - 1, at(f"{LAST} 23:59", zone)
    for text in TIMES:
        made = schedule(schedule=text, **fields)
        assert list(occurrences(made, begin, end, ZoneInfo(zone))) == watched(zone, days, text), text


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    ("cron", "days", "times"),
    [
        ("0,30 1-2 * * *", lambda day: True, ("01:00", "01:30", "02:00", "02:30")),
        ("30 2,23 L * *", ends_month, ("02:30", "23:30")),
        ("0 */6 29 2 *", lambda day: (day.month, day.day) == (2, 29), ("00:00", "06:00", "12:00", "18:00")),
        ("30 1 1 * sun", lambda day: day.day == 1 or day.strftime("%a") == "Sun", ("01:30",)),
    ],
)
def test_three_years_of_cron(zone: str, cron: str, days: Callable[[date], bool], times: tuple[str, ...]) -> None:
    begin, end = at(f"{FIRST} 00:00", zone) - 1, at(f"{LAST} 23:59", zone)
    found = list(occurrences(schedule(cron=cron), begin, end, ZoneInfo(zone)))
    assert found == watched(zone, days, *times)


@pytest.mark.parametrize("zone", ZONES)
def test_three_years_hour_by_hour(zone: str) -> None:
    """What has become due by each hour is what the watcher of the clock has called by then, once each."""
    made, tz = schedule(schedule="02:30", overlap="parallel"), ZoneInfo(zone)
    expected = watched(zone, lambda day: True, "02:30")
    last: int | None = None
    fired: list[int] = []
    now = at(f"{FIRST} 00:00", zone)
    while now < at(f"{LAST} 23:00", zone):
        decision = decide(made, last=last, now=now, tz=tz)
        fired += decision.fire
        last = decision.last
        assert len(fired) == bisect.bisect_right(expected, now)
        assert decision.next is not None and now < decision.next <= now + 25 * HOUR
        now += HOUR
    assert fired == expected


# -- clock changes, written out ------------------------------------------------------------------


def test_a_time_that_is_skipped_is_due_when_the_clock_has_been_put_forward() -> None:
    made = schedule(schedule="02:30")
    assert due(made, "Europe/Berlin", "2026-03-28 12:00", "2026-03-30 12:00") == [
        "2026-03-29 03:00+0200",
        "2026-03-30 02:30+0200",
    ]
    assert due(made, "America/New_York", "2026-03-07 12:00", "2026-03-08 12:00") == ["2026-03-08 03:00-0400"]
    assert due(schedule(schedule="02:10"), "Australia/Lord_Howe", "2026-10-03 12:00", "2026-10-04 12:00") == [
        "2026-10-04 02:30+1100"
    ]
    assert due(made, "Australia/Lord_Howe", "2026-10-03 12:00", "2026-10-04 12:00") == ["2026-10-04 02:30+1100"]


def test_a_time_that_comes_twice_is_due_the_first_time() -> None:
    made = schedule(schedule="02:30")
    assert due(made, "Europe/Berlin", "2026-10-24 12:00", "2026-10-26 12:00") == [
        "2026-10-25 02:30+0200",
        "2026-10-26 02:30+0100",
    ]
    made = schedule(schedule="01:45")
    assert due(made, "America/New_York", "2026-10-31 12:00", "2026-11-01 12:00") == ["2026-11-01 01:45-0400"]
    assert due(made, "Australia/Lord_Howe", "2026-04-04 12:00", "2026-04-05 12:00") == ["2026-04-05 01:45+1100"]


def test_all_that_is_skipped_at_once_is_due_once() -> None:
    made = schedule(cron="*/15 2 * * *")
    assert due(made, "Europe/Berlin", "2026-03-29 00:00", "2026-03-29 12:00") == ["2026-03-29 03:00+0200"]


def test_a_day_that_a_zone_leaves_out() -> None:
    """Samoa went over the date line and had no 30 December 2011."""
    made = schedule(schedule="08:00")
    assert due(made, "Pacific/Apia", "2011-12-28 12:00", "2012-01-01 00:00") == [
        "2011-12-29 08:00-1000",
        "2011-12-31 00:00+1400",
        "2011-12-31 08:00+1400",
    ]


def test_a_cron_of_every_hour_goes_on_through_the_hour_that_comes_twice() -> None:
    found = due(schedule(cron="*/30 * * * *"), "Europe/Berlin", "2026-10-25 01:30", "2026-10-25 03:00")
    assert found == [
        "2026-10-25 02:00+0200",
        "2026-10-25 02:30+0200",
        "2026-10-25 02:00+0100",
        "2026-10-25 02:30+0100",
        "2026-10-25 03:00+0100",
    ]
    # Begun in the middle of the first of the two hours, it is the same.
    assert found[2:] == due(schedule(cron="*/30 * * * *"), "Europe/Berlin", "2026-10-25 02:40", "2026-10-25 03:00")
    found = due(schedule(cron="*/30 */2 * * *"), "Europe/Berlin", "2026-10-25 01:30", "2026-10-25 03:59")
    assert found == ["2026-10-25 02:00+0200", "2026-10-25 02:30+0200"]


# These have shifted by odd amounts, at midnight, by a day, or below a standard time.
ODD_ZONES = (
    *ZONES,
    "America/St_Johns",
    "America/Havana",
    "America/Santiago",
    "America/Caracas",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Antarctica/Casey",
    "Asia/Pyongyang",
    "Asia/Beirut",
    "Europe/Dublin",
    "Europe/Istanbul",
    "UTC",
)


@given(st.sampled_from(ODD_ZONES), st.integers(at("1990-01-01"), at("2040-01-01")))
@settings(max_examples=60, deadline=None)
def test_every_minute_is_every_minute_in_each_zone(zone: str, after: int) -> None:
    found = list(occurrences(schedule(cron="* * * * *"), after, after + 3 * HOUR, ZoneInfo(zone)))
    assert found == [minute for minute in range(after + 1, after + 3 * HOUR + 1) if minute % 60 == 0]


@pytest.mark.parametrize("change", ["1995-04-02 03:31", "1995-10-29 02:31"])
def test_every_minute_where_the_clock_changes_a_minute_past_midnight(change: str) -> None:
    """Newfoundland's clocks went from 00:01 to 01:01 in spring and to 23:01 of the day before in autumn."""
    after = at(change) - HOUR
    found = list(occurrences(schedule(cron="* * * * *"), after, after + 4 * HOUR, ZoneInfo("America/St_Johns")))
    assert found == list(range(after + 60, after + 4 * HOUR + 1, 60))


repeats = st.one_of(
    st.sampled_from(["daily", "weekday", "weekly", "monthly"]).map(lambda repeat: {"repeat": repeat}),
    st.tuples(st.integers(1, 40), st.sampled_from("mhd")).map(lambda found: {"repeat": f"every_{found[0]}{found[1]}"}),
    st.dates(date(2026, 1, 1), date(2027, 1, 1)).map(lambda day: {"repeat": "once", "date": day.isoformat()}),
)
clock_times = st.times().map(lambda found: {"schedule": found.strftime("%H:%M")})
timings = st.one_of(
    st.tuples(repeats, clock_times).map(lambda found: {**found[0], **found[1]}),
    st.sampled_from(["*/7 * * * *", "5,35 */5 * * *", "0 0 L * *", "59 23 31 12 *", "0 2 29 2 sun"]).map(
        lambda cron: {"cron": cron}
    ),
)


@given(timings, st.sampled_from(ODD_ZONES), st.integers(at("2025-12-01"), at("2027-01-01")), st.integers(0, 10 * DAY))
@settings(max_examples=100, deadline=None)
def test_due_times_come_in_order_each_once_none_outside(
    timing: dict[str, Any], zone: str, after: int, length: int
) -> None:
    made, tz = schedule(**timing), ZoneInfo(zone)
    found = list(itertools.islice(occurrences(made, after, after + length, tz), 500))
    assert all(after < one <= after + length for one in found)
    assert all(one < other for one, other in itertools.pairwise(found))
    # Where one begins to count makes no difference.
    for index, one in enumerate(found[:20]):
        assert next(occurrences(made, one, math.inf, tz), None) == next(
            iter(found[index + 1 :]), next(occurrences(made, found[-1], math.inf, tz), None)
        )


# -- counted hours and minutes -------------------------------------------------------------------


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("repeat", "step"), [("every_15m", 900), ("every_7h", 7 * HOUR), ("every_24h", DAY)])
def test_counted_hours_take_no_notice_of_clock_changes(zone: str, repeat: str, step: int) -> None:
    tz, begin = ZoneInfo(zone), at("2026-01-01")
    found = list(occurrences(schedule(repeat=repeat), begin, begin + 400 * DAY, tz))
    assert len(found) == 400 * DAY // step
    assert all(one % step == 0 for one in found)


def test_counted_hours_with_a_time_begin_at_that_time_of_the_zone() -> None:
    made = schedule(repeat="every_6h", schedule="08:00")
    assert due(made, "Europe/Berlin", "2026-01-05 00:00", "2026-01-06 00:00") == [
        "2026-01-05 02:00+0100",
        "2026-01-05 08:00+0100",
        "2026-01-05 14:00+0100",
        "2026-01-05 20:00+0100",
    ]
    assert due(made, "Europe/Berlin", "2026-07-05 00:00", "2026-07-05 12:00") == [
        "2026-07-05 03:00+0200",
        "2026-07-05 09:00+0200",
    ]
    assert due(made, "Europe/London", "2026-01-05 00:00", "2026-01-05 12:00") == [
        "2026-01-05 02:00+0000",
        "2026-01-05 08:00+0000",
    ]


def test_days_are_counted_on_the_wall_clock() -> None:
    made = schedule(repeat="every_2d", schedule="08:00")
    found = due(made, "Europe/Berlin", "2026-03-26 00:00", "2026-04-02 00:00")
    assert [one[11:] for one in found[:1]] == ["08:00+0100"] and found[-1].endswith("08:00+0200")
    days = [date.fromisoformat(one[:10]) for one in found]
    assert all(later - earlier == timedelta(days=2) for earlier, later in itertools.pairwise(days))


# -- ends of months and years --------------------------------------------------------------------


def test_month_ends_leap_day_and_new_year() -> None:
    made = schedule(repeat="monthly", day=31, schedule="23:30")
    found = due(made, "Europe/Berlin", "2027-12-30 00:00", "2028-05-01 00:00")
    assert [one[:10] for one in found] == ["2027-12-31", "2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"]
    made = schedule(cron="0 0 1 1 *")
    assert due(made, "Australia/Lord_Howe", "2026-01-01 00:00", "2028-06-01 00:00") == [
        "2027-01-01 00:00+1100",
        "2028-01-01 00:00+1100",
    ]
    made = schedule(cron="0 9 29 2 *")
    assert due(made, "Europe/Berlin", "2095-01-01 00:00", "2110-01-01 00:00") == [
        "2096-02-29 09:00+0100",
        "2104-02-29 09:00+0100",
        "2108-02-29 09:00+0100",
    ]


# -- what is decided -----------------------------------------------------------------------------

OVERLAPS, CATCH_UPS = ("skip", "queue", "parallel"), ("none", "last", "all")
SIMULATED: dict[str, dict[str, Any]] = {
    "daily": {"schedule": "02:30"},
    "weekday": {"repeat": "weekday", "schedule": "08:00"},
    "weekly": {"repeat": "weekly", "schedule": "08:00", "weekday": "sun"},
    "monthly": {"repeat": "monthly", "schedule": "02:00", "day": "last"},
    "once": {"repeat": "once", "schedule": "02:30", "date": "2026-10-25"},
    "every_500m": {"repeat": "every_500m"},
    "every_7h": {"repeat": "every_7h", "schedule": "01:00"},
    "every_2d": {"repeat": "every_2d", "schedule": "02:30"},
    "cron": {"cron": "0 */5 * * mon-fri"},
}
DOWN = [("2026-03-29 00:30", "2026-03-29 09:30"), ("2026-06-10 00:00", "2026-06-20 12:00"), ("2026-10-25 00:30",
        "2026-10-25 05:30"), ("2026-12-31 20:00", "2027-01-01 04:00")]  # fmt: skip


@functools.cache
def hours_awake(zone: str) -> list[int]:
    """The hours of 2026 and some more, but for those in which the daemon is down."""
    down = [range(at(begin, zone), at(end, zone)) for begin, end in DOWN]
    hours = range(at("2026-01-01", zone), at("2027-01-10", zone), HOUR)
    return [hour for hour in hours if not any(hour in one for one in down)]


def simulate(made: Schedule, zone: str, length: int) -> tuple[list[int], list[int]]:
    """Live through a year as the daemon does, with sessions of `length` seconds; return what fired and was skipped."""
    tz = ZoneInfo(zone)
    ends: list[int] = []
    fired: list[int] = []
    skipped: list[int] = []
    decision = Decision()
    wake: float = 0
    for now in hours_awake(zone):
        if not ends and now < wake:
            continue
        still = [end for end in ends if end > now]
        if len(still) < len(ends) or now >= wake:
            ends = still
            decision = decide(made, last=decision.last, now=now, tz=tz, running=bool(ends), queued=decision.waiting)
            ends += [now + length for _ in decision.fire]
            fired += decision.fire
            skipped += itertools.chain.from_iterable(one.dues for one in decision.skipped)
            wake = decision.next or math.inf
    assert not set(decision.waiting) & {*fired, *skipped}
    return fired, skipped


def expect(made: Schedule, dues: Sequence[int], zone: str, length: int) -> list[int]:
    """What a reader of the manual would fire: hour by hour, over the list of all due times."""
    fired: list[int] = []
    waiting: list[int] = []
    ends: list[int] = []
    coming = bisect.bisect(dues, hours_awake(zone)[0])
    for now in hours_awake(zone):
        if not waiting and (coming == len(dues) or dues[coming] > now):
            continue
        ends = [end for end in ends if end > now]
        new = dues[coming : bisect.bisect(dues, now)]
        coming += len(new)
        on_time = [one for one in new if now - one <= 60]
        missed = [one for one in new if 60 < now - one <= made.max_delay]
        if made.catch_up == "none" or (made.catch_up == "last" and on_time):
            missed = []
        elif made.catch_up == "last":
            missed = missed[-1:]
        waiting = [one for one in waiting if now - one <= made.max_delay] + missed + on_time
        while waiting and (made.overlap == "parallel" or not ends):
            fired.append(waiting.pop(0))
            ends.append(now + length)
        if made.overlap == "skip":
            waiting = []
    return fired


@pytest.mark.parametrize("catch_up", CATCH_UPS)
@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("repeat", SIMULATED)
def test_a_year_with_downtimes(repeat: str, overlap: str, catch_up: str) -> None:
    for zone, length, max_delay in zip(ZONES, (HOUR // 2, 3 * HOUR, 30 * HOUR), (6, 1, 300), strict=True):
        made = schedule(overlap=overlap, catch_up=catch_up, max_delay_hours=max_delay, **SIMULATED[repeat])
        begin, end = at("2026-01-01", zone), at("2027-01-09 23:00", zone)
        dues = list(occurrences(made, begin, end, ZoneInfo(zone)))
        fired, skipped = simulate(made, zone, length)
        assert fired == expect(made, dues, zone, length)
        assert len({*fired, *skipped}) == len(fired) + len(skipped)
        assert {*fired, *skipped} <= {*dues}
        if overlap != "queue":
            assert {*fired, *skipped} == {*dues}


NOON = at("2026-06-01 12:00")


def run(made: Schedule, **given: Any) -> Decision:
    return decide(made, **{"last": NOON - DAY, "now": NOON, "tz": UTC, **given})


def why(decision: Decision) -> list[tuple[int, str]]:
    return [(one, skip.why) for skip in decision.skipped for one in skip.dues]


def test_a_new_schedule_has_missed_nothing() -> None:
    decision = run(schedule(schedule="11:00"), last=None)
    assert (decision.fire, decision.skipped, decision.last) == ((), (), NOON)
    assert decision.next == NOON + 23 * HOUR


def test_the_second_it_is_due_it_fires_and_not_before() -> None:
    made = schedule(schedule="12:00")
    assert run(made, now=NOON - 1).fire == ()
    assert run(made, now=NOON - 1).next == NOON
    assert run(made).fire == (NOON,)
    assert run(made, last=NOON).fire == ()


@pytest.mark.parametrize(("catch_up", "fire"), [("none", []), ("last", [11]), ("all", [6, 7, 8, 9, 10, 11])])
def test_what_was_missed_follows_catch_up(catch_up: str, fire: list[int]) -> None:
    made = schedule(cron="0 * * * *", catch_up=catch_up, max_delay_hours=5.5, overlap="parallel")
    midnight = NOON - 12 * HOUR
    decision = run(made, last=midnight, now=NOON - HOUR // 2)
    assert list(decision.fire) == [midnight + hour * HOUR for hour in fire]
    told = dict(why(decision))
    assert [hour for hour in range(1, 12) if midnight + hour * HOUR in told] == [
        hour for hour in range(1, 12) if midnight + hour * HOUR not in decision.fire
    ]
    assert told[midnight + HOUR] == "more than max_delay_hours late (5.5)"
    if catch_up != "all":
        assert told[midnight + 8 * HOUR] == f"missed, and catch_up is {catch_up}"


def test_what_is_on_time_stands_for_what_was_missed() -> None:
    made = schedule(cron="0 * * * *", overlap="parallel")
    assert run(made, last=NOON - 3 * HOUR, now=NOON + GRACE).fire == (NOON,)
    assert run(replace(made, catch_up="none"), last=NOON - 3 * HOUR, now=NOON + GRACE).fire == (NOON,)
    assert run(replace(made, catch_up="all"), last=NOON - 3 * HOUR).fire == (NOON - 2 * HOUR, NOON - HOUR, NOON)


def test_max_delay_is_counted_to_the_second() -> None:
    made = schedule(schedule="12:00", max_delay_hours=2)
    assert run(made, now=NOON + 2 * HOUR).fire == (NOON,)
    late = run(made, now=NOON + 2 * HOUR + 1)
    assert late.fire == () and why(late) == [(NOON, "more than max_delay_hours late (2)")]
    assert late.last == NOON and late.next == NOON + DAY
    assert run(schedule(schedule="12:00", max_delay_hours=0), now=NOON + 5).fire == (NOON,)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_overlap(overlap: str) -> None:
    made = schedule(cron="0 * * * *", overlap=overlap, catch_up="all")
    busy = run(made, last=NOON - 2 * HOUR, running=True)
    free = run(made, last=NOON - 2 * HOUR)
    both = (NOON - HOUR, NOON)
    if overlap == "parallel":
        assert busy.fire == free.fire == both
    elif overlap == "skip":
        assert busy.fire == () and free.fire == both[:1] and busy.waiting == free.waiting == ()
        assert why(busy) == [(one, "the one before it is at work, and overlap is skip") for one in both]
        assert why(free) == [(NOON, "the one before it is at work, and overlap is skip")]
    else:
        assert (busy.fire, busy.waiting) == ((), both)
        assert (free.fire, free.waiting) == (both[:1], both[1:])
        later = run(made, last=NOON, now=NOON + 60, queued=both)
        assert (later.fire, later.waiting, later.skipped) == (both[:1], both[1:], ())


def test_what_waits_too_long_is_told() -> None:
    made = schedule(cron="0 * * * *", overlap="queue", max_delay_hours=2)
    decision = run(made, last=NOON, now=NOON + 60, running=True, queued=(NOON - 3 * HOUR, NOON - HOUR))
    assert decision.waiting == (NOON - HOUR,)
    assert why(decision) == [(NOON - 3 * HOUR, "more than max_delay_hours late (2)")]


@pytest.mark.parametrize("last", [None, NOON - 30 * DAY])
def test_once(last: int | None) -> None:
    made = schedule(repeat="once", schedule="11:00", date="2026-06-01")
    assert run(made, last=last, now=NOON - 2 * HOUR).next == NOON - HOUR
    assert run(made, last=last).fire == (NOON - HOUR,)
    missed = run(made, last=last, now=NOON + 30 * DAY)
    assert missed.fire == () and why(missed) == [(NOON - HOUR, "more than max_delay_hours late (6)")]
    assert missed.next is None
    over = run(made, last=missed.last, now=NOON + 31 * DAY)
    assert (over.fire, over.skipped, over.next) == ((), (), None)


def test_a_clock_that_began_in_1970_does_not_cost_a_look_at_each_minute_since() -> None:
    found = run(schedule(cron="* * * * *"), last=0)
    assert found.last == NOON and found.fire == (NOON - GRACE,)
    assert sum(len(one.dues) for one in found.skipped) < 70 * 1440
    assert run(schedule(repeat="once", date="2026-06-01", schedule="12:00"), last=None).fire == (NOON,)


def test_one_that_is_not_enabled_does_nothing() -> None:
    decision = run(schedule(schedule="12:00", enabled=False), queued=(NOON - DAY,))
    assert (decision.fire, decision.waiting, decision.next) == ((), (), None)
    assert why(decision) == [(NOON - DAY, "it is not enabled")]


def test_a_clock_that_is_put_back_fires_nothing_again_and_says_so() -> None:
    made = schedule(repeat="every_5m", overlap="parallel")
    first = run(made, last=NOON - 300)
    assert first.fire == (NOON,) and not first.note
    for now in range(NOON - HOUR, NOON + 300, 60):
        decision = run(made, last=first.last, now=now)
        assert (decision.fire, decision.skipped, decision.next) == ((), (), NOON + 300)
        assert bool(decision.note) == (now < NOON - GRACE)
    assert "20260601T120000Z" in run(made, last=NOON, now=NOON - HOUR).note
    assert run(made, last=NOON, now=NOON + 300).fire == (NOON + 300,)


@given(
    timings,
    st.lists(st.integers(-3 * DAY, 5 * DAY), min_size=1, max_size=30),
    st.sampled_from(OVERLAPS),
    st.sampled_from(CATCH_UPS),
    st.integers(0, 7200),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_however_the_clock_is_moved_nothing_fires_twice_or_early(
    timing: dict[str, Any], moves: list[int], overlap: str, catch_up: str, jitter: int, data: st.DataObject
) -> None:
    made = schedule(overlap=overlap, catch_up=catch_up, jitter=jitter, **timing)
    now = latest = at("2026-03-20")
    decision = Decision()
    done: list[int] = []
    for move in moves:
        now += move
        latest = max(latest, now)
        decision = decide(
            made,
            last=decision.last,
            now=now,
            tz=ZoneInfo("Europe/Berlin"),
            running=data.draw(st.booleans()),
            queued=decision.waiting,
        )
        assert all(one <= latest for one in decision.fire)
        assert decision.next is None or decision.next > now
        done += decision.fire
        done += itertools.chain.from_iterable(skip.dues for skip in decision.skipped)
        assert not {*decision.waiting} & {*done}
    assert len(done) == len({*done})


def test_jitter_is_stable_within_bounds_and_differs_between_names_and_days() -> None:
    made = schedule(schedule="12:00", jitter=600)
    days = [NOON + day * DAY for day in range(200)]
    delays = [made.delay(one) for one in days]
    assert delays == [schedule(schedule="12:00", jitter=600).delay(one) for one in days]
    assert all(0 <= one <= 600 for one in delays) and len({*delays}) > 100
    assert [replace(made, name="other").delay(one) for one in days] != delays
    assert schedule(schedule="12:00").delay(NOON) == 0
    # A literal value: a new version of gad must not move anybody's schedule.
    assert delays[:3] == [337, 327, 395]


def test_jitter_puts_off_what_fires_and_not_what_it_is_called() -> None:
    made = schedule(schedule="12:00", jitter=600)
    when = NOON + made.delay(NOON)
    assert run(made, now=when - 1).fire == () and run(made, now=when - 1).next == when
    assert run(made, now=when).fire == (NOON,)
    assert run(made, now=when + 6 * HOUR).fire == (NOON,)
    assert run(made, now=when + 6 * HOUR + 1).fire == ()


def test_jitter_never_lets_one_overtake_another() -> None:
    made = schedule(cron="* * * * *", jitter=300, overlap="parallel")
    last: int | None = NOON
    fired: list[int] = []
    for now in range(NOON, NOON + HOUR, 7):
        decision = run(made, last=last, now=now)
        last = decision.last
        fired += decision.fire
    assert fired == list(range(NOON + 60, NOON + 60 * len(fired) + 1, 60))
    assert len(fired) >= 55


def test_the_due_time_in_keys() -> None:
    assert stamp(at("2026-11-30 08:00")) == "20261130T080000Z"
