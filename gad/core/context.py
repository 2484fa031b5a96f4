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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from gad.core.cut import cut
from gad.core.escalation import ASK
from gad.core.messages import Assistant, Message, Part, Text, Thinking, ToolCall, ToolResult, User, canonical
from gad.core.weights import weigh

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


def result_limit(tool: str, results: int) -> int:
    """Return how many characters a tool's result may have in a message that holds this many results."""
    return _LIMITS.get(tool, 10_000) // max(1, results)


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
        self._weights: list[tuple[Message, float]] = []
        self._old_weights: list[float] = []
        self._head: tuple[Plan, tuple[Message, ...], float] = (Plan(), (), 0.0)

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
        weights = self._weigh(transcript)
        limit = min(limit, last.ceiling) if last.ceiling else limit
        end = max(last.compressed, size - KEEP)
        old = self._weigh_old(transcript, end)
        dropped = sum(weights[last.compressed : end]) - sum(old[last.compressed : end])
        sent_again = sum(old[last.compressed : end]) + sum(weights[end:])
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
        """Return a plan that is well below one whose request the server refused as too long, now and from now on."""
        limit = LOW * refused.weight
        limit = min(limit, refused.ceiling) if refused.ceiling else limit
        plan = replace(refused, ceiling=limit, at=len(transcript), rent=0.0)
        self._weigh(transcript)
        return self._shrink(transcript, plan, limit=limit, fixed=fixed, keep=KEEP_REFUSED)

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

    # -- weights, each computed once -----------------------------------------------------------

    def _weigh(self, transcript: Sequence[Message]) -> list[float]:
        for index, message in enumerate(transcript):
            if index == len(self._weights):
                self._weights.append((message, weigh_message(message)))
            elif self._weights[index][0] is not message:  # the newest message may have grown
                self._weights[index] = (message, weigh_message(message))
        return [weight for _, weight in self._weights]

    def _weigh_old(self, transcript: Sequence[Message], end: int) -> list[float]:
        for index in range(len(self._old_weights), end):
            kept = _replies(transcript[max(0, index - 1) : index + 1])
            self._old_weights.append(weigh_message(old_form(transcript[index], kept)))
        return self._old_weights

    def _weight(self, transcript: Sequence[Message], plan: Plan) -> float:
        return self._head_of(transcript, plan)[1] + sum(weight for _, weight in self._weights[plan.compressed :])

    def _head_of(self, transcript: Sequence[Message], plan: Plan) -> tuple[tuple[Message, ...], float]:
        """Return the part of the view that only a batch changes, and its weight."""
        known, head, weight = self._head
        if (known.compressed, known.evicted, known.said) != (plan.compressed, plan.evicted, plan.said):
            head = _compress(transcript[: plan.compressed], plan)
            weight = sum(map(weigh_message, head))
            self._head = (plan, head, weight)
        return head, weight


def _compress(messages: Sequence[Message], plan: Plan) -> tuple[Message, ...]:
    """Return the old messages as they are shown: stage 2, and what stage 3 leaves of the oldest."""
    if not messages:
        return ()
    outputs = stale_results(messages) | _replies(messages)
    first, kept = messages[0], messages[max(1, plan.evicted) :]
    gone = messages[1 : plan.evicted]
    if gone and isinstance(first, User):
        note = Text(f"[... {len(gone)} older messages left out ...]", note=True)
        first = User((*first.parts, note, *_said(gone, plan.said)))
    return (old_form(first, outputs), *(old_form(message, outputs) for message in kept))


def _said(messages: Sequence[Message], room: float) -> tuple[Text, ...]:
    """Return what people said in these messages: the newest whole, where it fits, the others cut or left out."""
    found: list[Text] = []
    for said in reversed(_spoken(messages)):
        text = said if weigh(said) + PART <= room else cut_weighted(said, OLD)
        room -= weigh(text) + PART
        if room < 0:
            break
        found.append(Text(text))
    return tuple(reversed(found))


def _spoken(messages: Sequence[Message]) -> list[str]:
    """Return what people said in these messages, in order: their texts, and their replies to questions."""
    questions, replies = _questions(messages), _replies(messages)
    found: list[str] = []
    for message in messages:
        for part in message.parts if isinstance(message, User) else ():
            match part:
                case Text(text, note=False):
                    found.append(text)
                case ToolResult(call_id) if call_id in replies:
                    found.append(f"[asked: {cut_weighted(questions[call_id], OLD / 4)}]\n{replies[call_id]}")
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
            return replace(part, arguments={"key_info": "[see <key_info>]"})
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
