from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gad.spool.status import parse, read_status, render, seconds_of, timestamp, write_status

KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True).filter(
    lambda key: key not in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
)
TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=40)
VALUES: st.SearchStrategy[Any] = (
    TEXT
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.lists(TEXT | st.integers(), max_size=4)
    | st.dictionaries(KEYS, TEXT | st.integers(), max_size=3)
)
WORDS = st.sampled_from(
    [
        "true",
        "no",
        "Null",
        "~",
        "1e3",
        "0x1f",
        "1_000",
        "1:30",
        ".5",
        "-",
        "2026-11-30",
        "a: b",
        "a #b",
        "y",
        "=",
        "<<",
        "",
    ]
)


def whole(value: Any) -> Any:
    """What is written instead of lone surrogates."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in value)
    if isinstance(value, list):
        return [whole(one) for one in value]
    if isinstance(value, dict):
        return {whole(key): whole(one) for key, one in value.items()}
    return value


@given(KEYS, VALUES | WORDS)
@example("error", "a\x85b\u2028c\u2029d\ufeffe\x7ff\x80g\x00h\ufffe")
@example("error", "🎉 你好 \ud83d")
@example("cost_usd", 1e-07)
@example("cost_usd", 1e22)
@example("children", ["a\u2028", "🎉"])
def test_every_line_gives_the_same_value_to_us_and_to_a_yaml_reader(key: str, value: Any) -> None:
    text = render({key: value})
    assert text.endswith("\n")
    assert len(text.splitlines()) == 1
    assert parse(text) == {key: whole(value)}
    assert type(parse(text)[key]) is type(value)
    # PyYAML's pure reader wants a dot before an exponent, so this is also a check that there is none.
    assert yaml.safe_load(text.encode("utf-8").decode("utf-8")) == {key: whole(value)}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("done", "k: done"),
        ("gpt-6.2-sol", "k: gpt-6.2-sol"),
        (3, "k: 3"),
        (0.25, "k: 0.25"),
        (0.00001, "k: 0.00001"),
        ("2026-11-30T06:12:01Z", "k: 2026-11-30T06:12:01Z"),
        ("Which one?", 'k: "Which one?"'),
        ("no", 'k: "no"'),
        (["a", "b"], 'k: ["a", "b"]'),
        (("a",), 'k: ["a"]'),
        ("你好", 'k: "你好"'),
        ("two\nlines", 'k: "two\\nlines"'),
    ],
)
def test_how_a_value_is_written(value: object, line: str) -> None:
    assert render({"k": value, "none": None}) == line + "\n"


@pytest.mark.parametrize("values", [{"Key": 1}, {"a b": 1}, {"a": float("nan")}, {"a": float("inf")}])
def test_what_cannot_be_written_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        render(values)


def test_times_are_bare_and_mean_the_same_to_a_yaml_reader() -> None:
    text = render({"since": timestamp(1796019120.9)})
    assert text == "since: 2026-11-30T06:12:00Z\n"
    assert seconds_of(parse(text)["since"]) == 1796019120
    assert yaml.safe_load(text) == {"since": datetime(2026, 11, 30, 6, 12, tzinfo=UTC)}
    assert seconds_of("2026-13-30T06:12:00Z") is None
    assert seconds_of(3) is None


def test_lines_that_cannot_be_read_are_left_out() -> None:
    assert parse('state: done\nnonsense\nerror: "torn\n: x\nturn: 3\r\n\nBad: 1\n') == {"state": "done", "turn": "3\r"}


def test_a_status_is_replaced_as_a_whole(tmp_path: Path) -> None:
    assert read_status(tmp_path) == {}
    assert read_status(tmp_path / "none") == {}
    write_status(tmp_path, {"state": "running", "error": "x" * 1000})
    with open(tmp_path / "status.txt") as reader:
        write_status(tmp_path, {"state": "done"})
        assert reader.read().startswith("state: running\n")
    assert read_status(tmp_path) == {"state": "done"}
    assert os.listdir(tmp_path) == ["status.txt"]


def test_a_link_laid_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".status.txt.tmp").symlink_to(victim)
    write_status(tmp_path, {"state": "done"})
    assert victim.read_text() == "mine"
    assert not (tmp_path / "status.txt").is_symlink()
    assert read_status(tmp_path) == {"state": "done"}


def test_grep_finds_a_state() -> None:
    lines = render({"state": "done", "question": "state: asking"}).splitlines()
    assert [line for line in lines if line.startswith("state: ")] == ["state: done"]
    assert json.loads(lines[1].partition(": ")[2]) == "state: asking"
