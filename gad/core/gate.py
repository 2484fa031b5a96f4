"""What may be written into memory, and on what proof. Pure: the writer's path asks here, the store writes.

`check_write` judges what an agent wants to add; `check_file` judges the form of the file that comes of it, whoever
writes. Both raise MemoryRefused, whose message says what is wrong and how to mend it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gad.core.sop import GROUP, GROUP_RULE, NAME, NAME_RULE, RESERVED, Sop, parse_sop, without_record
from gad.errors import MemoryRefused

SOP_LENGTH = 6000
"""Characters of an SOP's body, at most."""
LINE_LENGTH = 300
"""Characters of one line of facts or of the log, at most."""
WRITE_LENGTH = 30_000
"""Characters that one write may add, at most: what is added is searched in the event loop."""

NO_PROOF = frozenset({"ask_user", "update_working_checkpoint", "start_long_term_update"})
"""Tools whose success shows nothing about the world."""

WRITABLE = "facts/<section>.md, sops/<name>/SOP.md, sops/<name>/run.py or run.sh, and log.md"


@dataclass(frozen=True, slots=True)
class Proof:
    """One tool call of the session. `number` counts from 1 in the order of the results.

    `gist` says in a few words what it did; `of_memory` marks a call that read or wrote memory itself; `path`
    is its argument of that name, if it has one.
    """

    number: int
    name: str
    ok: bool
    gist: str
    of_memory: bool = False
    path: str = ""


def check_write(
    path: str, added: str, *, open_phase: bool, calls: Sequence[Proof], session: str
) -> tuple[str, tuple[int, ...]]:
    """Return what an agent adds to a file, without its proof line, and the calls that prove it.

    `path` is relative to memory. `added` ends in a line `[proof: 3, 7]` with the numbers of calls of this session.
    Raises MemoryRefused.
    """
    if not open_phase:
        raise MemoryRefused("memory is written in its own phase only: call start_long_term_update first")
    check_path(path)
    if len(added) > WRITE_LENGTH:
        raise MemoryRefused(
            f"{path}: {len(added):,} characters are too many for one write, {WRITE_LENGTH:,} are the most; "
            "keep what is needed again, and write it in parts"
        )
    text, evidence = _proved(added, calls)
    _judge(path, text, session)
    return text, evidence


def check_change(path: str, before: str | None, after: str, session: str) -> None:
    """Judge the lines of `after` that `before` has not: a patch may make a secret of harmless parts.

    What somebody wrote by hand is left alone, so an agent can still add to such a file. Raises MemoryRefused.
    """
    known = set((before or "").split("\n"))
    if path.endswith("/SOP.md"):
        after = without_record(after)
    _judge(path, "\n".join(line for line in after.split("\n") if line not in known), session)


def _judge(path: str, text: str, session: str) -> None:
    if found := _CONTROL.search(text):
        raise MemoryRefused(
            f"{path}: the text holds the control character {found[0]!r}, and would not be read as text; leave it out"
        )
    judged = without_record(text) if path.endswith("/SOP.md") else text
    if reason := unfit(judged, session):
        raise MemoryRefused(reason)


def check_path(path: str) -> None:
    """Check that an agent may write this file of memory. Raises MemoryRefused."""
    parts = path.split("/")
    if path in ("index.md", "sops/all.md") or parts[:2] == ["sops", "by"]:
        raise MemoryRefused(f"{path} is generated from facts and SOPs; write those: {WRITABLE}")
    if path == "log.md":
        return
    if len(parts) == 2 and parts[0] == "facts" and parts[1].endswith(".md"):
        name, allowed, rule = parts[1].removesuffix(".md"), GROUP, GROUP_RULE
    elif len(parts) == 3 and parts[0] == "sops" and parts[2] in ("SOP.md", "run.py", "run.sh"):
        name, allowed, rule = parts[1], NAME, NAME_RULE
    else:
        raise MemoryRefused(f"{path} is not yours to write; there are {WRITABLE}")
    if not allowed.fullmatch(name) or name != name.lower():
        raise MemoryRefused(f"{path}: the name {name!r} {rule}")
    if name in RESERVED:
        raise MemoryRefused(f"{path}: {name} is the name of a listing; choose another")
    if _DATE_IN_NAME.search(name):
        raise MemoryRefused(f"{path}: a date in the name {name!r} says that this passes; name what it is about")


