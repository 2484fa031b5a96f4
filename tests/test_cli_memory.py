"""gad memory: what it shows, finds, tidies and complains about."""

from __future__ import annotations

import json
import os
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gad.cli import gad
from gad.cli.chart import bars, short, svg
from gad.cli.memory_gc import carry_out, plan
from gad.core.sop import Run, Sop, render_sop
from gad.home import make_home
from gad.memory.archive import Archive
from gad.memory.store import Commit, MemoryStore

DAY = 86400.0
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> MemoryStore:
    found = MemoryStore(str(home / "memory"))
    found.prepare()
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(gad, ["memory", *arguments])


def told(*arguments: str, code: int = 0) -> Any:
    """Return what a command prints as JSON."""
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def write(store: MemoryStore, path: str, text: str, *evidence: str) -> None:
    store.commit(path, lambda before: text, who="s", evidence=evidence)


def sop(store: MemoryStore, name: str, **known: Any) -> None:
    found: dict[str, Any] = {"name": name, "triggers": (f"do {name}",), "category": "ops", "body": "Do it.\n"}
    write(store, f"sops/{name}/SOP.md", render_sop(Sop(**found | known)))


def age(store: MemoryStore, path: str, days: float) -> None:
    at = time.time() - days * DAY
    os.utime(os.path.join(store.root, path), (at, at))


def archive(store: MemoryStore, tmp_path: Path, session: str, text: str, **known: Any) -> str:
    journal = tmp_path / "journal.jsonl"
    began = float(known.get("began", 1_764_504_000))
    records = [
        {"kind": "begin", "at": began, "v": 1, "session": session, "options": {}},
        {"kind": "message", "at": began, "n": 1, "file": "input.txt", "text": text},
        {"kind": "ended", "at": began + 1, "state": "done", "error": "", "limit": False, "upto": None},
    ]
    journal.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    summary: dict[str, Any] = {"labels": (), "outcome": "done", "turns": 1, "tokens": 9, "began": began, "ended": began}
    return Archive(store.root).keep(str(journal), session=session, task=text, **summary | known)


