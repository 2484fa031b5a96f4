"""The host's end of a child: starting it, calling it within a time limit, taking its output, ending all of it.

Everything that a plugin starts carries the run's mark in its environment, so that it is found and ended with the
child, also what made a session of its own. A run is one child; its mark begins with the host's process id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import IO, Any, TypeVar

from gad.spool.drop import alive

MARK = "GAD_TRIGGER_RUN"
"""The variable that marks the processes of a run."""
LONGEST = 32 << 20
"""Bytes of the longest message that a child may send."""
LEAVING = 1.0
"""Seconds for which a child that does nothing may leave by itself."""
KILLING = 5.0
"""Seconds that the kernel may take to end what was killed."""
LINES = 200
"""Lines of output that are passed on in each `WINDOW`."""
WINDOW = 10.0
"""Seconds."""
LINE = 2000
"""Characters of a line that are passed on."""

GARBLED = "what came over its socket is not what the host and a child say to each other"

T = TypeVar("T")
Serve = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Say = Callable[[str, bool], None]
"""Takes a line of a child's output, and whether it came over standard error."""


class Died(Exception):
    """The child has ended, or does not do what it should; says how. It must be ended now."""


class Child:
    """A plugin's process. Make one with `start`, and always `end` it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        mark: str,
        say: Say,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._mark = mark
        self._reader = reader
        self._writer = writer
        self._ended = False
        self._busy = False
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._on_exit)
        assert process.stdout is not None and process.stderr is not None
        self._output = [_Output(process.stdout, say, False), _Output(process.stderr, say, True)]

    @classmethod
    async def start(cls, *, environment: Mapping[str, str], cwd: str, say: Say) -> Child:
        """Start a child that waits for its first call. Raises OSError."""
        mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # First of all: once there is a process, nothing may be waited for, and so be cancelled, before it is
                # in hands that end it.
                reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST)
            except BaseException:
                ours.close()
                raise
            process = None
            try:
                process = subprocess.Popen(  # noqa: ASYNC220 - returns once the child runs, milliseconds
                    # -P: nothing in the home takes the place of a module of ours.
                    [sys.executable, "-P", "-m", "gad.triggers.child", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    env={**environment, MARK: mark, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:replace"},
                    cwd=cwd,
                )
                return cls(process, reader, writer, mark, say)
            except BaseException:
                writer.close()
                if process is not None:
                    _kill(process, mark)
                raise

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(None)

    async def call(self, message: Mapping[str, Any], seconds: float, serve: Serve) -> dict[str, Any]:
        """Send a call and return the answer; `serve` is asked what the child asks for meanwhile. Raises Died."""
        try:
            async with asyncio.timeout(seconds):
                return await self._talk(message, serve)
        except TimeoutError:
            raise Died(f"{message['call']}() did not return within {seconds:g} s") from None

    async def _talk(self, message: Mapping[str, Any], serve: Serve) -> dict[str, Any]:
        self._busy = True
        self._send(message)
        while True:
            try:
                found = json.loads(await self._line())
            except ValueError:
                found = None
            if not isinstance(found, dict):
                raise Died(GARBLED)
            if "submit" not in found:
                self._busy = False
                return found
            self._send(await serve(found))

    def _send(self, message: Mapping[str, Any]) -> None:
        if self.exited.done():
            raise Died(self.how())
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _line(self) -> bytes:
        reading = asyncio.ensure_future(self._reader.readline())
        either: set[asyncio.Future[Any]] = {reading, self.exited}
        try:
            # What the plugin forked may hold the socket open: the exit says more than its end.
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                with contextlib.suppress(OSError):
                    try:
                        if line := reading.result():
                            return line
                    except ValueError:
                        raise Died(f"it has sent more than {LONGEST >> 20} MB at once") from None
                await asyncio.wait({self.exited}, timeout=LEAVING)
            raise Died(self.how())
        finally:
            if not reading.done():
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading

    def how(self) -> str:
        """Return how the process ended, in words."""
        # It is not collected yet: until its whole group has been ended, its number must mean no other.
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return "its process does not answer any more"
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        for output in self._output:
            output.take()
        if code == -signal.SIGXCPU:
            return "its process has used too much of the processor, and was ended"
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        last = self._output[1].last
        return f"its process ended {how}" + (f": {last}" if last else "")

    async def end(self) -> None:
        """End the process and all that it has started. A child that is not in a call may leave by itself."""
        if self._ended:
            return
        self._ended = True
        self._writer.close()
        try:
            if not self._busy:
                await asyncio.wait({self.exited}, timeout=LEAVING)
        finally:
            await on_disk(_kill, self._process, self._mark)
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            if not self.exited.done():
                self.exited.set_result(None)
            for output in self._output:
                output.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


class _Output:
    """One of a child's output pipes, passed on line by line, within bounds."""

    def __init__(self, pipe: IO[bytes], say: Say, errors: bool) -> None:
        self.last = ""
        self._pipe = pipe
        self._say = say
        self._errors = errors
        self._begun = b""
        self._since = time.monotonic()
        self._said = self._left_out = 0
        self._open = True
        os.set_blocking(pipe.fileno(), False)
        asyncio.get_running_loop().add_reader(pipe.fileno(), self.take)

    def take(self) -> None:
        """Take what is there."""
        if not self._open:
            return
        try:
            data = os.read(self._pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if self._said > LINES and data and time.monotonic() - self._since <= WINDOW:
            # Counted and no more: output without end must not keep the daemon busy.
            whole, end, self._begun = (self._begun + data).rpartition(b"\n")
            self._left_out += whole.count(b"\n") + len(end)
            self._begun = self._begun[-LINE:]
            self.last = whole.rpartition(b"\n")[2].decode("utf-8", "replace").rstrip()[:LINE] or self.last
            return
        *lines, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > 4 * LINE or not data:
            lines.append(self._begun)
            self._begun = b""
        for line in lines:
            self._pass_on(line.decode("utf-8", "replace").rstrip())
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._open = False

    def _pass_on(self, line: str) -> None:
        if not line:
            return
        self.last = line[:LINE]
        if time.monotonic() - self._since > WINDOW:
            self._tell_left_out()
        self._said += 1
        if self._said > LINES:
            self._left_out += 1
        else:
            self._say(self.last, self._errors)

    def _tell_left_out(self) -> None:
        if self._left_out:
            self._say(f"[{self._left_out} lines were left out]", self._errors)
        self._since, self._said, self._left_out = time.monotonic(), 0, 0

    def close(self) -> None:
        """Take the rest, at most a pipe's fill, and close."""
        self.take()
        if self._open:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._open = False
        self._pass_on(self._begun.decode("utf-8", "replace").rstrip())
        self._tell_left_out()
        self._pipe.close()


async def on_disk(work: Callable[..., T], *arguments: Any) -> T:
    """Do what blocks in a thread. One who is cancelled waits for its end, so nothing goes on behind his back."""
    doing = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        doing.exception()  # what went wrong is nobody's any more
        raise


def end_abandoned(home: str) -> int:
    """End the processes of runs in this home whose host has died; return how many there were."""

    def abandoned(variables: Mapping[bytes, bytes]) -> bool:
        host = variables.get(MARK.encode(), b"").partition(b"-")[0]
        return host.isdigit() and variables.get(b"GAD_HOME") == os.fsencode(home) and not alive(int(host))

    return _kill_where(abandoned)


def _kill(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a run. Its first process is not collected before the end, so its number means no other."""
    until = time.monotonic() + KILLING
    wanted = mark.encode()
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if not _kill_where(lambda variables: variables.get(MARK.encode()) == wanted) or time.monotonic() > until:
            break
        time.sleep(0.002)
    with contextlib.suppress(subprocess.TimeoutExpired):  # killed, but in a disk wait; Popen collects it later
        process.wait(KILLING)


def _kill_where(meant: Callable[[Mapping[bytes, bytes]], bool]) -> int:
    """Kill every process whose environment is meant, and return how many there were; the dead have none."""
    found = 0
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                pairs = (pair.partition(b"=") for pair in file.read().split(b"\0"))
                if not meant({name: value for name, _, value in pairs}):
                    continue
            os.kill(int(entry), signal.SIGKILL)
        except OSError:
            continue
        found += 1
    return found
