"""Looking at many pages does not use up the daemon's memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MEASURE = """
import asyncio, pathlib, sys
from bench.web import growth
print(asyncio.run(growth(50, pathlib.Path(sys.argv[1]))))
"""


def test_scans_do_not_use_up_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000_000
