"""A standard operating procedure (SOP) as a value: YAML front matter and a body, read and written.

The front matter is a small part of YAML, so that the core needs no YAML library: one `key: value` a line, where a
value is a word, a number, a quoted text, a flow list `[a, b]` or a block list of `- item` lines. What `render_sop`
writes is YAML for every other program. Functions raise ValueError with a text that says which line, and how to mend it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
"""What an SOP may be called: a task's first line names it."""
NAME_RULE = "must be of a-z, 0-9 and -, begin with a letter or a digit, and have 60 characters at most"
GROUP = re.compile(r"[^\W_][\w-]{0,59}")
"""What a category or a section of facts may be called, in lower case: letters of any script, digits, - and _."""
GROUP_RULE = "must be lower-case letters, digits, - and _, begin with a letter or digit, and have 60 characters at most"
RESERVED = frozenset({"by", "all"})
"""Names that the generated listings need."""

RUNS_KEPT = 10
"""Runs that a front matter remembers."""
RECORD = ("stage", "uses", "successes", "failures", "streak", "provenance", "runs")
"""The keys that gad keeps itself; what an agent writes there is not taken over."""

_KEYS = ("name", "triggers", "category", *RECORD)
_TEXT = 80
"""Characters of a trigger, or of a session's name in the provenance, at most."""
_FENCE = "---"
_PLAIN = re.compile(r"[^\W\d_][\w./+-]*(?: [\w./+-]+)*")
_NOT_PLAIN = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_WHOLE = re.compile(r"0|[1-9][0-9]{0,14}")

_Value = str | int | bool | list["_Value"] | dict[str, "_Value"]


@dataclass(frozen=True, slots=True)
class Run:
    """One use of an SOP: when it ended (seconds since the epoch), the session's tokens, and whether it worked."""

    at: int
    tokens: int
    ok: bool


Stage = Literal["explore", "sop", "code"]
"""How far an SOP has come: it failed lately and must be found out anew, it is followed, it is run as a script."""
STAGES: tuple[Stage, ...] = ("explore", "sop", "code")


@dataclass(frozen=True, slots=True)
class Sop:
    """One SOP.

    `streak` is how many of its last uses in a row were successes without a failed call; `provenance` names sessions.
    """

    name: str
    triggers: tuple[str, ...]
    category: str
    stage: Stage = "sop"
    uses: int = 0
    successes: int = 0
    failures: int = 0
    streak: int = 0
    provenance: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    body: str = ""

    @property
    def path(self) -> str:
        """Where it stands in memory."""
        return f"sops/{self.name}/SOP.md"


def with_run(sop: Sop, run: Run) -> Sop:
    """Return the SOP after one more use; the newest `RUNS_KEPT` runs are kept."""
    return replace(
        sop,
        uses=sop.uses + 1,
        successes=sop.successes + run.ok,
        failures=sop.failures + (not run.ok),
        streak=sop.streak + 1 if run.ok else 0,
        runs=(*sop.runs, run)[-RUNS_KEPT:],
    )


def keep_record(before: str | None, after: str, session: str) -> str:
    """Return an SOP's new text with what gad keeps itself (`RECORD`) as it was, and the session in its provenance.

    `before` is the former text; None, or a text that is no SOP, counts as an SOP without a record. A new text that is
    no SOP is returned as it is: to refuse it, with the reason, is the gate's part.
    """
    try:
        new = parse_sop(after)
    except ValueError:
        return after
    try:
        old = parse_sop(before or "")
    except ValueError:
        old = Sop(new.name, new.triggers, new.category)
    sessions = old.provenance if session in old.provenance else (*old.provenance, session)
    kept = {key: getattr(old, key) for key in RECORD if key != "provenance"}
    return render_sop(replace(new, provenance=sessions, **kept))


