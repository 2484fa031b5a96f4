"""The anchor: what the model must not lose, at the end of the newest user message of each request.

It is rendered for the request and never stored in the history, so there is no old copy of it.
"""

from __future__ import annotations


def render(*, key_info: str, pinned: str) -> str:
    """Return the anchor's text; empty when there is nothing to hold on to."""
    parts = []
    if pinned:
        parts.append(f"<pinned>\n{pinned}\n</pinned>")
    if key_info:
        parts.append(f"<key_info>\n{key_info}\n</key_info>")
    return "\n".join(parts)
