"""What a recurring task costs from round to round: explored, done by its SOP, done by the SOP's script.

    python -m bench rounds

A real daemon, real tools and a real memory; only the model is scripted. The path: round 1 finds out how the task is
done, a review distils an SOP, rounds 2 to 4 follow it, a session writes its script (whose first version the gate
refuses), round 5 runs the script. Then the program that it calls changes: in round 6 the script fails, the agent takes
over and mends it, round 7 runs it again.

The requests are those that the daemon makes; how many there are in rounds 1 to 4 and 6 is the script's choice, as a
model would choose it, so these figures show how the parts work together and not how good a model is.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from bench import context
from bench.measure import Row, Scale, single
from gad.core.sop import Sop
from gad.memory.store import MemoryStore
from tests.scripted_replies import Call
from tests.scripted_server import Recorded, ScriptedServer
from tests.world import World, until

NAME = "stock-report"
PUBLISHED = (("first run", 222), ("later runs, from", 66), ("later runs, to", 36), ("as code", 23))
"""Thousands of tokens that another system's report gives for another task."""

_HELP = """\
usage: stock COMMAND [OPTION] ITEM
  list     print what is in stock of an item; needs --csv, may have --total
  order    order an item
  move     move an item to another store
  help     print the help of a command
The stores are kept in one table; a count is the sum of all stores. Counts are whole numbers. Items are lower case.
"""
_STOCK_1 = f"""\
#!/usr/bin/env bash
case "$1" in
  --help) cat <<'EOF'
{_HELP}EOF
    ;;
  help) echo "usage: stock list --csv [--total] ITEM: prints a header, then the item; --total adds a line total" ;;
  list)
    [ "$2" = --csv ] || {{ echo "stock: list knows no format but --csv, which comes first" >&2; exit 2; }}
    item="${{@: -1}}"; echo item,count; echo "$item,12"
    [ "$3" = --total ] && echo total,12 || true ;;
  *) echo "stock: there is no command $1; see stock --help" >&2; exit 2 ;;
esac
"""
_STOCK_2 = """\
#!/usr/bin/env bash
case "$1" in
  export) item="$2"; { echo item,count; echo "$item,12"; echo total,12; } > "$4" ;;
  *) echo "stock: $1 is gone since version 2; use: stock export ITEM --to FILE" >&2; exit 2 ;;
esac
"""
_SOP = """\
---
name: stock-report
triggers: [stock report, report.csv]
category: sales
---
## Preconditions
`stock` is on the PATH.

## Key steps
1. `stock list --csv --total ITEM > report.csv`

## Pitfalls
- `--csv` comes first; without `--total` the line with the sum is missing.

## Recovery
`stock help list` names the options.
[proof: 8]
"""
_TOO_SIMPLE = 'set -eu\nstock list --csv "$GAD_ARG_ITEM" > report.csv\ncat report.csv\n# [proof: 2]\n'
_SCRIPT_1 = 'set -eu\nstock list --csv --total "$GAD_ARG_ITEM" > report.csv\ncat report.csv\n# [proof: 2]\n'
_SCRIPT_2 = 'set -eu\nstock export "$GAD_ARG_ITEM" --to report.csv\ncat report.csv\n# [proof: 1]\n'


@dataclass(frozen=True, slots=True)
class Round:
    """One session's requests: how many, and the tokens of their bodies together (o200k)."""

    session: str
    what: str
    requests: int
    tokens: int


