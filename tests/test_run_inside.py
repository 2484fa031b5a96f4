"""`gad run` in a command of an agent whose daemon has died: it must not take the spool from the next daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gad.cli import exits
from gad.home import make_home
from gad.spool.lock import SpoolLock, held


def run_inside(home: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "GAD_HOME": str(home), "GAD_SESSION": "above", "GAD_CALL": "c"}
    command = [sys.executable, "-m", "gad", "--home", str(home), "run", "--name", "below", "do it"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def home_with_a_session(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    make_home(home)
    (home / "spool" / "above").mkdir(parents=True, exist_ok=True)
    return home


def test_without_a_daemon_the_task_stays_for_the_next_one(tmp_path: Path) -> None:
    home = home_with_a_session(tmp_path)
    with run_inside(home) as running:
        _, said = running.communicate(timeout=60)
    assert running.returncode == exits.TEMPORARY, said
    assert b"no daemon runs" in said
    assert (home / "spool" / "below" / "input.txt").read_text() == "do it"
    assert not (home / "spool" / ".daemon" / "status.txt").exists()  # a daemon in that process would have written it


def test_when_the_daemon_dies_meanwhile_it_does_not_step_in(tmp_path: Path) -> None:
    home = home_with_a_session(tmp_path)
    with SpoolLock(str(home / "spool")):
        running = run_inside(home)
        assert running.stderr is not None
        assert b"session below" in running.stderr.readline()
    with running:
        _, said = running.communicate(timeout=60)
    assert running.returncode == exits.TEMPORARY, said
    assert not held(str(home / "spool"))
    assert not (home / "spool" / ".daemon" / "status.txt").exists()
