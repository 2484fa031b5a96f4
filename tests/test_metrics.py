"""metrics.prom: what node_exporter's textfile collector reads, checked with a strict parser of its format."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad import __version__, metrics
from gad.core.admission import Admission
from gad.core.messages import Assistant, Text, ToolResult, Usage
from gad.core.records import (
    Answered,
    Begin,
    Calling,
    Deferred,
    Ended,
    Moved,
    Paused,
    Record,
    Resumed,
    ToolFinished,
    ToolStarted,
)
from gad.core.session import Session
from gad.core.task import TaskOptions
from gad.metrics import EVERY, FILE, MOST, Metrics
from tests.scripted_server import Call, Fail, Silence
from tests.world import World, play, until

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parse(text: str) -> Samples:
    """Read the text format, version 0.0.4; fail on whatever a strict reader would not take."""
    assert text.endswith("\n") and not text.endswith("\n\n")
    found: Samples = {}
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    over: set[str] = set()  # metrics whose samples have ended: all of one metric stand together
    current = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            name, _, about = line.removeprefix("# HELP ").partition(" ")
            assert name not in helped | over and about and not re.search(r"\\(?![\\n])", about), line
            over |= {current} - {""}
            helped.add(name)
            current = name
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert name == current and name not in kinds and kind in ("counter", "gauge"), line
            assert (kind == "counter") == name.endswith("_total"), line
            kinds[name] = kind
        else:
            match = _SAMPLE.fullmatch(line)
            assert match is not None, line
            name, labels, value = match.groups()
            assert name == current and name in kinds, line
            key = (name, _labels(labels or ""))
            assert key not in found, line
            found[key] = float(value)
            assert kinds[name] == "gauge" or found[key] >= 0, line
    assert {name for name, _ in found} == helped == set(kinds)
    return found


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    found, at = [], 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match is not None, text
        found.append((match[1], re.sub(r'\\[\\"n]', lambda one: _ESCAPES[one[0]], match[2])))
        at = match.end()
    assert len({name for name, _ in found}) == len(found), text
    return tuple(found)


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(labels.items())]


def series(found: Samples, name: str) -> dict[tuple[str, ...], float]:
    return {tuple(one for _, one in labels): value for (metric, labels), value in found.items() if metric == name}


def session(name: str = "s") -> Session:
    made = Session()
    made.name = name
    return made


def answer(at: float, usd: float | None, *, tokens_in: int = 100, tokens_out: int = 10, cached: int = 0) -> Answered:
    usage = Usage(tokens_in, tokens_out, cached)
    return Answered(at, 1, Assistant((Text("x"),)), "end", "whatever the server said", usage, usd)


def counted(*records: Record, name: str = "s") -> Samples:
    made = Metrics("/nowhere", now=lambda: 1000.0)
    for record in records:
        made.seen(session(name), record)
    return parse(made.render())


# -- what is counted ------------------------------------------------------------------------------


def test_a_daemon_that_has_done_nothing_has_its_numbers() -> None:
    found = counted()
    assert value(found, "gad_build_info", version=__version__, python=platform.python_version()) == 1
    assert value(found, "gad_start_time_seconds") == 1000
    assert value(found, "gad_tokens_in_total") == value(found, "gad_cost_dollars_total") == 0
    assert value(found, "gad_prompt_cache_ratio") == 0
    assert set(series(found, "gad_sessions").values()) == {0.0}


def test_answers_count_tokens_dollars_seconds_and_the_cache() -> None:
    found = counted(
        Calling(10.0, 1, "m"), answer(12.5, 0.25, cached=60), Calling(20.0, 2, "n"), answer(20.5, None)
    )  # fmt: skip
    assert series(found, "gad_turns_total") == {("m",): 1, ("n",): 1}
    assert series(found, "gad_model_seconds_total") == {("m",): 2.5, ("n",): 0.5}
    assert value(found, "gad_tokens_in_total") == 200
    assert value(found, "gad_tokens_cached_total") == 60
    assert value(found, "gad_tokens_out_total") == 20
    assert value(found, "gad_prompt_cache_ratio") == 0.3
    assert (value(found, "gad_cost_dollars_total"), value(found, "gad_cost_unknown_total")) == (0.25, 1)


def test_a_clock_that_was_set_back_takes_nothing_from_a_counter() -> None:
    found = counted(Calling(10.0, 1, "m"), answer(3.0, 0.0))
    assert series(found, "gad_model_seconds_total") == {("m",): 0}


@pytest.mark.parametrize(
    ("record", "errors"),
    [
        (Deferred(2.0, "out of reach", 3.0, 1), 1),
        (Moved(2.0, "m", "n", "out of reach", 3.0), 1),
        (Ended(2.0, "failed", "refused"), 1),
        (Ended(2.0, "failed", "turn limit reached", True), 0),
        (Ended(2.0, "stopped"), 0),
        (Paused(2.0), 0),
        (Resumed(2.0), 0),
    ],
)
def test_a_request_without_an_answer_is_an_error_once(record: Record, errors: int) -> None:
    found = counted(Calling(1.0, 1, "m"), record, record)
    assert series(found, "gad_model_errors_total") == ({("m",): errors} if errors else {})
    assert series(counted(record), "gad_model_errors_total") == {}  # nothing had been asked


def test_tools_count_by_how_they_ended_and_refusals_apart() -> None:
    def run(call: str, status: Any, seconds: float) -> tuple[Record, Record]:
        return ToolStarted(1.0, call, "code_run"), ToolFinished(2.0, ToolResult(call, status, ""), seconds)

    found = counted(
        *run("a", "ok", 1.5), *run("b", "error", 0.25), *run("a", "ok", 1.0),
        ToolFinished(2.0, ToolResult("c", "error", "not run: made-up tool"), 0.0),
    )  # fmt: skip
    assert series(found, "gad_tool_calls_total") == {("code_run", "ok"): 2, ("code_run", "error"): 1}
    assert series(found, "gad_tool_seconds_total") == {("code_run",): 2.75}
    assert value(found, "gad_tool_refusals_total") == 1


def test_triggers_fires_are_told_apart_up_to_a_bound() -> None:
    def begin(*labels: str) -> Begin:
        return Begin(1.0, "s", TaskOptions(labels=labels))

    found = counted(begin("trigger", "trigger:nightly"), begin("trigger", "trigger:nightly"), begin("mine"))
    assert series(found, "gad_trigger_fires_total") == {("nightly",): 2}
    found = counted(*(begin("trigger", f"trigger:t{number}") for number in range(MOST + 50)), begin("trigger:t0"))
    fires = series(found, "gad_trigger_fires_total")
    assert (len(fires), fires["other",], fires["t0",]) == (MOST + 1, 50, 2)


@given(st.lists(st.text(st.characters(exclude_categories=()), min_size=1, max_size=20), max_size=5))
def test_no_name_breaks_the_format(names: list[str]) -> None:
    records = [Begin(1.0, "s", TaskOptions(labels=(f"trigger:{name}",))) for name in names]
    fires = series(counted(*records), "gad_trigger_fires_total")
    assert sum(fires.values()) == len(names)
    assert all(name.encode("utf-8", "replace").decode() in {key for (key,) in fires} for name in names)


def test_states_and_the_age_of_the_queue_are_those_of_the_daemon() -> None:
    made = Metrics("/nowhere", now=lambda: 100.0)
    states = {"a": "queued", "b": "queued", "c": "done"}
    queue = Admission(1, 1)
    made.watch(lambda: Counter(states.values()), queue.oldest)
    assert value(parse(made.render()), "gad_queue_oldest_seconds") == 0
    for name, since in (("first", 10.0), ("a", 40.0), ("b", 70.0)):
        queue.enqueue(name, None, priority=int(since), since=since)
    assert value(parse(made.render()), "gad_queue_oldest_seconds") == 90
    assert queue.take() == "b"
    queue.place("first", None)  # out of turn, as one that is to be ended
    found = parse(made.render())
    assert value(found, "gad_queue_oldest_seconds") == 60
    assert series(found, "gad_sessions") | {("queued",): 2.0, ("done",): 1.0} == series(found, "gad_sessions")
    states.clear()
    assert value(parse(made.render()), "gad_sessions", state="done") == 0


# -- the file -------------------------------------------------------------------------------------


class Pauses:
    """A clock that goes on when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.on = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self.on.wait()
        self.on.clear()


