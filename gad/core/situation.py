"""What the memory controller sees of a session: what kind of task it is, how it stands, whether a decision is due.

All of it is computed from the session's fold; no model is asked. A round is one task, an episode of the controller.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gad.core.directive import remaining
from gad.core.gate import NO_PROOF, unfit
from gad.core.memcon_state import STUCK, Point, Situation, decision_point, repeats
from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User, canonical
from gad.core.records import Decided
from gad.core.session import Session
from gad.core.sop_line import sop_of
from gad.core.states import ENDED

GOAL_TYPES = ("review", "procedure", "trigger", "child", "code", "files", "web", "general")
"""All goal types: each has rows of its own in the controller's table, so there are few."""

_FAMILIES = (("code_", "code"), ("file_", "files"), ("web_", "web"))
"""What tools' names begin with, and the goal type of a task that mostly uses them."""
_WRITES = frozenset({"file_write", "file_patch"})
_PREAMBLE = re.compile(r"\A\[[^\n]*\]\n\n")
"""The line with date and directory that opens a session's first message."""
_URL = re.compile(r"https?://[^\s'\"<>()\]]+")


@dataclass(frozen=True, slots=True)
class Seen:
    """A file that the session has read: its path as the model wrote it, and which lines."""

    path: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Asked:
    """All that the controller needs to know for one decision; `situation` does not know the size of memory.

    `key` names this round of this conversation, `step` is how many calls the session has completed in all.
    """

    key: str
    session: str
    round: int
    point: Point
    step: int
    goal_type: str
    query: str
    situation: Situation
    reads: tuple[Seen, ...]


def ask(session: Session) -> Asked | None:
    """Return what a decision needs when one is due now, else None: also where the session is not told of memory."""
    point = due(session)
    if point is None or not session.told:
        return None
    step = len(session.proofs)
    return Asked(
        key=round_key(session),
        session=session.name,
        round=session.round,
        point=point,
        step=step,
        goal_type=goal_type(session),
        query=task_of(session),
        situation=situation(session, step - _began(session)),
        reads=tuple(reads(session)),
    )


def due(session: Session) -> Point | None:
    """Say why a decision is due before the next request, or None.

    It is due at a round's start, when the agent has just got stuck, and when a phase has begun since the last decision.
    """
    last = latest(session)
    if last is None:
        return "start"
    step = len(session.proofs)
    if step == last.step:
        return None
    tail, newest = _tail(session)
    before = tail[: len(tail) - newest]
    base = _began(session)
    then = Situation(step=last.step - base, repeats=repeats(before))
    return decision_point(then, Situation(step=step - base, repeats=repeats(tail)))


def goal_type(session: Session) -> str:
    """Return the kind of task: by where it comes from, else by the tools that it may use or has used.

    A label that is a goal type, or begins with one and a colon (`trigger:nightly`), decides.
    """
    options = session.options
    named = next((word for label in options.labels if (word := label.partition(":")[0]) in GOAL_TYPES), "")
    if options.review is not None:
        return "review"
    if sop_of(_first_words(session), options.sop) is not None:
        return "procedure"
    if named:
        return named
    if options.parent is not None:
        return "child"
    families = Counter(filter(None, map(_family, options.tools or ())))
    if len(families) != 1:
        families = Counter(filter(None, (_family(proof.name) for proof in session.proofs)))
    return families.most_common(1)[0][0] if families else "general"


def task_of(session: Session) -> str:
    """Return what was asked for: the first message, and the newest one when that is another."""
    said = list(_said(session.upcoming))
    if not said:
        return ""
    first = _PREAMBLE.sub("", said[0])
    return first if len(said) == 1 else f"{first}\n{said[-1]}"


def situation(session: Session, step: int) -> Situation:
    """Return how the session stands at step `step` of its round, the size of memory left out."""
    visited: set[str] = set()
    held: set[str] = set()
    for call, result in _calls(session.upcoming):
        visited.update(_places(call))
        if result is None or result.is_error:
            continue
        path = _path_of(call)
        if call.name in _WRITES and path:
            held.add(path)
        elif call.name == "file_read":
            held.discard(path)
        elif call.name == "code_run":
            code = " ".join(value for value in call.arguments.values() if isinstance(value, str))
            held = {written for written in held if posixpath.basename(written) not in code}
    tail, _ = _tail(session)
    return Situation(step=max(0, step), repeats=repeats(tail), held=len(held), visited=len(visited))


def reads(session: Session) -> Iterator[Seen]:
    """Yield what was read with file_read. A keyword's window is not known, so the whole file counts."""
    for call, result in _calls(session.upcoming):
        if call.name == "file_read" and result is not None and not result.is_error and (path := _path_of(call)):
            first, count = call.arguments.get("start"), call.arguments.get("count")
            start = first if type(first) is int and first > 0 else 1
            whole = bool(call.arguments.get("keyword"))
            length = count if type(count) is int and count > 0 else 200
            yield Seen(path, 1 if whole else start, 10**9 if whole else start + length - 1)