def parse_sop(text: str) -> Sop:
    """Read an SOP.md. Raises ValueError naming the line."""
    front, body = split_front(text)
    values = _entries(front)
    for key in ("name", "triggers", "category"):
        if key not in values:
            raise ValueError(f"the front matter has no {key}; it needs name, triggers and category")
    if not NAME.fullmatch(name := _word(values["name"][1])):
        raise ValueError(f"line {values['name'][0]}: name: {NAME_RULE}")
    if name in RESERVED:
        raise ValueError(f"line {values['name'][0]}: name: {name} is the name of a listing; choose another")
    category = _word(values["category"][1])
    if not GROUP.fullmatch(category) or category != category.lower():
        raise ValueError(f"line {values['category'][0]}: category: {GROUP_RULE}")
    line, triggers = values["triggers"]
    if not triggers:
        raise ValueError(f"line {line}: triggers: is empty; name the words that call for this SOP: [word, other words]")
    stage_line, stage = values.get("stage", (0, "sop"))
    if stage not in STAGES:
        raise ValueError(f"line {stage_line}: stage: must be {', '.join(STAGES[:-1])} or {STAGES[-1]}, not {stage!r}")
    counts = {key: _count(key, *values[key]) for key in ("uses", "successes", "failures", "streak") if key in values}
    return Sop(
        name=name,
        triggers=_texts("triggers", line, triggers),
        category=category,
        stage=next(known for known in STAGES if known == stage),
        provenance=_texts("provenance", *values.get("provenance", (0, []))),
        runs=_runs(*values.get("runs", (0, []))),
        body=body,
        **counts,
    )


def render_sop(sop: Sop) -> str:
    """Return the text of SOP.md. A body that does not end its last line gets a line end."""
    lines = [
        f"name: {_scalar(sop.name)}",
        f"triggers: {_flow(sop.triggers)}",
        f"category: {_scalar(sop.category)}",
        f"stage: {sop.stage}",
        *(f"{key}: {getattr(sop, key)}" for key in ("uses", "successes", "failures", "streak")),
        f"provenance: {_flow(sop.provenance)}",
    ]
    runs = [f"{{at: {run.at}, tokens: {run.tokens}, ok: {str(run.ok).lower()}}}" for run in sop.runs]
    lines.append(f"runs: [{', '.join(runs)}]")
    end = "" if not sop.body or sop.body.endswith("\n") else "\n"
    return "\n".join([_FENCE, *lines, _FENCE, sop.body]) + end


def split_front(text: str) -> tuple[list[str], str]:
    """Return the lines of the front matter and the body. Raises ValueError when there is no front matter."""
    lines = text.split("\n")
    marks = [line.rstrip() for line in lines]
    if marks[0] != _FENCE:
        raise ValueError("an SOP begins with its front matter: a line ---, then name, triggers and category, then ---")
    if _FENCE not in marks[1:]:
        raise ValueError("the front matter has no end; close it with a line ---")
    end = marks.index(_FENCE, 1)
    return marks[1:end], "\n".join(lines[end + 1 :])


def without_record(text: str) -> str:
    """Return an SOP's text without the front matter's lines that gad keeps itself; any other text as it is."""
    try:
        front, body = split_front(text)
    except ValueError:
        return text
    kept, drop = [], False
    for line in front:
        if line[:1] not in ("", " ", "-", "#"):
            drop = line.partition(":")[0] in RECORD
        if not drop:
            kept.append(line)
    return "\n".join([_FENCE, *kept, _FENCE, body])


def _entries(lines: list[str]) -> dict[str, tuple[int, _Value]]:
    """Return the values of the keys, each with its line's number in the file."""
    found: dict[str, tuple[int, _Value]] = {}
    block: list[_Value] | None = None
    for number, line in enumerate(lines, 2):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped == "-" or stripped.startswith("- "):
            if block is None:
                raise ValueError(f"line {number}: a list item without its key; write `triggers:` above it")
            block.append(_Reader(stripped[1:].strip(), number).value())
            continue
        key, colon, rest = line.partition(":")
        if not colon or (rest and not rest.startswith(" ")):
            raise ValueError(f"line {number}: {line.strip()!r} is not `key: value`")
        if key not in _KEYS:
            near = difflib.get_close_matches(key.strip(), _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KEYS)}"
            raise ValueError(f"line {number}: {key.strip()!r} is no key of an SOP; {hint}")
        if key in found:
            raise ValueError(f"line {number}: {key} is given twice; remove one")
        rest = rest.strip()
        block = None
        if rest and not rest.startswith("#"):
            found[key] = (number, _Reader(rest, number).value())
        else:
            block = []
            found[key] = (number, block)
    return found


