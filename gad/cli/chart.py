"""A small chart of values: in the terminal, as an SVG file, and as a part of a page. No library draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 46, 56
_TICKS = 4
_COLOURS = ("#1f5fbf", "#b3420a", "#1b7837", "#7b3294")
_LABELS = 10
"""At most so many runs are numbered on the axis of the SVG."""
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_LEFT, _SMALL_BOTTOM = 340, 110, 48, 92
_COLUMNS = 140
"""At most so many columns stand in a page's chart."""


def bars(values: Sequence[float], *, first: int = 1, width: int = 72, height: int = 8) -> list[str]:
    """Return the lines of a bar chart, one column a value; only the last `width` values are shown.

    `first` is the number of the first value's run.
    """
    shown = values[-width:]
    if not shown:
        return ["no runs yet"]
    top = max(*shown, 1)
    steps = [max(round(value / top * height * 8), value > 0) for value in shown]
    label = short(top)
    margin = max(len(label), 1)
    lines = []
    for row in reversed(range(height)):
        columns = "".join(_BLOCKS[min(max(step - row * 8, 0), 8)] for step in steps)
        lines.append(f"{label if row == height - 1 else '':>{margin}} │{columns}".rstrip())
    lines.append(f"{'0':>{margin}} └{'─' * len(shown)}")
    last = first + len(values) - 1
    left, right = f"run {last - len(shown) + 1}", str(last)
    gap = len(shown) - len(left) - len(right)
    rest = "" if len(shown) == 1 else " " * gap + right if gap > 0 else f" to {right}"
    lines.append(f"{'':>{margin}}  {left}{rest}")
    return lines


def spark(values: Sequence[float], top: float, width: int = 60) -> str:
    """Return the latest values as one line of blocks; `top` is the value of a full one."""
    return "".join(_BLOCKS[min(8, max(0, round(value / top * 8)))] for value in values[-width:])


def svg(title: str, values: Sequence[float], *, x: str, y: str, first: int = 1) -> str:
    """Return a line chart of the values as an SVG document with axes, ticks and labels.

    `first` is the number of the first value's run.
    """
    return svg_lines(title, {"": values}, x=x, y=y, first=first, least=1)


def svg_lines(
    title: str, series: Mapping[str, Sequence[float]], *, x: str, y: str, first: int = 1, least: float = 0.1
) -> str:
    """Return a chart of one line a series, as long as each other, with a legend where they have names.

    The axis goes up to `least`, at least. At most as many series as there are colours are drawn.
    """
    count = max(map(len, series.values()), default=0)
    top = _round_up(max((value for values in series.values() for value in values), default=least) or least)
    top = max(top, least)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    base = _TOP + high

    def across(index: int) -> float:
        return _LEFT + (wide * index / (count - 1) if count > 1 else wide / 2)

    def up(value: float) -> float:
        return base - high * value / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{_xml(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_WIDTH / 2:g}" y="24" font-size="15" text-anchor="middle">{_xml(title)}</text>',
    ]
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        parts.append(
            f'<line x1="{_LEFT}" y1="{up(value):.1f}" x2="{_WIDTH - _RIGHT}" y2="{up(value):.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 8}" y="{up(value) + 4:.1f}" text-anchor="end">{short(value)}</text>'
        )
    parts += [
        f'<text x="{across(index):.1f}" y="{base + 18}" text-anchor="middle">{first + index}</text>'
        for index in range(0, count, max(1, math.ceil(count / _LABELS)))
    ]
    parts += [
        f'<path d="M{_LEFT} {_TOP}V{base}H{_WIDTH - _RIGHT}" fill="none" stroke="black"/>',
        f'<text x="{_LEFT + wide / 2:g}" y="{_HEIGHT - 14}" text-anchor="middle">{_xml(x)}</text>',
        f'<text x="18" y="{_TOP + high / 2:g}" text-anchor="middle" '
        f'transform="rotate(-90 18 {_TOP + high / 2:g})">{_xml(y)}</text>',
    ]
    for number, ((name, values), colour) in enumerate(zip(series.items(), _COLOURS, strict=False)):
        places = [(across(index), up(value)) for index, value in enumerate(values)]
        points = " ".join(f"{left:.1f},{above:.1f}" for left, above in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        label = f"{_xml(name)}, " if name else ""
        for run, ((left, above), value) in enumerate(zip(places, values, strict=True), first):
            parts.append(
                f'<circle cx="{left:.1f}" cy="{above:.1f}" r="3" fill="{colour}"><title>{label}{run}: {value:g}'
                "</title></circle>"
            )
        if name:
            left = _LEFT + wide * number / len(series)
            parts.append(f'<text x="{left:.1f}" y="{_TOP - 6}" fill="{colour}">{_xml(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def columns(title: str, values: Sequence[float | None], *, link: str, unit: str = "") -> str:
    """Return a column chart of one value a turn as an SVG element for a page, as wide as a phone.

    Its colours are the page's, by the classes `words`, `grid` and `column`. A column links to `link` and its turn's
    number. Where there are too many turns, each column is the largest of several. None is an unknown value.
    """
    stride = math.ceil(len(values) / _COLUMNS) or 1
    groups = [values[start : start + stride] for start in range(0, len(values), stride)]
    shown = [max((value for value in group if value is not None), default=None) for group in groups]
    largest = max((value for value in shown if value is not None), default=0)
    top = _round_up(largest) if largest > 0 else 1
    wide, high = _SMALL_WIDTH - _SMALL_LEFT - 4, _SMALL_BOTTOM - 8
    step = wide / max(len(shown), 20)
    parts = [f'<svg viewBox="0 0 {_SMALL_WIDTH} {_SMALL_HEIGHT}" role="group" aria-label="{_xml(title)}">']
    for tick in range(3):
        above = _SMALL_BOTTOM - high * tick / 2
        parts.append(
            f'<path class="grid" d="M{_SMALL_LEFT} {above:g}H{_SMALL_WIDTH - 4}"/>'
            f'<text class="words" x="{_SMALL_LEFT - 5}" y="{above + 4:g}" text-anchor="end">'
            f"{unit}{short(top * tick / 2)}</text>"
        )
    for index, value in enumerate(shown):
        first = index * stride + 1
        turns = f"turn {first}" if stride == 1 else f"turns {first} to {min(first + stride - 1, len(values))}, at most"
        tall = high * (value or 0) / top
        told = "unknown" if value is None else f"{unit}{value:,.6g}"
        parts.append(
            f'<a href="{link}{first}"><title>{turns}: {told}</title><rect class="column" '
            f'x="{_SMALL_LEFT + index * step:.2f}" y="{_SMALL_BOTTOM - tall:.2f}" '
            f'width="{step * 0.8:.2f}" height="{tall:.2f}"/></a>'
        )
    parts += [
        f'<text class="words" x="{_SMALL_LEFT}" y="{_SMALL_HEIGHT - 4}">turn 1</text>',
        f'<text class="words" x="{_SMALL_LEFT + step * len(shown):.2f}" y="{_SMALL_HEIGHT - 4}" '
        f'text-anchor="end">{len(values)}</text>'
        if len(shown) > 8
        else "",
    ]
    return "".join([*parts, "</svg>"])


def short(value: float) -> str:
    """Return a number in at most five characters: 950, 9.5k, 120k, 1.2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _round_up(value: float) -> float:
    """Return the next number that is 1, 2, 4, 6 or 8 times a power of ten: its quarters are easy to read."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 4, 6, 8) if step * power >= value), 10 * power)


def _xml(text: str) -> str:
    return escape("".join(letter if letter.isprintable() else " " for letter in text))
