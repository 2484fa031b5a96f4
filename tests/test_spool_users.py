"""A spool that several users share: who may do what, quotas, modes under any umask, and what is no plain file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import socket
import stat
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gad.config import load as load_config
from gad.core.admission import Admission
from gad.errors import ConfigError, GadError
from gad.spool import drop, names
from gad.spool.claim import Rules, Steadiness, claim, read_claim
from gad.spool.files import NotRegular, open_own
from gad.spool.group import group_id, loose, make_spool
from gad.spool.intake import Intake
from gad.spool.ledger import Ledger, midnight
from gad.spool.live import Live
from gad.spool.lock import held
from gad.spool.watch import Watch
from tests.scripted_server import Call, Reply, Say, Silence, serve_in_thread
from tests.test_crash import wait_for
from tests.world import World, play, until

OK = Reply((Say("ok"),))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as several users")


def _users() -> list[pwd.struct_passwd]:
    """Return two users who share a group, and one who does not belong to it."""
    known = [user for user in pwd.getpwall() if user.pw_uid and user.pw_gid]
    for one in known:
        for other in known:
            if one.pw_uid < other.pw_uid and one.pw_gid == other.pw_gid:
                third = next(user for user in known if user.pw_gid != one.pw_gid)
                return [one, other, third]
    pytest.skip("needs two users of this machine who share a primary group")


@pytest.fixture
def users() -> list[pwd.struct_passwd]:
    return _users()


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may pass through."""
    place = Path(tempfile.mkdtemp(prefix="gad-users-", dir="/tmp"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def become(user: pwd.struct_passwd, groups: list[int], umask: int) -> None:
    os.setgroups(groups)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    os.umask(umask)


def as_user(user: pwd.struct_passwd, work: Callable[[], Any], umask: int = 0o077) -> Any:
    """Return what a function returns in a process of this user; its exception is an AssertionError here."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        told: Any = ["died"]
        try:
            become(user, [user.pw_gid], umask)
            told = ["ok", work()]
        except BaseException as exc:
            told = ["failed", f"{type(exc).__name__}: {exc}"]
        finally:
            os.write(writing, json.dumps(told).encode())
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(process, 0)
    kind, *found = json.loads(data or '["died", "without a word"]')
    assert kind == "ok", found
    return found[0]


# -- what is no plain file ------------------------------------------------------------------------


def put_kind(kind: str, path: Path, outside: Path) -> None:
    """Put something into the place of a client's file."""
    match kind:
        case "link":
            path.symlink_to(outside)
        case "dangling link":
            path.symlink_to(outside.parent / "missing")
        case "hard link":
            os.link(outside, path)
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
        case "directory":
            path.mkdir()
        case "device":
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero


KINDS = ["link", "dangling link", "hard link", "pipe", "socket", "directory"]


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("device", marks=as_root)])
def test_what_is_no_plain_file_is_refused_for_every_client_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    outside = tmp_path / "outside"
    outside.write_text("ok not yours")

    async def scene(world: World) -> None:
        spool = Path("home/spool")
        others = [name for name in names.CLIENT_FILES if name not in (names.INPUT, names.TASK)]
        async with world.running():
            for name in others:
                world.task(f"of-{name}")
            for name in others:
                await world.rests(f"of-{name}")
                aside = spool / f"of-{name}" / ".x"
                put_kind(kind, aside, outside)
                aside.rename(aside.parent / name)
            for name in (names.INPUT, names.TASK):
                (spool / f".of-{name}").mkdir()
                put_kind(kind, spool / f".of-{name}" / name, outside)
                if name == names.TASK:
                    (spool / f".of-{name}" / names.INPUT).write_text("go")
                (spool / f".of-{name}").rename(spool / f"of-{name}")
            for name in names.CLIENT_FILES:
                await until(lambda name=name: world.status(f"of-{name}").get("state") == "rejected")  # type: ignore[misc]
                assert name in world.status(f"of-{name}")["error"]
                kept = [one for one in world.files(f"of-{name}") if one.startswith("rejected-") and one.endswith(name)]
                assert len(kept) == 1
        assert outside.read_text() == "ok not yours"
        for name in names.CLIENT_FILES:
            assert "not yours" not in world.text(f"of-{name}", "journal.jsonl")

    play(tmp_path, OK, scene)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_a_claim_that_is_swapped_as_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not yours")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "reply.txt").write_text("hello")
    assert claim(str(tmp_path / "s"), "reply.txt", 1)
    path, looked = tmp_path / "s" / names.claim_name(1, "reply.txt"), os.lstat
    swapped: list[str] = []

    def swap(found: Any) -> os.stat_result:
        before = looked(found)
        if str(found) == str(path) and not swapped:
            swapped.append(kind)
            path.unlink()
            put_kind(kind, path, outside)
        return before

    monkeypatch.setattr(os, "lstat", swap)
    rules, steadiness = Rules(1000, frozenset({os.geteuid()})), Steadiness()
    taken = read_claim(str(tmp_path / "s"), 1, "reply.txt", rules, steadiness)
    if taken is None:  # a second link is given a moment
        time.sleep(0.25)  # what the rule for files without a lease waits for
        taken = read_claim(str(tmp_path / "s"), 1, "reply.txt", rules, steadiness)
    assert swapped and taken is not None and taken.problem and not taken.text


