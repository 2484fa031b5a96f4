"""What one tool call would do, thing by thing, for rules to judge: the files, hosts and commands that it names.

Paths are told as they are named and with links followed. Code is read, not run, so for code this is a net and no wall.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from gad.core import globs
from gad.core.commands import ANY, LONGEST_CODE, UNKNOWN, Command, Unreadable, absolute, printed
from gad.core.deeds import Deed, Own, deeds, is_scratch
from gad.core.python_code import read_python
from gad.core.shell import read_shell

Action = Literal["allow", "ask", "deny"]

_DEEDS = {
    "push": "gad: forced pushes",
    "packages": "gad: removing packages",
    "services": "gad: controlling services",
    "disks": "gad: overwriting disks",
    "unreadable": "gad: code that cannot be read",
}

_LITERAL = re.compile(r"'((?:[^'\\\n]|\\.){0,512})'|\"((?:[^\"\\\n]|\\.){0,512})\"|`([^`]*+)`")
"""A text in a script that may be a path. To look for the end of each quote takes its time, so it must be near. No group
of it is possessive, since Python 3.11.2 matches those wrongly."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: the session, its directories, its children. `real` follows the links in a path.

    A `confined` session cannot write outside of its directories, whatever it is allowed.
    """

    session: str
    cwd: str
    work: str
    memory: str
    real: Callable[[str], str]
    children: frozenset[str] = frozenset()
    confined: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """One thing that a call does. `what` says it for people, `key` is what "always" remembers of it.

    `paths` is a file as it is named and with links followed. `words` is the command that does it, `code` the whole code
    it is part of. Rules of code that ask or deny are about the code, where they are regular expressions, or about its
    commands: `level` tells them apart, and `bare` says that rules without words are meant for this use. `default`
    holds where no rule matches, and `reason` says why.
    """

    what: str
    key: str
    default: Action = "allow"
    reason: str = ""
    access: Literal["", "read", "write", "delete"] = ""
    paths: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    code: str | None = None
    level: Literal["", "code", "command"] = ""
    bare: bool = False
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Uses:
    """Tells what calls do. `home` is the user's directory, `roots` are writable beside a session's own directories.

    `temporary` are directories in which each session's code finds files of its own alone; `spool` is gad's.
    """

    home: str
    roots: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    spool: str = ""

    def of(self, tool: str, arguments: Mapping[str, Any], place: Place) -> Iterator[Use]:
        """Yield what a call does, as far as that can be told before it runs."""
        text = {name: value for name, value in arguments.items() if isinstance(value, str)}
        match tool:
            case "file_read":
                yield self._file("read", text["path"], place)
            case "file_write":
                yield self._file("write", text["path"], place)
                yield from self._references(text.get("content", ""), place)
            case "file_patch":
                yield self._file("read", text["path"], place)
                yield self._file("write", text["path"], place)
                yield from self._references(text.get("new_content", ""), place)
            case "web_scan":
                url = text.get("url", "").strip()
                yield self._address(url, place) if url else Use("look at the browser's page", "look", host="")
            case "web_execute_js":
                yield from self._script(text.get("script", ""), place)
                if target := text.get("save_to_file"):
                    yield self._file("write", target, place)
            case "code_run":
                yield from self._code(text.get("type", ""), text.get("code", ""), place)

    def _file(self, access: Literal["read", "write"], path: str, place: Place) -> Use:
        plain = absolute(self._expanded(path), place.cwd)
        real = place.real(plain)
        what = f"{access} {plain}" + (f", which is {real}" if real != plain else "")
        use = Use(what, f"{access} {real}", access=access, paths=_both(plain, real))
        if access == "read" or any(globs.inside(real, place.real(root)) for root in self._roots(place)):
            return use
        if place.memory and (globs.inside(plain, place.memory) or globs.inside(real, place.real(place.memory))):
            return use  # memory has a gate of its own
        return replace(use, default="ask", reason="gad: writing outside of the cwd, the work directory and the roots")

    def _roots(self, place: Place) -> tuple[str, ...]:
        """Return the directories in which files may be written and deleted."""
        return (place.cwd, place.work, *self.roots)

    def _expanded(self, path: str) -> str:
        return self.home + path[1:] if path == "~" or path.startswith("~/") else path

    def _references(self, content: str, place: Place) -> Iterator[Use]:
        """Yield the files whose lines a text takes in."""
        for path in dict.fromkeys(re.findall(r"\{\{file:([^{}\n]+?):\d+:\d+\}\}", content)):
            yield self._file("read", path, place)

    def _address(self, url: str, place: Place) -> Use:
        if re.match(r"\s*file:", url, re.IGNORECASE):
            path = unquote(re.sub(r"(?i)^\s*file:(//[^/]*)?", "", url).partition("#")[0].partition("?")[0])
            return self._file("read", path or "/", place)
        host = host_of(url)
        return Use(f"open {url}", f"open addresses at {host or url}", host=host)

    def _script(self, script: str, place: Place) -> Iterator[Use]:
        yield Use("run a script in the browser's page", "run scripts in pages", host="")
        if len(script) > LONGEST_CODE:
            yield Use("run a script that is too long to be read beforehand", _known(f"run {UNKNOWN}", script), "ask",
                      _DEEDS["unreadable"])  # fmt: skip
            return
        for url in dict.fromkeys(re.findall(r"(?i)(?:https?|wss?|file):[^\s'\"`<>\\]*(?:\\.[^\s'\"`<>\\]*)*", script)):
            yield self._address(url, place)
        if "upload" in script:
            for literals in _LITERAL.findall(script):
                if path := "".join(literals):
                    yield self._file("read", path, place)

    # -- code ----------------------------------------------------------------------------------

    def _code(self, language: str, code: str, place: Place) -> Iterator[Use]:
        bash = language != "python"
        try:
            commands = self._read(code, place) if bash else self._read_python(code, place.cwd, place)
        except (Unreadable, RecursionError):
            commands = []
            yield Use("run code that cannot be read beforehand", _known(f"run {UNKNOWN}", code), "ask",
                      _DEEDS["unreadable"], code=code)  # fmt: skip
        named = [command for command in commands if command.words]
        yield Use(
            f"run {language} code", _known(f"run {UNKNOWN}", code), code=code, level="code", bare=not (named and bash)
        )
        for command in named:
            first = command.words[: 2 if command.words[1:2] and not command.words[1].startswith("-") else None]
            key = _known(" ".join(first), code)
            yield Use(f"run {command.shown}", f"run {key}", words=command.words, code=code, level="command", bare=bash)
        seen: set[tuple[str, ...]] = set()
        memo: dict[str, str] = {}

        def real(path: str) -> str:
            if path not in memo:
                memo[path] = place.real(path)
            return memo[path]

        followed = replace(place, real=real)
        own = Own(place.session, place.children)
        for command in commands:
            for deed in deeds((command,), own):
                one = (deed.kind, deed.path) if deed.kind == "read" else (deed.kind, deed.what, deed.key)
                if one not in seen:
                    seen.add(one)
                    yield self._done(deed, command, code, followed)

    def _known_variables(self, place: Place) -> dict[str, str]:
        """Return those variables of code's environment by which it would find gad's own files."""
        return {"GAD_SESSION": place.session} | ({"GAD_HOME": posixpath.dirname(self.spool)} if self.spool else {})

    def _read_python(self, code: str, cwd: str, place: Place) -> list[Command]:
        return read_python(code, cwd, self.home, self._known_variables(place))

    def _read(self, code: str, place: Place) -> list[Command]:
        """Return what shell code runs, and what the Python code in it does."""
        found = read_shell(code, place.cwd, self.home, self._known_variables(place))
        for command in tuple(found):
            if re.fullmatch(r"python[\d.]*", command.name):
                inline = next((at for at, word in enumerate(command.words) if re.fullmatch(r"-[A-Za-z]*c", word)), None)
                inner = command.stdin or printed(command.feeds) or ""
                if inline is not None:
                    inner = "".join(command.words[inline + 1 : inline + 2])
                found += self._read_python(inner, command.cwd, place)
        return found

    def _done(self, deed: Deed, command: Command, code: str, place: Place) -> Use:
        use = Use(deed.what, _known(deed.key, code), words=command.words, code=code)
        match deed.kind:
            case "read" | "write":
                paths = _both(deed.path, _real(deed.path, place, linked=True))
                return replace(use, access=deed.kind, paths=paths)
            case "delete" | "move":
                real = _real(deed.path, place, linked=deed.linked)
                use = replace(use, access="delete", paths=_both(deed.path, real))
                if (
                    deed.kind == "move"
                    or is_scratch(real)
                    or any(globs.inside(real, one) and real != one for one in self.temporary)
                    or any(globs.inside(real, place.real(root)) for root in self._roots(place))
                ):
                    return use
                reason = "gad: deleting outside of the cwd, the work directory and the roots"
                return replace(use, default="ask", reason=reason)
            case "self":
                return replace(use, default="deny", reason="gad: its own service and sessions")
            case other:
                return replace(use, default="ask", reason=_DEEDS[other])


def _known(key: str, code: str) -> str:
    """Return what "always" remembers: where a part is not known beforehand, this very code and no other."""
    if UNKNOWN not in key:
        return key
    return f"{key}, by this very code ({hashlib.sha256(code.encode('utf-8', 'replace')).hexdigest()[:16]})"


def _both(plain: str, real: str) -> tuple[str, ...]:
    return (plain,) if plain == real else (plain, real)


def _real(path: str, place: Place, *, linked: bool) -> str:
    """Return a path of a command with its links followed, as far as it is known."""
    if path.startswith(UNKNOWN):
        return path
    names = path.split("/")
    known = next((at for at, name in enumerate(names) if ANY in name or UNKNOWN in name), len(names))
    if known == len(names) and not linked:
        known -= 1  # a link that is deleted is not what it leads to
    head = place.real("/".join(names[:known]) or "/")
    return "/".join((head.rstrip("/"), *names[known:])) if names[known:] else head


def host_of(url: str) -> str:
    """Return the host of an address as a browser would understand it, empty when it has none."""
    text = unicodedata.normalize("NFKC", re.sub(r"[\t\n\r]", "", url.strip())).replace("\\", "/")
    if found := re.match(r"(?i)(https?|wss?|ftp):/*", text):
        text = f"{found[1]}://{text[found.end() :]}"
    elif not re.match(r"(?i)[a-z][a-z0-9+.-]*:(?!\d+(/|$|\?|#))", text):
        text = f"https://{text.lstrip('/')}"
    try:
        return unquote(urlsplit(text).hostname or "").lower().rstrip(".")
    except ValueError:
        return ""
