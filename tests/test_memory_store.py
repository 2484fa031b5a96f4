"""The store: nothing that was acknowledged is lost, nothing is read half, whoever writes, dies or meddles."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.memory_commits import storm
from gad.core.memory_index import rules_of
from gad.core.sop import Run, Sop, parse_sop, render_sop, with_run
from gad.errors import MemoryLocked, MemoryRefused
from gad.memory.lock import MemoryLock
from gad.memory.store import Commit, MemoryStore

FACT = "# Hosts\n\n## Web\n- one\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    MemoryStore(str(tmp_path / "memory")).prepare()
    return tmp_path / "memory"


def put(root: Path, path: str, text: str | None, who: str = "s", timeout: float = 10.0, **more: Any) -> Commit:
    return MemoryStore(str(root), timeout=timeout).commit(path, lambda before: text, who=who, **more)


def changes(root: Path, path: str | None = None) -> list[dict[str, Any]]:
    lines = map(json.loads, (root / "changes.jsonl").read_text("utf-8").splitlines())
    return [line for line in lines if path in (None, line["path"])]


def fresh(root: Path) -> MemoryStore:
    return MemoryStore(str(root))


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)  # polling


# What is there


def test_an_empty_memory_is_made_for_its_owner_alone(root: Path) -> None:
    for place in (root, root / "facts", root / "sops", root / "sops" / "by", root / "archive"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    for file in ("meta.md", "index.md", "log.md", "changes.jsonl", "sops/all.md"):
        assert stat.S_IMODE((root / file).stat().st_mode) == 0o600
    assert fresh(root).tampered() == []
    assert "(empty)" in fresh(root).always_on() and str(root) in fresh(root).always_on()


def test_preparing_again_changes_nothing_and_keeps_what_the_user_wrote(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    fresh(root).prepare()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    (root / "meta.md").write_text("<!-- core -->\nMine.\n<!-- /core -->\n", "utf-8")
    put(root, "facts/a.md", FACT)
    fresh(root).prepare()
    assert "\nMine.\n" in fresh(root).always_on()


def test_a_commit_tells_what_it_did(root: Path) -> None:
    made = put(root, "facts/hosts.md", FACT, who="build-7", evidence=["build-7#3 curl"], note="found")
    assert (made.path, made.who, made.changed, made.added, made.removed) == ("facts/hosts.md", "build-7", True, 4, 0)
    assert (root / "facts/hosts.md").read_text() == FACT
    again = put(root, "facts/hosts.md", FACT)
    assert not again.changed
    put(root, "facts/hosts.md", FACT.replace("- one", "- two"))
    first, second = changes(root, "facts/hosts.md")
    assert (first["who"], first["evidence"], first["note"]) == ("build-7", ["build-7#3 curl"], "found")
    assert first["before"] is None and second["before"] == first["after"]
    assert second["what"] == ["-- one", "+- two"] and (second["added"], second["removed"]) == (1, 1)
    assert abs(second["at"] - time.time()) < 60


def test_a_file_ends_with_a_line_end(root: Path) -> None:
    put(root, "log.md", "## Errors\n- a")
    assert fresh(root).read("log.md") == "## Errors\n- a\n"


def test_the_index_and_the_listings_follow(root: Path) -> None:
    store = fresh(root)
    put(root, "facts/hosts.md", FACT)
    put(root, "sops/ship/SOP.md", render_sop(Sop("ship", ("deploy", "release"), "delivery")))
    assert "facts/hosts.md: Web" in store.always_on() and "delivery (deploy, release)" in store.always_on()
    assert (root / "sops/all.md").read_text() == "ship: deploy, release -> sops/ship/SOP.md\n"
    assert (root / "sops/by/delivery.md").read_text() == (root / "sops/all.md").read_text()
    assert [sop.name for sop in store.sops()] == ["ship"] and store.sop("ship") == store.sops()[0]
    put(root, "sops/ship/SOP.md", render_sop(Sop("ship", ("deploy",), "ops")))
    assert os.listdir(root / "sops/by") == ["ops.md"]
    assert put(root, "sops/ship/SOP.md", None).removed
    assert "ops" not in store.always_on() and os.listdir(root / "sops/by") == [] and not (root / "sops/ship").exists()
    assert store.sops() == [] and store.sop("ship") is None


def test_rules_stay_as_they_are(root: Path) -> None:
    rules = "- answer in German\r\n\n  - briefly \xff"
    index = (root / "index.md").read_bytes().replace(b"## Rules\n", b"## Rules\n" + rules.encode("latin-1") + b"\n")
    (root / "index.md").write_bytes(index)
    put(root, "facts/hosts.md", FACT)
    assert (root / "index.md").read_bytes().startswith(index.partition(b"## Facts")[0])
    assert "- answer in German" in fresh(root).always_on()
    (root / "index.md").unlink()
    put(root, "facts/other.md", FACT)
    assert rules_of((root / "index.md").read_text()) == ""


def test_an_sop_that_cannot_be_read_is_told_not_lost(root: Path) -> None:
    put(root, "sops/good/SOP.md", render_sop(Sop("good", ("x",), "c")))
    (root / "sops/bad").mkdir()
    (root / "sops/bad/SOP.md").write_text("# by hand\n")
    put(root, "facts/a.md", FACT)
    assert fresh(root).broken().keys() == {"bad"} and [sop.name for sop in fresh(root).sops()] == ["good"]
    assert "bad: (cannot be read: sops/bad/SOP.md: an SOP begins" in (root / "sops/all.md").read_text()


def test_a_thousand_sops_do_not_make_a_commit_slow(root: Path) -> None:
    for number in range(1000):
        (root / f"sops/s{number}").mkdir()
        (root / f"sops/s{number}/SOP.md").write_text(render_sop(Sop(f"s{number}", ("x",), f"c{number % 20}")))
    store = fresh(root)
    assert len(store.commit("facts/a.md", lambda before: FACT, who="s").adopted) == 1000
    wait_for(lambda: time.time() - (root / "sops/s999/SOP.md").stat().st_ctime > 0.2)
    began = time.process_time()
    for uses in range(5):
        store.commit("sops/s7/SOP.md", lambda before, n=uses: render_sop(Sop("s7", ("x",), "c7", uses=n + 1)), who="s")  # type: ignore[misc]
    assert (time.process_time() - began) / 5 < 0.25
    assert store.tampered() == []


# What is refused

OUTSIDE = "a link, or no regular file"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x.md", "is no path in memory"),
        ("facts/../../x.md", "is no path in memory"),
        ("/etc/hosts", "is no path in memory"),
        ("facts//a.md", "is no path in memory"),
        ("", "is no path in memory"),
        ("facts/a\0.md", "is no path in memory"),
        ("index.md", "is generated"),
        ("sops/all.md", "is generated"),
        ("sops/by/c.md", "is generated"),
        ("changes.jsonl", "not written by commits"),
        (".lock", "not written by commits"),
        (".digests.json", "not written by commits"),
        ("link.md", OUTSIDE),
        ("facts/link.md", OUTSIDE),
        ("facts/pipe.md", OUTSIDE),
        ("facts/directory.md", OUTSIDE),
        ("away/a.md", OUTSIDE),
        ("sops/away/SOP.md", OUTSIDE),
        ("log.md/a", OUTSIDE),
    ],
)
def test_a_path_leads_nowhere_else(root: Path, tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "SOP.md").write_text("outside")
    for link in ("link.md", "facts/link.md"):
        (root / link).symlink_to(tmp_path / "away" / "SOP.md")
    for link in ("away", "sops/away"):
        (root / link).symlink_to(tmp_path / "away")
    os.mkfifo(root / "facts/pipe.md")
    (root / "facts/directory.md").mkdir()
    with pytest.raises(MemoryRefused, match=reason):
        put(root, path, "- a\n")
    assert os.listdir(tmp_path / "away") == ["SOP.md"] and (tmp_path / "away" / "SOP.md").read_text() == "outside"
    assert put(root, "facts/other.md", FACT).changed
    if reason == OUTSIDE:
        with pytest.raises(MemoryRefused):
            fresh(root).read(path)


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("sops/a/SOP.md", "no front matter\n", "front matter"),
        ("facts/a.md", "x" * 301, "300 are the most"),
        ("facts/a.md", "- \ud800", "half a character"),
        ("sops/a/run.py", "#" * 1_000_001, "too many"),
    ],
)
def test_what_is_refused_leaves_nothing(root: Path, path: str, text: str, reason: str) -> None:
    before = changes(root)
    with pytest.raises(MemoryRefused, match=reason):
        put(root, path, text)
    assert changes(root) == before and not (root / path).exists() and not (root / ".aside").exists()


def test_what_the_change_raises_comes_through_with_nothing_written(root: Path) -> None:
    def change(before: str | None) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fresh(root).commit("facts/a.md", change, who="s")
    assert changes(root, "facts/a.md") == []
    put(root, "facts/a.md", FACT)


def test_a_layer_that_is_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    (root / "facts").rmdir()
    (root / "facts").symlink_to(tmp_path)
    for attempt in (lambda: put(root, "facts/a.md", FACT), lambda: put(root, "log.md", FACT), fresh(root).prepare):
        with pytest.raises(MemoryRefused, match="facts is a link"):
            attempt()
    assert "(empty)" in fresh(root).always_on() and os.listdir(tmp_path) == ["memory"]


# Many writers


def test_changes_of_two_files_and_of_one_line_are_both_there(root: Path) -> None:
    first, second = fresh(root), fresh(root)
    first.commit("facts/a.md", lambda before: "- a\n", who="one")
    second.commit("facts/b.md", lambda before: "- b\n", who="two")
    assert (root / "facts/a.md").read_text() == "- a\n" and (root / "facts/b.md").read_text() == "- b\n"
    first.commit("facts/a.md", lambda before: (before or "").replace("- a", "- a, c"), who="one")
    seen: list[str | None] = []

    def change(before: str | None) -> str:
        seen.append(before)
        return (before or "").replace("- a", "- b, a")

    second.commit("facts/a.md", change, who="two")
    assert seen == ["- a, c\n"] and (root / "facts/a.md").read_text() == "- b, a, c\n"


def test_threads_of_one_store_share_it(root: Path) -> None:
    store = fresh(root)

    def work(name: int) -> None:
        for number in range(10):
            line = f"- {name} {number}\n"
            store.commit("log.md", lambda before, line=line: f"{before}{line}", who=f"t{name}")  # type: ignore[misc]
            store.always_on()
            store.sops()

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line for line in (root / "log.md").read_text().splitlines() if line.startswith("- ")]
    assert len(lines) == len(set(lines)) == 60 and store.tampered() == []


def test_writers_readers_and_kills(tmp_path: Path) -> None:
    result = storm(tmp_path, writers=8, commits=15, readers=2, kill_every=0.25)
    assert result.acknowledged == 8 * 15 and result.kills > 0 and result.reads > 0
    assert (result.lost, result.twice, result.torn, result.unlogged, result.strange) == (0, 0, 0, 0, 0)
    assert result.extra <= result.kills
    assert max(result.waits) < 10


def test_a_timeout_names_the_holder(root: Path) -> None:
    with fresh(root).locked("session build-7 writing facts/a.md"):
        began = time.monotonic()
        with pytest.raises(MemoryLocked, match=rf"pid {os.getpid()}, session build-7 writing facts/a.md, since \d\d:"):
            put(root, "facts/b.md", FACT, timeout=0.2)
        assert 0.2 <= time.monotonic() - began < 5
    assert put(root, "facts/b.md", FACT, timeout=0.2).waited < 0.2


def test_whoever_comes_back_at_once_lets_others_in(tmp_path: Path) -> None:
    turns: list[int] = []
    all_there = threading.Barrier(4)

    def work(name: int) -> None:
        all_there.wait()
        for _ in range(60):
            with MemoryLock(str(tmp_path / "lock"), f"thread {name}"):
                turns.append(name)
                time.sleep(0.001)  # what is done under the lock

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first_to_end = min(len(turns) - 1 - turns[::-1].index(name) for name in range(4))
    assert all(turns[:first_to_end].count(name) > 20 for name in range(4)), turns


# Crashes

CRASH = """
import os, sys
from gad.memory.store import MemoryStore
root, path, text, step = sys.argv[1:]
def die(here):
    if here == step:
        os.kill(os.getpid(), 9)
