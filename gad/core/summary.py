"""One line that says what a turn did: what stays of it when the turn itself has left the request.

No model is asked for it: it is the model's own <summary> line when it gives one, else the first sentence of what it
said, else its tool calls and how they went.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gad.core.messages import Assistant, ToolCall, ToolResult

LENGTH = 100
"""Characters of a summary at most."""

_OWN = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL)
_BLOCK = re.compile(r"```.*?(?:```|\Z)|<(thinking|think)>.*?(?:</\1>|\Z)", re.DOTALL)
_MARKUP = re.compile(r"\A(?:[\s#*>`-]|[0-9]{1,3}[.)]\s)+")
"""What may stand before the first sentence: the signs of a heading, a list, a quotation, a rule."""
_SENTENCE = re.compile(r".+?(?:[.!?…](?=\s|\Z)|[。！？]|\n|\Z)", re.DOTALL)
_TELLING = ("path", "code", "script", "question", "url")
"""Arguments that say best what a call is about, the best first."""


def summarise(message: Assistant, results: Sequence[ToolResult] = ()) -> str:
    """Return a turn's summary, of at most `LENGTH` characters, on one line."""
    text = _BLOCK.sub(" ", message.text)
    own = _OWN.search(text)
    spoken = _line(own[1]) if own else ""
    if not spoken and (sentence := _SENTENCE.match(_MARKUP.sub("", _OWN.sub(" ", text)))):
        spoken = _line(sentence[0])
    if spoken:
        failed = dict.fromkeys(call.name for call in message.calls if _status(call, results) != "ok")
        mishap = f" ({', '.join(failed)} failed)" if failed else ""
        return _line(_line(spoken, max(LENGTH // 2, LENGTH - len(mishap))) + mishap)
    calls = sorted(message.calls, key=lambda call: _status(call, results) == "ok")  # what failed must not be cut off
    return _line("; ".join(_called(call, results) for call in calls) or message.text) or "said nothing"


def gist_of(call: ToolCall, result: ToolResult) -> str:
    """Return in a few words what a call did and how it went."""
    return _line(_called(call, (result,)))


def _called(call: ToolCall, results: Sequence[ToolResult]) -> str:
    about = next((str(call.arguments[key]) for key in _TELLING if call.arguments.get(key)), "")
    return f"{call.name} {_line(about, 60)}".rstrip() + f": {_status(call, results)}"


def _status(call: ToolCall, results: Sequence[ToolResult]) -> str:
    return next((result.status for result in results if result.call_id == call.id), "not run")


def _line(text: str, length: int = LENGTH) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: max(0, length - 1)].rstrip() + "…"
