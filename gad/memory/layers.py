"""Memory's layers as the controller uses them: one set of entries to search, and two ways to tidy up.

What is searched: SOPs; facts, each line by itself; the records of episodes (episodes/*.md), which the controller
writes when it has learnt how a task ended; and conversations of the archive that took long and were done, by their
lines in archive/index.jsonl. A link is a path of memory that stands in an entry's text. Only SOPs, facts and records
count as active.

Records and plans (plans/*.md) are the controller's own, like its state, and not told of in changes.jsonl. Forgetting
moves failed records to archive/episodes/, in one rename each; `restore` moves them back. Consolidating merges facts by
the rule of `gad.core.tidy`, through commits that carry their evidence on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gad.core.directive import Spot
from gad.core.lessons import EARNED_TURNS
from gad.core.retrieval import EVERYTHING, Entry, LexicalMemory, Retrieved, Support, tokens
from gad.core.sop import Sop, split_front
from gad.core.tidy import Line, Merge, duplicates, entries, present, without
from gad.errors import MemoryRefused
from gad.memory import changes, files
from gad.memory.shipped import PROCEDURES
from gad.memory.store import MemoryStore

FACTS, EPISODES, FORGOTTEN, PLANS = "facts", "episodes", "archive/episodes", "plans"
INDEX = "archive/index.jsonl"
WHO = "controller"
"""Who commits here, in changes.jsonl."""
RECORDS = 200
"""Records of episodes that are active at most; the oldest ones are moved to the archive."""
ARCHIVED = 300
"""The latest lines of the archive's index that are searched."""
SELF_CONTAINED = 6
"""From so many tokens on a fact says by itself what it is about; a shorter one may need its file's title, so it is
not merged with its double in another file: `- port 8080` under `## Ports` of staging.md and of production.md."""
EVIDENCE = 20
"""Pieces of evidence of merged facts that are carried over, at most."""

_LINK = re.compile(r"(?<![\w/.-])(?:sops/[a-z0-9-]+/SOP\.md|facts/[\w-]+\.md)")

_Stamps = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class View:
    """Memory as it was at one moment, as a backend of the controller: what its operations change, it does not show.

    `active` is how many SOPs, facts and records there are.
    """

    layers: Layers
    memory: LexicalMemory
    lines: Mapping[str, Line]
    active: int

    @property
    def supports(self) -> Collection[Support]:
        """All operations."""
        return EVERYTHING

    def retrieve(self, query: str, top_k: int, insight_k: int, hop: int, leave_out: Collection[str]) -> Retrieved:
        """Return what fits the query; see `LexicalMemory.retrieve`."""
        return self.memory.retrieve(query, top_k, insight_k, hop, leave_out)

    def consolidate(self) -> Mapping[str, str]:
        """Merge facts; see `Layers.consolidate`."""
        return self.layers.consolidate()

    def forget(self) -> Sequence[str]:
        """Move the records of failed episodes away; see `Layers.forget`."""
        return self.layers.forget()

    def ids_read(self, path: str, first: int, last: int) -> Iterator[str]:
        """Yield the ids of what stands in lines `first` to `last` of a file of memory."""
        if not path.startswith(f"{FACTS}/"):
            yield path
        for name, line in self.lines.items():
            if line.path == path and first <= line.number <= last:
                yield name

    def spots(self, found: Iterable[Entry]) -> Iterator[Spot]:
        """Yield where the entries stand: of an SOP its body. One that has gone meanwhile is left out."""
        for entry in found:
            if line := self.lines.get(entry.id):
                yield Spot(line.path, tuple(range(line.number, line.number + line.span)))
            elif (text := self.layers.read(entry.id)) is not None:
                yield Spot(
                    entry.id, tuple(range(_body(text) if entry.kind == "sop" else 1, len(text.splitlines()) + 1))
                )


