"""The memory controller at work: it decides before a request how memory is used, and learns when a round is over.

What it decides and how it learns is `gad.core.memcon`; when and on what view of the session, `gad.core.situation`;
what its actions do to memory, `gad.memory.layers`. Here is its state, memory/controller.json, which is read and
written anew, whole and durably, under the memory lock each time. A decision is saved before it is acted on and before
the session's journal tells of it; a daemon that is killed in between finds it there and does not decide again.

Nothing here can stop a session: what goes wrong is logged, and the round goes on without the controller.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import posixpath
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gad.core.directive import Spot, render
from gad.core.memcon import MemCon, Settled
from gad.core.memcon_actions import Performed, perform
from gad.core.memcon_json import number, text
from gad.core.memcon_policy import Policy, choose
from gad.core.memcon_state import ACTIONS, Situation
from gad.core.records import Decided
from gad.core.session import Session
from gad.core.situation import Asked, Seen, ask, join, keepable, observed, over, round_key, split, steps_of
from gad.errors import GadError, MemoryLocked
from gad.memory import files
from gad.memory.layers import EPISODES, PLANS, Layers, View
from gad.memory.store import MemoryStore

log = logging.getLogger(__name__)

STATE = "controller.json"
SCHEMA = 1
"""The version of the file's form."""
PATIENCE = 2.0
"""Seconds that a session waits for the memory lock before it goes on without a decision."""
REST = 5.0
"""Seconds for which no session waits, when one has waited in vain."""
SETTLED = 300
"""Outcomes that are remembered, the latest."""
LARGEST = 64_000_000
"""Bytes of the largest state that is read."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an episode: its reward and how many decisions were credited; `at` is in seconds since the epoch.

    `actions` are the decisions' actions, in order.
    """

    at: float
    episode: str
    session: str
    success: bool
    reward: float
    credited: int
    actions: tuple[str, ...]

    def line(self) -> str:
        """Return it as one line for people."""
        word = "success" if self.success else "failure"
        credited = f"credited to {self.credited} decisions ({', '.join(self.actions)})"
        return f"memory: {word}, reward {self.reward:.3f} {credited} of {self.episode}"


@dataclass(frozen=True, slots=True)
class _Sitting:
    """An episode that is not settled: which session's it is, for which round, and its latest decision."""

    session: str
    key: str
    step: int = -1
    point: str = ""
    action: int = 0
    state: str = ""
    actions: tuple[str, ...] = ()


@dataclass(slots=True)
class _State:
    """What controller.json holds. `generation` tells one file's episodes from those of one that was lost."""

    memcon: MemCon
    generation: str
    sittings: dict[str, _Sitting] = field(default_factory=dict)  # by the episode's id in memcon
    settled: list[Outcome] = field(default_factory=list)

    def name(self, episode: str) -> str:
        """Return what the episode is called outside."""
        return f"{episode}-{self.generation}"

    def episode(self, name: str) -> str:
        """Return the id in memcon of an episode's name, empty for another generation's."""
        episode, _, generation = name.rpartition("-")
        return episode if generation == self.generation else ""

    def sitting(self, key: str) -> str:
        """Return the episode of a round, empty when there is none that is open."""
        open_now = frozenset(self.memcon.open)
        return next((one for one, sitting in self.sittings.items() if sitting.key == key and one in open_now), "")


