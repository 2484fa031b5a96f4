"""Anthropic's Messages API, and servers that speak it. Import lazily: the SDK is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from anthropic import AnthropicError, APIError, APIStatusError, AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient

from gad.core.messages import Assistant, StopReason, Text, Thinking, ToolCall, Usage, User
from gad.core.ports import Answer, Request
from gad.errors import ContextOverflow, ProviderError
from gad.providers import failures
from gad.providers.failures import Endpoint
from gad.providers.stream import Draft, EventStream, StreamProvider
from gad.providers.wire import (
    JSON,
    NOTHING_SAID,
    clean,
    clean_json,
    result_text,
    results,
    strict_id,
    tool_name,
    user_texts,
)

_EPHEMERAL = {"type": "ephemeral"}


class AnthropicProvider(StreamProvider):
    """Asks a model through the Messages API.

    `max_tokens` limits one answer; `idle_timeout` and `connect_timeout` are in seconds. `extra` is added to
    every request's body (thinking, temperature...). Raises AuthError for a key that cannot be a key.
    """

    _sdk_error = AnthropicError

    def __init__(
        self,
        *,
        model: str,
        api_key: str,
        base_url: str | None = None,
        max_tokens: int = 8192,
        idle_timeout: float = 300.0,
        connect_timeout: float = 10.0,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        key = failures.checked_key(api_key)
        base = base_url or "https://api.anthropic.com"
        super().__init__(Endpoint("Anthropic", model, base, key, idle_timeout))
        timeout = httpx2.Timeout(idle_timeout, connect=connect_timeout)
        local = self.endpoint.loopback
        self._client = AsyncAnthropic(
            api_key=key,
            base_url=base,
            max_retries=0,
            timeout=timeout,
            # The SDK sends "Authorization: Bearer"; many compatible servers still want the older header.
            default_headers={"x-api-key": key} if base_url else None,
            # A proxy from the environment is not for this machine's own servers.
            http_client=DefaultAsyncHttpxClient(trust_env=False) if local else None,
        )
        self._max_tokens = max_tokens
        self._extra = dict(extra or {})

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    def render(self, request: Request) -> JSON:
        """Return the request's body.

        Cache breakpoints, four at most, stand behind the tools, the system text, the head of the history and the
        history. What a batch leaves as it was is the former head, so it is read from the cache also then.
        """
        body: JSON = {"model": self.model, "max_tokens": self._max_tokens, "stream": True}
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
            body["tools"][-1]["cache_control"] = _EPHEMERAL
        if request.system.strip():
            body["system"] = [{"type": "text", "text": clean(request.system), "cache_control": _EPHEMERAL}]
        messages: list[JSON] = []
        for number, message in enumerate(request.messages, 1):
            role, blocks = _user(message) if isinstance(message, User) else _assistant(message, self.endpoint.origin)
            if messages and blocks and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            elif blocks:
                messages.append({"role": role, "content": blocks})
            if number == request.head and blocks:
                blocks[-1]["cache_control"] = _EPHEMERAL
        if not messages or messages[-1]["role"] != "user":
            messages.append({"role": "user", "content": []})
        newest = messages[-1]["content"]
        if newest:
            newest[-1]["cache_control"] = _EPHEMERAL
        if request.anchor.strip():
            newest.append({"type": "text", "text": clean(request.anchor)})
        if not newest:
            newest.append({"type": "text", "text": NOTHING_SAID})
        return body | {"messages": messages} | self._extra

    def _reader(self, request: Request) -> _Reader:
        return _Reader(request, self.endpoint)

    async def _open(self, body: JSON) -> EventStream:
        # The SDK's general `post` gives each event as plain JSON: a third less CPU than typed events, and
        # nothing that a compatible server adds or leaves out can fail to fit a type.
        return await self._client.post(
            "/v1/messages", body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object]
        )

    async def _list_models(self, seconds: float) -> object:
        return await self._client.get("/v1/models", cast_to=object, options={"timeout": seconds})

    def _vendor_error(self, error: Exception) -> ProviderError | None:
        if isinstance(error, APIStatusError):
            return failures.from_vendor(
                self.endpoint, error.status_code, error.body, error.message, error.response.headers
            )
        if isinstance(error, APIError) and error.body is not None:
            return failures.from_vendor(self.endpoint, None, error.body, error.message)
        return None


def _user(message: User) -> tuple[str, list[JSON]]:
    blocks: list[JSON] = []
    for result in results(message):
        block = {"type": "tool_result", "tool_use_id": strict_id(result.call_id), "content": result_text(result)}
        blocks.append(block | ({"is_error": True} if result.is_error else {}))
    blocks += [{"type": "text", "text": text} for text in user_texts(message)]
    return "user", blocks or [{"type": "text", "text": NOTHING_SAID}]


def _assistant(message: Assistant, origin: str) -> tuple[str, list[JSON]]:
    blocks: list[JSON] = []
    for part in message.parts:
        match part:
            case Thinking() if not part.fits(origin):
                pass  # it stays in the transcript, for the server that made it
            case Thinking(text, signature) if signature:
                blocks.append({"type": "thinking", "thinking": clean(text), "signature": signature})
            case Thinking(data=data) if data and not data.startswith("{"):  # "{": another vendor's item
                blocks.append({"type": "redacted_thinking", "data": data})
            case Text(text) if text.strip():
                blocks.append({"type": "text", "text": clean(text)})
            case ToolCall(call_id, name, arguments, _):
                use = {"type": "tool_use", "id": strict_id(call_id), "name": tool_name(name)}
                blocks.append(use | {"input": clean_json(arguments)})
    while blocks and "thinking" in blocks[-1]["type"]:  # refused as the end of a message
        blocks.pop()
    return "assistant", blocks


class _Reader:
    def __init__(self, request: Request, endpoint: Endpoint) -> None:
        self.complete = False
        self._endpoint = endpoint
        self._model = endpoint.model
        self._draft = Draft(request, endpoint.origin)
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._refusal = ""

    def feed(self, event: JSON) -> str:
        match event.get("type"):
            case "message_start":
                message = event["message"]
                self._model = message.get("model") or self._model
                self._count(message.get("usage"))
            case "content_block_start":
                return self._begin(event["index"], event["content_block"])
            case "content_block_delta":
                return self._add(event["index"], event["delta"])
            case "message_delta":
                delta = event["delta"]
                self._count(event.get("usage"))
                if delta.get("stop_reason"):
                    self._stop, self.complete = delta["stop_reason"], True
                    details = delta.get("stop_details") or {}
                    self._refusal = details.get("explanation") or details.get("category") or ""
        return ""

    def _count(self, usage: JSON | None) -> None:
        self._usage |= {key: value for key, value in (usage or {}).items() if isinstance(value, int)}

    def _begin(self, index: int, block: JSON) -> str:
        match block["type"]:
            case "text":
                return self._draft.text(index, block.get("text") or "")
            case "thinking":
                self._draft.thinking(index, block.get("thinking") or "", signature=block.get("signature") or "")
            case "redacted_thinking":
                self._draft.thinking(index, data=block["data"])
            case "tool_use":
                call = self._draft.call(index)
                call.id, call.name = block.get("id") or "", block.get("name") or ""
                call.given = block.get("input") or None
        return ""

    def _add(self, index: int, delta: JSON) -> str:
        match delta["type"]:
            case "text_delta":
                return self._draft.text(index, delta["text"])
            case "thinking_delta":
                self._draft.thinking(index, delta["thinking"])
            case "signature_delta":
                self._draft.thinking(index, signature=delta["signature"])
            case "input_json_delta":
                self._draft.call(index).raw.append(delta["partial_json"])
        return ""

    def answer(self) -> tuple[Answer, str]:
        if self._stop == "refusal":
            raise failures.refused(self._endpoint, self._refusal)
        message, rest = self._draft.message(cut_off=self._stop in _LIMITS)
        if self._stop == "model_context_window_exceeded":
            raise ContextOverflow(
                self._endpoint.message("the answer filled the model's window", "Shorten the conversation.")
            )
        # A call that was cut off carries its problem, so the model still gets a result for it.
        stop: StopReason = "tools" if message.calls else "length" if self._stop in _LIMITS else "end"
        return Answer(message, stop, self._counted(), self._model), rest

    def _counted(self) -> Usage:
        usage = self._usage
        cached, written = usage.get("cache_read_input_tokens", 0), usage.get("cache_creation_input_tokens", 0)
        # Anthropic counts the cached parts of the prompt beside input_tokens, not in it.
        return Usage(usage.get("input_tokens", 0) + cached + written, usage.get("output_tokens", 0), cached, written)


_LIMITS = ("max_tokens", "pause_turn")
"""Stop reasons of an answer that is to be continued (a paused turn needs server tools, which gad does not use)."""