def check_file(path: str, text: str) -> None:
    """Check the form of a file of memory as it will stand, if it has one. Raises MemoryRefused."""
    parts = path.split("/")
    if parts[0] == "sops" and parts[-1] == "SOP.md" and len(parts) == 3:
        read_sop(path, text)
    elif (parts[0] == "facts" and len(parts) == 2) or path == "log.md":
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > LINE_LENGTH:
                raise MemoryRefused(
                    f"{path}: line {number} has {len(line):,} characters, {LINE_LENGTH} are the most; "
                    "say it shorter, or as several facts"
                )


def read_sop(path: str, text: str) -> Sop:
    """Read the SOP that stands at sops/<name>/SOP.md. Raises MemoryRefused when its form is wrong."""
    try:
        sop = parse_sop(text)
    except ValueError as exc:
        raise MemoryRefused(f"{path}: {exc}") from None
    name = path.split("/")[1]
    if sop.name != name:
        raise MemoryRefused(f"{path}: the front matter's name is {sop.name!r}, the directory's {name!r}; align")
    if len(sop.body) > SOP_LENGTH:
        raise MemoryRefused(
            f"{path}: its text has {len(sop.body):,} characters, {SOP_LENGTH:,} are the most; keep the key steps "
            "and the pitfalls, or split it in two"
        )
    return sop


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PROOF = re.compile(r"[ \t]*(?:#[ \t]*)?\[proof:([^\]\n]*)\][ \t]*\r?", re.IGNORECASE)


def _proved(added: str, calls: Sequence[Proof]) -> tuple[str, tuple[int, ...]]:
    body = added.rstrip()
    start = body.rfind("\n") + 1
    match = _PROOF.fullmatch(body[start:])
    if match is None:
        if any(_PROOF.fullmatch(line) for line in body.split("\n")):
            raise MemoryRefused("the proof must be the last line of what you write; move [proof: ...] there")
        raise MemoryRefused(
            "no proof: end the text with a line [proof: 3, 7] that numbers the successful calls of this session "
            "which show it; start_long_term_update lists them"
        )
    numbers = [part for part in re.split(r"[\s,#]+", match[1]) if part]
    if not numbers or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in numbers):
        raise MemoryRefused(f"{match[0].strip()} names no calls; write their numbers, as in [proof: 3, 7]")
    kept = body[: max(0, start - 1)]
    if any(_PROOF.fullmatch(line) for line in kept.split("\n")):
        raise MemoryRefused("there is more than one line [proof: ...]; write one, the last, with all numbers")
    evidence = tuple(dict.fromkeys(map(int, numbers)))
    known = {call.number: call for call in calls}
    for number in evidence:
        _check_call(number, known.get(number), calls)
    end = "\n" if added[len(body) :].startswith(("\n", "\r\n")) and start else ""
    return kept + end, evidence


def without_proof(text: str) -> str:
    """Return a text without its last line, where that is its proof."""
    body = text.rstrip()
    start = body.rfind("\n") + 1
    return body[:start] if _PROOF.fullmatch(body[start:]) else text


def _check_call(number: int, call: Proof | None, calls: Sequence[Proof]) -> None:
    if call is None:
        raise MemoryRefused(f"there is no call {number} in this session; {_good(calls)}")
    if call.name in NO_PROOF:
        raise MemoryRefused(f"call {number} ({call.name}) proves nothing about the world; {_good(calls)}")
    if call.of_memory:
        raise MemoryRefused(f"call {number} ({call.name}) only read or wrote memory, no proof; {_good(calls)}")
    if not call.ok:
        raise MemoryRefused(f"call {number} ({call.name}: {call.gist}) failed, so it proves nothing; {_good(calls)}")


