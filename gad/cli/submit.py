"""gad submit, reply and stop: files put into the spool."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gad.cli import Place
from gad.errors import GadError
from gad.spool import drop

_USUAL_LIMIT = 1_048_576


def read_text(words: Sequence[str], file: str | None, place: Place) -> bytes:
    """Return the message from the command line: words, `-` for standard input, or a file.

    Raises UsageError, Rejected and OSError.
    """
    if bool(words) == bool(file):
        raise click.UsageError("give the text, or - to read standard input, or --file F: one of them")
    if file:
        data, what = Path(os.path.expanduser(file)).read_bytes(), file
    elif tuple(words) == ("-",):
        data, what = sys.stdin.buffer.read(), "standard input"
    else:
        data, what = os.fsencode(" ".join(words)), "the text"
    # The settings are read only when the limit may matter: reading them takes time.
    most = _USUAL_LIMIT if len(data) <= 4096 else place.config().spool.max_bytes
    drop.check_text(data, what, most)
    return data


def parent_here(place: Place) -> str | None:
    """Return the session of this home whose command this process is, None when it is nobody's."""
    session, home = os.environ.get("GAD_SESSION"), os.environ.get("GAD_HOME")
    if not session or not home or os.path.realpath(home) != os.path.realpath(place.home()):
        return None
    return session if (place.spool() / session).is_dir() else None


def task_text(given: dict[str, str | None], settings: Sequence[str], place: Place) -> str | None:
    """Return task.yaml for the options that were given, or None. Raises UsageError and ConfigError.

    What a session's command hands in is that session's child; `parent=` says that it is nobody's.
    """
    from gad.spool.status import quote

    chosen = {key: value for key, value in given.items() if value is not None}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{setting!r} is not key=value", param_hint="--set")
        if key in chosen:
            raise click.BadParameter(f"{key} is given twice", param_hint="--set")
        chosen[key] = value
    if not chosen.setdefault("parent", parent_here(place) or ""):
        del chosen["parent"]
    if not chosen:
        return None
    from gad.task_file import check_cwd, parse_task

    text = "".join(f"{quote(key)}: {quote(value)}\n" for key, value in chosen.items())
    check_cwd(parse_task(text, "options", models=place.config().models), "options")
    return text


def how_text(
    place: Place, *, cwd: str | None, model: str | None, check: str | None, settings: Sequence[str]
) -> str | None:
    """Return task.yaml for what `how_options` say, or None. Raises UsageError and ConfigError."""
    given = {"cwd": os.path.abspath(os.path.expanduser(cwd)) if cwd else None, "model": model, "check": check}
    return task_text(given, settings, place)


def task_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what says which task is handed in, and how; the command passes all of it on to `hand_in`."""
    command = how_options(command)
    command = click.option("--name", metavar="SESSION", help="The new session's name; made up by default.")(command)
    command = click.option("--file", "-f", metavar="F", help="Read the task from a file.")(command)
    return click.argument("text", nargs=-1)(command)


def how_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what says how a task is done; the command passes it on to `how_text`."""
    for option in reversed(
        (
            click.option("--cwd", metavar="DIR", help="Where the agent works."),
            click.option("--model", metavar="NAME", help="Which model answers (gad models lists them)."),
            click.option(
                "--check", metavar="CMD", help="A shell command that must exit with 0 for the work to be done."
            ),
            click.option(
                "--set",
                "settings",
                multiple=True,
                metavar="KEY=VALUE",
                help="Any other key of task.yaml; may be repeated.",
            ),
        )
    ):
        command = option(command)
    return command


def hand_in(
    place: Place,
    *,
    text: Sequence[str],
    file: str | None,
    name: str | None,
    cwd: str | None,
    model: str | None,
    check: str | None,
    settings: Sequence[str],
) -> Path:
    """Hand in a task as a new session, as `task_options` say, and return the session's directory.

    Raises UsageError, GadError and OSError.
    """
    spool = place.spool()
    message = read_text(text, file, place)
    task = how_text(place, cwd=cwd, model=model, check=check, settings=settings)
    return drop.submit(spool, name if name is not None else drop.new_session_name(time.time()), message, task)


@click.command("submit")
@task_options
@click.option("--wait", is_flag=True, help="Stream the output and exit with the session's code.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="With --wait: exit 124 after S seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_obj
def submit_command(place: Place, /, wait: bool, timeout: float | None, as_json: bool, **task: Any) -> None:
    """Hand in a task as a new session and print the session's name.

    TEXT is the task; - reads it from standard input. The agent works in a directory of its own unless --cwd
    names another.
    """
    directory = hand_in(place, **task)
    if wait:
        from gad.cli.watch import see_through

        if not as_json:
            click.echo(f"session {directory.name}", err=True)
        see_through(directory, None, timeout=timeout, as_json=as_json)
    click.echo(json.dumps({"session": directory.name, "directory": str(directory)}) if as_json else directory.name)


@click.command("reply")
@click.argument("session")
@click.argument("text", nargs=-1)
@click.option("--file", "-f", metavar="F", help="Read the message from a file.")
@click.option("--wait", is_flag=True, help="Stream the output from here on and exit with the session's code.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="With --wait: exit 124 after S seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_obj
def reply_command(
    place: Place,
    session: str,
    text: tuple[str, ...],
    file: str | None,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Send the next message to SESSION.

    It answers the session's question, goes on with a session at rest, or steers one that works. TEXT is the
    message; - reads it from standard input.
    """
    directory = place.spool() / session
    message = read_text(text, file, place)
    if wait:
        from gad.cli.follow import mark
        from gad.cli.watch import see_through

        before = mark(directory)
        drop.reply(directory, message)
        see_through(directory, before, timeout=timeout, as_json=as_json)
    drop.reply(directory, message)
    if as_json:
        click.echo(json.dumps({"session": session, "directory": str(directory)}))


@click.command("stop")
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True)
@click.pass_obj
def stop_command(place: Place, sessions: tuple[str, ...]) -> None:
    """Halt sessions now. Their progress is kept; gad reply resumes one."""
    spool = place.spool()
    problems = []
    for session in sessions:
        try:
            drop.stop(spool / session)
        except GadError as exc:
            problems.append(str(exc))
    if problems:
        raise GadError("\n".join(problems))


@click.command("ok")
@click.argument("session")
@click.argument("words", nargs=-1)
@click.pass_obj
def ok_command(place: Place, session: str, words: tuple[str, ...]) -> None:
    """Say that SESSION did its work well; WORDS may say why.

    Only what somebody has confirmed is learnt from: a verdict counts beside, and before, the task's own check.
    """
    drop.verdict(place.spool() / session, True, " ".join(words))


@click.command("bad")
@click.argument("session")
@click.argument("words", nargs=-1)
@click.pass_obj
def bad_command(place: Place, session: str, words: tuple[str, ...]) -> None:
    """Say that SESSION did not do its work; WORDS may say what is wrong. gad reply lets it try again."""
    drop.verdict(place.spool() / session, False, " ".join(words))
