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
    Example(frozenset(), ("What does HTTP status 404 mean?", "answer\nThe server has nothing at that address.")),
    Example(
        frozenset({"file_read", "file_patch"}),
        (
            "In settings.ini, make the timeout 90 seconds.",
            "file_read\npath: settings.ini",
            "[done lines=3]\n1|[network]\n2|timeout = 30\n3|retries = 2",
            "file_patch\npath: settings.ini\nold_content:\n```\ntimeout = 30\n```\nnew_content:\n```\ntimeout = 90\n```",
            "[done path=settings.ini]",
            "answer\nThe timeout in settings.ini is now 90 seconds (it was 30).",
        ),
    ),
    Example(
        frozenset({"code_run", "file_write"}),
        (
            "What is the mean temperature in weather.csv? Put it into mean.txt.",
            "code_run\ntype: bash\ncode:\n```\nhead -n 3 weather.csv\n```",
            "[done exit_code=0]\nday;temp\nmon;11.5\ntue;13.0",
            "code_run\ntype: python\ncode:\n```\nimport csv\n\nrows = csv.DictReader(open('weather.csv'))\n"
            "temps = [float(row['temp']) for row in rows]\nprint(sum(temps) / len(temps))\n```",
            "[error exit_code=1]\nKeyError: 'temp'\nThat failed. Correct the cause and try again.",
            "code_run\ntype: python\ncode:\n```\nimport csv\n\nrows = csv.DictReader(open('weather.csv'), delimiter=';')\n"
            "temps = [float(row['temp']) for row in rows]\nprint(sum(temps) / len(temps))\n```",
            "[done exit_code=0]\n12.25",
            "file_write\npath: mean.txt\nmode: overwrite\ncontent:\n```\n12.25\n```",
            "[done bytes=6]",
            "answer\nThe mean temperature is 12.25; it is in mean.txt.",
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
