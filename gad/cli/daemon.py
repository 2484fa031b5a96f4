"""gad up: the daemon in the foreground; and how a daemon in this process is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from gad.cli import Place

if TYPE_CHECKING:
    from gad.cli.compose import Providers
    from gad.config import Config
    from gad.daemon import Daemon

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def say(line: str) -> None:
    """Write one line for the person at the terminal."""
    click.echo(f"gad: {line}", err=True)


class OneLine(logging.Formatter):
    """An event is one line, its traceback included, so that a line of the log can be searched and counted."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text without line breaks."""
        return " | ".join(line.strip() for line in super().format(record).splitlines() if line.strip())


def log_to_stderr(verbose: bool = False) -> None:
    """Send gad's log to standard error, one line an event; with a time, unless the journal adds its own."""
    when = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(OneLine(f"{when}%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[stream])
    for noisy in ("httpx2", "httpcore2", "openai", "anthropic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class Stopping:
    """What a signal does while a daemon runs: the first stops it in good order, the second ends this process."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.asked = False
        self._stop = stop

    def __call__(self, number: int) -> None:
        """Take a signal."""
        if self.asked:
            os._exit(128 + number)  # nothing is lost by it: the next daemon recovers, as after a crash
        self.asked = True
        self._stop()


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[Stopping]:
    """Stop by SIGTERM and SIGINT while the block runs, in a running loop."""
    loop = asyncio.get_running_loop()
    stopping = Stopping(stop)
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping, number)
    try:
        yield stopping
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def started(daemon: Daemon) -> asyncio.Task[None]:
    """Return a daemon's run, under way: it has the spool's lock. Raises SpoolLocked."""
    running = asyncio.create_task(daemon.run())
    await asyncio.sleep(0)  # up to its first wait it takes the lock
    if running.done():
        running.result()
    return running


@click.command("up")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, not only what goes wrong.")
@click.pass_obj
def up_command(place: Place, verbose: bool) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C.

    Sessions that are at work then are broken off, and resumed when the daemon is back; a second signal ends it
    at once. Exit code 100 says that another daemon has this spool.
    """
    log_to_stderr(verbose)
    config = place.config()
    with contextlib.suppress(KeyboardInterrupt):  # before the daemon's own care for signals begins
        asyncio.run(_up(config))
    say("stopped")


async def _up(config: Config) -> None:
    from gad.cli.compose import Providers, build_daemon, find_key
    from gad.cli.progress import show_progress
    from gad.errors import GadError

    entry = config.models[config.model]
    say(f"home {config.home}")
    say(f"model {entry.name} ({entry.provider}, {entry.model})")
    for name in config.chain_of(config.model):
        try:
            find_key(config.models[name], os.environ)
        except GadError as exc:
            say(f"warning: {exc}")
    providers = Providers(config, os.environ, show_progress())
    daemon = build_daemon(config, os.environ, providers)
    running = await started(daemon)
    with stopped_by_signals(daemon.stop):
        telling = asyncio.create_task(_tell_ready(config))
        warming = asyncio.create_task(_warm(providers, config.model))
        try:
            await running
        finally:
            telling.cancel()
            await warming
            await providers.close()


async def _tell_ready(config: Config) -> None:
    from gad.spool.names import DAEMON_DIR
    from gad.spool.status import read_status

    while (status := read_status(config.spool_dir / DAEMON_DIR)).get("state") != "ready":  # noqa: ASYNC110 - a file
        await asyncio.sleep(0.01)
    waiting = sum(status.get(state, 0) for state in ("queued", "running", "deferred"))
    at_work = f", {waiting} sessions to go on with" if waiting else ""
    say(f"ready{at_work}; drop a task into {config.spool_dir}/NAME/input.txt, or: gad submit TEXT")
    say("stop with Ctrl-C")


async def _warm(providers: Providers, model: str) -> None:
    """Import the default model's SDK before the first task wants it. What is wrong is told when it is asked."""
    try:
        await asyncio.to_thread(providers, model)
    except Exception as exc:
        logging.getLogger(__name__).info("model %s cannot be prepared: %s", model, exc)
