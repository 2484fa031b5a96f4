"""Procedures that come with gad. Each is put into a memory once; its owner may change or remove it like any other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import resources

from gad.memory import changes
from gad.memory.store import META, MemoryStore

PROCEDURES = ("sops/web/SOP.md", "sops/sub-agents/SOP.md")


def prepare(store: MemoryStore) -> None:
    """Prepare a store, and put those procedures into it that it has never held.

    The changes tell what it has held; where they do not go back to its beginning, nothing is put.

    Raises MemoryLocked, MemoryRefused, OSError.
    """
    store.prepare()
    missing = [path for path in PROCEDURES if not os.path.lexists(os.path.join(store.root, path))]
    told = _told(store, (META, *missing)) if missing else set()
    for path in missing:
        if META in told and path not in told:
            _put(store, path, resources.files("gad.memory").joinpath(path).read_text("utf-8"))


def _told(store: MemoryStore, paths: Iterable[str]) -> set[str]:
    """Return which of these files the changes name. A quote inside a line's texts is escaped, so this is exact."""
    marks = {path: f'"path":"{path}"'.encode() for path in paths}
    with open(os.path.join(store.root, changes.FILE), "rb") as file:
        return {path for line in file for path, mark in marks.items() if mark in line}


def _put(store: MemoryStore, path: str, text: str) -> None:
    store.commit(path, lambda before: before or text, who="gad", note="shipped")
