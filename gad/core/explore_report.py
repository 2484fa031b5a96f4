"""The report of an exploration: what its agent writes, and what is kept of it. Markdown with a front matter.

An agent ends its report.md's front matter with what it alone knows:

    ---
    outcome: success          (or: failure)
    summary: one line
    skill: name               (the procedure that it proposes, if it does)
    ---

What is kept has gad's own record beside that: which task it was, how that was scored, when it ended, what it took. An
exploration that came to no report is kept as `unfinished`. Every value is JSON, so each front matter is YAML as well.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from gad.core.explore import Scores, from_json, number, words
from gad.core.sop import NAME, NAME_RULE, split_front

Outcome = Literal["success", "failure", "unfinished"]
SUMMARY = 200
"""Characters of a summary, at most."""
LENGTH = 30_000
"""Characters of a report, at most."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A report as its agent has written it."""

    outcome: Outcome
    summary: str
    skill: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report as it is kept.

    `at` is when the exploration ended, in seconds since the epoch; `predicted` the S that it was chosen by; `usd` None
    when nobody knows. `proposed` names what it wants memory to keep, and what became of it: `kept`, or that it waits.
    """

    task: str
    title: str
    category: str
    session: str
    at: float
    outcome: Outcome
    summary: str
    skill: str | None
    predicted: float
    scores: Scores
    turns: int
    usd: float | None
    proposed: dict[str, str]
    body: str

    def render(self) -> str:
        """Return the report's file."""
        head = [
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in asdict(self).items() if key != "body"
        ]
        return "\n".join(["---", *head, "---", self.body])

    @classmethod
    def parse(cls, text: str) -> Report:
        """Read back what `render` wrote. Raises ValueError."""
        front, body = split_front(text)
        try:
            found = {key: from_json(value) for key, _, value in (line.partition(": ") for line in front)}
            names = {one.name for one in fields(cls)}
            if found.keys() != names - {"body"}:
                raise ValueError(f"its keys must be {', '.join(sorted(names - {'body'}))}")
            for value in (found[key] for key in ("task", "title", "category", "session", "summary")):
                words(value)
            for value in (found[key] for key in ("at", "predicted", "turns")):
                number(value)
            if found["outcome"] not in get_args(Outcome):
                raise ValueError(f"outcome: must be {', '.join(get_args(Outcome))}")
            for key, check in (("skill", words), ("usd", number)):
                if found[key] is not None:
                    check(found[key])
            for text in (text for pair in found["proposed"].items() for text in pair):
                words(text)
            return cls(**found | {"scores": Scores.from_json(found["scores"])}, body=body)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"not a report of an exploration: {exc}") from None


def read_draft(text: str) -> Draft:
    """Read an agent's report.md. Raises ValueError, a line a mistake, each saying how to mend it."""
    if len(text) > LENGTH:
        raise ValueError(f"the report has {len(text):,} characters; {LENGTH:,} are the most")
    try:
        front, body = split_front(text)
    except ValueError:
        raise ValueError(
            "the report begins with its front matter: a line ---, then outcome: and summary:, then ---"
        ) from None
    found: dict[str, str] = {}
    mistakes = []
    for line in front:
        key, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or key.strip() not in ("outcome", "summary", "skill"):
            mistakes.append(f"{line.strip()!r}: no line of a report's front matter; there are outcome, summary, skill")
        found[key.strip()] = _plain(value.strip())
    outcome = found.get("outcome")
    if outcome not in ("success", "failure"):
        mistakes.append("outcome: must be success or failure")
    summary = found.get("summary", "")
    if not summary or not summary.isprintable() or len(summary) > SUMMARY:
        mistakes.append(f"summary: must be one line of 1 to {SUMMARY} printable characters")
    skill = found.get("skill") or None
    if skill is not None and not NAME.fullmatch(skill):
        mistakes.append(f"skill: {NAME_RULE}")
    if not body.strip():
        mistakes.append("the report has no text below its front matter")
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return Draft("success" if outcome == "success" else "failure", summary, skill, body)


def _plain(value: str) -> str:
    """Return a value without its quotes."""
    try:
        found: Any = from_json(value)
    except ValueError:
        return value
    return "" if found is None else found if isinstance(found, str) else value