def test_the_file_is_replaced_as_a_whole_and_goes_with_the_daemon(tmp_path: Path) -> None:
    async def scene() -> None:
        pauses = Pauses()
        made = Metrics(str(tmp_path), pause=pauses)
        path = tmp_path / FILE
        former = os.umask(0o077)
        try:
            made.start()
            await until(lambda: pauses.asked)
        finally:
            os.umask(former)
        assert pauses.asked == [EVERY] == [15.0]
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        with path.open() as reader:
            made.committed("begin")
            made.committed("appended")
            pauses.on.set()
            await until(lambda: len(pauses.asked) == 2)
            assert value(parse(reader.read()), "gad_memory_commits_total") == 0  # a reader keeps what it has opened
        assert value(parse(path.read_text()), "gad_memory_commits_total") == 1
        assert os.listdir(tmp_path) == [FILE]
        await made.close()
        assert os.listdir(tmp_path) == []

    asyncio.run(scene())


def test_a_disk_that_does_not_take_it_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        pauses = Pauses()
        made = Metrics(str(tmp_path / "gone"), pause=pauses)
        made.start()
        for number in (1, 2):
            await until(lambda number=number: len(pauses.asked) == number)  # type: ignore[misc]
            pauses.on.set()
        await until(lambda: len(pauses.asked) == 3)
        (tmp_path / "gone").mkdir()
        pauses.on.set()
        await until(lambda: len(pauses.asked) == 4)
        parse((tmp_path / "gone" / FILE).read_text())
        await made.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert [one.message.partition(":")[0] for one in caplog.records] == [f"{FILE} cannot be written"]


