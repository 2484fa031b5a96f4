"""What requests cost over a whole session: traces replayed through the real pipeline, without model or network.

    python -m bench context                # the table
    python -m bench.context --curve        # what other batch intervals, line lengths and `OLD` would give, as markdown

A trace's records are folded into a `Session`; each turn's request is planned, built and rendered as Anthropic's body,
in the order in which a vendor caches it: tools, system, messages. `cache_control` marks are taken out, as a vendor
does not count them as part of the prefix. What the vendor would report as tokens is counted with o200k_base.

Cost units are characters: one that the request before had at the same place, all before it being equal too, costs
`CACHED`, any other 1. Cache writes, block sizes and lifetimes are left out: they differ from vendor to vendor;
`cost_at_marks` is for a cache that ends at marks.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import json
import re
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from bench import reference, traces
from bench.measure import Row, Scale, single
from bench.traces import Trace, Turn
from gad.core.context import CACHED, KEEP, OLD, Context, Plan, result_limit, weigh_message
from gad.core.cut import cut
from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, Usage
from gad.core.ports import Request
from gad.core.records import Answered, Begin, Calling, Said, ToolFinished, ToolStarted
from gad.core.request import build, plan_next, prefix_digest
from gad.core.session import Session
from gad.core.steps import CallModel
from gad.core.task import TaskOptions
from gad.core.weights import weigh
from gad.tools.capture import KEEP_FROM
from gad.tools.toolset import all_schemas

if TYPE_CHECKING:
    from gad.providers.anthropic import AnthropicProvider

WINDOW = 30_000
"""Tokens that one request may take: the default of gad.yaml."""
ALIKE = 0.9
"""Share of the former request with which a request must begin to count as alike."""

_PREAMBLE = "[Monday 2025-03-03 09:00 UTC; Linux; cwd /home/user/gad/work/s]"
_MODEL = "claude-sonnet-4-5"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: its body as compact JSON, its tokens, the part of it that is the anchor, its plan."""

    body: str
    tokens: int
    anchor: int = 0
    plan: Plan = field(default_factory=Plan)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a trace's requests come to. Sizes are in characters unless they say otherwise."""

    turns: int
    chars: int
    tokens: int
    largest: int
    largest_tokens: int
    alike: int
    cost: float
    batches: int
    evictions: int

    @property
    def share(self) -> float:
        """The turns whose request begins like the former one, in per cent; the first counts."""
        return 100 * self.alike / self.turns


def replay(trace: Trace, context: Context | None = None, *, reported: bool = True) -> list[Sent]:
    """Return the requests that gad makes in this session. `reported`: the server says how many tokens each one had."""
    session = Session()
    session.history.context = context or session.history.context
    schemas = all_schemas()
    digest = prefix_digest(schemas)
    session.record(Begin(0.0, "s", TaskOptions(turns=max(80, len(trace.turns))), _PREAMBLE))
    session.record(Said(0.0, 1, "input.txt", trace.task))
    sent: list[Sent] = []
    for at, turn in enumerate(trace.turns, 1):
        step = session.next_step(at)
        assert isinstance(step, CallModel), step
        plan = plan_next(session, schemas, step.turn, WINDOW)
        session.record(Calling(at, step.turn, _MODEL, plan, digest))
        request = build(session, schemas, step.turn)
        body = _body(request)
        count = tokens(body)
        anchor = len(_compact({"type": "text", "text": request.anchor})) if request.anchor else 0
        sent.append(Sent(body, count, anchor, plan))
        call = ToolCall(_call_id(trace.name, at), turn.tool, turn.arguments)
        usage = Usage(count, tokens(turn.said)) if reported else Usage()
        message = Assistant((Text(turn.said), call))
        session.record(Answered(at, step.turn, message, "tools", _MODEL, usage, None))
        session.record(ToolStarted(at, call.id, call.name))
        session.record(ToolFinished(at, _result(call.id, turn), 0.1, turn.arguments.get("key_info")))
        if turn.reply:
            session.record(Said(at, session.claims + 1, "reply.txt", turn.reply))
    return sent


def replay_reference(trace: Trace, *fixed: str) -> list[list[Sent]]:
    """Return the requests that the reference makes in the same session, once for each fixed part."""
    histories = list(reference.histories(trace))
    return [[Sent(part + text, tokens(part + text)) for text in histories] for part in fixed]


def figures(sent: Sequence[Sent]) -> Figures:
    """Add up a session's requests."""
    kept = [0, *(common(before.body, now.body) for before, now in pairwise(sent))]
    plans = [Plan(), *(request.plan for request in sent)]
    return Figures(
        turns=len(sent),
        chars=sum(len(request.body) for request in sent),
        tokens=sum(request.tokens for request in sent),
        largest=max(len(request.body) for request in sent),
        largest_tokens=max(request.tokens for request in sent),
        alike=1 + sum(same >= ALIKE * len(before.body) for same, before in zip(kept[1:], sent, strict=False)),
        cost=sum(len(request.body) - (1 - CACHED) * same for same, request in zip(kept, sent, strict=True)),
        batches=sum(now.compressed > before.compressed for before, now in pairwise(plans)),
        evictions=sum(now.evicted > before.evicted for before, now in pairwise(plans)),
    )


