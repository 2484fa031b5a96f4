"""A terminal that is taken over for a while: one key at a time comes in, whole screens go out, and it is given back.

`enter` and `leave` may be called at any time and in any order; after `leave` the terminal is as it was found.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[2J"
"""The other screen, no cursor, no wrapping at the right edge, and pasted text comes marked."""
_LEAVE = "\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
_PASTED, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?")
_NAMES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x0c": "redraw",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key by its name, or text: what one key writes (`char`), or what was pasted (`paste`)."""

    name: str
    text: str = ""


class Keys:
    """Makes keys of what a terminal sends, in pieces of any size."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode
        self._left = ""

    @property
    def unfinished(self) -> bool:
        """Whether something came that may be the beginning of a longer key; `end` says that it is not."""
        return bool(self._left) and not self._left.startswith(_PASTED)

    def feed(self, data: bytes) -> list[Key]:
        """Return the keys that are complete by now."""
        self._left += self._decode(data)
        found: list[Key] = []
        while self._left:
            if self._left.startswith(_PASTED):
                text, end, rest = self._left.removeprefix(_PASTED).partition(_PASTE_ENDS)
                if not end:
                    break
                found.append(Key("paste", text.replace("\r\n", "\n").replace("\r", "\n")))
                self._left = rest
            elif self._left[0] == "\x1b":
                if _UNFINISHED.fullmatch(self._left):
                    break
                if sequence := _SEQUENCE.match(self._left):
                    name = _NAMES.get(sequence[0])
                    found += [Key(name)] if name else []
                    self._left = self._left[sequence.end() :]
                else:
                    found.append(Key("escape"))
                    self._left = self._left[1:]
            else:
                letter, self._left = self._left[0], self._left[1:]
                if letter in _NAMES:
                    found.append(Key(_NAMES[letter]))
                elif letter >= " ":
                    found.append(Key("char", letter))
        return found

    def end(self) -> list[Key]:
        """Return what the unfinished rest means when nothing more comes."""
        left, self._left = self._left, ""
        return [Key("escape")] if left else []


class Terminal:
    """The terminal on two descriptors."""

    def __init__(self, read: int, write: int) -> None:
        self.read = read
        self._write = write
        self._former: list[Any] | None = None
        self._shown: list[str] = []
        self._size = (0, 0)

    def size(self) -> tuple[int, int]:
        """Return its columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._write)
        except OSError:
            columns, lines = 80, 24
        return columns or 80, lines or 24

    def enter(self) -> None:
        """Take the terminal over; the keys for interrupt and suspend still send their signals."""
        if self._former is None:
            self._former = termios.tcgetattr(self.read)
        modes = list(self._former)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6] = list(modes[6])
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.read, termios.TCSADRAIN, modes)
        self._shown = []
        self._send(_ENTER)

    def leave(self) -> None:
        """Give it back; a terminal that has gone is no trouble."""
        if self._former is None:
            return
        former, self._former = self._former, None
        with contextlib.suppress(OSError):
            self._send(_LEAVE)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self.read, termios.TCSADRAIN, former)

    def show(self, lines: Sequence[str]) -> None:
        """Show a screen: a line for each of its lines, as wide as it is. Only what differs is sent."""
        size = self.size()
        out = []
        if size != self._size or len(lines) != len(self._shown):
            self._size, self._shown = size, []
            out.append("\x1b[0m\x1b[2J")
        for number, line in enumerate(lines, 1):
            if number > len(self._shown) or self._shown[number - 1] != line:
                out.append(f"\x1b[{number};1H{line}")
        self._shown = list(lines)
        if out:
            self._send("".join(out))

    def forget(self) -> None:
        """Send the whole screen the next time."""
        self._shown = []

    def _send(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._write, data) :]
