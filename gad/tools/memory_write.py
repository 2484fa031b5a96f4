"""Writes below memory/ go through the memory's own way in, whichever tool makes them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from gad.core.cut import copied_mark
from gad.core.ports import Memory, Outcome, ToolContext
from gad.errors import MemoryLocked, MemoryRefused
from gad.tools.textfiles import expand_references, resolve


def memory_path(path: str, context: ToolContext) -> str | None:
    """Return where a path lies in memory, relative to its root, or None when it lies elsewhere.

    A path that leads into memory through a link counts too; one that lies in memory and leads out of it is for the
    memory itself to refuse. Raises ValueError for what is no path.
    """
    if context.memory is None:
        return None
    root = context.memory.root
    plain = resolve(path, context)
    for place, top in ((plain, root), (os.path.realpath(plain), os.path.realpath(root))):
        if place.startswith(top + os.sep):
            return os.path.relpath(place, top)
    return None


async def write_memory(
    memory: Memory, path: str, added: str, change: Callable[[str | None, str], str], context: ToolContext
) -> Outcome:
    """Write and return the outcome; a refusal is an error that says why and how to mend it.

    References `{{file:...}}` in `added` are replaced first, so what they stand for is judged as well.
    """

    def checked(before: str | None, new: str) -> str:
        if refused := copied_mark("the text", added, before or ""):
            raise ValueError(refused)
        return change(before, new)

    try:
        text = await asyncio.to_thread(expand_references, added, context)
        return Outcome("ok", await memory.write(path, text.replace("\r\n", "\n"), checked))
    except (MemoryRefused, MemoryLocked, ValueError) as refused:
        return Outcome("error", str(refused))
    except OSError as trouble:
        return Outcome("error", f"memory could not be written: {trouble.strerror or trouble}")
