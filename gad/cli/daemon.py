"""gad up: the daemon in the foreground; and how a daemon in this process is told to stop or to read gad.yaml again."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from gad.cli import Place
from gad.cli.logs import announce, set_up

if TYPE_CHECKING:
    from gad.cli.compose import Providers
    from gad.config import Config
    from gad.daemon import Daemon

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def say(line: str) -> None:
    """Write one line for the person at the terminal."""
    with contextlib.suppress(OSError):  # a terminal that has been closed
        click.echo(f"gad: {line}", err=True)


class Stopping:
    """What signals do while a daemon runs: each takes the next of `ways` to stop, one more ends this process."""

    def __init__(self, ways: Sequence[Callable[[], None]]) -> None:
        self.asked = False
        self._ways = list(ways)

    def __call__(self, number: int) -> None:
        """Take a signal."""
        self.asked = True
        if not self._ways:
            os._exit(128 + number)  # nothing is lost by it: the next daemon recovers, as after a crash
        self._ways.pop(0)()


@contextlib.contextmanager
def stopped_by_signals(*ways: Callable[[], None]) -> Iterator[Stopping]:
    """Stop by SIGTERM and SIGINT while the block runs, in a running loop."""
    loop = asyncio.get_running_loop()
    stopping = Stopping(ways)
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping, number)
    try:
        yield stopping
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def told_by_hangup(reload: Callable[[], None], hung_up: Callable[[], None]) -> Iterator[None]:
    """Call `reload` on SIGHUP while the block runs, or `hung_up` when it says that our terminal has been closed."""
    loop = asyncio.get_running_loop()
    terminal = os.isatty(2)
    loop.add_signal_handler(signal.SIGHUP, lambda: hung_up() if terminal and not os.isatty(2) else reload())
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


async def started(daemon: Daemon) -> asyncio.Task[None]:
    """Return a daemon's run, under way: it has the spool's lock. Raises SpoolLocked."""
    running = asyncio.create_task(daemon.run())
    await asyncio.sleep(0)  # up to its first wait it takes the lock
    if running.done():
        running.result()
    return running


@click.command("up")
@click.pass_obj
def up_command(place: Place) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C.

    Turns that are under way then may come to their end, for as long as `drain` in gad.yaml says; a second signal
    breaks them off, a third ends the process at once. All sessions go on when the daemon is back. SIGHUP has
    gad.yaml read again. Exit code 100 says that a restart does not help: the settings are wrong, or another
    daemon has this spool.
    """
    config = place.config()
    with contextlib.suppress(KeyboardInterrupt):  # before the daemon's own care for signals begins
        asyncio.run(_up(config))
    announce("stopped")
    _let_go()


def _let_go() -> None:
    """Have what a closed terminal did not take go nowhere: Python would exit with 120 for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


async def _up(config: Config) -> None:
    from gad.cli.compose import Providers, build_daemon, find_key
    from gad.cli.progress import show_progress
    from gad.cli.reload import Reload
    from gad.errors import GadError

    entry = config.models[config.model]
    providers = Providers(config, os.environ, show_progress())
    set_up(config.log, providers.secrets)
    announce(f"home {config.home}")
    announce(f"model {entry.name} ({entry.provider}, {entry.model})")
    for name in config.chain_of(config.model):
        try:
            find_key(config.models[name], os.environ)
        except GadError as exc:
            announce(f"warning: {exc}")
    daemon = build_daemon(config, os.environ, providers)
    reload = Reload(daemon, providers, os.environ)

    def drain() -> None:
        seconds = providers.config.drain
        if at_work := daemon.drain(seconds):
            announce(f"finishing {at_work} turns, for {seconds:g} s at most; a second signal breaks them off")

    with stopped_by_signals(drain, daemon.stop), told_by_hangup(reload, drain):
        running = await started(daemon)
        faulthandler.enable()  # a watchdog's SIGABRT then says where the daemon stood still
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
    announce(f"ready{at_work}; drop a task into {config.spool_dir}/NAME/input.txt, or: gad submit TEXT")
    announce("stop with Ctrl-C")


async def _warm(providers: Providers, model: str) -> None:
    """Import the default model's SDK before the first task wants it. What is wrong is told when it is asked."""
    try:
        await asyncio.to_thread(providers, model)
    except Exception as exc:
        logging.getLogger(__name__).info("model %s cannot be prepared: %s", model, exc)
