"""The model's process: it ends with its parent, tells what is wrong, and really answers when the weights are there."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gad.core.messages import Text, User
from gad.core.ports import Request
from gad.core.prompt import SYSTEM
from gad.errors import LocalModelError
from gad.providers.local.process import LocalServer, thread_count
from gad.providers.local.provider import LocalProvider
from gad.providers.local.weights import CODER_1_5B, present
from gad.tools.toolset import all_schemas

needs_weights = pytest.mark.skipif(
    present(CODER_1_5B) is None,
    reason=f"THE LOCAL MODEL IS NOT TESTED: no weights in the cache ({CODER_1_5B.file}); fetch them with `make demo`",
)
PARENT = """\
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "gad.providers.local.server"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(60)
"""


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def gone(pid: int) -> bool:
    """Say whether a process is no more, or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def test_the_child_dies_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.send_signal(signal.SIGKILL)
    assert until(lambda: gone(child))


def test_the_child_ends_when_its_input_ends() -> None:
    command = [sys.executable, "-m", "gad.providers.local.server"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, timeout=30, check=False).returncode == 0


def test_what_is_no_model_is_reported_and_leaves_no_process(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\xff" * 1000)

    async def run() -> None:
        server = LocalServer(bad, context=512, threads=1)
        with pytest.raises(LocalModelError, match="did not start"):
            await server.address()
        assert server.pid is None
        await server.close()

    asyncio.run(run())


def test_a_missing_runtime_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.getcwd()]))

    async def run() -> None:
        with pytest.raises(LocalModelError, match=r"pip install 'gad\[local\]'"):
            await LocalServer(tmp_path / "any.gguf").address()

    asyncio.run(run())


def test_at_least_one_thread() -> None:
    assert 1 <= thread_count() <= 8


@needs_weights
@pytest.mark.timeout(600)  # on a busy machine the model reads some ten tokens a second
def test_the_real_model_answers_streams_and_comes_back_after_a_kill() -> None:
    pytest.importorskip("xllamacpp")
    request = Request(SYSTEM, all_schemas(), (User((Text("Say hello in French."),)),))

    async def run() -> None:
        provider = LocalProvider()
        try:
            shown: list[str] = []
            answer = await provider.ask(request, shown.append)
            assert answer.message.text or answer.message.calls
            assert "".join(shown).strip() == answer.message.text
            assert answer.usage.tokens_in > 100
            assert provider.pid is not None
            os.kill(provider.pid, signal.SIGKILL)
            assert await asyncio.to_thread(until, lambda: provider.pid is None)
            again = await provider.ask(request, shown.append)
            assert again.message == answer.message
            pid = provider.pid
        finally:
            await provider.close()
        assert pid is not None
        assert gone(pid)

    asyncio.run(run())
