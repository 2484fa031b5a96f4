"""Runs a command in its own session, streams its output, and leaves nothing behind when it is stopped.

A plain `subprocess.Popen` with a pidfd and a pipe in the event loop: no thread a child, and the exit
is known the moment it happens. The child leads a new session, so everything that it starts is found
by the session's number, also what made a process group of its own (as `timeout` and job control do);
only what calls setsid itself, as a daemon does, gets away.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gad.core.redact import Secrets
from gad.tools.capture import Capture

TERM_SECONDS = 2.0
"""How long a process may take to obey TERM before it gets KILL."""

_KILL_SECONDS = 5.0
"""How long the kernel may take to bury what was killed (a process in a disk wait dies late)."""

_DRAIN_SECONDS = 0.05
"""How long the output may still come after the exit, when a child in the background holds the pipe."""

_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended.

    `exit` is the exit code, or minus the signal's number. `output` is stdout and stderr together, cut
    in the middle beyond the limit; `saved` is the file that holds the whole of it, empty for a short one.
    `background` is the session's number (its first process's id) when
    processes that the command started are still alive.
    """

    exit: int
    output: str
    seconds: float
    timed_out: bool
    background: int | None = None
    saved: str = ""


async def run_command(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 - the whole session has to be killed, which asyncio.timeout cannot do
    emit: Callable[[str], None],
    spill_path: str,
    limit: int = 10_000,
    kept: bool = False,
    secrets: Secrets | None = None,
) -> Finished:
    """Run a command to its end and return how it ended.

    `timeout` is in seconds. `limit` is in characters: output beyond it is cut, and output that is cut or beyond
    `KEEP_FROM` is written whole to `spill_path`. `emit` gets the output while it comes. `secrets` are kept out of all
    of it. On time-out and on cancellation the whole session gets TERM, and KILL after 2 s; this coroutine returns when
    it is dead. Processes in the background stay alive after a normal exit. `kept` says that the command's first process
    only keeps watch over the real one, as bubblewrap does: it is no receiver of TERM, and gives a signal's number as
    exit code 128 + number. Raises OSError when the command cannot be started or the output not be kept.
    """
    started = time.monotonic()
    running = _Running(argv, cwd, environment, Capture(limit, spill_path, emit), secrets or Secrets(), kept)
    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout):
                await running.exited
        except TimeoutError:
            timed_out = True
            await running.kill()
        await running.drain()
    except BaseException:
        try:
            await running.kill()
        finally:
            running.abandon()
        raise
    code = running.reap()
    if kept and timed_out and code > 128:
        code = 128 - code
    return Finished(code, running.text(), time.monotonic() - started, timed_out, running.background(), running.saved())