class _Reader:
    """Reads one value of the front matter from one line."""

    def __init__(self, text: str, line: int) -> None:
        self._text = text
        self._line = line
        self._at = 0

    def value(self) -> _Value:
        """Return the value that the whole line is. Raises ValueError."""
        value = self._value(flow=False)
        self._space()
        rest = self._text[self._at :]
        if rest and not rest.startswith("#"):
            raise self._wrong(f"{rest!r} follows the value; quote texts that hold special characters")
        return value

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"line {self._line}: {what}")

    def _space(self) -> None:
        while self._text[self._at : self._at + 1] == " ":
            self._at += 1

    def _value(self, *, flow: bool) -> _Value:
        self._space()
        first = self._text[self._at : self._at + 1]
        if first == "[":
            return self._list()
        if first == "{":
            return self._mapping()
        if first in ('"', "'"):
            return self._quoted(first)
        return self._plain(flow)

    def _list(self) -> list[_Value]:
        items: list[_Value] = []
        self._at += 1
        while not self._closed("]"):
            items.append(self._value(flow=True))
            self._next("]")
        return items

    def _mapping(self) -> dict[str, _Value]:
        items: dict[str, _Value] = {}
        self._at += 1
        while not self._closed("}"):
            match = re.compile(r"(\w+): ").match(self._text, self._at)
            if match is None:
                raise self._wrong("a mapping is written as {key: value, key: value}")
            self._at = match.end()
            items[match[1]] = self._value(flow=True)
            self._next("}")
        return items

    def _closed(self, end: str) -> bool:
        self._space()
        if self._at >= len(self._text):
            raise self._wrong(f"{end} is missing; a list stands on one line, or one `- item` a line")
        if self._text[self._at] != end:
            return False
        self._at += 1
        return True

    def _next(self, end: str) -> None:
        """Step over a comma; leave the closing bracket to `_closed`."""
        self._space()
        mark = self._text[self._at : self._at + 1]
        if mark == ",":
            self._at += 1
        elif mark and mark != end:
            raise self._wrong(f"expected , or {end} before {self._text[self._at :]!r}")

    def _quoted(self, quote: str) -> str:
        if quote == "'":
            match = re.compile(r"'((?:[^']|'')*)'").match(self._text, self._at)
            if match is None:
                raise self._wrong("the quote ' is not closed")
            self._at = match.end()
            return match[1].replace("''", "'")
        try:
            value, self._at = json.JSONDecoder().raw_decode(self._text, self._at)
        except ValueError:
            raise self._wrong('a text in double quotes is not closed, or holds more than \\" and \\\\') from None
        return str(value)

    def _plain(self, flow: bool) -> _Value:
        match = re.compile(r"(?:[^,\[\]{}#]|(?<! )#)*" if flow else r"(?:[^#]|(?<! )#)*").match(self._text, self._at)
        assert match is not None  # the pattern also matches nothing
        text = match[0].strip()
        self._at = match.end()
        if not text or text[0] in "&*!|>%@`?" or ": " in text or text.endswith(":"):
            raise self._wrong(f"{text!r} must be quoted" if text else "a value is missing")
        if text in ("true", "false"):
            return text == "true"
        return int(text) if _WHOLE.fullmatch(text) else text


def _word(value: _Value) -> str:
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def _count(key: str, line: int, value: _Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"line {line}: {key}: must be a whole number, not {value!r}")
    return value


def _texts(key: str, line: int, value: _Value) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"line {line}: {key}: must be a list, as in {key}: [one, two]")
    texts = []
    for item in value:
        if isinstance(item, (list, dict, bool)):
            raise ValueError(f"line {line}: {key}: {item!r} is not text; quote it")
        text = str(item).strip()
        if not text or not text.isprintable() or len(text) > _TEXT:
            raise ValueError(f"line {line}: {key}: each is one line of 1 to {_TEXT} printable characters")
        texts.append(text)
    return tuple(texts)


def _runs(line: int, value: _Value) -> tuple[Run, ...]:
    if not isinstance(value, list):
        raise ValueError(f"line {line}: runs: must be a list of {{at: seconds, tokens: number, ok: true}}")
    runs = []
    for item in value:
        entry: Mapping[str, _Value] = item if isinstance(item, dict) else {}
        at, spent, ok = entry.get("at"), entry.get("tokens"), entry.get("ok")
        whole = type(at) is int and type(spent) is int and isinstance(ok, bool)
        if not whole or entry.keys() != {"at", "tokens", "ok"}:
            raise ValueError(f"line {line}: runs: each must be {{at: seconds, tokens: number, ok: true or false}}")
        assert isinstance(at, int) and isinstance(spent, int) and isinstance(ok, bool)
        runs.append(Run(at, spent, ok))
    return tuple(runs)


def _flow(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_scalar, texts))}]"


def _scalar(text: str) -> str:
    """Return a text as YAML: plain where that is unmistakable, else in double quotes."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_PLAIN
    return text if plain else json.dumps(text, ensure_ascii=False)
