"""The loop and the accumulation that all providers share.

`StreamProvider.ask` sends a request, feeds each event of the stream to a vendor's `Reader`, and returns the
reader's answer. The idle timeout is the transport's read timeout: keep-alive lines of a server that is still
thinking count as life, silence does not.
"""

from __future__ import annotations

import asyncio
import json
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gad.core.messages import Assistant, Text, Thinking, ToolCall
from gad.core.ports import Answer, Request
from gad.errors import ProviderError
from gad.providers import failures
from gad.providers.failures import Endpoint
from gad.providers.wire import JSON, clean, clean_json, known_ids, new_id

DEEPEST = 50
"""Levels of nesting in a call's arguments: far more than any tool takes, far less than Python's recursion does."""
_GRACE = 3.0
"""Seconds that a server may take to close a stream whose answer is complete."""


class TextJoiner:
    """Joins text deltas whose edge may fall between the two halves of a surrogate pair."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, delta: str) -> str:
        """Return what is whole by now; a high surrogate at the end waits for its other half."""
        text = self._held + delta
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held, text = text[-1], text[:-1]
        return clean(text)

    def flush(self) -> str:
        """Return what is still held."""
        held, self._held = self._held, ""
        return clean(held)


@dataclass(slots=True)
class _TextDraft:
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _ThinkingDraft:
    pieces: list[str] = field(default_factory=list)
    signature: str = ""
    data: str = ""


@dataclass(slots=True)
class CallDraft:
    """A tool call that is still arriving. `raw` collects its argument JSON; `given` are arguments sent in one go."""

    id: str = ""
    name: str = ""
    raw: list[str] = field(default_factory=list)
    given: Mapping[str, Any] | None = None

    def json(self) -> str:
        """Return the argument JSON so far."""
        return "".join(self.raw) or (json.dumps(self.given) if self.given else "")

    def whole(self) -> bool:
        """Say whether the arguments so far are complete JSON."""
        raw = self.json()
        return bool(raw.strip()) and not read_arguments(raw)[1]


class Draft:
    """An assistant message that is still arriving: parts in the order in which they began.

    `origin` names the server; it is noted in the reasoning that only that server can read.
    """

    def __init__(self, request: Request, origin: str = "") -> None:
        self._origin = origin
        self._taken = known_ids(request.messages)
        self._turn = len(request.messages)
        self._parts: dict[Hashable, _TextDraft | _ThinkingDraft | CallDraft] = {}
        self._joiner = TextJoiner()
        self._open: _TextDraft | None = None

    def text(self, key: Hashable, delta: str) -> str:
        """Add a text delta to part `key`; return what to show now."""
        part = self._parts.setdefault(key, _TextDraft())
        assert isinstance(part, _TextDraft)
        shown = self._flush() if self._open is not part else ""
        self._open = part
        whole = self._joiner.feed(delta)
        part.pieces.append(whole)
        return shown + whole

    def thinking(self, key: Hashable, delta: str = "", *, signature: str = "", data: str = "") -> None:
        """Add to a reasoning part."""
        part = self._parts.setdefault(key, _ThinkingDraft())
        assert isinstance(part, _ThinkingDraft)
        part.pieces.append(delta)
        part.signature += signature
        part.data += data

    def call(self, key: Hashable) -> CallDraft:
        """Return the call `key`, begun now if it is new."""
        part = self._parts.setdefault(key, CallDraft())
        assert isinstance(part, CallDraft)
        return part

    def _flush(self) -> str:
        rest = self._joiner.flush()
        if rest and self._open is not None:
            self._open.pieces.append(rest)
        return rest

    @property
    def has_calls(self) -> bool:
        """True when there is a tool call."""
        return any(isinstance(part, CallDraft) for part in self._parts.values())

    def message(self, *, cut_off: bool = False) -> tuple[Assistant, str]:
        """Return the message, and the last text that was held back.

        `cut_off` says that the output limit was hit: a call at the very end is then not trusted unless its
        arguments are whole.
        """
        rest = self._flush()
        drafts = list(self._parts.values())
        found: list[Thinking | Text | ToolCall] = []
        for number, part in enumerate(drafts):
            match part:
                case _TextDraft(pieces):
                    if text := "".join(pieces):
                        found.append(Text(text))
                case _ThinkingDraft(pieces, signature, data):
                    if (text := clean("".join(pieces))) or signature or data:
                        found.append(Thinking(text, signature, data, self._origin if signature or data else ""))
                case CallDraft():
                    found.append(self._finished(part, number, cut_off and part is drafts[-1]))
        return Assistant(tuple(found)), rest

    def _finished(self, draft: CallDraft, number: int, cut_off: bool) -> ToolCall:
        raw = draft.json()
        arguments, problem = read_arguments(raw)
        if cut_off and not draft.whole():
            problem = "the call was cut off by the output limit; make it shorter, or do it in several steps"
        call_id = draft.id
        if not call_id or call_id in self._taken:
            # Some servers send no ids, or the same ones every turn.
            call_id = new_id(self._taken, f"{self._turn}:{number}:{draft.name}:{raw}")
        self._taken.add(call_id)
        return ToolCall(call_id, draft.name, arguments, problem)


def read_arguments(raw: str) -> tuple[dict[str, Any], str]:
    """Return a call's arguments, and what is wrong with them ("" when nothing is). Never raises."""
    if not raw.strip():
        return {}, ""
    try:
        # Models write real newlines inside strings; strict=False takes them for what they are.
        found = json.loads(raw, strict=False, parse_constant=_no_constant, parse_float=_number)
    except json.JSONDecodeError as error:
        near = clean(raw[max(0, error.pos - 20) : error.pos + 20])
        return {}, f"the arguments are not valid JSON: {error.msg} at character {error.pos}, near {near!r}"
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are not valid JSON: {error}"
    if not isinstance(found, dict):
        return {}, f"the arguments must be a JSON object, not a {type(found).__name__}"
    if not shallow(found, DEEPEST):
        return {}, f"the arguments are nested more than {DEEPEST} levels deep"
    return (clean_json(found) if "\\u" in raw or not raw.isascii() else found), ""


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON value")