MemoryStore(root, on_step=die).commit(path, lambda before: text or None, who="victim")
"""


def crash(root: Path, path: str, text: str, step: str) -> None:
    done = subprocess.run([sys.executable, "-c", CRASH, str(root), path, text, step], check=False)
    assert done.returncode == -signal.SIGKILL


STEPS = {"begin": False, "aside": False, "appended": True, "placed": True, "refreshed": True}


@pytest.mark.parametrize(
    ("kind", "step"),
    [*(("changed", step) for step in STEPS), ("new", "appended"), ("removed", "aside"), ("removed", "appended")],
)
def test_a_crash_at_any_step_leaves_all_or_nothing(root: Path, kind: str, step: str) -> None:
    holds = STEPS[step]
    path = "sops/ship/SOP.md"
    old = None if kind == "new" else render_sop(Sop("ship", ("deploy",), "old"))
    new = None if kind == "removed" else render_sop(Sop("ship", ("deploy",), "new"))
    if old is not None:
        put(root, path, old)
    crash(root, path, new or "", step)
    made = put(root, "facts/after.md", FACT, timeout=1)  # the lock is free
    assert made.adopted == ()
    assert fresh(root).read(path) == (new if holds else old)
    victims = [line for line in changes(root) if line["who"] == "victim"]
    assert len(victims) == holds
    wanted = new if holds else old
    sop = fresh(root).sop("ship")
    assert (sop is None) == (wanted is None)
    listed = [] if sop is None else [f"{sop.category}.md"]
    assert os.listdir(root / "sops/by") == listed and ("ship" in (root / "sops/all.md").read_text()) == bool(listed)
    assert not (root / ".aside").exists() and fresh(root).tampered() == []


def test_preparing_finishes_what_a_crash_left(root: Path) -> None:
    crash(root, "facts/a.md", FACT, "appended")
    assert not (root / "facts/a.md").exists()
    fresh(root).prepare()
    assert (root / "facts/a.md").read_text() == FACT and "facts/a.md: Web" in fresh(root).always_on()


def test_what_was_left_aside_is_not_written_through(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("outside")
    (root / ".aside").symlink_to(tmp_path / "outside")
    with pytest.raises(MemoryRefused, match=OUTSIDE):
        put(root, "facts/a.md", FACT)
    (root / ".aside").unlink()
    (root / ".aside").write_text("garbage")
    put(root, "facts/a.md", FACT)
    assert (tmp_path / "outside").read_text() == "outside" and not (root / ".aside").exists()


def test_a_torn_last_line_of_the_changes_is_cut_off(root: Path) -> None:
    put(root, "facts/a.md", FACT)
    with open(root / "changes.jsonl", "ab") as file:
        file.write(b'{"at": 1, "path": "facts/a.md", "aft')
    put(root, "facts/b.md", FACT)
    assert [line["path"] for line in changes(root)][-2:] == ["facts/a.md", "facts/b.md"]


def test_damaged_or_missing_bookkeeping_is_made_good(root: Path) -> None:
    put(root, "facts/a.md", FACT)
    lines = (root / "changes.jsonl").read_bytes().splitlines(keepends=True)
    (root / ".digests.json").write_text("{garbage")
    (root / "changes.jsonl").write_bytes(b"".join(lines[:-1]) + b"garbage\n")
    assert put(root, "facts/b.md", FACT).adopted == ("facts/a.md",)
    assert fresh(root).tampered() == []
    fresh(root).prepare()  # writes the state
    (root / "changes.jsonl").unlink()
    assert put(root, "facts/c.md", FACT).adopted == ()
    assert [line["path"] for line in changes(root)] == ["facts/c.md"] and fresh(root).tampered() == []


# Meddling


def test_what_was_changed_behind_the_store_is_found_told_and_adopted(root: Path) -> None:
    put(root, "facts/hosts.md", FACT)
    put(root, "facts/gone.md", FACT)
    put(root, "sops/ship/SOP.md", render_sop(Sop("ship", ("x",), "c")))
    (root / "facts/hosts.md").write_text(FACT.replace("## Web", "## Mail"))
    (root / "facts/gone.md").unlink()
    (root / "facts/new.md").write_text(FACT)
    (root / "sops/ship/run.sh").write_text("rm -rf /\n")
    strange = ["facts/gone.md", "facts/hosts.md", "facts/new.md", "sops/ship/run.sh"]
    assert fresh(root).tampered() == strange
    made = put(root, "log.md", "## Patterns\n- x\n")
    assert list(made.adopted) == strange
    unknown = {line["path"]: line["what"] for line in changes(root) if line["who"] == "unknown"}
    assert unknown == dict(zip(strange, (["removed"], ["changed"], ["added"], ["added"]), strict=True))
    assert "facts/hosts.md: Mail" in fresh(root).always_on() and "facts/new.md" in fresh(root).always_on()
    assert fresh(root).tampered() == [] and put(root, "facts/x.md", FACT).adopted == ()


def test_a_change_of_equal_size_with_its_time_set_back_is_found(root: Path) -> None:
    store = fresh(root)
    store.commit("facts/a.md", lambda before: FACT, who="s")
    wait_for(lambda: time.time() - (root / "facts/a.md").stat().st_ctime > 0.2)
    assert store.tampered() == []  # and from now on the store trusts the file's times
    info = (root / "facts/a.md").stat()
    with open(root / "facts/a.md", "r+") as file:
        file.write("# Ghost")
    os.utime(root / "facts/a.md", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert store.tampered() == ["facts/a.md"]


def test_a_link_in_the_place_of_a_file_is_found_and_not_read(root: Path, tmp_path: Path) -> None:
    put(root, "facts/a.md", FACT)
    (tmp_path / "secret.md").write_text("# Secret\n## Heading\n")
    (root / "facts/a.md").unlink()
    (root / "facts/a.md").symlink_to(tmp_path / "secret.md")
    assert fresh(root).tampered() == ["facts/a.md"]
    put(root, "facts/b.md", FACT)
    assert "Heading" not in fresh(root).always_on() and fresh(root).tampered() == []


def test_a_generated_file_that_was_changed_is_made_anew(root: Path) -> None:
    put(root, "sops/ship/SOP.md", render_sop(Sop("ship", ("x",), "c")))
    wanted = {path: (root / path).read_bytes() for path in ("index.md", "sops/all.md", "sops/by/c.md")}
    for path in wanted:
        (root / path).write_text("## Rules\nnonsense\n" if path != "index.md" else "nonsense\n")
    (root / "sops/by/left.md").write_text("nonsense")
    put(root, "log.md", "## Errors\n- a\n")
    assert {path: (root / path).read_bytes() for path in wanted} == wanted and not (root / "sops/by/left.md").exists()


def test_what_is_always_on_follows_every_change(root: Path) -> None:
    store = fresh(root)
    for number in range(5):
        put(root, "log.md", f"## Preferences\n- wish {number}\n")
        assert f"- wish {number}" in store.always_on()
    (root / "log.md").unlink()
    assert "(empty)" in store.always_on()


def test_uses_are_counted_by_many(root: Path) -> None:
    """Each change sees the one before: a counter in a front matter loses nothing."""
    put(root, "sops/ship/SOP.md", render_sop(Sop("ship", ("x",), "c")))

    def count() -> None:
        store = fresh(root)
        for _ in range(10):
            store.commit("sops/ship/SOP.md", one_more, who="s")

    def one_more(before: str | None) -> str:
        return render_sop(with_run(parse_sop(before or ""), Run(1, 2, True)))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sop = fresh(root).sop("ship")
    assert sop is not None and (sop.uses, sop.successes, sop.streak) == (40, 40, 40)