def _good(calls: Sequence[Proof]) -> str:
    """Return which calls would do."""
    good = [call.number for call in calls if call.ok and call.name not in NO_PROOF and not call.of_memory]
    if not good:
        return "no call of this session would do: verify it with a tool first"
    return f"these would do if they show it: {', '.join(map(str, good[-20:]))}"


# What passes, and what is secret.

_DATE_IN_NAME = re.compile(r"(?<!\d)(?:19|20)\d\d[-_]?(?:0[1-9]|1[0-2])[-_]?(?:0[1-9]|[12]\d|3[01])(?!\d)")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_CLOCK = r"[ T,at]{1,5}\d{1,2}:\d\d"

_VOLATILE: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\b(?:pids?|process[ _-]ids?)\b\s*(?:is|was|[:=#])?\s*\d+", re.IGNORECASE),
        "a process id, which is another one next time; say how to find the process",
    ),
    (
        re.compile(
            rf"\b\d{{4}}[-/.]\d\d?[-/.]\d\d?{_CLOCK}|\b\d\d?[-/.]\d\d?[-/.]\d{{4}}{_CLOCK}"
            rf"|\b{_MONTH} +\d\d?(?:,? +\d{{4}})?{_CLOCK}|\b\d\d? +{_MONTH}(?: +\d{{4}})?{_CLOCK}",
            re.IGNORECASE,
        ),
        "a moment (date with time); facts hold at any time, so leave it out",
    ),
    (
        re.compile(r"(?<![\w.])1[6-9]\d{8}(?:\d{3})?(?:\.\d+)?(?![\w.])"),
        "a timestamp (seconds or milliseconds since 1970); leave it out",
    ),
    (
        re.compile(r"(?<![\w.-])(?:/private)?(?:/tmp|/var/tmp|/dev/shm|/var/folders|/run/user)/[\w.$%{<*-]"),
        "a temporary path, which will be gone; name the lasting place, or say how to make it (mktemp)",
    ),
)

_SECRET_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY"), "a private key"),
    (re.compile(r"(?<![A-Za-z0-9])(?:sk|rk|pk)[-_](?=[A-Za-z0-9_-]{0,200}\d)[A-Za-z0-9_-]{16}"), "an API key (sk-...)"),
    (re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"), "a GitHub token"),
    (re.compile(r"\bglpat-[\w-]{16,}"), "a GitLab token"),
    (re.compile(r"\bxox[abeoprs]-[\w-]{10,}"), "a Slack token"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), "an AWS access key"),
    (re.compile(r"\bAIza[\w-]{30,}"), "a Google API key"),
    (re.compile(r"\bhf_[A-Za-z0-9]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}"), "a registry's token"),
    (re.compile(r"\beyJ[\w-]{8,400}\.eyJ[\w-]{8}"), "a JSON web token"),
    (re.compile(r"\b(?:bearer|basic)\s+(?=[\w.~+/=-]*\d)[\w.~+/=-]{16,}", re.IGNORECASE), "an authorization header"),
    (
        re.compile(r"\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]{0,200}:(?![$<{%*])[^\s/:@]{1,200}@", re.IGNORECASE),
        "a password in a URL",
    ),
)

_WORDED = re.compile(
    r"(?P<key>pass(?:word|wd|phrase|code)|\bpwd|secret(?:[ _-]?(?:access[ _-]?)?key)?|api[ _-]?key|access[ _-]?key"
    r"|private[ _-]?key|(?:auth|access|api|bearer|refresh|session|secret)[ _-]?token|\btoken|credentials?)"
    r"[\"'`*]*\s*(?:[:=]=?|\bis\b|\bwas\b)\s*(?P<value>\"[^\"\n]*\"|'[^'\n]*'|`[^`\n]*`|\S+)(?P<rest>[^\n]*)",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"[$<{%*\[(]|x{3,}$|\.{3}|…|(?:your|my|the)[-_]|env\b|os\.|process\.env", re.IGNORECASE)
