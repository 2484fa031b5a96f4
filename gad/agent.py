"""The runner: performs one session's steps until it must wait for somebody.

    while not waiting(step := session.next_step()):
        event = perform(step)
        journal, fold, show it

Retry policy lives here and nowhere else. A stop request or a shutdown cancels the step that is under
way; the machine then says what follows from that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gad.core.arguments import check_arguments
from gad.core.budget import FREE, Price, cost_usd
from gad.core.context import result_limit
from gad.core.cut import cut
from gad.core.escalation import ASK
from gad.core.failover import SPRING_BACK, Standing
from gad.core.messages import ToolCall, ToolResult, Usage
from gad.core.permission import REFUSED_BEFORE, fingerprint
from gad.core.policy import CANDIDATES, Policy
from gad.core.ports import Answer, Memory, Outcome, Provider, RunCommand, Tool, ToolContext, ToolSchema
from gad.core.records import (
    Answered,
    Asked,
    Calling,
    Checked,
    Checking,
    Decided,
    Deferred,
    Ended,
    Moved,
    Paused,
    Record,
    ScriptRan,
    ScriptStarted,
    ToolFinished,
    ToolStarted,
)
from gad.core.redact import Secrets
from gad.core.request import build, offered, plan_next, plan_stricter, prefix_digest
from gad.core.session import NOT_ASKED, Session
from gad.core.steps import AwaitReply, CallModel, Finish, RunCheck, RunScript, RunTool
from gad.core.uses import Place
from gad.errors import AuthError, ContextOverflow, GadError, LocalModelError, Permanent, Refused, Temporary
from gad.spool.files import MACHINE
from gad.spool.live import Live, explain
from gad.spool.narrate import call_heading

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How to wait for a model that is out of reach, in seconds: the first wait, the longest, when to give up."""

    first: float
    most: float
    give_up: float

    def wait(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait before attempt `attempt` + 1: doubled each time, jittered by up to a half.

        What the server asked for is a floor, with a little jitter of its own: many sessions are told the same.
        """
        backoff = min(self.most, self.first * 2.0 ** min(attempt - 1, 30)) * random.uniform(0.5, 1.0)
        return max(backoff, (retry_after or 0.0) * random.uniform(1.0, 1.1))


class RunScriptOf(Protocol):
    """Run an SOP's script in `cwd` as its own process group; return its exit code and what the model may read of it."""

    def __call__(
        self,
        sop: str,
        arguments: tuple[str, ...],
        *,
        cwd: str,
        work: str,
        environment: Mapping[str, str],
        emit: Callable[[str], None],
    ) -> Awaitable[tuple[int, str]]:
        """End the whole group when the call is cancelled. An SOP without a script is a failure that says so."""
        ...


class Kin(Protocol):
    """A session's parent and children, which share its limits and its stop."""

    async def settle(self, session: Session) -> str:
        """Have the journals of those above say what the session has used.

        Return which limit of theirs is used up, in words for the user; empty when none is.
        """
        ...

    def used_up(self, session: Session) -> str:
        """Return the same of those above that are at work, at once."""
        ...

    async def stop_children(self, session: Session) -> None:
        """Ask for the session's children to be halted; return when that is on the disk."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a runner is made of; the composition root chooses.

    `price` takes a model entry's name and the id that the server reported; `window` gives the tokens that one of its
    requests may take. `memory` is a session's way into long-term memory, `run_script` runs an SOP's script, `decide`
    asks the memory controller before a request, and `ended` is told when a round is over. `spent_today` and `spend` are
    the whole daemon's US dollars; `over_quota` says why a session's user may spend no more today. `chain` gives the
    entries that may answer for a model's name, the preferred first; `standing` is what the sessions have learnt of
    them. `policy` says which calls may run.
    `secrets` are kept out of all that is written; `seen` is told each record of each session.
    """

    provider: Callable[[str], Provider]
    tools: Mapping[str, Tool]
    run_check: RunCommand
    retry: RetryPolicy
    price: Callable[[str, str | None], Price | None]
    window: Callable[[str], int]
    environment: Callable[[str, str], Mapping[str, str]]
    work: Callable[[str], str]
    now: Callable[[], float] = time.time
    usd_per_day: float | None = None
    spent_today: Callable[[], float] = lambda: 0.0
    spend: Callable[[str, float, int | None], None] = lambda session, usd, user: None
    over_quota: Callable[[Session], str] = lambda session: ""
    memory: Callable[[Session], Memory | None] = lambda session: None
    run_script: RunScriptOf | None = None
    decide: Callable[[Session], Awaitable[Decided | None]] | None = None
    ended: Callable[[Live], None] = lambda live: None
    chain: Callable[[str], tuple[str, ...]] = lambda name: (name,)
    standing: Standing = field(default_factory=Standing)
    policy: Policy = field(default_factory=Policy)
    secrets: Secrets = field(default_factory=Secrets)
    seen: Callable[[Session, Record], None] = lambda session, record: None


Work = CallModel | RunTool | RunScript | RunCheck
"""Steps that take time and can be broken off."""


class Runner:
    """Runs one live session."""

    def __init__(self, live: Live, parts: Parts, kin: Kin) -> None:
        self.live = live
        self._parts = parts
        self._kin = kin
        self._step: asyncio.Task[Record] | None = None
        self._leaving = False
        self._finishing = False

    def interrupt(self) -> None:
        """Break off the step under way: the session has a stop request."""
        if self._step is not None:
            self._step.cancel()

    def finish(self) -> None:
        """Leave when the turn under way is over, to be resumed by the next daemon."""
        self._finishing = True

    def take_up(self, parts: Parts) -> None:
        """Go on with other parts, from the next step on."""
        self._parts = parts

    def leave(self) -> None:
        """Break off and leave the session as it is, to be resumed by the next daemon."""
        self._leaving = True
        self.live.press()
        self.interrupt()

    async def run(self) -> None:
        """Perform steps until the session waits for a client or for a model that is out of reach."""
        session, kin = self.live.session, self._kin
        used_up = await kin.settle(session)  # a crash may have come before the parent was told
        while not self._leaving:
            record: Record | None
            match session.next_step(self._parts.now()):
                case CallModel() if self._finishing:
                    break
                case CallModel() | Finish(limit=True) if used_up := used_up or kin.used_up(session):
                    record = Ended(self._parts.now(), "failed", used_up, True, session.claims)
                case AwaitReply(None):
                    return
                case AwaitReply(question) if question is not None:
                    record = Asked(self._parts.now(), "", question.text, question.candidates)
                case Finish() as finish:
                    if finish.state == "stopped":
                        await kin.stop_children(session)
                    record = self._ended(finish)
                case CallModel() | RunTool() | RunScript() | RunCheck() as step:
                    record = await self._guarded(step)
            if record is not None:
                await self.live.append(record)
            if isinstance(record, Answered):
                used_up = await kin.settle(session)
            if isinstance(record, Ended):
                self._parts.ended(self.live)
            if isinstance(record, Deferred):
                return
        await self.live.quiet()
        if session.state == "running":
            await self.live.append(Paused(self._parts.now()))

    def _ended(self, finish: Finish) -> Ended:
        return Ended(self._parts.now(), finish.state, finish.error, finish.limit, finish.upto)

    async def _guarded(self, step: Work) -> Record | None:
        """Perform one step within the time limit; None when it was broken off by a stop or a shutdown."""
        session = self.live.session
        late = False
        self._step = asyncio.create_task(self._perform(step))
        try:
            while not self._step.done():
                left = session.allowance.seconds_left(self._parts.now())
                if left is not None and left <= 0:
                    late = self._step.cancel() or late
                    left = None
                await asyncio.wait({self._step}, timeout=left)
            if not self._step.cancelled():
                return self._step.result()
            await self.live.quiet()  # what the step was journalling is part of the state that follows
            return self._ended(session.out_of_time()) if late and not session.stop_requested else None
        except asyncio.CancelledError:
            self._step.cancel()
            await asyncio.wait({self._step})
            raise
        finally:
            self._step = None

    async def _perform(self, step: Work) -> Record:
        match step:
            case CallModel():
                return await self._call_model(step)
            case RunTool():
                return await self._run_tool(step)
            case RunScript():
                return await self._run_script(step)
            case RunCheck():
                return await self._run_check(step)

    # -- the model -----------------------------------------------------------------------------

    async def _call_model(self, step: CallModel) -> Record:
        session, parts, standing = self.live.session, self._parts, self._parts.standing
        known = session.claims  # a reply that comes while we ask is not answered by our failure
        chain = parts.chain(session.options.model or "")
        link = standing.link(chain, parts.now())
        if not standing.all_rest(chain, parts.now()) and (moved := self._moved(chain, link, parts.now())):
            return moved
        try:
            provider = parts.provider(link)
        except GadError as exc:
            return self._out_of_reach(chain, link, exc, known)
        if refusal := self._unaffordable(provider.model, parts.price(link, None)):
            return self._failed(refusal, known)
        if parts.decide is not None and (decided := await parts.decide(session)):
            await self.live.append(decided)
        tools, turn = self._schemas(), step.turn
        digest = prefix_digest(tools)
        plan = plan_next(session, tools, turn, parts.window(link))
        told = link == (session.reach.link or chain[0])  # when all rest, another one than the last may be asked
        plan = replace(plan, schemas=not told or session.history.elision.due(turn, (digest,)))
        await self.live.append(Calling(parts.now(), turn, provider.model, plan, digest))
        try:
            try:
                answer = await provider.ask(build(session, tools, turn), self.live.emit)
            except ContextOverflow as exc:
                log.info("session %s: cut and sent again: %s", self.live.name, exc)
                plan = plan_stricter(session, tools, turn)
                await self.live.append(Calling(parts.now(), turn, provider.model, plan, digest))
                answer = await provider.ask(build(session, tools, turn), self.live.emit)
        except ContextOverflow as exc:
            return self._failed(_too_long(exc, parts.window(link)), known)
        except Refused as exc:  # an answer, though not a welcome one
            standing.answered(link)
            return self._failed(str(exc), known)
        except (Temporary, Permanent, LocalModelError) as exc:
            return self._out_of_reach(chain, link, exc, known)
        except OSError as exc:  # not the model's fault: no descriptors, no room
            if exc.errno not in MACHINE:
                raise
            return self._defer(explain(exc), None, known)
        if moved := self._moved(chain, link, parts.now()):  # all rested, and another one than the last has answered
            await self.live.append(moved)
        standing.answered(link)
        return self._answered(step, answer, parts.price(link, answer.model))

    def _answered(self, step: CallModel, answer: Answer, price: Price | None) -> Answered:
        # A server that reports no tokens at all has not said what this took; that is not "nothing".
        told = answer.usage != Usage() or price == FREE
        usd = cost_usd(answer.usage, price) if told else None
        if usd:
            self._parts.spend(self.live.name, usd, self.live.session.owner)
        return Answered(self._parts.now(), step.turn, answer.message, answer.stop, answer.model, answer.usage, usd)

    def _unaffordable(self, model: str, price: Price | None) -> str:
        """Return why money keeps this request from being made, or an empty string."""
        cap, limit = self._parts.usd_per_day, self.live.session.options.usd
        if price is None and (cap is not None or limit is not None):
            return f"a dollar limit is set, but the price of {model} is unknown: add it under `prices:` in gad.yaml"
        if cap is not None and (spent := self._parts.spent_today()) >= cap:
            return f"the day's dollar cap is reached ({spent:.2f} of {cap:g} USD): see `usd_per_day` in gad.yaml"
        return self._parts.over_quota(self.live.session)

    def _schemas(self) -> tuple[ToolSchema, ...]:
        return offered(self.live.session, (tool.schema for tool in self._parts.tools.values()))

    def _failed(self, error: str, known: int, *, auth: bool = False) -> Ended:
        return Ended(self._parts.now(), "failed", error, upto=known, auth=auth)

    def _moved(self, chain: tuple[str, ...], link: str, now: float) -> Moved | None:
        """Return the record that tells of another link in use; None when the session's records say it already."""
        session = self.live.session
        former = session.reach.link or chain[0]
        if former != link:
            rest = self._parts.standing.rest(former, now)
            return Moved(now, former, link, rest.error, rest.until) if rest else Moved(now, former, link)
        if (told := session.reach.failover) and told.until <= now:  # another session has tried the first one meanwhile
            rest = self._parts.standing.rest(told.model_from, now)
            return Moved(now, told.model_from, link, rest.error, rest.until) if rest else None
        return None

    def _out_of_reach(self, chain: tuple[str, ...], link: str, error: GadError, known: int) -> Record:
        """Return what follows from a link's failure: another one is asked, or this one later, or the round is over."""
        session, standing, retry, now = self.live.session, self._parts.standing, self._parts.retry, self._parts.now()
        since = min(session.reach.deferred_since or now, now)
        asked = error.retry_after if isinstance(error, Temporary) else None
        attempts = session.reach.attempts + 1
        standing.failed(link, error, now, patient=now + retry.wait(attempts, asked) - since <= retry.give_up)
        # A chain so slow that each rest is over before its turn comes must give up some day all the same.
        if now - since <= max(retry.give_up, SPRING_BACK) and not standing.all_rest(chain, now):
            following = standing.link(chain, now)
            if following != link and (moved := self._moved(chain, following, now)):
                return moved
        if standing.lasting(chain, now, since):
            whole = [f"{entry}: {rest.error.rstrip('.')}" for entry in chain if (rest := standing.rest(entry, now))]
            told = str(error) if len(chain) == 1 else "; ".join(whole)
            return self._failed(told, known, auth=isinstance(error, AuthError))
        # What counts is how long the server that is asked next wants to be left alone.
        if rest := standing.rest(standing.link(chain, now), now):
            asked = max(0.0, rest.asked - now)
        return self._defer(str(error), asked, known)

    def _defer(self, error: str, retry_after: float | None, known: int) -> Record:
        session, retry, now = self.live.session, self._parts.retry, self._parts.now()
        attempts = session.reach.attempts + 1
        wait = retry.wait(attempts, retry_after)
        since = session.reach.deferred_since or now
        if now + wait - since > retry.give_up:
            return self._failed(f"gave up after {attempts} attempts in {now - since:.0f} s: {error}", known)
        return Deferred(now, error, now + wait, attempts)

    # -- tools ---------------------------------------------------------------------------------

    async def _run_tool(self, step: RunTool) -> Record:
        call, session = step.call, self.live.session
        tool = self._parts.tools.get(call.name)
        allowed = {schema.name for schema in self._schemas()} | {ASK}
        refusal = step.refusal
        arguments = call.arguments
        if not refusal and (tool is None or call.name not in allowed):
            refusal = f"unknown tool {call.name!r}: there are {', '.join(sorted(allowed))}"
        if not refusal and tool is not None:
            try:
                arguments = check_arguments(tool.schema, arguments)
            except ValueError as exc:
                refusal = str(exc)
        self.live.say(call_heading(call.name, dict(call.arguments)))
        if refusal or tool is None:
            meta = {"not_run": True} if step.not_run else {}
            return self._finished(step, Outcome("error", refusal, meta), 0.0)
        work = self._parts.work(session.name)
        if call.name != ASK:
            ruling = await self._ruling(step, arguments, work)
            if not isinstance(ruling, ToolStarted):
                return ruling
            await self.live.append(ruling)
        context = ToolContext(
            session=session.name,
            call_id=call.id,
            cwd=session.options.cwd or work,
            work=work,
            emit=self.live.emit,
            environment=self._parts.environment(session.name, call.id),
            limit=self._limit(call),
            memory=self._parts.memory(session),
            labels=session.options.labels,
            secrets=self._parts.secrets,
            confined=session.options.confined,
        )
        began = time.monotonic()
        try:
            outcome = await tool.run(arguments, context)
        except Exception as exc:  # a tool's own bug must not take the session down; the model sees it, the log has it
            log.exception("session %s: tool %s broke", session.name, call.name)
            outcome = Outcome("error", f"{call.name} broke: {type(exc).__name__}: {exc}")
        if outcome.question is not None:
            return Asked(self._parts.now(), call.id, outcome.question.text, outcome.question.candidates)
        return self._finished(step, outcome, time.monotonic() - began)

    async def _ruling(
        self, step: RunTool, arguments: Mapping[str, Any], work: str
    ) -> ToolStarted | Asked | ToolFinished:
        """Return what the policy makes of a call: its start, a question to the user, or its refusal."""
        call, session = step.call, self.live.session
        memory = self._parts.memory(session)
        place = Place(
            session.name,
            session.options.cwd or work,
            work,
            memory.root if memory is not None else "",
            os.path.realpath,
            frozenset(session.children),
            session.options.confined,
        )
        try:
            verdict = await asyncio.to_thread(self._parts.policy.judge, call.name, arguments, place)
        except Exception as exc:  # a bug of ours must not let through what it should have judged
            log.exception("session %s: a call of %s could not be judged", session.name, call.name)
            why = f"not run: whether it may could not be told: {type(exc).__name__}: {exc}"
            return self._finished(step, Outcome("error", why, {"policy": "deny"}), 0.0)
        rules = "; ".join(verdict.rules)
        if verdict.action == "allow":
            return ToolStarted(self._parts.now(), call.id, call.name, rules)
        if verdict.action == "deny":
            return self._finished(step, Outcome("error", verdict.refusal(), {"policy": "deny"}), 0.0)
        question = verdict.question(call.name, arguments)
        exact = fingerprint(question)
        if word := session.permissions.covers(call, verdict, exact):
            return ToolStarted(self._parts.now(), call.id, call.name, f"{word}: {rules}")
        if not session.can_ask_leave:
            return self._finished(step, Outcome("error", verdict.refusal(asked=True), {"policy": "deny"}), 0.0)
        if session.permissions.refused(call):
            return self._finished(step, Outcome("error", REFUSED_BEFORE, {"policy": "deny"}), 0.0)
        if session.unheard:
            return self._finished(replace(step, not_run=True), Outcome("error", NOT_ASKED, {"not_run": True}), 0.0)
        return Asked(self._parts.now(), call.id, question, CANDIDATES, verdict.rules, verdict.keys, exact)

    def _finished(self, step: RunTool, outcome: Outcome, seconds: float) -> ToolFinished:
        output = self._parts.secrets.redact(outcome.output)  # before it is cut: half a secret is not recognised
        if outcome.status == "error" and step.note and not step.not_run:
            output = f"{output}\n{step.note}".strip()
        output = cut(output, self._limit(step.call) + len(step.note), outcome.saved)
        result = ToolResult(step.call.id, outcome.status, output, dict(outcome.meta), outcome.saved)
        return ToolFinished(self._parts.now(), result, round(seconds, 3), outcome.key_info)

    def _limit(self, call: ToolCall) -> int:
        session = self.live.session
        return result_limit(
            call.name, session.calls, self._parts.window(session.reach.link or session.options.model or "")
        )

    async def _run_script(self, step: RunScript) -> Record:
        session, parts = self.live.session, self._parts
        await self.live.append(ScriptStarted(parts.now(), step.sop))
        began = time.monotonic()
        if parts.run_script is None:
            return ScriptRan(parts.now(), 127, f"[there is no long-term memory here, so no procedure {step.sop}]")
        work = parts.work(session.name)
        exit_code, output = await parts.run_script(
            step.sop,
            step.arguments,
            cwd=session.options.cwd or work,
            work=work,
            environment=parts.environment(session.name, "script"),
            emit=self.live.emit,
        )
        return ScriptRan(parts.now(), exit_code, output, round(time.monotonic() - began, 3))

    async def _run_check(self, step: RunCheck) -> Record:
        session = self.live.session
        await self.live.append(Checking(self._parts.now()))
        work = self._parts.work(session.name)
        exit_code, output = await self._parts.run_check(
            step.command,
            cwd=session.options.cwd or work,
            work=work,
            environment=self._parts.environment(session.name, "check"),
            emit=self.live.emit,
        )
        return Checked(self._parts.now(), exit_code, output)


def _too_long(error: ContextOverflow, window: int) -> str:
    return (
        f"the request is too long for the model even when it is cut to what the newest turns need: {error} "
        f"Set `window` of its entry in gad.yaml to what the model can read (it is {window:,} tokens now)."
    )
