"""What one request shows of a conversation: the stages of compression, as pure functions over the transcript.

1. A tool's result is cut when it is born (`result_limit`; the tools do it, and keep the whole in a file).
2. Old messages: thinking, arguments and results are cut to `OLD` characters, stale snapshots are replaced. This
   runs in batches: between two of them a request begins with the very bytes of the one before, so that vendors
   serve it from their cache. When the next batch is worth its price is computed, see `Context.plan`.
3. Over the budget, everything but the newest messages is cut, and the oldest turns go.
4. The anchor (`gad.core.anchor`) is put at the end of each request and never stored.

The journal keeps the whole conversation. A `Plan` says where its parts begin; it is journalled before the request
goes out, and the view is computed from the transcript and the plan alone, so it can be computed again at any time.
Sizes are weighted characters, `gad.core.weights.ALPHA` a token.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from gad.core.cut import cut
from gad.core.escalation import ASK
from gad.core.messages import Assistant, Message, Part, Text, Thinking, ToolCall, ToolResult, User, canonical
from gad.core.weights import ALPHA, weigh

KEEP = 10
"""Newest messages that a batch leaves whole."""
KEEP_OVER = 4
"""Newest messages that stay whole when the budget is exceeded."""
KEEP_REFUSED = 2
"""Newest messages that stay whole when the server has refused the request as too long."""
OLD = 800
"""Weighted characters that are kept of an old argument, result or thought."""
WRITTEN = 100
"""Characters that are kept of what an old file_write wrote: the file holds it."""
OLD_NOTES = "[see <key_info>]"
"""What stands in an old update_working_checkpoint: the latest notes are in the anchor."""
INTERVAL = 5
"""Turns that lie between two batches at least."""
LOW = 0.6
"""Where eviction stops, as a share of the budget: far below it, so that the next turns need none."""
CACHED = 0.1
"""What a character served from a vendor's cache costs, as a share of one that is not (Anthropic, OpenAI)."""
NEW = 1.25
"""What a character costs that is written to the cache: Anthropic's price; OpenAI takes 1."""
SAID = 0.25
"""Share of the budget for what people said in turns that are gone."""
PART = 30.0
"""Weighted characters of a part's frame in any vendor's format: its type, its role, its id."""

_LIMITS: Mapping[str, int] = {
    "code_run": 10_000,
    "file_read": 20_000,
    "web_execute_js": 8_000,
    "web_scan": 35_000,
}


