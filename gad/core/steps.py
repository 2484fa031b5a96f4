"""What a session may have to do next, as values; `gad.core.session` chooses, the runner performs."""

from __future__ import annotations

from dataclasses import dataclass

from gad.core.messages import ToolCall
from gad.core.ports import Question
from gad.core.records import EndState


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model; this is turn number `turn`, counted from 1 over the whole session."""

    turn: int


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run one call; or, when `refusal` is not empty, give that as its error result instead.

    `note` goes with the result when the call fails. `not_run` marks a refusal that is no failure.
    """

    call: ToolCall
    refusal: str = ""
    not_run: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunScript:
    """The task names an SOP: run its script, if it has one, before any model is asked."""

    sop: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunCheck:
    """The model says that it is finished: run the task's own check."""

    command: str


@dataclass(frozen=True, slots=True)
class AwaitReply:
    """Nothing to do until a client says something. `question` is put to the client first, if there is one."""

    question: Question | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The round is over; messages with a claim number above `upto` are not part of it."""

    state: EndState
    upto: int
    error: str = ""
    limit: bool = False


Step = CallModel | RunTool | RunScript | RunCheck | AwaitReply | Finish
