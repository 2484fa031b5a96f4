"""file_patch: replaces the one place in a file that holds a given text, and not a byte more."""

from __future__ import annotations

import codecs
import difflib
import os
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from gad.core.cut import copied_mark
from gad.core.ports import Outcome, ToolContext, ToolSchema
from gad.tools.confine import check_place
from gad.tools.encodings import Encoding, alternatives
from gad.tools.memory_write import memory_path, write_memory
from gad.tools.textfiles import TextFile, encoding_meta, expand_references, load, perform, replace_file, resolve

_MATCH_LIMIT = 1_000
_COMPARED_LINES = 5_000
"""Lines that are compared with the missing text, at most, to name the nearest."""


class FilePatch:
    """Replaces exactly one match; keeps encoding, line ends, mode and every other byte."""

    schema = ToolSchema(
        "file_patch",
        "Replace old_content, which must occur exactly once, by new_content. "
        "{{file:path:start:end}} in new_content inserts those lines of that file.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "old_content": {"type": "string"},
                "new_content": {"type": "string"},
            },
            "required": ["path", "old_content", "new_content"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Patch the file in one step; no match or several are errors that say where to look."""
        try:
            place = memory_path(arguments["path"], context)
        except (ValueError, OSError) as wrong:  # a link is being changed, say
            return Outcome("error", str(wrong))
        if place is not None and context.memory is not None:
            old = arguments["old_content"].replace("\r\n", "\n")
            return await write_memory(
                context.memory,
                place,
                arguments["new_content"],
                lambda before, new: _replaced(before, old, new),
                context,
            )
        return await perform(lambda: _patch(arguments, context))


def _replaced(before: str | None, old: str, new: str) -> str:
    """Return a memory file's new text. Raises ValueError unless `old` is in it exactly once, as it is now."""
    if before is None:
        raise ValueError("there is no such file in memory; file_write makes it")
    if "\r\n" in before and old not in before:  # an editor has written it so
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    found = before.count(old) if old else 0
    if found != 1:
        raise ValueError(f"old_content occurs {found} times in the file as it is now; read it again")
    return before.replace(old, new)


def _patch(arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
    path = resolve(arguments["path"], context)
    check_place(os.path.realpath(path), context)
    file = load(path, context)
    old = arguments["old_content"].replace("\r\n", "\n")
    if not old:
        return Outcome("error", "old_content is empty; use file_write")
    new = expand_references(arguments["new_content"], context).replace("\r\n", "\n")
    if new == old:
        return Outcome("error", "old_content and new_content are the same")
    file, matches = _find(file, old)
    if refused := copied_mark("new_content", arguments["new_content"], file.text, old):
        return Outcome("error", refused)
    lines = [file.text.count("\n", 0, start) + 1 for start, _ in matches[:20]]
    if not matches:
        return Outcome("error", f"old_content is not in {file.path}{_nearest(file.text, old)}")
    if len(matches) > 1:
        many = f"{len(matches)}{'+' if len(matches) == _MATCH_LIMIT else ''}"
        where = ", ".join(map(str, lines)) + (", ..." if len(matches) > len(lines) else "")
        return Outcome("error", f"old_content occurs {many} times, at lines {where}; add lines around it")
    [(start, end)] = matches
    removed = file.text[start:end]
    newline = ("\r\n" if "\r\n" in removed else "\n") if "\n" in removed else file.newline
    inserted = file.encoding.encode(new.replace("\n", newline))
    first, last = _byte_range(file, start, end)
    replace_file(file.path, file.data[:first] + inserted + file.data[last:], file.info, context)
    height = len(new.rstrip("\n").split("\n")) if new else 0
    now = (
        f"now lines {lines[0]}-{lines[0] + height - 1}"
        if height > 1
        else f"now line {lines[0]}"
        if height
        else "removed"
    )
    return Outcome("ok", f"patched at line {lines[0]}, {now}", encoding_meta(file.encoding))


def _find(file: TextFile, old: str) -> tuple[TextFile, list[tuple[int, int]]]:
    """Return the matches, read in the encoding in which there are any: what is looked for is the best evidence."""
    matches = _matches(file.text, old)
    if not matches and not old.isascii():
        for encoding in alternatives(file.data):
            text = encoding.decode(file.data)
            found = _matches(text, old)
            if found:
                return TextFile(file.path, file.data, encoding, text, file.info), found
    return file, matches


def _matches(text: str, old: str) -> list[tuple[int, int]]:
    """Return where `old` occurs, overlapping places too; its line ends match both kinds."""
    pattern = re.compile(r"(?:\r\n|(?<!\r)\n)".join(map(re.escape, old.split("\n"))))
    found: list[tuple[int, int]] = []
    match = pattern.search(text)
    while match and len(found) < _MATCH_LIMIT:
        found.append(match.span())
        match = pattern.search(text, match.start() + 1)
    return found


def _byte_range(file: TextFile, start: int, end: int) -> tuple[int, int]:
    """Return where the characters from `start` to `end` lie in the file's bytes."""
    skip = len(file.encoding.bom)
    head, tail = file.encoding.encode(file.text[:start]), file.encoding.encode(file.text[end:])
    first, last = skip + len(head), len(file.data) - len(tail)
    if file.data[skip:first] == head and file.data[last:] == tail:
        return first, last
    # Some encodings have two codes for one character: count the characters byte by byte.
    offsets = _offsets(file.data[skip:], file.encoding, {start, end})
    return skip + offsets[start], skip + offsets[end]


def _offsets(data: bytes, encoding: Encoding, wanted: set[int]) -> dict[int, int]:
    decoder = codecs.getincrementaldecoder(encoding.name)("strict" if encoding.exact else "surrogateescape")
    found = {0: 0}
    count = 0
    for index in range(len(data)):
        text = decoder.decode(data[index : index + 1])
        if text:
            count += len(text)
            found.setdefault(count, index + 1)
            if count >= max(wanted):
                break
    if not wanted <= found.keys():
        raise ValueError(f"cannot tell where the text lies in this {encoding.name} file; use code_run")
    return found


def _nearest(text: str, old: str) -> str:
    """Return a hint: where the text begins to differ, or the line that is most like its first."""
    lines = [line.removesuffix("\r") for line in islice(text.split("\n"), _COMPARED_LINES)]
    wanted = old.strip("\n").split("\n")
    best, where = 0, 0
    for index, line in enumerate(lines):
        if line == wanted[0] or (len(wanted) > 1 and line.endswith(wanted[0]) and wanted[0].strip()):
            same = 1
            while same < len(wanted) and index + same < len(lines) and lines[index + same] == wanted[same]:
                same += 1
            if same > best:
                best, where = same, index
    if best and best < len(wanted) and where + best < len(lines):
        differs = where + best
        return (
            f"; from line {where + 1} on it matches until line {differs + 1}, "
            f"which is {_quote(lines[differs])}, not {_quote(wanted[best])}"
        )
    first = next((line for line in wanted if line.strip()), "")
    stripped = first.strip()
    for index, line in enumerate(lines):
        if stripped and line.strip() == stripped and line != first:
            return f"; line {index + 1} differs only in white space: {_quote(line)}"
    scored = difflib.get_close_matches(first, lines, n=1, cutoff=0.6) if stripped and len(first) < 1_000 else []
    if scored:
        return f"; the nearest is line {lines.index(scored[0]) + 1}: {_quote(scored[0])}"
    return "; read it again"


def _quote(line: str) -> str:
    return repr(line if len(line) <= 200 else line[:200] + "...")
