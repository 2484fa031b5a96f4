"""Reads the words of shell code: quotes, variables, substitutions, braces and patterns."""

from __future__ import annotations

import re
from itertools import pairwise

from gad.core.commands import ANY, FETCHED, RESERVED, SUBSTITUTED, UNKNOWN, Command, Unreadable, printed, unescaped
from gad.core.prefixes import find_roots, words_of

_SPLIT = "\ue102"
_WIDEST = 256
"""Words that braces may make of one."""
_LONGEST = 4096
"""Characters of a word whose braces are looked at."""
_SPECIAL = "{},~*?[]="
_QUOTED = {char: chr(0xE000 + ord(char)) for char in _SPECIAL}
_QUOTE = str.maketrans(_QUOTED)
_UNQUOTE = str.maketrans({quoted: char for char, quoted in _QUOTED.items()})
_VALUE = str.maketrans({char: _QUOTED[char] for char in "{},~="} | dict.fromkeys(" \t\n", _SPLIT))
_META = " \t\r\n;&|()<>"
ASSIGN = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_DEFAULT = re.compile(r"(\w+):?[-=](.*)", re.DOTALL)
_GLOB = re.compile(r"\*+|\?|\[[^\]]{1,200}\]")
_RANGE = re.compile(r"\{[^{},]*\.\.[^{},]*\}")

_FETCHERS = words_of("curl wget aria2c http https fetch")
DEEPEST = 30


