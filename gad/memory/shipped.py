"""Procedures that come with gad: what a new memory begins with. Their owner may change or remove them."""

from __future__ import annotations

import os
from importlib import resources

from gad.memory.store import META, MemoryStore

PROCEDURES = ("sops/web/SOP.md",)


def prepare(store: MemoryStore) -> None:
    """Prepare a store, and put the procedures into it when it is a new one.

    Raises MemoryLocked, MemoryRefused, OSError.
    """
    new = not os.path.lexists(os.path.join(store.root, META))
    store.prepare()
    if new:
        for path in PROCEDURES:
            _put(store, path, resources.files("gad.memory").joinpath(path).read_text("utf-8"))


def _put(store: MemoryStore, path: str, text: str) -> None:
    store.commit(path, lambda before: before or text, who="gad", note="shipped")
