r"""Writes the words of a page so that they pose as nothing that gad writes: no control, region, fence or mark of a cut.

Of everything that gad writes itself, one thing is changed in the page's words, as cheap as can be:

    [12 ...], [12]          in a text: [ 12 ...]; in a label all brackets are round, so that the first ] ends it
    (button)                right behind a control, which it would change: a space stands before it
    (… 12 characters cut)   (…12 characters cut)
    (+3 like these)         ( +3 like these)
    --- nav, ```            at the beginning of a line: \--- nav
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ue000-\uf8ff\0]")
"""Soft hyphens, marks of direction, joints of no width, and the glyphs of icon fonts."""
_POSING = re.compile(r"\[(?=\d+(?:[\s\]]|\Z))|\(… (?=\d)|\(\+(?=\d+ like these)")
_POSED = {"[": "[ ", "(… ": "(…", "(+": "( +"}
_LINE_START = re.compile(r"--- |```")
_BARE = re.compile(r'(?!["\s])(?:(?!; )[^()\[\]|"\0-\x1f\x7f-\x9f\u2028\u2029])*(?<!\s)')
_SHORTENED = re.compile(r"(?:\A|…)\+\d+\Z")
_MISREAD = re.compile(r"[\x7f-\x9f\u2028\u2029]|\[(?=\d)|(?<=\()[…+]")
_CONTROL = re.compile(r"\[\d+[ \]]")


def fold(text: str) -> str:
    """Return the text on one line, without what nobody sees."""
    return " ".join((text if text.isascii() and "\0" not in text else _UNSEEN.sub("", text)).split())


def escape(text: str) -> str:
    """Return a text in which nothing reads as a control or as a mark of what is left out."""
    return _POSING.sub(lambda found: _POSED[found[0]], text) if "(" in text or "[" in text else text


def escape_line(text: str) -> str:
    """Return an escaped line that reads as no region or frame and opens no fence."""
    return f"\\{text}" if _LINE_START.match(text) else text


def label(text: str) -> str:
    """Return a folded text as it stands within the brackets of a control."""
    if text.startswith("[") and text.find("]") == len(text) - 1:
        text = text[1:-1].strip()
    return escape(text.replace("[", "(").replace("]", ")"))


def value(text: str) -> str:
    """Return a control's value or option as it is, or as JSON where that could be misread."""
    if _BARE.fullmatch(text) and not _SHORTENED.search(text):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _MISREAD.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as one: apart by a dot, and by nothing where a control stands behind another one."""
    text = ""
    for line in filter(None, lines):
        apart = text and not (text[-1] in "])" and _CONTROL.match(line))
        text += f" · {line}" if apart else line
    return text
