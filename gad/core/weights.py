"""How heavy a text is in a model's context, without a tokenizer.

Counting tokens takes the model's own vocabulary, which most vendors do not publish, and far more time than there is
for every text of a request. So a text is weighed by its characters: every class of characters has one weight, and
`ALPHA` weighted characters are one token. The weights are rounded from a fit to the tokenizers of the present models;
docs/context.md says which, and `python -m bench.weights` measures how they fare. They are meant to err upward.

A text's weight is the sum of its characters' weights, so the weights of a request's parts may be added.
"""

from __future__ import annotations

from collections.abc import Iterable

ALPHA = 3.0
"""Weighted characters in one token."""

_ASCII: tuple[tuple[bytes, float], ...] = (
    (b"abcdefghijklmnopqrstuvwxyz", 0.75),
    (b" \t\n\r", 0.75),
    (b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 2.5),
    (b"0123456789", 3.6),  # many tokenizers take digits one by one, and what follows a number begins a token
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 3.0),  # base64, constants; about one letter in thirty of prose
)
"""The weights in ASCII. The classes share no character, and the most frequent one comes first, for speed."""
_CONTROL = 3.0
"""The weight of any other ASCII character."""


def _pages(*ranges: tuple[int, int]) -> bytes:
    return bytes(page for first, last in ranges for page in range(first, last + 1))


_LATIN = 4.0
_BEYOND: tuple[tuple[bytes, float], ...] = (
    (_pages((0x34, 0x9F), (0xF9, 0xFA), (0xFF, 0xFF)), 3.4),  # CJK ideographs, full-width forms
    (_pages((0x30, 0x33)), 2.5),  # kana, CJK punctuation
    (_pages((0x00, 0x02), (0x1E, 0x1E)), _LATIN),  # Latin with diacritics
    (_pages((0x04, 0x04)), 1.5),  # Cyrillic
    (_pages((0xAC, 0xD7)), 3.7),  # Hangul
    (_pages((0x03, 0x03), (0x05, 0x05), (0x10, 0x10)), 2.4),  # Greek, Armenian, Hebrew, Georgian
    (_pages((0x06, 0x08), (0xFB, 0xFD)), 2.2),  # Arabic
    (_pages((0x09, 0x0F)), 2.85),  # the scripts of India, Thai, Lao, Tibetan
    (_pages((0x20, 0x20), (0x25, 0x25)), 3.0),  # typographic punctuation, boxes
    (_pages((0xD8, 0xDF)), 4.5),  # half of a character beyond U+FFFF, such as an emoji; or a lone surrogate
)
"""The weights beyond ASCII, by the upper byte of a UTF-16 unit ("page"). The classes share no page."""
_RARE = 5.0
"""The weight of any other unit beyond ASCII: symbols and rare scripts."""

_NOT_ASCII = bytes(range(0x80, 0x100))
_PIECE = 8192
"""Characters that are weighed at once: small blocks of memory are reused, which is several times faster."""


def weigh(text: str) -> float:
    """Return the weight of a text in weighted characters; any string has one, even with lone surrogates."""
    return sum((_piece(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE)), 0.0)


def tokens(text: str) -> float:
    """Return an estimate of the number of tokens in a text, as a rule somewhat more than the true number."""
    return weigh(text) / ALPHA


def _piece(text: str) -> float:
    if text.isascii():
        return _sum(text.encode("ascii"), _ASCII, _CONTROL)
    ascii_only = text.encode("utf-8", "surrogatepass").translate(None, _NOT_ASCII)
    pages = text.encode("utf-16-le", "surrogatepass")[1::2]
    beyond = _sum(pages, _BEYOND, _RARE) - _LATIN * len(ascii_only)  # ASCII lies on page 0, as accented letters do
    return _sum(ascii_only, _ASCII, _CONTROL) + beyond


def _sum(units: bytes, classes: Iterable[tuple[bytes, float]], other: float) -> float:
    """Add up the weights of `units`: delete one class after the other and see by how much the rest is shorter."""
    total = 0.0
    for members, weight in classes:
        rest = units.translate(None, members)
        total += weight * (len(units) - len(rest))
        units = rest
        if not units:
            break
    return total + other * len(units)
