"""What the wire formats have in common when a transcript is written out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gad.core.messages import Message, Text, ToolCall, ToolResult, User

JSON = dict[str, Any]

NOTHING_SAID = "(no text)"
"""Stands for a user message that holds nothing: every format wants content in each message."""

_ENCODER = json.JSONEncoder(ensure_ascii=False)
_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_STRICT_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LOOSE_ID = re.compile(r"[!-~]{1,40}")


def clean(text: str) -> str:
    """Return `text` with each lone surrogate replaced: those cannot be sent as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_json(value: Any) -> Any:
    """Return a JSON value whose texts are all `clean`."""
    match value:
        case str():
            return clean(value)
        case Mapping():
            return {clean(str(key)): clean_json(item) for key, item in value.items()}
        case list() | tuple():
            return [clean_json(item) for item in value]
    return value


def strict_id(call_id: str) -> str:
    """Return the id for Anthropic and Responses, which accept letters, digits, "_" and "-" only."""
    return call_id if _STRICT_ID.fullmatch(call_id) else _hashed(call_id)


def loose_id(call_id: str) -> str:
    """Return the id for Chat Completions: the server's own word, up to the 40 characters that OpenAI accepts."""
    return call_id if _LOOSE_ID.fullmatch(call_id) else _hashed(call_id)


def new_id(taken: Iterable[str], seed: str) -> str:
    """Return a call id that follows from `seed` and is not in `taken`."""
    number, used = 0, set(taken)
    while (found := _hashed(f"{seed}#{number}")) in used:
        number += 1
    return found


def _hashed(text: str) -> str:
    return "call_" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def tool_name(name: str) -> str:
    """Return a tool's name as every vendor accepts it; a model may have made up any name."""
    return _NAME.sub("_", name)[:64] or "unknown"


def arguments_text(call: ToolCall) -> str:
    """Return the arguments as JSON text; {} when they could not be read."""
    return clean(_ENCODER.encode(call.arguments)) if call.arguments else "{}"


def result_text(result: ToolResult) -> str:
    """Return what the model reads of a result, never empty."""
    text = clean(result.render())
    return text if text.strip() else "[ok]"


def user_texts(message: User) -> list[str]:
    """Return what people said, without empty texts."""
    return [clean(part.text) for part in message.parts if isinstance(part, Text) and part.text.strip()]


def results(message: User) -> list[ToolResult]:
    """Return the tool results, in order."""
    return [part for part in message.parts if isinstance(part, ToolResult)]


def known_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of every call in a transcript."""
    return {part.id for message in messages for part in message.parts if isinstance(part, ToolCall)}