def cost_at_marks(sent: Sequence[Sent]) -> float:
    """Return the cost units where a cache holds only what ends at a mark, as Anthropic's does.

    Right after a batch or an eviction that is the tools and the system text; else it is all that the former request
    shares with this one, since its last mark stands right before its anchor.
    """
    fixed = sent[0].body.index('"messages":')
    lost = 0.0
    for before, now in pairwise(sent):
        if (before.plan.compressed, before.plan.evicted) != (now.plan.compressed, now.plan.evicted):
            lost += (1 - CACHED) * max(0, common(before.body, now.body) - fixed)
    return figures(sent).cost + lost


def parts_of_cost(sent: Sequence[Sent]) -> dict[str, float]:
    """Return what the cost units were paid for."""
    found = {"new content": 0.0, "anchor": 0.0, "sent again after a batch": 0.0, "read from the cache": 0.0}
    found["new content"] = len(sent[0].body) - sent[0].anchor
    found["anchor"] = sent[0].anchor
    added = _added(sent)
    for (before, now), new in zip(pairwise(sent), added, strict=True):
        same = common(before.body, now.body)
        found["read from the cache"] += CACHED * same
        found["anchor"] += now.anchor
        found["new content"] += new
        found["sent again after a batch"] += len(now.body) - same - now.anchor - new
    return found


def _added(sent: Sequence[Sent]) -> list[int]:
    """Return how many characters of each request after the first are its newest two messages."""
    sizes = []
    for request in sent[1:]:
        messages = json.loads(request.body)["messages"]
        newest = len(_compact(messages[-2])) + len(_compact(messages[-1]))
        sizes.append(newest - request.anchor)
    return sizes


def common(former: str, text: str) -> int:
    """Return how many characters two texts begin with alike."""
    most = min(len(former), len(text))
    return bisect_left(range(most), True, key=lambda end: former[: end + 1] != text[: end + 1])


def tokens(text: str) -> int:
    """Count with OpenAI's o200k vocabulary, which the package brings along.

    The text is JSON, whose escapes a vendor does not count: the true number is some per cent lower. It is counted
    message by message, since most of them are counted many times. The sum is exact: the vocabulary has no token that
    goes from a run of two or more punctuation marks into a word.
    """
    return sum(map(_tokens, _MESSAGE.split(text)))


_MESSAGE = re.compile(r'(?<=,\{")(?=role":")')


@lru_cache(maxsize=4096)
def _tokens(text: str) -> int:
    return len(_encoding().encode_ordinary(text))


@cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package's own, on import
        return importlib.import_module("bpe_openai").get_encoding("o200k_base")


@cache
def _provider() -> AnthropicProvider:
    from gad.providers.anthropic import AnthropicProvider  # takes a while, and the other benchmarks do without

    provider = AnthropicProvider(model=_MODEL, api_key="not-a-key", base_url="http://127.0.0.1:9")
    asyncio.run(provider.close())  # it renders, and never sends
    return provider


def _body(request: Request) -> str:
    body = _provider().render(request)
    blocks = [*body["tools"], *body["system"], *(block for told in body["messages"] for block in told["content"])]
    for block in blocks:
        block.pop("cache_control", None)
    return _compact({key: body[key] for key in ("tools", "system", "messages")})


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _call_id(name: str, turn: int) -> str:
    return "toolu_01" + hashlib.sha256(f"{name} {turn}".encode()).hexdigest()[:22]


def _result(call_id: str, turn: Turn) -> ToolResult:
    """Return a result as the tool and the runner make it."""
    kept = turn.tool == "code_run" and max(len(turn.output), weigh(turn.output)) > KEEP_FROM
    saved = f"/home/user/gad/work/s/code_run-{call_id}.txt" if kept else ""
    return ToolResult(call_id, "ok", cut(turn.output, result_limit(turn.tool, 1, WINDOW), saved), turn.meta, saved)


# -- the table -------------------------------------------------------------------------------------


def requests(scale: Scale, place: Path) -> list[Row]:
    """What the requests of four sessions come to; nothing here depends on the machine, and so not on the scale."""
    rows: list[Row] = []
    for trace in (traces.sixty(), traces.web(), traces.chinese(), traces.short()):
        sent = replay(trace)
        found = figures(sent)
        rows += _goals(found, sent) if trace.name == "60 turns" else []
        rows += _rows(trace.name, found)
        for label, theirs in zip(_FIXED, replay_reference(trace, *fixed_parts(sent)), strict=True):
            rows.append(_reference_row(f"{trace.name}: reference, {label}", figures(theirs)))
    return rows


