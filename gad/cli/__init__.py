"""The command line: the composition root. A command's module is imported when it is run, not before."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gad.cli import exits

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gad.config import Config

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("gad.cli.init", "Make a home: a directory with gad.yaml and a spool."),
    "up": ("gad.cli.daemon", "Run the daemon in the foreground."),
    "run": ("gad.cli.run", "Do one task now and stream the answer."),
    "submit": ("gad.cli.submit", "Hand in a task as a new session."),
    "map": ("gad.cli.map", "Do the same for each line of a file, a session a line."),
    "reply": ("gad.cli.submit", "Send the next message to a session."),
    "stop": ("gad.cli.submit", "Halt a session; a reply resumes it."),
    "ok": ("gad.cli.submit", "Say that a session did its work well."),
    "bad": ("gad.cli.submit", "Say that a session did not do its work."),
    "tail": ("gad.cli.watch", "Follow a session's output."),
    "wait": ("gad.cli.watch", "Wait until sessions are at rest."),
    "ps": ("gad.cli.listing", "List sessions and what each does."),
    "top": ("gad.cli.top", "Show live what all sessions do; keys follow, answer and stop them."),
    "show": ("gad.cli.show", "Show a session's whole transcript."),
    "memory": ("gad.cli.memory", "Show, search and tidy what agents remember."),
    "explore": ("gad.cli.explore", "Show what has come of idle time: skills, plan, weights, reports."),
    "triggers": ("gad.cli.triggers", "List and operate what hands in sessions by itself."),
    "service": ("gad.cli.service", "Have systemd run the daemon: install, uninstall, status, logs."),
    "gc": ("gad.cli.gc", "Put away old sessions, as retain in gad.yaml says."),
    "doctor": ("gad.cli.doctor", "Check that everything gad needs is there."),
    "config": ("gad.cli.listing", "Show the settings in force and where each came from."),
    "models": ("gad.cli.listing", "List the models that a task can name."),
    "completion": ("gad.cli.completion", "Print what makes a shell complete gad's commands."),
}
"""Every command: the module that has a function of the same name with `_command` behind it, and a short help."""


@dataclass(slots=True)
class Place:
    """Where the command works: the --home option, and the home found when it is first asked for."""

    option: str | None = None

    def environ(self) -> dict[str, str]:
        """Return the environment with --home in GAD_HOME's place."""
        return {**os.environ, **({"GAD_HOME": self.option} if self.option else {})}

    def home(self) -> Path:
        """Return the home. Raises HomeNotFound."""
        from gad.home import find_home

        return find_home(Path.cwd(), self.environ())

    def spool(self) -> Path:
        """Return the home's spool. Raises HomeNotFound."""
        return self.home() / "spool"

    def config(self) -> Config:
        """Return the home's settings. Raises HomeNotFound or ConfigError."""
        from gad.config import load

        return load(self.home(), self.environ())


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        if ctx.resilient_parsing:  # a shell asks what could stand here
            from gad.cli.completion import complete_sessions

            complete_sessions(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without importing them, or the options."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=help_) for name, (_, help_) in COMMANDS.items() if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one is named with what may have been meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f"did you mean {near[0]}?" if near else f"commands are: {', '.join(COMMANDS)}"
            ctx.fail(f"no command {args[0]!r}; {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' short helps without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exits.MEANINGS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what gad raises on purpose becomes one clear message and an exit code."""
        from gad.errors import ConfigError, GadError, HomeNotFound, Rejected, SpoolLocked

        try:
            return super().invoke(ctx)
        except GadError as exc:
            for line in str(exc).splitlines():
                click.echo(f"gad: {line}", err=True)
            useless = isinstance(exc, ConfigError | HomeNotFound) and ctx.invoked_subcommand == "up"
            code = exits.HOPELESS if useless or isinstance(exc, SpoolLocked) else exits.ERROR
            ctx.exit(exits.REJECTED if isinstance(exc, Rejected) else code)
        except BrokenPipeError:
            raise
        except OSError as exc:
            place = f"{exc.filename}: " if exc.filename else ""
            click.echo(f"gad: {place}{exc.strerror or exc}", err=True)
            ctx.exit(exits.ERROR)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home", metavar="DIR", help="The home to use instead of GAD_HOME or the gad.yaml found upward from here."
)
@click.version_option(package_name=None, version=importlib.import_module("gad").__version__, prog_name="gad")
@click.pass_context
def gad(ctx: click.Context, home: str | None) -> None:
    """Run LLM agents through a directory: drop a file, an agent works, the answer streams back.

    Everything that these commands do to a session is done with files in the home's spool, so any program
    that can write a file can do the same.
    """
    ctx.obj = Place(home)
