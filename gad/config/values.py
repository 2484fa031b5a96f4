"""The settings in force, as frozen values, and the models that are built in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from gad.core.budget import FREE, Price, find_price
from gad.core.policy import Rule
from gad.core.prices import SHIPPED
from gad.core.quota import Quota


@dataclass(frozen=True, slots=True)
class Limits:
    """What one session may use; None is no limit. `seconds` is wall-clock time spent working."""

    turns: int = 80
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of `models`.

    `key_env` names an environment variable, `key_file` an absolute path, `key_credential` what the service manager
    hands over (LoadCredential= in a unit of systemd); with none of them no key is sent.
    `context` is how many tokens the model can read and write at once when it is known, `window` how many one request
    may take when the entry says so: see `Config.window_of`. `tools: text` writes the tools into the prompt instead of
    using the server's own tool calls. `weights` (an absolute path) and `threads` are the local model's.
    `idle_timeout` is in seconds.

    A chain has the provider `chain` and names other entries; it cannot be asked itself, and nothing else holds of it.
    """

    name: str
    provider: Literal["anthropic", "openai", "local", "chain"]
    model: str
    api: Literal["chat", "responses"] = "chat"
    base_url: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    key_credential: str | None = None
    max_tokens: int = 8192
    idle_timeout: float = 120.0
    context: int | None = None
    window: int | None = None
    tools: Literal["native", "text"] = "native"
    weights: str | None = None
    threads: int | None = None
    chain: tuple[str, ...] = ()

    @property
    def key_from(self) -> str | None:
        """Return the name of what holds the key: a variable, a file or a credential; None when no key is sent."""
        return self.key_env or self.key_file or self.key_credential

    @property
    def room(self) -> int | None:
        """Return the tokens that the context leaves for a request beside an answer, or None when it is not known."""
        return None if self.context is None else self.context - self.max_tokens


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to wait for a model that is out of reach, in seconds: at first, at most, and altogether."""

    first: float = 1.0
    most: float = 60.0
    give_up: float = 86400.0


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """What is accepted from clients.

    `users` are names or numeric ids besides the daemon's own; with a `group` (a name or an id), the spool is its
    members' too, with `mode`. Nothing new begins with less than `min_free` bytes free. `polling` None: where events do
    not work.
    """

    max_bytes: int = 1_048_576
    users: tuple[str, ...] = ()
    polling: bool | None = None
    group: str | None = None
    mode: Literal["2770", "3770"] = "3770"
    min_free: int = 100 * 10**6


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Long-term memory: whether there is any, whether the controller chooses how it is used, whether gad reviews."""

    enabled: bool = True
    controller: bool = True
    reviews: bool = True


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What the daemon's log holds, and in which form."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    format: Literal["human", "json"] = "human"


