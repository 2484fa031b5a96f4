"""How gad top looks: a list of sessions with the chosen one's particulars below, or the output of one."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from gad.cli.board import Look, Row
from gad.cli.chart import short
from gad.cli.listing import age, dollars
from gad.cli.plain import one_line
from gad.cli.top_keys import View

_STYLES = {"running": "green", "asking": "bold yellow", "deferred": "magenta", "failed": "red", "rejected": "red"}
_HEAD = "bold reverse"
_LIST_KEYS = "↑↓ move  enter follow  r reply  s stop  a all  q quit"
_TAIL_KEYS = "↑↓ pages  end newest  r reply  s stop  q back"
_NAME = 22
_DETAILS = 5
"""Lines below the list, when there is room."""
_ROOMY = 14
"""Lines from which on there is."""
_SEEN = 2000
"""Characters of what a session does that are looked at: a question may be very long."""


class Screen:
    """Draws a view: the same lines for the same view and size, but for the time."""

    def __init__(self) -> None:
        self._console = Console(file=io.StringIO(), force_terminal=True, legacy_windows=False, width=80)
        self._wrapped: tuple[list[str] | None, int, list[str]] = (None, 0, [])

    def draw(self, view: View, columns: int, lines: int) -> list[str]:
        """Return the screen's lines, each exactly as wide as the screen."""
        body = max(0, lines - 1)
        drawn = self._tail(view, columns, body) if view.tail else _list(view, columns, body)
        drawn = [*drawn[:body], *[Text()] * (body - len(drawn)), _bottom(view, columns)]
        return [self._line(text, columns) for text in drawn]

    def _line(self, text: Text, columns: int) -> str:
        text.truncate(columns, overflow="ellipsis", pad=True)
        with self._console.capture() as captured:
            self._console.print(text, end="", no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
        return captured.get()

    def _tail(self, view: View, columns: int, lines: int) -> list[Text]:
        assert view.tail is not None
        row = view.chosen
        about = f"{row.state}, {row.doing.text}" if row else "has gone"
        head = Text(one_line(f"{view.selected}: {about}"), style=_HEAD)
        found = view.tail.lines()
        if self._wrapped[0] is not found or self._wrapped[1] != columns:
            self._wrapped = (found, columns, [part for line in found for part in _wrap(line, columns)])
        wrapped = self._wrapped[2]
        view.page = room = max(1, lines - 1)
        view.back = min(view.back, max(0, len(wrapped) - room))
        end = len(wrapped) - view.back
        return [head, *(Text(line) for line in wrapped[max(0, end - room) : end])]


def _list(view: View, columns: int, lines: int) -> list[Text]:
    now = time.time()
    if view.look is None:
        return [Text(f"looking at {view.spool}", style="dim")]
    rows, details = view.rows, _details(view, columns) if lines >= _ROOMY else []
    view.page = room = max(1, lines - 3 - len(details))
    index = next((number for number, row in enumerate(rows) if row.name == view.selected), 0)
    view.first = max(0, min(max(view.first, index - room + 1), index, len(rows) - room))
    name = max(8, min(_NAME, columns - 50))
    head = f"{'SESSION':<{name}} {'STATE':<8} {'TURN':>4} {'TOKENS':>6} {'COST':>9} {'FOR':>4} DOING"
    drawn = [*_summary(view, view.look, columns), Text(head, style=_HEAD)]
    for number, row in enumerate(rows[view.first : view.first + room], view.first):
        drawn.append(_row(row, name, now, columns, chosen=number == index))
    if not rows:
        hint = "" if view.everything else "; a shows those at rest as well"
        drawn.append(Text(f"no session works or asks{hint}", style="dim"))
    return [*drawn, *[Text()] * (lines - len(drawn) - len(details)), *details]


def _summary(view: View, look: Look, columns: int) -> list[Text]:
    """Return two lines about all sessions together."""
    clock = time.strftime("%H:%M:%S")
    daemon = f"daemon {look.daemon}" if look.daemon else "no daemon runs: gad up"
    first = Text(f"gad top  {_ended(str(view.spool.parent), max(10, columns - 45))}  ", style="bold")
    first.append(daemon, style="green" if look.daemon else "bold red")
    first.truncate(max(0, columns - len(clock) - 1), overflow="ellipsis", pad=True)
    first.append(f" {clock}")
    totals = look.totals
    states = "  ".join(
        f"{state} {totals.states[state]}"
        for state in ("running", "asking", "deferred", "queued", "new", "done", "failed", "stopped", "rejected")
        if totals.states.get(state)
    )
    spent = (
        f"{short(totals.turns)} turns  {short(totals.tokens)} tokens  ${totals.usd:.2f}{'' if totals.priced else '+?'}"
    )
    return [first, Text(f"{spent}  {states}")]


def _row(row: Row, name: int, now: float, columns: int, *, chosen: bool) -> Text:
    cost, since = dollars(row.usd), age(now, row.doing.since)
    line = Text(f"{_fit(row.name, name)} ")
    line.append(f"{_fit(one_line(row.state), 8)} ", style=_STYLES.get(row.state, ""))
    line.append(f"{short(row.turns):>4} {short(row.tokens):>6} {cost:>9} {since:>4} {one_line(row.doing.text[:_SEEN])}")
    if chosen:
        line.truncate(columns, overflow="ellipsis", pad=True)
        line.stylize("reverse")
    return line


def _details(view: View, columns: int) -> list[Text]:
    """Return what there is to say of the chosen session: its model, all that it does, and what may be answered."""
    row = view.chosen
    if row is None:
        return []
    facts = [row.name, *(str(row.status[key]) for key in ("model", "failover") if row.status.get(key))]
    children = row.status.get("children")
    if isinstance(children, list) and children:
        facts.append(f"{len(children)} children")
    lines = [part for line in row.doing.text[:_SEEN].split("\n") for part in _wrap(line, columns)]
    candidates = row.status.get("candidates")
    if isinstance(candidates, list) and candidates:
        lines = [*lines[: _DETAILS - 2], "answers: " + " | ".join(str(one) for one in candidates)]
    if len(lines) >= _DETAILS:
        lines = [*lines[: _DETAILS - 2], lines[_DETAILS - 2][: columns - 2] + " …"]
    head = f"─ {'  '.join(facts)} "
    return [
        Text(one_line(head) + "─" * max(0, columns - cell_len(one_line(head))), style="dim"),
        *(Text(one_line(line)) for line in lines),
        *[Text()] * (_DETAILS - 1 - len(lines)),
    ]


def _bottom(view: View, columns: int) -> Text:
    if view.prompt == "stop":
        return Text(f"stop {view.selected}? y stops it, any other key does not", style="bold yellow")
    if view.prompt == "reply":
        if view.said:
            return Text(one_line(view.said), style="bold red")
        head = f"reply to {_fit(view.selected, min(_NAME, cell_len(view.selected)))} (enter sends, esc does not): "
        if cell_len(head) > columns - 20:
            head = "reply: "
        typed = one_line(view.text.replace("\n", "⏎"))
        while cell_len(typed) > max(1, columns - cell_len(head) - 1):
            typed = typed[max(1, (cell_len(typed) - columns) // 2) :]
        line = Text(head, style="bold")
        line.append(typed, style="not bold")
        line.append(" ", style="reverse")
        return line
    if view.said:
        return Text(one_line(view.said), style="bold red" if view.said.startswith("!") else "bold green")
    return Text(_TAIL_KEYS if view.tail else _LIST_KEYS, style="dim")


def _wrap(line: str, columns: int) -> Sequence[str]:
    """Return a line in pieces that fit; tabs become spaces, and what would steer the terminal is left out."""
    text = one_line(line.expandtabs(8)).rstrip()
    if text.isascii():
        return [text[start : start + columns] for start in range(0, len(text), columns)] or [""]
    return chop_cells(text, columns) or [""]


def _fit(text: str, width: int) -> str:
    """Return text that is exactly so wide; a long one loses its middle, as names differ at their ends."""
    if len(text) > width:
        half = (width - 1) // 2
        text = text[: width - 1 - half] + "…" + text[len(text) - half :]
    return text.ljust(width)


def _ended(text: str, width: int) -> str:
    """Return the end of a path that is at most so long."""
    text = one_line(text)
    return text if len(text) <= width else "…" + text[1 - width :]
