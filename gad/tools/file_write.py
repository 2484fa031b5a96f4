"""file_write: writes, appends or prepends to a file in one step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gad.core.cut import copied_mark
from gad.core.ports import Outcome, ToolContext, ToolSchema
from gad.tools.confine import check_place
from gad.tools.encodings import UTF8
from gad.tools.memory_write import memory_path, write_memory
from gad.tools.textfiles import (
    EDIT_LIMIT,
    TextFile,
    encoding_meta,
    expand_references,
    load,
    perform,
    replace_file,
    resolve,
)


class FileWrite:
    """Writes a text file; an existing one keeps its encoding, line ends and mode."""

    schema = ToolSchema(
        "file_write",
        "Write a text file, making its directories; for small changes use file_patch. {{file:...}} works as there.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "content": {"type": "string"},
                "mode": {"type": "string", "enum": ["overwrite", "append", "prepend"]},
            },
            "required": ["path", "content"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Write the file; a character that its encoding cannot hold is an error, and nothing is written."""
        try:
            place = memory_path(arguments["path"], context)
        except (ValueError, OSError) as wrong:  # a link is being changed, say
            return Outcome("error", str(wrong))
        if place is not None and context.memory is not None:
            mode, content = arguments.get("mode", "overwrite"), arguments["content"]
            return await write_memory(
                context.memory, place, content, lambda before, new: _joined(place, mode, before, new), context
            )
        return await perform(lambda: _write(arguments, context))


def _joined(path: str, mode: str, before: str | None, new: str) -> str:
    """Return a memory file's new text; what is joined is separated by a line end.

    Raises ValueError when lines of facts or of the log would get lost: others may have written them meanwhile.
    """
    if mode == "overwrite" or not before:
        kept = {line.strip() for line in new.split("\n")}
        lost = [line for line in map(str.strip, (before or "").split("\n")) if line and line not in kept]
        if lost and not path.startswith("sops/"):
            raise ValueError(
                f"{len(lost)} lines of {path} would get lost, such as {lost[-1]!r}; use mode append for more lines, "
                "and file_patch for what is to change or to go"
            )
        return new if new.endswith("\n") else new + "\n"
    first, last = (before, new) if mode == "append" else (new, before)
    return first.removesuffix("\n") + "\n" + last.removesuffix("\n") + "\n"


def _write(arguments: Mapping[str, Any], context: ToolContext) -> Outcome:
    mode = arguments.get("mode", "overwrite")
    path = os.path.realpath(resolve(arguments["path"], context))
    check_place(path, context)
    content = expand_references(arguments["content"], context)
    former = _former(path, mode, context)
    known = former.text if isinstance(former, TextFile) else ""
    if refused := copied_mark("content", arguments["content"], known):
        return Outcome("error", refused)
    encoding, info, kept = UTF8, None, b""
    if former is not None:
        info = former.info if isinstance(former, TextFile) else former
    if isinstance(former, TextFile):
        encoding, kept = former.encoding, former.data
        if "\n" in former.text:
            content = content.replace("\r\n", "\n").replace("\n", former.newline)
    data = encoding.encode(content)
    skip = len(encoding.bom)
    if mode == "append":
        whole = kept + data
    elif mode == "prepend":
        whole = encoding.bom + data + kept[skip:]
    else:
        whole = encoding.bom + data
    replace_file(path, whole, info, context)
    lines = content.count("\n") + (content != "" and not content.endswith("\n"))
    verb = {"overwrite": "wrote", "append": "appended", "prepend": "prepended"}[mode]
    what = "" if info is not None else " to a new file"
    return Outcome("ok", f"{verb} {lines:,} lines, {len(data):,} bytes{what}", encoding_meta(encoding))


def _former(path: str, mode: str, context: ToolContext) -> TextFile | os.stat_result | None:
    """Return the file that is there; one that is not text has nothing to keep when it is overwritten."""
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    if mode == "overwrite" and info.st_size > EDIT_LIMIT:
        return info
    try:
        return load(path, context)
    except ValueError:
        if mode == "overwrite" and os.path.isfile(path):
            return info
        raise
