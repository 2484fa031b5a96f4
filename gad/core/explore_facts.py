"""Facts that an exploration proposes, put into a file of facts that is there: each below its own heading."""

from __future__ import annotations

from collections.abc import Sequence


def joined(before: str, added: str) -> str:
    """Return a file of facts with the lines that it has not yet, each below the heading that it was proposed under."""
    if not before.strip():
        return added.strip("\n") + "\n"
    blocks = _blocks(before)
    for heading, lines in _blocks(added):
        same = [block for name, block in blocks if name == heading]
        if not same:
            blocks[-1][1][_end(blocks[-1][1]) :] = [""]
            blocks.append((heading, [*lines[: _end(lines)], ""]))
            continue
        known = {line.strip() for block in same for line in block} | {""}
        new = [line for line in lines if line.strip() not in known and not line.startswith("# ")]
        end = _end(same[-1])
        same[-1][end:end] = new if end else [*new, ""] if new else []
    return "\n".join(line for _, block in blocks for line in block)


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """Return a text's lines by the heading that they begin with; those before the first, and the title, have none."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in text.split("\n"):
        if line.startswith("##"):
            found.append((line.strip(), []))
        found[-1][1].append(line)
    return found


def _end(lines: Sequence[str]) -> int:
    """Return where the last line that is not empty ends."""
    return next((number for number in range(len(lines), 0, -1) if lines[number - 1].strip()), 0)
