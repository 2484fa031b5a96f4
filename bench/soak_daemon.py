"""What a soak measures of a daemon's process, from outside."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

JUDGED = 30.0
"""Seconds that a daemon must live for its memory to be judged."""


@dataclass
class Generation:
    """One daemon's life: samples of its memory (seconds since it was ready, bytes) and its most descriptors."""

    pid: int
    ready_after: float = 0.0
    since: float = 0.0
    memory: list[tuple[float, int]] = field(default_factory=list)
    descriptors: int = 0

    def growth(self) -> float | None:
        """Return by how many percent its memory has grown; None when it did not live for long enough.

        The first third of its life is left out; of the other two, the medians are compared.
        """
        lived = self.memory[-1][0] if self.memory else 0.0
        if lived < JUDGED:
            return None
        second = [size for at, size in self.memory if lived / 3 <= at < lived * 2 / 3]
        third = [size for at, size in self.memory if at >= lived * 2 / 3]
        return (statistics.median(third) / statistics.median(second) - 1) * 100


def descriptors(pid: int) -> tuple[int, int]:
    """Return how many descriptors a process has: those that are no sockets, and those that are."""
    sockets = others = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            socket = os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            continue
        sockets, others = sockets + socket, others + (not socket)
    return others, sockets


def processes_of(home: Path) -> dict[int, str]:
    """Return the processes that work for a home, by their environment or their command line, with their commands."""
    mark, found = os.fsencode(home), {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if pid != os.getpid() and (b"GAD_HOME=" + mark + b"\0" in environment or mark in command):
            found[pid] = command.replace(bytes(1), b" ").decode(errors="replace")
    return found
