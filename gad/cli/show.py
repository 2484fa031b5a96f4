"""gad show: a session's whole transcript from its journal, or what one of its requests sent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from gad.cli import Place
from gad.errors import GadError
from gad.spool.files import open_regular
from gad.spool.names import JOURNAL, valid_session_name
from gad.spool.status import read_status, timestamp

Record = Mapping[str, Any]


@click.command("show")
@click.argument("session")
@click.argument("turn", type=click.IntRange(min=1), required=False)
@click.option("--context", is_flag=True, help="Show exactly what was sent at TURN, and how large each part is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead: the journal's records, or the request.")
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the transcript to this file, as one page for a browser that needs nothing else.",
)
@click.pass_obj
def show_command(place: Place, session: str, turn: int | None, context: bool, as_json: bool, page: Path | None) -> None:
    """Show everything that happened in SESSION: messages, answers, tool calls and their results.

    With --context, show the request of turn TURN instead, by default the newest one's.
    """
    if page and (context or as_json):
        raise click.UsageError("--html goes with neither --context nor --json")
    if turn is not None and not context:
        raise click.UsageError("TURN goes with --context: gad show --context SESSION TURN")
    directory = place.spool() / session
    if not valid_session_name(session) or not directory.is_dir():
        raise GadError(f"there is no session {session}; gad ps --all lists them")
    if not (directory / JOURNAL).exists():
        raise GadError(f"session {session} has no journal yet; was it taken (is the daemon running: gad up)?")
    if context:
        from gad.cli.sent import show_sent

        show_sent([record for _, record in records(directory)], turn, as_json=as_json)
        return
    if page:
        _write_page(place, session, page)
        return
    if as_json:
        click.echo(json_bytes([record for _, record in records(directory)]))
        return
    from gad.cli.watch import printer

    write = printer()
    for line, record in records(directory):
        for text in describe(line, record):
            write((text + "\n").encode("utf-8", "replace"))
    for outcome in _outcomes(place, session):
        write((outcome + "\n").encode("utf-8", "replace"))
    sys.stdout.flush()


def _write_page(place: Place, session: str, path: Path) -> None:
    """Write a session's page: the file is there whole, for its owner alone, or is what it was before."""
    from gad.cli.html_page import page
    from gad.spool.files import replace

    if path.exists() and not path.is_file():
        raise GadError(f"{path} is not a regular file; name one that may be replaced")
    directory = place.spool() / session
    text = page(session, list(records(directory)), read_status(directory), _outcomes(place, session))
    replace(str(path.parent), path.name, text)
    click.echo(f"gad: wrote {path}", err=True)


