"""One request, put together from a session: the system text, the tools, the view of the conversation, the anchor.

Everything here is computed from the journal's records and the tool set, so what was sent at any turn can be computed
again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache

from gad.core import anchor
from gad.core.context import Plan
from gad.core.escalation import ASK
from gad.core.ports import Request, ToolSchema
from gad.core.prompt import SYSTEM
from gad.core.session import Session
from gad.core.situation import standing
from gad.core.summary import LENGTH
from gad.core.weights import ALPHA, weigh


def offered(session: Session, schemas: Iterable[ToolSchema]) -> tuple[ToolSchema, ...]:
    """Return the schemas, of these, of the tools that a session may use; with nobody to answer, there is no asking."""
    chosen = session.options.tools
    return tuple(
        schema
        for schema in schemas
        if (chosen is None or schema.name in chosen) and (schema.name != ASK or session.can_ask)
    )


def plan_next(session: Session, tools: tuple[ToolSchema, ...], turn: int, window: int) -> Plan:
    """Return the plan of a session's next request. `window` is how many tokens one request may take."""
    return session.history.context.plan(
        session.upcoming,
        session.history.plan,
        limit=ALPHA * window / session.history.calibration,
        fixed=_fixed(session, tools, turn),
    )


def plan_stricter(session: Session, tools: tuple[ToolSchema, ...], turn: int) -> Plan:
    """Return a plan for the request that the server has just refused as too long."""
    return session.history.context.stricter(
        session.history.transcript, session.history.plan, fixed=_fixed(session, tools, turn)
    )


def build(session: Session, tools: tuple[ToolSchema, ...], turn: int) -> Request:
    """Return the request of turn `turn`; the session has taken in its `calling` record."""
    messages = session.history.context.view(session.history.transcript, session.history.plan)
    return Request(
        system=SYSTEM,
        tools=tools,
        messages=messages,
        anchor=_anchor(session, turn, session.history.plan.compressed),
        head=max(0, len(messages) - (len(session.history.transcript) - session.history.plan.marked)),
        schemas=session.history.plan.schemas,
    )


@lru_cache(maxsize=64)
def prefix_digest(tools: tuple[ToolSchema, ...]) -> str:
    """Return a digest of what every request with these tools begins with."""
    return hashlib.sha256((SYSTEM + schemas_text(tools)).encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def schemas_text(tools: tuple[ToolSchema, ...]) -> str:
    """Return the tools' schemas as JSON."""
    return json.dumps([[tool.name, tool.description, tool.parameters] for tool in tools], ensure_ascii=False)


def _fixed(session: Session, tools: tuple[ToolSchema, ...], turn: int) -> float:
    """Return the weight of what stands beside the messages at most: a batch may bring all summaries into the anchor.

    The newest turn's is still to come; a character of it weighs 4 at most, in any script.
    """
    anchor_text = _anchor(session, turn, len(session.history.transcript) + 1)
    return _prefix_weight(schemas_text(tools)) + weigh(anchor_text) + 4 * LENGTH


@lru_cache(maxsize=64)
def _prefix_weight(schemas: str) -> float:
    return weigh(SYSTEM) + weigh(schemas)


def _anchor(session: Session, turn: int, old: int) -> str:
    """Return the anchor; turns whose messages all stand before `old` are told in a line, the others stand in full."""
    lines = [(number, line) for end, number, line in session.history.summaries if end <= old]
    return anchor.render(
        turn=turn,
        limit=session.allowance.last_turn,
        summaries=lines,
        key_info=session.key_info,
        pinned=session.pinned,
        memory=standing(session),
    )
