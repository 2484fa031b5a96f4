"""A real terminal for tests: a process in a pty, and the screen that its output makes."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

_PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[=>]|\x1b\][^\x07]*\x07|(.)", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:\[[?0-9;]*|\][^\x07]*)?\Z")
_INITIAL = {"1049": False, "25": True, "7": True, "2004": False}


class Terminal:
    """A process that has a terminal of its own; `modes` are the private modes that it has set, by number."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], *, columns: int = 80, lines: int = 24
    ) -> None:
        self._master, slave = os.openpty()
        self.columns, self.lines = columns, lines
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self._master)
        # setsid gives the process this terminal for its own: the keys for signals, and hanging up, then work.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=slave, stdout=slave, stderr=slave, env=dict(environ)
        )
        os.close(slave)
        self.modes = dict(_INITIAL)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._left = ""
        self._row = self._column = 0
        self._screens: dict[bool, list[list[str]]] = {}
        self._clear()

    # -- what it shows -----------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The screen as it is now."""
        self._read(0.0)
        return "\n".join("".join(row).rstrip() for row in self._screen)

    def until(self, condition: str | Callable[[], object], seconds: float = 15.0) -> str:
        """Wait until these words stand on the screen, or a condition is true, and return the screen."""
        deadline = time.monotonic() + seconds
        while not (condition() if callable(condition) else condition in self.text):
            assert time.monotonic() < deadline, f"{condition} did not come:\n{self.text}"
            self._read(0.02)
        return self.text

    @property
    def given_back(self) -> bool:
        """Whether the terminal is as it was before the process had it."""
        self._read(0.0)
        return self.modes == _INITIAL and self.attributes() == self.before

    def attributes(self) -> list[Any]:
        """Return the terminal's settings."""
        return termios.tcgetattr(self._master)

    # -- what is done to it ------------------------------------------------------------------------

    def press(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the window another size."""
        self.columns, self.lines = columns, lines
        self._screens = {}
        self._clear()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def ends(self, seconds: float = 15.0) -> int:
        """Return the exit code once the process has ended."""
        self.until(lambda: self.process.poll() is not None, seconds)
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)

    # -- the screen --------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._screen = [[" "] * self.columns for _ in range(self.lines)]

    def _read(self, seconds: float) -> None:
        while select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # nobody has the terminal open any more
                break
            self._left += self._decode(data)
            seconds = 0.0
        unfinished = _UNFINISHED.search(self._left)
        end = unfinished.start() if unfinished else len(self._left)
        whole, self._left = self._left[:end], self._left[end:]
        for piece in _PIECE.finditer(whole):
            if piece[3]:
                self._put(piece[3])
            elif piece[2]:
                self._obey(piece[1], piece[2])

    def _put(self, letter: str) -> None:
        if letter == "\n":
            if self._row == self.lines - 1:
                self._screen = [*self._screen[1:], [" "] * self.columns]
            self._row = min(self._row + 1, self.lines - 1)
        elif letter == "\r":
            self._column = 0
        elif letter == "\x08":
            self._column = max(0, self._column - 1)
        elif letter >= " ":
            wide = 2 if unicodedata.east_asian_width(letter) in "WF" else 0 if unicodedata.combining(letter) else 1
            if self._column + wide > self.columns:
                assert self.modes["7"], f"text goes beyond the right edge of line {self._row + 1}:\n{self.text}"
                self._column = 0
                self._put("\n")
            for cell in (letter, "")[:wide]:
                self._screen[self._row][self._column] = cell
                self._column += 1

    def _obey(self, numbers: str, command: str) -> None:
        values = [int(number) for number in numbers.lstrip("?").split(";") if number]
        if command in "hl" and numbers.startswith("?"):
            mode, on = numbers[1:], command == "h"
            if mode == "1049" and on != self.modes[mode]:
                self._screens[not on] = self._screen
                self._screen = self._screens.get(on) or [[" "] * self.columns for _ in range(self.lines)]
            self.modes[mode] = on
        elif command == "H":
            self._row, self._column = ([*values, 1, 1][0] - 1, [*values, 1, 1][1] - 1)
        elif command == "J" and values == [2]:
            self._clear()
        elif command == "K":
            self._screen[self._row][self._column :] = [" "] * (self.columns - self._column)
        elif command == "C":
            self._column = min(self.columns - 1, self._column + (values or [1])[0])