def test_nothing_is_read_to_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Metrics("/nowhere")
    made.watch(lambda: {"done": 1000}, lambda: None)

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the spool was read")

    for name in ("open", "scandir", "listdir", "stat"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr("builtins.open", refuse)
    assert value(parse(made.render()), "gad_sessions", state="done") == 1000


# -- a daemon -------------------------------------------------------------------------------------


def test_a_daemon_s_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "EVERY", 0.02)

    async def scene(world: World) -> None:
        path = world.spool / ".daemon" / FILE

        def now() -> Samples:
            return parse(path.read_text())

        async with world.running():
            world.task("s")
            await world.rests("s")
            await until(lambda: path.exists() and series(now(), "gad_rounds_total") == {("done",): 1})
            found = now()
            assert series(found, "gad_turns_total") == {("scripted",): 2}
            assert series(found, "gad_tool_calls_total") == {("code_run", "ok"): 1}
            assert series(found, "gad_model_errors_total") == {("scripted",): 1}
            assert series(found, "gad_tool_seconds_total")["code_run",] > 0
            assert value(found, "gad_tokens_in_total") == 20
            assert value(found, "gad_cost_dollars_total") == pytest.approx(30e-6)
            world.task("waits")
            await until(lambda: value(now(), "gad_sessions", state="running") == 1)
            assert value(now(), "gad_sessions", state="done") == 1
        assert not path.exists()
        async with world.running():  # it resumes the one, and counts neither anew
            await until(lambda: path.exists())
            assert value(now(), "gad_tokens_in_total") == 0
            assert value(now(), "gad_sessions", state="done") == 1

    script = [Fail(529), Call("code_run", {"type": "bash", "code": "true"}), "done", Silence(), Silence()]
    play(tmp_path, script, scene)


def test_a_run_of_one_session_writes_none(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running(only="s"):
            world.task("s")
            await world.rests("s")
            assert not (world.spool / ".daemon" / FILE).exists()

    play(tmp_path, ["done"], scene)
