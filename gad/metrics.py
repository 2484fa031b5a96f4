"""Numbers for node_exporter's textfile collector: `metrics.prom` beside the daemon's status, replaced each 15 s.

Counters begin at 0 with the daemon, as Prometheus expects. They grow with the journals' records as these are written,
so nobody ever reads the spool for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gad import __version__
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
from gad.spool import names
from gad.spool.files import replace

log = logging.getLogger(__name__)

FILE = "metrics.prom"
EVERY = 15.0
"""Seconds between two writes."""
MODE = 0o644
"""Others may read it, where the directories let them: there is no word of any session in it."""
MOST = 200
"""Names of triggers that are told apart: a label is a client's, and each name is a series for ever."""
_TRIGGER = "trigger:"

_HELP: Mapping[str, tuple[str, str]] = {
    "gad_build_info": ("gauge", "The daemon's version; always 1."),
    "gad_start_time_seconds": ("gauge", "When the daemon started, in seconds since 1970."),
    "gad_sessions": ("gauge", "Sessions in the spool, by state."),
    "gad_queue_oldest_seconds": ("gauge", "How long the oldest session that could run has waited for a place."),
    "gad_prompt_cache_ratio": ("gauge", "Share of the input tokens that came from a prompt cache, since the start."),
    "gad_rounds_total": ("counter", "Rounds that have ended, by how."),
    "gad_turns_total": ("counter", "Answers of models, by model."),
    "gad_tokens_in_total": ("counter", "Input tokens, cached ones included."),
    "gad_tokens_cached_total": ("counter", "Input tokens that came from a prompt cache."),
    "gad_tokens_out_total": ("counter", "Output tokens."),
    "gad_cost_dollars_total": ("counter", "US dollars, as far as prices are known."),
    "gad_cost_unknown_total": ("counter", "Answers whose price is unknown."),
    "gad_model_seconds_total": ("counter", "Seconds spent waiting for complete answers, by model."),
    "gad_model_errors_total": ("counter", "Requests that gave no answer, by model."),
    "gad_tool_calls_total": ("counter", "Tool calls that ran, by tool and how they ended."),
    "gad_tool_seconds_total": ("counter", "Seconds that tool calls took, by tool."),
    "gad_tool_refusals_total": ("counter", "Tool calls that were not run."),
    "gad_trigger_fires_total": ("counter", "Sessions that triggers have made, by trigger."),
    "gad_memory_commits_total": ("counter", "Changes that this daemon has made in memory."),
}
_COUNTERS = frozenset(name for name, (kind, _) in _HELP.items() if kind == "counter")
_LABELLED = frozenset(
    {
        "gad_rounds_total",
        "gad_turns_total",
        "gad_model_seconds_total",
        "gad_model_errors_total",
        "gad_tool_calls_total",
        "gad_tool_seconds_total",
        "gad_trigger_fires_total",
    }
)

_Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _UnderWay:
    """What a session is at: the request that is out, and the calls that run, by id."""

    model: str = ""
    since: float = 0.0
    calls: dict[str, str] = field(default_factory=dict)


