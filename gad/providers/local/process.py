"""The parent's end of the model's process: start it when it is needed, start it again when it died, end it surely."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gad.errors import LocalModelError

START_SECONDS = 180.0
MAX_THREADS = 8
MISSING = "the local model needs its runtime: pip install 'gad[local]'"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the model listens, and the key that it wants."""

    base_url: str
    key: str


class LocalServer:
    """One llama.cpp server in a child process, shared by all sessions of this daemon."""

    def __init__(self, weights: Path, *, context: int = 16_384, threads: int | None = None) -> None:
        """Remember what to start. `context` is in tokens, 28 KB of memory each; `threads` None: `thread_count()`."""
        self._weights = weights
        self._context = context
        self._threads = threads
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._address: Address | None = None
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The child's process id while it lives."""
        return self._child.pid if self._child and self._child.poll() is None else None

    async def address(self) -> Address:
        """Return where the live server listens, starting it when there is none. Raises LocalModelError."""
        async with self._lock:
            if self._address is not None and self.pid is not None:
                return self._address
            self._end()
            try:
                self._address = await asyncio.wait_for(self._start(), START_SECONDS)
            except TimeoutError as error:
                raise LocalModelError(f"the local model did not start within {START_SECONDS:.0f} s") from error
            finally:
                if self._address is None:
                    self._end()
            return self._address

    async def _start(self) -> Address:
        key = secrets.token_urlsafe(24)
        settings = {"model": str(self._weights), "key": key, "context": self._context}
        settings["threads"] = self._threads or thread_count()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._child = child = subprocess.Popen(  # noqa: ASYNC220 - returns once the child runs, milliseconds
            [sys.executable, "-m", "gad.providers.local.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # the terminal's Ctrl-C is for the daemon, which ends us when it has drained
        )
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(settings).encode() + b"\n")
            child.stdin.flush()
        line = await _first_line(child.stdout)
        said = json.loads(line) if line else {}
        if "address" in said:
            return Address(f"{said['address']}/v1", key)
        if said.get("missing"):
            raise LocalModelError(f"{MISSING} ({said['error']})")
        raise LocalModelError(f"the local model did not start: {said.get('error', 'its process died')}\n{self._tail()}")

    def _tail(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return b"\n".join(self._errors.read()[-2000:].splitlines()[-6:]).decode(errors="replace")

    def _end(self) -> None:
        child, self._child, self._address = self._child, None, None
        if child is not None:
            child.kill()  # it has no state worth a farewell
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    async def close(self) -> None:
        """End the child. It can be started again by `address`."""
        self._end()


async def _first_line(stream: IO[bytes]) -> bytes:
    """Read up to the first line end, or to the end, without a thread that a cancelled start would leave behind."""
    loop = asyncio.get_running_loop()
    descriptor = stream.fileno()
    os.set_blocking(descriptor, False)
    found = b""
    while not found.endswith(b"\n"):
        ready = loop.create_future()
        loop.add_reader(descriptor, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        chunk = os.read(descriptor, 4096)
        if not chunk:
            break
        found += chunk
    return found


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def thread_count() -> int:
    """Return how many threads the model should use: every core we may run on, one less when others are busy.

    Generation waits for its slowest thread, so one core shared with somebody else halves the speed of all;
    beyond eight threads memory, not arithmetic, is the limit.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, round(int(quota) / int(period))))
    busy = os.getloadavg()[0] > cores / 2
    return max(1, min(MAX_THREADS, cores - 1 if busy else cores))
