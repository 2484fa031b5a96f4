"""Reads shell code as far as that can be done without running it: the commands in it, their words and redirections.

It is a net and no wall: quotes, backslashes, braces, variables, substitutions that only print, here documents, pipes
into a shell, `sudo`, `env`, `xargs`, `sh -c` and their like are seen through; what is only known when the code runs is
`UNKNOWN`. Text that the code fetches, decodes or reads from a file is never seen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gad.core.commands import FETCHED, LONGEST_CODE, SCRATCH, UNKNOWN, Command, Unreadable, absolute, printed
from gad.core.prefixes import (
    PREFIXES,
    SHELLS,
    STDIN,
    behind,
    directory,
    find_roots,
    inline,
    options_end,
    reads_stdin,
    words_of,
)
from gad.core.words import ASSIGN, DEEPEST, WordReader

_REDIRECT = re.compile(r"(?:\d+|&|\{\w+\})?(<<<|<<-?|<>|<&|>>|>\||>&|>|<)", re.ASCII)


_COMPOUND = words_of("{ if while until for select case")
_COMPOUND_ENDS = words_of("} fi done esac")
_KEYWORDS = words_of("if then elif else fi do done while until esac ! { } coproc")
_DECLARE = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SSH = frozenset({"ssh", "autossh"})
_SSH_VALUES = words_of("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w")


_LONGEST_PATH = 4096
_LONGEST_PREFIX = 1000
"""Words that may stand before the command that they are about."""
_PER_WORD = 40
"""Characters that each word of a command counts for."""
_MOST = 20_000
"""Commands of one code that are looked at."""
_ROOM = 4_000_000
"""Characters that the variables of one code may give altogether, and the words of its commands."""


def read_shell(code: str, cwd: str, home: str, variables: Mapping[str, str] | None = None) -> list[Command]:
    """Return the commands of shell code that begins in the directory `cwd`. Raises Unreadable.

    `variables` are those of its environment that are known beforehand, beside HOME and PWD.
    """
    if len(code) > LONGEST_CODE:
        raise Unreadable
    reader = _reader(code, cwd, home, variables or {})
    reader.sequence()
    return reader.found


def read_words(words: Sequence[str], cwd: str, home: str, stdin: str | None = None) -> list[Command]:
    """Return the commands that a list of words runs, which no shell has read. Raises Unreadable."""
    reader = _reader("", cwd, home, {})
    reader.finish(_Draft(words=list(words), stdin=stdin))
    return reader.found


def _reader(code: str, cwd: str, home: str, known: Mapping[str, str]) -> _Reader:
    variables = {"HOME": home, "PWD": cwd, "IFS": " \t\n", "TMPDIR": f"/{SCRATCH}", **known}
    return _Reader(code, cwd, variables, [], [_ROOM], 0)


@dataclass(slots=True)
class _Draft:
    feeds: Command | None = None
    words: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    stdin: str | None = None


class _Reader(WordReader):
    def __init__(
        self, code: str, cwd: str, variables: dict[str, str], found: list[Command], room: list[int], depth: int
    ) -> None:
        super().__init__(code, cwd, variables, found, room, depth)
        self._left: list[str] = []  # directories that pushd has left
        self._fed: list[Command | None] = [None]  # what the loops and groups that are open get as their input
        self._after_bodies = 0  # where the code goes on after the here documents of the present line

    def sequence(self, close: str = "") -> None:
        """Read commands up to the closing bracket, or to the end."""
        draft = self._draft()
        while self.at < len(self.code):
            char = self.code[self.at]
            if char in " \t\r":
                self.at += 1
            elif self.code.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.code.find("\n", self.at)
                self.at = len(self.code) if end < 0 else end
            elif char == "\n":
                self.at, self._after_bodies = max(self.at + 1, self._after_bodies), 0
                if draft.words or draft.writes or draft.feeds is None:
                    self.finish(draft)
                    draft = self._draft()
            elif not self.code.startswith(("<(", ">("), self.at) and (found := _REDIRECT.match(self.code, self.at)):
                self.at = found.end()
                self._redirect(found[1], draft)
            elif char == "|" and not self.code.startswith("||", self.at):
                self.at += 2 if self.code.startswith("|&", self.at) else 1
                feeds = self.finish(draft)
                if feeds is None and self.found:  # a loop or a group ends here, and what it prints is not known
                    feeds = Command((UNKNOWN,), self.cwd)
                draft = _Draft(feeds=feeds)
            elif char in ";&|":
                self.at += 1
                self.finish(draft)
                draft = self._draft()
            elif char == "(":
                self.at += 1
                if not self.code.startswith(")", self.at):
                    self.finish(draft)
                    self._nested(draft.feeds)
                else:  # a function's name stood before
                    self.at += 1
                draft = self._draft()
            elif char == ")":
                self.at += 1
                if close:
                    break
                self.finish(draft)
                draft = self._draft()
            else:
                draft.words += self._word()
        self.finish(draft)

    def _draft(self) -> _Draft:
        return _Draft(feeds=self._fed[-1])

    def _nested(self, feeds: Command | None = None) -> list[Command]:
        """Read up to the closing bracket in a shell of its own; return what it runs."""
        before, cwd, variables = len(self.found), self.cwd, dict(self.variables)
        left, fed = list(self._left), self._fed
        self._fed = [feeds]
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable
        self.sequence(")")
        self.depth -= 1
        self.cwd, self.variables, self._left, self._fed = cwd, variables, left, fed
        return self.found[before:]

    def _code(self, code: str, cwd: str | None = None, *, own: bool = True) -> list[Command]:
        """Read code that stands in a word; unless it has a shell of its `own`, what it sets stays set."""
        before = len(self.found)
        variables = dict(self.variables) if own else self.variables
        inner = _Reader(code, self.cwd if cwd is None else cwd, variables, self.found, self.room, self.depth + 1)
        inner.sequence()
        if not own:
            self.cwd = inner.cwd
        return self.found[before:]

    def _redirect(self, sign: str, draft: _Draft) -> None:
        while self.code.startswith((" ", "\t", "\\\n"), self.at):
            self.at += 2 if self.code[self.at] == "\\" else 1
        start = self.at
        words = self._word() if self.at < len(self.code) and self.code[self.at] not in "\n;|" else []
        if sign == "<<<":
            draft.stdin = " ".join(words)
        elif sign.startswith("<<"):
            text = self._body("".join(words), tabs=sign == "<<-")
            quoted = any(char in self.code[start : self.at] for char in "'\"\\")
            draft.stdin = text if quoted else self._expanded(text, '"')
        elif sign in (">&", "<&") and all(re.fullmatch(r"\d*-?", word) for word in words):
            pass
        elif sign in ("<", "<&"):
            draft.reads += words
        else:
            draft.writes += words

    def _body(self, end: str, *, tabs: bool) -> str:
        """Return a here document's text, which begins on the next line and is left out when the line ends."""
        start = self._after_bodies or self.code.find("\n", self.at) + 1 or len(self.code)
        at = start
        while at < len(self.code):
            stop = self.code.find("\n", at)
            stop = len(self.code) if stop < 0 else stop
            line = self.code[at:stop]
            if (line.lstrip("\t") if tabs else line) == end:
                self._after_bodies = stop
                return self.code[start:at]
            at = stop + 1
        self._after_bodies = len(self.code)
        return self.code[start:]

    def finish(self, draft: _Draft) -> Command | None:
        """Take in one command: what it sets, and what it runs in turn."""
        words, listed, behind_prefix, cwd = draft.words, False, False, ""
        self._spend(len(words) * _PER_WORD)
        while words:
            if len(draft.words) - len(words) > _LONGEST_PREFIX:
                raise Unreadable
            name = posixpath.basename(words[0])
            if words[0] in _COMPOUND:
                self._fed.append(draft.feeds)
            elif words[0] in _COMPOUND_ENDS and len(self._fed) > 1:
                self._fed.pop()
            if set_ := ASSIGN.match(words[0]):
                if len(words) == 1:
                    self.variables[set_[1]] = words[0][set_.end() :]
                words = words[1:]
            elif words[0] in ("for", "select"):
                self._loop(words)
                words = []
            elif words[0] == "case":
                words = []
            elif words[0] == "function":
                words = words[2:]
            elif words[0] in _KEYWORDS:
                words = words[1:]
            elif name in PREFIXES:
                listed = listed or name in ("xargs", "parallel")
                if there := directory(name, words[1:]):
                    cwd, self.cwd = cwd or self.cwd, absolute(there, self.cwd)
                words, behind_prefix = behind(name, words[1:]), True
            else:
                break
        if behind_prefix and words and re.search(r"\s", words[0]):  # sudo -s and watch give it to a shell
            self._code(" ".join(words))
        if not words and not draft.writes and not draft.reads:
            self.cwd = cwd or self.cwd
            return None
        command = Command(
            tuple(words),
            self.cwd,
            tuple(absolute(word, self.cwd) for word in draft.writes),
            tuple(absolute(word, self.cwd) for word in draft.reads),
            draft.feeds,
            draft.stdin,
            listed,
            self._opaque(words, draft),
        )
        self.found.append(command)
        if len(self.found) > _MOST:
            raise Unreadable
        self._effects(command)
        self.cwd = cwd or self.cwd
        return command

    def _opaque(self, words: list[str], draft: _Draft) -> bool:
        """Return whether a shell gets its code from where it cannot be read."""
        if words and (FETCHED in words[0] or (words[0] == "eval" and any(FETCHED in word for word in words))):
            return True
        sourced = words[:1] in (["."], ["source"]) and any(word in STDIN for word in words[1:2])
        if not words or not (sourced or reads_stdin(words)):
            return False
        if {"-n", "--version", "--help"} & set(words[1 : 1 + options_end(words[1:], ("-o", "-O"))]):
            return False  # it only looks
        text = draft.stdin if draft.stdin is not None else printed(draft.feeds)
        if text is not None:
            self._code(text)
            return FETCHED in text
        return draft.feeds is not None

    def _loop(self, words: list[str]) -> None:
        """Let a loop's variable stand for the one of its words that leads farthest."""
        if len(words) > 3 and words[2] == "in":
            far = (word for word in words[3:] if word.startswith(("/", UNKNOWN)) or ".." in word)
            self.variables[words[1]] = next(far, words[3])
        elif len(words) > 1:
            self.variables.pop(words[1], None)

    def _effects(self, command: Command) -> None:
        words, name = list(command.words), command.name
        if name in ("cd", "pushd"):
            target = next((word for word in words[1:] if not word.startswith(("-", "+")) or word == "-"), "")
            there = self.variables.get({"": "HOME", "-": "OLDPWD"}[target], UNKNOWN) if target in ("", "-") else target
            if name == "pushd":
                self._left.append(self.cwd)
            self._go(there)
        elif name == "popd":
            self._go(self._left.pop() if self._left else UNKNOWN)
        elif name in _DECLARE:
            for word in words[1:]:
                if set_ := ASSIGN.match(word):
                    self.variables[set_[1]] = word[set_.end() :]
        elif name in ("read", "unset", "mapfile", "readarray"):
            for word in words[1:]:
                self.variables.pop(word, None)
        elif name == "eval":
            self._code(" ".join(words[1:]), own=False)
        elif name == "trap" and len(words) > 2:
            self._code(words[1])
        elif name == "alias":
            for word in words[1:]:
                self._code(word.partition("=")[2])
        elif name in SHELLS:
            if (code := inline(words)) is not None:
                self._code(code)
        elif name == "flock" and "-c" in words[:-1]:
            self._code(words[words.index("-c") + 1])
        elif name in _SSH:
            rest = words[1:]
            host = options_end(rest, _SSH_VALUES)
            if rest[host + 1 :]:
                self._code(" ".join(rest[host + 1 :]), UNKNOWN)
        elif name == "find":
            self._find(command)
        elif name == "gad":  # a session that is handed in runs its check for it
            for before, word in zip(words, [*words[1:], ""], strict=True):
                if before == "--check" or word.startswith(("--check=", "check=")):
                    self._code(word.removeprefix("--").removeprefix("check="), UNKNOWN)

    def _go(self, there: str) -> None:
        self.variables["OLDPWD"] = self.cwd
        self.cwd = absolute(there, self.cwd)
        if len(self.cwd) > _LONGEST_PATH:
            self.cwd = UNKNOWN
        self.variables["PWD"] = self.cwd

    def _find(self, command: Command) -> None:
        words = command.words
        roots = tuple(find_roots(words))
        for at, word in enumerate(words):
            if word in ("-exec", "-execdir", "-ok", "-okdir"):
                rest = words[at + 1 :]
                end = next((n for n, one in enumerate(rest) if one in (";", "+")), len(rest))
                inner = [one for part in rest[:end] for one in (roots if part == "{}" else (part,))]
                self.finish(_Draft(words=[part.replace("{}", roots[0]) for part in inner]))
