"""The memory controller over real files: what each action does to memory, learning, crashes, several processes."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gad.cli import gad
from gad.core import directive
from gad.core.memcon_policy import Row
from gad.core.memcon_state import ACTIONS
from gad.core.records import Decided, Ended, Record, Said
from gad.core.session import Session, replay
from gad.core.situation import split
from gad.core.sop import Sop, render_sop
from gad.memory.controller import STATE, Controller
from gad.memory.layers import EPISODES, FORGOTTEN, Layers
from gad.memory.store import MemoryStore
from tests.scripted_server import Call, Reply, Say
from tests.test_situation import begun, look, turn
from tests.world import World, until
from tests.world import play as play_world

TASK = "rotate nginx logs"


def sop(name: str, *triggers: str, body: str = "Key steps\n1. do it\n") -> str:
    return render_sop(Sop(name, triggers, "ops", body=body))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = MemoryStore(str(tmp_path_factory.mktemp("filled") / "memory"))
    made.prepare()
    write(made, "sops/rotate-logs/SOP.md", sop("rotate-logs", "rotate logs", "nginx", body="See facts/hosts.md.\n"))
    write(made, "sops/clean-logs/SOP.md", sop("clean-logs", "logs", body="Old logs go first.\n"))
    write(made, "sops/ship-logs/SOP.md", sop("ship-logs", "ship logs elsewhere", body="Ship them.\n"))
    write(made, "facts/nginx.md", "# nginx\n\n## logs\n" + "".join(f"- nginx logs fact {n}\n" for n in range(1, 10)))
    write(made, "facts/hosts.md", "# Hosts\n\n## web\n- web1 serves all pages\n- web2 is its double\n")
    return Path(made.root)


@pytest.fixture
def store(filled: Path) -> Iterator[MemoryStore]:
    with tempfile.TemporaryDirectory() as short:  # so that a directive has room for all that it should name
        yield MemoryStore(str(shutil.copytree(filled, f"{short}/memory")))


def write(store: MemoryStore, path: str, text: str) -> None:
    store.commit(path, lambda before: text, who="user")


def always(index: int, *others: int) -> object:
    """A policy that takes these actions, one after the other, and the last one for ever."""
    left = [index, *others]

    def choose(row: Row, allowed: Collection[int]) -> tuple[int, str]:
        return (left.pop(0) if len(left) > 1 else left[0]), "told to"

    return choose


def controller(store: MemoryStore, *actions: int, now: float = 1000.0) -> Controller:
    if not actions:
        return Controller(store, now=lambda: now)
    return Controller(store, now=lambda: now, policy=always(*actions))  # type: ignore[arg-type]


def session_of(*records: Record, text: str = TASK, **options: object) -> Session:
    return replay([*begun(text, **options), *records])


def decide(made: Controller, session: Session) -> Decided | None:
    """Decide, and let the session take it in as the runner does."""
    found = asyncio.run(made.decide(session))
    if found is not None:
        session.record(found)
    return found


def end(session: Session, state: str = "done") -> None:
    session.record(Ended(200.0, state))  # type: ignore[arg-type]


def play(made: Controller, *, success: bool | None, text: str = TASK, path: str = "/var/log/x") -> Session:
    """One whole task: a decision, a call, an end."""
    session = session_of(text=text)
    decide(made, session)
    for record in look(1, path):
        session.record(record)
    end(session)
    made.ended(session, success)
    return session


def snapshot(root: str, *, but: Collection[str] = ()) -> dict[str, bytes]:
    """All files of memory by path; locks are no content."""
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), root)
            if not name.startswith(".lock") and path not in but:
                found[path] = Path(directory, name).read_bytes()
    return found


def pointed(decided: Decided | None, root: str) -> list[str]:
    assert decided is not None
    return [os.path.relpath(path, root) for path in directive.paths(decided.directive)]


def facts_told(decided: Decided | None) -> int:
    assert decided is not None
    spots = directive.spots(decided.directive)
    return sum(len(spot.lines) for spot in spots if "/facts/" in spot.path)


# -- the nine actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "sops", "facts"), [(0, 1, 3), (1, 2, 5), (2, 3, 8), (7, 1, 2)])
def test_retrieval_points_to_so_many_sops_and_facts(store: MemoryStore, action: int, sops: int, facts: int) -> None:
    found = decide(controller(store, action), session_of())
    assert found is not None and found.action == ACTIONS[action].name
    assert len(found.directive) <= directive.LENGTH and found.directive.startswith("memory: read ")
    named = pointed(found, store.root)
    assert named[0] == "sops/rotate-logs/SOP.md"  # the best one first, with all its lines
    lines = (store.read(named[0]) or "").splitlines()
    pointed_to = [lines[number - 1] for number in directive.spots(found.directive)[0].lines]
    assert pointed_to == ["See facts/hosts.md."]  # without the front matter
    assert len([path for path in named if path.startswith("sops/")]) == sops
    linked = 0 if action == 7 else 2  # the two facts of the file that the SOP names
    assert facts_told(found) == facts + linked


def test_a_link_of_an_sop_is_followed(store: MemoryStore) -> None:
    assert "facts/hosts.md" in pointed(decide(controller(store, 0), session_of()), store.root)
    other = session_of()
    other.name = "other"
    assert "facts/hosts.md" not in pointed(decide(controller(store, 7), other), store.root)


def test_the_plan_of_an_executed_success_is_pointed_to(store: MemoryStore) -> None:
    made = controller(store, 3)
    found = decide(made, session_of())
    assert [path for path in pointed(found, store.root) if path.startswith("plans/")] == []  # none yet
    play(made, success=False, path="/var/log/wrong")
    assert not os.path.exists(os.path.join(store.root, "plans"))
    play(made, success=True, path="/var/log/7/nginx.log")
    found = decide(made, session_of())
    assert pointed(found, store.root)[:2] == ["plans/general.md", "sops/rotate-logs/SOP.md"]
    told = store.read("plans/general.md")
    assert told is not None and told.splitlines()[1:] == ["- file_read /var/log/<id>/nginx.log"]
    assert found is not None and directive.spots(found.directive)[0].lines == (1, 2)


def test_the_alternative_leaves_out_what_was_read(store: MemoryStore) -> None:
    made = controller(store, 0, 4)
    session = session_of()
    decide(made, session)
    reads: list[tuple[str, dict[str, object]]] = [("file_read", {"path": f"{store.root}/sops/rotate-logs/SOP.md"}),
             ("file_read", {"path": f"{store.root}/facts/nginx.md", "start": 4, "count": 5})]  # fmt: skip
    again = [record for number in (2, 3, 4) for record in look(number, "/var/log/x")]
    for record in [*turn(1, *reads), *again]:
        session.record(record)
    found = decide(made, session)
    assert found is not None and (found.point, found.action, found.step) == ("stuck", "alternative", 5)
    named = pointed(found, store.root)
    assert "sops/rotate-logs/SOP.md" not in named and "sops/clean-logs/SOP.md" in named
    lines = {n for spot in directive.spots(found.directive) if spot.path.endswith("nginx.md") for n in spot.lines}
    assert not lines & {4, 5, 6, 7, 8}  # these were read, of the same file


@pytest.mark.parametrize("action", range(9))
def test_l1_is_the_same_bytes_under_every_action(store: MemoryStore, action: int) -> None:
    twice = "# More\n\n## web\n- the site is served by two machines behind one name\n"
    write(store, "facts/more.md", twice + "- the site is served by two machines behind one name\n")
    first = controller(store, 0)
    play(first, success=False)
    play(first, success=True)
    before = store.always_on(), store.read("index.md"), store.read("sops/all.md"), store.read("sops/by/ops.md")
    sops = {path: data for path, data in snapshot(store.root).items() if path.startswith("sops/")}
    made = controller(store, action)
    session = play(made, success=True)
    assert [one.action for one in session.decisions] == [ACTIONS[action].name]
    assert (
        store.always_on(),
        store.read("index.md"),
        store.read("sops/all.md"),
        store.read("sops/by/ops.md"),
    ) == before
    assert MemoryStore(store.root).always_on() == before[0]
    assert {path: data for path, data in snapshot(store.root).items() if path.startswith("sops/")} == sops
    assert session.decisions[0].directive == "" or action not in (5, 6, 8)


def test_consolidating_merges_equal_facts_and_keeps_what_they_were_written_on(store: MemoryStore) -> None:
    same = "- the web server reloads its settings on signal HUP\n"
    for path, session in (("facts/a.md", "one"), ("facts/b.md", "two")):
        text = f"# {path}\n\n## web\n{same}- port {path}\n- port 80\n"
        store.commit(path, lambda before, text=text: text, who=session, evidence=[f"{session}#3 code_run: ok"])  # type: ignore[misc]
    decide(controller(store, 5), session_of())
    assert (store.read("facts/a.md") or "").count(same) == 1
    assert same not in (store.read("facts/b.md") or "")
    for path in ("facts/a.md", "facts/b.md"):  # short, so it may say something else in each file
        assert "- port 80\n" in (store.read(path) or "") and f"- port {path}\n" in (store.read(path) or "")
    last = json.loads(Path(store.root, "changes.jsonl").read_text("utf-8").splitlines()[-1])
    assert last["path"] == "facts/b.md" and last["who"] == "controller" and last["what"] == [f"-{same.strip()}"]
    assert {"one#3 code_run: ok", "two#3 code_run: ok"} <= set(last["evidence"])
    assert any(proof.startswith("facts/a.md: the web server") for proof in last["evidence"])
    before = snapshot(store.root, but={STATE})
    decide(controller(store, 5), session_of())
    assert snapshot(store.root, but={STATE}) == before  # there is nothing more to merge


def test_equal_facts_in_one_file_are_merged_however_short(store: MemoryStore) -> None:
    write(store, "facts/a.md", "# A\n\n## web\n- port 80\n- port 80\n\n## mail\n- port 80\n")
    assert Layers(store).consolidate() == {"facts/a.md:5": "facts/a.md:4"}
    assert store.read("facts/a.md") == "# A\n\n## web\n- port 80\n\n## mail\n- port 80\n"


def test_forgetting_moves_failed_episodes_alone_and_can_be_undone(store: MemoryStore) -> None:
    made = controller(store, 0, 0, 6)
    play(made, success=False)
    play(made, success=True)
    before = snapshot(store.root, but={STATE})
    failed, done = sorted(os.listdir(os.path.join(store.root, EPISODES)))
    assert "failed in 1 steps" in (store.read(f"{EPISODES}/{failed}") or "")
    found = decide(made, session_of())
    assert found is not None and (found.action, found.directive) == ("forget", "")
    assert os.listdir(os.path.join(store.root, EPISODES)) == [done]
    assert os.listdir(os.path.join(store.root, FORGOTTEN)) == [failed]
    assert pointed(decide(controller(store, 2), session_of()), store.root).count(f"{EPISODES}/{failed}") == 0
    assert made.restore() == [f"{EPISODES}/{failed}"]
    assert snapshot(store.root, but={STATE}) == before
    assert made.restore() == []


def test_an_sop_that_failed_is_never_forgotten(store: MemoryStore) -> None:
    bad = render_sop(Sop("bad", ("logs",), "ops", uses=3, failures=3, body="Wrong.\n"))
    write(store, "sops/bad/SOP.md", bad)
    decide(controller(store, 6), session_of())
    assert store.read("sops/bad/SOP.md") == bad


def test_long_conversations_of_the_archive_are_pointed_to_by_their_line(store: MemoryStore) -> None:
    def line(session: str, task: str, outcome: str = "done", turns: int = 20) -> str:
        path = f"archive/2025-11-30/{session}-1.jsonl.zst"
        return json.dumps({"path": path, "session": session, "task": task, "outcome": outcome, "turns": turns}) + "\n"

    lines = [
        line("a", "rotate the nginx logs by hand"),
        line("short", "rotate the nginx logs", turns=2),
        line("bad", "rotate the nginx logs", outcome="failed"),
        line("later", "something else"),
        line("later", "rotate the nginx logs weekly"),  # the latest line of a path counts
        '{"torn',
    ]
    Path(store.root, "archive/index.jsonl").write_text("".join(lines), "utf-8")
    for name in ("rotate", "clean", "ship"):
        store.commit(f"sops/{name}-logs/SOP.md", lambda before: None, who="user")
    found = decide(controller(store, 2), session_of())
    assert found is not None
    spots = {spot.lines for spot in directive.spots(found.directive) if spot.path.endswith("archive/index.jsonl")}
    assert spots == {(1, 5)}


# -- an empty memory, and none ------------------------------------------------------------------------------


def test_an_empty_memory_gives_no_decision_and_writes_nothing(tmp_path: Path) -> None:
    store = MemoryStore(str(tmp_path / "memory"))
    store.prepare()
    before = snapshot(store.root)
    made = controller(store)
    session = session_of()
    assert decide(made, session) is None
    assert made.ended(session, True) is None
    assert snapshot(store.root) == before


def test_a_directory_that_is_not_there_gives_no_decision_and_is_not_made(tmp_path: Path) -> None:
    assert decide(controller(MemoryStore(str(tmp_path / "none"))), session_of()) is None
    assert os.listdir(tmp_path) == []


def test_disabled_means_that_nothing_is_read_or_written(store: MemoryStore) -> None:
    before = snapshot(store.root)
    made = Controller(NoStore(store.root), enabled=False)
    session = session_of()
    assert decide(made, session) is None
    end(session)
    assert made.ended(session, True) is None and made.verdict("e0-1#1", True) is None
    assert snapshot(store.root) == before


@pytest.mark.parametrize("options", [{"memory": False}, {"tools": ("code_run",)}])
def test_a_task_without_memory_or_without_the_tool_to_read_is_left_alone(
    store: MemoryStore, options: dict[str, object]
) -> None:
    assert decide(Controller(NoStore(store.root)), replay(begun(TASK, **options))) is None
    assert not os.path.exists(os.path.join(store.root, STATE))


def test_when_nothing_is_due_no_disk_is_touched(store: MemoryStore) -> None:
    session = session_of()
    decide(controller(store, 0), session)
    for record in look(1):
        session.record(record)
    assert decide(Controller(NoStore(store.root)), session) is None


class NoStore(MemoryStore):
    """A store that must not be used."""

    def __getattribute__(self, name: str) -> object:
        if name in ("locked", "read", "sops", "commit", "always_on", "sop"):
            raise AssertionError(f"{name} was used")
        return super().__getattribute__(name)


# -- learning ---------------------------------------------------------------------------------------------


def values(store: MemoryStore) -> dict[str, object]:
    found = json.loads(Path(store.root, STATE).read_bytes())
    return {json.dumps(row["state"]): row["values"] for row in found["memcon"]["rows"]}


def test_an_outcome_is_credited_and_shown(store: MemoryStore) -> None:
    made = controller(store, 0)
    session = play(made, success=True)
    (outcome,) = made.outcomes("s")
    assert outcome.reward == pytest.approx(1 + 0.3 * (1 - 1 / 30)) and outcome.credited == 1
    assert session.decisions[0].episode == f"{outcome.episode}#1"
    assert outcome.line() == f"memory: success, reward 1.290 credited to 1 decisions (shallow) of {outcome.episode}"
    assert made.outcomes("other") == [] and made.outcomes() == [outcome]
    told = "\n".join(made.told())
    assert "1 tasks, 1 learnt from" in told and "shallow 0.619 (1x)" in told
    assert values(store).popitem()[1][0] == pytest.approx(0.5 + 0.15 * (outcome.reward - 0.5))  # type: ignore[index]


def test_an_unknown_outcome_changes_no_value_and_a_late_verdict_counts_once(store: MemoryStore) -> None:
    made = controller(store, 0)
    session = play(made, success=None)
    before = values(store)
    assert made.outcomes() == []
    assert made.ended(session, None) is None and values(store) == before
    episode = session.decisions[0].episode
    assert made.verdict("e7-ffff#1", False) is None
    outcome = made.verdict(episode, False)
    assert outcome is not None and outcome.reward == pytest.approx(-0.5 + 0.3 * (1 - 1 / 30))
    after = values(store)
    assert after != before
    assert made.verdict(episode, False) is None and made.verdict(episode, True) is None
    assert made.ended(session, True) is None
    assert values(store) == after and made.outcomes() == [outcome]


def test_a_verdict_by_the_session_counts_too(store: MemoryStore) -> None:
    made = controller(store, 0)
    session = play(made, success=None)
    assert (outcome := made.ended(session, True)) is not None and outcome.success
    assert made.ended(session, False) is None


def test_a_verdict_says_nothing_of_an_episode_under_way(store: MemoryStore) -> None:
    made = controller(store, 0)
    session = session_of()
    assert (found := decide(made, session)) is not None
    assert made.verdict(found.episode, True) is None
    end(session)
    assert (outcome := made.ended(session, False)) is not None and not outcome.success


def test_the_next_round_under_way_is_not_taken_for_the_one_that_is_over(store: MemoryStore) -> None:
    made = controller(store, 0)
    session = session_of()
    decide(made, session)
    end(session)
    session.record(Said(210.0, 2, "reply.txt", "and the apache logs"))
    assert (second := decide(made, session)) is not None and second.episode.endswith("#2")
    outcome = made.ended(session, True)
    assert outcome is not None and f"{outcome.episode}#1" == session.decisions[0].episode
    assert made.ended(session, True) is None


def test_a_record_tells_of_the_task_without_secrets(store: MemoryStore) -> None:
    play(controller(store, 0), success=True, text="rotate the logs\npassword: hunter2hunter")
    (name,) = os.listdir(os.path.join(store.root, EPISODES))
    assert store.read(f"{EPISODES}/{name}") == "rotate the logs\ndone in 1 steps: file_read /var/log/x\nsession: s\n"
    assert all(b"hunter2" not in data for data in snapshot(store.root).values())
    assert os.stat(os.path.join(store.root, EPISODES, name)).st_mode & 0o777 == 0o600
    assert os.stat(os.path.join(store.root, EPISODES)).st_mode & 0o777 == 0o700


def test_it_learns_what_works(store: MemoryStore) -> None:
    # Its size stays in the highest bin, so that the state is the same in each task of the warm stage.
    write(store, "facts/many.md", "# Many\n\n## many\n" + "".join(f"- fact {n}\n" for n in range(50)))
    made = controller(store)
    for _ in range(50):
        session = session_of()
        found = decide(made, session)
        assert found is not None
        end(session)
        made.ended(session, found.action == "none")
    last = [one.actions[0] for one in made.outcomes()[-15:]]
    assert last.count("none") > 8


# -- crashes ----------------------------------------------------------------------------------------------


def test_a_decision_that_the_journal_did_not_get_is_found_again(store: MemoryStore) -> None:
    first = asyncio.run(controller(store).decide(session_of()))
    state = Path(store.root, STATE).read_bytes()
    session = session_of()
    again = asyncio.run(controller(store).decide(session))  # another daemon, the same session from its journal
    assert first is not None and again == first
    assert Path(store.root, STATE).read_bytes() == state
    session.record(again)
    end(session)
    assert (outcome := controller(store).ended(session, True)) is not None and outcome.credited == 1


def test_saving_in_the_middle_of_an_episode_changes_nothing(tmp_path: Path) -> None:
    def run(root: Path, fresh: bool) -> object:
        made = MemoryStore(str(root))
        made.prepare()
        write(made, "facts/a.md", "# A\n\n## logs\n- the nginx logs are large\n")
        one = controller(made)
        seen = []
        for task in range(20):
            session = session_of()
            for point in range(2):
                one = controller(made) if fresh else one
                found = decide(one, session)
                assert found is not None
                seen.append((found.action, found.state, found.point))
                for number in range(3) if point == 0 else ():
                    for record in look(number + 1):
                        session.record(record)
            end(session)
            one = controller(made) if fresh else one
            one.ended(session, task % 3 == 0)
        return seen, values(made)

    assert run(tmp_path / "kept", False) == run(tmp_path / "fresh", True)


def test_killed_between_decision_and_outcome_nothing_is_lost_or_counted_twice(store: MemoryStore) -> None:
    """A process decides and dies by SIGKILL at once, each time before its journal could tell."""
    code = """