_PROSE = re.compile(
    r"a|an|and|any|are|as|ask|asked|at|by|can|checked|comes|each|empty|entered|environment|expires|false|file|for|"
    r"from|given|handled|has|held|in|is|it|its|kept|lives|must|needed|needs|never|no|none|not|null|of|on|only|"
    r"optional|or|passed|prompted|provided|read|refused|required|rotated|secret|see|sent|set|stands|stored|taken|"
    r"that|the|there|true|unset|use|used|uses|via|when|where|which|with|without|wrong|you|your",
    re.IGNORECASE,
)
"""Words that begin a sentence about a secret, where its value could stand."""
_CANDIDATE = re.compile(r"[A-Za-z0-9+=_-]{24,}")
_UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-fA-F]+")
_DIGEST_WORD = re.compile(r"sha-?\d|digest|checksum|hash|commit|revision|md5|blake", re.IGNORECASE)


def unfit(text: str, session: str) -> str | None:
    """Return why a text must not stand in memory and how to mend it, or None: what passes away, and secrets."""
    if found := secret_in(text):
        return f"this holds {found}; memory is no place for secrets: name the variable or the file that holds it"
    for pattern, what in _VOLATILE:
        if match := pattern.search(text):
            return f"{match[0].strip()!r} is {what}"
    if session and (found := _names_session(text, session)):
        return f"{found!r} is this session's own; say what holds for any session"
    return None


def secret_in(text: str) -> str | None:
    """Return what a text holds that looks like a secret, in words; None when there is nothing of the kind."""
    for pattern, what in _SECRET_FORMS:
        if pattern.search(text):
            return what
    for match in _WORDED.finditer(text):
        if _is_secret_value(match["key"], match["value"], match["rest"]):
            return f"a {match['key'].lower()} with its value"
    for line in text.split("\n"):
        for match in _CANDIDATE.finditer(_UUID.sub(" ", line)):
            if _random(match[0], line):
                return f"a long random string ({match[0][:4]}..., {len(match[0])} characters)"
    return None


def _is_secret_value(key: str, value: str, rest: str) -> bool:
    """Return whether what follows `key` is a secret itself, not words about it or a reference to it."""
    quoted = value[0] in "\"'`" and len(value) > 1 and value[-1] == value[0]
    word = value.strip("\"'`,.;:)")
    if not word or _PLACEHOLDER.match(word) or _PROSE.fullmatch(word):
        return False
    if not quoted and (re.search(r"[(\[{]", value) or word.lower() == key.lower()):
        return False  # code: a call, an index, an argument that is passed on
    if key.lower().startswith(("pass", "pwd")):
        return True
    mixed = any(char.isdigit() for char in word) or (not word.isalpha() and quoted)
    return len(word) >= 6 and mixed and not re.fullmatch(r"[A-Z][A-Z0-9_]*", word) and "/" not in word


def _random(text: str, line: str) -> bool:
    """Return whether a long string looks like a random one: many changes between classes, many different characters."""
    if _HEX.fullmatch(text):
        return len(text) > 40 and not _DIGEST_WORD.search(line)
    letters = [char for char in text if char.isalnum()]
    kinds = [0 if char.isdigit() else 1 if char.isupper() else 2 for char in letters]
    if len(set(kinds)) < 3:
        return False
    changes = sum(one != other for one, other in pairwise(kinds)) / (len(kinds) - 1)
    return changes > 0.35 and _entropy(text) > 3.5


def _entropy(text: str) -> float:
    """Return Shannon's entropy of a text's characters, in bits a character."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())


def _names_session(text: str, session: str) -> str | None:
    """Return where a text names the session; a name that is an ordinary word counts only where a name is meant."""
    name = re.escape(session)
    patterns = [rf"\b(?:work|spool)/{name}(?![\w-])\S*", rf"\bsession[ :=#\"'`]+{name}(?![\w-])"]
    if len(session) >= 4 and any(char.isdigit() for char in session):
        patterns.append(rf"(?<![\w-]){name}(?![\w-])")
    for pattern in patterns:
        if match := re.search(pattern, text, re.IGNORECASE):
            return match[0]
    return None
