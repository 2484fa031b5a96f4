"""What the provider tests share: one provider of each wire format, and a short way to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gad.core.messages import Text, User
from gad.core.ports import Answer, Request, ToolSchema
from gad.providers.anthropic import AnthropicProvider
from gad.providers.openai_chat import ChatProvider
from gad.providers.openai_responses import ResponsesProvider
from gad.providers.stream import StreamProvider
from tests.scripted_server import Entry, ScriptedServer

KEY = "sk-test-0123456789"
APIS = ("anthropic", "chat", "responses")
TOOL = ToolSchema("file_read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
HELLO = Request("Be brief.", (TOOL,), (User((Text("Hello"),)),), "turn 1")

_KINDS: dict[str, Callable[..., StreamProvider]] = {
    "anthropic": AnthropicProvider,
    "chat": ChatProvider,
    "responses": ResponsesProvider,
}


def provider(api: str, server: ScriptedServer | None = None, **options: Any) -> StreamProvider:
    """Return a provider that speaks `api` to `server`, or to a port where nobody listens."""
    base = "http://127.0.0.1:9/v1" if server is None else server.url if api == "anthropic" else server.openai_url
    return _KINDS[api](**({"model": "m", "api_key": KEY, "base_url": base, "idle_timeout": 5.0} | options))


def ask(
    api: str, *entries: Entry, request: Request = HELLO, shown: list[str] | None = None, **options: Any
) -> tuple[Answer, ScriptedServer]:
    """Ask a scripted server once; return the answer and the server with its record."""

    async def run() -> tuple[Answer, ScriptedServer]:
        async with ScriptedServer(list(entries)) as server:
            model = provider(api, server, **options)
            try:
                return await model.ask(request, (shown if shown is not None else []).append), server
            finally:
                await model.close()

    return asyncio.run(run())
