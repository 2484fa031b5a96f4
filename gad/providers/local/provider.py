"""The embedded default as a provider: weights, process and protocol put together, each when it is first needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gad.core.ports import Answer, Request
from gad.providers.local.process import Address, LocalServer
from gad.providers.local.weights import CODER_1_5B, Progress, WeightSpec, ensure

if TYPE_CHECKING:
    from gad.providers.local.chat import TextChat


CONTEXT = 16_384
"""Tokens the model can read at once; each costs 28 KB of memory."""


class _Stopped(Exception):
    """Whoever waited for the weights does not wait any more."""


class LocalProvider:
    """Asks the embedded model. Nothing is fetched or started before the first `ask` or `prepare`."""

    def __init__(
        self,
        *,
        spec: WeightSpec = CODER_1_5B,
        weights: str | None = None,
        context: int = CONTEXT,
        threads: int | None = None,
        max_tokens: int = 2048,
        idle_timeout: float = 600.0,
        progress: Progress | None = None,
        cache: Path | None = None,
    ) -> None:
        """Remember the settings.

        `weights` is the path of a GGUF file of the user's own, used instead of `spec`. `context` and `max_tokens`
        are in tokens, `idle_timeout` in seconds; `threads` None means as many as the machine can spare; `cache`
        None means the user's cache directory.
        """
        self.model = spec.name if weights is None else Path(weights).stem
        self._spec = spec
        self._weights = weights
        self._context = context
        self._threads = threads
        self._max_tokens = max_tokens
        self._idle_timeout = idle_timeout
        self._progress = progress
        self._cache = cache
        self._server: LocalServer | None = None
        self._address: Address | None = None
        self._chat: TextChat | None = None
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the model's process while it lives."""
        return self._server.pid if self._server is not None else None

    async def ask(self, request: Request, on_text: Callable[[str], None]) -> Answer:
        """Ask once; see `gad.core.ports.Provider`. Raises LocalModelError too, when there is no model to ask."""
        return await (await self._ready()).ask(request, on_text)

    async def prepare(self, progress: Progress | None = None) -> None:
        """Fetch the weights and start the model now rather than at the first `ask`. Raises LocalModelError."""
        await self._ready(progress)

    async def models(self, seconds: float = 5.0) -> tuple[str, ...]:
        """Return the name of the model; nothing has to be reached for it."""
        return (self.model,)

    async def close(self) -> None:
        """End the model's process and release the connections."""
        if self._chat is not None:
            await self._chat.close()
            self._chat = self._address = None
        if self._server is not None:
            await self._server.close()

    async def _ready(self, progress: Progress | None = None) -> TextChat:
        async with self._lock:
            if self._server is None:
                path = await self._fetch(progress or self._progress)
                self._server = LocalServer(path, context=self._context, threads=self._threads)
            address = await self._server.address()
            if self._chat is None or address != self._address:
                from gad.providers.local.chat import TextChat

                if self._chat is not None:
                    await self._chat.close()
                self._address = address
                self._chat = TextChat(
                    model=self.model,
                    api_key=address.key,
                    base_url=address.base_url,
                    max_tokens=self._max_tokens,
                    idle_timeout=self._idle_timeout,
                )
            return self._chat

    async def _fetch(self, progress: Progress | None) -> Path:
        stopped = threading.Event()

        def report(what: str, done: int, total: int) -> None:
            if stopped.is_set():
                raise _Stopped
            if progress is not None:
                progress(what, done, total)

        try:
            return await asyncio.to_thread(ensure, self._spec, path=self._weights, cache=self._cache, progress=report)
        finally:
            stopped.set()
