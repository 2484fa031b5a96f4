"""gad completion: what a shell needs to complete gad's commands, options and sessions; click's own way of doing it."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, get_completion_class

from gad.cli import Place
from gad.errors import GadError
from gad.spool.names import valid_session_name

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL; the shell reads it when it starts.

    \b
    bash: echo 'eval "$(gad completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(gad completion zsh)"' >> ~/.zshrc   (after compinit)
    fish: gad completion fish > ~/.config/fish/completions/gad.fish
    """  # noqa: D301
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "gad", "_GAD_COMPLETE").source())


class SessionName(click.types.StringParamType):
    """A session's name: completed from the spool, and otherwise any text."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the sessions that begin so, the newest names first; none where there is no home."""
        try:
            with os.scandir(Place(ctx.find_root().params.get("home")).spool()) as entries:
                found = [
                    entry.name
                    for entry in entries
                    if entry.name.startswith(incomplete) and valid_session_name(entry.name) and entry.is_dir()
                ]
        except (GadError, OSError):
            return []
        return [CompletionItem(name) for name in sorted(found, reverse=True)]


def complete_sessions(command: click.Command) -> None:
    """Let a command's arguments that are called after sessions be completed from the spool."""
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.name in ("session", "sessions"):
            parameter.type = SessionName()
