"""How a vendor's trouble becomes one of gad's errors, the same for every vendor.

The rules, first match wins: a request that is too long for the model (by code or by the words the servers
use); used-up credit (HTTP 402, or 429 `insufficient_quota`: an AuthError, as only a person with the account
can mend it and waiting does not); a refusal by policy; then the HTTP status, or the error's own kind when it
came inside a stream that began with 200.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2

from gad.errors import (
    AuthError,
    BadRequest,
    ContextOverflow,
    NetworkError,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
)

_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context_window_exceeded|request_too_large"
    r"|(prompt|input|request) is too (long|large)|request too large for model|too many input tokens"
    r"|maximum (context|model|prompt|input) length"
    r"|exceeds? (the )?(available |model'?s? |maximum )*(context|max_model_len)"
    r"|context (length|window|size|limit) (is |was |has been )?(exceeded|reached|of only)"
    r"|(input|prompt) (token count|length|tokens?)\b.* exceeds?|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|insufficient[ _]balance|billing_(error|hard_limit|not_active)|credit balance is too low"
    r"|spend_limit_reached",
    re.IGNORECASE,
)
_POLICY = re.compile(r"content_filter|content_policy|invalid_prompt|_policy_violation|bio_policy", re.IGNORECASE)
_BUSY_KINDS = re.compile(r"overloaded|unavailable|server_error|api_error|timeout|internal|vector_store", re.IGNORECASE)
_AUTH_KINDS = re.compile(r"authentication|permission|invalid_api_key|unauthorized", re.IGNORECASE)
_BAD_KINDS = re.compile(r"invalid|not_found|unsupported|bad_?request|data_residency|image", re.IGNORECASE)
_DETAIL = 400
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Which model is asked where; every error message begins with it. The key is here only to be kept out of them."""

    vendor: str
    model: str
    base_url: str
    key: str = field(repr=False)
    idle_timeout: float

    @property
    def host(self) -> str:
        """Host and port of the server."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def origin(self) -> str:
        """What names the server in the blocks that only it can read: host, port and path, as gateways go by paths."""
        return self.host + urlsplit(self.base_url).path.rstrip("/")

    @property
    def loopback(self) -> bool:
        """True when the server is on this machine."""
        return urlsplit(self.base_url).hostname in _LOOPBACK

    def message(self, what: str, advice: str) -> str:
        """Return the text of an error: model, host, what happened, what to do."""
        text = f"model {self.model} at {self.host}: {what}. {advice}"
        return text.replace(self.key, "***") if self.key else text


def checked_key(key: str) -> str:
    """Return the key without surrounding white space. Raises AuthError when it cannot be sent in a header."""
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise AuthError("the API key holds characters that no key has; copy it again, without quotes or line breaks")
    return key or "none"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return how many seconds the server asks us to wait, or None. Knows seconds, milliseconds and HTTP dates."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        if re.fullmatch(r"\d{1,12}(\.\d+)?", value):
            return float(value) * scale
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - now)
        except ValueError:
            continue
    return None


def from_vendor(
    endpoint: Endpoint, status: int | None, body: object, text: str, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """Return the error for an HTTP status, or for an error event in a stream (`status` None).

    `body` is the parsed error body, `text` what to say when there is none.
    """
    kind, detail, inner = _fields(body)
    status = status if status is not None and status >= 400 else inner
    detail = " ".join((detail or text or "no details").split()).rstrip(".")
    if len(detail) > _DETAIL:
        detail = detail[: _DETAIL - 1] + "…"
    words = f"{kind} {detail}"
    where = f"HTTP {status}" if status else "an error inside the stream"
    what = f"{where}, {kind}: {detail}" if kind else f"{where}: {detail}"
    wait = retry_after(headers or {}, time.time())

    def say(advice: str) -> str:
        return endpoint.message(what, advice)

    if status in (None, 400, 413, 422, 500) or "too large for model" in words:
        if _TOO_LONG.search(words):
            return ContextOverflow(say("The request is longer than the model's window; shorten the conversation."))
        if _POLICY.search(words):
            return Refused(say("The vendor declined this request; say it differently or use another model."))
    if status == 402 or (status in (None, 400, 403, 429) and _NO_CREDIT.search(words)):
        return AuthError(say("The account has no credit left; add some, or use another key or model."))
    if status == 429 or (status is None and "rate_limit" in kind):
        return RateLimited(say("The vendor limits the request rate; it is asked again later."), retry_after=wait)
    if status in (401, 403) or (status is None and _AUTH_KINDS.search(kind)):
        return AuthError(say("Check the API key and that it may use this model."))
    if status == 408:
        return NetworkError(say("The server did not get the request in time; it is asked again later."))
    if status in (409, 425) or (status is not None and status >= 500) or (status is None and _BUSY_KINDS.search(kind)):
        return Overloaded(say("The server cannot answer now; it is asked again later."), retry_after=wait)
    if status == 404:
        return BadRequest(say("Check the model's name and base_url."))
    if status is not None or _BAD_KINDS.search(kind):
        return BadRequest(say("The server does not accept this request; check the model's settings in gad.yaml."))
    # A fault in mid-stream that names no reason we know is the server's, and asking again is harmless.
    return Overloaded(say("The server gave up in the middle of its answer; it is asked again later."), retry_after=wait)


def from_transport(endpoint: Endpoint, error: BaseException) -> ProviderError | None:
    """Return the error for a failed connection or an unreadable stream; None when `error` is something else."""
    cause = _root(error)
    what = str(cause).strip() or type(cause).__name__
    if isinstance(cause, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return BadRequest(endpoint.message("the request cannot be sent", "Check base_url and the API key."))
    if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        advice = "Check base_url, and that the server runs." if endpoint.loopback else "Check the network and base_url."
        return NetworkError(endpoint.message(f"no connection ({what})", advice))
    if isinstance(cause, httpx2.TimeoutException):
        return NetworkError(
            endpoint.message(
                f"silent for {endpoint.idle_timeout:g} s", "The answer was given up; it is asked again later."
            )
        )
    if isinstance(cause, httpx2.HTTPError | httpx2.StreamError):
        return broken(endpoint, cause)
    if isinstance(cause, ValueError):
        return NetworkError(endpoint.message(f"the stream cannot be read ({what})", "It is asked again later."))
    return None


def broken(endpoint: Endpoint, cause: BaseException) -> NetworkError:
    """Return the error for a connection that broke."""
    what = str(cause).strip() or type(cause).__name__
    return NetworkError(endpoint.message(f"the connection broke ({what})", "It is asked again later."))


def cut(endpoint: Endpoint) -> NetworkError:
    """Return the error for a stream that ended before the answer did."""
    return NetworkError(endpoint.message("the stream ended before the answer did", "It is asked again later."))


def refused(endpoint: Endpoint, reason: str) -> Refused:
    """Return the error for an answer in which the vendor declines."""
    what = f"the vendor declined to answer ({' '.join(reason.split())[:_DETAIL]})" if reason else "the vendor declined"
    return Refused(endpoint.message(what, "Say it differently or use another model."))


def _root(error: BaseException) -> BaseException:
    """Return the httpx2 or JSON error below an SDK's own."""
    while not isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | ValueError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _fields(body: object) -> tuple[str, str, int | None]:
    """Return kind, message and status of an error body in any of the shapes that servers send."""
    if not isinstance(body, Mapping):
        return "", body if isinstance(body, str) else "", None
    inner: Any = body.get("error", body)
    if not isinstance(inner, Mapping):
        return "", str(inner), None
    message = inner.get("message") or inner.get("detail") or ""
    code, kind = inner.get("code"), inner.get("type")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    details = inner.get("details")
    names = [
        kind,
        code if status is None else None,
        details.get("error_code") if isinstance(details, Mapping) else None,
    ]
    words = dict.fromkeys(str(name) for name in names if name and name != "error")
    return "/".join(words), message if isinstance(message, str) else str(message), status
