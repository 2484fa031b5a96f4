"""Looking at many pages does not use up the daemon's memory."""

from __future__ import annotations

import json
import subprocess
import sys


def test_scans_do_not_use_up_memory() -> None:
    done = subprocess.run([sys.executable, "-m", "bench.scan_memory", "50"], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    assert measured["growth_mb"] < 20, measured