async def walk(place: Path) -> list[Round]:
    """Walk the whole path in `place`, an empty directory, and return its sessions in order."""
    binaries = place / "bin"
    binaries.mkdir()
    _install(binaries, _STOCK_1)
    path = {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    with patch.dict(os.environ, path):
        async with ScriptedServer() as server:
            world = World(place / "home", server)
            async with world.running():
                return await _Path(world, binaries).walk()


class _Path:
    def __init__(self, world: World, binaries: Path) -> None:
        self.world = world
        self.store = MemoryStore(str(world.home / "memory"))
        self.files = f"{self.store.root}/sops/{NAME}"
        self._binaries = binaries
        self._walked: list[tuple[str, str]] = []

    async def walk(self) -> list[Round]:
        await self._explore()
        for number, item in enumerate(("figs", "dates", "plums"), 2):
            await self._follow(number, item)
        await self._codify()
        await self._script(5, "pears")
        await self._break_and_mend()
        await self._script(7, "grapes")
        return [self._round(session, what) for session, what in self._walked]

    def sop(self) -> Sop:
        found = self.store.sop(NAME)
        assert found is not None, "the review has written no SOP"
        return found

    # -- the steps -------------------------------------------------------------------------------

    async def _explore(self) -> None:
        self.world.server.add(
            ["I look at what is here.", bash("ls -la; command -v stock")],
            ["There is a program stock; I try it.", bash("stock report nuts")],
            ["It has other commands; I read its help.", bash("stock --help")],
            ["list prints the stock.", bash("stock list nuts > report.csv")],
            ["It wants options; I ask for its help.", bash("stock help list")],
            ["--csv has to come first.", bash("stock list --csv nuts > report.csv")],
            ["I look at the result.", Call("file_read", {"path": "report.csv"})],
            "report.csv has the stock of nuts.",
            ["The check wants the total too.", bash("stock list --csv --total nuts > report.csv; cat report.csv")],
            "report.csv has the stock of nuts and the total.",
        )
        review = "review-round-1-1"
        self.world.server.add(
            ["Worth keeping: how the report is made.", Call("file_write", self._text("SOP.md", _SOP))],
            "Kept: the procedure stock-report.",
        )
        await self._run(1, "nuts", "explore", text="Write the stock of nuts to report.csv, as CSV with a header.")
        await self._rests(review, "review: writes the SOP")

    async def _follow(self, number: int, item: str) -> None:
        self.world.server.add(
            ["I follow the procedure.", Call("file_read", {"path": f"{self.files}/SOP.md"})],
            ["Its one step.", bash(f"stock list --csv --total {item} > report.csv; cat report.csv")],
            f"report.csv has the stock of {item} and the total.",
        )
        if number == 4:
            self.world.server.add(
                ["One command, so bash.", Call("file_write", self._text("run.sh", _TOO_SIMPLE))],
                ["The total was missing.", Call("file_write", self._text("run.sh", _SCRIPT_1))],
                "Kept: run.sh.",
            )
        await self._run(number, item, "by the SOP")
        await until(lambda: self.sop().uses == number - 1, why=lambda: f"{self.sop()}")

    async def _codify(self) -> None:
        await self._rests(f"codify-{NAME}-1", "writes the script")
        assert self.sop().stage == "code", self.world.text(f"codify-{NAME}-1", "output.txt")

    async def _script(self, number: int, item: str) -> None:
        uses = self.sop().uses
        await self._run(number, item, "by the script")
        await until(lambda: self.sop().uses == uses + 1, why=lambda: f"{self.sop()}")

    async def _break_and_mend(self) -> None:
        _install(self._binaries, _STOCK_2)
        self.world.server.add(
            ["list is gone; the error names export.", bash("stock export kiwis --to report.csv; cat report.csv")],
            ["It works. I mend the script.", Call("start_long_term_update", {})],
            ["The script with export.", Call("file_write", self._text("run.sh", _SCRIPT_2))],
            [
                "And the procedure.",
                Call(
                    "file_patch",
                    {
                        "path": f"{self.files}/SOP.md",
                        "old_content": "`stock list --csv --total ITEM > report.csv`",
                        "new_content": "`stock export ITEM --to report.csv`\n[proof: 1]",
                    },
                ),
            ],
            "report.csv has the stock of kiwis and the total; the script is mended.",
        )
        uses = self.sop().uses
        await self._run(6, "kiwis", "the script fails, the agent mends it")
        await until(lambda: self.sop().uses == uses + 1, why=lambda: f"{self.sop()}")

    # -- pieces ----------------------------------------------------------------------------------

    def _text(self, file: str, content: str) -> dict[str, str]:
        return {"path": f"{self.files}/{file}", "content": content}

    async def _run(self, number: int, item: str, what: str, *, text: str = "") -> None:
        check = f"grep -q '^{item},[0-9]' report.csv && grep -q '^total,' report.csv"
        self.world.task(f"round-{number}", text or f"task: {NAME} item={item}", check=check)
        await self._rests(f"round-{number}", f"round {number}, {what}")

    async def _rests(self, session: str, what: str) -> None:
        await until(lambda: (self.world.spool / session).is_dir(), why=lambda: f"{session} never began")
        await self.world.rests(session, seconds=30.0)
        self._walked.append((session, what))

    def _round(self, session: str, what: str) -> Round:
        sent = [request for request in self.world.server.requests if session_of(request) == session]
        return Round(session, what, len(sent), sum(context.tokens(request.raw.decode()) for request in sent))


def bash(code: str) -> Call:
    """Return a call that runs bash code."""
    return Call("code_run", {"type": "bash", "code": code})


def session_of(request: Recorded) -> str:
    """Return which session made a request: the first message names its directory."""
    found = re.search(r"cwd [^\]]*/work/([\w.-]+)\]", request.raw.decode())
    return found[1] if found else ""


def _install(binaries: Path, text: str) -> None:
    program = binaries / "stock"
    program.write_text(text)
    program.chmod(0o755)


def rounds(scale: Scale, place: Path) -> list[Row]:
    """The path's requests and prompt tokens, session by session, beside what was published of another system."""
    folder = place / "rounds"
    folder.mkdir()
    return rows_of(asyncio.run(walk(folder)))


def rows_of(walked: Sequence[Round]) -> list[Row]:
    """Return the table's rows."""
    free = [one for one in walked if one.requests == 0]
    rows = [
        single(one.what, "k tokens", one.tokens / 1000, note=f"{one.requests} requests")
        for one in walked
        if one.requests
    ]
    names = ", ".join(one.session for one in free)
    rows.append(single("rounds without any request", "rounds", len(free), 1, at_least=True, note=names))
    return rows + [
        single(f"published of another system, another task: {what}", "k tokens", thousands)
        for what, thousands in PUBLISHED
    ]
