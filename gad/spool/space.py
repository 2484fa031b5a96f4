"""Whether there is room for new work on the spool's disk."""

from __future__ import annotations

import os

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class Space:
    """The disk of a spool; new work begins while it has `least` bytes free, for a user without privileges."""

    def __init__(self, spool: str, least: int) -> None:
        self._spool = spool
        self.least = least

    def short(self) -> str:
        """Return why nothing new may begin, in words for people; an empty text when it may."""
        if not self.least:
            return ""
        try:
            found = os.statvfs(self._spool)
        except OSError:  # what is wrong shows itself with the first write
            return ""
        free = found.f_bavail * found.f_frsize
        if free >= self.least:
            return ""
        least = size(self.least)
        return f"{size(free)} are free on the disk of the spool, and spool.min_free is {least}: free some space"


def size(number: float) -> str:
    """Return a number of bytes for people."""
    unit = max((unit for unit in UNITS if number >= UNITS[unit]), key=lambda unit: UNITS[unit], default="B")
    return f"{number / UNITS[unit]:.4g} {unit}"
