"""Hold the model's output to the text protocol: a GBNF grammar made from the tools' schemas.

The protocol is one action a message, in plain lines and fenced blocks, because small models escape code inside
JSON wrongly::

    file_patch
    path: notes.txt
    old_content:
    ```
    colour: red
    ```
    new_content:
    ```
    colour: blue
    ```

or ``answer`` on a line of its own and then the answer. Parameters come in the schema's order, blocks last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gad.core.ports import ToolSchema

ANSWER = "answer"
READ = "file_read"
PATCH = "file_patch"
EXISTING = {READ: "unread", PATCH: "file"}
"""Tools whose path is one of a file that is there, and the rule for it."""
FENCE = "```"
BLOCKS = frozenset({"content", "code", "old_content", "new_content", "script"})
"""Parameters that hold several lines: they stand in a fenced block of their own."""

_TERMINALS = r"""
line ::= [^\n]+
int ::= "-"? [0-9]{1,9}
bool ::= "true" | "false"
list ::= "[" (string (", " string)*)? "]"
string ::= "\"" ([^"\\\n] | "\\" ["\\/bfnrt])* "\""
text ::= [^\x00]+
body ::= [^`\n] [^\n]* | "`" [^`\n] [^\n]*
block ::= "```\n" (body? "\n")* "```"
"""


def grammar(
    tools: Sequence[ToolSchema], *, answer: bool = True, files: Sequence[str] | None = None, just_read: str = ""
) -> str:
    """Return the GBNF grammar of one action with these tools, and an answer unless there must not be one.

    `files` are the only relative paths that can be read or patched (None: any), `just_read` the one of them that
    is not to be read again at once. An action may end in a line end: the fence and the line end are one token, and
    without that token the model would rather go on with a wrong one.
    """
    rules = [f"call-{index} ::= {_call(tool)}" for index, tool in enumerate(tools)]
    actions = [f"call-{index}" for index in range(len(tools))]
    if answer or not tools:
        actions.insert(0, f'"{ANSWER}\\n" text')
    rules.append(f"file ::= {_paths(files)}")
    rules.append(f"unread ::= {_paths(files and [path for path in files if path != just_read])}")
    return "\n".join([f'root ::= ({" | ".join(actions)}) "\\n"?', *rules]) + _TERMINALS


def _paths(files: Sequence[str] | None) -> str:
    return "line" if files is None else " | ".join([*map(_literal, files), "[/~] line", '"../" line'])


def look_grammar(paths: Sequence[str]) -> str:
    """Return the grammar of one action: reading one of these files."""
    choices = " | ".join(map(_literal, paths))
    return f'root ::= "{READ}\\npath: " ({choices}) "\\n"?'


def offered(tool: ToolSchema) -> list[tuple[str, Mapping[str, Any], bool]]:
    """Return name, schema and whether it is required, of each parameter that the model is offered: blocks last.

    Optional parameters are left out: a small model fills in whatever it may, wrongly. A mode it must choose.
    """
    required = tool.parameters.get("required", ())
    found = [
        (name, schema, name in required or name == "mode")
        for name, schema in tool.parameters.get("properties", {}).items()
    ]
    found = [(name, schema, needed) for name, schema, needed in found if needed]
    return sorted(found, key=lambda parameter: parameter[0] in BLOCKS)


def _call(tool: ToolSchema) -> str:
    pieces = [json.dumps(tool.name)]
    for name, schema, required in offered(tool):
        value = EXISTING.get(tool.name, "line") if name == "path" else _value(schema)
        piece = f'"\\n{name}:\\n" block' if name in BLOCKS else f'"\\n{name}: " {value}'
        pieces.append(piece if required else f"({piece})?")
    return " ".join(pieces)


def _value(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "(" + " | ".join(json.dumps(str(choice)) for choice in schema["enum"]) + ")"
    return {"integer": "int", "number": "int", "boolean": "bool", "array": "list"}.get(schema.get("type", ""), "line")


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
