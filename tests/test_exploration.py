"""Exploration on a real home: plans, reports, weights and proposals in memory, the commands, and whole runs."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gad.cli import gad
from gad.cli.explore_work import ATTEMPTS, Explorer, is_approval
from gad.core.explore import TRIAL, Tree, Weights, adapt, total
from gad.core.explore_plan import read_tasks
from gad.core.explore_report import Report
from gad.core.gate import Proof
from gad.core.sop import Run, Sop, render_sop
from gad.errors import MemoryRefused
from gad.home import make_home
from gad.memory.exploration import Exploration
from gad.memory.store import MemoryStore
from gad.spool.status import render
from gad.tools.sandbox import trouble
from tests.scripted_server import Call, Reply, Say
from tests.test_children import bash, said, turns
from tests.test_explore import GOOD, REPORT, plan_file
from tests.test_trigger_world import BUSY_MACHINE, made, reaches, trigger
from tests.world import World, play, until

IDEAS = read_tasks(plan_file(*GOOD), Tree())
PROOFS = [Proof(1, "code_run", True, "ping host"), Proof(2, "code_run", False, "ping other")]


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    make_home(tmp_path / "home")
    made = MemoryStore(str(tmp_path / "home" / "memory"))
    made.prepare()
    return made


@pytest.fixture
def exploration(store: MemoryStore) -> Exploration:
    return Exploration(store, complaints.append)


complaints: list[str] = []


@pytest.fixture(autouse=True)
def nothing_to_complain_of() -> None:
    complaints.clear()


def gad_in(home: Path, *words: str, **environ: str) -> Result:
    return CliRunner().invoke(gad, ["--home", str(home), *words], env={"GAD_SESSION": None, **environ})


def waits(exploration: Exploration, task: str, path: str) -> str:
    return next((one.text for one in exploration.proposals() if one.id == f"{task}/{path}"), "")


# -- plans and reports -----------------------------------------------------------------------------


def test_plans_are_numbered_and_a_sessions_plan_is_kept_once(exploration: Exploration) -> None:
    first = exploration.keep_plan("s1", 1.0, IDEAS)
    assert exploration.keep_plan("s1", 9.0, IDEAS[:2]) == first
    second = exploration.keep_plan("s2", 2.0, IDEAS)
    assert [plan.id for plan in exploration.plans()] == ["p1", "p2"]
    assert exploration.plans() == [first, second]
    assert exploration.task("p2-3") == second.tasks[2]
    assert exploration.task("p3-1") is None


def test_plans_that_are_kept_at_the_same_time_get_numbers_of_their_own(store: MemoryStore) -> None:
    def keep(number: int) -> str:
        return Exploration(MemoryStore(store.root)).keep_plan(f"s{number}", 1.0, IDEAS).id

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(keep, range(6))) == [f"p{number}" for number in range(1, 7)]


def test_what_cannot_be_read_is_named_and_passed_over(exploration: Exploration, store: MemoryStore) -> None:
    exploration.keep_plan("s1", 1.0, IDEAS)
    exploration.keep_report(REPORT)
    top = Path(store.root, "exploration")
    (top / "plans/p2.json").write_text("{")
    (top / "plans/notes.txt").write_text("not a plan")
    (top / "reports/p1-1.md").write_text("# no front matter")
    (top / "weights.jsonl").write_text('{"at": 1}\n')
    assert [plan.id for plan in exploration.plans()] == ["p1"]
    assert exploration.reports() == [REPORT]
    assert exploration.weights() == Weights()
    told = "\n".join(complaints)
    assert all(name in told for name in ("plans/p2.json", "reports/p1-1.md", "weights.jsonl, line 1"))
    assert exploration.keep_plan("s3", 1.0, IDEAS).id == "p3"  # what is damaged keeps its number


# -- weights -----------------------------------------------------------------------------------------


def keep_sop(store: MemoryStore, name: str, runs: Sequence[Run]) -> None:
    sop = Sop(name, ("x",), "web", uses=len(runs), successes=len(runs), runs=tuple(runs), body="text\n")
    store.commit(f"sops/{name}/SOP.md", lambda before: render_sop(sop), who="test")


def test_weights_change_when_a_trial_is_over_and_only_once(exploration: Exploration, store: MemoryStore) -> None:
    used = [Run(1000 + number, 1, True) for number in range(6)]
    keep_sop(store, "login", used)
    low = replace(REPORT, task="p1-1", at=1000.0, predicted=4.0, skill="login")
    high = replace(REPORT, task="p1-2", at=1001.0, predicted=9.0, skill="nothing")
    never = replace(REPORT, task="p1-3", at=1000.0, predicted=9.0, outcome="unfinished")
    late = replace(REPORT, task="p1-4", at=5000.0, predicted=9.0)
    for report in (low, high, never, late):
        exploration.keep_report(report)
    assert exploration.judge(1000.0 + TRIAL - 1) == []
    first = exploration.judge(1000.0 + TRIAL)
    assert [(trial.task, trial.used) for trial in first] == [("p1-1", 6)]
    assert exploration.weights() == adapt(Weights(), low.scores, 4.0, 6) != Weights()
    before = exploration.weights()
    second = exploration.judge(4000.0 + TRIAL)
    assert [(trial.task, trial.used) for trial in second] == [("p1-2", 0)]
    assert exploration.weights() == adapt(before, high.scores, 9.0, 0)
    assert exploration.judge(4999.0 + TRIAL) == []
    assert [trial.task for trial in exploration.trials()] == ["p1-1", "p1-2"]
    [task, *_] = exploration.keep_plan("s9", 0.0, IDEAS).tasks
    assert task.predicted == pytest.approx(total(task.scores, exploration.weights()))  # plans use what was learnt
    assert task.predicted != pytest.approx(total(task.scores, Weights()))


def test_a_trial_that_nobody_can_judge_any_more_changes_nothing_and_is_over(
    exploration: Exploration, store: MemoryStore
) -> None:
    runs = [Run(int(2 * TRIAL) + number, 1, True) for number in range(10)]
    sop = Sop("login", ("x",), "web", uses=14, successes=14, runs=tuple(runs), body="text\n")
    store.commit("sops/login/SOP.md", lambda before: render_sop(sop), who="test")
    exploration.keep_report(replace(REPORT, at=0.0, predicted=9.0))
    [trial] = exploration.judge(3 * TRIAL)
    assert (trial.used, trial.weights) == (None, Weights())
    assert exploration.judge(4 * TRIAL) == []


def test_two_that_judge_at_the_same_time_change_the_weights_once(exploration: Exploration, store: MemoryStore) -> None:
    exploration.keep_report(replace(REPORT, at=0.0, predicted=9.0, skill=None))
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: Exploration(MemoryStore(store.root)).judge(2 * TRIAL), range(6)))
    assert exploration.weights() == adapt(Weights(), REPORT.scores, 9.0, 0)


# -- proposals ---------------------------------------------------------------------------------------


def test_the_gate_lets_in_what_is_proven_and_the_rest_waits(exploration: Exploration, store: MemoryStore) -> None:
    skill = "---\nname: ping\ntriggers: [ping]\ncategory: net\n---\n# Ping\nIt works.\n"
    texts = {
        "facts/net.md": "# Net\n\n- host answers\n[proof: 1]\n",
        "sops/ping/SOP.md": skill + "[proof: 1]\n",
        "facts/guess.md": "- other is down\n",
        "facts/wrong.md": "- other is down\n[proof: 2]\n",
        "facts/key.md": "- password: hunter2secret\n[proof: 1]\n",
        "sops/ping/run.py": "print(1)\n# [proof: 1]\n",
    }
    became = exploration.take("p1-1", "s", texts, PROOFS)
    assert became["facts/net.md"] == became["sops/ping/SOP.md"] == "kept"
    assert "no proof" in became["facts/guess.md"] and "failed" in became["facts/wrong.md"]
    assert store.read("facts/net.md") == "# Net\n\n- host answers\n"
    found = store.sop("ping")
    assert found is not None and found.provenance == ("s",) and "proof" not in found.body
    assert store.read("facts/guess.md") is None
    exploration.keep_report(replace(REPORT, task="p1-1", proposed=became))
    waiting = {one.path: one for one in exploration.proposals()}
    assert waiting.keys() == {"facts/guess.md", "facts/wrong.md", "sops/ping/run.py"}
    assert "no proof" in waiting["facts/guess.md"].reason
    assert "not even kept" in became["facts/key.md"]  # a secret is nowhere in memory
    everything = [path for path in Path(store.root).rglob("*") if path.is_file()]
    assert everything and not any(b"hunter2secret" in path.read_bytes() for path in everything)


def test_facts_are_added_to_what_is_there_and_not_twice(exploration: Exploration, store: MemoryStore) -> None:
    store.commit("facts/net.md", lambda before: "# Net\n\n- old\n- known\n", who="test")
    for _ in range(2):
        exploration.take("p1-1", "s", {"facts/net.md": "- known\n- new\n[proof: 1]"}, PROOFS)
    assert store.read("facts/net.md") == "# Net\n\n- old\n- known\n- new\n"


def test_a_person_accepts_and_rejects(exploration: Exploration, store: MemoryStore, tmp_path: Path) -> None:
    home = tmp_path / "home"
    texts = {"facts/a.md": "- one\n", "facts/b.md": "- two\n[proof: 9]\n", "facts/c.md": "- seen at 2026-11-30 12:00\n"}
    became = exploration.take("p1-1", "s", texts, PROOFS)
    exploration.keep_report(replace(REPORT, task="p1-1", proposed=became))
    listed = gad_in(home, "memory", "review").output
    assert all(f"p1-1/{path}" in listed for path in texts) and "there is no call 9" in listed
    shown = gad_in(home, "memory", "review", "p1-1/facts/b.md").output
    assert "(nothing)" in shown and "- two" in shown and "there is no call 9" in shown
    assert gad_in(home, "memory", "review", "p1-1/facts/b.md", "--accept").exit_code == 0
    assert store.read("facts/b.md") == "- two\n"
    assert gad_in(home, "memory", "review", "p1-1/facts/a.md", "--reject").exit_code == 0
    assert store.read("facts/a.md") is None
    refused = gad_in(home, "memory", "review", "p1-1/facts/c.md", "--accept")
    assert refused.exit_code == 1 and "a moment" in refused.output  # what passes stays out, whoever says so
    assert [one["path"] for one in json.loads(gad_in(home, "memory", "review", "--json").output)] == ["facts/c.md"]
    gone = gad_in(home, "memory", "review", "p1-1/facts/a.md")
    assert gone.exit_code == 1 and "gad memory review lists them" in gone.output
    assert gad_in(home, "memory", "review", "--accept").exit_code == 2
    last = json.loads(Path(store.root, "changes.jsonl").read_text().splitlines()[-1])
    assert last["who"] == "user"


@pytest.mark.parametrize(
    "path", ["../../x.md", "facts/../meta.md", "meta.md", "index.md", "sops/all.md", "facts/A b.md", "controller.json"]
)
def test_a_proposal_for_a_strange_place_changes_nothing_there(
    exploration: Exploration, store: MemoryStore, path: str
) -> None:
    before = {name: name.read_bytes() for name in Path(store.root).parent.rglob("*.md")}
    became = exploration.take("p1-1", "s", {path: "- x\n[proof: 1]\n"}, PROOFS)
    assert became[path] != "kept"
    assert {name: name.read_bytes() for name in before} == before
    for one in exploration.proposals():
        with pytest.raises(MemoryRefused):
            exploration.accept(one)


# -- the commands, on sessions that are played -----------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ("approved", True),
        ("**Approved**\nall is well", True),
        ("`approved`.", True),
        ("not approved", False),
        ("Not approved: approved", False),
        ("I think it is\napproved", False),
        ("", False),
    ],
)
def test_only_a_first_line_that_says_so_approves(answer: str, good: bool) -> None:
    assert is_approval(answer) is good


def test_what_is_due_is_a_plan_first_and_then_its_best_task(exploration: Exploration, tmp_path: Path) -> None:
    home = tmp_path / "home"
    plan = json.loads(gad_in(home, "explore", "next").output)
    assert plan.keys() == {"text", "labels", "turns", "check"}
    assert plan["turns"] == 30 and plan["labels"] == ["explore", "explore:plan"]
    exploration.keep_plan("s1", 1.0, IDEAS)
    task = json.loads(gad_in(home, "explore", "next").output)
    assert (task["key"], task["labels"], task["check"]) == (
        "p1-1",
        ["explore", "explore:p1-1"],
        "gad explore check report.md",
    )
    assert task["turns"] == 30 and task["confined"] is True and IDEAS[0].goal in task["text"]
    assert json.loads(gad_in(home, "explore", "next").output) == task  # asking takes nothing


def session(home: Path, name: str, task: str, state: str) -> None:
    """Have a session of a task in the spool, in this state."""
    directory = home / "spool" / name
    directory.mkdir()
    (directory / "task.yaml").write_text(render({"labels": ["explore", f"explore:{task}"]}))
    (directory / "status.txt").write_text(f"state: {state}\n")


def test_a_task_is_done_once_and_one_that_was_stopped_again(exploration: Exploration, tmp_path: Path) -> None:
    home = tmp_path / "home"
    explorer = Explorer(home)
    plan = exploration.keep_plan("s1", 1.0, IDEAS)

    def due() -> str | None:
        return explorer.due().get("key")

    session(home, "other-p1-1", "p9-1", "done")  # of another plan, by its label
    assert due() == "p1-1"
    session(home, "idle-p1-1", "p1-1", "running")
    assert due() == "p1-2"
    assert explorer.standing(plan.tasks[0], [])[0] == "running"
    (home / "spool/idle-p1-1/status.txt").write_text("state: stopped\n")
    exploration.keep_report(replace(REPORT, task="p1-1", outcome="unfinished"))
    assert due() == "p1-1.2"
    for number in range(2, ATTEMPTS + 1):
        session(home, f"idle-p1-1.{number}", "p1-1", "stopped")
    assert due() == "p1-2"  # it was tried often enough
    for task in plan.tasks[1:]:  # the last one's session was removed since
        exploration.keep_report(replace(REPORT, task=task.id))
        if task is not plan.tasks[-1]:
            session(home, f"idle-{task.id}", task.id, "failed")
    assert due() is None  # a new plan


def test_the_overview_shows_all_of_it(exploration: Exploration, store: MemoryStore, tmp_path: Path) -> None:
    home = tmp_path / "home"
    keep_sop(store, "login", [Run(1, 1, True)])
    assert "no plan yet" in gad_in(home, "explore").output
    exploration.keep_plan("s1", 1.0, IDEAS)
    exploration.keep_report(replace(REPORT, task="p1-1", at=0.0, predicted=9.0, skill=None))
    exploration.judge(TRIAL)
    exploration.take("p1-1", "s", {"facts/a.md": "- one\n"}, PROOFS)
    text = gad_in(home, "explore").output
    assert re.search(r"^web +0\.0 +login 1$|^web +5\.0 +login 1$", text, re.MULTILINE)
    assert re.search(r"^p1-1 +\d\.\d +\d+\.\d +\d\.\d +8\.0 +6\.0 +success", text, re.MULTILINE)
    assert "predicted 9.0, no skill, used 0 times in 30 days" in text
    assert re.search(r"^breadth +0\.\d{3} ", text, re.MULTILINE)
    assert "1 proposals for memory wait for you" in text
    found = json.loads(gad_in(home, "explore", "--json").output)
    assert found["plan"]["tasks"][0]["state"] == "success" and found["plan"]["tasks"][1]["state"] == "open"
    assert found["weights"] != found["weights_at_first"] and found["waiting"] == ["p1-1/facts/a.md"]
    assert found["tree"]["web"] == [{"name": "login", "uses": 1}]
    assert found["reports"][0]["summary"] == REPORT.summary


def test_the_weights_are_drawn_one_line_a_dimension(exploration: Exploration, tmp_path: Path) -> None:
    for number in range(3):
        exploration.keep_report(replace(REPORT, task=f"p1-{number}", at=number * 100.0, predicted=9.0, skill=None))
        exploration.judge(TRIAL + number * 100)
    file = tmp_path / "weights.svg"
    assert gad_in(tmp_path / "home", "explore", "--svg", str(file)).exit_code == 0
    drawn = xml.fromstring(file.read_text("utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    lines = [line.attrib["points"].split() for line in drawn.iter(f"{space}polyline")]
    assert [len(points) for points in lines] == [4, 4, 4, 4]
    assert len({line.attrib["stroke"] for line in drawn.iter(f"{space}polyline")}) == 4
    assert {"breadth", "depth", "utility", "innovation"} <= {text.text for text in drawn.iter(f"{space}text")}
    heights = [[float(point.split(",")[1]) for point in points] for points in lines]
    assert all(0 <= one <= 360 for points in heights for one in points)
    last = {name: points[-1] for name, points in zip(("b", "d", "u", "i"), heights, strict=True)}
    weights = exploration.weights()
    assert (last["b"] < last["i"]) == (weights.breadth > weights.innovation)  # higher is further up
    refused = gad_in(tmp_path / "home", "explore", "--svg", str(tmp_path / "nowhere" / "x.svg"))
    assert refused.exit_code == 1 and "cannot be written" in refused.output


@pytest.mark.parametrize(
    ("files", "mistakes"),
    [
        ({}, ["report.md is not there; write it"]),
        ({"report.md": b"\xff"}, ["report.md is not UTF-8"]),
        ({"report.md": b"# x", "proposals/meta.md": b"x"}, ["begins with its front matter", "meta.md is not yours"]),
        ({"report.md": b"x" * 130_000}, ["more than 120,000 bytes"]),
        ({"proposals/sops/a/run.py": b"x"}, ["propose SOP.md"]),
    ],
)
def test_a_report_that_will_not_do_fails_the_check(
    store: MemoryStore, tmp_path: Path, files: dict[str, bytes], mistakes: list[str]
) -> None:
    for name, data in files.items():
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    result = gad_in(tmp_path / "home", "explore", "check", str(tmp_path / "work/report.md"))
    assert result.exit_code == 1
    assert all(mistake in result.output for mistake in mistakes), result.output


def test_links_are_not_followed_when_a_report_is_read(store: MemoryStore, tmp_path: Path) -> None:
    good = "---\noutcome: success\nsummary: x\n---\ntext\n"
    (tmp_path / "elsewhere.md").write_text(good)
    (tmp_path / "report.md").symlink_to(tmp_path / "elsewhere.md")
    result = gad_in(tmp_path / "home", "explore", "check", str(tmp_path / "report.md"))
    assert result.exit_code == 1 and "cannot be read" in result.output


def test_without_memory_there_is_no_exploration(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "home/gad.yaml").write_text("memory: {enabled: false}\n")
    result = gad_in(tmp_path / "home", "explore", "next")
    assert result.exit_code == 1 and "memory.enabled" in result.output and "prompt" in result.output


def test_filing_what_is_no_exploration_says_so(store: MemoryStore, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "there is no session x" in gad_in(home, "explore", "file", "x").output
    session(home, "y", "p1-1", "done")
    assert "there is no session y with a journal" in gad_in(home, "explore", "file", "y").output


needs_bwrap = pytest.mark.skipif(bool(WHY := trouble(shutil.which("bwrap"))), reason=f"NO SANDBOX HERE: {WHY}")


# -- whole runs ------------------------------------------------------------------------------------------

REPORT_FILE = "---\noutcome: success\nsummary: the answer is 42\nskill: answer\n---\n# Report\nIt is 42.\n"
SKILL = "---\nname: answer\ntriggers: [answer]\ncategory: maths\n---\n# Answer\necho 42\n[proof: 1]\n"


def write(path: str, content: str) -> Call:
    return Call("file_write", {"path": path, "content": content})


def review() -> Call:
    return bash("gad explore review plan.json")


def rule(body: dict[str, Any]) -> Any:
    """Plan, review or explore, as the task says; the reviewer wants a task whose utility is 9."""
    task = said(body)
    if "Review the plan" in task:
        return Reply((Say("approved\nfine" if '"utility": 9' in task else "not approved\n1: dull"),))
    script = PLANNER if "Plan explorations" in task else EXPLORER
    return script[turns(body)] if turns(body) < len(script) else "I have nothing left to do."


PLANNER = [
    write("plan.json", plan_file(*GOOD[:2])),
    "There is a plan.",  # it spans two categories: the check says so
    write("plan.json", plan_file(*GOOD)),
    review(),  # "not approved"
    "It will have to do.",  # the check says that nobody has approved it
    write("plan.json", plan_file(*GOOD[:3], {**GOOD[3], "utility": 9})),
    review(),
    "Planned.",
]
EXPLORER = [
    bash("echo 42"),
    Call("start_long_term_update", {}),
    write("../../memory/facts/direct.md", "- 42\n[proof: 1]\n"),
    bash("echo 42 > ../../memory/facts/direct.md"),
    bash("true"),
    write("proposals/sops/answer/SOP.md", SKILL),
    write("proposals/facts/maths.md", "- the answer is 42\n[proof: 1]\n"),
    write("proposals/facts/guess.md", "- the question is unknown\n"),
    "Done, I think.",  # there is no report: the check says so
    write("report.md", REPORT_FILE),
    "Explored.",
]


def told(world: World, session: str, kind: str) -> str:
    return "\n".join(str(record) for record in world.records(session) if record["kind"] == kind)


async def fire(world: World, name: str) -> None:
    """Have the trigger fire now, as a user does."""
    result = await asyncio.to_thread(gad_in, world.home, "triggers", "fire", name)
    assert result.exit_code == 0, result.output


async def filed(world: World, explorer: Explorer, task: str) -> Report:
    await until(lambda: any(one.task == task for one in explorer.memory.reports()), BUSY_MACHINE)
    return next(one for one in explorer.memory.reports() if one.task == task)


@needs_bwrap
def test_idle_time_plans_has_the_plan_reviewed_explores_and_proposes(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        trigger(world, "idle", options={"quiet": 0, "load": 1000, "hours": "0-24"})
        explorer = Explorer(world.home)
        async with world.running():
            await until(lambda: made(world, "idle-"), BUSY_MACHINE)
            [planner] = made(world, "idle-")
            await world.rests(planner, seconds=BUSY_MACHINE)
            checks = told(world, planner, "checked")
            assert "span 2 categories" in checks and "no fresh agent has approved" in checks
            children = world.status(planner)["children"]
            assert [world.text(child, "result.txt").split("\n")[0] for child in children] == [
                "not approved",
                "approved",
            ]
            await until(lambda: explorer.memory.plans(), BUSY_MACHINE)
            [plan] = explorer.memory.plans()
            assert plan.session == planner and len(plan.tasks) == 4
            assert plan.tasks[0].idea.utility == 9  # the best one comes first
            await reaches(world, "idle", "open", {})

            await fire(world, "idle")
            session = "idle-p1-1"
            await until(lambda: made(world, session), BUSY_MACHINE)
            await world.rests(session, seconds=BUSY_MACHINE)
            report = await filed(world, explorer, "p1-1")
            assert (report.outcome, report.summary, report.skill) == ("success", "the answer is 42", "answer")
            assert report.predicted == plan.tasks[0].predicted and report.body.startswith("# Report")
            assert report.proposed["sops/answer/SOP.md"] == report.proposed["facts/maths.md"] == "kept"
            assert "no proof" in report.proposed["facts/guess.md"]
            assert [one.id for one in explorer.memory.proposals()] == ["p1-1/facts/guess.md"]
            sop = explorer.store.sop("answer")
            assert sop is not None and sop.provenance == (session,)
            # memory was read-only for the session itself, whichever tool it took
            assert not (world.home / "memory/facts/direct.md").exists()
            results = told(world, session, "tool_finished")
            assert "confined: memory is read-only" in results and "Read-only file system" in results
            assert "1 code_run" in results  # what can prove something is listed
            assert world.records(session)[0]["options"]["turns"] == 30
            await reaches(world, "idle", "open", {})
        shown = gad_in(world.home, "explore").output
        assert "maths" in shown and "the answer is 42" in shown and "1 proposals" in shown
        assert explorer.due()["key"] == "p1-2"

    play(tmp_path, rule, scene)


@pytest.mark.parametrize("ending", ["failed", "stopped"])
@needs_bwrap
def test_an_exploration_that_comes_to_no_end_has_a_report_too(tmp_path: Path, ending: str) -> None:
    async def scene(world: World) -> None:
        trigger(world, "idle", options={"quiet": 0, "load": 1000, "hours": "0-24"})
        store = MemoryStore(str(world.home / "memory"))
        store.prepare()
        explorer = Explorer(world.home)
        explorer.memory.keep_plan("earlier", 1.0, IDEAS)
        async with world.running():
            await until(lambda: made(world, "idle-p1-1"), BUSY_MACHINE)
            if ending == "stopped":
                await until(lambda: "writing" in world.text("idle-p1-1", "output.txt"), BUSY_MACHINE)
                world.put("idle-p1-1", "stop.txt", "")
            await world.rests("idle-p1-1", ending, seconds=BUSY_MACHINE)
            report = await filed(world, explorer, "p1-1")
            assert report.outcome == "unfinished" and report.proposed == {}
            assert report.body == "# So far\n" and report.summary
            await reaches(world, "idle", "open", {})
        assert explorer.due()["key"] == ("p1-2" if ending == "failed" else "p1-1.2")
        assert gad_in(world.home, "explore", "file", "idle-p1-1").exit_code == 0  # again does no harm
        assert explorer.memory.reports() == [report]

    draft = "---\noutcome: success\nsummary: so far\n---\n# So far\n"
    last = bash("echo writing; sleep 600" if ending == "stopped" else "true")
    play(tmp_path, lambda body: [write("report.md", draft), last][min(turns(body), 1)], scene)
