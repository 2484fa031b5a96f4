"""What the scripted server answers in a benchmark; named to it as ``--rule bench.rules:NAME``."""

from __future__ import annotations

from typing import Any

from tests.scripted_replies import Call, Reply, Say

TURNS = 62
"""Requests of one long session; those around the 51st have a history of about 100 messages."""
PAUSE = 0.004
"""Seconds before each answer in a long session, in which the daemon's clock can be read."""

WAIT_FOREVER = "sleep 1000 & echo $$ $! > pids.new; mv pids.new pids; wait"
"""A command of two processes in one group, which both obey TERM."""

hello = Reply((Say("Hello.", 1),), model="scripted")

ask = Reply((Call("ask_user", {"question": "Which one?", "candidates": ["red", "blue"]}, chunks=1),), model="scripted")

sleep = Reply((Call("code_run", {"type": "bash", "code": WAIT_FOREVER, "timeout": 900}, chunks=1),), model="scripted")


def notes(body: dict[str, Any]) -> Reply:
    """A tool call that costs next to nothing, and never twice the same, `TURNS` - 1 times."""
    turn = _turn(body)
    return _long(turn, Call("update_working_checkpoint", {"key_info": f"step {turn}: " + "found it. " * 20}))


def files(body: dict[str, Any]) -> Reply:
    """The same with a tool that reads a small file, always another part of it."""
    turn = _turn(body)
    return _long(turn, Call("file_read", {"path": "sample.txt", "start": turn, "count": 10}))


def commands(body: dict[str, Any]) -> Reply:
    """The same with a tool that starts a process."""
    turn = _turn(body)
    return _long(turn, Call("code_run", {"type": "bash", "code": f"echo {turn}"}))


def _turn(body: dict[str, Any]) -> int:
    return 1 + [message["role"] for message in body["messages"]].count("assistant")


def _long(turn: int, call: Call) -> Reply:
    part = call if turn < TURNS else Say("Done.", 1)
    return Reply((Say(f"Step {turn}."), part), model="scripted", wait=PAUSE)
