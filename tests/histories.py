"""Short session histories as records: what the tests of the machine, the journal and recovery replay."""

from __future__ import annotations

from gad.core.messages import Assistant, Text, Thinking, ToolCall, ToolResult, Usage
from gad.core.records import (
    Answered,
    Asked,
    Begin,
    Calling,
    Checked,
    Checking,
    ChildBegan,
    ChildUsed,
    Decided,
    Deferred,
    Ended,
    Judged,
    Moved,
    Paused,
    Pinned,
    Record,
    Resumed,
    Said,
    ScriptRan,
    ScriptStarted,
    StopAsked,
    ToolFinished,
    ToolStarted,
    TurnedDown,
)
from gad.core.task import TaskOptions


def begin(**options: object) -> list[Record]:
    return [
        Begin(100.0, "s", TaskOptions(**options), preamble="[date]"),  # type: ignore[arg-type]
        Said(100.0, 1, "input.txt", "做 the task 🙂"),
    ]


def answer(turn: int, *parts: str | ToolCall, stop: str = "end", usd: float | None = 0.5) -> list[Record]:
    spoken = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    calls = any(isinstance(part, ToolCall) for part in spoken)
    message = Assistant((Thinking("hm", "sig"), *spoken))
    usage = Usage(100, 10, 50)
    reason = "tools" if calls else stop
    return [
        Calling(100.0 + turn, turn, "m"),
        Answered(100.5 + turn, turn, message, reason, "m", usage, usd),  # type: ignore[arg-type]
    ]


def call(name: str = "code_run", n: int = 1, **arguments: object) -> ToolCall:
    return ToolCall(f"c{n}", name, arguments or {"type": "bash", "code": f"echo {n}"})


def ran(id_: str = "c1", status: str = "ok", output: str = "out", **extra: object) -> list[Record]:
    result = ToolResult(id_, status, output, {"exit": 0})  # type: ignore[arg-type]
    return [ToolStarted(110.0, id_, "code_run"), ToolFinished(111.0, result, 1.0, **extra)]  # type: ignore[arg-type]


WHOLE: list[Record] = [
    *begin(check="true"),
    *answer(1, "Let me look.", call(n=1), call("file_read", 2, path="a")),
    *ran("c1"),
    *ran("c2", "error", "no such file"),
    Pinned(112.0, 2, "remember 这个"),
    ChildBegan(112.5, "kid"),
    ChildUsed(112.7, "kid", 112.4, 110, 0.5),
    Calling(113.0, 2, "m"),
    Deferred(114.0, "429", 115.0, 1),
    Calling(114.2, 2, "m"),
    Moved(114.4, "a", "b", "503 again", 414.4),
    Calling(114.5, 2, "n"),
    Deferred(114.6, "529", 115.6, 1),
    Said(115.0, 3, "reply.txt", "hurry"),
    Moved(115.5, "b", "a"),
    *answer(2, call("ask_user", 3, question="Which?")),
    Asked(116.0, "c3", "Which?", ("a", "b")),
    TurnedDown(117.0, 4, "reply.txt", "reply.txt was not accepted: no"),
    Said(118.0, 5, "reply.txt", "b"),
    Decided(118.5, "start", 2, "e1", "shallow", "goal=file", "read sops/a/SOP.md"),
    *answer(3, "Done."),
    Checking(119.5),
    Checked(120.0, 1, "not yet"),
    Calling(121.0, 4, "m"),
    Resumed(122.0),
    *answer(4, "Now done."),
    Checking(125.0),
    Checked(126.0, 0, ""),
    Ended(127.0, "done"),
    Judged(127.5, 8, True, "well done"),
    Said(128.0, 6, "reply.txt", "and more"),
    ScriptStarted(128.5, "tidy-logs"),
    ScriptRan(128.7, 1, "[the script failed]", 0.2),
    *answer(5, call("file_write", 5, path="/srv/a", content="x"), call(n=4)),
    Asked(129.0, "c5", "May it?", ("yes", "no", "always"), ("gad: a rule",), ("write /srv/a (gad: a rule)",)),
    Said(129.2, 9, "reply.txt", "Not there."),
    Asked(129.4, "c4", "May it?", ("yes", "no", "always"), ("gad: a rule", "another"), ("echo (gad: a rule)",)),
    Calling(129.5, 6, "m"),
    *answer(6, call(n=6))[1:],
    Asked(129.6, "c6", "May it?", ("yes", "no", "always"), ("gad: a rule",), ("echo (gad: a rule)",)),
    Said(129.8, 10, "reply.txt", "yes"),
    ToolStarted(130.0, "c6", "code_run", "yes: gad: a rule"),
    Paused(131.0),
    StopAsked(132.0, 7),
    Ended(133.0, "stopped"),
]
