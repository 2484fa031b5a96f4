"""gad top: what all sessions do, live, and the keys to follow, answer and stop them.

Looking reads files and nothing else; what the keys do is done with the client's files, as gad reply and gad stop do.
The terminal is given back whatever ends or suspends the command.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gad.cli import Place, exits
from gad.cli.board import Board, Look
from gad.cli.listing import age, dollars, table
from gad.cli.show import json_bytes

if TYPE_CHECKING:
    from gad.cli.terminal import Key, Terminal
    from gad.cli.top_keys import View

_TICK = 1.0
_ESCAPE_SECONDS = 0.05
"""How long the rest of a key may take to come."""
_DEADLY = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@click.command("top")
@click.option("--all", "-a", "everything", is_flag=True, help="Sessions that are at rest as well.")
@click.option("--once", is_flag=True, help="Print what there is now and end.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON object.")
@click.pass_obj
def top_command(place: Place, everything: bool, once: bool, as_json: bool) -> None:
    """Show live what each session does, how many turns and tokens it has taken, and what it has cost.

    The bottom line names the keys: they move, follow a session's output, answer it, stop it and leave.
    """
    board = Board(place.spool())
    if once or as_json:
        _print(board.look(), everything, as_json=as_json)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        raise click.UsageError("gad top needs a terminal that it can draw on; gad top --once prints what there is now")
    from gad.cli.terminal import Terminal
    from gad.cli.top_keys import View

    view = View(place.spool(), everything=everything)
    sys.exit(asyncio.run(_Live(board, view, Terminal(sys.stdin.fileno(), sys.stdout.fileno())).run()))


def _print(look: Look, everything: bool, *, as_json: bool) -> None:
    shown, totals = look.shown(everything), look.totals
    if as_json:
        told = {"states": totals.states, "turns": totals.turns, "tokens": totals.tokens, "cost_usd": totals.usd}
        found = {"daemon": look.daemon or None, "totals": told | {"cost_known": totals.priced}}
        click.echo(json_bytes(found | {"sessions": [row.to_json() for row in shown]}))
        return
    now = time.time()
    head = ("SESSION", "STATE", "FOR", "TURNS", "TOKENS", "COST", "DOING")
    table(
        head,
        [
            (
                row.name,
                row.state,
                age(now, row.doing.since),
                str(row.turns),
                str(row.tokens),
                dollars(row.usd),
                row.doing.text,
            )
            for row in shown
        ],
    )
    states = ", ".join(f"{count} {state}" for state, count in sorted(totals.states.items())) or "no sessions"
    unknown = "" if totals.priced else ", some costs unknown"
    click.echo(f"{states}; {totals.turns} turns, {totals.tokens} tokens, {dollars(totals.usd)}{unknown}", err=True)
    click.echo(f"daemon: {look.daemon or 'none runs; start one with: gad up'}", err=True)


class _Live:
    """The view on a terminal, for as long as somebody looks."""

    def __init__(self, board: Board, view: View, terminal: Terminal) -> None:
        from gad.cli.terminal import Keys
        from gad.cli.top_screen import Screen

        self._board = board
        self._view = view
        self._terminal = terminal
        self._screen = Screen()
        self._keys = Keys()
        self._waiting: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[int]

    async def run(self) -> int:
        """Show and obey until the end, and return the exit code."""
        loop = self._loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        for deadly in _DEADLY:
            loop.add_signal_handler(deadly, self._die, deadly)
        loop.add_signal_handler(signal.SIGINT, self._finish, exits.INTERRUPTED)
        loop.add_signal_handler(signal.SIGTSTP, self._careful, self._suspend)
        loop.add_signal_handler(signal.SIGCONT, self._careful, self._again)
        loop.add_signal_handler(signal.SIGWINCH, self._careful, self._draw)
        try:
            self._terminal.enter()
            loop.add_reader(self._terminal.read, self._careful, self._read)
            self._draw()
            while not self._over.done():
                looking = asyncio.ensure_future(asyncio.to_thread(self._board.look))
                await asyncio.wait((looking, self._over), return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    self._view.take(looking.result())
                    self._draw()
                await asyncio.wait((self._over,), timeout=_TICK)
            return self._over.result()
        finally:
            loop.remove_reader(self._terminal.read)
            self._terminal.leave()

    def _finish(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    def _die(self, deadly: signal.Signals) -> None:
        """Give the terminal back and die of the signal, as whoever sent it expects."""
        self._terminal.leave()
        signal.signal(deadly, signal.SIG_DFL)
        signal.raise_signal(deadly)

    def _suspend(self) -> None:
        """Give the terminal back, stop as the signal wants, and take it again when somebody continues us."""
        self._terminal.leave()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        signal.raise_signal(signal.SIGTSTP)
        self._loop.add_signal_handler(signal.SIGTSTP, self._careful, self._suspend)
        self._again()

    def _again(self) -> None:
        self._terminal.enter()
        self._draw()

    def _careful(self, work: Callable[[], None]) -> None:
        """Do something in a callback; what goes wrong there ends the command."""
        if self._over.done():
            return
        try:
            work()
        except Exception as exc:
            self._over.set_exception(exc)

    def _read(self) -> None:
        try:
            data = os.read(self._terminal.read, 1 << 16)
        except OSError:
            data = b""
        if not data:  # the terminal has gone
            self._finish(exits.ERROR)
            return
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        found = self._keys.feed(data)
        for key in found:
            self._obey(key)
        if self._keys.unfinished:
            self._waiting = self._loop.call_later(_ESCAPE_SECONDS, self._careful, self._unfinished)
        if found:
            self._draw()

    def _unfinished(self) -> None:
        for key in self._keys.end():
            self._obey(key)
        self._draw()

    def _obey(self, key: Key) -> None:
        if key.name == "redraw":
            self._terminal.forget()
        elif not self._view.press(key):
            self._finish(exits.DONE)

    def _draw(self) -> None:
        columns, lines = self._terminal.size()
        self._terminal.show(self._screen.draw(self._view, columns, lines))
