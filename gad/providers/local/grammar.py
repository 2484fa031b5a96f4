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


def grammar(tools: Sequence[ToolSchema]) -> str:
    """Return the GBNF grammar of one action with these tools.

    An action may end in a line end: the fence and the line end are one token, and without that token the model
    would rather go on with a wrong one.
    """
    rules = [f"call-{index} ::= {_call(tool)}" for index, tool in enumerate(tools)]
    calls = "".join(f" | call-{index}" for index in range(len(tools)))
    return "\n".join([f'root ::= ("{ANSWER}\\n" text{calls}) "\\n"?', *rules]) + _TERMINALS


def look_grammar(paths: Sequence[str]) -> str:
    """Return the grammar of one action: reading one of these files."""
    choices = " | ".join(json.dumps(path, ensure_ascii=False) for path in paths)
    return f'root ::= "{READ}\\npath: " ({choices}) "\\n"?'


def offered(tool: ToolSchema) -> list[tuple[str, Mapping[str, Any], bool]]:
    """Return name, schema and whether it is required, of each parameter that the model is offered: blocks last.

    Optional parameters are left out: a small model fills in whatever it may, wrongly.
    """
    required = tool.parameters.get("required", ())
    found = [(name, schema, name in required) for name, schema in tool.parameters.get("properties", {}).items()]
    found = [(name, schema, needed) for name, schema, needed in found if needed]
    return sorted(found, key=lambda parameter: parameter[0] in BLOCKS)


def _call(tool: ToolSchema) -> str:
    pieces = [json.dumps(tool.name)]
    for name, schema, required in offered(tool):
        piece = f'"\\n{name}:\\n" block' if name in BLOCKS else f'"\\n{name}: " {_value(schema)}'
        pieces.append(piece if required else f"({piece})?")
    return " ".join(pieces)


def _value(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "(" + " | ".join(json.dumps(str(choice)) for choice in schema["enum"]) + ")"
    return {"integer": "int", "number": "int", "boolean": "bool", "array": "list"}.get(schema.get("type", ""), "line")