def _number(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else _no_constant(text)


def shallow(value: Any, levels: int) -> bool:
    """Return whether a JSON value has at most so many levels of nesting."""
    if not isinstance(value, dict | list):
        return True
    return levels > 0 and all(
        shallow(item, levels - 1) for item in (value.values() if isinstance(value, dict) else value)
    )


class Reader(Protocol):
    """Turns the events of one stream into an answer. Does no I/O."""

    complete: bool
    """True once the answer is whole, whatever the stream still brings."""

    def feed(self, event: JSON) -> str:
        """Take one event, return the text to show. Raises ProviderError for an error event."""
        ...

    def answer(self) -> tuple[Answer, str]:
        """Return the answer, and the text that is still to be shown. Raises Refused."""
        ...


class EventStream(Protocol):
    """What both SDKs' AsyncStream[object] offer."""

    def __aiter__(self) -> AsyncIterator[object]: ...

    async def close(self) -> None:
        """Close the HTTP response."""
        ...


class StreamProvider(ABC):
    """A provider over HTTP: a subclass says how to render a request, open a stream and read its events."""

    _sdk_error: type[Exception]
    """The base of the SDK's exceptions."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.model = endpoint.model
        self.endpoint = endpoint

    @abstractmethod
    def render(self, request: Request) -> JSON:
        """Return the request's body."""

    @abstractmethod
    def _reader(self, request: Request) -> Reader: ...

    @abstractmethod
    async def _open(self, body: JSON) -> EventStream: ...

    @abstractmethod
    async def _list_models(self, seconds: float) -> object: ...

    @abstractmethod
    def _vendor_error(self, error: Exception) -> ProviderError | None:
        """Return our error for an SDK's error that carries a server's answer; None for any other."""

    @abstractmethod
    async def close(self) -> None:
        """Release the connections."""

    def _adapt(self, error: ProviderError) -> bool:
        """Change how requests are rendered, if that mends `error`; True to send the request again at once."""
        return False

    async def ask(self, request: Request, on_text: Callable[[str], None]) -> Answer:
        """Ask once; see `gad.core.ports.Provider`."""
        reader = self._reader(request)
        stream = await self._opened(request)
        try:
            await self._read(stream, reader, on_text)
        finally:
            await stream.close()
        if not reader.complete:
            raise failures.cut(self.endpoint)
        answer, rest = reader.answer()
        if rest:
            on_text(rest)
        return answer

    async def _opened(self, request: Request) -> EventStream:
        while True:
            try:
                return await self._open(self.render(request))
            except Exception as exc:
                error = self._translated(exc)
                if not self._adapt(error):
                    raise error from exc

    async def _read(self, stream: EventStream, reader: Reader, on_text: Callable[[str], None]) -> None:
        events = aiter(stream)
        try:
            async with asyncio.timeout(None) as limit:
                while (event := await self._next(events, reader)) is not None:
                    try:
                        text = reader.feed(event)
                    except (AttributeError, KeyError, TypeError, ValueError, AssertionError) as exc:
                        unexpected = ValueError(f"unexpected event: {exc!r}")
                        raise failures.from_transport(self.endpoint, unexpected) or unexpected from exc
                    if text:
                        on_text(text)
                    if reader.complete and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + _GRACE)
        except TimeoutError:
            if not limit.expired():
                raise

    async def _next(self, events: AsyncIterator[object], reader: Reader) -> JSON | None:
        """Return the next event; None at the end, or when trouble comes after the answer was complete."""
        try:
            while (event := await anext(events, None)) is not None:
                if isinstance(event, dict):
                    return event
        except Exception as exc:
            if not reader.complete:
                raise self._translated(exc) from exc
        return None

    def _translated(self, error: Exception) -> ProviderError:
        """Return our error for whatever an SDK raised; anything else is a fault of ours and is raised as it is."""
        found = self._vendor_error(error) or failures.from_transport(self.endpoint, error)
        if found is None and isinstance(error, self._sdk_error):
            found = failures.broken(self.endpoint, error)
        if found is None:
            raise error
        return found

    async def models(self, seconds: float = 5.0) -> tuple[str, ...]:
        """Return the names of the models the server offers: a cheap test that it can be reached, key included.

        It may take `seconds`. Raises the errors below ProviderError.
        """
        try:
            found = await self._list_models(seconds)
        except Exception as exc:
            raise self._translated(exc) from exc
        data = found.get("data") if isinstance(found, Mapping) else None
        return tuple(str(item["id"]) for item in data or () if isinstance(item, Mapping) and "id" in item)
