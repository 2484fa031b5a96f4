"""The archive of ended conversations, and the keeper that fills it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from gad.core.messages import Assistant, Text, ToolCall, ToolResult, Usage
from gad.core.records import (
    Answered,
    Asked,
    Begin,
    Checked,
    Ended,
    Judged,
    Pinned,
    Record,
    Said,
    ScriptRan,
    ToolFinished,
    encode,
)
from gad.core.task import TaskOptions
from gad.errors import GadError
from gad.memory.archive import Archive
from gad.memory.keeper import Keeper, Summary, summarise

NOON = 1_764_504_000.0  # 2025-11-30T12:00:00Z


def conversation(
    task: str,
    *,
    name: str = "s",
    began: float = NOON,
    answer: str = "done",
    output: str = "",
    labels: Sequence[str] = (),
) -> list[Record]:
    call = ToolCall("c1", "code_run", {"code": "ls /srv"})
    usage = Usage(tokens_in=100, tokens_out=10)
    return [
        Begin(began, name, TaskOptions(labels=tuple(labels))),
        Said(began, 1, "input.txt", task),
        Answered(began + 1, 1, Assistant((Text("I look."), call)), "tools", "m", usage, None),
        ToolFinished(began + 2, ToolResult("c1", "ok", output or "a.txt")),
        Answered(began + 3, 2, Assistant((Text(answer),)), "end", "m", usage, None),
        Ended(began + 4, "done"),
    ]


def write(path: Path, records: Sequence[Record], *, torn: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(encode(record), separators=(",", ":")) + "\n" for record in records]
    path.write_text("".join(lines) + torn, "utf-8")
    return str(path)


def keep(archive: Archive, journal: str, **known: Any) -> str:
    summary: dict[str, Any] = {
        "session": "s", "labels": (), "outcome": "done", "turns": 2, "tokens": 220, "task": "the task",
        "began": NOON, "ended": NOON + 4,
    }  # fmt: skip
    return archive.keep(journal, **summary | known)


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def archive(tmp_path: Path, complaints: list[str]) -> Archive:
    return Archive(str(tmp_path / "memory"), report=complaints.append)


# -- keeping ---------------------------------------------------------------------------------------


def test_a_kept_journal_comes_back_record_by_record_without_its_torn_line(archive: Archive, tmp_path: Path) -> None:
    records = conversation("find it")
    path = keep(archive, write(tmp_path / "journal.jsonl", records, torn='{"kind":"ans'))
    assert path == f"archive/2025-11-30/s-{int(NOON * 1000)}.jsonl.zst"
    assert archive.read(path) == [encode(record) for record in records]


def test_the_index_tells_what_is_there_newest_first(archive: Archive, tmp_path: Path) -> None:
    for number in range(3):
        began = NOON + number * 86400
        journal = write(tmp_path / "j", conversation("x", began=began))
        keep(archive, journal, began=began, ended=began + 9, labels=["a", "b"], task=f"\n  task {number}\nmore lines")
    entries = archive.entries()
    assert [(entry.day, entry.task) for entry in entries] == [
        ("2025-12-02", "task 2"),
        ("2025-12-01", "task 1"),
        ("2025-11-30", "task 0"),
    ]
    first = entries[0]
    assert (first.session, first.labels, first.outcome, first.turns, first.tokens) == ("s", ("a", "b"), "done", 2, 220)
    assert first.size == os.path.getsize(tmp_path / "j")


def test_archiving_a_conversation_again_replaces_its_file_and_the_latest_index_line_counts(
    archive: Archive, tmp_path: Path
) -> None:
    records = conversation("find it")
    first = keep(archive, write(tmp_path / "j", records), outcome="failed")
    records += [Said(NOON + 5, 2, "reply.txt", "and now?"), Ended(NOON + 6, "done")]
    again = keep(archive, write(tmp_path / "j", records), outcome="done", turns=3, ended=NOON + 6)
    assert again == first
    assert len(archive.read(again)) == len(records)
    (entry,) = archive.entries()
    assert (entry.outcome, entry.turns) == ("done", 3)
    day = Path(archive.root, "archive", "2025-11-30")
    assert os.listdir(day) == [os.path.basename(first)]


def test_another_conversation_of_the_session_has_a_file_of_its_own(archive: Archive, tmp_path: Path) -> None:
    first = keep(archive, write(tmp_path / "j", conversation("one")))
    second = keep(archive, write(tmp_path / "j", conversation("two", began=NOON + 60)), began=NOON + 60)
    assert first != second
    assert len(archive.entries()) == 2


def test_a_journal_that_has_made_room_for_another_conversation_is_not_taken_for_it(
    archive: Archive, tmp_path: Path
) -> None:
    journal = write(tmp_path / "j", conversation("two", began=NOON + 60))
    with pytest.raises(GadError, match="another conversation"):
        keep(archive, journal, began=NOON)
    assert archive.entries() == []
    assert archive.unlisted() == []


@pytest.mark.parametrize("session", ["", "../s", "a/b", ".hidden", "x\ny"])
def test_a_name_that_is_no_session_is_refused(archive: Archive, tmp_path: Path, session: str) -> None:
    journal = write(tmp_path / "j", conversation("x"))
    with pytest.raises(ValueError, match="not a session's name"):
        keep(archive, journal, session=session)


def test_files_and_directories_are_nobody_elses_to_read(archive: Archive, tmp_path: Path) -> None:
    path = keep(archive, write(tmp_path / "j", conversation("x")))
    root = Path(archive.root)
    for name in (path, "archive/index.jsonl"):
        assert (root / name).stat().st_mode & 0o777 == 0o600
    for name in ("archive", os.path.dirname(path)):
        assert (root / name).stat().st_mode & 0o777 == 0o700


def test_a_link_in_the_journals_place_is_not_followed(archive: Archive, tmp_path: Path) -> None:
    write(tmp_path / "real", conversation("x"))
    os.symlink(tmp_path / "real", tmp_path / "link")
    with pytest.raises(OSError):
        keep(archive, str(tmp_path / "link"))
    assert archive.entries() == []


def test_a_torn_last_index_line_is_passed_over_and_spoils_no_later_line(
    archive: Archive, tmp_path: Path, complaints: list[str]
) -> None:
    assert archive.entries() == []
    keep(archive, write(tmp_path / "j", conversation("x")))
    index = Path(archive.root, "archive", "index.jsonl")
    with open(index, "a", encoding="utf-8") as file:
        file.write('{"day":"2025-11-30","session":"to')
    assert len(archive.entries()) == 1
    assert complaints == []
    keep(archive, write(tmp_path / "j", conversation("x", began=NOON + 1)), began=NOON + 1)
    assert len(archive.entries()) == 2
    assert ["line 2" in complaint for complaint in complaints] == [True]


def test_a_file_that_no_index_line_names_is_found_until_it_is_archived_again(archive: Archive, tmp_path: Path) -> None:
    path = keep(archive, write(tmp_path / "j", conversation("x")))
    Path(archive.root, "archive", "index.jsonl").unlink()
    assert archive.unlisted() == [path]
    keep(archive, str(tmp_path / "j"))
    assert archive.unlisted() == []


_KEEP = """
import sys
from gad.memory.archive import Archive
for number in range(int(sys.argv[3])):
    Archive(sys.argv[1]).keep(sys.argv[2], session=f"s{sys.argv[4]}", labels=(), outcome="done", turns=number,
                              tokens=0, task="x", began=float(sys.argv[5]), ended=float(number))