def records(directory: Path) -> Iterator[tuple[int, Record]]:
    """Yield the journal's records with their line numbers; a torn last line is left out, with a note on stderr.

    Raises GadError when another line cannot be read.
    """
    with open(open_regular(str(directory / JOURNAL), os.O_RDONLY), "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise ValueError("not an object")
            except (ValueError, RecursionError) as exc:
                if not line.endswith(b"\n"):
                    click.echo(f"gad: line {number} of the journal is not complete yet; left out", err=True)
                    return
                raise GadError(f"{directory / JOURNAL}:{number}: cannot be read: {exc}") from None
            yield number, found


def json_bytes(value: object) -> bytes:
    """Return a value as JSON in UTF-8; half of a character pair, which has no UTF-8, is written as JSON's escape."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _outcomes(place: Place, session: str) -> list[str]:
    """Return what the memory controller has learnt from a session's decisions, a line each."""
    memory = place.spool().parent / "memory"
    if not memory.is_dir():
        return []
    from gad.memory.controller import Controller
    from gad.memory.store import MemoryStore

    return [outcome.line() for outcome in Controller(MemoryStore(str(memory))).outcomes(session)]


def describe(number: int, record: Record) -> Iterator[str]:
    """Yield a record's lines for people. Raises GadError when a field is missing."""
    try:
        kind = record["kind"]
        write = _LINES.get(kind)
        if write is None:
            yield f"-- {timestamp(record['at'])} {kind}"
        else:
            yield from write(record)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise GadError(f"journal line {number} is not a record this gad knows: {exc!r}") from None


def _head(record: Record, words: str) -> str:
    return f"-- {timestamp(record['at'])} {words}"


def _begin(record: Record) -> Iterator[str]:
    yield _head(record, f"session {record['session']}")
    if record["options"]:
        yield json.dumps(record["options"], ensure_ascii=False)


def _message(record: Record) -> Iterator[str]:
    yield _head(record, "you")
    yield record["text"].rstrip("\n")


def _answer(record: Record) -> Iterator[str]:
    usage, usd = record["usage"], record["usd"]
    cost = "" if usd is None else f", ${usd:.4f}"
    yield _head(record, f"{record['model']} ({usage['tokens_in']} tokens in, {usage['tokens_out']} out{cost})")
    for part in record["parts"]:
        if "text" in part:
            yield part["text"].rstrip("\n")
        elif "thinking" in part:
            yield f"(thinking) {part['thinking']}".rstrip()
        else:
            yield f"=> {part['name']} {json.dumps(part['arguments'], ensure_ascii=False)}"
            if part.get("problem"):
                yield f"   not run: {part['problem']}"


def _result(record: Record) -> Iterator[str]:
    result = record["result"]
    facts = " ".join(f"{key}={value}" for key, value in result["meta"].items())
    yield f"<= {result['status']} {facts}".rstrip()
    yield from (f"   {line}" for line in result["output"].splitlines())


def _asked(record: Record) -> Iterator[str]:
    yield _head(record, "asks")
    yield record["question"]
    yield from (f"  - {candidate}" for candidate in record["candidates"])


def _checked(record: Record) -> Iterator[str]:
    yield _head(record, f"check: exit {record['exit']}")
    yield from (f"   {line}" for line in record["output"].splitlines())


def _ended(record: Record) -> Iterator[str]:
    yield _head(record, record["state"])
    if record.get("error"):
        yield record["error"]


def _context(record: Record) -> Iterator[str]:
    yield _head(record, "you, pinned")
    yield record["text"].rstrip("\n")


def _rejected(record: Record) -> Iterator[str]:
    yield _head(record, f"{record['file']} was not accepted")
    yield record["error"]


def _deferred(record: Record) -> Iterator[str]:
    yield _head(record, f"deferred until {timestamp(record['retry_at'])} (attempt {record['attempts']})")
    yield record["error"]


def _moved(record: Record) -> Iterator[str]:
    yield _head(record, f"goes on with {record['model_to']} in place of {record['model_from']}")
    if record["error"]:
        yield record["error"]


def _child(record: Record) -> Iterator[str]:
    yield _head(record, f"child {record['child']}")


def _child_used(record: Record) -> Iterator[str]:
    cost = "cost unknown" if record["usd"] is None else f"${record['usd']:.4f}"
    yield _head(record, f"child {record['child']} has used {record['tokens']} tokens, {cost}")


def _judged(record: Record) -> Iterator[str]:
    yield _head(record, f"you: {'ok' if record['ok'] else 'bad'}")
    if record["words"]:
        yield record["words"]


def _script(record: Record) -> Iterator[str]:
    yield _head(record, f"script: exit {record['exit']}")
    yield from (f"   {line}" for line in record["output"].splitlines())


def _decided(record: Record) -> Iterator[str]:
    yield _head(record, f"memory: {record['action']} at {record['point']}, step {record['step']} ({record['state']})")
    yield from (f"   {line}" for line in record["directive"].splitlines())


def _nothing(record: Record) -> Iterator[str]:
    return iter(())


_LINES: Mapping[str, Callable[[Record], Iterator[str]]] = {
    "begin": _begin,
    "message": _message,
    "context": _context,
    "rejected": _rejected,
    "calling": _nothing,
    "child": _child,
    "child_used": _child_used,
    "answer": _answer,
    "tool_started": _nothing,
    "tool_finished": _result,
    "deferred": _deferred,
    "moved": _moved,
    "asked": _asked,
    "checked": _checked,
    "judged": _judged,
    "script_ran": _script,
    "decided": _decided,
    "ended": _ended,
}
