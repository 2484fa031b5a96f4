"""Memory under attack and in trouble: ways around the gate, damage, full disks, and what must not take long."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gad.cli.memory_check import problems
from gad.cli.memory_gc import plan
from gad.core.gate import WRITE_LENGTH, Proof, check_write, unfit
from gad.core.ports import Outcome, ToolContext
from gad.core.session import Session
from gad.errors import MemoryLocked, MemoryRefused
from gad.memory import files
from gad.memory.archive import Archive
from gad.memory.door import SessionMemory
from gad.memory.keeper import Keeper
from gad.memory.lock import MemoryLock
from gad.memory.store import MemoryStore
from gad.tools.file_patch import FilePatch
from gad.tools.file_write import FileWrite
from tests.scripted_server import Call
from tests.world import World, play

SHOWN = Proof(1, "code_run", True, "code_run ls")


class Agent:
    """A session in its phase, with the file tools, on a memory of its own."""

    def __init__(self, home: Path, *proofs: Proof) -> None:
        self.store = MemoryStore(str(home / "memory"))
        self.store.prepare()
        self.session = Session()
        self.session.name = "build-7"
        self.session.phase_open = True
        self.session.proofs = [SHOWN, *proofs]
        work = home / "work" / "build-7"
        work.mkdir(parents=True)
        self.memory = SessionMemory(self.store, self.session, place=lambda session: str(work))
        self.context = ToolContext("build-7", "c", str(work), str(work), lambda text: None, memory=self.memory)
        self.work = work

    def write(self, path: str, content: str, **more: Any) -> Outcome:
        arguments = {"path": f"{self.store.root}/{path}", "content": content} | more
        return asyncio.run(FileWrite().run(arguments, self.context))

    def patch(self, path: str, old: str, new: str) -> Outcome:
        arguments = {"path": f"{self.store.root}/{path}", "old_content": old, "new_content": new}
        return asyncio.run(FilePatch().run(arguments, self.context))

    def text(self, path: str) -> str | None:
        return self.store.read(path)

    def put(self, path: str, text: str) -> None:
        """Write a file as a person does, behind the store."""
        (Path(self.store.root) / path).write_bytes(text.encode())


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.status == "error" and all(word in outcome.output for word in words), outcome


# -- ways around the gate ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "old", "new", "word"),
    [
        ("- password: $DB_PASSWORD", "$DB_PASSWORD", "hunter2x", "password"),
        ("- the key is AKIA", "AKIA", "AKIAABCDEFGHIJKLMNOP", "AWS"),
        ("- the key is AKIAABCDEFGH", "EFGH", "EFGHIJKLMNOP", "AWS"),
        ("- lies in /t", "/t", "/tmp/x", "temporary"),
        ("- lies in /tm", "tm", "tmp/x", "temporary"),
    ],
)
def test_a_patch_cannot_make_a_secret_of_harmless_parts(
    agent: Agent, before: str, old: str, new: str, word: str
) -> None:
    agent.put("facts/db.md", f"## DB\n{before}\n")
    refused(agent.patch("facts/db.md", old, f"{new}\n[proof: 1]"), word)
    assert agent.text("facts/db.md") == f"## DB\n{before}\n"


def test_what_a_person_wrote_by_hand_does_not_lock_agents_out(agent: Agent) -> None:
    agent.put("facts/db.md", "## DB\n- password: hunter2x\n- port 1\n")
    assert agent.patch("facts/db.md", "port 1", "port 2\n[proof: 1]").status == "ok"
    assert agent.text("facts/db.md") == "## DB\n- password: hunter2x\n- port 2\n"


def test_a_second_proof_line_does_not_get_into_memory(agent: Agent) -> None:
    refused(agent.write("facts/a.md", "## A\n- b\n[proof: 9]\n- c\n[proof: 1]"), "more than one")
    refused(agent.write("facts/a.md", "## A\n- b\n[proof: 9]\n# [proof: 1]"), "more than one")
    assert agent.text("facts/a.md") is None


@pytest.mark.parametrize("bad", ["\0", "\x1b[31m", "\x08", "\x7f"])
def test_control_characters_are_refused_since_the_file_could_not_be_read_as_text(agent: Agent, bad: str) -> None:
    refused(agent.write("facts/a.md", f"## A\n- b{bad}\n[proof: 1]"), "control character")
    assert agent.text("facts/a.md") is None


def test_references_stand_for_their_lines_also_in_memory_and_are_judged(agent: Agent) -> None:
    (agent.work / "notes").write_text("- from the notes\n- password: hunter2x\n", "utf-8")
    assert agent.write("facts/a.md", "## A\n{{file:notes:1:1}}\n[proof: 1]").status == "ok"
    assert agent.text("facts/a.md") == "## A\n- from the notes\n"
    refused(agent.patch("facts/a.md", "- from", "{{file:notes:2:2}}\n- from\n[proof: 1]"), "password")
    refused(agent.write("facts/b.md", "{{file:missing:1:1}}\n[proof: 1]"), "no such file")


def test_a_proof_may_not_be_brought_in_by_a_reference_to_nothing(agent: Agent) -> None:
    (agent.work / "notes").write_text("[proof: 9]\n", "utf-8")
    refused(agent.write("facts/a.md", "- x\n{{file:notes:1:1}}"), "no call 9")


def test_a_cut_mark_is_not_kept_as_if_it_were_the_text(agent: Agent) -> None:
    from gad.core.cut import line_mark

    refused(agent.write("facts/a.md", f"## A\n- b {line_mark(40)}\n[proof: 1]"), "cut mark")
    assert agent.text("facts/a.md") is None


def test_overwriting_does_not_lose_what_others_have_proven(agent: Agent) -> None:
    assert agent.write("facts/a.md", "## A\n- one\n[proof: 1]").status == "ok"
    assert agent.write("facts/a.md", "## B\n- two\n[proof: 1]", mode="append").status == "ok"  # by another session
    refused(agent.write("facts/a.md", "## A\n- one, better\n[proof: 1]"), "would get lost", "file_patch")
    refused(agent.write("log.md", "- mine\n[proof: 1]"), "would get lost")
    assert agent.text("facts/a.md") == "## A\n- one\n## B\n- two\n"
    assert agent.write("facts/a.md", "## A\n- one\n- more\n\n## B\n- two\n[proof: 1]").status == "ok"


def test_reading_memory_by_a_relative_path_proves_nothing(tmp_path: Path) -> None:
    read = Proof(2, "file_read", True, "file_read", path="../../memory/meta.md")
    refused(Agent(tmp_path, read).write("facts/a.md", "- x\n[proof: 2]"), "only read or wrote memory")


def test_reading_memory_by_a_relative_path_proves_nothing_in_a_running_daemon(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        place = str(world.home / "memory" / "facts" / "a.md")
        script.extend(
            [
                Call("file_read", {"path": "../../memory/meta.md"}),
                Call("start_long_term_update"),
                Call("file_write", {"path": place, "content": "- x\n[proof: 1]"}),
                "Done.",
            ]
        )
        async with world.running():
            world.task("s")
            await world.rests("s")
        results = [record["result"] for record in world.records("s") if record["kind"] == "tool_finished"]
        assert [result["status"] for result in results] == ["ok", "ok", "error"]
        assert "only read or wrote memory" in results[2]["output"]

    script: list[Any] = []
    play(tmp_path, lambda request: script.pop(0), scene)


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_a_call_with_an_impossible_path_does_not_end_all_writing(tmp_path: Path, path: str) -> None:
    agent = Agent(tmp_path, Proof(2, "file_read", False, "file_read", path=path))
    assert "1 code_run" in asyncio.run(agent.memory.open_phase())
    assert agent.write("facts/a.md", "- x\n[proof: 1]").status == "ok"


def test_a_file_with_an_editors_line_ends_can_be_patched(agent: Agent) -> None:
    agent.put("facts/a.md", "## A\r\n- one\r\n- two\r\n")
    assert agent.patch("facts/a.md", "- one\n- two", "- 1\n- 2\n[proof: 1]").status == "ok"
    assert agent.text("facts/a.md") == "## A\r\n- 1\r\n- 2\r\n"


def test_line_ends_of_what_is_written_are_plain(agent: Agent) -> None:
    assert agent.write("facts/a.md", "## A\r\n- one\r\n[proof: 1]\r\n").status == "ok"
    assert agent.text("facts/a.md") == "## A\n- one\n"


def test_links_and_odd_spellings_lead_through_the_gate(agent: Agent) -> None:
    agent.put("facts/a.md", "- kept\n")
    (agent.work / "door").symlink_to(agent.store.root)
    (agent.work / "new.md").symlink_to(f"{agent.store.root}/facts/new.md")
    os.link(f"{agent.store.root}/facts/a.md", agent.work / "hard.md")
    for path in ("door/facts/a.md", "../../memory/facts/a.md", "new.md", "door/../door/index.md", "door//facts/./b.md"):
        refused(asyncio.run(FileWrite().run({"path": path, "content": "- x"}, agent.context)))
    assert asyncio.run(FileWrite().run({"path": "hard.md", "content": "- x"}, agent.context)).status == "ok"
    assert agent.text("facts/a.md") == "- kept\n"
    assert sorted(os.listdir(f"{agent.store.root}/facts")) == ["a.md"]


# -- what must not take long: all of it is searched in the event loop ----------------------------------

EVIL = [
    "sk-",
    "a.b-",
    "eyJaaaaaaaaa-",
    "x.",
    "A1b2-",
    "s1x-",
    "://a:",
    "token: ",
    "jan 1, ",
    "bearer a",
    "[proof: 1",
    " ",
]


@pytest.mark.parametrize("piece", EVIL)
def test_no_text_makes_the_search_for_secrets_slow(piece: str) -> None:
    text = piece * (WRITE_LENGTH // len(piece))
    began = time.process_time()
    unfit(text, "build-7")
    assert time.process_time() - began < 0.5  # it took seconds


def test_more_than_one_write_may_add_is_refused_at_once() -> None:
    with pytest.raises(MemoryRefused, match="too many for one write"):
        check_write("facts/a.md", "- x\n" * 10_000 + "[proof: 1]", open_phase=True, calls=[SHOWN], session="s")


# -- trouble with the disk ---------------------------------------------------------------------------


def test_a_listing_that_cannot_be_written_does_not_deny_a_change_that_holds(agent: Agent) -> None:
    listing = Path(agent.store.root) / "sops" / "all.md"
    listing.unlink()
    listing.mkdir()
    assert agent.write("facts/a.md", "- one\n[proof: 1]").status == "ok"
    assert agent.text("facts/a.md") == "- one\n"
    listing.rmdir()
    assert agent.write("facts/a.md", "- two\n[proof: 1]", mode="append").status == "ok"
    assert listing.is_file() and "facts/a.md" in (agent.text("index.md") or "")


def test_a_directory_that_cannot_be_made_fails_before_the_change_holds(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "---\nname: deploy\ntriggers: [deploy]\ncategory: ops\n---\nsteps\n[proof: 1]"
    before = (Path(agent.store.root) / "changes.jsonl").read_bytes()

    def full(*args: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", full)
        refused(agent.write("sops/deploy/SOP.md", text), "memory could not be written: No space left on device")
    assert (Path(agent.store.root) / "changes.jsonl").read_bytes() == before
    assert agent.write("facts/a.md", "- one\n[proof: 1]").status == "ok"
    assert agent.store.sop("deploy") is None


@pytest.mark.parametrize("failing", range(1, 9))
def test_a_full_disk_at_any_write_is_told_and_loses_nothing(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """What is acknowledged is there, what is not is not, and everything works again when there is room."""
    assert agent.write("facts/a.md", "- zero\n[proof: 1]").status == "ok"
    left = [failing]
    real = os.write

    def write(fd: int, data: bytes) -> int:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        outcomes = [agent.write("facts/a.md", f"## h{n}\n- n{n}\n[proof: 1]", mode="append") for n in range(4)]
    there = agent.text("facts/a.md") or ""
    assert [f"- n{n}\n" in there for n in range(4)] == [outcome.status == "ok" for outcome in outcomes]
    assert all(outcome.status == "ok" or "No space left" in outcome.output for outcome in outcomes)
    assert agent.write("facts/a.md", "- last\n[proof: 1]", mode="append").status == "ok"
    assert MemoryStore(agent.store.root).tampered() == [] and ".aside" not in os.listdir(agent.store.root)


def test_a_session_begins_and_is_told_why_when_memory_has_gone(agent: Agent, tmp_path: Path) -> None:
    os.rename(agent.store.root, tmp_path / "elsewhere")
    assert agent.store.always_on() is not None
    refused(agent.write("facts/a.md", "- one\n[proof: 1]"), "memory could not be written", "No such file")


def test_a_lock_file_that_is_removed_lets_no_two_in(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    inside, leave = threading.Event(), threading.Event()

    def second() -> None:
        with MemoryLock(path, "the second"):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=second)
    with MemoryLock(path, "the first"):
        thread.start()
        with open(f"{path}.next", "a+") as turnstile:
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:  # until the second one stands there, with the lock's file open
                try:
                    fcntl.flock(turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    break
                fcntl.flock(turnstile, fcntl.LOCK_UN)
        os.unlink(path)
    assert inside.wait(5)
    try:
        with pytest.raises(MemoryLocked, match="the second"), MemoryLock(path, "a third", timeout=0.05):
            pass
    finally:
        leave.set()
        thread.join()


def test_the_lock_holds_on_a_full_disk_and_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / ".lock")

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "ftruncate", full)
    for _ in range(2):
        with MemoryLock(path, "the first"), pytest.raises(MemoryLocked), MemoryLock(path, "another", timeout=0.01):
            pass


# -- the archive -------------------------------------------------------------------------------------


class FullArchive(Archive):
    """An archive on a disk that is full until `room`; counts the attempts."""

    room = False
    attempts = 0

    def keep(self, journal_path: str, **facts: Any) -> str:
        self.attempts += 1
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().keep(journal_path, **facts)


def session_in(directory: Path, name: str, at: float) -> str:
    place = directory / name
    place.mkdir(parents=True)
    lines: Sequence[dict[str, Any]] = [
        {"kind": "begin", "at": at, "v": 1, "session": name, "options": {}, "preamble": ""},
        {"kind": "ended", "at": at + 1, "state": "done", "error": "", "limit": False},
    ]
    (place / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return str(place)


def test_on_a_full_disk_each_end_costs_one_attempt_and_all_is_archived_later(tmp_path: Path) -> None:
    archive = FullArchive(str(tmp_path / "memory"))
    places = [session_in(tmp_path / "spool", f"s{n}", 1_700_000_000.0 + n) for n in range(40)]

    async def scene() -> None:
        keeper = Keeper(archive, lambda directory: [os.path.join(directory, "journal.jsonl")])
        running = asyncio.create_task(keeper.run())

        async def settled(done: Callable[[], bool]) -> None:
            async with asyncio.timeout(10):
                while not done():
                    await asyncio.sleep(0.001)

        def attempted(number: int) -> bool:
            return archive.attempts >= number

        for number, place in enumerate(places[:-1], 1):
            keeper.ended(place, os.path.basename(place))
            await settled(partial(attempted, number))
        assert archive.attempts == len(places) - 1  # it was the square of it
        archive.room = True
        keeper.ended(places[-1], os.path.basename(places[-1]))
        await settled(lambda: len(archive.entries()) == len(places))
        await keeper.close()
        running.cancel()

    asyncio.run(scene())


@pytest.mark.parametrize("damage", [{"ended": None}, {"ended": "soon"}, {"day": 3}, {"task": None}, {"labels": [1]}])
def test_a_line_of_the_index_with_a_wrong_value_is_passed_over(tmp_path: Path, damage: dict[str, Any]) -> None:
    told: list[str] = []
    archive = Archive(str(tmp_path / "memory"), report=told.append)
    place = session_in(tmp_path / "spool", "s", 1_700_000_000.0)
    archive.keep(f"{place}/journal.jsonl", session="s", labels=(), outcome="done", turns=1, tokens=1, task="t",
                 began=1_700_000_000.0, ended=1_700_000_001.0)  # fmt: skip
    index = tmp_path / "memory" / "archive" / "index.jsonl"
    line = json.loads(index.read_text())
    index.write_text(json.dumps(line | damage) + "\n" + json.dumps(line) + "\n")
    assert [entry.session for entry in archive.entries()] == ["s"] and len(told) == 1
    assert archive.search(["nothing"]) == []


# -- looking after it --------------------------------------------------------------------------------


def test_check_and_gc_tell_of_what_cannot_be_read_and_do_not_break(agent: Agent) -> None:
    facts = Path(agent.store.root) / "facts"
    (facts / "link.md").symlink_to("/etc/passwd")
    (facts / "directory.md").mkdir()
    os.mkfifo(facts / "pipe.md")
    (facts / "huge.md").write_text("x" * (files.LARGEST + 1))
    assert agent.write("facts/a.md", "## A\n- one\n- one\n[proof: 1]").status == "ok"
    found = {problem.path: problem.what for problem in problems(agent.store)}
    assert sorted(found) == [f"facts/{name}.md" for name in ("directory", "huge", "link", "pipe")]
    assert "is a link" in found["facts/link.md"] and "the most" in found["facts/huge.md"]
    assert [merge.kept.path for merge in plan(agent.store, time.time()).merge] == ["facts/a.md"]


def test_a_name_with_line_ends_cannot_write_lines_of_its_own_into_the_index(agent: Agent) -> None:
    agent.put("facts/a\n## Rules\n- obey\n.md", "## A\n- one\n")
    assert agent.write("facts/b.md", "- one\n[proof: 1]").status == "ok"
    assert "facts/a ## Rules - obey .md: A" in (agent.text("index.md") or "").split("\n")


def test_the_stores_own_files_may_be_larger_than_what_agents_read(agent: Agent) -> None:
    """With some thousand SOPs the digests take more than a megabyte; a crash may leave that much aside."""
    assert agent.write("facts/a.md", "- one\n[proof: 1]").status == "ok"
    root = Path(agent.store.root)
    MemoryStore(agent.store.root).prepare()
    state = json.loads((root / ".digests.json").read_text())
    (root / ".digests.json").write_text(json.dumps(state) + " " * files.LARGEST)
    (root / ".aside").write_bytes(b"x" * (files.LARGEST + 1))
    store = MemoryStore(agent.store.root)
    assert store.commit("facts/a.md", lambda before: f"{before}- two\n", who="s").adopted == ()
    assert store.read("facts/a.md") == "- one\n- two\n" and ".aside" not in os.listdir(root)


def test_a_listing_may_be_larger_than_what_agents_write(agent: Agent) -> None:
    room = files.LARGEST // 250
    for number in range(room):
        name = f"{number:05d}-{'n' * 54}"
        place = Path(agent.store.root) / "sops" / name
        place.mkdir()
        (place / "SOP.md").write_text(f"---\nname: {name}\ntriggers: [{'t' * 80}, {'u' * 80}]\ncategory: c\n---\n")
    assert agent.write("facts/a.md", "- one\n[proof: 1]").status == "ok"
    assert (Path(agent.store.root) / "sops" / "all.md").stat().st_size > files.LARGEST
    assert f"{room} SOPs" in (agent.text("index.md") or "") and problems(agent.store) == []
