"""Web sites for tests: pages that a test writes down, over real HTTP on loopback, and a loop to meet them in.

Chromium finds every name below `localhost` on loopback and takes `a.localhost` and `b.localhost` for different sites.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Served:
    """What a path answers with. `wait` is set by the test when the answer may go out."""

    body: str | bytes
    status: int = 200
    type: str = "text/html; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    wait: threading.Event | None = None


@dataclass(frozen=True)
class Asked:
    """A request that came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Site:
    """A server on a free port of 127.0.0.1; `pages` maps a path, without its query, to what it answers with.

    A value may also be the page itself, or a function of the request.
    """

    def __init__(self, pages: dict[str, str | Served | Callable[[Asked], Served]] | None = None) -> None:
        self.pages = pages if pages is not None else {}
        self.asked: list[Asked] = []
        site = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                asked = Asked(self.command, self.path, dict(self.headers), self.rfile.read(length))
                site.asked.append(asked)
                found = site.pages.get(self.path.partition("?")[0], Served("not here", 404))
                served = found if isinstance(found, str | Served) else found(asked)
                if isinstance(served, str):
                    served = Served(served)
                if served.wait is not None:
                    served.wait.wait(30)
                body = served.body.encode() if isinstance(served.body, str) else served.body
                self.send_response(served.status)
                for name, value in {"content-type": served.type, **served.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a browser that leaves in the middle of an answer is no news

        self._server = Server(("127.0.0.1", 0), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """Return the address of a path; `host` may be any name below localhost."""
        return f"http://{host}:{self._server.server_port}{path}"

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class Loop:
    """An event loop in a thread, so that tests, which are plain functions, can share a browser that lives in it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        """Run a coroutine to its end in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
