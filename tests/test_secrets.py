"""Secrets: known values never reach a journal, output.txt, result.txt, status.txt, the log or the model."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gad.cli.secrets import LARGEST, find_secrets
from gad.config import load
from gad.core.messages import Assistant, Text, Thinking, ToolCall, ToolResult, Usage
from gad.core.ports import Outcome
from gad.core.records import Answered, Begin, ChildBegan, Ended, ToolFinished, decode, encode
from gad.core.redact import Secrets, trivial
from gad.core.task import TaskOptions
from gad.home import make_home
from gad.tools.file_read import LINE_LIMIT, FileRead
from tests.scripted_server import Call, Fail, Reply, Say, Silence, serve_in_thread
from tests.test_cli_daemon import start
from tests.test_crash import wait_for
from tests.world import World, play

KEY = "sk-test-4f9a8b7c6d5e3210"
MARK = "[secret models.test.key_file]"

# -- the function ---------------------------------------------------------------------------------


def test_a_known_value_is_replaced_by_its_name() -> None:
    secrets = Secrets({"OPENAI_API_KEY": KEY, "DB_PASSWORD": "hunter2hunter3"})
    text = f"key={KEY}{KEY}, hunter2hunter3; sk-test-, hunter2"
    shown = "key=[secret OPENAI_API_KEY][secret OPENAI_API_KEY], [secret DB_PASSWORD]; sk-test-, hunter2"
    assert secrets.redact(text) == shown == secrets.redact(shown)
    assert Secrets().redact(text) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("abc123", "too short"),
        ("postgres", "one word"),
        ("87654321", "a number"),
        ("aaaabbbbaaaabbbb", "two letters"),
        ("", "nothing"),
    ],
)
def test_what_is_trivial_is_left_alone(value: str, why: str) -> None:
    assert trivial(value), why
    assert Secrets({"X": value}).redact(f"a {value} b") == f"a {value} b"


def lower(found: re.Match[str]) -> str:
    return found[0].lower()


def test_a_value_is_known_in_the_forms_that_programs_write() -> None:
    value = 'p"a\\ss /w+rd é1'
    secrets = Secrets({"P": f"  {value}\n"})
    plain, escaped = json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
    addresses = (quote(value), quote(value, safe=""), quote(value).lower(), re.sub("%..", lower, quote(value, safe="")))
    slashed, twice = plain.replace("/", "\\/"), json.dumps(plain)[1:-1]  # as PHP writes it; as a text in JSON in JSON
    for form in (value, plain, escaped, *addresses, slashed, twice):
        assert secrets.redact(f"<{form}>") == "<[secret P]>"
    hidden = base64.b64encode(value.encode()).decode()
    assert secrets.redact(hidden) == hidden  # who wants to hide one can


def test_a_value_of_several_lines_is_known_line_by_line() -> None:
    pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq1\nhkiG9w0BAQEFAASC2\n-----END KEY-----\n"
    secrets = Secrets({"tls": pem})
    shown = secrets.redact("1|-----BEGIN KEY-----\n2|MIIEvQIBADANBgkq1\n3|hkiG9w0BAQEFAASC2")
    assert shown == "1|-----BEGIN KEY-----\n2|[secret tls]\n3|[secret tls]"
    assert secrets.redact(pem.strip()) == "[secret tls]"


def test_values_that_overlap_leave_nothing_of_either() -> None:
    secrets = Secrets({"A": "abcdefgh1234", "B": "1234ijklmnop", "LONG": "xx-abcdefgh1234-yy"})
    assert secrets.redact("(abcdefgh1234ijklmnop)") == "([secret A])"
    assert secrets.redact("(xx-abcdefgh1234-yy)") == "([secret LONG])"


PIECES = st.sampled_from([KEY, KEY[:9], KEY[9:], "s", "sk", "1234ijklmnop", "abcdefgh1234", "ijkl", " ", "\n", "x é"])


@given(st.lists(PIECES, max_size=12).map("".join), st.lists(st.integers(1, 20), min_size=1))
def test_however_a_text_is_cut_into_pieces_the_same_comes_out(text: str, sizes: list[int]) -> None:
    secrets = Secrets({"K": KEY, "A": "abcdefgh1234", "B": "1234ijklmnop"})
    stream, shown, at, number = secrets.stream(), "", 0, 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        shown += stream.feed(text[at : at + size])
        assert KEY[:-1] not in shown
        at, number = at + size, number + 1
    assert shown + stream.rest() == secrets.redact(text)


def test_a_stream_holds_back_no_more_than_it_must() -> None:
    stream = Secrets({"K": KEY}).stream()
    assert stream.feed("hello sk") == "hello "
    assert stream.feed("y") == "sky"
    assert stream.feed("bye") == "bye"


def test_a_record_is_clean_all_through_and_still_a_record() -> None:
    secrets = Secrets({"K": KEY})
    call = ToolCall("call-" + KEY, "code_run", {"code": f"echo {KEY}", "more": [{KEY: KEY}], "n": 3})
    thought = Thinking(f"it is {KEY}", "signature", origin="a")
    message = Assistant((thought, Thinking("no", "kept"), Text(f"so {KEY}"), call))
    record = Answered(1.0, 1, message, "end", "m", Usage(1, 2), 0.5)
    clean = secrets.clean(record)
    assert KEY not in json.dumps(encode(clean)) and decode(json.loads(json.dumps(encode(clean)))) == clean
    assert clean.message.parts[:2] == (Thinking("it is [secret K]", "", origin="a"), Thinking("no", "kept"))
    assert clean.message.calls[0].arguments["n"] == 3
    assert secrets.clean(clean) is clean
    finished = ToolFinished(1.0, ToolResult("c", "ok", KEY, {"path": KEY}, f"/x/{KEY}"), 0.0, KEY)
    assert KEY not in json.dumps(encode(secrets.clean(finished)))


def test_names_of_directories_stay_as_they_are() -> None:
    secrets = Secrets({"K": KEY})
    begin = Begin(1.0, KEY, TaskOptions(parent=KEY, labels=(KEY,)))
    clean = secrets.clean(begin)
    assert (clean.session, clean.options.parent, clean.options.labels) == (KEY, KEY, ("[secret K]",))
    assert secrets.clean(ChildBegan(1.0, KEY)).child == KEY
    assert secrets.clean(Ended(1.0, "failed", KEY)).error == "[secret K]"


# -- what is known --------------------------------------------------------------------------------


def known(home: Path, environ: dict[str, str], **settings: Any) -> dict[str, str]:
    if not home.exists():
        make_home(home)
    (home / "gad.yaml").write_text(yaml.safe_dump(settings))
    found: dict[str, str] = {}
    for name, value in find_secrets(load(home, environ), environ):
        found.setdefault(name, value.strip())
    return found


def test_keys_of_models_are_known_wherever_they_are(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file-1\n")
    (tmp_path / "cred").mkdir()
    (tmp_path / "cred" / "third").write_text("from-systemd-1\n")
    (tmp_path / "cred" / "other").write_text("nobody-names-1\n")
    (tmp_path / "cred" / "data").write_bytes(b"x" * (LARGEST + 1))
    (tmp_path / "cred" / "binary").write_bytes(b"\xff\xfe\x00\x01\x02\x03\x04\x05")
    server = {"provider": "openai", "model": "m", "base_url": "http://localhost:1/v1"}
    models = {
        "one": server | {"key_env": "PLAIN_NAME"},
        "two": server | {"key_file": str(tmp_path / "key")},
        "three": server | {"key_credential": "third"},
        "four": server | {"key_file": str(tmp_path / "missing")},
    }
    environ = {"PLAIN_NAME": "from-a-variable-1", "CREDENTIALS_DIRECTORY": str(tmp_path / "cred")}
    assert known(tmp_path / "home", environ, models=models) == {
        "PLAIN_NAME": "from-a-variable-1",
        "models.two.key_file": "from-a-file-1",
        "third": "from-systemd-1",
        "other": "nobody-names-1",
    }


def test_variables_that_look_like_secrets_are_known_and_settings_are_not(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text("{}")
    environ = {
        "GITHUB_TOKEN": "ghp-0123456789",
        "OPENAI_MODEL": "gpt-6.2-sol",
        "ANTHROPIC_LOG": "debug-level-3",
        "OPENAI_BASE_URL": "http://user:pa55-w0rd-x@proxy.test:8080/v1",
        "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "credentials.json"),
        "WHICH_TOKEN": "GITHUB_TOKEN",
        "EDITOR": "vim-0123456789",
    }
    assert known(tmp_path / "home", environ) == {
        "GITHUB_TOKEN": "ghp-0123456789",
        "models.gpt.base_url": "pa55-w0rd-x",
        "OPENAI_BASE_URL": "pa55-w0rd-x",
    }


def test_the_password_of_a_proxy_is_known(tmp_path: Path) -> None:
    found = list(find_secrets(_with_proxy(tmp_path / "home", "http://me:p%40ss-w0rd-1@proxy.test:3128"), {}))
    assert found == [("browser.proxy", "p%40ss-w0rd-1"), ("browser.proxy", "p@ss-w0rd-1")]


def _with_proxy(home: Path, proxy: str) -> Any:
    make_home(home)
    (home / "gad.yaml").write_text(yaml.safe_dump({"browser": {"proxy": proxy}}))
    return load(home, {})


# -- a daemon -------------------------------------------------------------------------------------


def with_key(home: Path, server: Any, **settings: Any) -> World:
    """Make a home whose model has a key, and work with a copy of the key that nothing protects."""
    made = World(home, server, **settings)
    key = home.parent / "the.key"
    key.write_text(KEY + "\n")
    found = yaml.safe_load((home / "gad.yaml").read_text())
    found["models"]["test"]["key_file"] = str(key)
    (home / "gad.yaml").write_text(yaml.safe_dump(found))
    (home.parent / "copy").mkdir()
    (home.parent / "copy" / "notes.txt").write_text(
        f"first line\nthe key is {KEY}\n{'x' * (LINE_LIMIT - len(KEY) + 3)}{KEY}\n"
    )
    return made


def holders(*roots: Path) -> list[str]:
    """Return the files, but for those that clients have written, that hold the key, or most of it."""
    ours = (path for path in _files(*roots) if path.name != "task.yaml")
    return [str(path) for path in ours if KEY[:-4].encode() in path.read_bytes()]


def _files(*roots: Path) -> Iterator[Path]:
    for root in roots:
        for directory, _, names in os.walk(root):
            yield from (Path(directory, name) for name in names)


def scene_of(tmp_path: Path, script: Any, scene: Any, **settings: Any) -> None:
    """Play a scene in a world with a key; neither a file nor a request's body may hold it in the end."""

    async def keyed(world: World) -> None:
        made = with_key(tmp_path / "keyed", world.server, **settings)
        await scene(made)
        assert holders(made.spool, made.home / "work", made.home / "memory") == []
        for request in world.server.requests:
            assert KEY not in request.raw.decode() and any(KEY in value for value in request.headers.values())

    play(tmp_path, script, keyed)


