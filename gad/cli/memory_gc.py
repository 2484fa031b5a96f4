"""gad memory gc: what can be tidied up in memory, and doing it through the store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gad.cli.memory import changes, names
from gad.cli.memory_check import text_of
from gad.core.tidy import UNUSED_DAYS, Line, Merge, Near, duplicates, entries, near, present, unused, without
from gad.memory.store import MemoryStore
from gad.spool.status import timestamp

_SOP_FILES = ("SOP.md", "run.py", "run.sh", "case.yaml")
"""The files of an SOP; SOP.md, by which it is found, is the first to be removed."""
_PROVENANCE = 20
"""Pieces of evidence of merged entries that are carried over, at most."""


@dataclass(frozen=True, slots=True)
class Unused:
    """An SOP to be put away: when it was last used or changed (seconds since the epoch), and where it goes."""

    name: str
    successes: int
    last_used: float
    target: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What gc would do, `merge` and `unused`, and what it leaves to people, `near`."""

    merge: list[Merge]
    near: list[Near]
    unused: list[Unused]


def plan(store: MemoryStore, now: float) -> Plan:
    """Look at memory and say what could be done; `now` is in seconds since the epoch."""
    paths = [f"facts/{name}" for name in names(store.root, "facts", ".md")]
    facts = [line for path in paths for line in entries(path, text_of(store, path) or "")]
    learnt = entries("log.md", text_of(store, "log.md") or "")
    sops = {sop.name: sop for sop in store.sops()}
    last = {
        name: max([_changed(store.root, name), *(float(run.at) for run in sop.runs[-1:])]) for name, sop in sops.items()
    }
    return Plan(
        merge=[*duplicates(facts), *duplicates(learnt)],
        near=[*near(facts), *near(learnt)],
        unused=[
            Unused(name, sops[name].successes, last[name], _target(store, name))
            for name in unused(last, now, UNUSED_DAYS)
        ],
    )


def carry_out(store: MemoryStore, found: Plan) -> None:
    """Do it. What was changed since the plan was made is looked at anew under the lock, and is not lost.

    Raises MemoryLocked, MemoryRefused, OSError; what was done until then holds.
    """
    lines = [line for merge in found.merge for line in (merge.kept, *merge.gone)]
    proofs = _provenance(store, lines) if lines else {}
    for path in sorted({line.path for line in lines}):  # in this order nothing is removed before it stands elsewhere
        merges = [merge for merge in found.merge if path in {line.path for line in (merge.kept, *merge.gone)}]
        known = dict.fromkeys(proof for merge in merges for proof in proofs.get(_key(merge.kept), ()))
        where = sorted({line.path for merge in merges for line in (merge.kept, *merge.gone)} - {path})
        note = f"merged {len(merges)} entries with their doubles in {', '.join(where) or 'the same file'}"
        _merge(store, path, merges, list(known)[:_PROVENANCE], note)
    for sop in found.unused:
        _put_away(store, sop)


def lines_of(found: Plan, *, done: bool) -> Iterator[str]:
    """Yield the plan for people."""
    merged, put = ("merged", "put away") if done else ("would merge", "would put away")
    for merge in found.merge:
        yield f"{merged}: {merge.kept.text}"
        yield from (f"   {word} {_place(line)}" for word, line in _sides(merge))
    for sop in found.unused:
        verified = f", verified by {sop.successes} successes" if sop.successes else ""
        yield f"{put}: sops/{sop.name} (last used {timestamp(sop.last_used)}{verified}) -> {sop.target}"
    for pair in found.near:
        yield f"nearly the same ({pair.ratio:.0%}), yours to decide:"
        yield from (f"   {_place(line)}: {line.text}" for line in (pair.first, pair.second))
    if not (found.merge or found.unused):
        yield "nothing to do"
    elif not done:
        yield "nothing was changed; gad memory gc --yes does it"


def _sides(merge: Merge) -> Iterator[tuple[str, Line]]:
    yield "stays:", merge.kept
    yield from (("goes: ", line) for line in merge.gone)


def _place(line: Line) -> str:
    return f"{line.path}:{line.number} ({line.heading})" if line.heading else f"{line.path}:{line.number}"


def _merge(store: MemoryStore, path: str, merges: Sequence[Merge], evidence: Sequence[str], note: str) -> None:
    def change(content: str | None) -> str | None:
        if content is None:
            return None
        # What stays may have been removed meanwhile, and then its double is all that is left.
        there = [merge for merge in merges if merge.kept.path == path or _stays(store, merge)]
        return without(path, content, there)

    store.commit(path, change, who="user", evidence=evidence, note=note)


def _stays(store: MemoryStore, merge: Merge) -> bool:
    return present(store.read(merge.kept.path), merge.kept)


def _key(line: Line) -> tuple[str, str]:
    return line.heading, line.text


def _provenance(store: MemoryStore, lines: Iterable[Line]) -> Mapping[tuple[str, str], list[str]]:
    """Return the evidence with which entries were written, as far as changes.jsonl tells."""
    wanted: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for line in lines:
        wanted.setdefault((line.path, line.text), []).append(_key(line))
    found: dict[tuple[str, str], list[str]] = {}
    for change in changes(store.root):
        told = "\n".join(line[1:] for line in change.get("what") or () if str(line).startswith("+"))
        for entry in entries(str(change.get("path")), told):
            for key in wanted.get((entry.path, entry.text), ()):
                found.setdefault(key, []).extend(map(str, change.get("evidence") or ()))
    return found


def _changed(root: str, name: str) -> float:
    """Return when a file of an SOP was last changed."""
    times = [0.0]
    for file in _SOP_FILES:
        with contextlib.suppress(FileNotFoundError):
            times.append(os.stat(os.path.join(root, "sops", name, file)).st_mtime)
    return max(times)


def _target(store: MemoryStore, name: str) -> str:
    """Return where an SOP is put away: a directory that holds nothing else than what is there of this SOP."""
    number = 1
    while True:
        target = f"archive/sops/{name}" if number == 1 else f"archive/sops/{name}-{number}"
        kept = {file: store.read(f"{target}/{file}") for file in _SOP_FILES}
        if all(text in (None, store.read(f"sops/{name}/{file}")) for file, text in kept.items()):
            return target
        number += 1


def _put_away(store: MemoryStore, sop: Unused) -> None:
    contents = {file: store.read(f"sops/{sop.name}/{file}") for file in _SOP_FILES}
    there = {file: text for file, text in contents.items() if text is not None}
    note = f"not used since {timestamp(sop.last_used)}; put away in {sop.target}"
    for file, text in there.items():
        _replace(store, f"{sop.target}/{file}", text, note)
    for file, text in there.items():
        if not _remove(store, f"sops/{sop.name}/{file}", text, note):
            return  # it was used or changed meanwhile


def _replace(store: MemoryStore, path: str, text: str, note: str) -> None:
    store.commit(path, lambda before: text, who="user", note=note)


def _remove(store: MemoryStore, path: str, text: str, note: str) -> bool:
    return store.commit(path, lambda before: None if before == text else before, who="user", note=note).changed
