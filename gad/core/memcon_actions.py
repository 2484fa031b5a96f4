"""The nine actions performed: what each of them asks of a memory, and what comes back.

Source: MemCon, arXiv 2607.13591. A memory on disk and the built-in one (`gad.core.retrieval`) look alike from here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gad.core.memcon_state import ACTIONS, ALTERNATIVE, Action
from gad.core.retrieval import Retrieved, Support

_MAINTENANCE = ACTIONS[1]
"""How much `consolidate` and `forget` retrieve with the flag `maintenance_retrieves`."""


class Backend(Protocol):
    """A memory that actions are performed on; `gad.core.retrieval.LexicalMemory` is one.

    An operation that is not in `supports` is never called.
    """

    @property
    def supports(self) -> Collection[Support]:
        """The operations that this memory performs."""

    def retrieve(self, query: str, top_k: int, insight_k: int, hop: int, leave_out: Collection[str]) -> Retrieved:
        """Return the best `top_k` pointers and `insight_k` facts, and what is linked; without the ids `leave_out`."""

    def consolidate(self) -> Mapping[str, str]:
        """Merge equal facts; return which id went into which."""

    def forget(self) -> Sequence[str]:
        """Take failed records out of the active memory, so that they can be brought back; return their ids."""


@dataclass(frozen=True, slots=True)
class Performed:
    """What came of an action. `query` is what memory was asked, None when it was not asked at all.

    `note` says what was done to memory, or why something was not done.
    """

    query: str | None = None
    found: Retrieved = field(default_factory=Retrieved)
    plan: tuple[str, ...] = ()
    note: str = ""


def perform(
    action: Action,
    query: str,
    backend: Backend,
    plan: Sequence[str] = (),
    read: Collection[str] = frozenset(),
    *,
    maintenance_retrieves: bool = False,
) -> Performed:
    """Perform an action on a memory. `plan` is what the goal type's plan shows, `read` what is known already (ids).

    What the memory does not support is not done, and the note says so. `none` never asks the memory.
    """
    required = need(action)
    if required is None:
        return Performed(note="memory is not used")
    shown = tuple(plan) if action.operation == "plan" else ()
    note = "no plan for this goal type yet" if action.operation == "plan" and not plan else ""
    if required not in backend.supports:
        return Performed(plan=shown, note=f"this memory does not support {required}")
    if required == "retrieve":
        widened = action.operation == "widen"
        asked = f"{query} {ALTERNATIVE}" if widened else query
        found = backend.retrieve(asked, action.top_k, action.insight_k, action.hop, read if widened else frozenset())
        return Performed(asked, found, shown, note)
    if required == "consolidate":
        note = f"equal facts merged: {len(backend.consolidate())}"
    else:
        note = f"failed records forgotten: {len(backend.forget())}"
    if not maintenance_retrieves or "retrieve" not in backend.supports:
        return Performed(note=note)
    much = _MAINTENANCE
    return Performed(query, backend.retrieve(query, much.top_k, much.insight_k, much.hop, frozenset()), note=note)


def need(action: Action) -> Support | None:
    """Return what a backend must support for an action, None for the action that uses no memory."""
    match action.operation:
        case "consolidate" | "forget" as operation:
            return operation
        case "none":
            return None
    return "retrieve"