import asyncio, os, sys
from tests.test_controller import *
store = MemoryStore(sys.argv[1])
found = asyncio.run(Controller(store).decide(session_of()))
print(found.episode, found.action, flush=True)
os.kill(os.getpid(), 9)
"""
    told = set()
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", code, store.root], capture_output=True, text=True, check=False)
        assert ran.returncode == -9, ran.stderr
        told.add(ran.stdout)
    assert len(told) == 1
    session = session_of()
    made = controller(store)
    assert (found := decide(made, session)) is not None and told == {f"{found.episode} {found.action}\n"}
    end(session)
    assert (outcome := made.ended(session, True)) is not None and outcome.credited == 1
    assert sum(json.loads(Path(store.root, STATE).read_bytes())["memcon"]["rows"][0]["counts"]) == 1


def test_killed_at_any_moment_nothing_acknowledged_is_lost(store: MemoryStore) -> None:
    code = """
import sys
from tests.test_controller import *
made = Controller(MemoryStore(sys.argv[1]))
for number in range(1000):
    session = replay(begun("rotate nginx logs"))
    session.name = f"{sys.argv[2]}-{number}"
    decide(made, session)
    end(session)
    print(made.ended(session, number % 2 == 0).episode, flush=True)
"""
    told: list[str] = []
    for run in range(3):
        command = [sys.executable, "-c", code, store.root, str(run)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            told += [worker.stdout.readline().strip() for _ in range(7 + run)]
            worker.kill()
            told += worker.stdout.read().split()
    made = controller(store)
    session = play(made, success=True)  # whoever comes next finds no lock in his way
    known = {one.episode for one in made.outcomes()}
    assert {*told, split(session.decisions[0].episode)[0]} <= known
    assert len(known) <= len(told) + 1 + 3  # what was learnt when the kill came, and not told any more
    found = json.loads(Path(store.root, STATE).read_bytes())["memcon"]
    assert found["updates"] == len(known) and found["task_index"] <= len(known) + 3
    assert not list(Path(store.root).glob(f"{STATE}.damaged*")) and store.tampered() == []


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"schema": 99}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_state_is_put_aside_and_a_new_one_begun(
    store: MemoryStore, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    play(controller(store, 0), success=True)
    path = Path(store.root, STATE)
    path.write_bytes(damage)
    with caplog.at_level(logging.ERROR):
        assert controller(store).told() == [] and controller(store).outcomes() == []  # looking changes nothing
        assert path.read_bytes() == damage
        session = play(controller(store, 7), success=True)
    assert "put aside" in caplog.text
    assert Path(store.root, f"{STATE}.damaged-1000000").read_bytes() == damage
    assert len(session.decisions) == 1 and len(controller(store).outcomes()) == 1


def test_a_link_in_the_states_place_is_not_followed(store: MemoryStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}", "utf-8")
    Path(store.root, STATE).symlink_to(outside)
    assert len(play(controller(store, 0), success=True).decisions) == 1
    assert outside.read_text("utf-8") == "{}" and not Path(store.root, STATE).is_symlink()


def test_another_generations_episode_is_not_mistaken(store: MemoryStore) -> None:
    session = play(controller(store, 0), success=None)
    Path(store.root, STATE).unlink()
    other = play(controller(store, 0), success=None)
    assert other.decisions[0].episode != session.decisions[0].episode
    assert controller(store).verdict(session.decisions[0].episode, True) is None
    assert controller(store).verdict(other.decisions[0].episode, True) is not None


def test_a_locked_memory_does_not_stop_a_session(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.memory.controller.PATIENCE", 0.05)
    monkeypatch.setattr("gad.memory.controller.REST", 0.0)
    made = Controller(store)
    session = session_of()
    with store.locked("a test"), caplog.at_level(logging.WARNING):
        assert decide(made, session) is None
    assert "goes on without" in caplog.text and "a test" in caplog.text
    assert decide(made, session) is None  # this round stays as it is
    end(session)
    made.ended(session, True)
    session.record(Said(210.0, 2, "reply.txt", "again"))
    assert decide(made, session) is not None


def test_when_one_has_waited_in_vain_the_others_do_not_wait(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gad.memory.controller.PATIENCE", 0.05)
    monkeypatch.setattr("gad.memory.controller.REST", 1000.0)

    async def run() -> list[Decided | None]:
        made = Controller(store)
        sessions = [session_of() for _ in range(12)]
        for number, session in enumerate(sessions):
            session.name = f"s{number}"
        return await asyncio.gather(*(made.decide(session) for session in sessions))

    with store.locked("a test"), caplog.at_level(logging.WARNING):
        assert asyncio.run(run()) == [None] * 12
    assert caplog.text.count("a test") == 1 and caplog.text.count("a moment ago") == 11


# -- several at once ----------------------------------------------------------------------------------------


def _work(root: str, name: str, tasks: int) -> None:
    made = Controller(MemoryStore(root))
    for number in range(tasks):
        session = replay([*begun(f"rotate the nginx logs {name}")])
        session.name = f"{name}-{number}"
        decide(made, session)
        end(session)
        made.ended(session, number % 2 == 0)


def test_processes_at_once_lose_nothing(store: MemoryStore) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(store.root, name, 10)) for name in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    made = controller(store)
    outcomes = made.outcomes()
    assert len(outcomes) == len({one.episode for one in outcomes}) == len({one.session for one in outcomes}) == 20
    found = json.loads(Path(store.root, STATE).read_bytes())
    assert found["memcon"]["updates"] == found["memcon"]["task_index"] == 20
    assert sum(sum(row["counts"]) for row in found["memcon"]["rows"]) == 20
    records = [*os.listdir(os.path.join(store.root, EPISODES))]
    forgotten = os.path.join(store.root, FORGOTTEN)
    assert len(records) + (len(os.listdir(forgotten)) if os.path.isdir(forgotten) else 0) == 20
    assert store.tampered() == []


def test_sessions_at_once_in_one_process(store: MemoryStore) -> None:
    async def run() -> list[Decided | None]:
        made = controller(store)
        sessions = [session_of() for _ in range(12)]
        for number, session in enumerate(sessions):
            session.name = f"s{number}"
        return await asyncio.gather(*(made.decide(session) for session in sessions))

    found = asyncio.run(run())
    assert len({one.episode for one in found if one is not None}) == 12


# -- in a running daemon ------------------------------------------------------------------------------------


def test_a_decision_is_journalled_shown_followed_and_learnt_from(tmp_path: Path) -> None:
    script: list[Any] = []

    async def scene(world: World) -> None:
        made = MemoryStore(str(world.home / "memory"))
        async with world.running():
            write(made, "sops/rotate-logs/SOP.md", sop("rotate-logs", "rotate logs"))
            script.extend([Call("file_read", {"path": f"{made.root}/sops/rotate-logs/SOP.md"}), "Done."])
            world.task("s", TASK, check="true")
            await world.rests("s")
            await until(lambda: Controller(made).outcomes("s"))
        first, second = (
            json.dumps(request.body["messages"][-1], ensure_ascii=False) for request in world.server.requests
        )
        text = (made.read("sops/rotate-logs/SOP.md") or "").splitlines()
        told = f"memory: read {made.root}/sops/rotate-logs/SOP.md:{text.index('Key steps') + 1}-{len(text)}"
        assert told in first and "memory: read" not in second  # it was followed, so it does not stand there any more
        (record,) = [one for one in world.records("s") if one["kind"] == "decided"]
        assert record["directive"] == told and record["point"] == "start" and record["action"] == "shallow"
        (outcome,) = Controller(made).outcomes()
        assert outcome.success and outcome.credited == 1 and record["episode"] == f"{outcome.episode}#1"
        shown = CliRunner().invoke(gad, ["--home", str(world.home), "show", "s"])
        assert "memory: shallow at start, step 0" in shown.output and told in shown.output
        assert "memory: success, reward 1.290 credited to 1 decisions (shallow)" in shown.output

    play_world(tmp_path, lambda request: script.pop(0), scene)


def test_controller_off_decides_nothing(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        made = MemoryStore(str(world.home / "memory"))
        async with world.running():
            write(made, "sops/rotate-logs/SOP.md", sop("rotate-logs", "rotate logs"))
            world.task("s", TASK, check="true")
            await world.rests("s")
        assert "decided" not in world.kinds("s") and not (world.home / "memory" / STATE).exists()

    play_world(tmp_path, Reply((Say("Done."),)), scene, settings={"memory": {"controller": False}})
