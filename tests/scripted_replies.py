"""What the scripted server answers, as values: parts of a message, faults, and whole replies.

A script entry is one part (`Say`, `Call`, ...), a plain string (the same as `Say`), a list of parts, a `Reply`
(parts and settings), or a `Fail`. `to_json` and `from_json` carry entries to a server in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from gad.core.messages import Usage


@dataclass(frozen=True)
class Say:
    """Text, sent in `chunks` equal pieces, or in exactly the given pieces (which may split a surrogate pair)."""

    text: str = ""
    chunks: int | tuple[str, ...] = 3

    def pieces(self) -> list[str]:
        return split(self.text, self.chunks) if isinstance(self.chunks, int) else list(self.chunks)


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments` may be raw text (also broken JSON). `id` "" leaves the id out, None numbers it.

    Chat Completions only: `index=False` leaves the index out of every delta; `repeat_name` sends id and name
    again in every delta; `id_every_delta` sends the id again without the name.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None
    chunks: int = 3
    index: bool = True
    repeat_name: bool = False
    id_every_delta: bool = False


@dataclass(frozen=True)
class Think:
    """Reasoning. `data` alone: Anthropic's redacted block; OpenAI Responses: the encrypted content."""

    text: str = ""
    signature: str = ""
    data: str = ""


@dataclass(frozen=True)
class Refuse:
    """The vendor's refusal."""

    text: str = "I cannot help with that."


@dataclass(frozen=True)
class StreamError:
    """An error event inside the HTTP 200 stream; the stream ends there."""

    kind: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True)
class Cut:
    """The stream ends here: by a closed connection, or (`clean`) by a proper end of the body.

    `inside` is a call that is cut in the middle of its argument JSON.
    """

    inside: Call | None = None
    clean: bool = False


@dataclass(frozen=True)
class Silence:
    """Nothing is sent for so many seconds; None: until the client goes away."""

    seconds: float | None = None


@dataclass(frozen=True)
class Raw:
    """These bytes, as they are, in the body."""

    text: str


Part = Say | Call | Think | Refuse | StreamError | Cut | Silence | Raw


@dataclass(frozen=True)
class Reply:
    """A streamed answer.

    `stop` is end, tools, length, refusal, overflow, or a vendor's own word; None chooses by the parts; ""
    leaves it out. `usage` None leaves it out. `wait` seconds pass before the headers, `delay` seconds between
    frames. `chunk_bytes` cuts the body at every so many bytes, characters included.
    """

    parts: tuple[Part, ...] = ()
    stop: str | None = None
    usage: Usage | None = Usage(10, 5)  # noqa: RUF009 - frozen
    model: str | None = None
    wait: float = 0.0
    delay: float = 0.0
    chunk_bytes: int | None = None


@dataclass(frozen=True)
class Fail:
    """An HTTP error. A string or None as body is wrapped in the vendor's own error shape; a dict is sent as it is."""

    status: int
    body: Mapping[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Entry = str | Part | Sequence[str | Part] | Reply | Fail
Rule = Callable[[dict[str, Any]], Entry]

_TYPES = {
    kind.__name__: kind for kind in (Say, Call, Think, Refuse, StreamError, Cut, Silence, Raw, Reply, Fail, Usage)
}


def as_reply(entry: Entry) -> Reply | Fail:
    """Return any script entry in its full form."""
    if isinstance(entry, Reply | Fail):
        return entry
    if isinstance(entry, str):
        return Reply((Say(entry),))
    if isinstance(entry, Sequence):
        return Reply(tuple(Say(part) if isinstance(part, str) else part for part in entry))
    return Reply((entry,))


def split(text: str, count: int) -> list[str]:
    """Return `text` in at most `count` pieces of nearly equal length, none of them empty."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[start : start + size] for start in range(0, len(text), size)]


def to_json(value: Any) -> Any:
    """Return an entry, or a list of them, as JSON: every value is an object that names its type."""
    name = type(value).__name__
    if name in _TYPES and isinstance(value, _TYPES[name]):
        return {"type": name} | {key.name: to_json(getattr(value, key.name)) for key in fields(value)}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def from_json(data: Any) -> Any:
    """Read back what `to_json` wrote; fields may be left out: {"type": "Say", "text": "hi"}."""
    if isinstance(data, dict) and data.get("type") in _TYPES:
        kind = _TYPES[data["type"]]
        return kind(**{key: from_json(item) for key, item in data.items() if key != "type"})
    return tuple(from_json(item) for item in data) if isinstance(data, list) else data


def last_text(body: Mapping[str, Any]) -> str:
    """Return the newest text a user or a tool result carries in a request of any of the three formats."""
    messages = body.get("messages") or body.get("input") or []
    for item in reversed(messages):
        if item.get("type") == "function_call_output":
            return str(item["output"])
        content = item.get("content")
        if item.get("role") in ("user", "tool") and content:
            if isinstance(content, str):
                return content
            newest = content[-1]
            return str(newest.get("text") or newest.get("content") or "")
    return ""


RULES: dict[str, Entry | Rule] = {
    "hello": Reply((Say("Hello.", 1),), model="scripted"),
    "echo": lambda body: Say(last_text(body)),
}
"""What `--rule NAME` knows by name; `--rule package.module:function` takes any other."""