def test_what_code_prints_and_files_hold_reaches_nobody(tmp_path: Path) -> None:
    slowly = f"for c in {' '.join(KEY)}; do printf %s $c; sleep 0.005; done; echo; cat notes.txt"
    long = f"print('{KEY}\\n' * 2000)"  # cut in the middle, kept whole in a file

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s", cwd=str(tmp_path / "copy"))
            await world.rests("s")
            results = [one["result"]["output"] for one in world.records("s") if one["kind"] == "tool_finished"]
            assert f"{MARK}\nfirst line\nthe key is {MARK}\n" in results[0]
            assert f"2|the key is {MARK}\n3|xxx" in results[1]
            assert MARK in results[2] and "characters cut" in results[2]
            output = world.text("s", "output.txt")
            assert f"{MARK}\nfirst line\nthe key is {MARK}\n" in output and f"2|the key is {MARK}" in output
            assert any(MARK in path.read_text() for path in _files(world.home / "work"))

    script = [
        Call("code_run", {"type": "bash", "code": slowly}),
        Call("file_read", {"path": "notes.txt"}),
        Call("code_run", {"type": "python", "code": long}),
        "done",
    ]
    scene_of(tmp_path, script, scene)


def test_what_the_model_says_reaches_nobody_however_it_is_cut(tmp_path: Path) -> None:
    told = f"The key is {KEY}, I believe. s"

    async def scene(world: World) -> None:
        async with world.running():
            for number in range(1, 4):
                world.task(f"s{number}")
                await world.rests(f"s{number}")
                shown = f"The key is {MARK}, I believe. s"
                assert world.text(f"s{number}", "result.txt") == shown + "\n"
                assert f"\n{shown}\n" in world.text(f"s{number}", "output.txt")
            world.task("asks", f"my key is {KEY}")
            status = await world.rests("asks", "asking")
            assert (status["question"], status["candidates"]) == (f"Is it {MARK}?", [MARK])
            world.put("asks", "reply.txt", f"it is {KEY}")
            await world.rests("asks")
            assert world.text("asks", "output.txt").count(MARK) >= 4

    question = Call("ask_user", {"question": f"Is it {KEY}?", "candidates": [KEY]})
    cut = [Reply((Say(told, chunks=number),)) for number in (1, 5, len(told))]
    scene_of(tmp_path, [*cut, question, Say(KEY, chunks=3)], scene)


