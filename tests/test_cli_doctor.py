"""gad doctor on homes that are well and on homes that are not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gad import __version__
from gad.cli import doctor, exits, gad
from gad.home import make_home
from gad.spool import trial, watch
from gad.spool.lock import SpoolLock
from gad.spool.status import write_status
from tests.scripted_server import ScriptedServer, serve_in_thread

NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(tmp_path / "home")
    monkeypatch.setenv("GAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serve_in_thread([]) as server:
        yield server


def settings(home: Path, **entry: Any) -> None:
    entry = {"provider": "openai", "model": "scripted"} | entry
    (home / "gad.yaml").write_text(yaml.safe_dump({"model": "test", "models": {"test": entry}}))


def examine() -> tuple[int, dict[str, dict[str, Any]]]:
    result: Result = CliRunner().invoke(gad, ["doctor", "--json"])
    assert result.exit_code in (exits.DONE, exits.ERROR), result.output
    told = json.loads(result.stdout)
    assert told["ok"] is (result.exit_code == exits.DONE)
    return result.exit_code, {check["name"]: check for check in told["checks"]}


def test_a_home_that_is_well(home: Path, server: ScriptedServer) -> None:
    settings(home, base_url=server.openai_url)
    code, found = examine()
    assert code == exits.DONE
    assert list(found) == [
        *("gad", "python", "bash", "chromium", "home", "gad.yaml", "directories", "permissions", "disk", "file system"),
        *("locks", "leases", "inotify", "daemon", "open files", "clock", "journals", "users", "retention", "archive"),
        *("sandbox", "key", "model"),
    ]
    told = {name: (check["status"], check["detail"]) for name, check in found.items()}
    assert told["model"] == ("ok", "test (scripted): its server answers")
    assert told["locks"][0] == told["directories"][0] == told["key"][0] == "ok"
    assert len(server.lookups) == 1 and not server.requests
    assert os.listdir(home / "spool") == []
    lines = CliRunner().invoke(gad, ["doctor"]).stdout.splitlines()
    assert f"ok    home         {home}" in lines


def test_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAD_HOME", str(tmp_path))
    code, found = examine()
    assert (code, found["home"]["status"]) == (exits.ERROR, "fail")
    assert found["home"]["mend"] == [f"make it a home with: gad init {tmp_path}"]


def test_mistakes_in_the_settings_do_not_hide_the_rest(home: Path) -> None:
    (home / "gad.yaml").write_text("modle: x\nsessions: none\n")
    result = CliRunner().invoke(gad, ["doctor"])
    assert result.exit_code == exits.ERROR
    assert "fail  gad.yaml     2 mistakes" in result.stdout.splitlines()
    assert [line.split("-> ")[1].split(": ")[0] for line in result.stdout.splitlines() if "-> gad.yaml" in line] == [
        "gad.yaml:1",
        "gad.yaml:2",
    ]
    assert "ok    locks" in result.stdout


@pytest.mark.parametrize(
    ("entry", "name", "status", "said"),
    [
        ({"key_env": "ODD_KEY"}, "key", "fail", "set ODD_KEY in the daemon's environment"),
        ({"key_file": "none"}, "key", "fail", "none cannot be read"),
        ({"base_url": NOWHERE, "idle_timeout": 1}, "model", "fail", "no connection"),
        ({"base_url": "SERVER", "model": "other"}, "model", "warn", "it lists scripted"),
        ({"base_url": "SERVER/no?list="}, "model", "warn", "does not list its models"),
        ({"provider": "anthropic", "base_url": "SERVER"}, "model", "ok", "its server answers"),
    ],
)
def test_the_model(
    home: Path, server: ScriptedServer, entry: dict[str, Any], name: str, status: str, said: str
) -> None:
    if "base_url" in entry:
        entry = entry | {"base_url": entry["base_url"].replace("SERVER", server.openai_url)}
    settings(home, **entry)
    code, found = examine()
    assert found[name]["status"] == status, found[name]
    assert said in " ".join([found[name]["detail"], *found[name]["mend"]])
    assert code == (exits.ERROR if status == "fail" else exits.DONE)


LINK = {"provider": "openai", "model": "scripted"}


@pytest.mark.parametrize(
    ("working", "code", "chain"),
    [
        ((True, True), exits.DONE, ("ok", "main: each of a, b can be asked")),
        ((False, True), exits.DONE, ("warn", "main: a cannot be asked; the others answer instead")),
        ((True, False), exits.DONE, ("warn", "main: b cannot be asked; the others answer instead")),
        ((False, False), exits.ERROR, ("fail", "main: none of a, b can be asked")),
    ],
)
def test_a_chain_is_fine_when_one_of_its_models_works(
    home: Path, server: ScriptedServer, working: tuple[bool, bool], code: int, chain: tuple[str, str]
) -> None:
    links = dict(zip("ab", working, strict=True))
    models: dict[str, Any] = {
        name: LINK | ({"base_url": server.openai_url, "tools": "text"} if works else {"key_env": "ODD_KEY"})
        for name, works in links.items()
    }
    models["main"] = {"chain": list(links)}
    (home / "gad.yaml").write_text(yaml.safe_dump({"model": "main", "models": models}))
    told, found = examine()
    assert told == code
    assert (found["chain"]["status"], found["chain"]["detail"]) == chain
    for name, works in links.items():
        assert found[f"{name} key"]["status"] == ("ok" if works else chain[0])
        assert (f"{name} model" in found) is works
        assert works or "set ODD_KEY" in found[f"{name} key"]["mend"][0]
    assert len(server.lookups) == sum(working)


def test_a_chain_in_the_lists_of_models_and_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (home / "gad.yaml").write_text(
        "model: main\nmodels:\n  main: {chain: [claude, gpt]}\n  gpt: {window: 20000, tools: text}\n"
    )
    found = {one["name"]: one for one in json.loads(CliRunner().invoke(gad, ["models", "--json"]).stdout)}
    assert (found["main"]["provider"], found["main"]["chain"], found["main"]["default"]) == (
        "chain",
        ["claude", "gpt"],
        True,
    )
    assert (found["main"]["key"], found["gpt"]["key"]) == ("present, not for claude", "present")
    assert [found[name]["window"] for name in ("main", "claude", "gpt", "local")] == [20_000, 30_000, 20_000, 13_824]
    row = next(line for line in CliRunner().invoke(gad, ["models"]).stdout.splitlines() if line.startswith("* main"))
    assert row.split() == ["*", "main", "chain", "claude", ">", "gpt", "present,", "not", "for", "claude", "-"]

    told = json.loads(CliRunner().invoke(gad, ["config", "--json"]).stdout)["settings"]
    assert told["models.main.chain"] == {"value": ["claude", "gpt"], "source": "gad.yaml:3"}
    assert [key for key in told if key.startswith("models.main.")] == ["models.main.chain"]
    assert told["models.gpt.window"] == {"value": 20_000, "source": "gad.yaml:4"}
    assert told["models.gpt.tools"] == {"value": "text", "source": "gad.yaml:4"}
    assert told["models.claude.window"] == {"value": 30_000, "source": "default"}
    assert {"models.local.tools", "models.gpt.chain", "models.claude.api"}.isdisjoint(told)


def test_the_embedded_model(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = examine()[1]["weights"]
    assert (weights["status"], "fetched once, at the first task" in weights["detail"]) == ("warn", True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    little = SimpleNamespace(f_bavail=1000, f_bfree=1000, f_blocks=9000, f_frsize=4096, f_files=100, f_favail=9)
    monkeypatch.setattr("os.statvfs", lambda path: little)
    code, found = examine()
    assert code == exits.ERROR
    assert {name for name, check in found.items() if check["status"] == "fail"} == {"runtime", "weights"}
    assert found["disk"]["status"] == "warn"
    assert found["runtime"]["mend"] == ["pip install 'gad[local]'"]
    (home / "gad.yaml").write_text("models: {local: {weights: none.gguf}}\n")
    assert "none.gguf is not a readable file" in examine()[1]["weights"]["detail"]
    (home / "none.gguf").write_bytes(b"GGUF")
    assert examine()[1]["weights"]["status"] == "ok"


def test_a_daemon_is_told_of(home: Path, server: ScriptedServer) -> None:
    settings(home, base_url=server.openai_url)
    with SpoolLock(str(home / "spool")):
        write_status(home / "spool/.daemon", {"state": "ready", "pid": 7, "version": __version__})
        assert doctor.running_daemon(home / "spool").detail == f"pid 7, version {__version__}, ready"
        write_status(home / "spool/.daemon", {"state": "ready", "pid": 7, "version": "0.0.0"})
        assert doctor.running_daemon(home / "spool").status == "warn"
    assert doctor.running_daemon(home / "spool").detail == "none runs; gad up starts one"


def test_directories_that_are_missing(home: Path) -> None:
    (home / "memory").rmdir()
    check = doctor.directories(home)
    assert (check.status, check.mend) == ("warn", (f"make the home whole: gad init {home}",))


def test_what_a_file_system_lacks_is_told(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = tmp_path / "limits"
    limits.mkdir()
    (limits / "max_user_watches").write_text("1001\n")
    (limits / "max_user_instances").write_text("128\n")
    assert doctor.inotify(home / "spool", limits).status == "ok"
    (home / "spool/s").mkdir()
    (home / "spool/t").mkdir()
    check = doctor.inotify(home / "spool", limits)
    assert (check.status, "nearly used up" in check.detail) == ("warn", True)

    monkeypatch.setattr(watch, "file_system", lambda path: "nfs4")
    monkeypatch.setattr(trial, "held", lambda spool: True)
    monkeypatch.setattr(trial, "writer_gone", lambda fd: None)
    found = {check.name: check for check in doctor.spool(home / "spool")}
    assert {name: check.status for name, check in found.items() if check.status != "ok"} == {
        "file system": "warn",
        "locks": "fail",
        "leases": "warn",
        "inotify": "warn",
    }
    assert "nfs4" in found["file system"].detail and "network" in found["inotify"].detail


def test_a_browser_is_found(tmp_path: Path) -> None:
    assert doctor.find_chromium({"PATH": "", "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)}) is None
    browser = tmp_path / "chromium-1200/chrome-linux/chrome"
    browser.parent.mkdir(parents=True)
    browser.touch(mode=0o755)
    assert doctor.find_chromium({"PATH": "", "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path)}) == str(browser)


@pytest.mark.parametrize(
    ("sandbox", "status", "mend"),
    [("auto", "warn", "install it"), ("bwrap", "fail", "install it"), ({"network": "off"}, "fail", "install it"),
     ("none", "warn", "set sandbox: auto")],
)  # fmt: skip
def test_without_a_sandbox(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: Any, status: str, mend: str
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "chromium"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "/missing")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (home / "gad.yaml").write_text(yaml.safe_dump({"sandbox": sandbox}))
    check = examine()[1]["sandbox"]
    assert check["status"] == status and check["mend"][0].startswith(mend)
