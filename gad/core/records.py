"""The journal's records: everything that ever happens to a session, one frozen class a kind.

A record is written before what it says is acted on, and a session's state is a fold over its
records (`gad.core.session`). `encode` and `decode` are the JSON form, one object a line.
`at` is always in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from dataclasses import fields as fields_of
from typing import Any, Literal

from gad.core.context import Plan
from gad.core.messages import Assistant, StopReason, ToolCall, ToolResult, Usage, part_from_json, part_to_json
from gad.core.task import TaskOptions
from gad.errors import JournalDamaged, JournalTooNew

VERSION = 1
"""The journal format's version, in every `begin` record."""

EndState = Literal["done", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Begin:
    """A conversation starts.

    `preamble` is what changes from session to session (date, directory); it opens the first user
    message, so that the system prompt never changes. `persist` asks the engine to send a model that
    gives up right after a failed call back to work once. `memory` is what is always told of long-term memory.
    `gad` is the version of the gad that wrote this, `owner` the id of the user that the conversation belongs to.
    """

    at: float
    session: str
    options: TaskOptions
    preamble: str = ""
    persist: bool = False
    memory: str = ""
    v: int = VERSION
    gad: str = ""
    owner: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A client's message was accepted from claim number `n`."""

    at: float
    n: int
    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Pinned:
    """context.txt: text pinned into working memory."""

    at: float
    n: int
    text: str


@dataclass(frozen=True, slots=True)
class ChildBegan:
    """Another session was accepted that names this one as its parent."""

    at: float
    child: str


@dataclass(frozen=True, slots=True)
class ChildUsed:
    """What a child's conversation, which began at `began`, has used by now, its own children included.

    `usd` is None once a part of it is unknown.
    """

    at: float
    child: str
    began: float
    tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True)
class StopAsked:
    """stop.txt was dropped."""

    at: float
    n: int


@dataclass(frozen=True, slots=True)
class TurnedDown:
    """A client's file could not be accepted; it is kept as rejected-NNNN-<file>."""

    at: float
    n: int
    file: str
    error: str


@dataclass(frozen=True, slots=True)
class Calling:
    """A request is about to go out. Closes the user message: what came later waits for the next turn.

    `plan` says what of the transcript it shows, `prefix` is a digest of the system text and the tools that stand
    before it: with the records before this one, they say exactly what is sent.
    """

    at: float
    turn: int
    model: str
    plan: Plan = field(default_factory=Plan)
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The model is out of reach; it will be asked again at `retry_at` (seconds since the epoch)."""

    at: float
    error: str
    retry_at: float
    attempts: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Another model of the chain is asked from now on; both are named by their entries in gad.yaml.

    `error` says why the former one is not asked, and `until` (seconds since the epoch) when it is tried again. Without
    an error there is no reason left not to ask the new one, which the chain prefers.
    """

    at: float
    model_from: str
    model_to: str
    error: str = ""
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete answer. `usd` is None when the model's price is unknown."""

    at: float
    turn: int
    message: Assistant
    stop: StopReason
    model: str
    usage: Usage
    usd: float | None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is about to run. `allowed` says by which rule, or by which word of the user's, where one was needed."""

    at: float
    call: str
    name: str
    allowed: str = ""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call has its result. Also written, without ToolStarted, for a call that was refused."""

    at: float
    result: ToolResult
    seconds: float = 0.0
    key_info: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the user. `call` is the ask_user call, or empty when the engine asks.

    With `rules`, it is the call that needs permission by them, `keys` is what "always" will mean, and `exact` a
    fingerprint of what the call would do, which leave is given for.
    """

    at: float
    call: str
    question: str
    candidates: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    exact: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """verdict.txt: the user says whether the work was good, and why."""

    at: float
    n: int
    ok: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class ScriptStarted:
    """The task's SOP is a script by now, which is about to run; no model is asked."""

    at: float
    sop: str


@dataclass(frozen=True, slots=True)
class ScriptRan:
    """The SOP's script ran; when it failed, the agent takes over with what it printed."""

    at: float
    exit: int
    output: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Decided:
    """The memory controller has decided at `point` how memory is used from here on.

    `state` is the row of its table, `directive` what the anchor tells the model to read.
    """

    at: float
    point: str
    step: int
    episode: str
    action: str
    state: str
    directive: str = ""


@dataclass(frozen=True, slots=True)
class Checking:
    """task.yaml's check is about to run."""

    at: float


@dataclass(frozen=True, slots=True)
class Checked:
    """task.yaml's check ran."""

    at: float
    exit: int
    output: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """A daemon found this session in the middle of a step: the one before it crashed."""

    at: float


