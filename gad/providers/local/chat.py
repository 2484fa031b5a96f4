"""Ask the local model through the OpenAI chat provider, in the text protocol. Import lazily: the SDK comes with it."""

from __future__ import annotations

from collections.abc import Callable

from gad.core.messages import Assistant, StopReason
from gad.core.ports import Answer, Request
from gad.core.prompt import SYSTEM
from gad.providers.local.examples import example_messages
from gad.providers.local.protocol import AnswerStream, next_call_id, offer, parse, render_messages, system_text
from gad.providers.local.steering import failures_in_a_row, next_grammar
from gad.providers.openai_chat import ChatProvider
from gad.providers.wire import JSON

TEMPERATURES = (0.0, 0.2, 0.7)
"""By failures in a row: the likeliest answer first; one that keeps failing must become another one."""


class TextChat(ChatProvider):
    """A chat provider whose requests and answers go through the text protocol."""

    def __init__(self, *, model: str, api_key: str, base_url: str, max_tokens: int, idle_timeout: float) -> None:
        super().__init__(
            model=model, api_key=api_key, base_url=base_url, max_tokens=max_tokens, idle_timeout=idle_timeout
        )
        # llama.cpp's server drops idle connections about when the client takes one up again.
        self._client = self._client.with_options(default_headers={"Connection": "close"})

    def render(self, request: Request) -> JSON:
        """Return the request's body: plain messages, and a grammar in place of tools."""
        tools = offer(request.tools)
        system = system_text(tools) + request.system.removeprefix(SYSTEM)
        messages = (*example_messages(tools), *render_messages(request.messages, request.anchor))
        failures = min(failures_in_a_row(request.messages), len(TEMPERATURES) - 1)
        return super().render(Request(system, (), messages)) | {
            "grammar": next_grammar(tools, request.messages),
            "temperature": TEMPERATURES[failures],
            "cache_prompt": True,
        }

    async def ask(self, request: Request, on_text: Callable[[str], None]) -> Answer:
        """Ask once; see `gad.core.ports.Provider`."""
        shown = AnswerStream()

        def show(delta: str) -> None:
            if text := shown.feed(delta):
                on_text(text)

        answer = await super().ask(request, show)
        parts = parse(answer.message.text, request.tools, next_call_id(request.messages), cut=answer.stop == "length")
        message = Assistant(parts)
        if rest := shown.rest(message.text):
            on_text(rest)
        stop: StopReason = "tools" if message.calls else answer.stop
        return Answer(message, stop, answer.usage, self.model)
