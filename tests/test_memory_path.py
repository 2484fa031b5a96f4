"""The whole path of a recurring task through a real daemon: explored, distilled, followed, codified, broken, mended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bench.rounds import NAME, Round, rows_of, walk
from gad.core.sop import Sop
from gad.memory.store import MemoryStore


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("path")


@pytest.fixture(scope="module")
def walked(place: Path) -> dict[str, Round]:
    return {one.session: one for one in asyncio.run(walk(place))}


def sop(place: Path) -> Sop:
    found = MemoryStore(str(place / "home" / "memory")).sop(NAME)
    assert found is not None
    return found


def kinds(place: Path, session: str) -> list[str]:
    lines = (place / "home" / "spool" / session / "journal.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["kind"] for line in lines]


def test_every_stage_costs_less_than_the_one_before(walked: dict[str, Round]) -> None:
    explored = walked["round-1"]
    followed = [walked[f"round-{number}"] for number in (2, 3, 4)]
    assert explored.requests == 10
    assert [one.requests for one in followed] == [3, 3, 3]
    assert max(one.tokens for one in followed) < explored.tokens / 2


def test_a_codified_sop_asks_no_model(walked: dict[str, Round], place: Path) -> None:
    for session, item in (("round-5", "pears"), ("round-7", "grapes")):
        assert (walked[session].requests, walked[session].tokens) == (0, 0)
        assert {"calling", "answer", "tool_started"}.isdisjoint(kinds(place, session))
        answer = f"item,count\n{item},12\ntotal,12\n"
        assert (place / "home" / "spool" / session / "result.txt").read_text() == answer
        assert answer in (place / "home" / "spool" / session / "output.txt").read_text()
        assert (place / "home" / "work" / session / "report.csv").read_text() == answer


def test_a_broken_script_is_taken_over_and_mended_under_the_gate(walked: dict[str, Round], place: Path) -> None:
    assert 0 < walked["round-6"].requests < walked["round-1"].requests
    found = kinds(place, "round-6")
    assert found.index("script_ran") < found.index("calling")
    journal = (place / "home" / "spool" / "round-6" / "journal.jsonl").read_text("utf-8")
    assert "list is gone since version 2" in journal  # the agent was told what the script printed
    script = (place / "home" / "memory" / "sops" / NAME / "run.sh").read_text()
    assert "stock export" in script and "proof" not in script


def test_the_gate_refused_the_first_script(walked: dict[str, Round], place: Path) -> None:
    journal = (place / "home" / "spool" / f"codify-{NAME}-1" / "journal.jsonl").read_text("utf-8")
    assert "not kept, nothing was changed" in journal and "the check gave exit code 1" in journal
    assert walked[f"codify-{NAME}-1"].requests == 3


def test_the_sop_keeps_the_record_of_all_of_it(walked: dict[str, Round], place: Path) -> None:
    found = sop(place)
    assert (found.stage, found.uses, found.successes, found.failures, found.streak) == ("code", 6, 5, 1, 1)
    assert [run.ok for run in found.runs] == [True, True, True, True, False, True]
    assert [run.tokens == 0 for run in found.runs] == [False, False, False, True, False, True]
    assert found.provenance == ("round-1", f"codify-{NAME}-1", "round-6")
    assert "stock export ITEM" in found.body


def test_what_was_written_names_its_proof(walked: dict[str, Round], place: Path) -> None:
    lines = (place / "home" / "memory" / "changes.jsonl").read_text("utf-8").splitlines()
    told = [line for line in map(json.loads, lines) if line.get("evidence")]
    evidence = {(line["who"], line["path"].rpartition("/")[2]): line["evidence"] for line in told}
    assert evidence["review-round-1-1", "SOP.md"][0].startswith("round-1#8 code_run stock list --csv --total nuts")
    script = evidence[f"codify-{NAME}-1", "run.sh"]
    assert script[0].startswith("round-4#2 code_run") and script[1] == "gate: item=plums: exit code 0, check passed"
    mended = evidence["round-6", "run.sh"]
    assert mended[0].startswith("round-6#1 code_run stock export") and "item=" in mended[1]


def test_the_bench_names_the_published_figures_as_what_they_are(walked: dict[str, Round]) -> None:
    rows = rows_of(list(walked.values()))
    assert all(row.met is not False for row in rows)
    published = [row for row in rows if row.figures["value"] in (222, 66, 36, 23)]
    assert len(published) == 4
    assert all("published of another system, another task" in row.measure for row in published)
    assert all(row.figures["value"] > 0 for row in rows)
