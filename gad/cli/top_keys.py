"""What gad top's keys do: which session is chosen, whether it is followed, and what is being typed to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from gad.cli.board import Look, Row
from gad.cli.terminal import Key
from gad.errors import GadError
from gad.spool import drop
from gad.spool.files import open_regular
from gad.spool.names import OUTPUT

_LONGEST = 1 << 20
"""Bytes of a reply; the daemon may take less and then says so."""
_TAIL = 1 << 18
"""Bytes of an output's end that can be seen here; gad tail shows all of it."""


class Tail:
    """The end of a session's output.txt, read again when it has grown."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = (0, 0)
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        """Return its last lines: the same list for as long as nothing has changed."""
        try:
            descriptor = open_regular(str(self._path), os.O_RDONLY)
        except OSError:
            self._mark, self._lines = (0, 0), []
            return self._lines
        try:
            found = os.fstat(descriptor)
            if (found.st_ino, found.st_size) != self._mark:
                start = max(0, found.st_size - _TAIL)
                text = os.pread(descriptor, _TAIL, start).decode("utf-8", "replace")
                self._mark = (found.st_ino, found.st_size)
                self._lines = text.split("\n")[1 if start else 0 :]
        finally:
            os.close(descriptor)
        return self._lines


class View:
    """What is shown and what is under way. `prompt` says what the bottom line asks for."""

    def __init__(self, spool: Path, *, everything: bool = False) -> None:
        self.spool = spool
        self.everything = everything
        self.look: Look | None = None
        self.selected = ""
        self.first = 0
        """The first row on the screen; the screen moves it so that the chosen one is seen."""
        self.page = 1
        """How many lines a page has; the screen says so."""
        self.tail: Tail | None = None
        self.back = 0
        """How many lines the followed output is turned back from its end; the screen keeps it within bounds."""
        self.prompt: Literal["", "reply", "stop"] = ""
        self.text = ""
        self.said = ""

    @property
    def rows(self) -> Sequence[Row]:
        """The sessions that can be chosen."""
        return self.look.shown(self.everything) if self.look else ()

    @property
    def chosen(self) -> Row | None:
        """The chosen session; when followed or answered, also one that is no longer listed."""
        return next((row for row in (self.look.rows if self.look else ()) if row.name == self.selected), None)

    def take(self, look: Look) -> None:
        """Take in a new look; the chosen session stays chosen for as long as it is there."""
        index = self._index()
        self.look = look
        rows = self.rows
        if not (self.tail or self.prompt) and rows and not any(row.name == self.selected for row in rows):
            self.selected = rows[min(index, len(rows) - 1)].name

    def press(self, key: Key) -> bool:
        """Do what a key says; return False when it says to leave."""
        self.said = ""
        if self.prompt == "stop":
            if key == Key("char", "y"):
                self._do("is asked to stop", drop.stop)
            self.prompt = ""
        elif self.prompt == "reply":
            self._type(key)
        elif key == Key("char", "q") or (key.name == "escape" and self.tail):
            if self.tail is None:
                return False
            self.tail = None
            self.back = 0
            if self.look:
                self.take(self.look)
        elif key.name == "char" and key.text in ("r", "s"):
            if self.chosen:
                self.prompt, self.text = ("reply" if key.text == "r" else "stop"), ""
        elif self.tail:
            self.back = max(0, self.back + self._far(key, -1))
        elif key.name == "enter" or key == Key("char", "f"):
            if self.chosen:
                self.tail, self.back = Tail(self.spool / self.selected / OUTPUT), 0
        elif key == Key("char", "a"):
            self.everything = not self.everything
            if self.look:
                self.take(self.look)
        elif rows := self.rows:
            self.selected = rows[max(0, min(len(rows) - 1, self._index() + self._far(key, 1)))].name
        return True

    def _far(self, key: Key, way: int) -> int:
        """Return how many lines a key moves; `way` is the sign of moving down."""
        name = {"k": "up", "j": "down", "g": "home", "G": "end", " ": "page down", "b": "page up"}.get(
            key.text, key.name
        )
        steps = {"up": -1, "down": 1, "page up": -self.page, "page down": self.page, "home": -(1 << 40), "end": 1 << 40}
        return way * steps.get(name, 0)

    def _index(self) -> int:
        return next((index for index, row in enumerate(self.rows) if row.name == self.selected), 0)

    def _type(self, key: Key) -> None:
        if key.name in ("char", "paste"):
            self.text += key.text
        elif key.name == "backspace":
            self.text = self.text[:-1]
        elif key.name == "clear":
            self.text = ""
        elif key.name in ("enter", "escape"):
            if key.name == "enter" and self.text.strip():
                data = self.text.encode("utf-8", "replace")
                self._do("has your reply", lambda directory: _reply(directory, data))
            self.prompt, self.text = ("", "") if not self.said.startswith("!") else (self.prompt, self.text)

    def _do(self, said: str, work: Callable[[Path], None]) -> None:
        """Put a client's file into the chosen session; what hinders that is said, and nothing more happens."""
        try:
            work(self.spool / self.selected)
        except (GadError, OSError) as exc:
            self.said = f"! {str(exc).replace(f'{self.spool}/', '')}"
        else:
            self.said = f"{self.selected} {said}"


def _reply(directory: Path, data: bytes) -> None:
    drop.check_text(data, "the reply", _LONGEST)
    drop.reply(directory, data, patience=0.0)