class WordReader:
    """Reads words from `at` on. What commands stand in them is for the class that builds on this one to read."""

    def __init__(
        self, code: str, cwd: str, variables: dict[str, str], found: list[Command], room: list[int], depth: int
    ) -> None:
        if depth > DEEPEST:
            raise Unreadable
        self.code = RESERVED.sub(UNKNOWN, code)
        self.at = 0
        self.cwd = cwd
        self.variables = variables
        self.found = found
        self.room = room  # what is left for variables, of this code and all that stands in its words
        self.depth = depth

    def _nested(self, feeds: Command | None = None) -> list[Command]:
        """Read commands up to the closing bracket; return them."""
        raise NotImplementedError

    def _code(self, code: str, cwd: str | None = None, *, own: bool = True) -> list[Command]:
        """Read code that stands in a word; return its commands."""
        raise NotImplementedError

    def _spend(self, size: int) -> None:
        self.room[0] -= size
        if self.room[0] < 0:
            raise Unreadable

    def _word(self) -> list[str]:
        """Read one word; expansions make several of it, or none."""
        parts: list[str] = []
        quoted = False
        start = self.at
        while self.at < len(self.code):
            char = self.code[self.at]
            if char in _META and not (self.at == start and self.code.startswith(("<(", ">("), self.at)):
                break
            self.at += 1
            if char in "<>":
                self.at += 1
                self._nested()
                parts.append(f"{SUBSTITUTED}{UNKNOWN}")
            elif char == "\\":
                following = self.code[self.at : self.at + 1]
                self.at += 1
                parts.append("" if following == "\n" else following.translate(_QUOTE))
                quoted = True
            elif char == "'":
                end = self.code.find("'", self.at)
                end = len(self.code) if end < 0 else end
                parts.append(self.code[self.at : end].translate(_QUOTE))
                self.at, quoted = end + 1, True
            elif char == '"':
                parts.append(self._double())
                quoted = True
            elif char == "$" and self.code.startswith("'", self.at):
                parts.append(self._ansi())
                quoted = True
            elif char == "$" and self.code.startswith('"', self.at):
                pass
            elif char == "$":
                parts.append(self._dollar().translate(_VALUE))
            elif char == "`":
                parts.append(self._backticks().translate(_VALUE))
            else:
                parts.append(char)
        if self.at == start:
            self.at += 1
        return self._split("".join(parts), quoted)

    def _double(self) -> str:
        parts: list[str] = []
        while self.at < len(self.code):
            char = self.code[self.at]
            self.at += 1
            if char == '"':
                break
            if char == "\\" and self.code[self.at : self.at + 1] in ("$", "`", '"', "\\", "\n"):
                parts.append(self.code[self.at].replace("\n", ""))
                self.at += 1
            elif char == "$":
                parts.append(self._dollar())
            elif char == "`":
                parts.append(self._backticks())
            else:
                parts.append(char)
        return "".join(parts).translate(_QUOTE)

    def _ansi(self) -> str:
        found = re.compile(r"'((?:[^'\\]|\\.)*)'?", re.DOTALL).match(self.code, self.at)
        assert found is not None
        self.at = found.end()
        return unescaped(found[1]).translate(_QUOTE)

    def _dollar(self) -> str:
        """Return what an expansion gives; the dollar has been read."""
        if self.code.startswith("((", self.at):
            end = self.code.find("))", self.at)
            end = len(self.code) if end < 0 else end
            inner, self.at = self.code[self.at + 2 : end], min(end + 2, len(self.code))
            self._expanded(inner)
            return "0"
        if self.code.startswith("(", self.at):
            self.at += 1
            return self._value(self._nested())
        if self.code.startswith("{", self.at):
            start = self.at + 1
            self.at = self._brace_end(start)
            return self._parameter(self.code[start : self.at - 1])
        if name := _NAME.match(self.code, self.at):
            self.at = name.end()
            return self._variable(name[0])
        return "$"

    def _parameter(self, inner: str) -> str:
        if _NAME.fullmatch(inner):
            return self._variable(inner)
        if found := _DEFAULT.fullmatch(inner):
            if found[1] in self.variables:
                return self._variable(found[1])
            return self._expanded(found[2])
        self._expanded(inner)
        return UNKNOWN

    def _brace_end(self, start: int) -> int:
        """Return where the text behind the bracket is that closes `${`, which stands before `start`."""
        closers = ["}"]
        at = start
        while at < len(self.code) and closers:
            char = self.code[at]
            if char == "\\":
                at += 1
            elif char == closers[-1]:
                closers.pop()
            elif closers[-1] == "'" or (char == "'" and closers[-1] == '"'):
                pass
            elif char in "\"'`":
                closers.append(char)
            elif self.code.startswith(("${", "$("), at):
                closers.append("}" if self.code[at + 1] == "{" else ")")
                at += 1
            at += 1
        return at if not closers else len(self.code) + 1

    def _expanded(self, text: str, quote: str = "") -> str:
        """Return what expansions make of a text, with `quote` for each double quote that does not stand in one."""
        inner = type(self)(text, self.cwd, self.variables, self.found, self.room, self.depth + 1)
        parts = []
        while inner.at < len(inner.code):
            parts.append(inner._double())
        return quote.join(parts).translate(_UNQUOTE)

    def _variable(self, name: str) -> str:
        value = "0" if name in "#?$!" else self.variables.get(name, UNKNOWN)
        self._spend(len(value))
        return value

    def _backticks(self) -> str:
        found = re.compile(r"((?:[^`\\]|\\.)*)`?", re.DOTALL).match(self.code, self.at)
        assert found is not None
        self.at = found.end()
        return self._value(self._code(re.sub(r"\\([`$\\])", r"\1", found[1])))

    @staticmethod
    def _value(commands: list[Command]) -> str:
        """Return what a substitution gives: what its last command prints, when it is known and nothing else does."""
        speaking = [one for one in commands if one.name not in ("cd", "set", "export", "umask")]
        if len(speaking) == 1 and speaking[0].name == "find":
            return " ".join(f"{root}/{UNKNOWN}" for root in find_roots(speaking[0].words))
        text = printed(speaking[-1]) if speaking and all(one.feeds is None for one in speaking) else None
        unknown = UNKNOWN + FETCHED if any(one.name in _FETCHERS for one in speaking) else UNKNOWN
        return unknown if text is None or len(speaking) > 1 else text.rstrip("\n")

    def _split(self, raw: str, quoted: bool) -> list[str]:
        if ASSIGN.match(raw):
            return [self._plain(raw.replace(_SPLIT, " ")).replace(ANY, "*")]
        pieces = [piece for piece in raw.split(_SPLIT) if piece]
        if not pieces:
            return [""] if quoted else []
        return [self._plain(word) for piece in pieces for word in _braces(piece)]

    def _plain(self, raw: str) -> str:
        """Return a word with its `~` and patterns replaced by what they stand for."""
        head, equals, rest = raw.partition("=")
        if equals and ASSIGN.match(raw):
            return head + equals + self._plain(rest)
        if raw == "~" or raw.startswith("~/"):
            raw = self.variables.get("HOME", UNKNOWN) + raw[1:]
        elif raw.startswith("~"):
            raw = UNKNOWN + raw[1:].partition("/")[1] + raw.partition("/")[2]
        return _GLOB.sub(ANY, raw).translate(_UNQUOTE)


def _braces(raw: str) -> list[str]:
    """Return the words that braces make of one."""
    if "{" not in raw:
        return [raw]
    if len(raw) > _LONGEST:
        return [UNKNOWN]
    done: list[str] = []
    todo = [_RANGE.sub(ANY, raw)]
    while todo:
        word = todo.pop()
        parts = _choices(word)
        if parts is None:
            done.append(word)
        else:
            todo += parts
        if len(done) + len(todo) > _WIDEST:
            return [UNKNOWN]
    return done


def _choices(word: str) -> list[str] | None:
    """Return what a word's first braces with a comma in them make of it, in reverse order; None without such."""
    opened: list[list[int]] = []
    closed: list[list[int]] = []
    for at, char in enumerate(word):
        if char == "{":
            opened.append([at])
        elif char == "," and opened:
            opened[-1].append(at)
        elif char == "}" and opened:
            cuts = [*opened.pop(), at]
            if len(cuts) > 2:
                closed.append(cuts)
    if closed:
        cuts = min(closed)
        inner = [word[one + 1 : end] for one, end in pairwise(cuts)]
        return [word[: cuts[0]] + part + word[cuts[-1] + 1 :] for part in reversed(inner)]
    return None
