"""The child: loads one plugin and calls it as the host says. `python -m gad.triggers.child FD`.

Host and child speak JSON lines over the socket FD. The host sends a call; the child may ask for sessions meanwhile,
and answers with what the plugin returned or raised. When the host is gone, so is the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any

from gad.triggers.plugin import Event, Refused, Trigger

_HOOKS = ("check", "on_event", "on_done", "fire")
_PDEATHSIG = 1
_LONGEST_INTERVAL = 366 * 86400
_LONGEST = 1500
"""Characters of an error that are told."""


class _Host:
    """The talk with the host."""

    def __init__(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)  # what the plugin starts has no business with it
        self._file = connection.makefile("rwb")
        self.process = os.getpid()
        self.may_submit = False

    def read(self) -> dict[str, Any]:
        """Return the host's next message. Ends the process when there is none any more."""
        line = self._file.readline()
        if not line:
            raise SystemExit(0)
        found: dict[str, Any] = json.loads(line)
        return found

    def write(self, message: Mapping[str, Any]) -> None:
        """Send a message. A process that the plugin forked has no voice here, and ends."""
        if os.getpid() != self.process:
            os._exit(0)
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()

    def ask(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request in the middle of a call, and return the answer."""
        if not self.may_submit or threading.current_thread() is not threading.main_thread():
            raise Refused("submit is for check, on_event, on_done and fire, in the thread that they are called in")
        self.write(message)
        try:
            return self.read()
        except SystemExit:  # not the plugin's affair, and it could catch it
            os._exit(0)


class _Plugin:
    """The plugin's module, and the object it finds as `trigger`."""

    def __init__(self, begin: Mapping[str, Any], host: _Host) -> None:
        self._host = host
        self.trigger = Trigger(begin["instance"], begin["home"], begin["options"], begin["state"], host.ask)
        self.module = types.ModuleType(f"gad_trigger_{begin['instance'].replace('-', '_')}")
        self.module.__file__ = begin["path"]
        self.module.__dict__["trigger"] = self.trigger
        sys.modules[self.module.__name__] = self.module
        sys.path.insert(0, os.path.dirname(begin["path"]))

    def load(self, source: str) -> None:
        """Import the plugin and call its init."""
        exec(compile(source, str(self.module.__file__), "exec"), self.module.__dict__)
        if callable(init := getattr(self.module, "init", None)):
            init(self.trigger.options)
        if not any(self._hook(name) for name in ("check", "on_event")):
            raise TypeError("it has neither check() nor on_event(event): write one of them")
        self.facts()

    def _hook(self, name: str) -> Callable[..., Any] | None:
        found = getattr(self.module, name, None)
        return found if callable(found) else None

    def call(self, name: str, argument: Any) -> Any:
        """Call a function of the plugin, and return what it wants to hand in: text, a dict, or None."""
        hook = self._hook(name)
        assert hook is not None, name
        arguments = () if argument is None else (Event(**argument),) if name == "on_event" else (argument,)
        self._host.may_submit = True
        try:
            value = hook(*arguments)
        finally:
            self._host.may_submit = False
        return None if name == "on_done" else _checked(name, value)

    def facts(self) -> dict[str, Any]:
        """Return what the plugin says of itself. Raises TypeError when it makes no sense."""
        interval = getattr(self.module, "INTERVAL", 60)
        if isinstance(interval, bool) or not isinstance(interval, int | float) or not 0 < interval <= _LONGEST_INTERVAL:
            raise TypeError(f"INTERVAL is {interval!r:.80}: it must be a number of seconds above 0, a year at most")
        watch = getattr(self.module, "WATCH", ())
        patterns = [watch] if isinstance(watch, str) else list(watch)
        if not all(isinstance(one, str) and one for one in patterns):
            raise TypeError(f"WATCH is {watch!r}: it must be a path or a pattern, or a list of them")
        return {
            "interval": float(interval),
            "once": bool(getattr(self.module, "ONCE", False)),
            "watch": patterns,
            "has": [name for name in _HOOKS if self._hook(name)],
        }


def _checked(name: str, value: Any) -> Any:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        if not isinstance(value.get("key"), str | None):
            raise TypeError(f"{name}() returned the key {value['key']!r}: a key is text")
        json.dumps(value)
        return value
    raise TypeError(f"{name}() returned {value!r:.200}: it may return text, a dict with text under 'text', or None")


def _limit_cpu(seconds: float) -> None:
    """Let the process have so many more seconds of a core, and a little."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _limit_memory(megabytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with_host(host: int) -> None:
    """Let the kernel end this process when the host's ends, also in the middle of a call."""
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:
        prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != host:
        os._exit(0)


def _trace(exc: BaseException, path: str) -> str:
    """Return what was raised, and where in the plugin; all of it goes to the log."""
    traceback.print_exception(exc)
    kept = [frame for frame in traceback.extract_tb(exc.__traceback__) if frame.filename == path]
    what = f"{type(exc).__name__}: {exc}".strip(": ")[:_LONGEST]
    return f"{what} (line {kept[-1].lineno})" if kept else what


def main() -> None:
    """Serve the host until it is gone."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _serve()


def _serve() -> None:
    host = _Host(socket.socket(fileno=int(sys.argv[1])))
    begin = host.read()
    _die_with_host(begin["host"])
    _limit_memory(begin["memory_mb"])
    sys.dont_write_bytecode = True
    plugin = _Plugin(begin, host)
    message = begin
    while True:
        _limit_cpu(message["seconds"])
        plugin.trigger.begin_call(message["now"], message["open"], message["usd_today"])
        answer: dict[str, Any] = {}
        try:
            if message is begin:
                plugin.load(begin["source"])
            else:
                answer["returned"] = plugin.call(message["call"], message["argument"])
            answer |= plugin.facts()
        except BaseException as exc:  # SystemExit too: a plugin that calls sys.exit() has not done its work
            answer["raised"] = _trace(exc, begin["path"])
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # the plugin has closed it
                stream.flush()
        answer["skipped"] = plugin.trigger.skipped
        try:
            host.write(answer | {"state": plugin.trigger.state})
        except (TypeError, ValueError, RecursionError) as exc:
            host.write(answer | {"raised": f"trigger.state is not what JSON can hold: {exc}", "returned": None})
        message = host.read()


if __name__ == "__main__":
    main()