@dataclass(frozen=True, slots=True)
class RetainSettings:
    """Seconds for which ended sessions, and what they worked on, are kept untouched; None is for ever."""

    sessions: float | None = None
    work: float | None = None


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """How web pages are met.

    `executable` is a path; None: Playwright's own browser, else the system's. `cdp_url` is the address of a browser
    that a person uses, which is attached to. Sessions with a label in `profiles` share cookies that are kept for
    good. `idle` is in seconds.
    """

    executable: str | None = None
    headless: bool = True
    cdp_url: str | None = None
    profiles: tuple[str, ...] = ()
    proxy: str | None = None
    user_agent: str | None = None
    idle: float = 300.0
    sandbox: Literal["auto", "on", "off"] = "auto"


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What agents may do: `rules`, of which the first that matches counts, and `roots`, absolute paths.

    Files may be written and deleted below the roots as in a session's own directories.
    """

    rules: tuple[Rule, ...] = ()
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """Where the code that agents write runs.

    `auto`: in bubblewrap's sandbox where that works. `writable` are absolute paths that code may write to besides the
    session's own directories. Without `network` it reaches none.
    """

    mode: Literal["auto", "none", "bwrap"] = "auto"
    network: bool = True
    writable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """The settings in force. `sources` says where each value that is not a default came from, by dotted key.

    `drain` is how many seconds turns under way may take to come to their end when the daemon stops.
    """

    home: Path
    model: str
    models: Mapping[str, Model]
    limits: Limits = field(default_factory=Limits)
    usd_per_day: float | None = None
    quota: Quota = field(default_factory=Quota)
    sessions: int = 16
    children: int = 8
    retry: Retry = field(default_factory=Retry)
    prices: Mapping[str, Price] = field(default_factory=lambda: SHIPPED)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    log: LogSettings = field(default_factory=LogSettings)
    retain: RetainSettings = field(default_factory=RetainSettings)
    browser: BrowserSettings = field(default_factory=BrowserSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    ask: Literal["user", "never"] = "user"
    drain: float = 60.0
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def spool_dir(self) -> Path:
        """Where sessions are handed in."""
        return self.home / "spool"

    @property
    def work_dir(self) -> Path:
        """Where tools work, one directory a session."""
        return self.home / "work"

    @property
    def memory_dir(self) -> Path:
        """What agents keep between sessions."""
        return self.home / "memory"

    @property
    def browser_dir(self) -> Path:
        """Where browsers keep their profiles, and their files while they run."""
        return self.home / "browser"

    @property
    def triggers_dir(self) -> Path:
        """Programs that start sessions by themselves."""
        return self.home / "triggers"

    def source(self, key: str) -> str:
        """Return where the value of a dotted key came from."""
        return self.sources.get(key, "default")

    def chain_of(self, name: str) -> tuple[str, ...]:
        """Return the entries that may answer for `name`, the preferred one first; a name that is no chain is its own.

        A name that is not known is its own as well: a journal may remember an entry that has been removed.
        """
        entry = self.models.get(name)
        return (entry.chain if entry is not None else ()) or (name,)

    def window_of(self, name: str) -> int:
        """Return how many tokens one request to an entry may take; for a chain, what each of its entries can take.

        That is `window`, or by default `WINDOW`, for the local model all that it has room for; and never more than
        its context leaves beside an answer. Raises KeyError for a name that is not known.
        """
        entry = self.models[name]
        if entry.chain:
            return min(self.window_of(link) for link in entry.chain)
        room = entry.room
        if entry.provider == "local" and entry.window is None and room is not None:
            return room - LOCAL_RESERVE
        window = entry.window or WINDOW
        return window if room is None else min(window, room)

    def price_of(self, entry: Model, reported: str | None = None) -> Price | None:
        """Return the price of what an entry answers with; `reported` is the model id that the server named."""
        if entry.provider == "local":
            return FREE
        found = find_price(self.prices, reported) if reported else None
        return found or find_price(self.prices, entry.model)


WINDOW = 30_000
"""Tokens that one request may take by default: a model is dear, slow and forgetful long before its context is full."""
LEAST_WINDOW = 1000
"""Tokens without which there is no room for a request at all."""
LOCAL_CONTEXT = 16_384
"""Tokens of the local model's context by default."""
LOCAL_RESERVE = 512
"""Tokens that stay free in the local model's context, as a request's size is estimated."""

BUILT_IN: Mapping[str, Model] = MappingProxyType(
    {
        "claude": Model(
            "claude",
            "anthropic",
            "claude-sonnet-5-5",
            key_env="ANTHROPIC_API_KEY",
            max_tokens=32_000,
            context=1_000_000,
        ),
        # This generation calls functions through the Responses API only.
        "gpt": Model(
            "gpt",
            "openai",
            "gpt-6.2-sol",
            api="responses",
            key_env="OPENAI_API_KEY",
            max_tokens=32_000,
            context=1_050_000,
        ),
        # Prompts are read at some 50 tokens a second on a small machine, so silence is long.
        "local": Model(
            "local",
            "local",
            "qwen2.5-coder-1.5b-instruct",
            max_tokens=2048,
            idle_timeout=600.0,
            context=LOCAL_CONTEXT,
        ),
    }
)