def result_limit(tool: str, results: int, window: int) -> int:
    """Return how many characters a tool's result may have in a message that holds this many results.

    `window` is the budget of a request in tokens: no message's results may take more than about half of it.
    """
    return min(_LIMITS.get(tool, 10_000), int(ALPHA * window / 2)) // max(1, results)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the parts of a request's view begin, as indexes into the transcript.

    Messages before `compressed` are shown in their old form; of those before `evicted` only the task and what people
    said is left, in at most the weight `said`. `at` is how long the transcript was when this last changed, `rent` what
    the characters that a batch would drop have cost since then. `marked` is where the head ends that a vendor's cache
    may hold: behind the old messages, and in the turn of a batch behind those that were old before it. `weight` is the
    whole request's, `ceiling` (0: none) what a server has taught us about its window. `schemas` is Request.schemas.
    """

    compressed: int = 0
    evicted: int = 0
    at: int = 0
    rent: float = 0.0
    said: float = 0.0
    marked: int = 0
    weight: float = 0.0
    ceiling: float = 0.0
    schemas: bool = True


class Context:
    """Plans and computes the views of one growing transcript; it remembers what it has computed, and nothing else."""

    def __init__(self) -> None:
        self._weights: dict[int, tuple[Message, float]] = {}
        self._old: dict[int, tuple[Message, Message, float]] = {}
        self._head: tuple[Plan, Message | None, tuple[Message, ...], float] = (Plan(), None, (), 0.0)

    def view(self, transcript: Sequence[Message], plan: Plan) -> tuple[Message, ...]:
        """Return the messages that a request of this plan shows."""
        return (*self._head_of(transcript, plan)[0], *transcript[plan.compressed :])

    def plan(self, transcript: Sequence[Message], last: Plan, *, limit: float, fixed: float = 0.0) -> Plan:
        """Return the plan for the next request, given the last one's.

        `limit` is the budget, `fixed` the weight of what stands beside the messages. A batch is run when what its
        characters have cost since the last one (each turn `CACHED` of what it would drop) has reached what it costs
        itself (everything behind the first changed byte is written to the cache anew, instead of read from it): the
        rule of the ski rental, which never pays more than twice the least possible, and which finds the best interval
        by itself when turns are alike.
        """
        size = len(transcript)
        limit = min(limit, last.ceiling) if last.ceiling else limit
        end = max(last.compressed, size - KEEP)
        old = sum(weight for _, weight in self._old_forms(transcript, last.compressed, end))
        dropped = self._weigh(transcript, last.compressed, end) - old
        sent_again = old + self._weigh(transcript, end, size)
        plan = replace(last, rent=last.rent + CACHED * dropped, marked=last.compressed)
        if size - last.at >= 2 * INTERVAL and dropped > 0 and plan.rent >= (NEW - CACHED) * sent_again:
            plan = replace(plan, compressed=end, at=size, rent=0.0)
        weight = fixed + self._weight(transcript, plan)
        if weight > limit:
            plan = replace(plan, compressed=end, at=size, rent=0.0)
            weight = fixed + self._weight(transcript, plan)
            if weight > LOW * limit:
                return self._shrink(transcript, plan, limit=limit, fixed=fixed, keep=KEEP_OVER)
        return replace(plan, weight=weight)

    def stricter(self, transcript: Sequence[Message], refused: Plan, *, fixed: float = 0.0) -> Plan:
        """Return a plan that is well below one whose request the server refused as too long, now and from now on.

        Where the newest messages alone are too much, they are cut as well: a session that no request of which is
        accepted could not go on, whatever people say.
        """
        limit = LOW * refused.weight
        limit = min(limit, refused.ceiling) if refused.ceiling else limit
        plan = replace(refused, ceiling=limit, at=len(transcript), rent=0.0)
        plan = self._shrink(transcript, plan, limit=limit, fixed=fixed, keep=KEEP_REFUSED)
        if plan.weight > limit:
            plan = replace(plan, compressed=len(transcript))
            plan = replace(plan, weight=fixed + self._weight(transcript, plan))
        return plan

    def _shrink(self, transcript: Sequence[Message], plan: Plan, *, limit: float, fixed: float, keep: int) -> Plan:
        """Cut everything but the newest `keep` messages, then let the oldest turns go until `LOW` of the limit."""
        size = len(transcript)
        plan = replace(plan, compressed=max(plan.compressed, size - keep), said=SAID * limit, marked=0)
        head, _ = self._head_of(transcript, plan)
        weight = fixed + self._weight(transcript, plan)
        begin, said = max(1, plan.evicted), 0.0
        for end in range(begin + 2, size - keep + 1, 2):  # turn by turn: a call and its result go together
            if weight + min(said, plan.said) <= LOW * limit:  # what stays of what people said is this much at most
                break
            plan = replace(plan, evicted=end)
            weight -= sum(map(weigh_message, head[end - 1 - begin : end + 1 - begin]))
            said += sum(PART + weigh(text) for text in _spoken(transcript[end - 2 : end]))
        return replace(plan, weight=fixed + self._weight(transcript, plan))

    # -- weights and old forms, each computed once, and only where they are needed -------------

    def _weigh(self, transcript: Sequence[Message], begin: int, end: int) -> float:
        total = 0.0
        for index in range(begin, end):
            message, weight = self._weights.get(index, (None, 0.0))
            if message is not transcript[index]:  # the newest message may have grown
                weight = weigh_message(transcript[index])
                self._weights[index] = transcript[index], weight
            total += weight
        return total

    def _old_forms(self, transcript: Sequence[Message], begin: int, end: int) -> list[tuple[Message, float]]:
        found: list[tuple[Message, float]] = []
        for index in range(begin, end):
            message, old, weight = self._old.get(index, (None, transcript[index], 0.0))
            if message is not transcript[index]:
                old = old_form(transcript[index], _replies(transcript[max(0, index - 1) : index + 1]))
                weight = weigh_message(old)
                self._old[index] = transcript[index], old, weight
            found.append((old, weight))
        return found

    def _weight(self, transcript: Sequence[Message], plan: Plan) -> float:
        return self._head_of(transcript, plan)[1] + self._weigh(transcript, plan.compressed, len(transcript))

    def _head_of(self, transcript: Sequence[Message], plan: Plan) -> tuple[tuple[Message, ...], float]:
        """Return the part of the view that only a batch changes, and its weight."""
        known, end, head, weight = self._head
        last = transcript[plan.compressed - 1] if plan.compressed else None  # the newest message may have grown
        parts = (plan.compressed, plan.evicted, plan.said)
        if last is not end or parts != (known.compressed, known.evicted, known.said):
            begin = max(1, plan.evicted)
            kept = [message for message, _ in self._old_forms(transcript, begin, plan.compressed)]
            head = _compress(transcript[: plan.compressed], kept, plan)
            weight = sum(map(weigh_message, head))
            self._head = (plan, last, head, weight)
        return head, weight


def _compress(messages: Sequence[Message], kept: Sequence[Message], plan: Plan) -> tuple[Message, ...]:
    """Return the old messages as they are shown: stage 2, and what stage 3 leaves of the oldest.

    `kept` are the old forms of those that are not left out.
    """
    if not messages:
        return ()
    stale = stale_results(kept)  # of these only: among what is shown ids are unique, those of gone turns come again
    outputs = _replies(kept) | stale
    first, gone = messages[0], messages[1 : plan.evicted]
    if gone and isinstance(first, User):
        note = Text(f"[... {len(gone)} older messages left out ...]", note=True)
        first = User((*first.parts, note, *_said(gone, plan.said)))
    # The first message is the task and what the session began with: all of it stays.
    if not isinstance(first, User):
        first = old_form(first, outputs)
    return (first, *(old_form(m, outputs) if _has_result(m, stale) else m for m in kept))


def _has_result(message: Message, ids: Collection[str]) -> bool:
    return any(isinstance(part, ToolResult) and part.call_id in ids for part in message.parts)


def _said(messages: Sequence[Message], room: float) -> tuple[Text, ...]:
    """Return what people said in these messages: the newest whole, where it fits, the others cut or left out.

    One that does not fit gets half the room that is left, since it may be the task of a later round; and the newest
    is never left out.
    """
    found: list[Text] = []
    for said in reversed(_spoken(messages)):
        most = max(OLD, room / 2)
        text = said if weigh(said) + PART <= room else cut_weighted(said, most if found else min(most, room - PART))
        room -= weigh(text) + PART
        if room < 0 or not text:
            break
        found.append(Text(text))
    return tuple(reversed(found))


def _spoken(messages: Sequence[Message]) -> list[str]:
    """Return what people said in these messages, in order: their texts, and their replies to questions."""
    questions: Mapping[str, str] = {}
    found: list[str] = []
    for message in messages:
        if isinstance(message, Assistant):
            questions = _questions([message])
            continue
        for part in message.parts:
            match part:
                case Text(text, note=False):
                    found.append(text)
                case ToolResult(call_id, "ok", output) if call_id in questions:
                    found.append(f"[asked: {cut_weighted(questions[call_id], OLD / 4)}]\n{output}")
    return found


def _replies(messages: Sequence[Message]) -> dict[str, str]:
    """Return the results that a person has written, by their calls' ids: those of the model's questions."""
    questions = _questions(messages)
    results = (part for message in messages for part in message.parts if isinstance(part, ToolResult))
    return {part.call_id: part.output for part in results if part.call_id in questions and not part.is_error}


def _questions(messages: Sequence[Message]) -> dict[str, str]:
    calls = (call for message in messages if isinstance(message, Assistant) for call in message.calls)
    return {call.id: str(call.arguments.get("question", "")) for call in calls if call.name == ASK}


# -- stage 2 -------------------------------------------------------------------------------------


def old_form(message: Message, outputs: Mapping[str, str]) -> Message:
    """Return a message as it is shown once it is old. `outputs` are texts to show as results, by their calls' ids."""
    if isinstance(message, User):
        return User(tuple(_old_told(part, outputs) for part in message.parts))
    parts = tuple(kept for part in message.parts if (kept := _old_said(part)) is not None)
    return Assistant(parts or (Text("..."),))


