"""The session machine: one conversation's whole state as a fold over its records, and what to do next.

`record` takes in what happened; `next_step` says what to do about it. Both are pure, so a session is
resumed by folding `record` over its journal. Rule one is the table in `gad.core.states`.
"""

from __future__ import annotations

from collections.abc import Iterable

from gad.core.calls import OpenCalls
from gad.core.escalation import ASK, Escalation
from gad.core.gate import Proof
from gad.core.history import History
from gad.core.limits import Allowance
from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, Usage
from gad.core.permission import ANSWERED_OTHERWISE, Permissions
from gad.core.ports import Question
from gad.core.reach import Reach
from gad.core.records import (
    Answered,
    Asked,
    Begin,
    Calling,
    Checked,
    Checking,
    ChildBegan,
    ChildUsed,
    Decided,
    Deferred,
    Ended,
    Judged,
    Moved,
    Paused,
    Pinned,
    Record,
    Resumed,
    Said,
    ScriptRan,
    ScriptStarted,
    StopAsked,
    ToolFinished,
    ToolStarted,
    TurnedDown,
    kind_of,
)
from gad.core.sop_line import sop_of
from gad.core.states import ENDED, RESTING, TABLE, State
from gad.core.steps import AwaitReply, CallModel, Finish, RunCheck, RunScript, RunTool, Step
from gad.core.summary import gist_of
from gad.core.task import TaskOptions
from gad.errors import InvalidStep

EMPTY_ANSWERS = 3
"""How many times in a row a model that said nothing is asked again."""
CHECK_RETRIES = 3
"""How many times a failing check goes back to the model in one round."""
CRASHES = 3
"""How many crashes in a row a session may be part of before it is given up."""

_CUT_OFF = "[your answer was cut off at the output limit; go on from where it stopped]"
_SAID_MEANWHILE = "the user has said something meanwhile; it follows"
NOT_ASKED = f"not run: the user's permission is needed, and {_SAID_MEANWHILE}"
"""The result of a call that needs permission while something was said that the model has not seen."""
PHASE = "start_long_term_update"
"""The tool that opens the phase in which memory may be written."""

_SCRIPT_BROKEN_OFF = "[the procedure's script was broken off: it may or may not have done its work; check first]"
_PERSIST = "[the last call failed and nothing has worked since: mend it and try again, or say why it cannot be done]"


