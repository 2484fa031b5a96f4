"""The manual pages: whole, well formed and in the wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from gad.cli import COMMANDS, exits, gad
from gad.spool import names

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "man/gad.1", ROOT / "man/gad-spool.7")


def plain(page: Path) -> str:
    """A page's text without the formatter's marks."""
    text = page.read_text("utf-8").replace(r"\-", "-").replace(r"\&", "").replace(r"\(aq", "'")
    return re.sub(r"^\.(BR?|IR?|RB|RI|SS|TP) ?", "", text, flags=re.MULTILINE)


def test_gad_1_is_what_the_commands_say_of_themselves() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts/man", "--check"])
    assert done.returncode == 0, "the commands' help has changed: make man"


def test_every_command_option_and_exit_code_is_in_gad_1() -> None:
    text = plain(PAGES[0])
    context = click.Context(gad, info_name="gad")
    for name in COMMANDS:
        command = gad.get_command(context, name)
        assert command is not None and f'"gad {name}' in text, name
        inner = command.commands if isinstance(command, click.Group) else {}
        assert all(f'"gad {name} {one}' in text for one in inner), name
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.opts[-1] in text, (name, parameter.opts)
    codes = text.partition("EXIT STATUS")[2].partition(".SH")[0]
    for code, meaning in exits.MEANINGS.items():
        assert f"\n{code}\n{meaning.split(':')[0]}" in codes, code


def test_every_file_and_state_of_the_spool_is_in_gad_spool_7() -> None:
    lines = plain(PAGES[1]).splitlines()
    for name in (*names.CLIENT_FILES, *names.DAEMON_FILES, f"{names.DAEMON_DIR}/{names.LOCK}", *names.STATES):
        assert name in lines, name
    for name in (names.claim_name(1, ""), names.rejected_name(1, ""), names.archived_name(1, "")):
        assert f"{name.replace('0001-', 'NNNN-')}name" in lines, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
@pytest.mark.parametrize(
    "command", [["groff", "-ww", "-man", "-Tutf8", "-z"], ["man", "--warnings", "-l"]], ids=lambda command: command[0]
)
def test_a_page_is_formatted_without_a_warning(page: Path, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([*command, page], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if command[0] == "man":
        assert "NAME" in done.stdout and len(done.stdout.splitlines()) > 100


def test_they_are_in_the_wheel(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling, which builds gad, is not installed")
    (wheel,) = builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        kept = [name for name in archive.namelist() if "/share/man/" in name]
    assert sorted(name.partition(".data/data/")[2] for name in kept) == [
        "share/man/man1/gad.1",
        "share/man/man7/gad-spool.7",
    ]
