"""gad run: one task from the shell, through the running daemon or in this process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gad.cli import Place, exits
from gad.cli.daemon import say, started, stopped_by_signals
from gad.cli.submit import hand_in, parent_here, task_options
from gad.errors import GadError, Rejected, SpoolLocked

if TYPE_CHECKING:
    from gad.cli.compose import Providers
    from gad.cli.follow import Mark
    from gad.config import Config

_LOOK = 0.02
"""Seconds between two looks for new output."""
_PATIENCE = 4
"""Looks, half a second apart, after which a task that nobody has taken is told of."""


class Interrupted(GadError):
    """The session is not at rest, and a signal has ended the work on it in this process."""


@click.command("run")
@task_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the output.")
@click.pass_obj
def run_command(place: Place, /, as_json: bool, **task: Any) -> None:
    """Do one task, stream the output and exit with the session's code.

    The running daemon does it, or this process when there is none. TEXT is the task; - reads it from standard
    input. The agent works in the working directory unless --cwd names another. A question is put to you when
    a terminal is there to answer on; else it is exit code 3, and gad reply answers. Ctrl-C pauses a session
    that is in this process; one that is in the daemon goes on. In a command that an agent runs, only the daemon
    does it: exit code 111 when it has gone.
    """
    from gad.cli.watch import conclude, giving_up

    config = place.config()
    directory = hand_in(place, **task | {"cwd": task["cwd"] or os.getcwd()})
    say(f"session {directory.name}")
    run = Run(config, directory, as_json=as_json, inside=parent_here(place) is not None)
    try:
        with giving_up():
            status = run.to_its_end()
    except (Interrupted, KeyboardInterrupt):  # the latter before the daemon's own care for signals begins
        say(f"{directory.name} is paused; gad up goes on with it")
        sys.exit(exits.INTERRUPTED)
    conclude(directory, status, as_json=as_json)


class Run:
    """One session that is seen through, by whoever has the spool.

    `inside` says that this is a session's command: then its daemon has the spool, also when it has just died.
    """

    def __init__(self, config: Config, directory: Path, *, as_json: bool, inside: bool = False) -> None:
        from gad.cli.follow import Mark
        from gad.cli.watch import printer

        self._config = config
        self._directory = directory
        self._inside = inside
        self._print = None if as_json else printer()
        self._asks = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
        self._shown = 0
        self._before: Mark = Mark()

    def to_its_end(self) -> dict[str, Any]:
        """Return the session's status when it is at rest and nobody answers here. Raises Interrupted, NobodyWorks."""
        from gad.cli.follow import NobodyWorks
        from gad.spool.lock import held

        here = not self._inside and not held(str(self._config.spool_dir))
        while True:
            try:
                status = asyncio.run(self._work_here()) if here else self._watch()
            except SpoolLocked:
                here = False  # a daemon has started meanwhile
            except NobodyWorks:
                if self._inside:
                    raise
                here = True
            else:
                if not self._answered(status):
                    return status

    # -- a daemon works --------------------------------------------------------------------------

    def _watch(self) -> dict[str, Any]:
        from gad.cli.watch import until_rest
        from gad.spool.lock import held
        from gad.spool.names import INPUT

        looks = 0

        def working() -> bool:
            nonlocal looks
            looks += 1
            if looks == _PATIENCE and os.path.lexists(self._directory / INPUT):
                say("another gad run has this spool; this task begins when that one has ended")
            return held(str(self._config.spool_dir))

        return until_rest(self._directory, self._mark(), write=self._writer(), working=working)

    # -- this process works ----------------------------------------------------------------------

    async def _work_here(self) -> dict[str, Any]:
        from gad.cli.compose import Providers
        from gad.cli.logs import set_up
        from gad.cli.progress import show_progress

        providers = Providers(self._config, os.environ, show_progress())
        set_up(self._config.log, providers.secrets)
        try:
            while True:
                status = await self._round_here(providers)
                # The loop stands still while the user thinks: nothing is under way in it.
                if not self._answered(status):
                    self._asks = False
                    return status
        finally:
            await providers.close()

    async def _round_here(self, providers: Providers) -> dict[str, Any]:
        from gad.cli.compose import build_daemon
        from gad.cli.follow import Output, at_rest, refusal
        from gad.spool.names import OUTPUT

        directory, before = self._directory, self._mark()
        daemon = build_daemon(self._config, os.environ, providers, only=directory.name)
        running = await started(daemon)
        write = self._writer()
        output = Output(directory / OUTPUT, before.output)

        def look() -> None:
            if not os.path.isdir(directory):
                raise GadError(f"session {directory.name} has gone: somebody has removed {directory}")
            if write:
                output.pass_on(write)

        async def stream() -> None:
            try:
                while not running.done():
                    await asyncio.to_thread(look)
                    await asyncio.sleep(_LOOK)
            finally:
                daemon.stop()

        with stopped_by_signals(daemon.stop) as stopping:
            streaming = asyncio.create_task(stream())
            try:
                await running
            finally:
                await streaming
        if write:
            output.pass_on(write)
        status = at_rest(directory)
        if status is None:
            if stopping.asked:
                raise Interrupted
            raise GadError(f"session {directory.name} was not brought to its end; gad show {directory.name} tells why")
        error = refusal(directory, before)
        return status if error is None else {**status, "state": "rejected", "error": error}

    # -- both ------------------------------------------------------------------------------------

    def _mark(self) -> Mark:
        return replace(self._before, output=self._shown)

    def _writer(self) -> Callable[[bytes], None] | None:
        to = self._print
        if to is None:
            return None

        def write(block: bytes) -> None:
            self._shown += len(block)
            to(block)

        return write

    def _answered(self, status: dict[str, Any]) -> bool:
        """Let the user answer a question, if that is what the session waits for and a terminal is there."""
        from gad.cli.follow import mark
        from gad.spool import drop

        if status["state"] != "asking" or not self._asks:
            return False
        answer = read_answer(status.get("candidates", ()))
        if answer is None:
            self._asks = False
            return False
        self._before = mark(self._directory)
        drop.reply(self._directory, answer)
        return True


def read_answer(candidates: list[str] | tuple[str, ...]) -> bytes | None:
    """Read a line from the terminal, None when the user gives up (Ctrl-D, Ctrl-C); the number of a candidate is it."""
    from gad.spool import drop

    choice = f", or 1 to {len(candidates)}" if candidates else ""
    while True:
        click.echo(f"your answer{choice}: ", nl=False, err=True)
        try:
            line = sys.stdin.buffer.readline()
        except KeyboardInterrupt:
            line = b""
        if not line:
            click.echo(err=True)
            return None
        line = line.strip()
        number = int(line) if line.isdigit() and len(line) < 4 else 0
        if 1 <= number <= len(candidates) and line.decode() not in candidates:
            return candidates[number - 1].encode()
        try:
            drop.check_text(line, "the answer", 1 << 20)
        except Rejected as exc:
            say(str(exc))
            continue
        return line