# -- every command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "search", "sops", "plot", "log", "gc", "diagnose", "check"])
def test_every_command_has_a_help(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.output or command == "plot"
    assert command in run("--help").output


@pytest.mark.parametrize("command", ["show", "search", "sops", "log", "gc", "check"])
def test_every_command_works_before_there_is_a_memory(home: Path, command: str) -> None:
    (home / "memory").rmdir()
    assert run(command).exit_code == 0
    told(command)
    assert not (home / "memory").exists()


@pytest.mark.parametrize("command", ["show", "search", "sops", "log", "gc", "check"])
def test_without_a_home_it_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.delenv("GAD_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    result = run(command)
    assert result.exit_code == 1
    assert "gad init" in result.stderr


def test_looking_takes_no_lock_and_changes_nothing(store: MemoryStore) -> None:
    sop(store, "deploy")
    write(store, "facts/a.md", "# A\n## x\n- one\n- one\n")

    def state() -> dict[str, bytes]:
        root = Path(store.root)
        return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and ".lock" not in path.name}

    before = state()
    with store.locked("the test"):
        for command in (["show"], ["search", "x"], ["sops"], ["plot", "deploy"], ["log"], ["gc"]):
            assert run(*command).exit_code == 0
    assert run("check").exit_code == 0
    assert state() == before


# -- show, search, sops, plot, log -----------------------------------------------------------------


def test_show_gives_the_texts_that_are_always_on_and_their_sizes(store: MemoryStore, tmp_path: Path) -> None:
    sop(store, "deploy")
    write(store, "facts/web.md", "# Web\n\n## nginx\n- it listens on port 8081\n")
    archive(store, tmp_path, "s1", "x")
    shown = told("show")
    assert shown["always_on"]["text"] == store.always_on()
    assert shown["index"]["text"] == store.read("index.md")
    assert shown["index"]["lines"] <= 30 and 0 < shown["index"]["tokens"] <= 400
    assert (shown["facts"], shown["sops"], shown["archived"]) == (1, 1, 1)
    text = run("show").stdout
    assert "nginx" in text and "about" in text and "1 SOPs, 1 archived" in text


def test_search_finds_archived_conversations(store: MemoryStore, tmp_path: Path) -> None:
    archive(store, tmp_path, "s1", "deploy the blog", labels=("web",))
    archive(store, tmp_path, "s2", "部署博客", outcome="failed", began=1_764_504_000 + DAY)
    (hit,) = told("search", "BLOG", "deploy")
    assert (hit["session"], hit["day"], hit["outcome"], hit["excerpt"]) == (
        "s1",
        "2025-11-30",
        "done",
        "deploy the blog",
    )
    assert [hit["session"] for hit in told("search", "博客")] == ["s2"]
    assert [hit["session"] for hit in told("search")] == ["s2", "s1"]
    assert [hit["session"] for hit in told("search", "--limit", "1")] == ["s2"]
    assert [hit["session"] for hit in told("search", "--label", "web")] == ["s1"]
    assert [hit["session"] for hit in told("search", "--outcome", "failed")] == ["s2"]
    assert [hit["session"] for hit in told("search", "--day", "2025-11-30")] == ["s1"]
    assert "deploy the blog" in run("search", "blog").stdout
    assert run("search", "--outcome", "nonsense").exit_code == 2


def test_search_names_what_is_damaged_and_goes_on(store: MemoryStore, tmp_path: Path) -> None:
    archive(store, tmp_path, "s1", "deploy")
    path = archive(store, tmp_path, "s2", "deploy")
    Path(store.root, path).write_bytes(b"junk")
    result = run("search", "input", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout) == []
    assert path in result.stderr


RUNS = (Run(1, 12_000, True), Run(2, 9_000, True), Run(3, 4_200, False), Run(4, 0, True))


def test_sops_tell_stage_uses_successes_and_tokens_from_first_to_latest(store: MemoryStore) -> None:
    sop(store, "deploy", stage="code", uses=4, successes=3, failures=1, runs=RUNS)
    sop(store, "fresh", category="build")
    found = {one["name"]: one for one in told("sops")}
    assert list(found) == ["fresh", "deploy"]
    assert [run["tokens"] for run in found["deploy"]["runs"]] == [12_000, 9_000, 4_200, 0]
    assert found["deploy"]["path"] == "sops/deploy/SOP.md"
    lines = run("sops").stdout.splitlines()
    assert lines[1].split() == ["fresh", "build", "sop", "0", "0", "-"]
    assert lines[2].split() == ["deploy", "ops", "code", "4", "3", "12k", "->", "0"]


def test_plot_draws_in_the_terminal(store: MemoryStore) -> None:
    sop(store, "deploy", uses=13, successes=3, runs=RUNS)
    lines = run("plot", "deploy").stdout.splitlines()
    assert lines[1] == "12k │█"
    assert lines[-3] == "    │███"  # a run without tokens has no bar
    assert lines[-2] == "  0 └────"
    assert lines[-1].split() == ["run", "10", "to", "13"]


def test_plot_writes_an_svg_with_axes_labels_and_a_point_a_run(store: MemoryStore, tmp_path: Path) -> None:
    sop(store, "deploy", uses=4, successes=3, runs=RUNS)
    assert run("plot", "deploy", "--svg", str(tmp_path / "d.svg")).exit_code == 0
    root = ET.parse(tmp_path / "d.svg").getroot()
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "deploy: tokens per run" in texts and {"run", "tokens", "0", "1", "4"} <= set(texts)
    points = [(float(one.get("cx", "")), float(one.get("cy", ""))) for one in root.iter(f"{SVG}circle")]
    assert len(points) == 4
    assert points == sorted(points), "from left to right, and the cheaper the lower"
    assert len((next(root.iter(f"{SVG}polyline")).get("points") or "").split()) == 4


def test_plot_of_an_sop_that_is_not_there_is_an_error(store: MemoryStore) -> None:
    result = run("plot", "nothing")
    assert result.exit_code == 1 and "there is no SOP nothing" in result.stderr


def test_charts_of_nothing_of_one_run_and_of_strange_names_can_be_drawn() -> None:
    assert bars([]) == ["no runs yet"]
    assert bars([5])[-1].strip() == "run 1"
    assert bars([0, 0])[-2].endswith("──")
    assert len(bars(range(500), width=40)[0]) < 50
    for values in ([], [3.0], [0.0, 0.0], [1.0] * 300):
        ET.fromstring(svg('<&">\x07部署', values, x="x", y="y"))


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1000, "1k"), (9_540, "9.54k"), (120_000, "120k"), (1_200_000, "1.2M")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_log_tells_who_changed_what_on_which_evidence_newest_last(store: MemoryStore) -> None:
    write(store, "facts/a.md", "## x\n- first\n", "s#3 ran it")
    write(store, "facts/a.md", "## x\n- second\n")
    found = told("log")
    assert [change["path"] for change in found[-2:]] == ["facts/a.md", "facts/a.md"]
    assert found[-2]["evidence"] == ["s#3 ran it"]
    lines = run("log").stdout.splitlines()
    assert "s: facts/a.md; evidence: s#3 ran it" in "\n".join(lines)
    assert lines[-2:] == ["   -- first", "   +- second"]