def standing(session: Session) -> str:
    """Return what the anchor says of memory: the latest decision's directive, without what has been read."""
    last = latest(session)
    if last is None or not last.directive:
        return ""
    done = {_normal(proof.path) for proof in session.proofs if proof.ok and proof.name == "file_read"}
    return remaining(last.directive, done)


def latest(session: Session) -> Decided | None:
    """Return this round's latest decision."""
    last = session.decisions[-1] if session.decisions else None
    return last if last is not None and split(last.episode)[1] == session.round else None


def over(session: Session) -> Decided | None:
    """Return the latest decision whose round is over: of the present round only when the session has ended."""
    last_round = session.round if session.state in ENDED else session.round - 1
    return next((one for one in reversed(session.decisions) if split(one.episode)[1] <= last_round), None)


def steps_of(session: Session, decided: Decided) -> tuple[int, int]:
    """Return how many calls were completed before a decision's round and until its end."""
    rounds = split(decided.episode)[1]
    begins = [one.step for one in session.decisions if split(one.episode)[1] == rounds]
    later = [one.step for one in session.decisions if split(one.episode)[1] > rounds]
    return begins[0], later[0] if later else len(session.proofs)


def observed(session: Session, first: int, last: int, root: str) -> tuple[str, ...]:
    """Return what calls `first` to `last` (from zero, `last` excluded) did, of those that worked, for a plan.

    Left out are calls that show nothing, those that touch memory (at `root`) or temporary paths, and what could be a
    secret.
    """
    told = (
        proof.gist.removesuffix(": ok")
        for proof in session.proofs[first:last]
        if proof.ok and proof.name not in NO_PROOF and not _normal(proof.path).startswith(f"{root}/")
    )
    return tuple(text for text in told if unfit(text, session.name) is None)


def keepable(text: str, session: str) -> str:
    """Return a text on one line without the lines that could hold a secret or what passes."""
    return " ".join(" ".join(line for line in text.splitlines() if unfit(line, session) is None).split())


def join(episode: str, number: int) -> str:
    """Return how a `Decided` record names an episode and the round that it is for."""
    return f"{episode}#{number}"


def split(name: str) -> tuple[str, int]:
    """Return the episode and the round that a `Decided` record names; the round is 0 when none is named."""
    episode, _, number = name.rpartition("#")
    return (episode, int(number)) if episode and number.isdecimal() else (name, 0)


def round_key(session: Session) -> str:
    """Return a name for this round, which no other round of any conversation has."""
    return f"{session.name} {session.began!r} {session.round}"


# -- pieces ------------------------------------------------------------------------------------


def _began(session: Session) -> int:
    """Return how many calls had been completed when the controller's part in this round began."""
    mine = [one.step for one in session.decisions if split(one.episode)[1] == session.round]
    return mine[0] if mine else len(session.proofs)


def _tail(session: Session) -> tuple[list[str], int]:
    """Return the latest calls since somebody last spoke, as canonical text, and how many are the newest answer's.

    No more than it takes to see whether the agent is stuck, now and before the newest answer.
    """
    found: list[str] = []
    newest = -1
    for message in reversed(session.upcoming):
        if isinstance(message, User) and any(isinstance(part, Text) and not part.note for part in message.parts):
            break
        if isinstance(message, Assistant):
            found.extend(_canonical(call) for call in reversed(message.calls))
            newest = len(found) if newest < 0 else newest
            if len(found) > newest + STUCK:
                break
    return found[::-1], max(newest, 0)


def _canonical(call: ToolCall) -> str:
    return call.name + canonical(call.arguments)


def _calls(messages: Iterable[Message]) -> Iterator[tuple[ToolCall, ToolResult | None]]:
    """Yield every call with its result, in order."""
    open_calls: Sequence[ToolCall] = ()
    for message in messages:
        if isinstance(message, Assistant):
            open_calls = message.calls
        elif open_calls:
            results = {part.call_id: part for part in message.parts if isinstance(part, ToolResult)}
            yield from ((call, results.get(call.id)) for call in open_calls)
            open_calls = ()


def _said(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, User):
            yield from (part.text for part in message.parts if isinstance(part, Text) and not part.note)


def _first_words(session: Session) -> str:
    return _PREAMBLE.sub("", next(_said(session.upcoming), ""))


def _places(call: ToolCall) -> Iterator[str]:
    """Yield the files and hosts that a call names."""
    if path := _path_of(call):
        yield path
    for value in call.arguments.values():
        if isinstance(value, str):
            for url in _URL.findall(value):
                if host := _host(url):
                    yield f"//{host}"


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _path_of(call: ToolCall) -> str:
    path = call.arguments.get("path")
    return _normal(path) if isinstance(path, str) and path else ""


def _normal(path: str) -> str:
    return posixpath.normpath(path)


def _family(tool: str) -> str:
    return next((family for prefix, family in _FAMILIES if tool.startswith(prefix)), "")
