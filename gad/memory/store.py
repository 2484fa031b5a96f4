"""The one path on which anything is written into memory: safe under any number of writers and any crash.

A commit, under the memory lock:

1. reads the file anew and lets the caller's function change it;
2. writes the new content aside, durably;
3. appends its line to changes.jsonl, durably: from here on the change holds;
4. renames what stands aside into its place;
5. makes the index and the listings anew, where they are no longer right.

A crash between 3 and 4 is made good by whoever takes the lock next. Readers take no lock: they see a file as it was or
as it is. What was changed behind this path is found by its digest, told in changes.jsonl, and adopted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gad.core import memory_index as index
from gad.core.gate import check_file, read_sop
from gad.core.sop import Sop, parse_sop
from gad.errors import MemoryRefused
from gad.memory import changes, files
from gad.memory.changes import Changes, digest
from gad.memory.lock import TIMEOUT, MemoryLock

log = logging.getLogger(__name__)

LOCK = ".lock"
META, INDEX, LOG = "meta.md", "index.md", "log.md"
UNKNOWN = "unknown"
"""Who changed a file behind this path."""

_SOP_FILES = ("SOP.md", "run.py", "run.sh", "case.yaml")
_SETTLED = 0.1
"""Seconds after which a file's times tell whether it was changed; younger ones are read anew."""
_STRANGE = "-"
"""Stands for the digest of what is not a regular file that can be read."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit did. `at` is in seconds since the epoch, `waited` the seconds until the lock was free.

    `changed` is False when the file was as wanted already. `adopted` names files that had been changed behind the path.
    """

    path: str
    who: str
    at: float
    changed: bool
    added: int = 0
    removed: int = 0
    evidence: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as it was when it was read last: what tells that it is still the same, and what the index needs of it."""

    stamp: tuple[int, ...] | None
    digest: str
    facts: index.Facts | None = None
    sop: Sop | None = None
    problem: str = ""


class MemoryStore:
    """The memory directory `root`. `timeout` is how many seconds a commit waits for others.

    Methods are synchronous, and may be called from any thread and process. `on_step` is told each step of a commit.
    """

    def __init__(self, root: str, *, timeout: float = TIMEOUT, on_step: Callable[[str], None] | None = None) -> None:
        self.root = os.path.realpath(root)
        self._timeout = timeout
        self._on_step = on_step or (lambda step: None)
        self._changes = Changes(self.root)
        self._seen: dict[str, _Seen] = {}
        self._looking = threading.RLock()  # of this process's threads, for what is kept of the files
        self._always: tuple[tuple[tuple[int, ...] | None, ...], str] | None = None

    def prepare(self) -> None:
        """Make what is absent, finish what a crash left, adopt what was changed, and make the index anew.

        Raises MemoryLocked, MemoryRefused, OSError.
        """
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        os.chmod(self.root, 0o700)
        for parts in (("facts",), ("sops", "by"), ("archive",)):
            with files.directory(self.root, parts, make=True):
                pass
        with self.locked("preparing memory"):
            self._adopt()
            shipped = resources.files("gad.memory").joinpath(META).read_text("utf-8")
            for path, text in ((META, shipped), (LOG, index.EMPTY_LOG)):
                if files.read(self.root, path) is None:
                    self._publish(path, None, text, {"who": "gad", "note": "shipped"})
            self._refresh()
            self._changes.save(now=True)

    @contextlib.contextmanager
    def locked(self, why: str) -> Iterator[float]:
        """Hold the memory lock for the block; gives the seconds it took. `why` is what others are told meanwhile.

        What a crash left half done has been finished then. Raises MemoryLocked, OSError.
        """
        with MemoryLock(os.path.join(self.root, LOCK), why, self._timeout) as lock:
            with self._looking:
                self._changes.catch_up()
                self._finish()
            yield lock.waited

    def commit(
        self,
        path: str,
        change: Callable[[str | None], str | None],
        *,
        who: str,
        evidence: Sequence[str] = (),
        note: str = "",
    ) -> Commit:
        """Change one file of memory; once this returns, the change survives any crash.

        `path` is relative to memory. `change` gets the text as it is now (None: there is no file) and returns what it
        shall be (None: no file); it is called once, under the lock, so it must be quick. What it raises comes through,
        with nothing written. `who` is a session or "user", `evidence` what proves the change.

        Raises MemoryLocked, MemoryRefused for a path or a form that is not allowed, OSError.
        """
        self._check(path)
        with self.locked(f"{who} writing {path}") as waited, self._looking:
            adopted = self._adopt()
            before = self._text(path)
            after = change(before)
            if after and path.endswith((".md", ".py", ".sh")) and not after.endswith("\n"):
                after += "\n"
            told: dict[str, Any] = {}
            if after != before:
                if after is not None:
                    check_file(path, after)
                entry = {"who": who, "evidence": list(evidence)} | ({"note": note} if note else {})
                told = self._publish(path, before, after, entry)
            try:
                self._refresh()
                self._changes.save()
            except (MemoryRefused, OSError) as exc:
                if not told:
                    raise
                # The change holds, so to raise would be a lie; the next commit makes the index anew.
                log.warning("%s is written, but the index could not be made anew: %s", path, exc)
        return Commit(
            path=path,
            who=who,
            at=told.get("at", time.time()),
            changed=after != before,
            added=told.get("added", 0),
            removed=told.get("removed", 0),
            evidence=tuple(evidence),
            adopted=tuple(adopted),
            waited=waited,
        )

    def read(self, path: str) -> str | None:
        """Return a file's text, None when there is none. Raises MemoryRefused for a path that leads elsewhere."""
        return self._text(path)

    def always_on(self) -> str:
        """Return the text that every conversation begins with. Three looks at the disk when nothing has changed."""
        stamps = tuple(_stamp(os.path.join(self.root, path)) for path in (META, INDEX, LOG))
        known = self._always
        if known is not None and known[0] == stamps and all(map(_settled, stamps)):
            return known[1]
        meta, made, log = (self._lenient(path) or "" for path in (META, INDEX, LOG))
        text = index.always_on(self.root, meta, made, log)
        self._always = stamps, text
        return text

    def sops(self) -> list[Sop]:
        """Return all SOPs that can be read, by name."""
        with self._looking:
            self._look()
            return [seen.sop for _, seen in sorted(self._seen.items()) if seen.sop is not None]

    def sop(self, name: str) -> Sop | None:
        """Return one SOP, None when there is none or it cannot be read."""
        try:
            found = parse_sop(self._text(f"sops/{name}/SOP.md") or "")
        except (MemoryRefused, ValueError):
            return None
        return found if found.name == name else None

    def broken(self) -> dict[str, str]:
        """Return the names of the SOPs that cannot be read, and why."""
        with self._looking:
            self._look()
            return self._broken()

    def tampered(self) -> list[str]:
        """Return the files that were changed behind this path since the last commit. Takes the lock for a moment."""
        with self.locked("looking for changes"), self._looking:
            return list(self._strange())

    def _check(self, path: str) -> None:
        """Raise MemoryRefused for what is generated, or the store's own."""
        parts = files.parts_of(path)
        if _is_generated(path):
            raise MemoryRefused(f"{path} is generated; change facts and SOPs, or the rules in {INDEX} with an editor")
        if parts[-1].startswith(".") or path == changes.FILE:
            raise MemoryRefused(f"{path} is not written by commits")

    def _text(self, path: str) -> str | None:
        data = files.read(self.root, path, files.OWN if _is_generated(path) else files.LARGEST)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def _lenient(self, path: str) -> str | None:
        """Return a file's text, None also when something that cannot be read is in its place."""
        try:
            return self._text(path)
        except MemoryRefused:
            return None

    # Under the lock

    def _publish(self, path: str, before: str | None, after: str | None, entry: dict[str, Any]) -> dict[str, Any]:
        """Let a change hold, and return its line in changes.jsonl."""
        lines, added, removed = changes.told(before, after)
        old, new = _encode(path, before), _encode(path, after)
        line = {
            "at": round(time.time(), 3),
            **entry,
            "path": path,
            "what": lines,
            "added": added,
            "removed": removed,
            "before": None if old is None else digest(old),
            "after": None if new is None else digest(new),
        }
        self._on_step("begin")
        files.write_aside(self.root, new or b"")
        if new is not None:  # what could still fail must fail before the change holds
            with files.directory(self.root, files.parts_of(path)[:-1], make=True):
                pass
        self._on_step("aside")
        self._changes.append([line])
        self._on_step("appended")
        self._place(path, removed=new is None)
        self._on_step("placed")
        self._seen.pop(path, None)
        if _is_tracked(path) and (seen := self._see(path, None)) is not None:
            self._seen[path] = seen
        return line

    def _place(self, path: str, *, removed: bool) -> None:
        if removed:
            files.remove(self.root, path)
            files.drop_aside(self.root)
        else:
            files.place_aside(self.root, path)

    def _finish(self) -> None:
        """Finish the commit that a crash interrupted: when its line stands in changes.jsonl, it holds; else it is gone.

        A commit is under way as long as something stands aside.
        """
        aside = files.read(self.root, files.ASIDE, files.OWN)
        if aside is None:
            return
        last = self._changes.last
        if last and last["after"] == digest(aside) and last.get("who") != UNKNOWN:
            self._place(last["path"], removed=False)
        elif last and last["after"] is None and not aside and self._digest(last["path"]) == last.get("before"):
            self._place(last["path"], removed=True)
        else:
            files.drop_aside(self.root)

    def _digest(self, path: str) -> str | None:
        try:
            data = files.read(self.root, path)
        except MemoryRefused:
            return _STRANGE
        return None if data is None else digest(data)

    def _strange(self) -> dict[str, str | None]:
        """Return the files that are not as the changes say, each with its digest; None when it is gone."""
        self._look()
        is_now = {path: seen.digest for path, seen in self._seen.items()}
        should_be = {path: value for path, value in self._changes.digests.items() if _is_tracked(path)}
        paths = sorted(is_now.keys() | should_be.keys())
        return {path: is_now.get(path) for path in paths if is_now.get(path) != should_be.get(path)}

    def _adopt(self) -> list[str]:
        """Take what was changed behind the path as it is, and tell so in changes.jsonl."""
        strange = self._strange()
        if strange:
            at = round(time.time(), 3)
            lines = [
                {
                    "at": at,
                    "who": UNKNOWN,
                    "evidence": [],
                    "path": path,
                    "what": ["removed" if now is None else "changed" if path in self._changes.digests else "added"],
                    "added": 0,
                    "removed": 0,
                    "before": self._changes.digests.get(path),
                    "after": now,
                }
                for path, now in strange.items()
            ]
            self._changes.append(lines)
            self._on_step("adopted")
        return list(strange)

    def _refresh(self) -> None:
        """Make the index and the listings anew, where they differ from what they should be."""
        sops = [seen.sop for seen in self._seen.values() if seen.sop is not None]
        facts = [seen.facts for seen in self._seen.values() if seen.facts is not None]
        rules = index.rules_of(self._lenient(INDEX) or "")
        wanted = {
            index.category_path(category): index.render_listing(group)
            for category, group in index.by_category(sops).items()
        }
        wanted[index.LISTING] = index.render_listing(sops, self._broken())
        wanted[INDEX] = index.render_index(facts, sops, rules)
        for path, text in wanted.items():  # the index last: what it names is there
            if self._lenient(path) != text:
                files.write_aside(self.root, text.encode("utf-8", "surrogateescape"))
                files.place_aside(self.root, path)
                self._on_step("refreshed")
        with contextlib.suppress(FileNotFoundError), files.directory(self.root, ("sops", "by")) as fd:
            for name in os.listdir(fd):
                if f"sops/by/{name}" not in wanted and name.endswith(".md"):
                    os.unlink(name, dir_fd=fd)

    def _broken(self) -> dict[str, str]:
        return {path.split("/")[1]: seen.problem for path, seen in self._seen.items() if seen.problem}

    # What lies there. Needs no lock: a file that is replaced meanwhile is one or the other.

    def _look(self) -> None:
        """Bring `_seen` up to date with what lies in memory: files whose times have not changed are not read."""
        found: dict[str, _Seen] = {}
        for path, stamp in self._tracked():
            known = self._seen.get(path)
            seen = known if known is not None and known.stamp == stamp is not None else self._see(path, stamp)
            if seen is not None:
                found[path] = seen
        self._seen = found

    def _tracked(self) -> Iterator[tuple[str, tuple[int, ...] | None]]:
        """Yield the files that the store answers for, with what tells whether they changed; None: read it."""
        for path in (META, LOG):
            with contextlib.suppress(FileNotFoundError):
                yield path, _stamp(os.path.join(self.root, path))
        with _open(self.root, "facts") as fd:
            for name in os.listdir(fd) if fd is not None else ():
                if name.endswith(".md") and not name.startswith("."):
                    yield f"facts/{name}", _stamp(name, fd)
        with _open(self.root, "sops") as fd:
            if fd is None:
                return
            with os.scandir(fd) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name != "by"]
            for name in names:
                for file in _SOP_FILES:
                    stamp = _stamp(f"{name}/{file}", fd)
                    if stamp is not None:
                        yield f"sops/{name}/{file}", stamp

    def _see(self, path: str, stamp: tuple[int, ...] | None) -> _Seen | None:
        """Read a file; None when it is gone."""
        try:
            data = files.read(self.root, path)
        except (MemoryRefused, OSError) as exc:
            return _Seen(stamp, _STRANGE, problem=str(exc) if path.endswith("/SOP.md") else "")
        if data is None:
            return None
        kept = stamp if _settled(stamp) else None
        seen = _Seen(kept, digest(data))
        if path.startswith("facts/"):
            return _Seen(kept, seen.digest, facts=index.read_facts(path, data.decode("utf-8", "replace")))
        if path.endswith("/SOP.md"):
            try:
                return _Seen(kept, seen.digest, sop=read_sop(path, data.decode("utf-8", "replace")))
            except MemoryRefused as exc:
                return _Seen(kept, seen.digest, problem=str(exc))
        return seen