def test_log_passes_over_a_torn_line_and_names_a_damaged_one(store: MemoryStore) -> None:
    file = Path(store.root, "changes.jsonl")
    whole = file.read_text("utf-8")
    file.write_text(whole + '{"at": 1', "utf-8")
    assert len(told("log")) == len(whole.splitlines())
    file.write_text("damage\n" + whole, "utf-8")
    result = run("log")
    assert result.exit_code == 1 and "changes.jsonl:1" in result.stderr


# -- gc --------------------------------------------------------------------------------------------


def test_gc_changes_nothing_without_yes_and_says_what_it_would_do(store: MemoryStore) -> None:
    write(store, "facts/a.md", "## x\n- one\n- one\n")
    sop(store, "old")
    age(store, "sops/old/SOP.md", 91)
    plan = told("gc")
    assert plan["done"] is False
    assert [merge["kept"]["text"] for merge in plan["merge"]] == ["one"]
    assert [one["name"] for one in plan["unused"]] == ["old"]
    text = run("gc").stdout
    assert "would merge: one" in text and "would put away: sops/old" in text and "--yes" in text
    assert store.read("facts/a.md") == "## x\n- one\n- one\n"
    assert store.sop("old") is not None


def test_gc_merges_exact_duplicates_in_facts_and_log_and_keeps_their_evidence(store: MemoryStore) -> None:
    write(store, "facts/a.md", "# A\n\n## x\n- one\n- mine\n", "s#1 a")
    write(store, "facts/b.md", "# B\n\n## x\n- one\n- other\n", "t#2 b")
    write(
        store, "log.md", "# Log\n\n## Errors\n- e => c (used 2)\n- e => c\n- e => c (used 3)\n\n## Patterns\n- e => c\n"
    )
    assert told("gc", "--yes")["done"] is True
    assert store.read("facts/a.md") == "# A\n\n## x\n- one\n- mine\n"
    assert store.read("facts/b.md") == "# B\n\n## x\n- other\n"
    assert store.read("log.md") == "# Log\n\n## Errors\n- e => c (used 5)\n\n## Patterns\n- e => c\n"
    changes = told("log")
    (merged,) = [change for change in changes if change["path"] == "facts/b.md" and change["who"] == "user"]
    assert merged["evidence"] == ["s#1 a", "t#2 b"] and "facts/a.md" in merged["note"]
    assert merged["what"] == ["-- one"]
    assert told("gc", "--yes")["merge"] == []


def test_gc_proposes_near_duplicates_and_does_not_touch_them(store: MemoryStore) -> None:
    text = "## x\n- the build needs node 20 and pnpm\n- the build needs node 22 and pnpm\n"
    write(store, "facts/a.md", text)
    (pair,) = told("gc", "--yes")["near"]
    assert pair["ratio"] > 0.9
    assert store.read("facts/a.md") == text
    assert "yours to decide" in run("gc").stdout


def test_gc_puts_unused_sops_away_whole_and_leaves_the_others(store: MemoryStore) -> None:
    sop(store, "old", uses=3, successes=3)
    write(store, "sops/old/run.sh", "echo hi\n")
    write(store, "sops/old/case.yaml", "steps: []\n")
    sop(store, "young")
    sop(store, "ran", runs=(Run(int(time.time() - 80 * DAY), 5, True),))
    for path in ("sops/old/SOP.md", "sops/old/run.sh", "sops/old/case.yaml", "sops/ran/SOP.md"):
        age(store, path, 91)
    age(store, "sops/young/SOP.md", 89)
    files = {name: store.read(f"sops/old/{name}") for name in ("SOP.md", "run.sh", "case.yaml")}
    assert "verified by 3 successes" in run("gc").stdout
    (put,) = told("gc", "--yes")["unused"]
    assert (put["name"], put["target"]) == ("old", "archive/sops/old")
    assert {name: store.read(f"archive/sops/old/{name}") for name in files} == files
    assert not Path(store.root, "sops", "old").exists()
    assert [one.name for one in store.sops()] == ["ran", "young"]
    assert "old" not in (store.read("sops/all.md") or "")
    assert run("check").exit_code == 0


def test_gc_never_writes_over_an_sop_that_was_put_away_before(store: MemoryStore) -> None:
    for body in ("First.\n", "Second.\n"):
        sop(store, "old", body=body)
        age(store, "sops/old/SOP.md", 100)
        assert run("gc", "--yes").exit_code == 0
    assert "First." in (store.read("archive/sops/old/SOP.md") or "")
    assert "Second." in (store.read("archive/sops/old-2/SOP.md") or "")


def test_gc_loses_nothing_that_changes_between_the_plan_and_the_deed(store: MemoryStore) -> None:
    write(store, "facts/a.md", "## x\n- one\n")
    write(store, "facts/b.md", "## x\n- one\n- other\n")
    found = plan(store, time.time())
    assert found.merge
    write(store, "facts/a.md", "## x\n- two\n")
    carry_out(store, found)
    assert store.read("facts/b.md") == "## x\n- one\n- other\n"