class Layers:
    """The layers of one store. Methods may be called from any thread."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._known: tuple[list[Sop], _Stamps, View] | None = None

    def look(self) -> View:
        """Return memory as it is; what has not changed since the last time is not read again."""
        sops, stamps = self._store.sops(), self._stamps()
        known = self._known
        if known is None or known[:2] != (sops, stamps):
            known = self._known = sops, stamps, self._build(sops)
        return known[2]

    def read(self, path: str) -> str | None:
        """Return a file's text; what is no plain file of memory counts as absent."""
        try:
            return self._store.read(path)
        except MemoryRefused:
            return None

    def consolidate(self) -> Mapping[str, str]:
        """Merge facts that say the same under the same heading; return which went into which, as path:line.

        Headings and files stay, so the index does not change. Raises MemoryLocked, MemoryRefused, OSError.
        """
        facts = [line for path in self._facts() for line in entries(path, self.read(path) or "")]
        merges = [merge for merge in map(_safe, duplicates(facts)) if merge.gone]
        if not merges:
            return {}
        proofs = self._evidence({(line.path, line.text) for merge in merges for line in (merge.kept, *merge.gone)})
        for path in sorted({line.path for merge in merges for line in (merge.kept, *merge.gone)}):
            mine = [merge for merge in merges if path in {line.path for line in (merge.kept, *merge.gone)}]
            told = [f"{merge.kept.path}: {merge.kept.text}" for merge in mine]
            for merge in mine:
                for line in (merge.kept, *merge.gone):
                    told += proofs.get((line.path, line.text), ())
            self._merge(path, mine, list(dict.fromkeys(told))[:EVIDENCE])
        return {_id(line): _id(merge.kept) for merge in merges for line in merge.gone}

    def forget(self) -> Sequence[str]:
        """Move the records of failed episodes to the archive; return their paths. Raises MemoryLocked, OSError."""
        with self._store.locked("forgetting failed episodes"):
            failed = [name for name, text in self._records().items() if _failed(text)]
            self._move(failed, EPISODES, FORGOTTEN)
        return [f"{EPISODES}/{name}" for name in failed]

    def restore(self, names: Iterable[str] | None = None) -> list[str]:
        """Move forgotten records back, all of them by default; return their paths. Unknown names are passed over."""
        with self._store.locked("bringing episodes back"):
            there = self._names(FORGOTTEN)
            wanted = there if names is None else [name for name in there if name in set(names)]
            self._move(wanted, FORGOTTEN, EPISODES)
        return [f"{EPISODES}/{name}" for name in wanted]

    # -- under the lock ----------------------------------------------------------------------------

    def keep(self, path: str, text: str) -> None:
        """Write a record or a plan; the memory lock is held."""
        if self.read(path) != text:
            files.write_aside(self._store.root, text.encode("utf-8", "replace"))
            files.place_aside(self._store.root, path)

    def trim(self) -> None:
        """Move the oldest records to the archive when there are too many; the memory lock is held."""
        names = self._names(EPISODES)
        if len(names) > RECORDS:
            with files.directory(self._store.root, (EPISODES,)) as fd:
                names.sort(key=lambda name: os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime_ns)
            self._move(names[:-RECORDS], EPISODES, FORGOTTEN)

    def _move(self, names: Sequence[str], source: str, target: str) -> None:
        if not names:
            return
        root = self._store.root
        with (
            files.directory(root, files.parts_of(source)) as here,
            files.directory(root, files.parts_of(target), make=True) as there,
        ):
            for name in names:
                os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)
            os.fsync(there)
            os.fsync(here)

    # -- looking -----------------------------------------------------------------------------------

    def _stamps(self) -> _Stamps:
        found = []
        paths = [*self._facts(), *(f"{EPISODES}/{name}" for name in self._names(EPISODES)), INDEX]
        for path in paths:
            try:
                info = os.stat(os.path.join(self._store.root, path), follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append((path, info.st_ino, info.st_size, info.st_mtime_ns))
        return tuple(found)

    def _build(self, sops: Sequence[Sop]) -> View:
        found: list[Entry] = []
        lines: dict[str, Line] = {}
        facts = {path: entries(path, self.read(path) or "") for path in self._facts()}
        for sop in sops:
            if sop.path in PROCEDURES and not sop.uses:
                continue  # it came with gad: nothing here has shown yet that it helps, and tools name it where it does
            text = "\n".join((sop.name, *sop.triggers, sop.category, sop.body))
            found.append(Entry(sop.path, text, _links(sop.body, facts, sop.path), kind="sop"))
        for path, own in facts.items():
            for line in own:
                lines[_id(line)] = line
                found.append(Entry(_id(line), f"{line.heading}: {line.text}", _links(line.text, facts, path)))
        records = self._records()
        for name, text in records.items():
            told = text.rpartition("\nsession: ")[0] or text
            found.append(
                Entry(f"{EPISODES}/{name}", told, _links(told, facts, ""), kind="episode", failed=_failed(text))
            )
        active = len(found)
        known = {text.rpartition("\nsession: ")[2].strip() for text in records.values()}
        for number, session, task in self._archived():
            if session not in known:
                name = f"{INDEX}:{number}"
                lines[name] = Line(INDEX, number, 1, "", task)
                found.append(Entry(name, task, kind="episode"))
        former = self._known[2].memory if self._known else None
        return View(self, LexicalMemory(found, sops_first=True, former=former), lines, active)

    def _archived(self) -> list[tuple[int, str, str]]:
        """Return line number, session and task of the latest long conversations that were done, the newest first.

        The latest line of a path counts, and what cannot be read is passed over: reading the archive is its own
        business.
        """
        try:
            with (
                files.directory(self._store.root, ("archive",)) as fd,
                open(os.open("index.jsonl", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd), "rb") as file,
            ):
                numbered = list(enumerate(file, 1))[-ARCHIVED:]
        except OSError:
            return []
        found: dict[str, tuple[int, str, str] | None] = {}
        for number, line in numbered:
            try:
                item = json.loads(line)
                path, session, task = (str(item[key]) for key in ("path", "session", "task"))
                worth = item["outcome"] == "done" and int(item["turns"]) >= EARNED_TURNS
            except (KeyError, TypeError, ValueError):
                continue
            found.pop(path, None)
            found[path] = (number, session, task) if worth else None
        return [one for one in reversed(found.values()) if one is not None]

    def _facts(self) -> list[str]:
        return [f"{FACTS}/{name}" for name in self._names(FACTS)]

    def _records(self) -> dict[str, str]:
        texts = {name: self.read(f"{EPISODES}/{name}") for name in self._names(EPISODES)}
        return {name: text for name, text in texts.items() if text is not None}

    def _names(self, directory: str) -> list[str]:
        try:
            with files.directory(self._store.root, files.parts_of(directory)) as fd:
                return sorted(name for name in os.listdir(fd) if name.endswith(".md") and not name.startswith("."))
        except FileNotFoundError:
            return []

    # -- consolidating -----------------------------------------------------------------------------

    def _merge(self, path: str, merges: Sequence[Merge], evidence: Sequence[str]) -> None:
        def change(content: str | None) -> str | None:
            if content is None:
                return None
            # What stays may have been removed meanwhile, and then its double is all that is left.
            there = [m for m in merges if m.kept.path == path or present(self.read(m.kept.path), m.kept)]
            return without(path, content, there)

        note = f"merged {len(merges)} facts with their doubles"
        self._store.commit(path, change, who=WHO, evidence=evidence, note=note)

    def _evidence(self, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
        """Return what facts (path and words) were written on, as far as changes.jsonl tells."""
        found: dict[tuple[str, str], list[str]] = {}
        try:
            with open(os.path.join(self._store.root, changes.FILE), "rb") as file:
                for line in file:
                    self._note_evidence(line, wanted, found)
        except FileNotFoundError:
            pass
        return found

    def _note_evidence(
        self, line: bytes, wanted: Collection[tuple[str, str]], found: dict[tuple[str, str], list[str]]
    ) -> None:
        try:
            change = json.loads(line)
            path, what, proofs = str(change["path"]), list(change["what"]), list(change.get("evidence") or ())
        except (KeyError, TypeError, ValueError):
            return
        for told in what:
            text = " ".join(str(told).split()).removeprefix("+- ")
            if (path, text) in wanted:
                found.setdefault((path, text), []).extend(map(str, proofs))


def _safe(merge: Merge) -> Merge:
    """Return a merge without the doubles in other files that may say something else there."""
    gone = tuple(
        line for line in merge.gone if line.path == merge.kept.path or len(tokens(line.text)) >= SELF_CONTAINED
    )
    return replace(merge, gone=gone)


def _links(text: str, facts: Mapping[str, Sequence[Line]], own: str) -> tuple[str, ...]:
    """Return the ids of what a text names by its path; a file of facts stands for its lines."""
    found: dict[str, None] = {}
    for path in _LINK.findall(text):
        if path != own:
            found.update(dict.fromkeys([_id(line) for line in facts[path]] if path in facts else [path]))
    return tuple(found)


def _id(line: Line) -> str:
    return f"{line.path}:{line.number}"


def _body(sop: str) -> int:
    """Return the number of the first line behind an SOP's front matter, which is gad's own bookkeeping."""
    try:
        front, _ = split_front(sop)
    except ValueError:
        return 1
    return len(front) + 3


def _failed(record: str) -> bool:
    return record.partition("\n")[2].startswith("failed")