def _is_generated(path: str) -> bool:
    return path in (INDEX, index.LISTING) or path.startswith("sops/by/")


def _is_tracked(path: str) -> bool:
    parts = path.split("/")
    return (
        path in (META, LOG)
        or (len(parts) == 2 and parts[0] == "facts" and parts[1].endswith(".md"))
        or (len(parts) == 3 and parts[0] == "sops" and parts[2] in _SOP_FILES and parts[1] != "by")
    )


def _stamp(path: str, fd: int | None = None) -> tuple[int, ...] | None:
    """Return what changes when a file changes, the newest of its times last; None when there is no file."""
    try:
        info = os.stat(path, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    newest = max(info.st_mtime_ns, info.st_ctime_ns)
    return info.st_ino, info.st_size, stat.S_IFMT(info.st_mode), info.st_mtime_ns, info.st_ctime_ns, newest


def _settled(stamp: tuple[int, ...] | None) -> bool:
    """Return whether a file's times are old enough to tell whether it has been changed since."""
    return stamp is not None and time.time() - stamp[-1] / 1e9 > _SETTLED


def _encode(path: str, text: str | None) -> bytes | None:
    try:
        data = None if text is None else text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise MemoryRefused(f"{path}: the text holds half a character (a lone surrogate); write whole ones") from None
    if data is not None and len(data) > files.LARGEST:
        raise MemoryRefused(f"{path}: {len(data):,} bytes are too many, {files.LARGEST:,} are the most")
    return data


@contextlib.contextmanager
def _open(root: str, name: str) -> Iterator[int | None]:
    try:
        with files.directory(root, (name,)) as fd:
            yield fd
    except FileNotFoundError:
        yield None
