"""gad tail and wait, and what --wait does."""

from __future__ import annotations

import codecs
import contextlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from gad.cli import Place, exits
from gad.cli.follow import Mark, NobodyWorks, Output, TimedOut, at_rest, follow, refusal
from gad.errors import GadError
from gad.spool.lock import held
from gad.spool.names import OUTPUT, RESULT, valid_session_name

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x0d\x0e-\x1f\x7f-\x9f]")


def printer() -> Callable[[bytes], None]:
    """Return what writes output to standard output at once.

    A terminal is not given control characters: what an agent has read somewhere must not steer it.
    """
    stream = sys.stdout.buffer
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    terminal = sys.stdout.isatty()

    def write(block: bytes) -> None:
        stream.write(_CONTROL.sub("", decode(block)).encode() if terminal else block)
        stream.flush()

    return write


def see_through(directory: Path, before: Mark | None, *, timeout: float | None, as_json: bool) -> NoReturn:
    """Stream a session until it is at rest and exit with its code.

    `before` is how far it was before a reply was handed in, or None for a new session.
    """
    with giving_up():
        status = until_rest(directory, before, write=None if as_json else printer(), timeout=timeout)
    conclude(directory, status, as_json=as_json)


def until_rest(
    directory: Path,
    before: Mark | None = None,
    *,
    write: Callable[[bytes], None] | None = None,
    timeout: float | None = None,
    working: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Follow a session until it is at rest, and return its status.

    `before` is how far it was before a reply was handed in; a reply that was turned down gives the state
    rejected. `working` tells whether a daemon runs. Raises TimedOut, NobodyWorks, and GadError when the session is
    removed meanwhile; exits when interrupted.
    """

    def rest() -> dict[str, Any] | None:
        status = at_rest(directory)
        if status is None and not directory.is_dir():
            raise GadError(f"session {directory.name} has gone: somebody has removed {directory}")
        return status

    with _interruptible(directory.name):
        status = follow(
            directory,
            until=rest,
            write=write,
            start=before.output if before else 0,
            timeout=timeout,
            working=working or (lambda: held(str(directory.parent))),
        )
    error = refusal(directory, before) if before else None
    return status if error is None else {**status, "state": "rejected", "error": error}


def conclude(directory: Path, status: dict[str, Any], *, as_json: bool) -> NoReturn:
    """Say how a session has ended and exit with its code."""
    if as_json:
        click.echo(json.dumps(_summary(directory, status), ensure_ascii=False))
    else:
        _say_outcome(directory, status)
    sys.exit(exits.BY_STATE[status["state"]])


@click.command("tail")
@click.argument("session")
@click.option("--follow", "forever", is_flag=True, help="Go on when the session is at rest.")
@click.option("--no-follow", is_flag=True, help="Print what is there and end.")
@click.pass_obj
def tail_command(place: Place, session: str, forever: bool, no_follow: bool) -> None:
    """Print SESSION's output from its beginning and follow it until the session is at rest.

    The session need not exist yet.
    """
    if forever and no_follow:
        raise click.UsageError("--follow and --no-follow exclude each other")
    directory = _directory(place, session)
    write = printer()
    if no_follow:
        if not directory.is_dir():
            raise GadError(f"there is no session {session}; gad ps --all lists them")
        Output(directory / OUTPUT).pass_on(write)
        return
    if not held(str(directory.parent)):
        click.echo("gad: no daemon runs; start one with: gad up", err=True)
    with _interruptible(session):
        follow(directory, until=None if forever else lambda: at_rest(directory), write=write)


@click.command("wait")
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="Exit 124 after S seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of lines.")
@click.pass_obj
def wait_command(place: Place, sessions: tuple[str, ...], timeout: float | None, as_json: bool) -> None:
    """Wait until every SESSION is at rest and print their states.

    Exits with 0 when all are done, else with the code of the first that is not.
    """
    directories = [_directory(place, session) for session in sessions]
    missing = [directory.name for directory in directories if not directory.is_dir()]
    if missing:
        raise GadError(f"there is no session {', '.join(missing)}; gad ps --all lists them")
    until = None if timeout is None else time.monotonic() + timeout
    found = []
    for directory in directories:
        left = None if until is None else max(0.0, until - time.monotonic())
        with giving_up():
            status = until_rest(directory, timeout=left)
        found.append(_summary(directory, status))
        if not as_json:
            click.echo(f"{directory.name}: {status['state']}")
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    sys.exit(next((code for one in found if (code := exits.BY_STATE[one["state"]])), exits.DONE))


@contextlib.contextmanager
def giving_up() -> Iterator[None]:
    """Exit, saying why, when there is no more to wait for."""
    try:
        yield
    except (TimedOut, NobodyWorks) as exc:
        click.echo(f"gad: {exc}", err=True)
        sys.exit(exits.TIMEOUT if isinstance(exc, TimedOut) else exits.TEMPORARY)


@contextlib.contextmanager
def _interruptible(session: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"\ngad: {session} goes on; gad tail {session} follows it, gad stop {session} halts it", err=True)
        sys.exit(exits.INTERRUPTED)


def _directory(place: Place, session: str) -> Path:
    if not valid_session_name(session):
        raise GadError(f"{session!r} is not a session's name")
    return place.spool() / session


def _summary(directory: Path, status: dict[str, Any]) -> dict[str, Any]:
    result = None
    if status["state"] == "done":
        with contextlib.suppress(OSError):
            result = (directory / RESULT).read_text(encoding="utf-8", errors="replace")
    return {"session": directory.name, **status, "result": result}


def _say_outcome(directory: Path, status: dict[str, Any]) -> None:
    session, state = directory.name, status["state"]
    lines = [f"session {session}: {state}"]
    if state == "asking":
        lines.append(f"question: {status.get('question', '')}")
        lines += [f"  - {candidate}" for candidate in status.get("candidates", ())]
        reader = "" if held(str(directory.parent)) else ", and start a daemon that reads it: gad up"
        lines.append(f"answer with: gad reply {session} ...{reader}")
    elif state != "done" and status.get("error"):
        lines.append(f"error: {status['error']}")
    for line in lines:
        click.echo(_CONTROL.sub("", line), err=True)
