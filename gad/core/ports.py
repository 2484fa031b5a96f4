"""The sockets of the core: what a provider, a tool and a clock must look like.

Concrete parts live in the other rooms; the composition root plugs them in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gad.core.messages import Assistant, Message, StopReason, Usage
from gad.core.page import Acted, Sight
from gad.core.redact import Secrets


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """What the model is told of a tool. `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash((self.name, self.description))  # parameters have no hash, and need none


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model.

    The prefix (`system`, `tools`, then `messages`) is stable from turn to turn, so vendors can cache
    it. `anchor` is what changes every turn; a provider renders it as the last text of the newest user
    message, behind every cache breakpoint. The first `head` messages change more seldom than the others behind
    them: a vendor that caches up to marks gets one there. `schemas` is False when the tool set is unchanged and the
    model was told it lately: a provider that writes the tools into the prompt's text then only reminds of them.
    """

    system: str
    tools: tuple[ToolSchema, ...]
    messages: tuple[Message, ...]
    anchor: str = ""
    head: int = 0
    schemas: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. `model` is the name the server reported, for the record and the price table."""

    message: Assistant
    stop: StopReason
    usage: Usage
    model: str


class Provider(Protocol):
    """A model that can be asked."""

    model: str

    async def ask(self, request: Request, on_text: Callable[[str], None]) -> Answer:
        """Ask once, stream text deltas into `on_text`, return the complete answer.

        Never retries. Raises the errors below `gad.errors.ProviderError` and nothing else; an answer
        that did not arrive whole is a NetworkError, never a shorter answer. Cancelling the task
        closes the HTTP response at once.
        """
        ...

    async def close(self) -> None:
        """Release connections and child processes."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What ask_user wants to know, with suggested answers."""

    text: str
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool's run gives.

    `saved` is the path of a file that holds the whole output, where `output` may be only a part of it or may be cut
    later. `question` and `key_info` are effects on the session, not text for the model.
    """

    status: Literal["ok", "error"]
    output: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    saved: str = ""
    question: Question | None = None
    key_info: str | None = None


class Memory(Protocol):
    """The way into long-term memory, for one session. Nothing else writes there."""

    root: str
    """The directory, an absolute path."""

    async def write(self, path: str, added: str, change: Callable[[str | None, str], str]) -> str:
        """Change one file and return what to tell the model.

        `path` is relative to the root; `added` is the text that the model wants to add, its proof included;
        `change` makes the new content from the present one (None: no such file) and that text without its proof, and
        may raise ValueError. Raises MemoryRefused, MemoryLocked or OSError with nothing written.
        """
        ...

    async def open_phase(self) -> str:
        """Return what the model needs to know for writing: the rules, and what this session has proven."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a tool call runs. Paths are absolute strings.

    `cwd` is where relative paths start; `work` is the session's scratch directory; `emit` streams
    text to output.txt while the tool runs; `environment` is what a child process may see; `limit` is how many
    characters of output the model is to get of this call at most; `memory` is None where there is none. `labels` are
    the session's. `secrets` must be out of an output before it is cut: half of one is not recognised. A `confined`
    session writes below `cwd` and `work` only.
    """

    session: str
    call_id: str
    cwd: str
    work: str
    emit: Callable[[str], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    limit: int = 10_000
    memory: Memory | None = None
    labels: tuple[str, ...] = ()
    secrets: Secrets = field(default_factory=Secrets)
    confined: bool = False


class Browser(Protocol):
    """Web pages, as one session sees them: sessions share a browser and nothing in it."""

    async def scan(self, context: ToolContext, *, url: str = "", tab: int = 0, look: bool = True) -> Sight:
        """Look at a tab, the active one by default; it becomes the active one. `url` is opened in it first.

        Where there is no tab one is made. Without `look`, only the tabs are told of. Raises BrowserError.
        """
        ...

    async def execute(self, context: ToolContext, script: str, *, tab: int = 0, monitor: bool = True) -> Acted:
        """Run JavaScript in a tab, wait for what it sets off, and tell what came of it.

        Without `monitor` nobody looks at the page or waits. What goes wrong in the script is in what is returned.
        Raises BrowserError.
        """
        ...


class Tool(Protocol):
    """One of the nine atomic tools."""

    schema: ToolSchema

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Do it. `arguments` have been checked against the schema.

        What the model should see is an `Outcome` with status error, not an exception. Cancelling the
        task stops the work and everything it started.
        """
        ...


class RunCommand(Protocol):
    """Run a shell command in `cwd` as its own process group; return its exit code and its output's head and tail."""

    def __call__(
        self, command: str, *, cwd: str, work: str, environment: Mapping[str, str], emit: Callable[[str], None]
    ) -> Awaitable[tuple[int, str]]:
        """End the whole group when the call is cancelled. `work` is where long output may be kept."""
        ...


class Clock(Protocol):
    """Time, so that tests can turn it."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...
