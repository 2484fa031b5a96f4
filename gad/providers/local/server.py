"""The child process that holds the model: llama.cpp's own server, on loopback, gone when its parent is gone.

Run as ``python -m gad.providers.local.server``; the parent's end is `process.py`. Standard input carries one
JSON line of settings and then stays open: its end is the parent's end. Standard output carries one JSON line:
``{"address": ...}`` once the model is loaded, or ``{"error": ...}``. Standard error is llama.cpp's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any

NICE = 5


def serve() -> None:
    """Load the model, announce the address, and stay until standard input ends. Never returns."""
    _die_with_parent()
    settings = json.loads(sys.stdin.readline() or "null")
    if settings is None:
        os._exit(0)
    with contextlib.suppress(OSError):
        os.nice(NICE)  # the daemon that feeds it must stay quick
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # llama.cpp may print; the announcement must stay alone on its pipe
    try:
        server = start(settings)
        said = {"address": server.listening_address}
    except ImportError as error:
        said = {"error": f"xllamacpp cannot be imported: {error}", "missing": True}
    except Exception as error:
        said = {"error": str(error) or type(error).__name__}
    out.write(json.dumps(said) + "\n")
    out.flush()
    if "address" in said:
        while sys.stdin.buffer.read(4096):
            pass
    os._exit(0 if "address" in said else 1)  # llama.cpp's threads are not asked: a running answer is of no use now


def start(settings: dict[str, Any]) -> Any:
    """Return a loaded, listening server. `settings`: model (path), key, context (tokens), threads."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]  # loopback is open to every user of the machine
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.use_jinja = True
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_prompt = True
    params.cache_ram_mib = 512  # sessions take turns in the one slot; their evaluated prompts wait here
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = 1  # errors
    return xllamacpp.Server(params)


def _die_with_parent() -> None:
    """Ask Linux for SIGKILL when the parent dies, even while the model is loading and nobody reads stdin."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(0)


if __name__ == "__main__":
    serve()