_FIXED = (f"fixed part of {reference.FIXED:,}", "gad's fixed part")


def fixed_parts(sent: Sequence[Sent]) -> tuple[str, str]:
    """Return what the reference's requests begin with: a text as long as its own fixed part, and gad's."""
    prose = "You act through tools, look at what has come of it, and keep notes of what matters. " * reference.FIXED
    body = sent[0].body
    return prose[: reference.FIXED], body[: body.index('"messages":')]


def _goals(found: Figures, sent: Sequence[Sent]) -> list[Row]:
    """The rows that have goals of their own."""
    parts = ", ".join(f"{name} {units / 1e6:.3f}" for name, units in parts_of_cost(sent).items())
    otherwise = found.turns - found.alike
    return [
        single("60 turns: largest request", "k chars", found.largest / 1000, 90),
        single("60 turns: turns not alike", "turns", otherwise, 4, note="the goal is at least 95 % alike"),
        single("60 turns: cost units", "M", found.cost / 1e6, 0.47, note=parts),
        single("60 turns: cost units, cache up to marks", "M", cost_at_marks(sent) / 1e6, note="as Anthropic's"),
    ]


def _rows(name: str, found: Figures) -> list[Row]:
    runs = f"{found.batches} batches, {found.evictions} evictions; cost {found.cost / 1e6:.3f} M"
    return [
        single(
            f"{name}: largest request",
            "k tokens",
            found.largest_tokens / 1000,
            WINDOW / 1000,
            note=f"{found.largest:,} chars",
        ),
        single(f"{name}: turns alike at the start", "%", found.share, note=runs),
        single(f"{name}: all requests", "M chars", found.chars / 1e6, note=f"{found.tokens / 1e6:.3f} M tokens"),
    ]


def _reference_row(measure: str, found: Figures) -> Row:
    note = (
        f"largest {found.largest:,} chars, {found.largest_tokens:,} tokens; {found.share:.0f} % alike; "
        f"cost {found.cost / 1e6:.3f} M; {found.tokens / 1e6:.3f} M tokens"
    )
    return single(measure, "M chars", found.chars / 1e6, note=note)


# -- the curve -------------------------------------------------------------------------------------

INTERVALS = (1, 2, 3, 5, 8, 10, 15, 20, 30)
SCALES = (0.5, 1.0, 2.0, 4.0)
OLDS = (200, 400, 800, 1600)


class Interval(Context):
    """Runs a batch every so many turns instead of when it is worth its price; over the budget it does as ever."""

    def __init__(self, turns: int | None) -> None:
        super().__init__()
        self._messages = None if turns is None else 2 * turns

    def plan(self, transcript: Sequence[Message], last: Plan, *, limit: float, fixed: float = 0.0) -> Plan:
        """Return the plan for the next request."""
        size = len(transcript)
        plan = last
        if self._messages is not None and size - last.at >= self._messages:
            plan = replace(plan, compressed=max(last.compressed, size - KEEP), at=size)
        weight = fixed + sum(map(weigh_message, self.view(transcript, plan)))
        if weight <= limit:
            return replace(plan, weight=weight)
        return super().plan(transcript, replace(plan, at=size, rent=0.0), limit=limit, fixed=fixed)


def curve() -> str:
    """Return the tables, as markdown."""
    rules: list[tuple[str, Callable[[], Context]]] = [(str(turns), partial(Interval, turns)) for turns in INTERVALS]
    rules += [("never", partial(Interval, None)), ("the rule", Context)]
    first = [[name, *(_cell(replay(traces.sixty(scale), make())) for scale in SCALES)] for name, make in rules]
    parts = fixed_parts(replay(traces.sixty()))
    compared = [replay_reference(traces.sixty(scale), *parts) for scale in SCALES]
    first += [[f"reference, {label}", *(_cell(runs[n]) for runs in compared)] for n, label in enumerate(_FIXED)]
    second = []
    for old in OLDS:
        with patch("gad.core.context.OLD", old):
            second.append([f"{old}", *(_cell(replay(traces.sixty(scale))) for scale in SCALES)])
    heads = [f"lines x{scale:g}" for scale in SCALES]
    return "\n\n".join(
        [
            "Each cell: cost units in M; share of turns alike at the start; largest request in characters.",
            _markdown(["turns between batches", *heads], first),
            f"The same with other values of `OLD` (it is {OLD}) and the rule:",
            _markdown(["`OLD`", *heads], second),
        ]
    )


def _cell(sent: Sequence[Sent]) -> str:
    found = figures(sent)
    return f"{found.cost / 1e6:.3f}; {found.share:.0f} %; {found.largest / 1000:.0f} k"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(prog="python -m bench.context", description="Replay the 60-turn trace.")
    parser.add_argument("--curve", action="store_true", required=True, help="print the tables as markdown")
    parser.parse_args()
    print(curve())


if __name__ == "__main__":
    main()
