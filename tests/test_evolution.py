"""Procedures evolve: uses are counted, cases recorded, scripts asked for once, let in by proof, and sent back."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.cli.compose import run_check
from gad.core.gate import check_write
from gad.core.messages import Assistant, Text, ToolCall, ToolResult, Usage
from gad.core.records import (
    Answered,
    Begin,
    Calling,
    Checked,
    Checking,
    Ended,
    Judged,
    Record,
    Said,
    ScriptRan,
    ScriptStarted,
    ToolFinished,
    ToolStarted,
)
from gad.core.session import Session, replay
from gad.core.sop import Sop, parse_sop, render_sop
from gad.core.task import TaskOptions
from gad.errors import MemoryRefused
from gad.memory.door import SessionMemory
from gad.memory.evolution import Evolution, guided_by, use_of
from gad.memory.scripts import FAILED, Case, ScriptGate, ScriptRunner, read_case, script_command
from gad.memory.store import Commit, MemoryStore

CHECK = "test -s report.csv"
GOOD = "import os, sys\nopen('report.csv', 'w').write(os.environ['GAD_ARG_ITEM'] + sys.argv[1])\nprint('made')\n"
BODY = "## Key steps\nRun `stock`.\n"


class Memory:
    """A memory with one SOP, what is learnt from sessions, and what was dropped."""

    def __init__(self, root: Path, **sop: Any) -> None:
        self.store = MemoryStore(str(root))
        self.store.prepare()
        self.put("SOP.md", render_sop(Sop("report", ("monthly report",), "sales", body=BODY, **sop)))
        self.dropped: dict[str, tuple[dict[str, Any], str]] = {}
        self.asked = 0
        self.evolution = Evolution(self.store, drop=self.drop)

    def put(self, file: str, text: str) -> None:
        self.store.commit(f"sops/report/{file}", lambda before: text, who="user")

    def drop(self, name: str, task: str, text: str) -> None:
        self.asked += 1
        self.dropped.setdefault(name, (yaml.safe_load(task), text))

    @property
    def sop(self) -> Sop:
        found = self.store.sop("report")
        assert found is not None
        return found

    def used(self, name: str, success: bool | None = True, **how: Any) -> Session:
        session = guided(self.store.root, name, **how)
        self.evolution.ended(session, success)
        return session

    def text(self, file: str) -> str | None:
        return self.store.read(f"sops/report/{file}")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "memory")


def turn(number: int, *calls: tuple[str, dict[str, Any], str], said: str = "") -> list[Record]:
    made = tuple(ToolCall(f"c{number}-{n}", name, arguments) for n, (name, arguments, _) in enumerate(calls))
    parts = (*((Text(said),) if said else ()), *made)
    found: list[Record] = [
        Calling(100.0 + number, number, "m"),
        Answered(100.0 + number, number, Assistant(parts), "tools" if calls else "end", "m", Usage(1000, 10), 0.1),
    ]
    for call, (name, _, status) in zip(made, calls, strict=True):
        found.append(ToolStarted(100.0 + number, call.id, name))
        found.append(ToolFinished(100.0 + number, ToolResult(call.id, status, "out")))  # type: ignore[arg-type]
    return found


def guided(
    root: str,
    name: str = "s1",
    *,
    text: str = "make the monthly report",
    reads: str | None = "report",
    calls: tuple[str, ...] = ("ok",),
    writes: str = "",
    check: str | None = CHECK,
    began: float = 90.0,
    script: int | None = None,
    state: str = "done",
    rest: tuple[Record, ...] = (),
    **options: Any,
) -> Session:
    """Return a session that read an SOP, made calls that ended so, and was checked."""
    records: list[Record] = [
        Begin(
            began, name, TaskOptions(check=check, **options), preamble="[Monday; Linux; cwd /x]", memory="Memory: /m"
        ),
        Said(began, 1, "input.txt", text),
    ]
    if script is not None:
        output = "made" if script == 0 else f"{FAILED}report gave exit code {script}]"
        records += [ScriptStarted(99.0, "report"), ScriptRan(99.5, script, output)]
    if script != 0:
        if reads:
            records += turn(1, ("file_read", {"path": f"{root}/sops/{reads}/SOP.md"}, "ok"))
        for number, status in enumerate(calls, 2):
            records += turn(number, ("code_run", {"type": "bash", "code": f"echo {number}"}, status))
        if writes:
            records += turn(50, ("file_write", {"path": f"{root}/{writes}"}, "ok"))
        records += turn(99, said="done")
    if check:
        passed = state == "done"
        records += [Checking(200.0), Checked(201.0, 0 if passed else 1, "")]
    records += [*rest, Ended(300.0, state)]  # type: ignore[arg-type]
    return replay(records)


# -- whom a session followed ---------------------------------------------------------------------------


def test_a_session_follows_the_sop_that_its_task_names(memory: Memory) -> None:
    root = memory.store.root
    assert guided_by(guided(root, text="task: tidy day=5\nplease", reads=None), root) == "tidy"
    assert guided_by(guided(root, text="a=1", sop="tidy", reads="report"), root) == "tidy"
    found = use_of(guided(root, text="task: tidy day=5 who=me", reads=None), root)
    assert found is not None and found.arguments == ("day=5", "who=me")


def test_else_the_one_that_it_read_last(memory: Memory) -> None:
    root = memory.store.root
    assert guided_by(guided(root), root) == "report"
    assert guided_by(guided(root, reads=None), root) is None
    assert guided_by(guided(root, cwd=os.path.dirname(root), reads=None, rest=()), root) is None
    failed = [*turn(1, ("file_read", {"path": f"{root}/sops/a/SOP.md"}, "ok"))]
    failed += turn(2, ("file_read", {"path": f"{root}/sops/b/SOP.md"}, "error"))
    failed += turn(3, ("file_read", {"path": "sops/../sops/c/SOP.md"}, "ok"))
    failed += turn(4, ("file_write", {"path": f"{root}/sops/d/SOP.md"}, "ok"))
    session = replay([Begin(1.0, "s", TaskOptions(cwd="/")), Said(1.0, 1, "input.txt", "x"), *failed])
    assert guided_by(session, root) == "a"


def test_a_review_follows_none(memory: Memory) -> None:
    assert guided_by(guided(memory.store.root, review="other"), memory.store.root) is None


# -- counting --------------------------------------------------------------------------------------------


def test_each_use_is_counted_with_its_tokens(memory: Memory) -> None:
    memory.used("s1")
    memory.used("s2", success=False, state="failed")
    sop = memory.sop
    assert (sop.uses, sop.successes, sop.failures, sop.streak) == (2, 1, 1, 0)
    assert [(run.at, run.tokens, run.ok) for run in sop.runs] == [(300, 3030, True), (300, 3030, False)]
    lines = [json.loads(line) for line in Path(memory.store.root, "changes.jsonl").read_text().splitlines()]
    counted = [line for line in lines if "use by" in line.get("note", "")]
    assert [(line["who"], line["path"]) for line in counted] == [(name, "sops/report/SOP.md") for name in ("s1", "s2")]
    assert counted[0]["evidence"] == [f"s1: check passed: {CHECK}"]


def test_what_only_the_model_says_is_not_learnt(memory: Memory) -> None:
    memory.used("s1", success=None, check=None)
    assert memory.sop.uses == 0 and memory.text("case.yaml") is None


def test_telling_it_again_counts_once_also_after_a_restart(memory: Memory) -> None:
    session = memory.used("s1")
    memory.evolution.ended(session, True)
    Evolution(MemoryStore(memory.store.root), drop=memory.drop).ended(session, True)
    assert (memory.sop.uses, memory.sop.streak) == (1, 1)
    memory.used("s1", began=5000.0)  # another conversation in the same directory
    assert memory.sop.uses == 2


@pytest.mark.parametrize("step", ["begin", "aside", "appended", "placed"])
def test_a_crash_while_it_is_counted_loses_nothing_and_counts_nothing_twice(memory: Memory, step: str) -> None:
    def crash(reached: str) -> None:
        if reached == step:
            raise KeyboardInterrupt

    session = guided(memory.store.root, "s1")
    with pytest.raises(KeyboardInterrupt):
        Evolution(MemoryStore(memory.store.root, on_step=crash), drop=memory.drop).ended(session, True)
    later = Evolution(MemoryStore(memory.store.root), drop=memory.drop)
    later.ended(session, True)
    later.ended(session, True)
    assert (memory.sop.uses, memory.sop.streak) == (1, 1)
    assert read_case(memory.store, "report") == Case((), CHECK)


def test_a_session_without_memory_is_no_use(memory: Memory) -> None:
    memory.used("s1", text="task: report item=x", memory=False)
    assert memory.sop.uses == 0


def test_a_verdict_corrects_what_the_check_said(memory: Memory) -> None:
    memory.used("s0")
    session = memory.used("s1")
    session.record(Judged(400.0, 9, False, "wrong month"))
    memory.evolution.ended(session, False)
    sop = memory.sop
    assert (sop.uses, sop.successes, sop.failures, sop.streak) == (2, 1, 1, 0)
    assert [run.ok for run in sop.runs] == [True, False]
    session.record(Judged(500.0, 10, True))
    memory.evolution.ended(session, True)
    sop = memory.sop
    assert (sop.uses, sop.successes, sop.failures, sop.streak) == (2, 2, 0, 1)


def test_a_deviation_breaks_the_streak(memory: Memory) -> None:
    memory.used("s1")
    memory.used("s2", calls=("ok", "error", "ok"))
    assert (memory.sop.successes, memory.sop.streak) == (2, 0)


def test_a_failure_before_the_sop_was_read_is_none_of_its_business(memory: Memory) -> None:
    root = memory.store.root
    records: list[Record] = [Begin(1.0, "s", TaskOptions(check=CHECK)), Said(1.0, 1, "input.txt", "x")]
    records += turn(1, ("code_run", {"type": "bash", "code": "stcok"}, "error"))
    records += turn(2, ("file_read", {"path": f"{root}/sops/report/SOP.md"}, "ok"))
    records += turn(3, ("file_write", {"path": f"{root}/facts/x.md"}, "error"))  # the gate's refusal, neither
    records += [*turn(4, said="ok"), Checking(5.0), Checked(6.0, 0, ""), Ended(7.0, "done")]
    memory.evolution.ended(replay(records), True)
    assert memory.sop.streak == 1


@settings(max_examples=10, deadline=None)
@given(st.lists(st.booleans(), max_size=12))
def test_counts_always_add_up(tmp_path_factory: pytest.TempPathFactory, ends: list[bool]) -> None:
    memory = Memory(tmp_path_factory.mktemp("m"))
    for number, ok in enumerate(ends):
        memory.used(f"s{number}", success=ok, state="done" if ok else "failed")
    sop = memory.sop
    assert (sop.uses, sop.successes, sop.failures) == (len(ends), ends.count(True), ends.count(False))
    assert [run.ok for run in sop.runs] == ends[-10:]
    assert sop.streak == (len(ends) if False not in ends else ends[::-1].index(False))


def test_parallel_sessions_lose_no_count(memory: Memory) -> None:
    others = [Evolution(MemoryStore(memory.store.root), drop=memory.drop) for _ in range(4)]

    def work(number: int) -> None:
        for n in range(5):
            others[number].ended(guided(memory.store.root, f"s{number}-{n}"), True)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (memory.sop.uses, memory.sop.streak) == (20, 20)


# -- cases and the question for a script --------------------------------------------------------------------


def test_the_latest_verified_success_is_the_case(memory: Memory, tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    (cwd / "in").mkdir(parents=True)
    (cwd / "in" / "data.csv").write_text("a,1\n")
    (cwd / "large.csv").write_text("x" * 5000)
    (tmp_path / "outside").write_text("no")
    (cwd / "link").symlink_to(tmp_path / "outside")
    words = f"task: report item=nuts data=in/data.csv big=large.csv up=../outside link=link at={tmp_path}/outside"
    memory.used("s1", text=words.rpartition(" at=")[0], cwd=str(cwd))
    case = read_case(memory.store, "report")
    assert case is not None
    assert case.arguments == tuple(words.split()[2:-1])
    assert case.check == CHECK
    assert case.files == {"in/data.csv": "a,1\n"}
    memory.used("s2", text="task: report item=figs")
    memory.used("s3", success=False, state="failed", text="task: report item=plums")
    assert read_case(memory.store, "report") == Case(("item=figs",), CHECK)


def test_what_is_secret_or_passes_becomes_no_case(memory: Memory) -> None:
    memory.used("s1", text="task: report password=hunter2x")
    memory.used("s2", check="test -s /tmp/x/report.csv")
    assert memory.text("case.yaml") is None
    assert memory.sop.successes == 2


def test_a_verdict_without_a_check_counts_but_makes_no_case(memory: Memory) -> None:
    for n in range(4):
        session = guided(memory.store.root, f"s{n}", check=None)
        session.record(Judged(400.0, 9, True))
        memory.evolution.ended(session, True)
    assert memory.sop.streak == 4
    assert memory.text("case.yaml") is None and not memory.dropped


def test_a_script_is_asked_for_once_after_three_successes(memory: Memory) -> None:
    memory.used("s1", text="task: report item=nuts")
    memory.used("s2", text="task: report item=nuts")
    assert not memory.dropped
    session = memory.used("s3", text="task: report item=figs")
    assert list(memory.dropped) == ["codify-report-1"]
    task, text = memory.dropped["codify-report-1"]
    assert task["review"] == task["parent"] == session.name
    assert set(task["tools"]) <= {"file_read", "file_write", "file_patch"} and task["turns"] <= 12
    assert "item=figs" in text and CHECK in text and "Run `stock`." in text
    assert f"{memory.store.root}/sops/report/run.py" in text
    assert "2 code_run echo 2: ok" in text and "1 file_read" not in text  # what can prove, and what cannot
    memory.used("s4")
    assert list(memory.dropped) == ["codify-report-1"]  # the name is the claim


def test_a_new_streak_after_a_failure_asks_again(memory: Memory) -> None:
    for n in range(3):
        memory.used(f"a{n}")
    memory.used("b", success=False, state="failed")
    for n in range(3):
        memory.used(f"c{n}")
    assert list(memory.dropped) == ["codify-report-1", "codify-report-2"]


def test_deviating_successes_earn_no_script(memory: Memory) -> None:
    for n in range(6):
        memory.used(f"s{n}", calls=("error", "ok") if n % 3 == 2 else ("ok",))
    assert not memory.dropped


def test_an_sop_that_has_a_script_is_not_asked_for_one(memory: Memory) -> None:
    memory.put("run.py", GOOD)
    for n in range(4):
        memory.used(f"s{n}", text="task: report item=x", script=0, calls=())
    assert memory.sop.stage == "code"
    assert not memory.dropped
    assert [run.tokens for run in memory.sop.runs] == [0] * 4


# -- back a stage -----------------------------------------------------------------------------------------------


def test_two_failures_in_a_row_put_the_script_aside(memory: Memory) -> None:
    memory.put("run.py", GOOD)
    memory.used("s1", text="task: report item=x", script=1)  # the agent that took over has done it: no matter
    assert (memory.sop.stage, memory.text("run.py")) == ("code", GOOD)
    assert memory.sop.failures == 1
    memory.used("s2", text="task: report item=x", script=1)
    assert (memory.sop.stage, memory.text("run.py"), memory.text("run.py.old")) == ("sop", None, GOOD)
    assert script_command(memory.store, "report", ()) is None


def test_a_success_between_two_failures_keeps_the_script(memory: Memory) -> None:
    memory.put("run.sh", "exit 0\n")
    for n, ok in enumerate((False, True, False, True)):
        memory.used(f"s{n}", text="task: report item=x", script=0 if ok else 1)
    assert (memory.sop.stage, memory.text("run.sh")) == ("code", "exit 0\n")


def test_a_script_of_exit_code_0_whose_check_fails_has_failed(memory: Memory) -> None:
    memory.put("run.py", GOOD)
    session = guided(memory.store.root, text="task: report item=x", script=0, state="failed")
    assert use_of(session, memory.store.root) == replace(
        use_of(session, memory.store.root) or pytest.fail(), script="failed"
    )
    memory.evolution.ended(session, None)
    assert memory.sop.failures == 1


def test_a_script_that_the_session_mended_stays(memory: Memory) -> None:
    memory.put("run.py", GOOD)
    memory.used("s1", text="task: report item=x", script=1)
    memory.used("s2", text="task: report item=x", script=1, writes="sops/report/run.py")
    assert (memory.sop.stage, memory.text("run.py")) == ("code", GOOD)


def test_a_script_whose_stage_a_crash_has_kept_back_counts(memory: Memory) -> None:
    memory.put("run.py", GOOD)  # the gate has let it in, and then the daemon was killed
    assert "stage: sop" in (memory.text("SOP.md") or "")
    memory.used("s1", text="task: report item=x", script=0)
    assert memory.sop.stage == "code"


def test_nothing_that_was_put_aside_is_lost(memory: Memory) -> None:
    for version in ("one\n", "two\n"):
        memory.put("run.py", version)
        for n in range(2):
            memory.used(f"{version.strip()}{n}", text="task: report item=x", script=1)
        memory.used(f"{version.strip()}ok")
    assert (memory.text("run.py.old"), memory.text("run.py.old2")) == ("one\n", "two\n")


def test_a_script_that_was_mended_meanwhile_is_not_put_aside(memory: Memory) -> None:
    class Meddled(MemoryStore):
        def commit(self, path: str, *arguments: Any, **named: Any) -> Commit:
            done = super().commit(path, *arguments, **named)
            if path.endswith(".old"):
                memory.put("run.py", "mended\n")
            return done

    memory.put("run.py", GOOD)
    evolution = Evolution(Meddled(memory.store.root), drop=memory.drop)
    for n in range(2):
        evolution.ended(guided(memory.store.root, f"s{n}", text="task: report item=x", script=1), True)
    assert (memory.text("run.py"), memory.text("run.py.old")) == ("mended\n", GOOD)


def test_an_sop_that_fails_twice_is_explored_again_until_it_works(memory: Memory) -> None:
    for n in range(2):
        memory.used(f"s{n}", success=False, state="failed")
    assert memory.sop.stage == "explore"
    assert "stage: explore" in (memory.text("SOP.md") or "")
    memory.used("s3")
    assert (memory.sop.stage, memory.sop.streak) == ("sop", 1)


def test_four_failures_of_a_script_lead_back_to_exploration(memory: Memory) -> None:
    memory.put("run.py", GOOD)
    stages = []
    for n in range(4):
        memory.used(f"s{n}", success=False, state="failed", text="task: report", script=1 if n < 2 else None)
        stages.append(memory.sop.stage)
    assert stages == ["code", "sop", "sop", "explore"]


# -- the gate ----------------------------------------------------------------------------------------------------


def gate(memory: Memory, seconds: float = 10.0) -> ScriptGate:
    return ScriptGate(memory.store, run_check, lambda session: {"PATH": os.environ["PATH"]}, seconds=seconds)


def with_case(memory: Memory, case: Case = Case(("item=nuts",), CHECK)) -> Memory:  # noqa: B008 - frozen
    memory.put("case.yaml", case.render())
    return memory


def attempt(memory: Memory, text: str, file: str = "run.py", *, seconds: float = 10.0) -> str:
    """Write a script through the door, as an agent does."""
    root = memory.store.root
    records: list[Record] = [Begin(1.0, "author-7", TaskOptions()), Said(1.0, 1, "input.txt", "x")]
    records += turn(1, ("code_run", {"type": "bash", "code": "stock"}, "ok"))
    records += turn(2, ("start_long_term_update", {}, "ok"))
    door = SessionMemory(memory.store, replay(records), gate=gate(memory, seconds))
    assert door.root == root
    return asyncio.run(door.write(f"sops/report/{file}", f"{text}# [proof: 1]\n", lambda before, new: new))


def test_a_script_that_does_its_case_is_kept(memory: Memory) -> None:
    told = attempt(with_case(memory), GOOD)
    assert "did its recorded case" in told
    assert memory.text("run.py") == GOOD
    assert memory.sop.stage == "code" and memory.sop.provenance == ("author-7",)
    lines = [json.loads(line) for line in Path(memory.store.root, "changes.jsonl").read_text().splitlines()]
    kept = next(line for line in lines if line["path"].endswith("run.py"))
    assert kept["who"] == "author-7"
    assert kept["evidence"] == ["author-7#1 code_run stock: ok", "gate: item=nuts: exit code 0, check passed"]


@pytest.mark.parametrize(
    ("text", "file", "why"),
    [
        ("raise SystemExit('no such thing')\n", "run.py", "gave exit code 1.*no such thing"),
        ("print('all done')\n", "run.py", "exit code 0, but the check gave exit code 1.*all done"),
        ("echo begun; sleep 60\n", "run.sh", "had not ended after 0.5 s.*begun"),
        ("import sys\nsyntax error\n", "run.py", "gave exit code 1.*SyntaxError"),
    ],
)
def test_a_script_that_does_not_is_refused(memory: Memory, text: str, file: str, why: str) -> None:
    with_case(memory)
    memory.put("run.py", "former\n")
    before = memory.text("SOP.md")
    began = time.monotonic()
    with pytest.raises(MemoryRefused, match="(?s)" + why):
        attempt(memory, text, file, seconds=0.5 if "sleep" in text else 20.0)
    assert time.monotonic() - began < 20.0
    assert (memory.text("run.py"), memory.text("run.sh"), memory.text("SOP.md")) == ("former\n", None, before)


def test_without_a_case_no_script_is_kept(memory: Memory) -> None:
    with pytest.raises(MemoryRefused, match="no case of report is recorded"):
        attempt(memory, GOOD)


def test_a_check_that_passes_without_the_script_proves_nothing(memory: Memory) -> None:
    with_case(memory, Case((), "true"))
    with pytest.raises(MemoryRefused, match="proves nothing"):
        attempt(memory, GOOD)


def test_without_a_gate_no_script_is_kept(memory: Memory) -> None:
    with_case(memory)
    records: list[Record] = [Begin(1.0, "s", TaskOptions()), Said(1.0, 1, "input.txt", "x")]
    records += turn(1, ("code_run", {}, "ok"), ("start_long_term_update", {}, "ok"))
    with pytest.raises(MemoryRefused, match="nothing can run them"):
        asyncio.run(
            SessionMemory(memory.store, replay(records)).write(
                "sops/report/run.py", f"{GOOD}# [proof: 1]", lambda before, new: new
            )
        )


def test_the_case_brings_its_files_and_leaves_nothing(memory: Memory, tmp_path: Path) -> None:
    with_case(memory, Case(("data=in/a.csv",), "grep -q nuts report.csv", {"in/a.csv": "nuts\n", "../evil": "x"}))
    case = read_case(memory.store, "report")
    assert case is not None and list(case.files) == ["in/a.csv"]  # what somebody has made lead outside is left out
    seen: list[str] = []

    async def spy(command: str, *, cwd: str, **rest: Any) -> tuple[int, str]:
        seen.append(cwd)
        return await run_check(command, cwd=cwd, **rest)

    judge = ScriptGate(memory.store, spy, lambda session: {"PATH": os.environ["PATH"]})
    asyncio.run(judge.check("sops/report/run.sh", 'cp "$GAD_ARG_DATA" report.csv\n', "s"))
    assert len(set(seen)) == 1 and not os.path.exists(os.path.dirname(seen[0]))


def test_a_script_in_the_other_language_takes_the_place_of_the_former(memory: Memory) -> None:
    with_case(memory)
    memory.put("run.py", "former\n")
    attempt(memory, "echo x > report.csv\n", "run.sh")
    assert (memory.text("run.py"), memory.text("run.py.old")) == (None, "former\n")
    command = script_command(memory.store, "report", ())
    assert command is not None and command.argv[0] == "bash"


def test_a_change_while_the_script_is_tried_is_not_written_over(memory: Memory) -> None:
    with_case(memory)

    async def meddle(command: str, **rest: Any) -> tuple[int, str]:
        memory.put("run.py", "another's\n")
        return await run_check(command, **rest)

    records: list[Record] = [Begin(1.0, "s", TaskOptions()), Said(1.0, 1, "input.txt", "x")]
    records += turn(1, ("code_run", {}, "ok"), ("start_long_term_update", {}, "ok"))
    judge = ScriptGate(memory.store, meddle, lambda session: {"PATH": os.environ["PATH"]})
    door = SessionMemory(memory.store, replay(records), gate=judge)
    with pytest.raises(MemoryRefused, match="changed while the script was tried"):
        asyncio.run(door.write("sops/report/run.py", f"{GOOD}# [proof: 1]", lambda before, new: new))
    assert memory.text("run.py") == "another's\n"


def test_an_agent_that_rewrites_an_sop_does_not_lose_its_record(memory: Memory) -> None:
    memory.used("s1")
    records: list[Record] = [Begin(1.0, "author-7", TaskOptions()), Said(1.0, 1, "input.txt", "x")]
    records += turn(1, ("code_run", {}, "ok"), ("start_long_term_update", {}, "ok"))
    door = SessionMemory(memory.store, replay(records))
    text = "---\nname: report\ntriggers: [sales]\ncategory: sales\nuses: 99\n---\nBetter.\n[proof: 1]"
    asyncio.run(door.write("sops/report/SOP.md", text, lambda before, new: new))
    sop = memory.sop
    assert (sop.uses, sop.streak, sop.body, sop.provenance) == (1, 1, "Better.\n", ("author-7",))


def test_the_case_is_no_agents_to_write() -> None:
    with pytest.raises(MemoryRefused):
        check_write("sops/report/case.yaml", "x\n[proof: 1]", open_phase=True, calls=(), session="s")


# -- running scripts ----------------------------------------------------------------------------------------------


def run(memory: Memory, cwd: Path, sop: str = "report", *arguments: str) -> tuple[int, str, str]:
    heard: list[str] = []
    runner = ScriptRunner(memory.store, run_check)
    exit_code, output = asyncio.run(
        runner(sop, arguments, cwd=str(cwd), work=str(cwd), environment={"PATH": os.environ["PATH"]}, emit=heard.append)
    )
    return exit_code, output, "".join(heard)


def test_a_script_runs_in_the_tasks_directory_with_its_arguments(memory: Memory, tmp_path: Path) -> None:
    memory.put("run.py", GOOD)
    (tmp_path / "w").mkdir()
    assert run(memory, tmp_path / "w", "report", "item=fine nuts; $x")[:2] == (0, "made\n")
    assert (tmp_path / "w" / "report.csv").read_text() == "fine nuts; $xitem=fine nuts; $x"
    memory.put("run.py", "import os\nprint(os.environ['GAD_ARG_FROM_DAY'])\n")
    assert run(memory, tmp_path / "w", "report", "from-day=5") == (0, "5\n", "5\n")
    assert sorted(os.listdir(os.path.join(memory.store.root, "sops", "report"))) == ["SOP.md", "run.py"]


def test_a_failing_script_tells_the_agent_that_takes_over_what_it_needs(memory: Memory, tmp_path: Path) -> None:
    memory.put("run.sh", "echo no stock today >&2\nexit 3\n")
    exit_code, note, heard = run(memory, tmp_path)
    assert exit_code == 3 and heard == "no stock today\n"
    assert note.startswith(FAILED)
    place = f"{memory.store.root}/sops/report"
    for part in ("no stock today", "exit code 3", f"{place}/SOP.md", f"{place}/run.sh", "start_long_term_update"):
        assert part in note


def test_an_sop_without_a_script_and_an_unknown_one_say_so(memory: Memory, tmp_path: Path) -> None:
    exit_code, note, _ = run(memory, tmp_path)
    assert exit_code == 127 and f"{memory.store.root}/sops/report/SOP.md" in note
    exit_code, note, _ = run(memory, tmp_path, "nothing")
    assert exit_code == 127 and "there is no procedure nothing" in note
    assert not note.startswith(FAILED)


def test_one_that_failed_lately_says_that_too(memory: Memory, tmp_path: Path) -> None:
    for n in range(2):
        memory.used(f"s{n}", success=False, state="failed")
    assert "failed lately" in run(memory, tmp_path)[1]


def test_an_argument_that_cannot_be_passed_on_fails_in_words(memory: Memory, tmp_path: Path) -> None:
    memory.put("run.py", GOOD)
    assert run(memory, tmp_path, "report", "item=a\0b")[0] == 127


def test_a_link_is_not_run(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "evil.sh").write_text("echo evil\n")
    os.symlink(tmp_path / "evil.sh", os.path.join(memory.store.root, "sops", "report", "run.sh"))
    assert run(memory, tmp_path)[0] == 127


def test_the_front_matter_stays_readable_after_all_of_it(memory: Memory) -> None:
    with_case(memory)
    attempt(memory, GOOD)
    use = partial(memory.used, text="task: report item=x")
    use("s1", script=0, calls=())
    use("s2", script=1)
    sop = parse_sop(memory.text("SOP.md") or "")
    assert (sop.stage, sop.uses, sop.successes, sop.body) == ("code", 2, 1, BODY)
