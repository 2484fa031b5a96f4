"""Schedules as files: what is read, and how every mistake is named."""

from __future__ import annotations

from datetime import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.schedule import Schedule
from gad.core.schedule_file import BadSchedule, parse, read
from gad.errors import ConfigError

ZONES = ("UTC", "Europe/Berlin")


def schedule(**fields: Any) -> Schedule:
    return parse({"prompt": "Work.", **fields}, "report", lambda _: True)


def said(text: str | bytes, name: str = "report") -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ConfigError) as caught:
        read(data, "s/report.json", name, lambda zone: zone in ZONES)
    return str(caught.value).splitlines()


def test_a_file_in_generic_agents_words() -> None:
    text = '{"schedule":"08:00", "repeat":"daily", "enabled":true, "prompt":"文 …", "max_delay_hours":6}'
    made = read(text.encode("utf-8-sig"), "x.json", "x", lambda _: True)
    assert (made.name, made.prompt, made.at, made.repeat, made.max_delay) == ("x", "文 …", time(8), "daily", 6 * 3600)
    assert (made.overlap, made.catch_up, made.jitter, made.timezone) == ("skip", "last", 0, None)


def test_options_of_the_sessions() -> None:
    made = schedule(schedule="8:05", sop="weekly-report", task={"model": "big", "turns": 20, "labels": ["a", "b"]})
    assert made.options == {"model": "big", "turns": 20, "labels": ["a", "b"], "sop": "weekly-report"}
    alone = parse({"sop": "weekly-report", "cron": "0 8 * * *"}, "x", lambda _: True)
    assert alone.prompt == "task: weekly-report" and alone.options == {"sop": "weekly-report"}


