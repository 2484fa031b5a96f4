"""The worked examples in front of every conversation: how the actions look, and when to go on or to answer.

They are part of the stable prefix. Each is shown only when all tools it uses are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gad.core.messages import Assistant, Message, Text, User
from gad.core.ports import ToolSchema


@dataclass(frozen=True, slots=True)
class Example:
    """A short conversation: the user's words or a result, and the model's action, in turns."""

    tools: frozenset[str]
    turns: tuple[str, ...]


EXAMPLES = (
    Example(
        frozenset(),
        ("What does HTTP status 404 mean?", "answer\nThe server has nothing at that address."),
    ),
    Example(
        frozenset({"file_read"}),
        (
            "Under which licence is this project? See README.md.",
            "file_read\npath: README.md",
            "[done]\n1|# Boats\n2|A list of boats.\n3|Licence: MIT",
            "answer\nThe project is under the MIT licence.",
        ),
    ),
    Example(
        frozenset({"file_read", "file_patch"}),
        (
            "In settings.ini, make the timeout 90 seconds.",
            "file_read\npath: settings.ini",
            "[done]\n1|[network]\n2|timeout = 30\n3|retries = 2",
            "file_patch\npath: settings.ini\n"
            "old_content:\n```\ntimeout = 30\n```\nnew_content:\n```\ntimeout = 90\n```",
            "[done]",
            "answer\nThe timeout in settings.ini is now 90 seconds.",
        ),
    ),
    Example(
        frozenset({"file_read", "code_run"}),
        (
            "How many hours did Tom work? See hours.txt.",
            "file_read\npath: hours.txt",
            "[done]\n1|day name hours\n2|mon Tom 4\n3|mon Ann 6\n4|tue Tom 5",
            "code_run\ntype: python\ncode:\n```\nlines = open('hours.txt').read().splitlines()\n"
            "hours = [int(line.split()[2]) for line in lines[1:] if line.split()[1] == 'Tom']\nprint(sum(hours))\n```",
            "[done]\n9",
            "answer\nTom worked 9 hours.",
        ),
    ),
    Example(
        frozenset({"code_run"}),
        (
            "Which file in the directory logs is the largest?",
            "code_run\ntype: bash\ncode:\n```\nls -S logs | head -n 1\n```",
            "[done]\nserver-2.log",
            "answer\nThe largest file is server-2.log.",
        ),
    ),
    Example(
        frozenset({"code_run"}),
        (
            "Move notes.txt into the directory backup.",
            "code_run\ntype: bash\ncode:\n```\nmv notes.txt backup/\n```",
            "[error]\nmv: cannot move 'notes.txt' to 'backup/': Not a directory\n"
            "That failed. Correct the cause and try again.",
            "code_run\ntype: bash\ncode:\n```\nmkdir -p backup && mv notes.txt backup/\n```",
            "[done]",
            "answer\nnotes.txt is now in backup, which I had to make.",
        ),
    ),
)


def example_messages(tools: Sequence[ToolSchema]) -> list[Message]:
    """Return the examples that these tools allow, as turns of the conversation."""
    names = {tool.name for tool in tools}
    messages: list[Message] = []
    for example in EXAMPLES:
        if example.tools <= names:
            for index, text in enumerate(example.turns):
                messages.append(Assistant((Text(text),)) if index % 2 else User((Text(text),)))
    return messages
