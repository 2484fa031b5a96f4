"""What a confined session's file tools may write to: what lies below its working directory and its work directory.

A path is judged where it leads, links and all. The directory is then reached from its root one name at a time without
following any link, and the file is written relative to it: a command in the background that puts a link in the way
meanwhile gains nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from gad.core.ports import ToolContext

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def directory_of(path: str, context: ToolContext, *, make: bool = False) -> Iterator[int]:
    """Open the directory of a file that is to be written, its path without links; `make` makes what is missing of it.

    Raises ValueError when the session may not write there, and OSError.
    """
    directory = os.path.dirname(path)
    if context.confined:
        descriptor = _beneath(_root(path, context), directory, make)
    else:
        if make:
            os.makedirs(directory, exist_ok=True)
        descriptor = os.open(directory, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_place(path: str, context: ToolContext) -> None:
    """Raise ValueError when a session may not write to a path, which holds no links."""
    if context.confined:
        _root(path, context)


def _root(path: str, context: ToolContext) -> str:
    for place in (context.cwd, context.work):
        real = os.path.realpath(place)
        if place == context.cwd != context.work and real != place:
            raise ValueError(f"this session is confined to {place}, which leads to another place by now")
        if path.startswith(real.rstrip(os.sep) + os.sep):
            return real
    places = " and ".join(dict.fromkeys((context.cwd, context.work)))
    raise ValueError(f"this session is confined: it writes below {places} only, not to {path}")


def _beneath(root: str, directory: str, make: bool) -> int:
    descriptor = os.open(root, _DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in os.path.relpath(directory, root).split(os.sep):
            if name == os.curdir:
                continue
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