def test_only_what_says_when_makes_the_timing_new() -> None:
    made = schedule(schedule="08:00")
    same = {"overlap": "queue", "jitter": 5, "max_delay_hours": 1, "repeat": "daily", "enabled": True}
    assert schedule(schedule="8:00", **same).timing == made.timing
    for other in ({"schedule": "08:01"}, {"timezone": "UTC"}, {"enabled": False}, {"repeat": "weekday"}):
        assert schedule(**{"schedule": "08:00", **other}).timing != made.timing


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            '{\n "schedule": "08:00",\n "prompt": "x",\n}',
            ["s/report.json:3: not valid JSON: a comma after the last one; remove it"],
        ),
        (
            '{\n "schedule" "08:00"\n}',
            ["s/report.json:2: not valid JSON: expecting ':'", "mend the syntax on or before"],
        ),
        ("", ["s/report.json:1: not valid JSON: expecting value"]),
        ("[]", ["s/report.json:1: must be one object, such as"]),
        (b'{\n"prompt": "\xff"}', ["s/report.json:2: not UTF-8; convert it with: iconv"]),
        ('{"a": ' + "[" * 100_000, ["s/report.json:1: a number is too long or a list too deep"]),
        ('{"jitter": ' + "9" * 5000 + "}", ["s/report.json:1: a number is too long"]),
        ('{"schedule": "08:00",\n"prompt": "x",\n"schedule": "09:00"}', ["s/report.json:1: schedule: given twice"]),
    ],
)
def test_a_file_that_is_not_right_json(text: str | bytes, lines: list[str]) -> None:
    found = said(text)
    assert len(found) == 1
    for line in lines:
        assert line in found[0]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ('"schedule": "25:00"', 'must be a time from 00:00 to 23:59, not "25:00"'),
        ('"schedule": 8', "must be a time"),
        ('"repeat": "hourly"', "must be daily, weekday, weekly, monthly, once, or every_15m"),
        ('"repeat": "every_0m"', "must be daily"),
        ('"enabled": "yes"', 'must be true or false, not "yes"'),
        ('"enabled": 1', "must be true or false, not 1"),
        ('"prompt": ""', "must be text"),
        ('"prompt": "\\ud83d"', "must be plain text"),
        ('"max_delay_hours": "6"', 'must be a number from 0 to 8784, not "6"'),
        ('"max_delay_hours": NaN', "must be a number"),
        ('"max_delay_hours": true', "must be a number"),
        ('"cron": "* * * 13 *"', "month: must be 1 to 12 or jan to dec"),
        ('"timezone": "Europe/Berlim"', "there is no zone 'Europe/Berlim'; write one such as Europe/Berlin"),
        ('"weekday": "monday"', "must be one of mon, tue, wed, thu, fri, sat, sun"),
        ('"day": 32', "must be a number from 1 to 31, or last"),
        ('"date": "2026-02-30"', "must be a day such as 2026-12-01"),
        ('"overlap": "wait"', "must be one of skip, queue, parallel"),
        ('"catch_up": ["all"]', "must be one of none, last, all"),
        ('"jitter": -1', "must be a number from 0 to 86400"),
        ('"sop": "Weekly Report"', "must be a procedure's name"),
        ('"task": "big"', "must be an object of task options"),
        ('"task": {"model": null}', "must be text, a number, true or false, or a list of texts"),
        ('"task": {"modle": "x"}', "unknown option; did you mean model?"),
        ('"task": {"sop": "x"}', "belongs beside task"),
        ('"catchup": "all"', "unknown field; did you mean catch_up?"),
        ('"zzz": 1', "unknown field; known are: schedule, repeat"),
    ],
)
def test_a_mistake_is_named_with_file_line_field_and_mend(field: str, words: str) -> None:
    rest = {"schedule": '"08:00"', "repeat": '"daily"', "prompt": '"a \\"overlap\\": b"'}
    rest.pop(field.split('"')[1], None)
    text = "{\n" + "".join(f'"{key}": {value},\n' for key, value in rest.items()) + field + "\n}"
    key = field.split('"')[1]
    found = [line for line in said(text) if line.startswith(f"s/report.json:{len(rest) + 2}: {key}")]
    assert any(words in line for line in found), said(text)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schedule": "08:00", "prompt": None}, "nothing to do; add"),
        ({}, 'daily needs a time; add "schedule": "08:00"'),
        ({"repeat": "monthly"}, "monthly needs a time"),
        ({"repeat": "once", "schedule": "08:00"}, 'repeat: once needs a day; add "date": "2026-12-01"'),
        ({"cron": "0 8 * * *", "schedule": "08:00"}, "schedule: has no meaning beside cron"),
        ({"cron": "0 8 * * *", "repeat": "daily"}, "repeat: has no meaning beside cron"),
        ({"schedule": "08:00", "weekday": "tue"}, 'weekday: has a meaning only with "repeat": "weekly"'),
        ({"schedule": "08:00", "repeat": "weekly", "day": 3}, 'day: has a meaning only with "repeat": "monthly"'),
        ({"schedule": "08:00", "date": "2026-12-01"}, 'date: has a meaning only with "repeat": "once"'),
    ],
)
def test_what_is_missing_or_at_odds_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        schedule(**fields)
    assert len(caught.value.problems) == 1 and words in str(caught.value)


def test_every_mistake_of_a_file_is_named_in_the_order_of_its_lines() -> None:
    found = said('{\n"repeat": "hourly",\n"task": {\n"modle": 1,\n"model": {}},\n"overlap": 1}')
    assert [line.split(": ")[0:2] for line in found] == [
        ["s/report.json:1", 'nothing to do; add "prompt"'],
        ["s/report.json:2", "repeat"],
        ["s/report.json:4", "task.modle"],
        ["s/report.json:5", "task.model"],
        ["s/report.json:6", "overlap"],
    ]


@pytest.mark.parametrize("name", ["", "a b", "ü", "-x", "x" * 81])
def test_a_file_whose_name_cannot_be_a_sessions(name: str) -> None:
    assert "the file's name must be at most 80 letters" in said('{"schedule": "08:00", "prompt": "x"}', name)[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "schedule",
                "repeat",
                "cron",
                "date",
                "day",
                "jitter",
                "task",
                "sop",
                "prompt",
                "timezone",
                "weekday",
                "enabled",
                "max_delay_hours",
                "x",
            ]
        ),
        json_values,
    )
)
@settings(max_examples=100, deadline=None)
def test_whatever_a_file_holds_it_is_read_or_refused(fields: dict[str, Any]) -> None:
    try:
        parse(fields, "x", lambda _: False)
    except BadSchedule as exc:
        assert exc.problems
