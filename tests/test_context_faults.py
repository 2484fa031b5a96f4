"""What the context pipeline must bear: repeated ids, replies of any size, refusals, odd names, damaged files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gad.cli import gad as main
from gad.core.context import LOW, OLD, PART, SAID, Context, Plan, weigh_message
from gad.core.cut import copied_mark
from gad.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User
from gad.core.ports import ToolContext
from gad.core.weights import ALPHA, weigh
from gad.tools.code import CodeRun
from gad.tools.file_read import FileRead
from gad.tools.file_write import FileWrite


def turn(call_id: str, name: str, output: str, **arguments: Any) -> tuple[Message, Message]:
    """One answer with one call, and its result."""
    call = ToolCall(call_id, name, arguments)
    return Assistant((Text("I go on."), call)), User((ToolResult(call_id, "ok", output),))


TASK = User((Text("Do it."),))


# -- ids that come again --------------------------------------------------------------------------
# A provider makes ids unique among the calls that a request shows; those of turns that are gone may come again.


def outputs(view: tuple[Message, ...]) -> list[str]:
    return [part.output for message in view for part in message.parts if isinstance(part, ToolResult)]


def test_a_stale_read_that_is_gone_does_not_replace_another_calls_result() -> None:
    transcript = [TASK, *turn("c0", "file_read", "old", path="a"), *turn("c1", "file_read", "new", path="a")]
    transcript += [*turn("c0", "code_run", "what it printed", code="1"), *turn("c9", "code_run", "more", code="2")]
    view = Context().view(transcript, Plan(compressed=7, evicted=5))
    assert outputs(view) == ["what it printed", "more"]


def test_a_reply_that_is_gone_does_not_replace_another_calls_result() -> None:
    transcript = [TASK, *turn("c0", "ask_user", "blue", question="Which?"), *turn("c1", "code_run", "one", code="1")]
    transcript += [*turn("c0", "code_run", "what it printed", code="1"), *turn("c9", "code_run", "more", code="2")]
    view = Context().view(transcript, Plan(compressed=7, evicted=5, said=1_000.0))
    assert outputs(view) == ["what it printed", "more"]


def test_only_a_persons_reply_counts_as_what_people_said() -> None:
    transcript = [TASK, *turn("c0", "ask_user", "blue", question="Which?"), *turn("c1", "code_run", "one", code="1")]
    transcript += [*turn("c0", "code_run", "what it printed", code="1"), *turn("c9", "code_run", "more", code="2")]
    first = Context().view(transcript, Plan(compressed=7, evicted=7, said=1_000.0))[0]
    assert first.parts[2:] == (Text("[asked: Which?]\nblue"),)


# -- the task of a later round ---------------------------------------------------------------------


def rounds(task: str, turns: int = 20) -> list[Message]:
    """A session whose second round has a task of its own."""
    transcript: list[Message] = [TASK, Assistant((Text("Done."),)), User((Text(task),))]
    for number in range(turns):
        transcript += turn(f"c{number}", "code_run", "word " * 200, code=str(number))
    return transcript


@pytest.mark.parametrize("window", [600, 1_000, 4_000])
def test_a_later_rounds_task_is_never_lost(window: int) -> None:
    transcript = rounds("Now paint it blue, and mind the edges. " * 60)
    context = Context()
    plan = context.plan(transcript, Plan(), limit=ALPHA * window)
    first = context.view(transcript, plan)[0]
    said = [part.text for part in first.parts if isinstance(part, Text)]
    assert said[-1].startswith("Now paint it blue")
    assert weigh(said[-1]) + PART <= plan.said


def test_a_long_later_task_keeps_more_than_old_messages_do() -> None:
    transcript = rounds("Now paint it blue, and mind the edges. " * 1_000)
    context = Context()
    plan = context.plan(transcript, Plan(), limit=ALPHA * 10_000)
    first = context.view(transcript, plan)[0]
    newest = first.parts[-1]
    assert isinstance(newest, Text) and 4 * OLD < weigh(newest.text) <= SAID * ALPHA * 10_000
    assert plan.weight <= LOW * ALPHA * 10_000 + 100


# -- a keyword's match, and long lines -------------------------------------------------------------


def tool_context(place: Path, call_id: str = "c1", limit: int = 10_000) -> ToolContext:
    return ToolContext(
        "s", call_id, str(place), str(place / "work"), lambda text: None, {"PATH": "/usr/bin:/bin"}, limit
    )


def test_a_keywords_match_is_shown_however_long_the_lines_before_it_are(tmp_path: Path) -> None:
    lines = [f"{number} " + "x" * 3_000 for number in range(100)]
    lines[50] = "here is the needle"
    (tmp_path / "long.txt").write_text("\n".join(lines))
    arguments = {"path": "long.txt", "keyword": "needle"}
    found = asyncio.run(FileRead().run(arguments, tool_context(tmp_path, limit=5_000)))
    assert "\n51|here is the needle\n" in found.output and len(found.output) <= 5_000


def test_a_line_that_was_cut_is_not_written_back(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 5_000)
    context = tool_context(tmp_path)
    read = asyncio.run(FileRead().run({"path": "a.txt"}, context))
    shown = read.output.removeprefix("1|")
    refused = asyncio.run(FileWrite().run({"path": "a.txt", "content": shown}, context))
    assert refused.status == "error" and "[+3,720 characters]" in refused.output
    assert (tmp_path / "a.txt").read_text() == "x" * 5_000
    assert not copied_mark("content", shown, shown)


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [("a.b", "a_b"), ("调用", "工具"), ("x" * 80 + "1", "x" * 80 + "2"), ("", "_")])
def test_each_call_has_a_file_of_its_own(tmp_path: Path, ids: tuple[str, str]) -> None:
    saved = []
    for number, call_id in enumerate(ids):
        arguments = {"type": "python", "code": f"print('{number} ' * 2000)"}
        found = asyncio.run(CodeRun().run(arguments, tool_context(tmp_path, call_id)))
        saved.append(found.saved)
    assert [Path(path).read_text()[0] for path in saved] == ["0", "1"]


# -- gad show --------------------------------------------------------------------------------------


def journal(home: Path, *lines: str) -> None:
    place = home / "spool" / "s"
    place.mkdir(parents=True, exist_ok=True)
    (home / "gad.yaml").write_text("")
    (place / "journal.jsonl").write_text("".join(lines))


def lines(text: str = "Do it.") -> list[str]:
    records: list[dict[str, Any]] = [
        {"kind": "begin", "at": 1.0, "v": 1, "session": "s", "preamble": "", "persist": False, "options": {}},
        {"kind": "message", "at": 1.0, "n": 1, "file": "input.txt", "text": text},
        {"kind": "calling", "at": 2.0, "turn": 1, "model": "m", "plan": {}, "prefix": ""},
    ]
    return [json.dumps(record) + "\n" for record in records]


def show(home: Path, *arguments: str) -> Any:
    return CliRunner().invoke(main, ["--home", str(home), "show", *arguments])


@pytest.mark.parametrize("options", [["--context"], ["--context", "--json"], ["--json"], []])
def test_lone_surrogates_are_shown(tmp_path: Path, options: list[str]) -> None:
    journal(tmp_path, *lines("a \ud83d b"))
    result = show(tmp_path, *options, "s")
    assert result.exit_code == 0, result.exception
    if "--json" in options:
        assert "a \ud83d b" in json.dumps(json.loads(result.stdout), ensure_ascii=False)


@pytest.mark.parametrize(
    "broken",
    [
        '{"kind":"calling","at":2.0,"turn":1,"model":"m","plan":{"other":1},"prefix":""}\n',
        '{"kind":"calling","at":2.0,"turn":1,"model":"m","plan":null,"prefix":""}\n',
        '{"kind":"nonsense"}\n',
        '{"kind":"paused","at":1.0}\n{"kind":"paused","at":1.0}\n',
        "not JSON\n",
        "\n",
    ],
)
def test_a_damaged_journal_is_an_error_in_words(tmp_path: Path, broken: str) -> None:
    whole = lines()
    journal(tmp_path, *whole[:2], broken, whole[2])
    result = show(tmp_path, "--context", "s")
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit), result.exception
    assert "line 3" in result.stderr or "line 4" in result.stderr or ":3:" in result.stderr, result.stderr


def test_a_torn_or_empty_journal_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = lines()
    journal(tmp_path, *whole, whole[2][:30])
    assert show(tmp_path, "--context", "s").exit_code == 0
    journal(tmp_path, "")
    assert "nothing has been sent" in show(tmp_path, "--context", "s").stderr
    journal(tmp_path, *whole[:2], whole[2][:30])
    assert "nothing has been sent" in show(tmp_path, "--context", "s").stderr


# -- a refusal that the newest messages alone have caused -------------------------------------------


def test_a_newest_result_that_is_too_much_is_cut_when_the_server_refuses_it() -> None:
    call = ToolCall("c0", "file_read", {"path": "a.txt"})
    told = User((ToolResult("c0", "ok", "中文" * 10_000, {}, "/work/a.txt"), Text("Mind the edges.")))
    transcript: list[Message] = [TASK, Assistant((Text("I read."), call)), told]
    context = Context()
    plan = context.stricter(transcript, context.plan(transcript, Plan(), limit=1e6))
    result, words = context.view(transcript, plan)[-1].parts
    assert isinstance(result, ToolResult) and weigh(result.output) <= OLD and "/work/a.txt" in result.output
    assert words == Text("Mind the edges.")
    assert plan.weight == sum(map(weigh_message, context.view(transcript, plan))) <= plan.ceiling
    # What is said before it is sent again is shown, though the plan is the same.
    grown = [*transcript[:-1], User((*told.parts, Text("And hurry.")))]
    after = context.plan(grown, plan, limit=1e6)
    assert context.view(grown, after)[-1].parts[-1] == Text("And hurry.")
    assert context.view(grown, after) == Context().view(grown, after)


def test_marks_are_looked_for_in_no_time() -> None:
    text = "[... 1 of 2 characters cut; all of it is in x" * 5_000
    began = time.process_time()
    assert not copied_mark("code", text)
    assert time.process_time() - began < 2


def test_a_terminal_gets_no_control_characters(tmp_path: Path) -> None:
    journal(tmp_path, *lines("a\x1b]0;title\x07b"))
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "gad", "--home", str(tmp_path), "show", "--context", "s"]
    try:
        with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # the end of a terminal
                while piece := os.read(ours, 65536):
                    shown += piece
        assert process.returncode == 0
    finally:
        os.close(ours)
    assert b"a]0;titleb" in shown