class Metrics:
    """Counts what happens and writes it down beside the daemon. All methods but `committed` belong to its event loop.

    `directory` is the daemon's own. `now` gives seconds since the epoch; `pause` waits for some seconds.
    """

    def __init__(
        self,
        directory: str,
        *,
        now: Callable[[], float] = time.time,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._directory = directory
        self._now = now
        self._pause = pause
        self._started = now()
        self._counts: dict[str, defaultdict[_Labels, float]] = {name: defaultdict(float) for name in _COUNTERS}
        for name in _COUNTERS - _LABELLED:
            self._counts[name][()] = 0
        self._under_way: dict[str, _UnderWay] = {}
        self._sessions: Callable[[], Mapping[str, int]] = dict
        self._oldest: Callable[[], float | None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    def watch(self, sessions: Callable[[], Mapping[str, int]], oldest: Callable[[], float | None]) -> None:
        """Tell how many sessions are in each state, and since when the oldest one in the queue has been there."""
        self._sessions, self._oldest = sessions, oldest

    # -- counting --------------------------------------------------------------------------------

    def seen(self, session: Session, record: Record) -> None:
        """Count a record that a session has taken in."""
        match record:
            case Begin():
                labels = record.options.labels
                fired = next((label for label in labels if label.startswith(_TRIGGER)), "")
                if fired:
                    self._add("gad_trigger_fires_total", 1, trigger=self._known(fired.removeprefix(_TRIGGER)))
            case Calling():
                at_work = self._at_work(session.name)
                at_work.model, at_work.since = record.model, record.at
            case Answered():
                self._answered(session.name, record)
            case Deferred() | Moved():
                self._failed(session.name)
            case ToolStarted():
                self._at_work(session.name).calls[record.call] = record.name
            case ToolFinished():
                self._finished(session.name, record)
            case Ended():
                if record.state == "failed" and not record.limit:
                    self._failed(session.name)
                self._add("gad_rounds_total", 1, state=record.state)
                self._under_way.pop(session.name, None)
            case Paused() | Resumed():
                self._under_way.pop(session.name, None)

    def committed(self, step: str) -> None:
        """Take note of a step of a commit to memory; called in any thread, under memory's lock."""
        if step == "appended":
            self._add("gad_memory_commits_total", 1)

    def _answered(self, name: str, record: Answered) -> None:
        at_work, usage = self._at_work(name), record.usage
        self._add("gad_turns_total", 1, model=at_work.model)
        self._add("gad_model_seconds_total", max(0.0, record.at - at_work.since), model=at_work.model)
        self._add("gad_tokens_in_total", usage.tokens_in)
        self._add("gad_tokens_cached_total", usage.cached)
        self._add("gad_tokens_out_total", usage.tokens_out)
        if record.usd is None:
            self._add("gad_cost_unknown_total", 1)
        else:
            self._add("gad_cost_dollars_total", record.usd)
        at_work.model = ""

    def _failed(self, name: str) -> None:
        at_work = self._under_way.get(name)
        if at_work is not None and at_work.model:
            self._add("gad_model_errors_total", 1, model=at_work.model)
            at_work.model = ""

    def _finished(self, name: str, record: ToolFinished) -> None:
        tool = self._at_work(name).calls.pop(record.result.call_id, None)
        if tool is None:
            self._add("gad_tool_refusals_total", 1)
            return
        self._add("gad_tool_calls_total", 1, tool=tool, status=record.result.status)
        self._add("gad_tool_seconds_total", record.seconds, tool=tool)

    def _at_work(self, name: str) -> _UnderWay:
        return self._under_way.setdefault(name, _UnderWay())

    def _known(self, trigger: str) -> str:
        known = self._counts["gad_trigger_fires_total"]
        return trigger if len(known) < MOST or (("trigger", trigger),) in known else "other"

    def _add(self, metric: str, value: float, **labels: str) -> None:
        self._counts[metric][tuple(labels.items())] += value

    # -- writing ---------------------------------------------------------------------------------

    def render(self) -> str:
        """Return all of it in Prometheus' text format."""
        lines: list[str] = []
        for metric, (kind, about) in _HELP.items():
            samples = list(self._samples(metric))
            if samples:
                lines += [f"# HELP {metric} {about}", f"# TYPE {metric} {kind}"]
                lines += [f"{metric}{_labels(labels)} {_number(value)}" for labels, value in samples]
        return "\n".join(lines) + "\n"

    def _samples(self, metric: str) -> Iterator[tuple[_Labels, float]]:
        match metric:
            case "gad_build_info":
                yield (("version", __version__), ("python", platform.python_version())), 1
            case "gad_start_time_seconds":
                yield (), self._started
            case "gad_sessions":
                counts = self._sessions()
                for state in names.STATES:
                    yield (("state", state),), counts.get(state, 0)
            case "gad_queue_oldest_seconds":
                since = self._oldest()
                yield (), 0.0 if since is None else max(0.0, self._now() - since)
            case "gad_prompt_cache_ratio":
                total = self._counts["gad_tokens_in_total"][()]
                yield (), self._counts["gad_tokens_cached_total"][()] / total if total else 0.0
            case _:
                yield from sorted(self._counts[metric].items())

    def start(self) -> None:
        """Begin to write, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop, and take the file away: numbers that nobody renews are worse than none."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(os.unlink, os.path.join(self._directory, FILE))

    async def _run(self) -> None:
        said = ""
        while True:
            try:
                await asyncio.to_thread(replace, self._directory, FILE, self.render(), MODE)
                said = ""
            except OSError as exc:
                if str(exc) != said:
                    log.warning("%s cannot be written: %s", FILE, exc)
                said = str(exc)
            await self._pause(EVERY)


def _labels(labels: _Labels) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    whole = value.encode("utf-8", "replace").decode()
    return whole.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return repr(round(value, 6)) if isinstance(value, float) else str(value)