class _Running:
    """One child: its pipe, its pidfd, and the futures that say when it exited and when the output ended."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        capture: Capture,
        secrets: Secrets,
        kept: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept = kept
        self._capture = capture
        self._stream = secrets.stream()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._out, write_end = os.pipe()
        self._open = True
        try:
            os.set_blocking(self._out, False)
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._out)
            raise
        finally:
            os.close(write_end)
        self.pid = self._process.pid
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._out, self._on_output)
        self._pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            try:
                self._pidfd = os.pidfd_open(self.pid)
            except OSError:  # no descriptor left: nobody could wait for this child
                os.killpg(self.pid, signal.SIGKILL)
                self.abandon()
                raise
            self._loop.add_reader(self._pidfd, self._on_exit)
        else:
            self._loop.run_in_executor(None, self._process.wait).add_done_callback(lambda _: self._on_exit())

    def _on_exit(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
        if not self.exited.done():
            self.exited.set_result(None)

    def _on_output(self) -> None:
        try:
            chunk = os.read(self._out, _CHUNK)
            self._take(chunk)
        except BlockingIOError:
            return
        except Exception as trouble:
            # The output cannot be kept (a full disk): stop waiting, so that the caller kills the command.
            self._stop_reading()
            for future in (self.exited, self._ended):
                if not future.done():
                    future.set_exception(trouble)
                    future.exception()  # one of the two may never be awaited
            return
        if not chunk:
            self._stop_reading()
            if not self._ended.done():
                self._ended.set_result(None)

    def _take(self, chunk: bytes) -> None:
        text = self._stream.feed(self._decoder.decode(chunk, final=not chunk))
        self._capture.feed(text if chunk else text + self._stream.rest())

    def _stop_reading(self) -> None:
        if self._open:
            self._loop.remove_reader(self._out)
            os.close(self._out)
            self._open = False

    async def drain(self) -> None:
        """Take what the exited command left in the pipe; wait only shortly for more."""
        if not self._ended.done():
            await asyncio.wait([self._ended], timeout=_DRAIN_SECONDS)
        if self._ended.done():
            self._ended.result()
            return
        self._take(b"")
        # A child in the background would die of SIGPIPE if its output had no reader: read on, into nothing.
        self._loop.remove_reader(self._out)
        self._loop.add_reader(self._out, _discard, self._loop, self._out)
        self._open = False

    async def kill(self) -> None:
        """End everything in the session: TERM, then KILL after 2 s. A cancellation meanwhile is raised at the end."""
        cancelled = False
        sent: set[tuple[int, int]] = set()
        began = time.monotonic()
        delay = 0.001
        told: set[int] = set()
        if not self._kept:
            _signal_groups({self.pid}, signal.SIGTERM, sent)
        while (spent := time.monotonic() - began) < TERM_SECONDS + _KILL_SECONDS:
            groups = _groups(self.pid)
            if not groups:
                break
            late = spent >= TERM_SECONDS
            if late:
                sent.clear()
            elif self._kept:  # what dies with its keeper could not tidy up
                groups.discard(self.pid)
                if not told:  # once, as a group gets it: what tidies up starts processes of its own
                    told = _signal_kept(self.pid)
            _signal_groups(groups, signal.SIGKILL if late else signal.SIGTERM, sent)
            try:
                await asyncio.sleep(delay if late else max(0.0, min(delay, TERM_SECONDS - spent)))
            except asyncio.CancelledError:
                cancelled = True  # the processes have to die first
            delay = min(delay * 2, 0.02)
        if cancelled:
            raise asyncio.CancelledError

    def abandon(self) -> None:
        """Release everything after a kill, whatever the output was."""
        self._stop_reading()
        self.reap()

    def reap(self) -> int:
        """Collect the exit code and close what is ours. The process must have exited or been killed."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self._capture.close()
        try:
            return self._process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:  # killed, but still in a disk wait; Popen collects it later
            return -signal.SIGKILL

    def background(self) -> int | None:
        """Return the session's number when processes of it outlived the reaped leader."""
        try:
            os.killpg(self.pid, 0)  # one system call answers for most commands
        except (ProcessLookupError, PermissionError):
            return None
        return self.pid if _groups(self.pid) else None

    def text(self) -> str:
        """Return the kept output."""
        return self._capture.text()

    def saved(self) -> str:
        """Return the path of the file that holds the whole output, empty when there is none."""
        return self._capture.saved


def _discard(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    try:
        if os.read(descriptor, _CHUNK):
            return
    except BlockingIOError:
        return
    except OSError:
        pass
    loop.remove_reader(descriptor)
    os.close(descriptor)


def _signal_groups(groups: set[int], number: int, sent: set[tuple[int, int]]) -> None:
    for group in groups:
        if (group, number) not in sent:
            sent.add((group, number))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


def _signal_kept(session: int) -> set[int]:
    """Send TERM to the leader's group, the leader left out, and return who is in it."""
    found = {pid for pid, group in _members(session) if group == session != pid}
    for pid in sorted(found):  # a shell before what it waits for: else it could end well before its own turn comes
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    return found


def _groups(session: int) -> set[int]:
    """Return the process groups of a session that still have a living process.

    While a session is killed its leader is not reaped, so its number cannot mean another process.
    Zombies do not count: they are dead, and who inherits them may never collect them.
    """
    if not os.path.isdir("/proc/self"):
        try:
            os.killpg(session, 0)
        except (ProcessLookupError, PermissionError):
            return set()
        return {session}
    return {group for _, group in _members(session)}


def _members(session: int) -> Iterator[tuple[int, int]]:
    """Yield the living processes of a session, each with its group."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.getsid(int(name)) != session:
                continue
            with open(f"/proc/{name}/stat", "rb") as stat:
                state, _, group = stat.read().rpartition(b") ")[2].split()[:3]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            yield int(name), int(group)
