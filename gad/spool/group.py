"""A spool that is a group's: its directory's group and mode, set when the daemon begins."""

from __future__ import annotations

import grp
import os
import stat

from gad.errors import ConfigError


def group_id(group: str) -> int:
    """Return the id of a group that gad.yaml names. Raises ConfigError when there is none."""
    try:
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except KeyError:
        mend = f"make it (groupadd {group}), or name another"
        raise ConfigError(f"gad.yaml: spool.group: there is no group {group!r} on this machine; {mend}") from None


def make_spool(spool: str, group: int | None, mode: int) -> None:
    """Make the spool's directory, or give it to the group. Raises ConfigError when this user may not, OSError."""
    os.makedirs(spool, mode=0o700, exist_ok=True)
    if group is None or _fits(spool, group, mode):
        return
    try:
        if os.stat(spool).st_gid != group:
            os.chown(spool, -1, group)
        os.chmod(spool, mode)
    except PermissionError:
        pass
    if not _fits(spool, group, mode):  # the bit is dropped without a word where the user is not of the group
        raise ConfigError(
            f"gad.yaml: spool.group: this user may not give {spool} to group {group}; as root: "
            f"chgrp {group} {spool} && chmod {mode:o} {spool}"
        )


def loose(spool: str, group: int | None) -> str:
    """Return what is wrong with the mode of a spool, with the command that mends it; an empty text when nothing is."""
    found = os.stat(spool)
    bits = stat.S_IMODE(found.st_mode)
    if bits & 0o007:
        return f"{spool} is open to all users (mode {bits:04o}); chmod o-rwx {spool}"
    if group is None and bits & 0o070:
        return f"{spool} is open to a group that gad.yaml does not name (mode {bits:04o}); chmod 0700 {spool}"
    return ""


def _fits(spool: str, group: int, mode: int) -> bool:
    found = os.stat(spool)
    return found.st_gid == group and stat.S_IMODE(found.st_mode) == mode
