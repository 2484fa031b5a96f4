"""gad memory check: what is wrong in memory, found without changing anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from gad.cli.memory import changes, names
from gad.core import memory_index
from gad.errors import GadError, MemoryRefused
from gad.memory.archive import Archive
from gad.memory.store import MemoryStore


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with which file, and how to mend it."""

    path: str
    what: str
    mend: str


def problems(store: MemoryStore) -> list[Problem]:
    """Return what is wrong; nothing is, where there is no memory yet. Raises MemoryLocked, OSError."""
    if not os.path.isdir(store.root):
        return []
    return [*_changes(store), *_unreadable(store), *_sops(store), *_generated(store), *_archive(store)]


def text_of(store: MemoryStore, path: str) -> str | None:
    """Return a file's text; None also when a link, a directory or what is too large stands in its place."""
    try:
        return store.read(path)
    except (MemoryRefused, OSError):
        return None


def _unreadable(store: MemoryStore) -> Iterator[Problem]:
    for path in ("meta.md", "log.md", *(f"facts/{name}" for name in names(store.root, "facts", ".md"))):
        try:
            store.read(path)
        except (MemoryRefused, OSError) as exc:
            yield Problem(path, str(exc).removeprefix(f"{path} "), "until then it is passed over")


def _changes(store: MemoryStore) -> Iterator[Problem]:
    try:
        told = any(True for _ in changes(store.root))
        strange = store.tampered() if told else []
    except GadError as exc:
        yield Problem("changes.jsonl", str(exc), "mend or remove the line that it names")
        return
    for path in strange:
        yield Problem(
            path,
            "was changed behind gad's back",
            "look at it: the next commit takes it as it is, as by an unknown hand",
        )


def _sops(store: MemoryStore) -> Iterator[Problem]:
    for name, reason in sorted(store.broken().items()):
        what = reason.removeprefix(f"sops/{name}/SOP.md: ")
        yield Problem(f"sops/{name}/SOP.md", what, "mend the front matter; until then agents are not offered it")
    for name in names(store.root, "sops"):
        place = os.path.join(store.root, "sops", name)
        if name != "by" and os.path.isdir(place) and not os.path.lexists(os.path.join(place, "SOP.md")):
            yield Problem(f"sops/{name}", "has no SOP.md, so nothing leads to it", "write one, or remove the directory")


def _generated(store: MemoryStore) -> Iterator[Problem]:
    """Compare the index and the listings with what facts and SOPs give."""
    sops = store.sops()
    paths = [f"facts/{name}" for name in names(store.root, "facts", ".md")]
    texts = {path: text_of(store, path) for path in paths}
    facts = [memory_index.read_facts(path, text) for path, text in texts.items() if text is not None]
    index = text_of(store, "index.md")
    if index is None and not (sops or facts):
        return  # nothing has been written yet
    wanted = {
        "index.md": memory_index.render_index(facts, sops, memory_index.rules_of(index or "")),
        memory_index.LISTING: memory_index.render_listing(sops, store.broken()),
    }
    for category, group in memory_index.by_category(sops).items():
        wanted[memory_index.category_path(category)] = memory_index.render_listing(group)
    left = {f"sops/by/{name}" for name in names(store.root, "sops/by", ".md")} - wanted.keys()
    for path in sorted(wanted.keys() | left):
        if text_of(store, path) != wanted.get(path):
            yield Problem(path, "is not current", "the next commit makes it anew, and so does starting gad up")


def _archive(store: MemoryStore) -> Iterator[Problem]:
    found: list[str] = []
    archive = Archive(store.root, report=found.append)
    gone = [entry.path for entry in archive.entries() if not os.path.isfile(os.path.join(store.root, entry.path))]
    for what in found:
        yield Problem("archive/index.jsonl", what, "remove the line; the journal itself is not harmed by it")
    for path in gone:
        yield Problem(
            path, "has gone, but the index names it", "put it back, or remove its line from archive/index.jsonl"
        )
    for path in archive.unlisted():
        yield Problem(
            path, "is not in the index", "it is added when its session's next round ends, or gad up is started"
        )
