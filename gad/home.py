"""A home: the directory that holds gad.yaml, with the spool, the work and the memory beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gad.errors import HomeNotFound

CONFIG_NAME = "gad.yaml"
DIRECTORIES = ("spool", "work", "memory", "triggers")


def find_home(start: Path, environ: Mapping[str, str]) -> Path:
    """Return the home: GAD_HOME, else the nearest directory from `start` upward that holds gad.yaml.

    Raises HomeNotFound, which says what to do.
    """
    named = environ.get("GAD_HOME")
    if named:
        home = Path(os.path.abspath(os.path.expanduser(named)))
        if not (home / CONFIG_NAME).is_file():
            raise HomeNotFound(f"{home} holds no {CONFIG_NAME}; make it a home with: gad init {home}")
        return home
    start = Path(os.path.abspath(start))
    for directory in (start, *start.parents):
        if (directory / CONFIG_NAME).is_file():
            return directory
    raise HomeNotFound(
        f"no {CONFIG_NAME} in {start} or above it; make a home with: gad init DIR, "
        f"then work in it, or name it with --home DIR or GAD_HOME"
    )


def template() -> str:
    """Return the text of a new home's gad.yaml."""
    return (Path(__file__).parent / "template.yaml").read_text(encoding="utf-8")


def make_home(home: Path) -> bool:
    """Make a directory a home; what is there already is left as it is. Return whether gad.yaml is new."""
    home.mkdir(parents=True, exist_ok=True)
    for name in DIRECTORIES:
        # What is said to agents is nobody else's to read.
        (home / name).mkdir(mode=0o700, exist_ok=True)
    try:
        with open(home / CONFIG_NAME, "x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        return False
    return True
