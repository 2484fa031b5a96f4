"""A model server that says what a script tells it to, over real HTTP, in both vendors' wire formats.

In the test's own event loop::

    async with ScriptedServer([Call("file_read", {"path": "a"}), "Done."]) as server:
        ...  # base_url is server.url for Anthropic, server.openai_url for OpenAI
    assert server.requests[0].body["model"] == "m"

For a system under test that runs elsewhere: `serve_in_thread(script)` and `serve_in_process(script, rule=...)`.
By itself: ``python -m tests.scripted_server --port 0 --rule hello --log requests.jsonl`` prints its port first.

A script is a list of entries that are consumed in order (an entry may be a callable that is given the request),
one `Reply` that is repeated for ever, or a rule: a callable for every request. An exhausted list answers 500
"script exhausted", and leaving the context then raises, so no test passes by accident.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.scripted_replies import (
    RULES,
    Call,
    Cut,
    Entry,
    Fail,
    Part,
    Raw,
    Refuse,
    Reply,
    Rule,
    Say,
    Silence,
    StreamError,
    Think,
    as_reply,
    from_json,
    last_text,
    to_json,
)
from tests.scripted_wire import PATHS, Api, fail_body, frames

__all__ = [
    "Call",
    "Cut",
    "Entry",
    "Fail",
    "Part",
    "Raw",
    "Recorded",
    "Refuse",
    "Reply",
    "Say",
    "ScriptedServer",
    "ServerProcess",
    "Silence",
    "StreamError",
    "Think",
    "last_text",
    "serve_in_process",
    "serve_in_thread",
    "to_json",
]

Script = Sequence[Entry | Rule] | Entry | Rule


class Recorded:
    """One request. `at` is time.monotonic and `wall` time.time when its head was there.

    `closed_at` (monotonic) is set when the client went away before the answer was complete, `sent` when
    the whole answer was handed to the socket.
    """

    def __init__(self, api: Api, path: str, headers: Mapping[str, str], raw: bytes, at: float, wall: float) -> None:
        self.api = api
        self.path = path
        self.headers = headers
        self.raw = raw
        self.at = at
        self.wall = wall
        self.closed_at: float | None = None
        self.sent = False

    @cached_property
    def body(self) -> dict[str, Any]:
        """The parsed JSON; parsed on first use, so that benchmarks do not pay for it."""
        found: dict[str, Any] = json.loads(self.raw)
        return found

    @property
    def text(self) -> str:
        """The newest text of a user or a tool result."""
        return last_text(self.body)


class ScriptedServer:
    """See the module's text. `requests` grows as requests arrive; `exhausted` counts those without a script."""

    def __init__(
        self,
        script: Script = (),
        *,
        port: int = 0,
        log: str | None = None,
        models: Sequence[str] = ("scripted",),
        strict: bool = True,
        keep: bool = True,
    ) -> None:
        self._entries: list[Entry | Rule] | None = None
        self._always: Entry | Rule | None = None
        if isinstance(script, list | tuple):
            self._entries = list(script)
        else:
            self._always = script  # type: ignore[assignment]
        self._port = port
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if log else None
        self._numbers = itertools.count(1)
        self._strict = strict
        self._keep = keep
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.models = list(models)
        self.requests: list[Recorded] = []
        self.lookups: list[str] = []
        self.connections = 0
        self.exhausted = 0
        self.port = port

    @property
    def url(self) -> str:
        """The base_url for the Anthropic SDK."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base_url for the OpenAI SDK."""
        return f"{self.url}/v1"

    @property
    def left(self) -> int:
        """How many entries of the script have not been used."""
        return len(self._entries or ())

    def add(self, *entries: Entry | Rule) -> None:
        """Append to the script."""
        assert self._entries is not None, "a rule has no list to append to"
        self._entries.extend(entries)

    async def start(self) -> None:
        """Listen; `port` is known then."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._log is not None:
            os.close(self._log)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise AssertionError when requests came that the script did not foresee."""
        assert not (self._strict and self.exhausted), f"script exhausted: {self.exhausted} requests too many"

    async def until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        """Wait until `condition` holds; TimeoutError after so many seconds."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        try:
            while await self._serve(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; True when the connection can take another."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        at, wall = time.monotonic(), time.time()
        first, *lines = head.rstrip().split("\r\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        path = first.split(" ")[1].partition("?")[0]
        api = next((found for end, found in PATHS.items() if path.endswith(end)), None)
        if api is None:
            self.lookups.append(path)
            return self._look_up(writer, path)
        request = Recorded(api, path, headers, raw, at, wall)
        if self._keep:
            self.requests.append(request)
        self._write_log(request, "request")
        reply = self._next(request)
        if isinstance(reply, Fail):
            return self._send(writer, reply.status, fail_body(api, reply), reply.headers)
        try:
            whole = await self._stream(reader, writer, request, reply)
        except ConnectionError:
            whole = False
            self._went_away(request)
        return whole

    def _next(self, request: Recorded) -> Reply | Fail:
        if self._entries is None:
            assert self._always is not None
            entry = self._always
        elif self._entries:
            entry = self._entries.pop(0)
        else:
            self.exhausted += 1
            self._write_log(request, "exhausted")
            return Fail(500, "script exhausted")
        return as_reply(entry(request.body) if callable(entry) else entry)

    async def _stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Recorded, reply: Reply
    ) -> bool:
        if reply.wait and not await self._quiet(reader, request, reply.wait):
            return False
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        model: str | dict[str, Any] = reply.model or request.body
        held: list[bytes] = []
        for frame in frames(request.api, reply, model, self._numbers):
            if isinstance(frame, bytes):
                held.append(frame)
                if not reply.delay:
                    continue
            self._write_chunks(writer, held, reply.chunk_bytes)
            await writer.drain()
            if isinstance(frame, Cut):
                if frame.clean:
                    writer.write(b"0\r\n\r\n")
                request.sent = True
                return False
            pause = frame.seconds if isinstance(frame, Silence) else reply.delay
            if not await self._quiet(reader, request, pause):
                return False
        self._write_chunks(writer, held, reply.chunk_bytes)
        writer.write(b"0\r\n\r\n")
        request.sent = True
        await writer.drain()
        return True

    @staticmethod
    def _write_chunks(writer: asyncio.StreamWriter, held: list[bytes], size: int | None) -> None:
        # One HTTP chunk is one piece for the client's parser, however TCP groups them.
        body = b"".join(held)
        held.clear()
        step = size or max(1, len(body))
        pieces = (body[start : start + step] for start in range(0, len(body), step))
        writer.write(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces))

    async def _quiet(self, reader: asyncio.StreamReader, request: Recorded, seconds: float | None) -> bool:
        """Wait; False when the client went away meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                gone = not await reader.read(1)
        except TimeoutError:
            return True
        except ConnectionError:
            gone = True
        assert gone, "the client wrote into a running answer"
        self._went_away(request)
        return False

    def _went_away(self, request: Recorded) -> None:
        request.closed_at = time.monotonic()
        self._write_log(request, "closed")

    def _look_up(self, writer: asyncio.StreamWriter, path: str) -> bool:
        if path.endswith("/models"):
            data = [{"id": name, "type": "model", "object": "model"} for name in self.models]
            return self._send(writer, 200, json.dumps({"object": "list", "data": data, "has_more": False}).encode())
        return self._send(writer, 404, fail_body(None, Fail(404, f"no such path: {path}")))

    @staticmethod
    def _send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bool:
        lines = {"content-type": "application/json", "content-length": str(len(body))} | dict(headers or {})
        head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        writer.write(f"HTTP/1.1 {status} Scripted\r\n{head}\r\n".encode("latin-1") + body)
        return True

    def _write_log(self, request: Recorded, event: str) -> None:
        if self._log is None or not self._keep:
            return
        about = {"event": event, "n": self.requests.index(request), "api": request.api, "now": time.time()}
        line = json.dumps(about | {"wall": request.wall, "at": request.at, "headers": request.headers}).encode()
        if event == "request":  # the body is JSON already: spliced in, not parsed
            line = line[:-1] + b', "body": ' + request.raw.replace(b"\n", b" ") + b"}"
        os.write(self._log, line + b"\n")