# -- what the daemon writes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [names.OUTPUT, names.STATUS, names.RESULT, ".status.txt.tmp", ".result.txt.tmp"])
@pytest.mark.parametrize("kind", ["link", "hard link", "dangling link"])
def test_nothing_is_written_through_what_a_client_has_put_there(tmp_path: Path, name: str, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was")

    async def scene(world: World) -> None:
        (world.spool / "s").mkdir()
        put_kind(kind, world.spool / "s" / name, outside)
        async with world.running():
            world.put("s", "input.txt", "go")
            await until(lambda: "ended" in world.kinds("s"))
            await world.rests("s")
        assert world.text("s", "result.txt") == "ok\n"

    play(tmp_path, OK, scene)
    assert outside.read_text() == "as it was" and not (tmp_path / "missing").exists()


def test_a_session_s_directory_that_becomes_a_link_while_it_is_open_is_left(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("s")
            await until(lambda: len(world.server.requests) == 1)
            (world.spool / "s").rename(tmp_path / "moved")
            (world.spool / "s").symlink_to(outside)
            await until(lambda: "s" not in daemon._work.runners and "s" not in daemon._roster.live)
            world.task("t")
            await world.rests("t")
        assert os.listdir(outside) == []
        assert "answer" not in (tmp_path / "moved" / "journal.jsonl").read_text()

    play(tmp_path, [Reply((Say("late"),), wait=0.3), "ok"], scene)


def test_a_directory_that_is_replaced_in_the_middle_of_a_look_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    whole = read_claim
    swapped: list[str] = []

    async def scene(world: World) -> None:
        def swap(directory: str, *rest: Any) -> Any:
            if not swapped:
                swapped.append(directory)
                (world.spool / "s").rename(tmp_path / "moved")
                (world.spool / "s").symlink_to(outside)
            return whole(directory, *rest)

        monkeypatch.setattr("gad.spool.intake.read_claim", swap)
        async with world.running():
            world.task("s", "secret")
            await until(lambda: swapped)
            world.task("t")
            await world.rests("t")
        assert os.listdir(outside) == []
        assert "secret" in (tmp_path / "moved" / "journal.jsonl").read_text()  # what was open is what was meant

    play(tmp_path, OK, scene)


def test_a_stop_for_a_child_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "stop.txt").symlink_to(tmp_path / "made")
    with pytest.raises(GadError, match="no regular file"):
        drop.stop(tmp_path / "s")
    (tmp_path / "s" / "stop.txt").unlink()
    os.mkfifo(tmp_path / "s" / "stop.txt")
    with pytest.raises(GadError, match="no regular file"):
        drop.stop(tmp_path / "s")
    (tmp_path / "t").symlink_to(tmp_path / "s")
    with pytest.raises(OSError):
        drop.stop(tmp_path / "t")
    assert not (tmp_path / "made").exists()


@as_root
def test_a_journal_that_somebody_else_has_put_there_is_no_journal(
    tmp_path: Path, users: list[pwd.struct_passwd]
) -> None:
    async def scene(world: World) -> None:
        forged = world.put("s", "journal.jsonl", '{"kind":"begin","at":1,"v":1,"session":"s","options":{}}\n')
        os.chown(forged, users[0].pw_uid, -1)
        live = Live(str(world.spool / "s"))
        live.load()
        live.close()
        assert f"belongs to user {users[0].pw_uid}" in live.damage and str(world.spool) in live.damage

    play(tmp_path, OK, scene)


def test_the_daemon_s_own_files_have_one_name(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "output.txt").write_text("")
    os.link(tmp_path / "s" / "output.txt", tmp_path / "other")
    with pytest.raises(NotRegular, match="2 hard links"):
        open_own(str(tmp_path / "s" / "output.txt"), os.O_WRONLY)


# -- whose a session is ---------------------------------------------------------------------------


@as_root
def test_a_session_is_its_owner_s_alone(open_place: Path, users: list[pwd.struct_passwd]) -> None:
    one, other, stranger = users

    async def scene(world: World) -> None:
        def put(user: pwd.struct_passwd, session: str, name: str, text: str) -> None:
            path = world.spool / session / name
            as_user(user, lambda: path.write_text(text), umask=0o022)

        for place in (world.home, world.spool):
            place.chmod(0o777)
        for session in ("s", "t", "u", "v"):
            (world.spool / session).mkdir()
            (world.spool / session).chmod(0o777)
        async with world.running() as daemon:
            put(one, "s", "input.txt", "mine")
            await world.rests("s")
            assert world.records("s")[0]["owner"] == one.pw_uid
            for number, name in enumerate(["reply.txt", "context.txt", "stop.txt", "verdict.txt", "input.txt"], 1):
                put(other, "s", name, "ok yours?")
                await until(lambda number=number: world.kinds("s").count("rejected") == number)  # type: ignore[misc]
                await until(lambda name=name: name in world.status("s").get("error", ""))  # type: ignore[misc]
                error = world.status("s")["error"]
                assert f"user {other.pw_name}" in error and f"user {one.pw_name}" in error and "of your own" in error
            assert world.kinds("s").count("message") == 1 and len(world.server.requests) == 1
            with open(world.spool / "s" / "reply.txt", "w") as held_open:  # and is not finished
                os.fchown(held_open.fileno(), other.pw_uid, -1)
                held_open.write("wait for me")
                held_open.flush()
                daemon.poke("s")
                await until(lambda: world.kinds("s").count("rejected") == 6)
            put(one, "s", "reply.txt", "mine again")
            await world.rests("s", round=2)
            world.put("s", "reply.txt", "root may")
            await world.rests("s", round=3)
            put(stranger, "t", "input.txt", "I may not")
            await world.rests("t", "rejected", round=0)
            assert f"user {stranger.pw_name}, who may not give tasks" in world.status("t")["error"]
            put(other, "u", "task.yaml", "check: touch /tmp/never\n")
            put(one, "u", "input.txt", "with another's options")
            await world.rests("u", "rejected", round=0)
            assert f"belongs to user {other.pw_name}" in world.status("u")["error"]
            put(other, "v", "task.yaml", "parent: s\n")
            put(other, "v", "input.txt", "part of another's work")
            await world.rests("v", "rejected", round=0)
            assert "another user's session" in world.status("v")["error"]
            world.task("w", "what the agent hands in", parent="s")
            await world.rests("w")
            assert world.records("w")[0]["owner"] == one.pw_uid

    settings = {"spool": {"users": [one.pw_name, other.pw_name]}}
    play(open_place, OK, scene, settings=settings)


# -- a group's spool ------------------------------------------------------------------------------


@pytest.fixture
def warm(tmp_path: Path) -> None:
    """Import all that a session needs, while that can be read."""

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")

    play(tmp_path, OK, scene)


@as_root
@pytest.mark.parametrize("mode", ["3770", "2770"])
def test_a_group_shares_a_spool_under_any_umask(
    open_place: Path, warm: None, users: list[pwd.struct_passwd], mode: str
) -> None:
    one, other, owner = users
    with serve_in_thread(OK) as server:
        world = World(open_place / "home", server, spool={"group": str(one.pw_gid), "mode": mode})
        world.home.chmod(0o755)
        for path in (world.home, *world.home.iterdir()):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        process = os.fork()
        if not process:
            try:
                become(owner, [owner.pw_gid, one.pw_gid], 0o077)

                async def serve() -> None:
                    async with world.running():
                        while not (world.home / "work" / "end").exists():
                            await asyncio.sleep(0.05)

                asyncio.run(serve())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        try:
            wait_for(lambda: (world.spool / names.DAEMON_DIR / "status.txt").exists())
            wait_for(lambda: world.daemon is None and held(str(world.spool)))
            assert f"{stat.S_IMODE(world.spool.stat().st_mode):o}" == mode
            assert stat.S_IMODE((world.spool / names.DAEMON_DIR).stat().st_mode) == 0o710
            for user, session in ((one, "s"), (other, "t")):
                as_user(user, lambda session=session: drop.submit(world.spool, session, b"go", "turns: 3\n") and None)  # type: ignore[misc]
                wait_for(lambda session=session: world.status(session).get("state") == "done")  # type: ignore[misc]
                assert stat.S_IMODE((world.spool / session).stat().st_mode) == 0o2770
                for name in (names.OUTPUT, names.RESULT, names.STATUS, names.JOURNAL):
                    found = (world.spool / session / name).stat()
                    assert stat.S_IMODE(found.st_mode) == 0o640 and found.st_gid == one.pw_gid, name
            result = world.spool / "s" / "result.txt"
            assert as_user(one, result.read_text) == as_user(other, result.read_text) == "ok\n"
            assert as_user(one, lambda: held(str(world.spool)))
            as_user(other, lambda: drop.reply(world.spool / "s", b"me too"))
            wait_for(lambda: world.status("s").get("state") == "rejected")
            as_user(one, lambda: drop.reply(world.spool / "s", b"more"))
            wait_for(lambda: world.status("s").get("round") == 2 and world.status("s").get("state") == "done")
            stranger = next(
                user
                for user in pwd.getpwall()
                if user.pw_uid not in (0, one.pw_uid, other.pw_uid, owner.pw_uid) and user.pw_gid != one.pw_gid
            )
            with pytest.raises(AssertionError, match="PermissionError"):
                as_user(stranger, lambda: (drop.submit(world.spool, "x", b"go"), None)[1])
            removing = lambda: os.rename(world.spool / "s", world.spool / ".mine")  # noqa: E731
            if mode == "3770":
                with pytest.raises(AssertionError, match="PermissionError"):
                    as_user(other, removing)
            else:
                as_user(other, removing)
        finally:
            (world.home / "work" / "end").touch()
            assert os.waitpid(process, 0)[1] == 0


@as_root
def test_where_the_bit_may_not_be_set_it_is_inherited(
    open_place: Path, users: list[pwd.struct_passwd], monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_place / "spool"
    make_spool(str(spool), users[0].pw_gid, 0o3770)

    def refused(path: Any, mode: int) -> None:
        raise PermissionError(1, "as a service does")

    monkeypatch.setattr(os, "chmod", refused)
    as_user(users[0], lambda: (drop.submit(spool, "s", b"go"), None)[1])
    assert stat.S_IMODE((spool / "s").stat().st_mode) == 0o2770
    assert (spool / "s").stat().st_gid == users[0].pw_gid
    assert (spool / "s" / "input.txt").stat().st_mode & stat.S_IRGRP


@as_root
def test_a_group_that_this_user_may_not_give_is_named_with_the_mend(
    open_place: Path, users: list[pwd.struct_passwd]
) -> None:
    one, _, owner = users
    spool = open_place / "spool"
    spool.mkdir()
    os.chown(spool, owner.pw_uid, owner.pw_gid)
    with pytest.raises(ConfigError, match="there is no group '²'"):
        group_id("²")
    with pytest.raises(AssertionError, match=f"ConfigError.*as root: chgrp {one.pw_gid} {spool} && chmod 3770"):
        as_user(owner, lambda: make_spool(str(spool), one.pw_gid, 0o3770))


def test_a_new_spool_is_its_owner_s_alone_and_a_loose_one_is_told_of(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    make_spool(str(spool), None, 0o3770)
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700 and loose(str(spool), None) == ""
    spool.chmod(0o770)
    assert "chmod 0700" in loose(str(spool), None)
    spool.chmod(0o777)
    assert "chmod o-rwx" in loose(str(spool), 100)


# -- quotas ---------------------------------------------------------------------------------------


DEAR = {"scripted": {"input": 1000, "output": 1000}}


def hand_in(world: World, session: str, user: int, text: str = "go") -> None:
    (world.spool / f".{session}").mkdir()
    path = world.spool / f".{session}" / "input.txt"
    path.write_text(text)
    os.chown(path, user, -1)
    (world.spool / f".{session}").rename(world.spool / session)


@as_root
def test_a_user_s_sessions_wait_for_each_other_and_nobody_else_s_do(
    tmp_path: Path, users: list[pwd.struct_passwd]
) -> None:
    one, other, _ = users

    async def scene(world: World) -> None:
        async with world.running():
            hand_in(world, "a1", one.pw_uid)
            await world.rests("a1", "running")
            hand_in(world, "a2", one.pw_uid)
            await until(lambda: "quota.sessions" in world.status("a2").get("waiting", ""))
            assert world.status("a2")["state"] == "queued" and one.pw_name in world.status("a2")["waiting"]
            hand_in(world, "b1", other.pw_uid)
            await world.rests("b1", "running")
            world.task("root1")
            world.task("root2")
            await world.rests("root1", "running")
            await world.rests("root2", "running")
            hand_in(world, "a3", one.pw_uid)
            await world.rests("a3", "queued")
            world.put("a3", "stop.txt", "")
            await world.rests("a3", "stopped")  # ending a session takes no place
            world.put("a1", "stop.txt", "")
            await world.rests("a2", "running")
            await until(lambda: "waiting" not in world.status("a2"))

    settings = {"spool": {"users": [one.pw_name, other.pw_name]}, "quota": {"sessions": 1}}
    play(tmp_path, Reply((Silence(),)), scene, settings=settings)


@as_root
def test_who_gets_a_place_in_the_middle_of_a_look_is_over_the_quota_all_the_same(
    tmp_path: Path, users: list[pwd.struct_passwd], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in, user = Live.take_in, users[0].pw_uid
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def take_in_late(self: Live, *arguments: Any, **options: Any) -> Intake:
        if self.name == "a2":
            looked.set()
            await go_on.wait()
        return await take_in(self, *arguments, **options)

    async def scene(world: World) -> None:
        async with world.running() as daemon:
            world.task("root")
            await world.rests("root", "running")
            for session in ("a1", "a2"):
                hand_in(world, session, user)
                await world.rests(session, "queued")
            await until(lambda: "a2" not in daemon._roster.live)
            monkeypatch.setattr(Live, "take_in", take_in_late)
            daemon.poke("a2")
            await looked.wait()
            world.put("root", "stop.txt", "")
            await world.rests("a1")
            go_on.set()
            await until(lambda: "quota.per_day" in world.status("a2").get("waiting", ""))
            assert world.kinds("a2") == ["begin", "message"]

    settings = {"spool": {"users": [users[0].pw_name]}, "quota": {"per_day": 1}, "sessions": 1}
    play(tmp_path, [Reply((Silence(),)), "ok", "ok"], scene, settings=settings)


@as_root
def test_a_session_that_is_stopped_before_it_begins_does_not_count(
    tmp_path: Path, users: list[pwd.struct_passwd]
) -> None:
    user = users[0].pw_uid

    async def scene(world: World) -> None:
        async with world.running():
            hand_in(world, "a1", user)
            await world.rests("a1", "running")
            hand_in(world, "a2", user)
            await until(lambda: "quota.sessions" in world.status("a2").get("waiting", ""))
            for session in ("a2", "a1"):
                world.put(session, "stop.txt", "")
                await world.rests(session, "stopped")
            hand_in(world, "a3", user)
            await world.rests("a3", "running")

    settings = {"spool": {"users": [users[0].pw_name]}, "quota": {"sessions": 1, "per_day": 2}}
    play(tmp_path, Reply((Silence(),)), scene, settings=settings)


@as_root
@pytest.mark.parametrize("quota", [{"per_day": 2}, {"usd_per_day": 0.001}], ids=["sessions", "dollars"])
def test_what_is_over_the_day_s_quota_waits_for_the_next_day(
    tmp_path: Path, users: list[pwd.struct_passwd], monkeypatch: pytest.MonkeyPatch, quota: dict[str, float]
) -> None:
    one, other, _ = users
    key = next(iter(quota))

    async def scene(world: World) -> None:
        async with world.running():
            hand_in(world, "a1", one.pw_uid)
            await world.rests("a1")
            if key == "per_day":
                hand_in(world, "a2", one.pw_uid)
                await world.rests("a2")
        async with world.running() as daemon:  # a restart does not forget
            hand_in(world, "a3", one.pw_uid)
            await until(lambda: f"quota.{key}" in world.status("a3").get("waiting", ""))
            assert world.status("a3")["state"] == "queued"
            hand_in(world, "b1", other.pw_uid)
            await world.rests("b1")
            world.task("root")
            await world.rests("root")
            assert world.status("a3")["state"] == "queued"
            monkeypatch.setattr("gad.spool.ledger._today", lambda: "2999-01-01")
            daemon.poke("a3")
            await world.rests("a3")

    settings = {"spool": {"users": [one.pw_name, other.pw_name]}, "quota": quota, "prices": DEAR}
    play(tmp_path, OK, scene, settings=settings)


@as_root
def test_a_session_at_work_ends_when_its_user_s_dollars_are_used_up(
    tmp_path: Path, users: list[pwd.struct_passwd]
) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            hand_in(world, "a1", users[0].pw_uid)
            found = await world.rests("a1", "failed")
            assert "quota.usd_per_day" in found["error"]

    settings = {"spool": {"users": [users[0].pw_name]}, "quota": {"usd_per_day": 0.001}, "prices": DEAR}
    play(tmp_path, [Call("code_run", {"type": "bash", "code": "true"})], scene, settings=settings)


def test_a_child_of_a_session_at_work_counts_against_nobody_s_places() -> None:
    queue = Admission(10, 10, each=1)
    queue.enqueue("parent", None, priority=0, since=1.0, user=7)
    assert queue.take() == "parent"
    queue.enqueue("child", "parent", priority=0, since=2.0, user=7)
    queue.enqueue("next", None, priority=9, since=3.0, user=7)
    assert queue.take() == "child" and queue.take() is None and queue.at_work(7) == 1
    queue.leave("parent")  # then the child has a place of its own
    assert queue.at_work(7) == 1 and queue.take() is None
    queue.leave("child")
    assert queue.take() == "next"


def test_the_oldest_of_those_who_may_comes_next_whosever_it_is() -> None:
    queue = Admission(3, 10, each=1)
    for name, user, since in (
        ("a1", 1, 1.0),
        ("a2", 1, 2.0),
        ("b1", 2, 3.0),
        ("free1", None, 4.0),
        ("free2", None, 5.0),
    ):
        queue.enqueue(name, None, priority=0, since=since, user=user)
    assert [queue.take() for _ in range(4)] == ["a1", "b1", "free1", None]
    queue.resize(9, 10, each=None)
    assert [queue.take() for _ in range(3)] == ["a2", "free2", None]


def test_the_ledger_counts_by_user_and_survives_what_is_in_its_file(tmp_path: Path) -> None:
    (tmp_path / names.DAEMON_DIR).mkdir()
    ledger = Ledger(str(tmp_path))
    ledger.spend("a", 1.0, 7)
    ledger.spend("b", 2.0)
    ledger.begin("a", 1.5, 7)
    ledger.begin("a", 1.5, 7)
    with open(tmp_path / names.DAEMON_DIR / "spend.jsonl", "a") as file:
        file.write('[1]\n"x"\n{"day": 3}\n{"torn')
    again = Ledger(str(tmp_path))
    assert again.spent_today() == 3.0 and again.spent_today(7) == 1.0 and again.begun_today(7) == 1
    now = time.time()
    assert 0 < midnight(now) - now <= 90_000 and time.localtime(midnight(now))[3:6] == (0, 0, 0)


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("spool: {mode: 2770}", "spool.mode: has no meaning without spool.group"),
        ("spool: {group: g, mode: 0777}", "spool.mode: must be one of 2770, 3770"),
        ("spool: {min_free: much}", "spool.min_free: must be a size"),
        ("spool: {min_free: [1]}", "spool.min_free: must be a size"),
        ("quota: {sessions: 0}", "quota.sessions: must be a whole number"),
        ("quota: {a_day: 3}", "quota.a_day: unknown key"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "gad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=f"gad.yaml:1: {line}"):
        load_config(tmp_path, {})


@pytest.mark.parametrize(
    ("size", "number"),
    [("100MB", 10**8), ("1.5 gb", 1_500_000_000), ("4096", 4096), ("2KB", 2000), ("off", 0), ("0", 0)],
)
def test_sizes(tmp_path: Path, size: str, number: int) -> None:
    (tmp_path / "gad.yaml").write_text(f"spool: {{min_free: {size}}}")
    assert load_config(tmp_path, {}).spool.min_free == number


def test_a_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        with pytest.raises(ConfigError, match=r"spool\.group: there is no group 'no-such-group'.*groupadd"):
            async with world.running():
                pass

    play(tmp_path, OK, scene, settings={"spool": {"group": "no-such-group"}})


@as_root
def test_a_directory_that_opens_up_after_it_was_made_is_watched_then(
    open_place: Path, warm: None, users: list[pwd.struct_passwd]
) -> None:
    open_place.chmod(0o777)

    def work() -> list[str]:
        looks: list[str] = []
        watch = Watch(str(open_place), looks.append, lambda: None)
        watch.start()
        (open_place / "s").mkdir(mode=0)
        watch.covers("s")
        (open_place / "s").chmod(0o700)
        watch.covers("s")
        looks.clear()
        (open_place / "s" / "input.txt").write_text("go")
        with contextlib.suppress(AssertionError):
            wait_for(lambda: looks)
        watch.stop()
        return [*looks[:1], watch.problem]

    assert as_user(users[0], work) == ["s", ""]