"""


def test_processes_that_archive_at_once_lose_no_line_and_no_file(archive: Archive, tmp_path: Path) -> None:
    journal = write(tmp_path / "j", conversation("x"))
    command = [sys.executable, "-c", _KEEP, archive.root, journal, "10"]
    started = [subprocess.Popen([*command, str(number % 2), str(NOON)]) for number in range(4)]
    assert [process.wait(30) for process in started] == [0, 0, 0, 0]
    lines = Path(archive.root, "archive", "index.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 40
    assert {entry.session: entry.turns for entry in archive.entries()} == {"s0": 9, "s1": 9}
    assert all(len(archive.read(entry.path)) == 6 for entry in archive.entries())


_KEEP_ON = """
import itertools, sys
from gad.memory.archive import Archive
for number in itertools.count():
    Archive(sys.argv[1]).keep(sys.argv[2], session="s", labels=(), outcome="done", turns=number, tokens=0, task="x",
                              began=float(sys.argv[3]), ended=float(number))
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_leaves_whole_files_a_usable_lock_and_what_was_kept(
    archive: Archive, tmp_path: Path
) -> None:
    journal = write(tmp_path / "j", conversation("x", output=" ".join(map(str, range(50_000)))))
    for round_ in range(6):
        command = [sys.executable, "-c", _KEEP_ON, archive.root, journal, str(NOON)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        kept = [process.stdout.readline() for _ in range(1 + round_)]
        process.kill()
        process.communicate()
        (entry,) = archive.entries()
        assert entry.turns >= int(kept[-1])
        assert len(archive.read(entry.path)) == 6
    keep(archive, journal, ended=1e12)
    assert [name for name in os.listdir(Path(archive.root, "archive", "2025-11-30")) if name.endswith(".tmp")] == []


# -- searching -------------------------------------------------------------------------------------


@pytest.fixture
def filled(archive: Archive, tmp_path: Path) -> Archive:
    """Three conversations, a day apart."""
    told = [
        ("a", conversation("Deploy the Blog", output="rsync: OK\nhost web7 restarted"), "done", ["web"]),
        ("b", conversation("部署博客到服务器", answer="重启了网关服务"), "failed", ["web", "cn"]),
        ("c", conversation("Count the files", answer="There are 17 files on WEB7."), "done", []),
    ]
    for number, (session, records, outcome, labels) in enumerate(told):
        began = NOON + number * 86400
        first, said = records[0], records[1]
        assert isinstance(first, Begin) and isinstance(said, Said)
        records[0] = Begin(began, session, first.options, preamble="recurring words")
        journal = write(tmp_path / session, records)
        keep(
            archive, journal, session=session, began=began, ended=began, outcome=outcome, labels=labels, task=said.text
        )
    return archive


@pytest.mark.parametrize(
    ("words", "sessions"),
    [
        (["web7"], ["c", "a"]),  # in a result and in an answer, newest first, in any case
        (["BLOG"], ["a"]),
        (["deploy", "restarted"], ["a"]),  # one in the task, one in a result
        (["deploy", "17"], []),  # all must occur in one conversation
        (["博客"], ["b"]),
        (["网关"], ["b"]),
        (["ls /srv"], ["c", "b", "a"]),  # what a call asked for
        (["recurring"], []),  # the engine's own words
        (["input.txt"], []),  # nothing but what was said
        ([], ["c", "b", "a"]),
    ],
)
def test_search_finds_what_was_said_and_done(filled: Archive, words: list[str], sessions: list[str]) -> None:
    assert [hit.session for hit in filled.search(words)] == sessions


@pytest.mark.parametrize("word", ["asked this", "check says", "script says", "the user says", "went wrong", "pinned"])
def test_search_looks_at_every_kind_of_text(archive: Archive, tmp_path: Path, word: str) -> None:
    records: list[Record] = [
        *conversation("x")[:2],
        Pinned(NOON, 2, "what is pinned"),
        Asked(NOON, "c", "asked this?"),
        ScriptRan(NOON, 1, "the script says"),
        Checked(NOON, 1, "the check says"),
        Judged(NOON, 3, False, "the user says"),
        Ended(NOON, "failed", "what went wrong"),
    ]
    keep(archive, write(tmp_path / "j", records))
    assert len(archive.search([word])) == 1


def test_search_is_narrowed_by_day_label_outcome_and_limit(filled: Archive) -> None:
    def found(**how: Any) -> list[str]:
        return [hit.session for hit in filled.search(["ls"], **how)]

    assert found(day="2025-12-01") == ["b"]
    assert found(day="2025-12") == ["c", "b"]
    assert found(label="web") == ["b", "a"]
    assert found(outcome="failed") == ["b"]
    assert found(outcome="done", limit=1) == ["c"]
    assert found(limit=0) == []


def test_a_hit_shows_one_line_around_the_first_match(archive: Archive, tmp_path: Path) -> None:
    output = "x " * 200 + "before\nthe NEEDLE is\there " + "y " * 200
    keep(archive, write(tmp_path / "j", conversation("x", output=output)))
    (hit,) = archive.search(["needle"])
    assert "before the NEEDLE is here" in hit.excerpt
    assert hit.excerpt.startswith("…") and hit.excerpt.endswith("…")
    assert "\n" not in hit.excerpt and len(hit.excerpt) < 200
    assert (hit.day, hit.outcome, hit.path) == ("2025-11-30", "done", archive.entries()[0].path)


def test_a_match_that_folding_lengthens_has_an_excerpt_too(archive: Archive, tmp_path: Path) -> None:
    keep(archive, write(tmp_path / "j", conversation("x", output="ß" * 10 + " die Straße")))
    (hit,) = archive.search(["STRASSE"])
    assert "Straße" in hit.excerpt


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flip(data: bytes) -> bytes:
    return data[:-6] + bytes([data[-6] ^ 255]) + data[-5:]


def _not_json(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(b"not json\n")


def _empty(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [_cut, _flip, _not_json, _empty])
def test_damage_in_one_file_is_reported_and_the_others_are_searched(
    filled: Archive, complaints: list[str], damage: Callable[[bytes], bytes]
) -> None:
    damaged = filled.entries()[1].path
    file = Path(filled.root, damaged)
    file.write_bytes(damage(file.read_bytes()))
    assert [hit.session for hit in filled.search(["a.txt"])] == ["c"]
    assert [hit.session for hit in filled.search(["web7"])] == ["c", "a"]
    assert len(complaints) == 2 and all(complaint.startswith(damaged) for complaint in complaints)
    with pytest.raises(GadError):
        filled.read(damaged)


def test_a_file_that_has_gone_is_reported(filled: Archive, complaints: list[str]) -> None:
    Path(filled.root, filled.entries()[0].path).unlink()
    assert [hit.session for hit in filled.search(["web7"])] == ["a"]
    assert len(complaints) == 1


@pytest.mark.parametrize(
    "path", ["../x", "archive/index.jsonl", "archive/2025-11-30/../../x-1.jsonl.zst", "/etc/passwd"]
)
def test_nothing_but_the_archive_is_read(archive: Archive, path: str) -> None:
    with pytest.raises(GadError, match="not a path of the archive"):
        archive.read(path)


def test_a_big_journal_is_kept_and_searched_in_little_memory(archive: Archive, tmp_path: Path) -> None:
    journal = tmp_path / "big"
    write(journal, conversation("x"))
    result = ToolFinished(NOON, ToolResult("c", "ok", "some output " * 2000))
    line = json.dumps(encode(result)) + "\n"
    with open(journal, "a", encoding="utf-8") as file:
        for _ in range(1500):
            file.write(line)
        file.write(json.dumps(encode(Ended(NOON, "failed", "the needle"))) + "\n")
    assert journal.stat().st_size > 30_000_000
    tracemalloc.start()
    try:
        keep(archive, str(journal))
        assert [hit.excerpt for hit in archive.search(["needle"])] == ["the needle"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000


# -- the keeper ------------------------------------------------------------------------------------


def journals(directory: str) -> list[str]:
    return [str(path) for path in sorted(Path(directory).glob("*journal.jsonl"))]


def kept(archive: Archive, scene: Callable[[Keeper], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a scene with a keeper that is at work, and close it."""

    async def whole() -> None:
        keeper = Keeper(archive, journals, **settings)
        working = asyncio.create_task(keeper.run())
        await scene(keeper)
        await keeper.close()
        await working

    asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


def test_a_summary_is_read_from_the_journal(tmp_path: Path) -> None:
    records = [
        *conversation("first line\nsecond", labels=["x"]),
        Said(NOON + 5, 2, "reply.txt", "go on"),
        Ended(NOON + 7, "stopped"),
    ]
    journal = write(tmp_path / "j", records, torn='{"kind"')
    assert summarise(journal) == Summary(("x",), "stopped", 2, 220, "first line\nsecond", NOON, NOON + 7)
    assert summarise(write(tmp_path / "k", records[:4])) is None


def test_the_keeper_archives_what_has_ended(archive: Archive, tmp_path: Path) -> None:
    write(tmp_path / "s" / "journal.jsonl", conversation("do it", labels=["x"]))

    async def scene(keeper: Keeper) -> None:
        keeper.ended(str(tmp_path / "s"), "s")
        await until(archive.entries)

    kept(archive, scene)
    (entry,) = archive.entries()
    assert (entry.session, entry.labels, entry.outcome, entry.turns, entry.tokens, entry.task) == (
        "s", ("x",), "done", 2, 220, "do it",
    )  # fmt: skip


def test_closing_archives_what_is_left(archive: Archive, tmp_path: Path) -> None:
    for number in range(20):
        write(tmp_path / f"s{number}" / "journal.jsonl", conversation("do it", name=f"s{number}"))

    async def scene(keeper: Keeper) -> None:
        for number in range(20):
            keeper.ended(str(tmp_path / f"s{number}"), f"s{number}")

    kept(archive, scene)
    assert {entry.session for entry in archive.entries()} == {f"s{number}" for number in range(20)}


def test_what_is_archived_is_not_archived_again_until_it_has_grown(archive: Archive, tmp_path: Path) -> None:
    journal = tmp_path / "s" / "journal.jsonl"
    write(journal, conversation("do it"))
    index = Path(archive.root, "archive", "index.jsonl")

    async def scene(keeper: Keeper) -> None:
        keeper.ended(str(tmp_path / "s"), "s")

    kept(archive, scene)
    kept(archive, scene)  # a second daemon
    assert len(index.read_text("utf-8").splitlines()) == 1
    more: list[Record] = [Said(NOON + 5, 2, "reply.txt", "more"), Ended(NOON + 6, "failed")]
    write(journal, [*conversation("do it"), *more])
    kept(archive, scene)
    assert len(index.read_text("utf-8").splitlines()) == 2
    assert [entry.outcome for entry in archive.entries()] == ["failed"]


def test_a_former_conversation_that_was_moved_before_its_turn_is_archived_too(archive: Archive, tmp_path: Path) -> None:
    write(tmp_path / "s" / "archived-0001-journal.jsonl", conversation("one"))
    write(tmp_path / "s" / "journal.jsonl", conversation("two", began=NOON + 60)[:3])  # at work

    async def scene(keeper: Keeper) -> None:
        keeper.ended(str(tmp_path / "s"), "s")

    kept(archive, scene)
    assert [entry.task for entry in archive.entries()] == ["one"]


def test_a_failure_is_tried_again_at_the_next_call(
    archive: Archive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "s" / "journal.jsonl", conversation("one"))
    write(tmp_path / "t" / "journal.jsonl", conversation("two", name="t"))
    os.makedirs(archive.root)
    blocked = Path(archive.root, "archive")
    blocked.write_text("in the way", "utf-8")

    async def scene(keeper: Keeper) -> None:
        keeper.ended(str(tmp_path / "s"), "s")
        await until(lambda: "trying again" in caplog.text)
        blocked.unlink()
        keeper.ended(str(tmp_path / "t"), "t")

    with caplog.at_level(logging.WARNING):
        kept(archive, scene)
    assert {entry.session for entry in archive.entries()} == {"s", "t"}


def test_a_damaged_journal_and_a_removed_session_hold_nothing_up(
    archive: Archive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = write(tmp_path / "bad" / "journal.jsonl", conversation("x"))
    with open(lines, "a", encoding="utf-8") as file:
        file.write("damage\n")
    write(tmp_path / "good" / "journal.jsonl", conversation("x", name="good"))

    async def scene(keeper: Keeper) -> None:
        for name in ("bad", "gone", "good", "bad"):
            keeper.ended(str(tmp_path / name), name)

    with caplog.at_level(logging.INFO):
        kept(archive, scene)
    assert [entry.session for entry in archive.entries()] == ["good"]
    assert caplog.text.count("not archived") == 1 and "line 7" in caplog.text


def test_closing_gives_up_after_its_time_and_the_next_keeper_goes_on(
    archive: Archive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        write(tmp_path / name / "journal.jsonl", conversation("x", name=name))
    os.makedirs(Path(archive.root, "archive"))
    lock = Path(archive.root, "archive", ".lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", "import portalocker, sys; f = open(sys.argv[1], 'a+'); portalocker.lock(f, 2);"
         "print('held', flush=True); sys.stdin.read()", str(lock)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"

    async def hurried() -> None:
        keeper = Keeper(archive, journals)
        keeper.ended(str(tmp_path / "a"), "a")
        keeper.ended(str(tmp_path / "b"), "b")
        await keeper.close(0.05)
        holder.communicate(b"")  # the thread that waits for the lock goes on

    with caplog.at_level(logging.WARNING):
        asyncio.run(hurried())
    assert "2 sessions are not archived yet" in caplog.text

    async def scene(keeper: Keeper) -> None:
        keeper.ended(str(tmp_path / "a"), "a")
        keeper.ended(str(tmp_path / "b"), "b")

    kept(archive, scene)
    assert {entry.session for entry in archive.entries()} == {"a", "b"}
