"""What code is read into: one command with its words, and marks in these words for what is not known beforehand."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

UNKNOWN = "\ufffc"
"""Stands in a word for text that is known only when the code runs."""
ANY = "\ue100"
"""Stands in a word for what a shell pattern may match within one name."""
SCRATCH = "\ue101"
"""Stands for the name of a temporary file that the code itself makes."""
FETCHED = "\ue103"
"""Stands behind UNKNOWN for what a download gives."""

SUBSTITUTED = "/dev/fd/"
"""What the name of a process substitution begins with."""

RESERVED = re.compile("[\ue000-\ue1ff\ufffc]")
"""Characters that code may not bring along, since they have a meaning here."""
LONGEST_CODE = 100_000
"""Characters of code that are read."""
_ESCAPES = dict(zip("abefnrtv\\'\"?E", "\a\b\x1b\f\n\r\t\v\\'\"?\x1b", strict=True))
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|[abefnrtv\\'\"?E])")

_SHOWN = 200
"""Characters of a long command that are shown, at its beginning; at its end half as many."""


class Unreadable(Exception):
    """The code is nested deeper, or does more, than what anybody writes by hand."""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command. `cwd` is where it runs, `writes` and `reads` are what its redirections name, as paths.

    `words` have been seen through what stands before them: `sudo -u x rm y` is `rm y`. `feeds` is the command before
    it in a pipeline, `stdin` the text of its here document. `listed` says that it gets more words from its input
    (xargs). `opaque` marks a shell that runs text which is not known.
    """

    words: tuple[str, ...]
    cwd: str
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    feeds: Command | None = None
    stdin: str | None = None
    listed: bool = False
    opaque: bool = False

    @property
    def name(self) -> str:
        """The program's name without its directory; empty when it is not known."""
        word = self.words[0] if self.words else ""
        return "" if UNKNOWN in word or ANY in word else posixpath.basename(word)

    def path(self, word: str) -> str:
        """Return a word as an absolute path, or as one that begins with UNKNOWN."""
        return absolute(word, self.cwd)

    @property
    def shown(self) -> str:
        """The command for people to read."""
        if len(self.words) <= _SHOWN and sum(map(len, self.words)) <= 2 * _SHOWN:
            return show(" ".join(self.words))
        head, tail = self.words[:_SHOWN], self.words[-_SHOWN // 2 :]
        return show(f"{' '.join(head)[:_SHOWN]} ... {' '.join(tail)[-_SHOWN // 2 :]}")


def show(text: str) -> str:
    """Return text of a command for people to read."""
    return text.replace(UNKNOWN, "…").replace(ANY, "*").replace(SCRATCH, "(temporary)").replace(FETCHED, "")


def absolute(path: str, cwd: str) -> str:
    """Return a path from `cwd` on, with `.` and `..` worked out; one that begins with UNKNOWN stays as it is."""
    path = path.replace(FETCHED, "")
    if path.startswith(UNKNOWN):
        return path
    whole = posixpath.join(cwd, path)
    return whole if whole.startswith(UNKNOWN) else "/" + posixpath.normpath(whole).lstrip("/")


def unescaped(text: str) -> str:
    """Return text with its backslash sequences replaced by what they stand for, as in `$'...'`."""

    def char(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU":
            number = int(code[1:], 16)
            return chr(number) if number < 0x110000 else UNKNOWN
        return chr(int(code, 8) & 0xFF) if code.isdigit() else _ESCAPES[code]

    return RESERVED.sub(UNKNOWN, _ESCAPE.sub(char, text))


def printed(command: Command | None) -> str | None:
    """Return what a command prints, where that can be known without running it."""
    if command is None:
        return None
    words = command.words[1:]
    if any(UNKNOWN in word or ANY in word for word in words):
        return None
    match command.name:
        case "echo":
            return " ".join(words[1:] if words and re.fullmatch(r"-[neE]+", words[0]) else words)
        case "printf" if words:
            pattern, *values = words
            filled = re.sub(r"%[sb]", lambda _: values.pop(0) if values else "", pattern)
            return " ".join([unescaped(filled), *values])
        case "cat" if not words:
            return command.stdin if command.stdin is not None else printed(command.feeds)
        case "pwd":
            return command.cwd
        case "mktemp":
            return f"/{SCRATCH}"
        case "which" | "realpath" | "readlink" if words:
            return words[-1]
        case "dirname" if words:
            return posixpath.dirname(words[-1])
    return None
