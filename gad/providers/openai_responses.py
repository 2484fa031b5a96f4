"""OpenAI's Responses API, without the vendor's storage: reasoning travels encrypted in the transcript.

Import lazily: the SDK is imported below.
"""

from __future__ import annotations

import json
from typing import Any

from gad.core.messages import Assistant, StopReason, Text, Thinking, ToolCall, Usage, User
from gad.core.ports import Answer, Request
from gad.providers import failures
from gad.providers.failures import Endpoint
from gad.providers.openai_base import OpenAIProvider
from gad.providers.stream import Draft
from gad.providers.wire import (
    JSON,
    NOTHING_SAID,
    arguments_text,
    clean,
    result_text,
    results,
    strict_id,
    tool_name,
    user_texts,
)


class ResponsesProvider(OpenAIProvider):
    """Asks a model through the Responses API; see `OpenAIProvider` for the arguments."""

    _path = "/responses"

    def render(self, request: Request) -> JSON:
        """Return the request's body; the anchor is the last text of the newest user message."""
        items: list[JSON] = []
        for message in request.messages:
            items += _user(message) if isinstance(message, User) else _assistant(message, self.endpoint.origin)
        if request.anchor.strip():
            _say(items, [request.anchor])
        if not items or items[-1].get("role") == "assistant":
            _say(items, [NOTHING_SAID])
        body: JSON = {
            "model": self.model,
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": self._max_tokens,
            "input": items,
        }
        if request.system.strip():
            body["instructions"] = clean(request.system)
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,  # strict would forbid optional arguments
                }
                for tool in request.tools
            ]
        return body | self._extra

    def _reader(self, request: Request) -> _Reader:
        return _Reader(request, self.endpoint)


def _user(message: User) -> list[JSON]:
    items: list[JSON] = [
        {"type": "function_call_output", "call_id": strict_id(result.call_id), "output": result_text(result)}
        for result in results(message)
    ]
    if (texts := user_texts(message)) or not items:
        _say(items, texts or [NOTHING_SAID])
    return items


def _say(items: list[JSON], texts: list[str]) -> None:
    """Add user texts, to the message at the end if that is the user's."""
    content = [{"type": "input_text", "text": clean(text)} for text in texts]
    if items and items[-1].get("role") == "user":
        items[-1]["content"] += content
    else:
        items.append({"role": "user", "content": content})


def _assistant(message: Assistant, origin: str) -> list[JSON]:
    items: list[JSON] = []
    phase: JSON = {}
    for part in message.parts:
        match part:
            case Thinking() if not part.fits(origin):
                pass  # it stays in the transcript, for the server that made it
            case Thinking(data=data) if data.startswith("{"):
                item = json.loads(data)
                if item.get("type") == "reasoning":
                    items.append(item)
                elif "phase" in item:
                    phase = {"phase": item["phase"]}
            case Text(text) if text.strip():
                items.append({"role": "assistant", "content": clean(text)} | phase)
                phase = {}
            case ToolCall(call_id, name):
                call = {"type": "function_call", "call_id": strict_id(call_id), "name": tool_name(name)}
                items.append(call | {"arguments": arguments_text(part)})
    while items and items[-1].get("type") == "reasoning":  # refused without the item that it led to
        items.pop()
    return items


class _Reader:
    def __init__(self, request: Request, endpoint: Endpoint) -> None:
        self.complete = False
        self._endpoint = endpoint
        self._model = endpoint.model
        self._draft = Draft(request, endpoint.origin)
        self._finished: set[int] = set()
        self._spoken: set[tuple[int, int]] = set()
        self._usage = Usage()
        self._limit = ""
        self._refusal = ""

    def feed(self, event: JSON) -> str:
        match event.get("type"):
            case "response.output_text.delta":
                return self._text(event["output_index"], event.get("content_index") or 0, event["delta"])
            case "response.refusal.delta":
                self._refusal += event["delta"]
            case "response.output_item.added":
                self._begin(event["output_index"], event["item"])
            case "response.function_call_arguments.delta":
                self._draft.call(event["output_index"]).raw.append(event["delta"])
            case "response.output_item.done":
                return self._finish(event["output_index"], event["item"])
            case "response.completed" | "response.incomplete":
                return self._complete(event["response"])
            case "response.failed":
                body = event["response"].get("error")
                raise failures.from_vendor(self._endpoint, None, body, "the response failed")
            case "error":
                raise failures.from_vendor(self._endpoint, None, event, "the response failed")
        return ""

    def _text(self, index: int, part: int, delta: str) -> str:
        self._spoken.add((index, part))
        return self._draft.text((index, part), delta)

    def _begin(self, index: int, item: JSON) -> None:
        if item["type"] == "function_call":
            call = self._draft.call(index)
            call.id, call.name = item.get("call_id") or "", item.get("name") or ""
        elif item["type"] == "message" and item.get("phase"):
            # Newer models want it back; it rides in a Thinking, which is opaque to everybody else.
            self._draft.thinking((index, "phase"), data=json.dumps({"phase": item["phase"]}))

    def _finish(self, index: int, item: JSON) -> str:
        """Take a finished item; its parts may or may not have come as deltas."""
        if index not in self._finished and item["type"] == "function_call":
            self._begin(index, item)
            if item.get("arguments"):
                self._draft.call(index).raw[:] = [item["arguments"]]
        elif index not in self._finished and item["type"] == "reasoning":
            self._reason(index, item)
        shown = ""
        if item["type"] == "message":
            for number, part in enumerate(item.get("content") or ()):
                if part.get("type") == "output_text" and (index, number) not in self._spoken:
                    shown += self._text(index, number, part.get("text") or "")
                elif part.get("type") == "refusal":
                    self._refusal = self._refusal or part.get("refusal") or "refusal"
        self._finished.add(index)
        return shown

    def _reason(self, index: int, item: JSON) -> None:
        text = "\n\n".join(part.get("text") or "" for part in item.get("summary") or ())
        data = ""
        if item.get("encrypted_content"):  # without it, nothing is stored that the item's id could refer to
            keep = ("type", "id", "summary", "encrypted_content")
            data = json.dumps({key: item[key] for key in keep if key in item}, ensure_ascii=False)
        self._draft.thinking(index, text, data=data)

    def _complete(self, response: JSON) -> str:
        self._model = response.get("model") or self._model
        self._usage = _usage(response.get("usage") or {})
        if response.get("status") == "incomplete":
            self._limit = (response.get("incomplete_details") or {}).get("reason") or "length"
        shown = ""
        for index, item in enumerate(response.get("output") or ()):
            if index not in self._finished:
                shown += self._finish(index, item)
        self.complete = True
        return shown

    def answer(self) -> tuple[Answer, str]:
        if self._limit == "content_filter" or (self._refusal and not self._draft.has_calls):
            raise failures.refused(self._endpoint, self._refusal or self._limit)
        message, rest = self._draft.message(cut_off=bool(self._limit))
        stop: StopReason = "tools" if message.calls else "length" if self._limit else "end"
        return Answer(message, stop, self._usage, self._model), rest


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("input_tokens_details") or {}
    cached = details.get("cached_tokens") or 0
    return Usage(usage.get("input_tokens") or 0, usage.get("output_tokens") or 0, cached)