def _old_told(part: ToolResult | Text, outputs: Mapping[str, str]) -> ToolResult | Text:
    if isinstance(part, Text):
        return Text(cut_weighted(part.text, OLD), note=True) if part.note else part
    if part.call_id in outputs:
        return replace(part, output=outputs[part.call_id])
    return replace(part, output=cut_weighted(part.output, OLD, part.saved))


def _old_said(part: Thinking | Text | ToolCall) -> Thinking | Text | ToolCall | None:
    match part:
        case Thinking() if part.signature or part.data:
            return None  # sealed: whoever made it accepts it whole or not at all
        case Thinking(text):
            return replace(part, text=cut_weighted(text, OLD))
        case ToolCall(name="update_working_checkpoint"):
            return replace(part, arguments={"key_info": OLD_NOTES})
        case ToolCall(name="file_write", arguments={"content": str(content)} as arguments):
            return replace(part, arguments=_old_json({**arguments, "content": cut(content, WRITTEN)}))
        case ToolCall(arguments=arguments):
            return replace(part, arguments=_old_json(arguments))
        case _:
            return part


def _old_json(value: Any) -> Any:
    match value:
        case str():
            return cut_weighted(value, OLD)
        case Mapping():
            return {key: _old_json(item) for key, item in value.items()}
        case list() | tuple():
            return [_old_json(item) for item in value]
    return value


