"""What a client may ask for in task.yaml, as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of one conversation. None means: as the daemon's gad.yaml says.

    `model` names an entry of gad.yaml's models. `cwd` is an absolute path. `turns`, `tokens`, `usd`
    and `seconds` limit the session. `check` is a shell command that decides whether the work is done.
    `tools` restricts the tool set. `ask: never` says that nobody is there to answer questions.
    `memory` says whether long-term memory is told of. `sop` names a procedure of memory whose script may do the task;
    `review` a session whose successful calls prove what this one writes into memory.
    A `confined` session writes only below its cwd and its work directory, and so do its children.
    `not_before` is in seconds since the epoch. A higher `priority` is admitted first.
    """

    model: str | None = None
    cwd: str | None = None
    turns: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    check: str | None = None
    tools: tuple[str, ...] | None = None
    memory: bool = True
    sop: str | None = None
    review: str | None = None
    ask: Literal["user", "never"] | None = None
    confined: bool = False
    parent: str | None = None
    priority: int = 0
    not_before: float | None = None
    labels: tuple[str, ...] = ()

    @property
    def sponsor(self) -> str | None:
        """The session whose work this one is part of: its parent, but not that of a review, which nobody has sent."""
        return self.parent if self.review is None else None

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, for the journal."""
        default = asdict(TaskOptions())
        return {key: value for key, value in asdict(self).items() if value != default[key]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskOptions:
        """Read back what `to_json` wrote. Raises TypeError on an unknown option."""
        found = dict(data)
        for key in ("tools", "labels"):
            if found.get(key) is not None:
                found[key] = tuple(found[key])
        return cls(**found)
