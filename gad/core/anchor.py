"""The anchor: what the model must not lose, at the end of the newest user message of each request.

It is rendered for the request and never stored in the history, so there is no old copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable

SUMMARIES = 20
"""The latest turns; those of them that no longer stand in full in the request are shown as one line each."""

LATE = 0.75
"""The share of the allowed turns after which the model is told how many are left."""


def render(
    *,
    turn: int,
    limit: int | None = None,
    summaries: Iterable[tuple[int, str]] = (),
    key_info: str,
    pinned: str,
    memory: str = "",
) -> str:
    """Return the anchor's text; empty when there is nothing to hold on to, as in most short sessions.

    `turn` is this request's number, `limit` the last turn's that is allowed; `summaries` are turn numbers and lines,
    `memory` is what the memory controller wants read, one line.
    The turn's number stands with them, and by itself when the end is near.
    """
    parts = []
    if lines := "\n".join(f"{number} {line}" for number, line in summaries):
        parts.append(f"<turns>\n{lines}\n</turns>")
    if pinned:
        parts.append(f"<pinned>\n{pinned}\n</pinned>")
    if key_info:
        parts.append(f"<key_info>\n{key_info}\n</key_info>")
    if memory:
        parts.append(memory)
    if parts or (limit is not None and turn > LATE * limit):
        parts.append(f"turn {turn}" + (f" of at most {limit}" if limit is not None else ""))
    return "\n".join(parts)