@contextlib.contextmanager
def serve_in_thread(script: Script = (), **options: Any) -> Iterator[ScriptedServer]:
    """Run a ScriptedServer in a thread with its own loop; its attributes may be read from any thread."""
    server = ScriptedServer(script, **options)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-server", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server
        server.check()
    finally:
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


class ServerProcess:
    """A scripted server in another process: its addresses, and the requests it has logged."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.openai_url = f"{self.url}/v1"
        self._log = log

    def events(self) -> list[dict[str, Any]]:
        """Every log line: event is request, closed or exhausted; `n` numbers the request."""
        text = self._log.read_text("utf-8") if self._log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def requests(self) -> list[dict[str, Any]]:
        """The requests, each with wall, at, api, headers and body."""
        return [event for event in self.events() if event["event"] == "request"]


@contextlib.contextmanager
def serve_in_process(
    script: Script | None = None, *, rule: str | None = None, keep: bool = True
) -> Iterator[ServerProcess]:
    """Run the module as a process; `script` holds no callables, `rule` is a name of RULES or module:function.

    Without `keep`, requests are forgotten when they have been answered, for runs that take hours.
    """
    with tempfile.TemporaryDirectory(prefix="scripted-") as folder:
        log, file = Path(folder, "log.jsonl"), Path(folder, "script.json")
        file.write_text(json.dumps(to_json(script)), "utf-8")
        source = ["--rule", rule] if rule else ["--script", str(file)]
        kept = ["--log", str(log)] if keep else ["--forget"]
        command = [sys.executable, "-m", "tests.scripted_server", "--port", "0", *kept, *source]
        root = Path(__file__).resolve().parent.parent
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        try:
            assert process.stdout is not None
            yield ServerProcess(process, int(process.stdout.readline()), log)
        finally:
            process.terminate()
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()
        assert process.returncode == 0, "the scripted server failed, or its script was exhausted"


def _load_rule(name: str) -> Entry | Rule:
    if name in RULES:
        return RULES[name]
    module, _, function = name.partition(":")
    found: Rule = getattr(importlib.import_module(module), function)
    return found


async def _serve_alone(script: Script, port: int, log: str | None, keep: bool) -> None:
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    async with ScriptedServer(script, port=port, log=log, keep=keep) as server:
        print(server.port, flush=True)
        await done.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.scripted_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", help="append every request to this JSONL file")
    parser.add_argument("--forget", action="store_true", help="do not keep the requests, which takes memory")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--script", help="a JSON file: a list of entries, as to_json writes them")
    source.add_argument("--rule", help=f"one of {', '.join(RULES)}, or module:function")
    chosen = parser.parse_args()
    script: Script
    script = from_json(json.loads(Path(chosen.script).read_text("utf-8"))) if chosen.script else _load_rule(chosen.rule)
    asyncio.run(_serve_alone(script, chosen.port, chosen.log, not chosen.forget))


if __name__ == "__main__":
    main()