def test_gc_leaves_an_sop_that_is_used_while_it_is_put_away(store: MemoryStore) -> None:
    sop(store, "old")
    write(store, "sops/old/run.sh", "echo hi\n")
    used = render_sop(Sop("old", ("do old",), "ops", uses=1, body="Do it.\n"))

    class Busy(MemoryStore):
        """A run of the SOP ends when its copy stands in the archive."""

        def commit(self, path: str, *rest: Any, **named: Any) -> Commit:
            if path == "sops/old/SOP.md":
                write(store, path, used)
            return super().commit(path, *rest, **named)

    busy = Busy(store.root)
    carry_out(busy, plan(busy, time.time() + 100 * DAY))
    assert store.read("sops/old/SOP.md") == used
    assert store.read("sops/old/run.sh") == "echo hi\n"


def test_gc_says_so_when_there_is_nothing_to_do(store: MemoryStore) -> None:
    assert run("gc").stdout == "nothing to do\n"


# -- diagnose and check ----------------------------------------------------------------------------


def test_diagnose_prints_the_exact_figures_with_their_marks() -> None:
    reports = told("diagnose")
    assert [report["seed"] for report in reports] == [42, 43, 44]
    for report in reports:
        marks = (report["diagnostic_only"], report["formal_comparison"], report["promotion_eligible"])
        assert marks == (True, False, False)
        assert (report["episodes"], report["decisions"], report["updates"]) == (60, 120, 60)
    text = run("diagnose").stdout
    assert text.count("diagnostic_only = true") == 3
    assert f"hit rate {reports[0]['hit_rate']:.7f}" in text


def test_check_finds_nothing_wrong_in_a_memory_that_gad_alone_has_written(store: MemoryStore, tmp_path: Path) -> None:
    sop(store, "deploy")
    write(store, "facts/a.md", "## x\n- one\n")
    archive(store, tmp_path, "s1", "x")
    assert told("check") == {"ok": True, "problems": []}
    assert run("check").stdout == "nothing is wrong\n"


def problems(*, code: int = 1) -> dict[str, str]:
    return {one["path"]: one["what"] for one in told("check", code=code)["problems"]}


def test_check_finds_what_was_changed_behind_the_writers_path(store: MemoryStore) -> None:
    write(store, "facts/a.md", "## x\n- one\n")
    Path(store.root, "facts", "a.md").write_text("## x\n- something else\n", "utf-8")
    assert "behind" in problems()["facts/a.md"]
    assert "facts/a.md: was changed behind" in run("check").stdout
    write(store, "facts/b.md", "## y\n- two\n")  # the next commit adopts it
    assert problems(code=0) == {}


def test_check_finds_sops_that_cannot_be_read_and_directories_without_one(store: MemoryStore) -> None:
    sop(store, "deploy")
    sop(store, "backup")
    Path(store.root, "sops", "deploy", "SOP.md").write_text("---\nname: deploy\n---\n", "utf-8")
    Path(store.root, "sops", "backup", "SOP.md").rename(Path(store.root, "sops", "backup", "lost.md"))
    store.prepare()
    found = problems()
    assert found.keys() == {"sops/deploy/SOP.md", "sops/backup"}
    assert "triggers" in found["sops/deploy/SOP.md"]


def test_check_finds_an_index_and_listings_that_are_not_current(store: MemoryStore) -> None:
    sop(store, "deploy")
    for path in ("index.md", "sops/all.md", "sops/by/ops.md"):
        Path(store.root, path).write_text("old\n", "utf-8")
    Path(store.root, "sops", "by", "gone.md").write_text("x\n", "utf-8")
    assert problems().keys() == {"index.md", "sops/all.md", "sops/by/ops.md", "sops/by/gone.md"}
    store.prepare()
    assert problems(code=0) == {}


def test_check_leaves_the_users_rules_alone(store: MemoryStore) -> None:
    index = Path(store.root, "index.md")
    index.write_text(index.read_text("utf-8").replace("## Rules\n", "## Rules\nSay please.\n"), "utf-8")
    assert problems(code=0) == {}


def test_check_finds_damage_in_the_archive_and_in_the_changes(store: MemoryStore, tmp_path: Path) -> None:
    first = archive(store, tmp_path, "s1", "x")
    second = archive(store, tmp_path, "s2", "x")
    index = Path(store.root, "archive", "index.jsonl")
    lines = index.read_text("utf-8").splitlines(keepends=True)
    index.write_text("damage\n" + lines[0], "utf-8")
    Path(store.root, first).unlink()
    assert problems().keys() == {"archive/index.jsonl", first, second}
    changes = Path(store.root, "changes.jsonl")
    changes.write_text("damage\n" + changes.read_text("utf-8"), "utf-8")
    assert "changes.jsonl" in problems()
