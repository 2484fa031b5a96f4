"""The context pipeline that gad's is compared with: GenericAgent's, written anew from its description.

Its anchor is stored in each user message, and messages are compressed in place: every fifth request the older ones, and
at once when the history has grown over its budget, which also drops the oldest. What it sends is `histories`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bench.traces import Trace, Turn

WINDOW = 30_000
"""Its window; three characters of JSON count as one of it."""
FIXED = 20_000
"""Characters of its system prompt, tool schemas and memory, about."""

_EVERY = 5
_KEEP = 10
_KEEP_FORCED = 4
_LEAST = 5
_TARGET = 0.6
_OLD = 800
_SHOWN = 30
_LINE = 80
_LIMITS = {"code_run": 10_000, "file_read": 15_000, "web_execute_js": 8_000, "web_scan": 35_000}
_STORED = re.compile(r"<(history|key_info|earlier_context)>.*?</\1>", re.DOTALL)

Block = dict[str, Any]


def histories(trace: Trace) -> Iterator[str]:
    """Yield each turn's messages as compact JSON: what its request shows behind the fixed part."""
    history = _History()
    lines = [f"[USER]: {_one_line(trace.task)}"]
    key_info = ""
    history.tell([{"type": "text", "text": trace.task}])
    for number, turn in enumerate(trace.turns, 1):
        history.fit()
        yield json.dumps(history.messages, ensure_ascii=False, separators=(",", ":"))
        call = f"call_{number:024}"
        history.say(
            [
                {"type": "text", "text": turn.said},
                {"type": "tool_use", "id": call, "name": turn.tool, "input": dict(turn.arguments)},
            ]
        )
        lines.append(f"[Agent] {_one_line(turn.said)}")
        key_info = turn.arguments.get("key_info", key_info)
        if turn.reply:
            lines.append(f"[USER]: {_one_line(turn.reply)}")
        told = f"{turn.reply}\n{_anchor(lines, number, key_info)}".lstrip()
        history.tell(
            [
                {"type": "tool_result", "tool_use_id": call, "content": _result(turn)},
                {"type": "text", "text": told},
            ]
        )


class _History:
    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._requests = 0

    def tell(self, blocks: list[Block]) -> None:
        self.messages.append({"role": "user", "content": blocks})

    def say(self, blocks: list[Block]) -> None:
        self.messages.append({"role": "assistant", "content": blocks})

    def fit(self) -> None:
        """Compress and drop messages, as it is done before each request."""
        budget = 3 * WINDOW
        self._requests += 1
        if self._requests % _EVERY == 0:
            self._compress(_KEEP)
        if self._size() <= budget:
            return
        self._requests = 0
        self._compress(_KEEP_FORCED)
        while self._size() > _TARGET * budget and len(self.messages) > _LEAST:
            del self.messages[0]
            while self.messages and self.messages[0]["role"] != "user":
                del self.messages[0]
            if self.messages:
                self._detach(self.messages[0])

    def _size(self) -> int:
        return len(json.dumps(self.messages, ensure_ascii=False))

    def _compress(self, keep: int) -> None:
        for message in self.messages[:-keep]:
            for block in message["content"]:
                match block["type"]:
                    case "text":
                        block["text"] = _STORED.sub(r"<\1>[...]</\1>", block["text"])
                    case "tool_result":
                        block["content"] = _cut(block["content"], _OLD)
                    case "tool_use":
                        block["input"] = {
                            key: _cut(value, _OLD) if isinstance(value, str) else value
                            for key, value in block["input"].items()
                        }

    def _detach(self, message: dict[str, Any]) -> None:
        """Turn the results of a message whose calls are gone into text."""
        texts = [block["content"] if block["type"] == "tool_result" else block["text"] for block in message["content"]]
        message["content"] = [{"type": "text", "text": "\n".join(texts)}]


def _anchor(lines: list[str], turn: int, key_info: str) -> str:
    older, latest = lines[:-_SHOWN], lines[-_SHOWN:]
    parts = ["### [WORKING MEMORY]"]
    if older:
        parts.append(f"<earlier_context>\n{older[-1]} (and {len(older) - 1} before)\n</earlier_context>")
    parts.append("<history>\n" + "\n".join(latest) + "\n</history>")
    parts.append(f"Current turn: {turn}")
    if key_info:
        parts.append(f"<key_info>{key_info}</key_info>")
    return "\n".join(parts)


def _result(turn: Turn) -> str:
    output = _cut(turn.output, _LIMITS.get(turn.tool, 10_000))
    if turn.tool == "code_run":
        return json.dumps({"status": "success", "stdout": output, "exit_code": 0}, ensure_ascii=False)
    return output


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n...[truncated]...\n{text[-half:]}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LINE]
