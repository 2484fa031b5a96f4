"""Whose child a session may be, and stopping a session's children: what the spool's files say of families."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import yaml

from gad.core.limits import Left
from gad.core.session import replay
from gad.core.task import TaskOptions
from gad.errors import GadError, InvalidStep, JournalDamaged, Rejected
from gad.spool import drop, names
from gad.spool.files import MACHINE, open_own, open_regular, sync_directory
from gad.spool.intake import survey
from gad.spool.rounds import read_records
from gad.spool.status import read_status

DEPTH = 3
"""A child, its child, and that one's child: no deeper."""
_TASK_BYTES = 1 << 16
"""How much of a task.yaml is looked at that has not been taken in."""


def options_of(directory: str) -> TaskOptions | None:
    """Return the options of a session's present conversation; None while none has begun or it cannot be read."""
    with contextlib.suppress(KeyError, TypeError):
        return TaskOptions.from_json(_begin(directory)["options"])
    return None


def owner_of(directory: str) -> int | None:
    """Return the id of the user that a session's present conversation belongs to; None when that is not known."""
    owner = _begin(directory).get("owner")
    return owner if isinstance(owner, int) else None


def _begin(directory: str) -> dict[str, Any]:
    try:
        with open(open_own(os.path.join(directory, names.JOURNAL), os.O_RDONLY), "rb") as file:
            begin = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return {}
    return begin if isinstance(begin, dict) and begin.get("kind") == "begin" else {}


def named_parent(directory: str) -> str | None:
    """Return the parent that a session names, also one that has not been taken in yet."""
    options = options_of(directory)
    if options is not None:
        return options.sponsor
    task = _handed_in(directory)
    parent = task.get("parent") if "review" not in task else None
    return parent if isinstance(parent, str) and names.valid_session_name(parent) else None


def named_cwd(directory: str) -> str | None:
    """Return the working directory that a session names, also one that has not been taken in yet."""
    options = options_of(directory)
    cwd = options.cwd if options is not None else _handed_in(directory).get("cwd")
    return cwd if isinstance(cwd, str) else None


def _handed_in(directory: str) -> dict[str, Any]:
    """Return what the task.yaml of a session says that has not been taken in."""
    # anybody's words, that nobody has checked yet
    with contextlib.suppress(OSError, RecursionError, ValueError, yaml.YAMLError):
        with open(open_regular(os.path.join(directory, names.TASK), os.O_RDONLY), "rb") as file:
            task = yaml.load(file.read(_TASK_BYTES), yaml.BaseLoader)  # what each value means does not matter here
        if isinstance(task, dict):
            return task
    return {}


def ancestors(spool: str, parent: str | None) -> list[str]:
    """Return a parent and the sessions above it, one more than are allowed at most; also those that have yet to begin.

    Sessions that are handed in at once begin in any order, and in one of those none would have a parent yet.
    """
    found: list[str] = []
    while parent is not None and len(found) <= DEPTH:
        found.append(parent)
        parent = named_parent(os.path.join(spool, parent))
    return found


def parent_options(spool: str, name: str, options: TaskOptions) -> TaskOptions | None:
    """Return the options of the session that a new one is part of, None when it is nobody's child.

    Raises Rejected when it cannot be the child of the one that it names.
    """
    parent = options.sponsor
    if parent is None:
        return None
    if parent == name:
        raise Rejected("task.yaml: parent: a session cannot be its own parent; name another session, or leave it out")
    if not os.path.isdir(os.path.join(spool, parent)):
        raise Rejected(f"task.yaml: parent: there is no session {parent}; name one that is there, or leave it out")
    line = ancestors(spool, parent)
    if name in line:
        raise Rejected(f"task.yaml: parent: {parent} is itself a descendant of {name}; name another session")
    if len(line) > DEPTH:
        raise Rejected(
            f"task.yaml: parent: {parent} is {DEPTH} levels below the session that the work began with, and no session "
            f"may be deeper; let {parent} do the work itself"
        )
    return options_of(os.path.join(spool, parent))


def owner_below(spool: str, options: TaskOptions, user: int, masters: Collection[int]) -> int:
    """Return the id of the user to whom a session belongs that `user` hands in: what an agent makes is its user's.

    `masters` may make a part of anybody's work. Raises Rejected when it cannot be part of its parent's work.
    """
    if options.parent is None:
        return user
    above = owner_of(os.path.join(spool, options.parent))
    if user in masters:
        return user if above is None else above
    if above != user:
        raise Rejected(f"task.yaml: parent: {options.parent} is another user's session; name one of your own")
    return user


def left_of(spool: str, session: str) -> Left:
    """Return what a session's limits still allow, read from its journal; no limits when that cannot be read."""
    try:
        return replay(read_records(os.path.join(spool, session, names.JOURNAL))).allowance.left
    except (OSError, JournalDamaged, InvalidStep):
        return Left()


def stop_waits(directory: str) -> bool:
    """Return whether a stop request lies in a session's directory that has not been taken in."""
    seen = survey(directory)
    return names.STOP in seen.waiting or any(name == names.STOP for _, name in seen.claims)


def stop_children(
    spool: str, parent: str, children: Collection[str], ended: Callable[[str], bool], levels: int = DEPTH
) -> list[str]:
    """Drop a stop.txt for each of these sessions that is part of `parent`'s work and has not ended, and return those.

    Where one has ended, its own children take its place. The requests are on the disk when this returns. Raises OSError
    when the machine does not allow one now.
    """
    stopped = []
    for child in children:
        directory = os.path.join(spool, child)
        options = options_of(directory)
        if options is None or options.sponsor != parent:
            continue
        try:
            if not ended(child):
                drop.stop(Path(directory))
                sync_directory(directory)
                stopped.append(child)
            elif levels:
                stopped += stop_children(spool, child, _children_of(directory), ended, levels - 1)
        except (GadError, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno in MACHINE:
                raise
            # its directory has gone
    return stopped


def descendants(spool: str, session: str, levels: int = DEPTH) -> set[str]:
    """Return the sessions below one, as far as those that have them tell of them."""
    told = _children_of(os.path.join(spool, session)) if levels else []
    below = {child for child in told if named_parent(os.path.join(spool, child)) == session}
    return below.union(*(descendants(spool, child, levels - 1) for child in below))


def _children_of(directory: str) -> list[str]:
    with contextlib.suppress(OSError):
        found = read_status(directory).get("children")
        return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
    return []
