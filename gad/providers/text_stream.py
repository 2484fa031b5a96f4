"""What may be shown of an answer with calls in its text while it arrives."""

from __future__ import annotations

import re

from gad.providers.text_json import FENCE
from gad.providers.text_parse import BARE, OPEN, TAGS

_PREFIXES = "|".join(sorted({re.escape(tag[:size]) for tag in TAGS for size in range(1, len(tag))}, reverse=True))
_UNCLEAR = re.compile(
    rf"(?:^\ {{0,3}}{FENCE}[^\n`<]*+(?:\n\s*+)?+)?(?:{_PREFIXES})?\Z|^\ {{0,3}}[`~]{{0,2}}\Z", re.MULTILINE
)
"""The end of a text that may be the beginning of a call, with the fence before it."""
_FENCE_BEFORE = re.compile(rf"^\ {{0,3}}{FENCE}[^\n`<]*+(?:\n\s*+)?+\Z", re.MULTILINE)
_PERHAPS_BARE = re.compile(rf"\s*+(?:{FENCE}[^\n`{{\[<]*+\s*+|[`~]{{0,2}}+)(?:[\[{{]\s*+)?+")
"""An answer's beginning that may become nothing but JSON."""
_MOST_HELD = 1000
"""Characters that may wait to become clear; if there are more, the answer is shown when it is complete."""


class TextFilter:
    """Passes an answer's text on while it arrives, and nothing of a call.

    It shows what comes before the first tag at once. From there on, and of an answer that begins like a bare JSON
    call, it shows nothing: what of that is text is known at the end, and then `rest` returns it.
    """

    def __init__(self) -> None:
        self._shown = 0
        self._pending = ""
        self._stopped = False

    def feed(self, delta: str) -> str:
        """Return what may be shown by now."""
        if self._stopped:
            return ""
        text = self._clear(delta)
        self._stopped = self._stopped or len(self._pending) > _MOST_HELD
        return text

    def _clear(self, delta: str) -> str:
        self._pending += delta
        if not self._shown:
            if BARE.match(self._pending):
                self._stopped = True
                return ""
            if _PERHAPS_BARE.fullmatch(self._pending):
                return ""
        tag = OPEN.search(self._pending)
        if tag:
            self._stopped = True
            before = self._pending[: tag.start()]
            fence = _FENCE_BEFORE.search(before)
            size = fence.start() if fence else len(before)
        else:
            unclear = _UNCLEAR.search(self._pending)
            size = unclear.start() if unclear else len(self._pending)
        text = self._pending[:size]
        if not self._shown and not text.strip():
            return ""  # blank text before a call is not shown
        self._pending = self._pending[size:]
        self._shown += size
        return text

    def rest(self, text: str) -> str:
        """Return what is still to be shown of the whole answer's text."""
        return text[self._shown :]
