"""OpenAI's Chat Completions API and the many servers that speak it. Import lazily: the SDK is imported below.

Compatible servers differ in details, and say so by refusing a request: `_adapt` then leaves out or renames
the field in question for the rest of this provider's life, and the request is sent again at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property

from gad.core.messages import Assistant, StopReason, Thinking, Usage, User
from gad.core.ports import Answer, Request
from gad.errors import BadRequest, Overloaded, ProviderError
from gad.providers import failures
from gad.providers.failures import Endpoint
from gad.providers.openai_base import OpenAIProvider
from gad.providers.stream import CallDraft, Draft
from gad.providers.wire import (
    JSON,
    NOTHING_SAID,
    arguments_text,
    clean,
    loose_id,
    result_text,
    results,
    tool_name,
    user_texts,
)


class ChatProvider(OpenAIProvider):
    """Asks a model through Chat Completions; see `OpenAIProvider` for the arguments."""

    _path = "/chat/completions"

    _ask_usage = True

    @cached_property
    def _limit_name(self) -> str:
        # OpenAI's newer models know only the new name, most compatible servers only the old one.
        return "max_completion_tokens" if self._official else "max_tokens"

    @cached_property
    def _reasoning(self) -> str:
        # DeepSeek and Kimi refuse a history whose tool calls lost their reasoning; OpenAI sends none.
        return "never" if self._official else "kept"

    def render(self, request: Request) -> JSON:
        """Return the request's body.

        The anchor stands behind everything else, so the bytes before it are the same in the next request.
        """
        body: JSON = {"model": self.model, "stream": True, self._limit_name: self._max_tokens}
        if self._ask_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
        messages: list[JSON] = []
        if request.system.strip():
            messages.append({"role": "system", "content": clean(request.system)})
        for message in request.messages:
            if isinstance(message, User):
                for item in _user(message):
                    _add(messages, item)
            else:
                messages += self._assistant(message)
        if request.anchor.strip():
            _add(messages, {"role": "user", "content": clean(request.anchor)})
        if not messages or messages[-1]["role"] in ("system", "assistant"):
            messages.append({"role": "user", "content": NOTHING_SAID})
        return body | {"messages": messages} | self._extra

    def _assistant(self, message: Assistant) -> list[JSON]:
        text = clean(message.text)
        calls = [
            {
                "id": loose_id(call.id),
                "type": "function",
                "function": {"name": tool_name(call.name), "arguments": arguments_text(call)},
            }
            for call in message.calls
        ]
        if not calls:
            return [{"role": "assistant", "content": text}] if text.strip() else []
        found: JSON = {"role": "assistant", "content": text if text.strip() else None, "tool_calls": calls}
        plain = [
            part.text
            for part in message.parts
            if isinstance(part, Thinking) and part.text and not part.signature and not part.data
        ]
        if (plain and self._reasoning == "kept") or self._reasoning == "always":
            found["reasoning_content"] = clean("".join(plain))
        return [found]

    def _adapt(self, error: ProviderError) -> bool:
        words = str(error)
        if not isinstance(error, BadRequest):
            return False
        if self._ask_usage and ("stream_options" in words or "include_usage" in words):
            self._ask_usage = False
        elif "reasoning_content" in words and self._reasoning in ("kept", "always"):
            wanted = "missing" in words.lower() or "must be" in words.lower()
            if wanted and self._reasoning == "always":
                return False
            self._reasoning = "always" if wanted else "never"
        elif self._limit_name == "max_tokens" and "max_completion_tokens" in words:
            self._limit_name = "max_completion_tokens"
        elif self._limit_name == "max_completion_tokens" and "max_completion_tokens" in words and not self._official:
            self._limit_name = "max_tokens"
        else:
            return False
        return True

    def _reader(self, request: Request) -> _Reader:
        return _Reader(request, self.endpoint)


def _user(message: User) -> list[JSON]:
    found: list[JSON] = [
        {"role": "tool", "tool_call_id": loose_id(result.call_id), "content": result_text(result)}
        for result in results(message)
    ]
    texts = user_texts(message)
    if texts or not found:
        found.append({"role": "user", "content": "\n\n".join(texts) or NOTHING_SAID})
    return found


def _add(messages: list[JSON], item: JSON) -> None:
    """Append a message; two user texts in a row become one message, as many chat templates refuse two."""
    if messages and item["role"] == "user" == messages[-1]["role"]:
        messages[-1]["content"] += "\n\n" + item["content"]
    else:
        messages.append(item)


class _Reader:
    def __init__(self, request: Request, endpoint: Endpoint) -> None:
        self.complete = False
        self._endpoint = endpoint
        self._model = endpoint.model
        self._draft = Draft(request, endpoint.origin)
        self._calls: list[CallDraft] = []
        self._by_index: dict[int, CallDraft] = {}
        self._by_id: dict[str, CallDraft] = {}
        self._usage = Usage()
        self._finish = ""
        self._refusal = ""

    def feed(self, event: JSON) -> str:
        self._model = event.get("model") or self._model
        if usage := event.get("usage"):
            self._usage = _usage(usage)
        choices = event.get("choices")
        if not choices:
            return ""
        choice = choices[0]
        delta = choice.get("delta") or {}
        if reasoning := delta.get("reasoning_content"):
            self._draft.thinking("thinking", reasoning)
        self._refusal += delta.get("refusal") or ""
        shown = self._draft.text("text", delta["content"]) if delta.get("content") else ""
        for call in delta.get("tool_calls") or ():
            self._call(call)
        if choice.get("finish_reason"):
            self._finish, self.complete = choice["finish_reason"], True
            if self._finish == "error":
                self.complete = False
                raise Overloaded(self._endpoint.message("the server gave up", "It is asked again later."))
        return shown

    def _call(self, delta: JSON) -> None:
        function = delta.get("function") or {}
        call_id, name = delta.get("id") or "", function.get("name") or ""
        call = self._find(delta.get("index"), call_id, name)
        if call_id:
            call.id = call.id or call_id
            self._by_id.setdefault(call_id, call)
        if name:
            # A name may come whole and again, or in pieces, or growing.
            call.name = name if name.startswith(call.name) else call.name + name
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            arguments = json.dumps(arguments)
        if arguments:
            call.raw.append(arguments)

    def _find(self, index: int | None, call_id: str, name: str) -> CallDraft:
        """Return the call that a delta belongs to: by its index, else by its id, else by order."""
        if index is not None:
            call = self._by_index.get(index)
            # Some servers number every call 0: another id with a name of its own is another call.
            other = call is not None and call.id and call_id and name and call_id != call.id
            if call is None or other:
                call = self._by_index[index] = (self._by_id.get(call_id) if other else None) or self._begin()
            return call
        if call_id:
            return self._by_id.get(call_id) or self._begin()
        last = self._calls[-1] if self._calls else None
        if last is None or (name and (name != last.name or last.whole())):
            return self._begin()
        return last

    def _begin(self) -> CallDraft:
        call = self._draft.call(("call", len(self._calls)))
        self._calls.append(call)
        return call

    def answer(self) -> tuple[Answer, str]:
        limited = self._finish == "length"
        if self._finish == "content_filter" or (self._refusal and not self._calls):
            raise failures.refused(self._endpoint, self._refusal or self._finish)
        message, rest = self._draft.message(cut_off=limited)
        # Servers say "stop" with calls present; a call that was cut off carries its problem.
        stop: StopReason = "tools" if message.calls else "length" if limited else "end"
        return Answer(message, stop, self._usage, self._model), rest


def _usage(usage: JSON) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    # DeepSeek's own name for it stands beside the standard one.
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    return Usage(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0, cached)


__all__ = ["ChatProvider"]