class Session:
    """One conversation."""

    def __init__(self) -> None:
        self.state: State = "new"
        self.name = ""
        self.options = TaskOptions()
        self.owner: int | None = None  # the user that it belongs to, by number
        self.since = 0.0
        self.began = 0.0
        self.told = ""  # what this conversation is always told of long-term memory
        self.round = 0
        self.round_turns = 0  # turns before this round
        self.round_calls = 0  # completed calls before this round
        self.claims = 0  # the highest claim number taken in
        self.taken: set[int] = set()
        self.turned_down: set[int] = set()
        self.reach = Reach()
        self.usage = Usage()
        self.allowance = Allowance()
        self.error = ""
        self.no_key = False  # that is why the last round failed
        self.rejection = ""
        self.question: Question | None = None
        self.key_info = ""
        self.pinned = ""
        self.children: list[str] = []
        self.halted = False  # a stop was asked for since this round began, also after its end
        self.escalation = Escalation()
        self.permissions = Permissions()
        self.history = History()
        self.proofs: list[Proof] = []  # every call's outcome: what memory may be written on
        self.phase_open = False  # whether this round may write into memory
        self.by_script = False  # whether a procedure's script has done this round's work
        self.judged: Judged | None = None  # the user's latest verdict
        self.decisions: list[Decided] = []  # the memory controller's
        self.interrupted: str = ""  # what a crash broke off, for the note in output.txt
        self._preamble = ""
        self._persist = False
        self._inbox: list[tuple[int, str]] = []  # what the model has not seen yet; the engine's own words have number 0
        self._last_said = 0  # the newest message's number
        self._stop = 0  # the stop request's number
        self._sop: tuple[str, tuple[str, ...]] | None = None  # the procedure whose script is still to be tried
        self._for_script = 0  # how much of the inbox is the task that the script is for
        self._scripting = False
        self._calls = OpenCalls()
        self._calling = False
        self._asked_call = ""
        self._final: str | None = None
        self._checking = False
        self._checked = False
        self._check_failures = 0
        self._empties = 0
        self._crashes = 0
        self._persisted = False

    # -- reading -------------------------------------------------------------------------------

    @property
    def answer(self) -> str:
        """The last answer's text: what result.txt holds when the round is done."""
        return self._final or ""

    @property
    def stop_requested(self) -> bool:
        """True between a stop request and the record that ends the round."""
        return bool(self._stop)

    @property
    def under_way(self) -> tuple[str, ...]:
        """The calls whose processes may be alive: the one that has started, or the check."""
        started = self._calls.started
        if started:
            return (started,)
        return ("check",) if self._checking else ("script",) if self._scripting else ()

    @property
    def calls(self) -> int:
        """How many calls the newest answer made: their results share one message."""
        return len(self._calls.calls)

    @property
    def check_failed(self) -> bool:
        """True when the task's check has failed in this round, and has not passed since."""
        return self._check_failures > 0 and not self._checked

    @property
    def can_ask(self) -> bool:
        """True when somebody is there to answer a question."""
        return self.options.ask != "never"

    @property
    def can_ask_leave(self) -> bool:
        """True when somebody is there to permit a call. A child's parent is no such somebody: it is an agent."""
        return self.can_ask and self.options.sponsor is None

    @property
    def unheard(self) -> bool:
        """True when somebody has said what the model has not seen yet."""
        return any(n for n, _ in self._inbox)

    @property
    def public_state(self) -> str:
        """The state as status.txt names it: a file that was turned down shows until something else happens."""
        return "rejected" if self.rejection and self.state in RESTING else self.state

    @property
    def upcoming(self) -> list[Message]:
        """The transcript as the next `calling` makes it: with the user message that is still open."""
        return self.history.with_open(self._open_parts())

    # -- what next -----------------------------------------------------------------------------

    def next_step(self, now: float) -> Step:
        """Return what to do now. `now` is in seconds since the epoch; only the time limit looks at it."""
        if self._stop and self.state not in ENDED and self.state != "new":
            return Finish("stopped", self._stop)
        if self.state in RESTING:
            return AwaitReply()
        if self._crashes >= CRASHES:
            return self._fail(f"the daemon crashed {CRASHES} times in a row while running this session")
        if self.escalation.must_ask and not self.can_ask:
            return self._fail(f"three failures in a row and nobody to ask: {_gist(self.escalation.last_error)}")
        if self.escalation.engine_asks:
            return AwaitReply(Question(f"Several attempts failed. The last: {self.escalation.last_error[:500]}"))
        if self._sop is not None:
            return RunScript(*self._sop)
        unanswered = self._calls.unanswered
        answered = self._final is not None and not self._inbox
        if answered and (self._checked or not self.options.check):
            return self._conclude()
        if (left := self.allowance.seconds_left(now)) is not None and left <= 0:
            return self.out_of_time()
        if unanswered:
            return self._run(unanswered[0])
        if answered:
            return self._check()
        if self._empties > EMPTY_ANSWERS:
            return self._fail(f"the model gave an empty answer {self._empties} times in a row")
        if limit := self.allowance.over(now):
            return self._fail(_limit_error(limit), limit=True)
        return CallModel(self.allowance.spent.turns + 1)

    def out_of_time(self) -> Finish:
        """Return the end of a round whose time is used up."""
        return self._fail(_limit_error(f"time limit reached ({self.options.seconds or 0:g} s)"), limit=True)

    def _fail(self, error: str, *, limit: bool = False) -> Finish:
        return Finish("failed", self.claims, error, limit)

    def _run(self, call: ToolCall) -> RunTool:
        note = self.escalation.note(can_ask=self.can_ask)
        if call.problem:
            return RunTool(call, call.problem, note=note)
        if call.name == "code_run" and any(other.name == "code_run" for other in self._calls.before(call)):
            return RunTool(call, "not run: one code_run a turn; send it in the next turn", not_run=True)
        if call.name == ASK and self.unheard:
            return RunTool(call, f"not asked: {_SAID_MEANWHILE}", not_run=True)
        return RunTool(call, self.escalation.refusal(call, can_ask=self.can_ask), note=note)

    def _check(self) -> Step:
        if self._check_failures > CHECK_RETRIES:
            return self._fail(f"the check still fails: {self.options.check}")
        return RunCheck(self.options.check or "")

    def _conclude(self) -> Step:
        if self.escalation.must_ask and not self._checked:
            return AwaitReply(Question(self.answer))
        return Finish("done", self.claims)

    # -- taking in what happened ---------------------------------------------------------------

    def admit(self, record: Record) -> State:
        """Return the state that a record leads to. Raises InvalidStep when it may not follow here."""
        kind = kind_of(record)
        following = TABLE[kind].get(self.state)
        if following is None:
            raise InvalidStep(f"{kind} cannot follow in state {self.state}")
        if isinstance(record, ToolFinished) and self._calls.find(record.result.call_id) is None:
            raise InvalidStep(f"a result for {record.result.call_id}, which is not an open call")
        if isinstance(record, Asked) and record.rules and self._calls.find(record.call) is None:
            raise InvalidStep(f"permission is asked for {record.call}, which is not an open call")
        return following

    def record(self, record: Record) -> None:
        """Fold one record in. Raises InvalidStep, and changes nothing, when it may not follow here."""
        kind = kind_of(record)
        following = self.admit(record)
        before = self.state
        getattr(self, f"_on_{kind}")(record)
        if kind not in ("ended", "asked"):  # these two look at what has come in meanwhile
            self.state = following
        if self.state != before or kind == "ended":
            self.since = record.at
        self.allowance.pass_time(record.at, active=self.state in ("running", "deferred"))

    def _on_begin(self, record: Begin) -> None:
        self.name = record.session
        self.began = record.at
        self.owner = record.owner
        self.options = self.allowance.limits = record.options
        self.reach.model = record.options.model or ""
        self._preamble = record.preamble
        self.told = record.memory
        if record.memory:
            self._inbox.append((0, record.memory))
        self._persist = record.persist
        self.phase_open = record.options.review is not None
        self.rejection = ""

    def _on_message(self, record: Said) -> None:
        self._take(record.n)
        self._last_said = record.n
        if self.state in ("new", "done", "failed", "stopped"):
            self._begin_round()
        text = record.text
        if self.state == "new" and self.options.memory:
            self._sop = sop_of(text, self.options.sop)
            self._for_script = len(self._inbox) + 1
        if self._preamble:
            text, self._preamble = f"{self._preamble}\n\n{text}", ""
        waiting = self.permissions.waiting if self.state == "asking" and not self._stop else ""
        if waiting:
            refused = self.permissions.heard(text)
            if refused:
                self._calls.answer(waiting, "error", refused)
            if refused == ANSWERED_OTHERWISE:
                self._inbox.append((record.n, text))
        elif self.state == "asking" and self._asked_call and not self._stop:
            self._calls.answer(self._asked_call, "ok", text)
            self.permissions.spoken()
        else:
            self.permissions.spoken()
            self._inbox.append((record.n, text))
        self._asked_call = ""
        self._empties = self._crashes = 0
        self.reach.heard()
        self._persisted = False
        self.question = None
        self.error = self.rejection = ""
        self.escalation.clear()

    def _on_context(self, record: Pinned) -> None:
        self._take(record.n)
        self.pinned = record.text

    def _on_child(self, record: ChildBegan) -> None:
        self.children.append(record.child)

    def _on_child_used(self, record: ChildUsed) -> None:
        self.allowance.charge(record.child, record.began, tokens=record.tokens, usd=record.usd)

    def _on_stop(self, record: StopAsked) -> None:
        self._take(record.n)
        self.halted = True
        if self.state not in ENDED:
            self._stop = record.n

    def _on_rejected(self, record: TurnedDown) -> None:
        self._take(record.n)
        self.turned_down.add(record.n)
        self.rejection = record.error
        if self.state == "new":
            self.since = record.at

    def _on_calling(self, record: Calling) -> None:
        self._close_user_message()
        self.history.sent(record)
        self.reach.calling(record)
        self._calling = True
        self.interrupted = ""
        self.error = ""

    def _on_deferred(self, record: Deferred) -> None:
        self.reach.deferred(record)
        self._calling = False
        self._crashes = 0
        self.error = record.error

    def _on_moved(self, record: Moved) -> None:
        self._calling = False
        self.error = ""
        self.reach.moved(record)
        self.history.moved()

    def _on_answer(self, record: Answered) -> None:
        self._calling = False
        self._crashes = 0
        self.reach.answered(record.model)
        self.usage = self.usage + record.usage
        self.history.count(record.usage)
        self.allowance.turn(tokens=record.usage.tokens_in + record.usage.tokens_out, usd=record.usd)
        message = record.message
        if not message.calls and not message.text.strip():
            self._empties += 1
            return
        self._empties = 0
        self.history.answer(message)
        self._calls = OpenCalls(message.calls)
        self.escalation.new_answer()
        self._final = None
        if message.calls:
            return
        if record.stop == "length":
            self._inbox.append((0, _CUT_OFF))
        elif self._persist and self.escalation.failures > 0 and not self.escalation.must_ask and not self._persisted:
            self._persisted = True
            self._inbox.append((0, _PERSIST))
        else:
            self._final = message.text

    def _on_tool_started(self, record: ToolStarted) -> None:
        self._calls.started = record.call
        self.permissions.started()

    def _on_tool_finished(self, record: ToolFinished) -> None:
        result = record.result
        call = self._calls.find(result.call_id)
        assert call is not None  # admitted
        self._crashes = 0
        gist, path = gist_of(call, result), str(call.arguments.get("path", ""))
        self.proofs.append(Proof(len(self.proofs) + 1, call.name, not result.is_error, gist, path=path))
        if call.name == PHASE and not result.is_error:
            self.phase_open = True
        self._calls.finish(result)
        self.escalation.record(call, result)
        if not result.is_error:
            self._persisted = False
        if record.key_info is not None:
            self.key_info = record.key_info

    def _on_asked(self, record: Asked) -> None:
        self._crashes = 0
        self.rejection = ""
        if self.unheard:  # something was said while the question was being put
            self.state = "queued"
            if record.rules:
                self._calls.answer(record.call, "error", NOT_ASKED)
            elif record.call:
                self._calls.answer(record.call, "ok", _SAID_MEANWHILE)
            return
        self.state = "asking"
        if record.rules and (call := self._calls.find(record.call)) is not None:
            self.permissions.asked(record, call)
        else:
            self._asked_call = record.call
        self.question = Question(record.question, record.candidates)

    def _on_judged(self, record: Judged) -> None:
        self._take(record.n)
        self.judged = record

    def _on_script_started(self, record: ScriptStarted) -> None:
        self._scripting = True
        self._sop = None

    def _on_script_ran(self, record: ScriptRan) -> None:
        self._scripting = False
        self._crashes = 0
        if record.exit == 0:
            # What was said since is about what the script has done; the model answers it.
            since = self._inbox[self._for_script :]
            del self._inbox[self._for_script :]
            self._close_user_message()
            self._inbox = since
            self.history.answer(Assistant((Text(record.output or "(done; it printed nothing)"),)))
            self._final = record.output
            self.by_script = True
        else:
            self._inbox.append((0, record.output))

    def _on_decided(self, record: Decided) -> None:
        self.decisions.append(record)

    def _on_checking(self, record: Checking) -> None:
        self._checking = True

    def _on_checked(self, record: Checked) -> None:
        self._crashes = 0
        self._checking = False
        if record.exit == 0:
            self._checked = True
            return
        self._check_failures += 1
        if self._check_failures <= CHECK_RETRIES:
            self._final = None
            head = f"[the check failed: {self.options.check} gave exit code {record.exit}]"
            self._inbox.append((0, f"{head}\n{record.output}".strip()))

    def _on_resumed(self, record: Resumed) -> None:
        self._crashes += 1
        self.allowance.was_down()
        self.interrupted = "answer" if self._calling else "tool" if self.under_way else ""
        self._interrupt()

    def _on_paused(self, record: Paused) -> None:
        self.interrupted = "answer" if self._calling else ""
        self._interrupt()

    def _on_ended(self, record: Ended) -> None:
        self._interrupt()
        self._calls.close(f"the session ended first ({record.state})")
        # What came in while the round was ending is not lost: it opens the next one.
        late = record.upto is not None and self._last_said > record.upto
        # A stop that came later still stands when there is something it can stop.
        self._stop = self._stop if late and self._stop > (record.upto or 0) else 0
        self._asked_call = ""
        self.permissions.drop()
        self.question = None
        if record.state != "done" and self.judged is not None and self.judged.ok:
            self.judged = None  # that all was well so far does not make a success of what failed then
        self.reach.heard()
        self.phase_open = False
        self.escalation.clear()
        self.allowance.end_round(by_limit=record.limit)
        self.error = record.error
        self.no_key = record.auth
        self.rejection = ""
        self.state = record.state
        if late:
            self.state = "queued"
            self._begin_round()

    def _begin_round(self) -> None:
        self.round += 1
        self.halted = self.stop_requested
        self.round_turns = self.allowance.spent.turns
        self.round_calls = len(self.proofs)
        self.judged = None
        self.by_script = False
        self._check_failures = 0
        self.allowance.begin_round()

    # -- pieces --------------------------------------------------------------------------------

    def _take(self, n: int) -> None:
        self.claims = max(self.claims, n)
        self.taken.add(n)

    def _interrupt(self) -> None:
        """Break off what was under way."""
        if self._scripting:
            self._inbox.append((0, _SCRIPT_BROKEN_OFF))
        self._calling = self._checking = self._scripting = False
        self._calls.interrupt()

    def _open_parts(self) -> tuple[ToolResult | Text, ...]:
        return self._calls.results() + tuple(Text(text, note=number == 0) for number, text in self._inbox)

    def _close_user_message(self) -> None:
        self.history.close(self._open_parts(), self.allowance.spent.turns)
        self._calls, self._inbox = OpenCalls(), []
        self._checked = False
        self._final = None


def _gist(error: str) -> str:
    """Return an error's telling line: a traceback's is its last; our own notes, in brackets, are not part of it."""
    lines = [line for line in error.strip().splitlines() if line.strip() and not line.startswith("[")]
    return (lines[-1] if lines else error.strip())[:300]


def _limit_error(limit: str) -> str:
    return f"{limit}; a reply allows the same again"


def replay(records: Iterable[Record]) -> Session:
    """Return the session that these records make. Raises InvalidStep where they do not fit together."""
    session = Session()
    for record in records:
        session.record(record)
    return session
