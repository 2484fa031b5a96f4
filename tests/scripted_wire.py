"""The three wire formats, from the server's side: a reply becomes bytes to send, waits, and an end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from gad.core.messages import Usage
from tests.scripted_replies import Call, Cut, Fail, Raw, Refuse, Reply, Say, Silence, StreamError, Think, split

Api = Literal["anthropic", "chat", "responses"]
Frame = bytes | Silence | Cut
JSON = dict[str, Any]

PATHS: dict[str, Api] = {"/messages": "anthropic", "/chat/completions": "chat", "/responses": "responses"}


def frames(api: Api, reply: Reply, request: Mapping[str, Any] | str, numbers: Iterator[int]) -> Iterator[Frame]:
    """Return the body of `reply` frame by frame. `request` is the model's name, or the request that has it."""
    model = reply.model or (request if isinstance(request, str) else str(request.get("model", "scripted")))
    make = {"anthropic": _anthropic, "chat": _chat, "responses": _responses}[api]
    for frame in make(reply, model, numbers):
        yield frame
        if isinstance(frame, Cut):
            return


def fail_body(api: Api | None, fail: Fail) -> bytes:
    """Return the body of an HTTP error."""
    if isinstance(fail.body, Mapping):
        return _dump(fail.body)
    message = fail.body if fail.body is not None else f"scripted failure {fail.status}"
    kind = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}.get(fail.status, "api_error")
    error: JSON = {"type": kind, "message": message}
    return _dump({"type": "error", "error": error} if api == "anthropic" else {"error": error | {"code": None}})


def _dump(data: object) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a split surrogate pair can only travel as \ud83d escapes
        return json.dumps(data, separators=(",", ":")).encode()


