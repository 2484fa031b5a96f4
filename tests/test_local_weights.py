"""The weights' way into the cache: sources in order, verification, resuming, one process at a time."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gad.errors import LocalModelError
from gad.providers.local import weights
from gad.providers.local.weights import WeightSpec, WheelSource, ensure, present

BODY = b"GGUF" + bytes(range(256)) * 1500
SPEC = WeightSpec("tiny", "tiny.gguf", len(BODY), hashlib.sha256(BODY).hexdigest(), "", None)


class Publisher(ThreadingHTTPServer):
    """Serves `body` with Range; cuts the connection after `cuts[0]` bytes for as long as there are cuts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.body, self.cuts, self.ranges, self.status = BODY, list[int](), list[str](), 200
        self.honours_range = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/tiny.gguf"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Publisher)
        wanted = self.headers.get("Range", "")
        server.ranges.append(wanted)
        start = int(wanted[len("bytes=") : -1]) if wanted and server.honours_range else 0
        data = server.body[start:]
        self.send_response(server.status if server.status != 200 else 206 if start else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if server.status == 200:
            self.wfile.write(data[: server.cuts.pop(0)] if server.cuts else data)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes for the only index."""
    path = tmp_path / "shelf"
    path.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path))
    return path


def put_wheels(shelf: Path, body: bytes, numbers: tuple[int, ...] = (1, 2, 3)) -> WheelSource:
    size = len(body) // 3 + 1
    for number in numbers:
        name = f"tiny_part{number}"
        with zipfile.ZipFile(shelf / f"{name}-0.1.0-py3-none-any.whl", "w") as wheel:
            info = f"{name}-0.1.0.dist-info"
            wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')\n")
            wheel.writestr(f"{name}/data/part{number:02d}.bin", body[(number - 1) * size : number * size])
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 0.1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    return WheelSource("tiny-part", "0.1.0", 3)


def left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


def test_published_file_is_fetched_once_and_reported(publisher: Publisher, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    spec = replace(SPEC, url=publisher.url)
    cache = tmp_path / "cache"
    assert present(spec, cache) is None
    path = ensure(spec, cache=cache, progress=lambda *report: seen.append(report))
    assert path.read_bytes() == BODY
    assert path == present(spec, cache) == ensure(spec, cache=cache)
    assert publisher.ranges == [""]
    assert seen[-1] == ("verifying", len(BODY), len(BODY))
    assert ("downloading", len(BODY), len(BODY)) in seen
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.lock"}


def test_cut_downloads_go_on_where_they_stopped(publisher: Publisher, tmp_path: Path) -> None:
    publisher.cuts = [1000, 500]
    path = ensure(replace(SPEC, url=publisher.url), cache=tmp_path)
    assert path.read_bytes() == BODY
    assert publisher.ranges == ["", "bytes=1000-", "bytes=1500-"]


def test_a_new_run_goes_on_with_the_partial_file(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.part").write_bytes(BODY[:70_000])
    assert ensure(replace(SPEC, url=publisher.url), cache=tmp_path).read_bytes() == BODY
    assert publisher.ranges == ["bytes=70000-"]


def test_a_server_without_ranges_starts_over(publisher: Publisher, tmp_path: Path) -> None:
    publisher.honours_range = False
    (tmp_path / "tiny.gguf.part").write_bytes(b"x" * 100)
    assert ensure(replace(SPEC, url=publisher.url), cache=tmp_path).read_bytes() == BODY


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"", "HTTP 404"),
        (200, BODY[:-1] + b"?", "not the published file"),
        (200, BODY + b"?", "longer than the published one"),
        (200, BODY[:500], "ended early"),
    ],
)
def test_a_bad_publisher_is_named_and_leaves_nothing_usable(
    publisher: Publisher, tmp_path: Path, status: int, body: bytes, reason: str
) -> None:
    publisher.status, publisher.body = status, body
    with pytest.raises(LocalModelError, match=reason) as failure:
        ensure(replace(SPEC, url=publisher.url), cache=tmp_path)
    assert "`weights:`" in str(failure.value)
    assert present(SPEC, tmp_path) is None
    if status == 200 and len(body) >= len(BODY):  # what is wrong is not gone on with
        publisher.body = BODY
        assert ensure(replace(SPEC, url=publisher.url), cache=tmp_path).read_bytes() == BODY


def test_wheels_are_joined_when_the_publisher_is_out_of_reach(shelf: Path, tmp_path: Path) -> None:
    spec = replace(SPEC, url="http://127.0.0.1:9/tiny.gguf", wheels=put_wheels(shelf, BODY))
    cache = tmp_path / "cache"
    assert ensure(spec, cache=cache).read_bytes() == BODY
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.lock"}
    assert "tiny_part1" not in sys.modules


def test_wheels_already_joined_are_not_fetched_again(shelf: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    spec = replace(SPEC, wheels=put_wheels(shelf, BODY, (1, 2)))
    with pytest.raises(LocalModelError, match=r"tiny-part3==0\.1\.0"):
        ensure(spec, cache=cache)
    with open(cache / "tiny.gguf.wheels", "ab") as file:
        file.write(b"half of the third part")  # as a kill in the middle of a copy leaves it
    for wheel in shelf.iterdir():
        wheel.unlink()
    put_wheels(shelf, BODY, (3,))
    assert ensure(spec, cache=cache).read_bytes() == BODY


def test_wheels_with_other_bytes_are_refused(shelf: Path, tmp_path: Path) -> None:
    spec = replace(SPEC, wheels=put_wheels(shelf, BODY[:-1] + b"?"))
    with pytest.raises(LocalModelError, match="not the published file"):
        ensure(spec, cache=tmp_path / "cache")
    assert present(SPEC, tmp_path / "cache") is None


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF another model")
    assert ensure(SPEC, path=str(own)) == own
    own.write_bytes(BODY)
    assert ensure(SPEC, path=str(own)) == own
    own.write_bytes(BODY[:-1] + b"?")
    with pytest.raises(LocalModelError, match="SHA-256"):
        ensure(SPEC, path=str(own))
    assert own.exists()
    own.write_bytes(b"PK not a model")
    with pytest.raises(LocalModelError, match="not a GGUF"):
        ensure(SPEC, path=str(own))
    with pytest.raises(LocalModelError, match="cannot be read"):
        ensure(SPEC, path=str(tmp_path / "missing.gguf"))


def test_a_full_disk_is_said_before_the_download(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MARGIN", 2**62)
    with pytest.raises(LocalModelError, match="GB free"):
        ensure(replace(SPEC, url=publisher.url), cache=tmp_path)
    assert publisher.ranges == []


def test_progress_can_stop_the_work_and_a_later_run_goes_on(publisher: Publisher, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    spec = replace(SPEC, url=publisher.url)
    with pytest.raises(KeyboardInterrupt):
        ensure(spec, cache=tmp_path, progress=stop)
    assert ensure(spec, cache=tmp_path).read_bytes() == BODY


def _fetch(spec: WeightSpec, cache: Path) -> None:
    assert ensure(spec, cache=cache).read_bytes() == BODY


def test_two_processes_fetch_once(publisher: Publisher, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    runs = [spawn.Process(target=_fetch, args=(replace(SPEC, url=publisher.url), tmp_path)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(30)
    assert [run.exitcode for run in runs] == [0, 0]
    assert publisher.ranges == [""]