class Controller:
    """The memory controller of one store. `now` gives seconds since the epoch.

    `place` is where a session's relative paths start. With `enabled` false nothing is read or written and nothing
    decided. `policy` chooses the actions; another one than the default is for comparisons.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        now: Callable[[], float] = time.time,
        enabled: bool = True,
        policy: Policy = choose,
        place: Callable[[Session], str] = lambda session: session.options.cwd or os.sep,
    ) -> None:
        self.enabled = enabled
        self._store = store
        self._deciding = MemoryStore(store.root, timeout=PATIENCE)
        self._one = asyncio.Lock()
        self._locked_until = 0.0  # by the monotonic clock
        self._layers = Layers(store)
        self._now = now
        self._policy = policy
        self._place = place
        self._left_alone: dict[str, str] = {}  # by session, the round that goes on without the controller

    async def decide(self, session: Session) -> Decided | None:
        """Return a decision when one is due and there is anything in memory; no disk is touched when none is due."""
        if not self._concerns(session) or self._left_alone.get(session.name) == round_key(session):
            return None
        asked = ask(session)
        if asked is None:
            return None
        try:
            decided = await self._in_turn(asked, self._place(session))
        except (GadError, OSError, ValueError) as exc:
            log.warning("session %s: this round goes on without the memory controller: %s", session.name, exc)
            decided = None
        if decided is None:
            self._left_alone[session.name] = asked.key
        return decided

    def ended(self, session: Session, success: bool | None) -> Outcome | None:
        """Learn from the session's latest round that is over; return what was learnt.

        `success` is None as long as nobody but the model says how it went; called again when it gets known, it is
        learnt then, and once. Takes the memory lock; not for the event loop. Raises MemoryLocked, OSError.
        """
        if not self.enabled:
            return None
        if self._left_alone.get(session.name) == round_key(session):
            del self._left_alone[session.name]
        decided = over(session)
        if decided is None:
            return None
        first, last = steps_of(session, decided)
        actions = observed(session, first, last, self._store.root)
        return self._settle(split(decided.episode)[0], success, (last - first, actions))

    def verdict(self, episode: str, success: bool) -> Outcome | None:
        """Learn from what the user says of an episode that is over, named as in its `Decided` records; once.

        Takes the memory lock; not for the event loop. Raises MemoryLocked, OSError.
        """
        return self._settle(split(episode)[0], success) if self.enabled else None

    def restore(self, names: Collection[str] | None = None) -> list[str]:
        """Bring back forgotten episodes, all of them by default; return their paths."""
        return self._layers.restore(names)

    def outcomes(self, session: str | None = None) -> list[Outcome]:
        """Return the latest outcomes, of one session or of all, the newest last. Takes no lock, changes nothing."""
        state = self._peek()
        found = state.settled if state is not None else []
        return [one for one in found if session in (None, one.session)]

    def told(self) -> list[str]:
        """Return what has been learnt, for people; empty when there is nothing yet. Takes no lock, changes nothing."""
        state = self._peek()
        if state is None:
            return []
        memcon = state.memcon
        lines = [
            f"{memcon.task_index} tasks, {memcon.updates} learnt from, {len(memcon.open)} under way, "
            f"{len(memcon.waiting)} whose outcome is not known; {len(memcon.table)} states"
        ]
        for key, row in sorted(memcon.table.items(), key=lambda item: -sum(item[1].counts)):
            tried = [a for a in ACTIONS if row.counts[a.index]]
            tried.sort(key=lambda action: -row.values[action.index])
            lines.append(str(key))
            lines.append(
                "  " + ", ".join(f"{a.name} {row.values[a.index]:.3f} ({row.counts[a.index]}x)" for a in tried)
            )
        return lines

    # -- deciding ----------------------------------------------------------------------------------

    def _concerns(self, session: Session) -> bool:
        """Say whether a session may be told to read: it has memory, and the tool to read it."""
        tools = session.options.tools
        return self.enabled and session.options.memory and (tools is None or "file_read" in tools)

    async def _in_turn(self, asked: Asked, cwd: str) -> Decided | None:
        """Decide when nobody else does: so one thread waits for memory, not one for each session.

        When it has waited in vain, nobody waits for some time.
        """
        async with self._one:
            if time.monotonic() < self._locked_until:
                raise MemoryLocked("memory was locked a moment ago")
            try:
                return await asyncio.to_thread(self._decide, asked, cwd)
            except MemoryLocked:
                self._locked_until = time.monotonic() + REST
                raise

    def _decide(self, asked: Asked, cwd: str) -> Decided | None:
        view = self._layers.look()
        if not view.active:
            return None
        name, sitting, plan = self._chosen(asked, view.active)
        read = frozenset(self._ids_read(view, asked.reads, cwd))
        performed = perform(ACTIONS[sitting.action], asked.query, view, plan, read)
        directive = render(self._store.root, self._spots(view, asked.goal_type, performed))
        action = ACTIONS[sitting.action].name
        if performed.note:
            log.info("session %s: memory: %s: %s", asked.session, action, performed.note)
        return Decided(self._now(), asked.point, asked.step, join(name, asked.round), action, sitting.state, directive)

    def _chosen(self, asked: Asked, active: int) -> tuple[str, _Sitting, tuple[str, ...]]:
        """Choose and save, or find what was chosen for this point before; return it and the plan that there is."""
        with self._deciding.locked(f"deciding for session {asked.session}"):
            state = self._load()
            episode = state.sitting(asked.key)
            if not episode:
                told = keepable(asked.query, asked.session) or asked.goal_type
                episode = state.memcon.begin(asked.goal_type, told)
                state.sittings[episode] = _Sitting(asked.session, asked.key)
            sitting = state.sittings[episode]
            plan = state.memcon.plan(asked.goal_type)
            if (sitting.step, sitting.point) != (asked.step, asked.point):
                now = asked.situation
                situation = Situation(now.step, now.repeats, now.held, now.visited, active)
                decision = state.memcon.decide(episode, situation)
                sitting = _Sitting(
                    asked.session,
                    asked.key,
                    asked.step,
                    asked.point,
                    decision.action.index,
                    str(decision.state),
                    (*sitting.actions, decision.action.name),
                )
                state.sittings[episode] = sitting
                self._save(state)
            return state.name(episode), sitting, plan

    def _spots(self, view: View, goal_type: str, performed: Performed) -> Iterator[Spot]:
        plan = f"{PLANS}/{goal_type}.md"
        if performed.plan and self._layers.read(plan) is not None:
            yield Spot(plan, tuple(range(1, len(performed.plan) + 2)))
        found = performed.found
        yield from view.spots((*found.pointers, *found.facts, *found.linked))

    def _ids_read(self, view: View, reads: Collection[Seen], cwd: str) -> Iterator[str]:
        """Yield the ids of what the session has read of memory."""
        for seen in reads:
            path = posixpath.normpath(posixpath.join(cwd, os.path.expanduser(seen.path)))
            if path.startswith(f"{self._store.root}/"):
                yield from view.ids_read(path[len(self._store.root) + 1 :], seen.first, seen.last)

    # -- learning ----------------------------------------------------------------------------------

    def _settle(
        self, name: str, success: bool | None, done: tuple[int, tuple[str, ...]] | None = None
    ) -> Outcome | None:
        """End an episode, or learn its outcome when it has ended; None when there is nothing new to learn.

        `done` is how many steps it took and what they did; without it only an episode that has ended is looked at.
        """
        with self._store.locked(f"learning from episode {name}"):
            state = self._load()
            episode = state.episode(name)
            if done is not None and episode in state.memcon.open:
                settled = state.memcon.finish(episode, success, *done)
            elif episode in state.memcon.waiting and success is not None:
                settled = state.memcon.feedback(episode, success)
            else:
                return None
            outcome = self._keep(state, episode, settled) if settled is not None else None
            self._save(state)
        return outcome

    def _keep(self, state: _State, episode: str, settled: Settled) -> Outcome:
        """Write an episode's record and plan; they stand before the state says that it is settled."""
        sitting = state.sittings.pop(episode, None) or _Sitting("", "")
        record = settled.record.text
        self._layers.keep(f"{EPISODES}/{state.name(episode)}.md", f"{record}\nsession: {sitting.session}\n")
        for goal_type, plan in state.memcon.plans.items():
            lines = [f"What the latest success of the kind `{goal_type}` did:", *(f"- {action}" for action in plan)]
            self._layers.keep(f"{PLANS}/{goal_type}.md", "\n".join(lines) + "\n")
        self._layers.trim()
        outcome = Outcome(
            round(self._now(), 3),
            state.name(episode),
            sitting.session,
            settled.success,
            settled.reward,
            settled.credited,
            sitting.actions,
        )
        state.settled = [*state.settled, outcome][-SETTLED:]
        return outcome

    # -- the state ---------------------------------------------------------------------------------

    def _load(self) -> _State:
        """Return the state; a damaged file is put aside, and a new state begun. The lock is held."""
        try:
            data = self._read()
            if data is not None:
                return _from_json(json.loads(data), self._policy)
        except (ValueError, RecursionError, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno != errno.ELOOP:
                raise  # not the file's fault
            aside = f"{STATE}.damaged-{int(self._now() * 1000)}"
            log.error("%s cannot be read and is put aside as %s; the controller begins anew: %s", STATE, aside, exc)
            with files.directory(self._store.root, ()) as fd:
                os.rename(STATE, aside, src_dir_fd=fd, dst_dir_fd=fd)
        return _State(MemCon(policy=self._policy), format(time.time_ns() // 1000, "x"))

    def _peek(self) -> _State | None:
        try:
            data = self._read()
            return None if data is None else _from_json(json.loads(data), self._policy)
        except (ValueError, RecursionError, OSError):
            return None

    def _read(self) -> bytes | None:
        """Return what the file holds, None when there is none. Raises OSError for a link, ValueError when too large."""
        try:
            with (
                files.directory(self._store.root, ()) as fd,
                open(os.open(STATE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), "rb") as file,
            ):
                data = file.read(LARGEST + 1)
        except FileNotFoundError:
            return None
        if len(data) > LARGEST:
            raise ValueError(f"more than {LARGEST:,} bytes")
        return data

    def _save(self, state: _State) -> None:
        held = {*state.memcon.open, *state.memcon.waiting}
        state.sittings = {one: sitting for one, sitting in state.sittings.items() if one in held}
        value = {
            "schema": SCHEMA,
            "generation": state.generation,
            "memcon": state.memcon.to_json(),
            "sittings": {one: asdict(sitting) for one, sitting in state.sittings.items()},
            "settled": [asdict(one) for one in state.settled],
        }
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
        files.write_aside(self._store.root, data)
        files.place_aside(self._store.root, STATE)


def _from_json(value: Any, policy: Policy) -> _State:
    """Read back what `_save` wrote. Raises ValueError for another version or a damaged value."""
    try:
        if value["schema"] != SCHEMA:
            raise ValueError(f"schema {value['schema']!r}, expected {SCHEMA}")
        return _State(
            MemCon.from_json(value["memcon"], policy=policy),
            text(value["generation"]),
            {text(one): _sitting(item) for one, item in value["sittings"].items()},
            [_outcome(item) for item in value["settled"]],
        )
    except (AttributeError, KeyError, TypeError) as exc:
        raise ValueError(f"not what the controller writes: {exc!r}") from exc


def _sitting(item: Mapping[str, Any]) -> _Sitting:
    sitting = _Sitting(**{**item, "actions": tuple(map(text, item["actions"]))})
    if number(sitting.action) >= len(ACTIONS) or type(sitting.step) is not int:
        raise ValueError(f"not a decision: {item}")
    for told in (sitting.session, sitting.key, sitting.point, sitting.state):
        text(told)
    return sitting


def _outcome(item: Mapping[str, Any]) -> Outcome:
    outcome = Outcome(**{**item, "actions": tuple(map(text, item["actions"]))})
    numbers = (outcome.at, outcome.reward, number(outcome.credited))
    if not all(isinstance(one, int | float) for one in numbers) or not isinstance(outcome.success, bool):
        raise ValueError(f"not an outcome: {item}")
    for told in (outcome.episode, outcome.session):
        text(told)
    return outcome
