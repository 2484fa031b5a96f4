"""The transcript as people read it in output.txt: a heading for each step, then the text itself.

Headings are for the eye; no marker in output.txt has a meaning to a program.
"""

from __future__ import annotations

import json

from gad.core.limits import Spent
from gad.core.records import (
    Answered,
    Asked,
    Calling,
    Checked,
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
    TurnedDown,
)
from gad.core.session import Session
from gad.spool.output import Output
from gad.spool.status import timestamp

RESULT_LINES = 20
"""Lines of a tool's result that are shown; the journal holds the whole."""
_ARGUMENTS = 200


def heading(text: str) -> str:
    """Return a heading line."""
    return f"── {text} " + "─" * max(2, 60 - len(text))


def call_heading(name: str, arguments: object) -> str:
    """Return the heading of one tool call, its arguments shortened."""
    shown = json.dumps(arguments, ensure_ascii=False)
    if len(shown) > _ARGUMENTS:
        shown = shown[:_ARGUMENTS] + "…"
    return f"▸ {name} {shown}"


def narrate(record: Record, session: Session, output: Output) -> None:
    """Append to output.txt what a person wants to see of this record; text that streams comes by itself."""
    match record:
        case Said():
            output.line(heading("you"))
            output.line(record.text.rstrip("\n"))
        case Pinned():
            output.line(f"[pinned: {record.text.strip()[:200]}]")
        case Calling():
            output.line(heading(f"gad, turn {record.turn}, {record.model}"))
        case Answered():
            output.line("")
        case ToolFinished():
            output.line(_result(record))
        case Asked():
            output.line(heading("question"))
            output.line(record.question)
            for candidate in record.candidates:
                output.line(f"  - {candidate}")
        case Judged():
            output.line(f"[you say: {'ok' if record.ok else 'bad'}{': ' if record.words else ''}{record.words[:200]}]")
        case ScriptStarted():
            output.line(heading(f"procedure {record.sop}, as a script"))
        case ScriptRan():
            output.line(f"[the script gave exit code {record.exit}]")
        case Decided():
            output.line(f"[memory: {record.action} at {record.point}]")
        case Checked():
            verdict = "passed" if record.exit == 0 else f"failed with exit code {record.exit}"
            output.line(f"[check {verdict}]")
        case Deferred():
            output.line(f"[the model is out of reach, attempt {record.attempts}: {record.error}]")
        case Moved(_, former, model, error, until) if error:
            output.line(
                f"[{former} is out of reach: {error.rstrip('.')}; going on with {model}; "
                f"{former} is tried again from {timestamp(until).partition('T')[2]}]"
            )
        case Moved(_, former, model):
            output.line(f"[{model} is tried again, in place of {former}]")
        case StopAsked():
            output.line("[stop requested]")
        case TurnedDown():
            output.line(f"[{record.error}]")
        case Resumed():
            output.line("[the daemon was interrupted here and has resumed]")
        case Paused():
            output.line("[the daemon shuts down; this goes on when it is back]")
        case Ended():
            cost = "cost unknown" if session.allowance.spent.usd is None else f"{session.allowance.spent.usd:.4f} USD"
            tokens = session.usage.tokens_in + session.usage.tokens_out
            error = f": {record.error}" if record.error else ""
            output.line(heading(f"{record.state}{error}"))
            output.line(f"[{session.allowance.spent.turns} turns, {tokens} tokens, {cost}]")
            if (used := session.allowance.children) != Spent():
                cost = "cost unknown" if used.usd is None else f"{used.usd:.4f} USD"
                output.line(f"[its children: {used.tokens} tokens, {cost}]")
        case _:
            pass


def _result(record: ToolFinished) -> str:
    """Return a result's first lines; what code_run printed has streamed already, so only its facts follow."""
    result = record.result
    if "exit" in result.meta:
        facts = ", ".join(f"{key} {value}" for key, value in result.meta.items())
        return f"[{result.status}, {facts}]"
    lines = result.render().splitlines()
    if len(lines) > RESULT_LINES:
        lines = [*lines[:RESULT_LINES], f"… {len(lines) - RESULT_LINES} more lines"]
    return "\n".join(lines)
