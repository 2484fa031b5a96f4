from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from gad.errors import GadError, Rejected
from gad.spool import drop, names


def test_made_up_names_are_names_and_do_not_repeat() -> None:
    made = {drop.new_session_name(1796019120.0) for _ in range(50)}
    assert len(made) > 45
    assert all(names.valid_session_name(name) for name in made)


def test_the_task_file_is_there_before_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    put = drop.put

    def put_and_tell(directory: Path, name: str, data: bytes) -> None:
        order.append(name)
        put(directory, name, data)

    monkeypatch.setattr(drop, "put", put_and_tell)
    directory = drop.submit(tmp_path, "s", "你好".encode(), "turns: 3\n")
    assert order == ["task.yaml", "input.txt"]
    assert (directory / "input.txt").read_text(encoding="utf-8") == "你好"
    assert (directory / "task.yaml").read_text() == "turns: 3\n"
    assert sorted(os.listdir(directory)) == ["input.txt", "task.yaml"]
    assert (directory / "input.txt").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "../x", "é", "a b", "x" * 129, "x\n"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(GadError, match="is not a session's name"):
        drop.submit(tmp_path, name, b"x")
    assert os.listdir(tmp_path) == []


def test_a_name_that_is_taken_and_a_spool_that_is_not_there(tmp_path: Path) -> None:
    drop.submit(tmp_path, "s", b"first")
    with pytest.raises(GadError, match="exists already"):
        drop.submit(tmp_path, "s", b"second")
    assert (tmp_path / "s/input.txt").read_bytes() == b"first"
    with pytest.raises(GadError, match="gad init"):
        drop.submit(tmp_path / "none", "s", b"x")


@pytest.mark.parametrize("capable", [True, False], ids=["renameat2", "without it"])
def test_a_reply_nobody_took_is_not_overwritten(tmp_path: Path, capable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not capable:
        monkeypatch.setattr(drop, "_rename_new", lambda source, target: False)
    (tmp_path / "s").mkdir()
    drop.reply(tmp_path / "s", b"first")
    with pytest.raises(GadError, match="was not taken"):
        drop.reply(tmp_path / "s", b"second", patience=0.05)
    assert (tmp_path / "s/reply.txt").read_bytes() == b"first"
    assert os.listdir(tmp_path / "s") == ["reply.txt"]


def test_many_replies_at_once_are_each_taken_once(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    directory.mkdir()
    sent = [f"reply {n}".encode() for n in range(20)]
    clients = [threading.Thread(target=drop.reply, args=(directory, text), kwargs={"patience": 30}) for text in sent]
    for client in clients:
        client.start()
    taken: list[bytes] = []
    while len(taken) < len(sent):
        claim = directory / names.claim_name(len(taken) + 1, names.REPLY)
        try:
            os.rename(directory / "reply.txt", claim)
        except FileNotFoundError:
            continue
        taken.append(claim.read_bytes())
        claim.unlink()
    for client in clients:
        client.join()
    assert sorted(taken) == sorted(sent)
    assert os.listdir(directory) == []


def test_stopping_leaves_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(GadError, match="there is no session"):
        drop.stop(tmp_path / "s")
    (tmp_path / "s").mkdir()
    drop.stop(tmp_path / "s")
    drop.stop(tmp_path / "s")
    assert (tmp_path / "s/stop.txt").read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "said"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"x" * 11, "more than 10"), (b"a\xff", "not UTF-8 at byte 1")],
)
def test_what_the_daemon_would_refuse_is_refused_at_once(text: bytes, said: str) -> None:
    with pytest.raises(Rejected, match=said):
        drop.check_text(text, "the text", 10)


@pytest.mark.parametrize("text", ["你好".encode(), "\ufeffhi".encode(), "hi".encode("utf-16")])
def test_what_the_daemon_takes_is_let_through(text: bytes) -> None:
    drop.check_text(text, "the text", 10)


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("input.txt", False),
        ("reply.txt", False),
        ("status.txt", False),
        (".claim-0003-reply.txt", False),
        (".claim-0003-other.txt", True),
        ("archived-0001-output.txt", True),
        ("rejected-0001-input.txt", True),
        (".input.txt.tmp", True),
        ("reply.txt~", True),
        ("notes.md", True),
    ],
)
def test_which_names_mean_nothing(name: str, ignored: bool) -> None:
    assert names.ignored(name) is ignored


def test_names_of_claims_read_back() -> None:
    assert names.parse_claim(names.claim_name(12, "stop.txt")) == (12, "stop.txt")
    assert names.parse_claim(names.claim_name(123456, "reply.txt")) == (123456, "reply.txt")
    assert names.parse_claim(".claim-x-reply.txt") is None
