"""One session for a burst: gathers what has happened, and hands it in once. For plugins as well."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gad.triggers.plugin import Trigger

SHOWN = 300
"""Items that a session's text shows at most; of more, only the number is kept."""
LONGEST = 2000
"""Characters of an item that are kept."""
MOST = 100_000
"""Bytes of the items that are shown: a session's text has to stay below what a message may be."""


class Batch:
    """What waits for the next session, in `state` (a dict in `trigger.state`).

    `window` are the seconds from the first item to the session, `cooldown` those between two sessions. What comes
    meanwhile is kept for the next one. Once a batch is closed it does not change any more, and its key is made of its
    content: so when a crash comes in between, the same batch is handed in again, and is the same session.
    """

    def __init__(self, state: dict[str, Any], *, window: float, cooldown: float) -> None:
        self._state = state
        self._window = window
        self._cooldown = cooldown
        state.setdefault("items", {})
        state.setdefault("closed", None)

    def add(self, name: str, text: str, now: float, mark: object = None) -> None:
        """Add an item, or put it in the place of one of that name.

        `text` is what the session is told of it. `mark`, what JSON can hold, tells apart items whose text is the same.
        """
        items = self._state["items"]
        if not items:
            self._state["since"] = now
        if name not in items and len(items) >= SHOWN:
            self._state["more"] = self._state.get("more", 0) + 1
            return
        items[name] = [text if len(text) <= LONGEST else f"{text[:LONGEST]} [...]", mark]

    def due(self, now: float) -> bool:
        """Return whether there is something that may be handed in now."""
        state = self._state
        if state["closed"] is not None:
            return True
        waited = not 0 <= now - state.get("since", now) < self._window
        return bool(state["items"]) and waited and not 0 <= now - state.get("last", -1e18) < self._cooldown

    def hand_in(self, trigger: Trigger, prompt: str) -> str | None:
        """Hand in what is due: the prompt, then one item a line. Return the session's name, if there is one."""
        state, now = self._state, trigger.now()
        if not self.due(now):
            return None
        if state["closed"] is None:
            state["closed"], state["items"] = state["items"], {}
            state["closed_more"] = state.pop("more", 0)
        texts, room = [], MOST
        for text, _ in state["closed"].values():
            if (room := room - len(text.encode("utf-8", "replace"))) < 0:
                break
            texts.append(text)
        left_out = len(state["closed"]) - len(texts) + state.get("closed_more", 0)
        more = [f"(and {left_out} more)"] if left_out else []
        digest = hashlib.sha256(json.dumps(state["closed"], sort_keys=True).encode()).hexdigest()[:16]
        name = trigger.submit("\n".join([prompt, "", *texts, *more]), key=digest)
        if name is not None:
            state["closed"], state["last"] = None, now
        return name
