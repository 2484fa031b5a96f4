"""The conversation as immutable values, the same for every vendor.

A transcript is a tuple of `User` and `Assistant` messages that alternate, beginning with a `User`.
A `User` message holds, in this order, the results of the preceding assistant message's calls and
then what people said. Providers translate these values to a vendor's wire format at their edge;
`to_json` and `from_json` are the journal's form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

JSON = dict[str, Any]

StopReason = Literal["end", "tools", "length"]
"""Why the model stopped: it finished, it wants tools run, or it hit the output limit."""

Status = Literal["ok", "error", "interrupted"]
"""How a tool call ended. `interrupted` means that it may or may not have happened."""


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text, said by a person or by the model; `note` marks the engine's own words among a person's."""

    text: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class Thinking:
    """A model's reasoning block, opaque to us and sent back as it came.

    `signature` is Anthropic's proof over `text`; `data` holds a vendor's encrypted form (Anthropic's
    redacted thinking, OpenAI's encrypted reasoning item) when there is no readable text. `origin` names the
    server that made a signed or encrypted block, as no other server accepts it.
    """

    text: str
    signature: str = ""
    data: str = ""
    origin: str = ""

    def fits(self, server: str) -> bool:
        """Return whether this block may be sent to a server: no other has made it."""
        return not self.origin or self.origin == server


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model asks for one tool. `problem` says why the arguments could not be read; such a call is never run."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one call gave: the core output and a few facts beside it, one shape for all tools.

    `saved` is the path of a file that holds the whole output; the model is told of it only where something is cut.
    """

    call_id: str
    status: Status
    output: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    saved: str = ""

    @property
    def is_error(self) -> bool:
        """True when the call did not do what was asked."""
        return self.status != "ok"

    def render(self) -> str:
        """Return the text the model reads: a line of facts when there are any, then the output."""
        facts = " ".join(f"{key}={_fact(value)}" for key, value in self.meta.items())
        head = f"{self.status} {facts}".rstrip() if self.status != "ok" or facts else ""
        if head and self.output:
            return f"[{head}]\n{self.output}"
        return f"[{head}]" if head else self.output or "[ok]"


def _fact(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, as the vendor reported them.

    `tokens_in` counts the whole prompt, cached parts included; `cached` (read from the cache) and
    `cache_write` (written to it) are parts of it, billed at their own price.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.cached + other.cached,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class User:
    """What the model is told: tool results first, then text."""

    parts: tuple[ToolResult | Text, ...]


@dataclass(frozen=True, slots=True)
class Assistant:
    """What the model said, in its own order."""

    parts: tuple[Thinking | Text | ToolCall, ...]

    @property
    def text(self) -> str:
        """The readable text, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


Message = User | Assistant
Part = Thinking | Text | ToolCall | ToolResult


def canonical(arguments: Mapping[str, Any]) -> str:
    """Return arguments as one canonical JSON text: two calls are the same call when this is equal."""
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def part_to_json(part: Part) -> JSON:
    """Return the journal's form of one part."""
    match part:
        case Text(text, note):
            return {"text": text} | ({"note": True} if note else {})
        case Thinking(text, signature, data, origin):
            block = {"thinking": text, "signature": signature, "data": data, "origin": origin}
            return {key: value for key, value in block.items() if value or key == "thinking"}
        case ToolCall(id_, name, arguments, problem):
            found = {"call": id_, "name": name, "arguments": dict(arguments)}
            return found | ({"problem": problem} if problem else {})
        case ToolResult(call_id, status, output, meta, saved):
            found = {"result": call_id, "status": status, "output": output, "meta": dict(meta)}
            return found | ({"saved": saved} if saved else {})


def part_from_json(data: Mapping[str, Any]) -> Part:
    """Read back what `part_to_json` wrote. Raises KeyError or TypeError on anything else."""
    if "text" in data:
        return Text(data["text"], data.get("note", False))
    if "thinking" in data:
        return Thinking(data["thinking"], data.get("signature", ""), data.get("data", ""), data.get("origin", ""))
    if "call" in data:
        return ToolCall(data["call"], data["name"], data["arguments"], data.get("problem", ""))
    return ToolResult(data["result"], data["status"], data["output"], data["meta"], data.get("saved", ""))
