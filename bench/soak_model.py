"""The soak's model: what each message wants is written in it, and a share of the requests goes wrong.

A message of a soak holds ``[[m:MARK PLAN]]``. The model works by the newest message's plan and then answers every
message that it has not answered yet, with ``[[a:MARK]]`` for each:

    plain       answer at once
    tools N     answer after N calls that worked
    sleep       a command that does not end by itself
    run CHILD   a command that has another session, CHILD-N, do a task
    ask         ask the user first

Each call adds a line of its own to the file `ledger` in the session's directory: a line that is there twice is a call
that ran twice. Everything is computed from the request, so a request that is sent again gets the same answer.
"""

from __future__ import annotations

import random
import re
from typing import Any

from tests.scripted_replies import Call, Cut, Fail, Part, Reply, Say, Silence

LIMITED, CUT, HANG = 0.10, 0.05, 0.02
"""Shares of the requests that are refused with HTTP 429, cut off in the stream, and left without an end."""
LEDGER = "ledger"

MESSAGE = re.compile(r"\[\[m:([\w.-]+) ([^\]]+)\]\]")
ANSWER = re.compile(r"\[\[a:([\w.-]+)\]\]")
_BROKEN_OFF = "may or may not have happened"
_MUST_ASK = "now call ask_user"

_chance = random.Random(1)


def answer(body: dict[str, Any]) -> Reply | Fail:
    """Return the answer to a request, or what goes wrong instead."""
    parts = _parts(body)
    dice = _chance.random()
    if dice < LIMITED:
        return Fail(429, headers={"retry-after": "1"} if dice < LIMITED / 2 else {})
    dice -= LIMITED
    if dice < CUT:
        call = next((part for part in parts if isinstance(part, Call)), None)
        return Reply((Say("Half an ans"), Cut(call, clean=dice < CUT / 2)))
    dice -= CUT
    if dice < HANG:
        return Reply((Say("Half an ans"), Silence())) if dice < HANG / 2 else Reply((Say("late"),), wait=3600.0)
    return Reply(tuple(parts), wait=_chance.uniform(0.05, 0.6))


def _parts(body: dict[str, Any]) -> list[Part]:
    if not any(tool["function"]["name"] == "code_run" for tool in body.get("tools", ())):
        return [Say("Nothing to keep.")]  # a review
    messages = body["messages"]
    plans: dict[str, tuple[int, str]] = {}
    done: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            done |= set(ANSWER.findall(_text(message)))
        elif message["role"] in ("user", "tool"):
            for mark, plan in MESSAGE.findall(_text(message)):
                plans.setdefault(mark, (place, plan))
    open_ = [mark for mark in plans if mark not in done]
    if not open_:
        return [Say("There is nothing left to do.")]
    mark = open_[-1]
    place, plan = plans[mark]
    results = [_text(message) for message in messages[place + 1 :] if message["role"] == "tool"]
    if results and _MUST_ASK in results[-1]:
        return [Say("That failed."), Call("ask_user", {"question": f"What about {mark}, step {len(results)}?"})]
    if calls := _calls(mark, plan, len(results), sum(_BROKEN_OFF not in result for result in results)):
        return [Say("I see to it."), *calls]
    return [Say("Here it is: " + " ".join(f"[[a:{one}]]" for one in open_), 6)]


def _calls(mark: str, plan: str, made: int, worked: int) -> list[Call]:
    """Return the next calls for a message's plan; none when it is carried out."""
    kind, _, rest = plan.partition(" ")
    line = f"{mark}:{made}"
    match kind:
        case "ask" if not worked:
            return [Call("ask_user", {"question": f"Which colour for {mark}?", "candidates": ["red", "blue"]})]
        case "sleep":
            return [_bash(f"echo {line} >> {LEDGER}; sleep 600 & wait", 900)]
        case "run" if not worked:
            child = f"{rest}-{made}"
            run = f"mkdir {child} && gad run --cwd {child} --name {child} '[[m:{child}.1 tools 1]]'"
            return [_bash(f"echo {line} >> {LEDGER}; {run}", 120)]
        case "tools" if worked < int(rest):
            written = Call("file_write", {"path": LEDGER, "content": f"{line}\n", "mode": "append"})
            ran = _bash(f"echo {line}+ >> {LEDGER}; sleep 0.5", 60)
            return [[written], [ran], [written, ran]][made % 3]
    return []


def _bash(code: str, seconds: int) -> Call:
    return Call("code_run", {"type": "bash", "code": code, "timeout": seconds})


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)