def _event(kind: str, **data: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + _dump({"type": kind} | data) + b"\n\n"


def _arguments(call: Call) -> list[str]:
    raw = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return split(raw, call.chunks)


def _half(call: Call) -> list[str]:
    pieces = "".join(_arguments(call))
    return split(pieces[: max(1, len(pieces) // 2)], 2)


def _id(call: Call, prefix: str, numbers: Iterator[int]) -> str:
    return f"{prefix}{next(numbers):04d}" if call.id is None else call.id


def _stop(reply: Reply, words: Mapping[str, str]) -> str:
    if reply.stop is not None:
        return words.get(reply.stop, reply.stop)
    if any(isinstance(part, Refuse) for part in reply.parts):
        return words["refusal"]
    return words["tools" if any(isinstance(part, Call) for part in reply.parts) else "end"]


# Anthropic Messages


def _anthropic(reply: Reply, model: str, numbers: Iterator[int]) -> Iterator[Frame]:
    usage = reply.usage or Usage()
    yield _event(
        "message_start",
        message={
            "id": f"msg_{next(numbers):04d}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.tokens_in - usage.cached - usage.cache_write,
                "cache_read_input_tokens": usage.cached,
                "cache_creation_input_tokens": usage.cache_write,
                "output_tokens": 1,
            },
        },
    )
    yield _event("ping")
    index = 0
    for part in reply.parts:
        block: JSON
        match part:
            case Say() | Refuse():
                pieces = part.pieces() if isinstance(part, Say) else [part.text]
                block, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in pieces]
            case Think(text, signature, data):
                if data:
                    block, deltas = {"type": "redacted_thinking", "data": data}, []
                else:
                    block = {"type": "thinking", "thinking": "", "signature": ""}
                    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in split(text, 2)]
                    deltas += [{"type": "signature_delta", "signature": signature}] if signature else []
            case Call() | Cut(inside=Call()):
                call = part if isinstance(part, Call) else part.inside
                assert call is not None
                block = {"type": "tool_use", "id": _id(call, "toolu_", numbers), "name": call.name, "input": {}}
                raws = _arguments(call) if part is call else _half(call)
                deltas = [{"type": "input_json_delta", "partial_json": raw} for raw in raws]
            case StreamError(kind, message):
                yield _event("error", error={"type": kind, "message": message})
                yield Cut(clean=True)
                return
            case Raw(text):
                yield text.encode()
                continue
            case Silence() | Cut():
                yield part
                continue
        yield _event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        if isinstance(part, Cut):
            yield part
        yield _event("content_block_stop", index=index)
        index += 1
    words = {
        "end": "end_turn",
        "tools": "tool_use",
        "length": "max_tokens",
        "refusal": "refusal",
        "overflow": "model_context_window_exceeded",
    }
    stop = _stop(reply, words)
    if stop:
        yield _event(
            "message_delta",
            delta={"stop_reason": stop, "stop_sequence": None},
            usage={"output_tokens": usage.tokens_out},
        )
        yield _event("message_stop")


# OpenAI Chat Completions


def _chat(reply: Reply, model: str, numbers: Iterator[int]) -> Iterator[Frame]:
    base = {"id": f"chatcmpl-{next(numbers):04d}", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: JSON, finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + _dump(base | {"choices": [choice]} | more) + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    index = 0
    for part in reply.parts:
        match part:
            case Say():
                for piece in part.pieces():
                    yield chunk({"content": piece})
            case Think(text):
                for piece in split(text, 2):
                    yield chunk({"reasoning_content": piece})
            case Refuse(text):
                yield chunk({"refusal": text})
            case Call() | Cut(inside=Call()):
                call = part if isinstance(part, Call) else part.inside
                assert call is not None
                for delta in _call_deltas(call, index, _arguments(call) if part is call else _half(call), numbers):
                    yield chunk({"tool_calls": [delta]})
                if isinstance(part, Cut):
                    yield part
                index += 1
            case StreamError(kind, message):
                yield b"data: " + _dump({"error": {"type": kind, "code": kind, "message": message}}) + b"\n\n"
                yield Cut(clean=True)
            case Raw(text):
                yield text.encode()
            case Silence() | Cut():
                yield part
    words = {"end": "stop", "tools": "tool_calls", "length": "length", "refusal": "stop"}
    stop = _stop(reply, words)
    if stop:
        yield chunk({}, words.get(stop, stop))
    if reply.usage:
        counts = {
            "prompt_tokens": reply.usage.tokens_in,
            "completion_tokens": reply.usage.tokens_out,
            "total_tokens": reply.usage.tokens_in + reply.usage.tokens_out,
            "prompt_tokens_details": {"cached_tokens": reply.usage.cached},
        }
        yield b"data: " + _dump(base | {"choices": [], "usage": counts}) + b"\n\n"
    if stop:
        yield b"data: [DONE]\n\n"


def _call_deltas(call: Call, index: int, arguments: list[str], numbers: Iterator[int]) -> Iterator[JSON]:
    name = {"id": _id(call, "call_", numbers), "type": "function"}
    for number, raw in enumerate(["", *arguments]):
        delta: JSON = {"index": index} if call.index else {}
        function: JSON = {"arguments": raw}
        if number == 0 or call.repeat_name:
            delta |= name
            function["name"] = call.name
        elif call.id_every_delta:
            delta["id"] = name["id"]
        if not delta.get("id"):
            delta.pop("id", None)
        yield delta | {"function": function}


# OpenAI Responses


def _responses(reply: Reply, model: str, numbers: Iterator[int]) -> Iterator[Frame]:
    base: JSON = {"id": f"resp_{next(numbers):04d}", "object": "response", "created_at": 1, "model": model}
    count = 0

    def event(kind: str, **data: Any) -> bytes:
        nonlocal count
        count += 1
        return _event(kind, sequence_number=count, **data)

    yield event("response.created", response=base | {"status": "in_progress", "output": []})
    done: list[JSON] = []
    for part in reply.parts:
        at: JSON = {"output_index": len(done)}
        match part:
            case Say() | Refuse():
                pieces = part.pieces() if isinstance(part, Say) else [part.text]
                kind = "output_text" if isinstance(part, Say) else "refusal"
                item: JSON = {"type": "message", "id": f"msg_{next(numbers):04d}", "role": "assistant"}
                at["item_id"] = item["id"]
                yield event("response.output_item.added", item=item | {"content": [], "status": "in_progress"}, **at)
                at["content_index"] = 0
                key = "text" if isinstance(part, Say) else "refusal"
                yield event("response.content_part.added", part={"type": kind, key: "", "annotations": []}, **at)
                for piece in pieces:
                    yield event(f"response.{kind}.delta", delta=piece, **at)
                yield event(f"response.{kind}.done", **{key: "".join(pieces)}, **at)
                content = {"type": kind, key: "".join(pieces), "annotations": []}
                item |= {"content": [content], "status": "completed"}
            case Think(text, signature, data):
                item = {"type": "reasoning", "id": f"rs_{next(numbers):04d}", "summary": []}
                yield event("response.output_item.added", item=item, **at)
                item["summary"] = [{"type": "summary_text", "text": text}] if text else []
                item["encrypted_content"] = data or signature
            case Call() | Cut(inside=Call()):
                call = part if isinstance(part, Call) else part.inside
                assert call is not None
                item = {"type": "function_call", "id": f"fc_{next(numbers):04d}", "name": call.name}
                item |= {"call_id": _id(call, "call_", numbers), "arguments": "", "status": "in_progress"}
                yield event("response.output_item.added", item=item, **at)
                at["item_id"] = item["id"]
                for raw in _arguments(call) if part is call else _half(call):
                    yield event("response.function_call_arguments.delta", delta=raw, **at)
                if isinstance(part, Cut):
                    yield part
                whole = "".join(_arguments(call))
                yield event("response.function_call_arguments.done", arguments=whole, **at)
                item = item | {"arguments": whole, "status": "completed"}
            case StreamError(kind, message):
                yield event("error", code=kind, message=message, param=None)
                yield Cut(clean=True)
                return
            case Raw(text):
                yield text.encode()
                continue
            case Silence() | Cut():
                yield part
                continue
        yield event("response.output_item.done", output_index=len(done), item=item)
        done.append(item)
    stop = _stop(reply, {"refusal": "end", "tools": "end", "end": "end"})
    if not stop:
        return
    usage = reply.usage and {
        "input_tokens": reply.usage.tokens_in,
        "input_tokens_details": {"cached_tokens": reply.usage.cached},
        "output_tokens": reply.usage.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.usage.tokens_in + reply.usage.tokens_out,
    }
    final = base | {"output": done, "usage": usage, "status": "completed", "incomplete_details": None, "error": None}
    if stop == "end":
        yield event("response.completed", response=final)
    else:
        reason = {"length": "max_output_tokens"}.get(stop, stop)
        final |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        yield event("response.incomplete", response=final)
