"""gad show --context: one request of a session, computed again from the journal's records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from gad.cli.show import Record, json_bytes
from gad.cli.watch import printer
from gad.core import records as journal
from gad.core.messages import Assistant, Message, Text, Thinking, ToolCall, part_to_json
from gad.core.ports import Request
from gad.core.records import Calling
from gad.core.request import build, offered, prefix_digest, schemas_text
from gad.core.session import Session
from gad.core.weights import tokens
from gad.errors import GadError, InvalidStep, JournalDamaged
from gad.spool.narrate import heading
from gad.tools.toolset import all_schemas


def show_sent(records: Sequence[Record], turn: int | None, *, as_json: bool) -> None:
    """Print the request of a turn, of the newest one when `turn` is None. Raises GadError when there was none."""
    session, calling = replay_to(records, turn)
    schemas = offered(session, all_schemas())
    request = build(session, schemas, calling.turn)
    same = prefix_digest(schemas) == calling.prefix
    parts = parts_of(request, session.told)
    sizes = {name: {"characters": len(text), "tokens": round(tokens(text))} for name, text in parts.items()}
    if as_json:
        found = {
            "turn": calling.turn,
            "model": calling.model,
            "exact": same,
            "parts": sizes,
            "plan": asdict(calling.plan),
        }
        click.echo(json_bytes(found | {"request": to_json(request)}))
        return
    if not same:
        click.echo(
            "gad: the system text or the tools were others then; this gad's own are shown in their place", err=True
        )
    text = "\n".join(_describe(session, calling, request, sizes)) + "\n"
    printer()(text.encode("utf-8", "replace"))


def replay_to(records: Sequence[Record], turn: int | None) -> tuple[Session, Calling]:
    """Return a session as it was when a turn's request went out, the last one of that turn, and that record."""
    found = [_decoded(number, record) for number, record in enumerate(records, 1)]
    sent = [(index, record) for index, record in enumerate(found) if isinstance(record, Calling)]
    if not sent:
        raise GadError("nothing has been sent to a model in this session yet")
    wanted = [(index, record) for index, record in sent if turn is None or record.turn == turn]
    if not wanted:
        raise GadError(f"there was no turn {turn} in this session; the last one is {max(r.turn for _, r in sent)}")
    last, calling = wanted[-1]
    session = Session()
    for number, record in enumerate(found[: last + 1], 1):
        try:
            session.record(record)
        except InvalidStep as exc:
            raise GadError(f"journal line {number}: {exc}") from exc
    return session, calling


def _decoded(number: int, record: Record) -> journal.Record:
    try:
        return journal.decode(record)
    except JournalDamaged as exc:
        raise GadError(f"journal line {number}: {exc}") from exc


def parts_of(request: Request, told: str) -> dict[str, str]:
    """Return the text of each part of a request, in the order in which they are sent; `told` is what is of memory."""
    messages = [_message(message) for message in request.messages]
    if told and messages:
        messages[0]["parts"] = [part for part in messages[0]["parts"] if part.get("text") != told]
    return {
        "system": request.system,
        "tools": schemas_text(request.tools),
        "memory": told,
        "history": json.dumps(messages, ensure_ascii=False),
        "anchor": request.anchor,
    }


def to_json(request: Request) -> dict[str, Any]:
    """Return a request as JSON, in the journal's form of messages."""
    return {
        "system": request.system,
        "tools": [asdict(tool) for tool in request.tools],
        "messages": [_message(message) for message in request.messages],
        "anchor": request.anchor,
        "schemas": request.schemas,
    }


def _message(message: Message) -> dict[str, Any]:
    role = "assistant" if isinstance(message, Assistant) else "user"
    return {"role": role, "parts": [part_to_json(part) for part in message.parts]}


def _describe(session: Session, calling: Calling, request: Request, sizes: dict[str, dict[str, int]]) -> Iterator[str]:
    plan = calling.plan
    yield f"turn {calling.turn} of session {session.name}, to {calling.model}"
    yield ""
    yield f"{'part':<10}{'characters':>12}{'tokens, about':>16}"
    for name, size in sizes.items():
        yield f"{name:<10}{size['characters']:>12,}{size['tokens']:>16,}"
    whole = len(session.history.transcript) - plan.compressed
    left_out = max(0, plan.evicted - 1)
    yield f"history: {whole} messages whole, {plan.compressed - left_out} cut, {left_out} left out"
    yield heading("system")
    yield request.system
    yield heading("tools" if request.schemas else "tools (where they stand in the text, only a reminder was sent)")
    yield from (json.dumps(asdict(tool), ensure_ascii=False) for tool in request.tools)
    for message in request.messages:
        yield heading("assistant" if isinstance(message, Assistant) else "user")
        for part in message.parts:
            match part:
                case Text(text):
                    yield text
                case Thinking(text):
                    yield f"(thinking) {text}"
                case ToolCall(_, name, arguments):
                    yield f"=> {name} {json.dumps(arguments, ensure_ascii=False)}"
                case _:
                    yield f"<= {part.render()}"
    if request.anchor:
        yield heading("anchor")
        yield request.anchor