def test_a_call_that_holds_a_secret_runs_without_it(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            place = str(tmp_path / "copy")
            world.task("s", cwd=place, check=f"echo {KEY}; cat notes.txt; test -e made || {{ touch made; false; }}")
            await world.rests("s")
            records = world.records("s")
            assert MARK in records[0]["options"]["check"]
            assert (tmp_path / "copy" / "a.txt").read_text() == f"the key: {MARK}\n"
            found = [one["output"].splitlines() for one in records if one["kind"] == "checked"]
            assert [lines[:3] for lines in found] == [[MARK, "first line", f"the key is {MARK}"]] * 2
            assert (world.home / "work" / "s" / "check.txt").read_text().count(MARK) == 3

    script = [Call("file_write", {"path": "a.txt", "content": f"the key: {KEY}\n"}), "done", "done again"]
    scene_of(tmp_path, script, scene)


def test_a_result_is_clean_before_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def long(self: FileRead, arguments: Any, context: Any) -> Outcome:
        return Outcome("ok", f"{KEY}-" * 2000)

    monkeypatch.setattr(FileRead, "run", long)

    async def scene(world: World) -> None:
        async with world.running():
            world.task("s")
            await world.rests("s")
            (result,) = [one["result"]["output"] for one in world.records("s") if one["kind"] == "tool_finished"]
            assert "characters cut" in result and MARK in result
            assert KEY[:3] not in result

    scene_of(tmp_path, [Call("file_read", {"path": "x"}), "done"], scene)


def test_what_a_server_says_of_a_key_reaches_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        async with world.running():
            for name, state in (("bad", "failed"), ("later", "done")):
                world.task(name)
                status = await world.rests(name, state)
                if state == "failed":
                    assert "no such thing" in status["error"]

    script = [Fail(400, f"no such thing with {KEY}"), Fail(529, f"{KEY} is too much"), "done"]
    scene_of(tmp_path, script, scene)


# -- a process ------------------------------------------------------------------------------------

PRINTS = {"type": "bash", "code": f"echo {base64.b64encode(KEY.encode()).decode()} | base64 -d; echo; sleep 60"}


def test_a_journal_that_a_crash_left_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", KEY)
    say = Reply((Say(f"It is {KEY}"), Silence()))
    with serve_in_thread([Call("code_run", PRINTS), say, "It is over"]) as server:
        world = World(tmp_path / "home", server, log={"level": "debug", "format": "json"})
        log = (tmp_path / "log").open("ab")
        with log:
            for step in ('sleep 60"}\n[secret DEPLOY_TOKEN]\n', "It is [secret DEPLOY_TOKEN]", "It is over"):
                daemon = start(world.home, "up", stdout=subprocess.DEVNULL, stderr=log)
                with contextlib.ExitStack() as stack:
                    stack.callback(daemon.wait)
                    stack.callback(daemon.kill)
                    if not world.status("s"):
                        world.task("s", f"deploy with {KEY}")
                    wait_for(lambda step=step: step in world.text("s", "output.txt"), 30)  # type: ignore[misc]
                    if step == "It is over":
                        wait_for(lambda: world.status("s").get("state") == "done", 30)
                        daemon.send_signal(signal.SIGTERM)
                        daemon.wait(30)
                assert holders(world.spool, world.home / "work", world.home / "memory") == [], step
        assert world.kinds("s").count("resumed") == 2
        said = world.records("s")[1]
        assert said["text"] == "deploy with [secret DEPLOY_TOKEN]"
        told = (tmp_path / "log").read_text()
        assert KEY not in told
        assert all(json.loads(line) for line in told.splitlines())
        assert all(KEY not in request.raw.decode() for request in server.requests)


def test_the_secrets_of_a_run_in_this_process_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", KEY)
    with serve_in_thread([f"It is {KEY}"]) as server:
        world = World(tmp_path / "home", server)
        found = start(world.home, "run", "--name", "s", "go")
        out, err = found.communicate(timeout=60)
    assert (found.returncode, KEY.encode() in out + err) == (0, False)
    assert b"It is [secret DEPLOY_TOKEN]" in out
    assert sys.getsizeof(err) and holders(world.spool) == []
