"""Text that somebody else wrote, made fit to be shown: nothing in it steers a terminal or hides what it says."""

from __future__ import annotations

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_HIDDEN = re.compile(f"[{_BIDI}\ufeff\U000e0000-\U000e007f]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INNER = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f{_BIDI}]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def one_line(text: str) -> str:
    """Return text on one line: control characters become spaces, marks that turn or hide text are left out."""
    return _SURROGATE.sub("\ufffd", _CONTROL.sub(" ", _HIDDEN.sub("", text)))


def visible(text: str) -> str:
    """Return text of several lines in which control characters, and marks that turn or hide text, can be seen."""
    return _SURROGATE.sub("\ufffd", _INNER.sub(_name, text.replace("\r\n", "\n")))


def _name(found: re.Match[str]) -> str:
    """Return a picture of a control character of ASCII, and any other's number."""
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"[U+{code:04X}]"
