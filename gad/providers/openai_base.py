"""What the two OpenAI formats share: the SDK's connection and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from openai import APIError, APIStatusError, AsyncOpenAI, AsyncStream, DefaultAsyncHttpxClient, OpenAIError

from gad.errors import ProviderError
from gad.providers import failures
from gad.providers.failures import Endpoint
from gad.providers.stream import EventStream, StreamProvider
from gad.providers.wire import JSON

OFFICIAL = "https://api.openai.com/v1"


class OpenAIProvider(StreamProvider):
    """Asks a model through one of OpenAI's formats.

    `max_tokens` limits one answer; `idle_timeout` and `connect_timeout` are in seconds. `extra` is added to
    every request's body (temperature, reasoning_effort...). Raises AuthError for a key that cannot be a key.
    """

    _sdk_error = OpenAIError
    _path: str

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
        super().__init__(Endpoint("OpenAI", model, base_url or OFFICIAL, key, idle_timeout))
        timeout = httpx2.Timeout(idle_timeout, connect=connect_timeout)
        # A proxy from the environment is not for this machine's own servers.
        http = DefaultAsyncHttpxClient(trust_env=False) if self.endpoint.loopback else None
        self._client = AsyncOpenAI(
            api_key=key, base_url=self.endpoint.base_url, max_retries=0, timeout=timeout, http_client=http
        )
        self._official = self.endpoint.host == "api.openai.com"
        self._max_tokens = max_tokens
        self._extra = dict(extra or {})

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _open(self, body: JSON) -> EventStream:
        # `chat.completions.create` walks every message to transform it: 16 ms for a history of 100. The SDK's
        # general `post` sends the body as it is and gives each event as plain JSON: 1.2 ms in all, and nothing
        # that a compatible server adds or leaves out can fail to fit a type.
        return await self._client.post(
            self._path, body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object]
        )

    async def _list_models(self, seconds: float) -> object:
        return await self._client.get("/models", cast_to=object, options={"timeout": seconds})

    def _vendor_error(self, error: Exception) -> ProviderError | None:
        if isinstance(error, APIStatusError):
            return failures.from_vendor(
                self.endpoint, error.status_code, error.body, error.message, error.response.headers
            )
        if isinstance(error, APIError) and error.body is not None:  # an error event in the stream
            return failures.from_vendor(self.endpoint, None, error.body, error.message)
        return None
