"""gad init."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("init")
@click.argument("directory", metavar="DIR", default=".", type=click.Path(file_okay=False, path_type=Path))
def init_command(directory: Path) -> None:
    """Make DIR (the working directory by default) a home: gad.yaml, spool/, work/, memory/ and triggers/.

    What is there already is left as it is.
    """
    from gad.home import CONFIG_NAME, make_home

    home = directory.expanduser().absolute()
    new = make_home(home)
    click.echo(f"{home} is a home now." if new else f"{home} was a home already; its {CONFIG_NAME} is unchanged.")
    click.echo(f"Settings: {home / CONFIG_NAME}\nStart the daemon: gad --home {home} up")
