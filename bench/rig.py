"""A daemon and a scripted model server, each a process of its own, and what a client does with plain files."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gad.home import make_home
from gad.spool.status import read_status
from tests.scripted_server import ServerProcess, serve_in_process

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0
"""Seconds after which a benchmark that hangs fails."""


class Rig:
    """A home whose model is the scripted server; `daemon` and `pid` are there inside `up`."""

    def __init__(
        self,
        home: Path,
        server: ServerProcess,
        *,
        provider: str = "openai",
        sessions: int = 16,
        model: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.home = home
        self.spool = home / "spool"
        self.work = home / "work"
        self.pid = 0
        self.ready_after = 0.0
        self.daemon: subprocess.Popen[bytes] | None = None
        self._log = server._log.open("rb") if server._log.exists() else None
        self._server = server
        self._rest = b""
        make_home(home)
        url = server.url if provider == "anthropic" else server.openai_url
        entry = {"provider": provider, "model": "scripted", "base_url": url, **(model or {})}
        chosen = {"model": "bench", "models": {"bench": entry}, "sessions": sessions, **settings}
        (home / "gad.yaml").write_text(yaml.safe_dump(chosen), "utf-8")

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """Run a daemon until the block ends; `ready_after` is how long it took, in seconds."""
        began = time.monotonic()
        self.start()
        assert self.daemon is not None
        try:
            until(lambda: self.daemon_state() == "ready" or self._gone(), pause=0.001)
            self.ready_after = time.monotonic() - began
            yield
        finally:
            self.daemon.terminate()
            self.daemon.wait(30)

    def start(self) -> None:
        """Start a daemon, which is not ready yet."""
        environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        with open(self.home / "daemon.log", "ab") as log:
            self.daemon = subprocess.Popen([sys.executable, "-m", "gad", "--home", str(self.home), "up"],
                                           cwd=ROOT, env=environ, stderr=log)  # fmt: skip
        self.pid = self.daemon.pid

    def daemon_state(self) -> str:
        """Return what the daemon that was started last says of itself."""
        status = read_status(self.spool / ".daemon")
        return str(status.get("state")) if status.get("pid") == self.pid else ""

    def _gone(self) -> bool:
        assert self.daemon is not None
        if self.daemon.poll() is not None:
            raise RuntimeError(f"the daemon ended:\n{(self.home / 'daemon.log').read_text()}")
        return False

    # -- a client's side -------------------------------------------------------------------------

    def put(self, session: str, name: str, text: str) -> float:
        """Write a file as a shell does, in place; return the wall time at which it was about to be closed."""
        file = os.open(self.spool / session / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.write(file, text.encode())
        closing = time.time()
        os.close(file)
        return closing

    def task(self, session: str, text: str = "Say hello.") -> float:
        """Make a session's directory and hand in its task; return when it was handed in."""
        (self.spool / session).mkdir()
        return self.put(session, "input.txt", text)

    def rest(self, sessions: Iterable[str], state: str = "done", *, round: int = 1, pause: float = 0.002) -> None:
        """Wait until all of these sessions are in this state. Raises RuntimeError when one ends in another."""
        left = list(sessions)

        def there() -> bool:
            while left:
                status = read_status(self.spool / left[-1])
                if status.get("state") == state and status.get("round") == round:
                    left.pop()
                elif status.get("state") in ("failed", "rejected") and state not in ("failed", "rejected"):
                    raise RuntimeError(f"session {left[-1]}: {status}")
                else:
                    return False
            return True

        until(there, pause=pause)

    # -- what the server saw ---------------------------------------------------------------------

    def new_requests(self) -> list[dict[str, Any]]:
        """Return the requests since the last call, each with the wall time of its head and its body."""
        if self._log is None:
            self._log = self._server._log.open("rb")
        data = self._rest + self._log.read()
        whole, _, self._rest = data.rpartition(b"\n")
        events = [json.loads(line) for line in whole.splitlines()]
        return [event for event in events if event["event"] == "request"]

    def close(self) -> None:
        """Close the server's log."""
        if self._log is not None:
            self._log.close()


@contextlib.contextmanager
def rig(place: Path, rule: str, **settings: Any) -> Iterator[Rig]:
    """Run the scripted server by a rule of `bench.rules` and make a home below `place` for a daemon, not yet up.

    The home is left there: file systems may be slow for a while after thousands of files were removed.
    """
    with serve_in_process(rule=f"bench.rules:{rule}") as server:
        made = Rig(Path(tempfile.mkdtemp(prefix=f"{rule}-", dir=place)), server, **settings)
        try:
            yield made
        finally:
            made.close()


def until(condition: Callable[[], object], *, pause: float) -> None:
    """Poll a condition every `pause` seconds. Raises TimeoutError after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s")
        time.sleep(pause)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, all its threads, user and system (Linux: the process's own clock)."""
    return time.clock_gettime((~pid << 3) | 2)


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
