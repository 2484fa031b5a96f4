"""Journals that another version of gad has written: read where they can be, left alone and told of where not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gad import __version__
from gad.core.records import KINDS, VERSION, Begin, Record, Said, decode, encode
from gad.core.task import TaskOptions
from gad.errors import JournalDamaged, JournalTooNew
from gad.spool.journal import load
from gad.spool.rounds import read_records
from tests.scripted_server import ScriptedServer
from tests.world import World, play, until

BEGIN: dict[str, Any] = encode(Begin(1.0, "s", TaskOptions(model="test"), gad="9.8.7"))
SAID = encode(Said(1.0, 1, "input.txt", "do it"))

NEWER = {
    "a newer format": [BEGIN | {"v": VERSION + 1, "shape": "another"}, {"kind": "speech", "words": "do it"}],
    "an unknown kind": [BEGIN, SAID, {"kind": "dreamt", "at": 2.0, "of": "sheep"}],
    "an unknown field": [BEGIN, SAID | {"mood": "good"}],
}


def write(directory: Path, records: list[dict[str, Any]], tail: str = "") -> bytes:
    directory.mkdir(exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records) + tail
    (directory / "journal.jsonl").write_text(data)
    return data.encode()


@pytest.mark.parametrize("records", NEWER.values(), ids=list(NEWER))
def test_what_a_newer_gad_has_written_is_left_as_it_is(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    data = write(tmp_path / "s", records, tail='{"kind": "torn')
    path = tmp_path / "s/journal.jsonl"
    for read in (load, read_records):
        with pytest.raises(JournalTooNew) as caught:
            read(str(path))
        said = str(caught.value)
        assert f"this is gad {__version__}" in said and "begun by gad 9.8.7" in said
        assert "go back to that gad, or drop an input.txt" in said
        assert path.read_bytes() == data


def test_nothing_but_a_version_is_repeated_of_what_stands_there(tmp_path: Path) -> None:
    write(tmp_path / "s", [BEGIN | {"v": 2, "gad": "1\n\x1b[31m" + "x" * 500}])
    with pytest.raises(JournalTooNew) as caught:
        load(str(tmp_path / "s/journal.jsonl"))
    assert "begun by gad ?" in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5])
def test_what_is_no_version_is_damage(tmp_path: Path, version: Any) -> None:
    write(tmp_path / "s", [BEGIN | {"v": version}])
    with pytest.raises(JournalDamaged) as caught:
        load(str(tmp_path / "s/journal.jsonl"))
    assert not isinstance(caught.value, JournalTooNew)


def test_every_kind_of_record_is_read_back_and_none_with_more_in_it() -> None:
    from tests.histories import WHOLE

    seen: set[type[Record]] = set()
    for record in WHOLE:
        seen.add(type(record))
        told = json.loads(json.dumps(encode(record)))
        assert decode(told) == record
        with pytest.raises(JournalTooNew, match="with the unknown later"):
            decode(told | {"later": 1})
    assert len(seen) > len(KINDS) // 2


@pytest.mark.parametrize("records", NEWER.values(), ids=list(NEWER))
def test_its_session_fails_with_what_to_do_and_the_same_journal_works_again_later(
    tmp_path: Path, records: list[dict[str, Any]]
) -> None:
    async def scene(world: World) -> None:
        data = write(world.spool / "s", records)
        async with world.running():
            await world.rests("s", "failed")
            error = world.status("s")["error"]
            assert "begun by gad 9.8.7" in error and "damaged" not in error
            world.put("s", "reply.txt", "go on")  # it waits for a gad that knows the journal
            world.task("other")
            await world.rests("other")
            assert world.text("s", "reply.txt") == "go on"
        assert (world.spool / "s/journal.jsonl").read_bytes() == data
        # The gad that has written it: here, one that finds the records that it knows.
        write(world.spool / "s", [BEGIN, SAID])
        async with world.running():
            await until(lambda: world.status("s")["state"] == "done")

    play(tmp_path, ["fine"] * 3, scene, settings={"memory": {"enabled": False}})


def test_a_new_input_begins_anew_and_keeps_it_aside(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        data = write(world.spool / "s", NEWER["a newer format"])
        async with world.running():
            await world.rests("s", "failed")
            world.task("s", "begin anew")
            await world.rests("s")
        assert (world.spool / "s/archived-0001-journal.jsonl").read_bytes() == data
        begin = world.records("s")[0]
        assert (begin["v"], begin["gad"]) == (VERSION, __version__)

    play(tmp_path, ["fine"], scene)


def test_a_session_at_rest_shows_what_it_came_to_whoever_wrote_it(tmp_path: Path) -> None:
    """Nothing is asked of it, so nothing is read but its end; a message to it makes it fail, and is kept."""

    async def scene() -> None:
        async with ScriptedServer(["fine"] * 2) as server:
            world = World(tmp_path / "home", server)
            async with world.running():
                world.task("s")
                await world.rests("s")
            lines = world.text("s", "journal.jsonl").splitlines()
            first = json.dumps(json.loads(lines[0]) | {"v": 2, "gad": "9.8.7"})
            (world.spool / "s/journal.jsonl").write_text("\n".join([first, *lines[1:], ""]))
            async with world.running():
                world.task("other")
                await world.rests("other")
                assert world.status("s")["state"] == "done"
                world.put("s", "reply.txt", "and now?")
                await until(lambda: world.status("s")["state"] == "failed")
                assert "begun by gad 9.8.7" in world.status("s")["error"]
                assert world.text("s", "reply.txt") == "and now?" and world.text("s", "result.txt") == "fine\n"

    asyncio.run(scene())
