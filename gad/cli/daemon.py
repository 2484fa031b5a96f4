"""gad up and gad run: the daemon, in the foreground, and for one task."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import NoReturn

import click

from gad.cli import Place, exits


def log_to_stderr(verbose: bool = False) -> None:
    """Send gad's log to standard error, one line an event."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr
    )
    for noisy in ("httpx2", "httpcore2", "openai", "anthropic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@click.command("up")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, not only what goes wrong.")
@click.pass_obj
def up_command(place: Place, verbose: bool) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C.

    Sessions that are at work then are broken off, and resumed when the daemon is back. Exit code 100 says that
    another daemon has this spool.
    """
    log_to_stderr(verbose)
    config = place.config()
    click.echo(f"gad: home {config.home}, model {config.model}; stop with Ctrl-C", err=True)
    asyncio.run(_up(place))


async def _up(place: Place, only: str | None = None) -> None:
    import os

    from gad.cli.compose import Providers, build_daemon
    from gad.cli.progress import show_progress
    from gad.errors import GadError

    config = place.config()
    providers = Providers(config, os.environ, show_progress())
    daemon = build_daemon(config, os.environ, providers, only=only)

    async def warm() -> None:
        """Import the default model's SDK before the first task wants it."""
        try:
            await asyncio.to_thread(providers, config.model)
        except GadError as exc:
            click.echo(f"gad: {exc}", err=True)

    warming = asyncio.create_task(warm())
    try:
        await daemon.run()
    finally:
        await warming
        await providers.close()


@click.command("run")
@click.argument("words", metavar="TEXT|-", nargs=-1)
@click.option("--file", "file", metavar="F", help="Read the task from a file.")
@click.option("--name", metavar="SESSION", help="The session's name.")
@click.option("--cwd", metavar="DIR", help="Where the tools work; the working directory by default.")
@click.option("--model", metavar="NAME", help="An entry of gad.yaml's models.")
@click.option("--check", metavar="CMD", help="A shell command that decides whether the work is done.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Any other key of task.yaml.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON instead of the stream.")
@click.pass_obj
def run_command(
    place: Place,
    words: tuple[str, ...],
    file: str | None,
    name: str | None,
    cwd: str | None,
    model: str | None,
    check: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Do one task and stream the answer: through the running daemon, or in this process when there is none.

    Exits with the session's code, as `gad --help` lists them.
    """
    import os
    import time

    from gad.cli.submit import read_text, task_text
    from gad.spool import drop
    from gad.spool.lock import held

    log_to_stderr()
    spool = place.spool()
    text = read_text(words, file, place)
    options = {"cwd": os.path.abspath(cwd or os.getcwd()), "model": model, "check": check}
    task = task_text(options, settings, place)
    session = name or drop.new_session_name(time.time())
    directory = drop.submit(spool, session, text, task)
    click.echo(f"gad: session {session}", err=True)
    if held(str(spool)):
        from gad.cli.watch import see_through

        see_through(directory, None, timeout=None, as_json=as_json)
    _run_here(place, session, as_json)


def _run_here(place: Place, session: str, as_json: bool) -> NoReturn:
    """Be the daemon for one session, with its output on standard output."""
    import threading

    from gad.cli.follow import Output
    from gad.cli.watch import printer
    from gad.spool import names

    directory = place.spool() / session
    stop = threading.Event()
    output = Output(directory / names.OUTPUT)
    write = printer()

    def stream() -> None:
        while not stop.wait(0.03):
            output.pass_on(write)
        output.pass_on(write)

    streaming = threading.Thread(target=stream, daemon=True)
    if not as_json:
        streaming.start()
    try:
        asyncio.run(_up(place, only=session))
    finally:
        stop.set()
        if not as_json:
            streaming.join()
    _exit_with(place, session, as_json)


def _exit_with(place: Place, session: str, as_json: bool) -> NoReturn:
    from gad.cli.watch import see_outcome

    see_outcome(place.spool() / session, as_json=as_json)
    sys.exit(exits.ERROR)