def stale_results(messages: Sequence[Message]) -> dict[str, str]:
    """Return the ids of calls whose results are outdated by later ones among these messages, each with a placeholder.

    A read of a file is stale once the same read was made again or the file was written; a look at a web page is
    stale once the page was looked at or acted upon again.
    """
    found: dict[str, str] = {}
    reads: dict[str, dict[str, str]] = {}  # path -> the read's arguments -> call id
    looks: list[str] = []
    for said, told in pairwise(messages):
        if not isinstance(said, Assistant) or not isinstance(told, User):
            continue
        worked = {part.call_id for part in told.parts if isinstance(part, ToolResult) and not part.is_error}
        for call in said.calls:
            if call.id not in worked:
                continue
            path = str(call.arguments.get("path", ""))
            if call.name == "file_read":
                before = reads.setdefault(path, {}).get(key := canonical(call.arguments))
                if before is not None:
                    found[before] = f"[stale: {path} was read again later]"
                reads[path][key] = call.id
            elif call.name in ("file_write", "file_patch"):
                found |= dict.fromkeys(reads.pop(path, {}).values(), f"[stale: {path} was changed later]")
            elif call.name in ("web_scan", "web_execute_js"):
                found |= dict.fromkeys(looks, "[stale: the page was looked at again later]")
                looks = [call.id] if call.name == "web_scan" else []
    return found


def cut_weighted(text: str, limit: float, where: str = "") -> str:
    """Return a text's head and tail around a mark, so that all of it weighs at most about `limit`."""
    if (weight := weigh(text)) <= limit:
        return text
    room = int(len(text) * limit / weight)
    while weigh(shown := cut(text, room, where)) > limit and room > 1:
        room = room * 9 // 10
    return shown


# -- weights -------------------------------------------------------------------------------------


def weigh_message(message: Message) -> float:
    """Return a message's weight in a request."""
    return sum(_weigh_part(part) for part in message.parts)


def _weigh_part(part: Part) -> float:
    match part:
        case Text(text):
            return PART + weigh(text)
        case Thinking(text, signature, data):
            return PART + weigh(text) + weigh(signature) + weigh(data)
        case ToolCall(name=name, arguments=arguments):
            return PART + weigh(name) + weigh(canonical(arguments))
        case ToolResult():
            return PART + weigh(part.render())
