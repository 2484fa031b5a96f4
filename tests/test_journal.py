"""The journal on disk: cut at every byte, damaged on every line, written on a full disk."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gad.cli import gad
from gad.core.records import Record, encode
from gad.core.report import status_of
from gad.core.session import replay
from gad.errors import JournalDamaged
from gad.home import make_home
from gad.spool.intake import survey
from gad.spool.journal import Journal, load, newest
from gad.spool.kin import options_of
from tests.histories import WHOLE
from tests.scripted_server import ScriptedServer
from tests.world import World, until


def written(path: Path, records: list[Record]) -> bytes:
    journal = Journal(str(path))
    for record in records:
        journal.append(record)
    journal.close()
    return path.read_bytes()


def test_cut_at_every_byte_it_replays_to_the_last_whole_record(tmp_path: Path) -> None:
    data = written(tmp_path / "whole.jsonl", WHOLE)
    path = tmp_path / "journal.jsonl"
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        lines = data[:cut].count(b"\n")
        loaded = load(str(path))
        assert status_of(loaded.session) == status_of(replay(WHOLE[:lines])), cut
        assert loaded.session.history.transcript == replay(WHOLE[:lines]).history.transcript, cut
        assert loaded.torn == cut - (data[:cut].rfind(b"\n") + 1)
        assert path.read_bytes() == data[: cut - loaded.torn]


def test_after_a_cut_the_journal_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    data = written(path, WHOLE)
    for number in range(len(WHOLE)):
        lines = data.splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:number]) + lines[number][: len(lines[number]) // 2])
        load(str(path))
        assert written(path, WHOLE[number:]) == data


@pytest.mark.parametrize("number", range(len(WHOLE) - 1))
def test_damage_before_the_last_line_is_reported_with_its_line_and_the_file_left_alone(
    tmp_path: Path, number: int
) -> None:
    path = tmp_path / "journal.jsonl"
    lines = written(path, WHOLE).splitlines(keepends=True)
    lines[number] = b"#" + lines[number][1:]
    damaged = b"".join(lines) + b'{"kind": "torn'
    path.write_bytes(damaged)
    with pytest.raises(JournalDamaged, match=f"line {number + 1}"):
        load(str(path))
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"null",
        b'{"kind": "unheard-of", "at": 1}',
        b'{"kind": "message", "at": 1}',
        b'{"kind": "begin", "at": 1, "v": 99, "session": "s", "options": {}}',
        b'{"kind": "answer", "at": 1}',
        b"",
        b"[" * 3500,
        b'{"kind": "begin", "at": 1.0, "options": ' + b"[" * 3000,
        json.dumps(encode(WHOLE[-1])).encode(),
    ],
)
def test_a_line_that_is_no_record_or_does_not_follow_is_damage(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(JournalDamaged):
        load(str(path))
    assert survey(str(tmp_path)).settled == ""
    options_of(str(tmp_path))


@pytest.mark.parametrize("line", [b"[" * 3500 + b"\n", None])
def test_who_looks_at_what_is_no_journal_is_told_so(tmp_path: Path, line: bytes | None) -> None:
    make_home(tmp_path / "home")
    directory = tmp_path / "home/spool/s"
    directory.mkdir()
    if line is None:
        os.mkfifo(directory / "journal.jsonl")
    else:
        (directory / "journal.jsonl").write_bytes(line)
    for html in ([], ["--html", str(tmp_path / "page.html")]):
        result = CliRunner().invoke(gad, ["--home", str(tmp_path / "home"), "show", *html, "s"])
        assert (result.exit_code, "journal.jsonl" in result.stderr) == (1, True), result.exc_info


def test_a_journal_that_a_client_has_made_up_hinders_no_other_session(tmp_path: Path) -> None:
    async def scene() -> None:
        async with ScriptedServer(["one"]) as server:
            world = World(tmp_path / "home", server)
            for name, line in (("a", "["), ("b", '{"kind":"begin","at":1e300,"options":[')):
                (world.spool / name).mkdir()
                (world.spool / name / "journal.jsonl").write_text(line * 80 + "[" * 3500 + "\n")
                (world.spool / name / "status.txt").write_text("state: done\n")
            async with world.running():
                world.task("s")
                await world.rests("s")
                assert world.text("s", "result.txt") == "one\n"
                await until(lambda: all(world.status(name).get("state") == "failed" for name in "ab"))

    asyncio.run(scene())


@given(st.binary(min_size=1, max_size=60).filter(lambda tail: b"\n" not in tail))
def test_any_torn_tail_is_cut_off(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    data = written(path, WHOLE[:5])
    path.write_bytes(data + tail)
    assert load(str(path)).torn == len(tail)
    assert path.read_bytes() == data


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    data = written(path, WHOLE[:3])
    journal = Journal(str(path))
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, line: write(fd, line[: len(line) // 2]))
    with pytest.raises(OSError, match="no space"):
        journal.append(WHOLE[3])
    monkeypatch.undo()
    assert path.read_bytes() == data
    journal.append(WHOLE[3])
    assert load(str(path)).torn == 0
    journal.close()


def test_the_newest_records_are_found_without_reading_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert newest(str(path)) == []
    for end in range(1, len(WHOLE) + 1):
        path.unlink(missing_ok=True)
        written(path, WHOLE[:end])
        expected = [json.loads(json.dumps(encode(record))) for record in reversed(WHOLE[:end])]
        found = newest(str(path))
        assert found and found == expected[: len(found)]
        assert len(found) == end or path.stat().st_size > 4096
    path.write_bytes(path.read_bytes() + b"{torn")
    assert newest(str(path)) == []


def test_a_link_in_the_journal_s_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "journal.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        Journal(str(tmp_path / "journal.jsonl"))
