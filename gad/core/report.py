"""A session's state as status.txt tells it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gad.core.limits import Spent
from gad.core.session import Session


def status_of(session: Session) -> dict[str, Any]:
    """Return what status.txt says of a session. Times are ISO 8601 in UTC."""
    values: dict[str, Any] = {
        "state": session.public_state,
        "since": _iso(session.since),
        "round": session.round,
        "turn": session.allowance.spent.turns,
        "model": session.reach.model,
        "tokens_in": session.usage.tokens_in,
        "tokens_out": session.usage.tokens_out,
        "tokens_cached": session.usage.cached,
        "cost_usd": "unknown" if session.allowance.spent.usd is None else round(session.allowance.spent.usd, 6),
    }
    if session.question is not None:
        values["question"] = session.question.text
        values["candidates"] = list(session.question.candidates)
    if session.rejection or session.error:
        values["error"] = session.rejection or session.error
    if session.state == "failed" and session.no_key:
        values["error_kind"] = "auth"
    if moved := session.reach.failover:
        error = moved.error.rstrip(".")
        values["failover"] = f"{moved.model_from}: {error}; tried again from {_iso(moved.until)}"
    if session.state == "deferred":
        values["retry_at"] = _iso(session.reach.retry_at)
        values["attempts"] = session.reach.attempts
    if session.options.parent:
        values["parent"] = session.options.parent
    if session.children:
        values["children"] = list(session.children)
    if (used := session.allowance.children) != Spent():
        values["children_tokens"] = used.tokens
        values["children_cost_usd"] = "unknown" if used.usd is None else round(used.usd, 6)
    return {key: value for key, value in values.items() if value != ""}


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