@dataclass(frozen=True, slots=True)
class Paused:
    """The daemon shut down in good order in the middle of this session."""

    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The round is over.

    `limit` says that a limit ended it, `auth` that no model could be asked for want of a valid key. Messages with a
    claim number above `upto` came too late to be part of the round and open the next one.
    """

    at: float
    state: EndState
    error: str = ""
    limit: bool = False
    upto: int | None = None
    auth: bool = False


Record = (
    Begin
    | Said
    | Pinned
    | ChildBegan
    | ChildUsed
    | StopAsked
    | TurnedDown
    | Calling
    | Deferred
    | Moved
    | Answered
    | ToolStarted
    | ToolFinished
    | Asked
    | Judged
    | ScriptStarted
    | ScriptRan
    | Decided
    | Checking
    | Checked
    | Resumed
    | Paused
    | Ended
)

KINDS: Mapping[str, type[Record]] = {
    "begin": Begin,
    "message": Said,
    "context": Pinned,
    "child": ChildBegan,
    "child_used": ChildUsed,
    "stop": StopAsked,
    "rejected": TurnedDown,
    "calling": Calling,
    "deferred": Deferred,
    "moved": Moved,
    "answer": Answered,
    "tool_started": ToolStarted,
    "tool_finished": ToolFinished,
    "asked": Asked,
    "judged": Judged,
    "script_started": ScriptStarted,
    "script_ran": ScriptRan,
    "decided": Decided,
    "checking": Checking,
    "checked": Checked,
    "resumed": Resumed,
    "paused": Paused,
    "ended": Ended,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
_FIELDS = {kind: frozenset(one.name for one in fields_of(kind)) for kind in KINDS.values()}


def kind_of(record: Record) -> str:
    """Return the record's name in the journal."""
    return _NAMES[type(record)]


def encode(record: Record) -> dict[str, Any]:
    """Return the record as a JSON object."""
    head: dict[str, Any] = {"kind": kind_of(record)}
    match record:
        case Begin():
            names = ("at", "v", "gad", "session", "preamble", "persist", "memory")
            fields = {name: getattr(record, name) for name in names}
            fields |= {} if record.owner is None else {"owner": record.owner}
            return head | fields | {"options": record.options.to_json()}
        case Answered():
            return head | {
                "at": record.at,
                "turn": record.turn,
                "parts": [part_to_json(part) for part in record.message.parts],
                "stop": record.stop,
                "model": record.model,
                "usage": asdict(record.usage),
                "usd": record.usd,
            }
        case ToolFinished():
            found = head | {"at": record.at, "result": part_to_json(record.result), "seconds": record.seconds}
            return found | ({} if record.key_info is None else {"key_info": record.key_info})
        case _:
            return head | asdict(record)


def decode(data: object) -> Record:
    """Read back what `encode` wrote.

    Raises JournalTooNew on what a newer gad may have written, JournalDamaged on anything else.
    """
    try:
        if not isinstance(data, dict):
            raise TypeError(f"expected an object, found {type(data).__name__}")
        fields = dict(data)
        word = fields.pop("kind")
        if isinstance(word, str) and word not in KINDS:
            raise JournalTooNew(f"a record of the unknown kind {word[:40]!r}")
        kind = KINDS[word]
        if kind is Begin:
            if isinstance(fields["v"], int) and fields["v"] > VERSION:
                raise JournalTooNew(f"it has format {fields['v']}, and format {VERSION} is the newest known here")
            if fields["v"] != VERSION:
                raise ValueError(f"no format of a journal: {fields['v']!r}")
            fields["options"] = TaskOptions.from_json(fields["options"])
        elif kind is Answered:
            fields["message"] = Assistant(tuple(_spoken(part) for part in fields.pop("parts")))
            fields["usage"] = Usage(**fields["usage"])
        elif kind is ToolFinished:
            result = part_from_json(fields["result"])
            if not isinstance(result, ToolResult):
                raise TypeError("result is not a tool result")
            fields["result"] = result
        elif kind is Calling:
            fields["plan"] = Plan(**fields["plan"])
        elif kind is Asked:
            fields |= {name: tuple(fields[name]) for name in ("candidates", "rules", "keys") if name in fields}
        if unknown := fields.keys() - _FIELDS[kind]:
            raise JournalTooNew(f"a record of the kind {word!r} with the unknown {', '.join(sorted(unknown))[:80]}")
        return kind(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise JournalDamaged(f"not a journal record: {exc}") from exc


def _spoken(data: Mapping[str, Any]) -> Any:
    part = part_from_json(data)
    if isinstance(part, ToolResult):
        raise TypeError("a tool result inside an answer")
    if isinstance(part, ToolCall) and not isinstance(part.arguments, dict):
        raise TypeError("a call's arguments are not an object")
    return part
