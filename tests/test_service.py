"""The units that gad ships, and what `gad service` makes of them; under a real systemd: test_service_systemd.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gad.cli import exits, gad, service
from gad.config import load, read_key
from gad.errors import ConfigError
from gad.home import make_home

ROOT = Path(__file__).parent.parent
UNITS = ("gad.service", "gad@.service", "user/gad.service")
NEEDED = {
    "Type": "notify",
    "KillMode": "mixed",
    "RestartPreventExitStatus": "100",
    "NoNewPrivileges": "yes",
    "UMask": "0077",
    "MemoryMax": "75%",
    "TasksMax": "4096",
    "LimitCORE": "0",
}
HARDENED = {
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallFilter": "@system-service @mount",
}


class Sections(dict[str, dict[str, list[str]]]):
    """A unit: its sections, their keys, each key's values in order."""

    def __init__(self, text: str) -> None:
        section = ""
        for line in text.splitlines():
            if line.startswith("["):
                section = line.strip("[]")
                self[section] = {}
            elif "=" in line and not line.startswith("#"):
                key, _, value = line.partition("=")
                self[section].setdefault(key, []).append(value)


def seconds(span: str) -> float:
    for unit, factor in (("min", 60.0), ("s", 1.0)):
        if span.endswith(unit):
            return float(span.removesuffix(unit)) * factor
    raise AssertionError(span)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that a service could have, although tests' files lie in /tmp."""
    monkeypatch.setattr(service, "PRIVATE", ())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GAD_HOME"):
        monkeypatch.delenv(name, raising=False)
    make_home(tmp_path / "home")
    return tmp_path / "home"


def run(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(gad, ["--home", str(home), "service", *arguments])


# -- the templates --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNITS)
def test_each_unit_says_what_it_must(name: str) -> None:
    text = (ROOT / "systemd" / name).read_text()
    unit = Sections(text)
    wanted = NEEDED if name.startswith("user/") else NEEDED | HARDENED
    assert {key: value for key, value in wanted.items() if unit["Service"].get(key) != [value]} == {}
    # Five failures in a row come within the interval, also when each takes until the watchdog.
    of, burst = seconds(unit["Unit"]["StartLimitIntervalSec"][0]), int(unit["Unit"]["StartLimitBurst"][0])
    apart = seconds(unit["Service"]["RestartSec"][0]) + seconds(unit["Service"]["WatchdogSec"][0])
    assert burst * (apart + 10) < of
    assert all("KEY" not in value for value in unit["Service"].get("Environment", []))


def test_the_two_units_of_the_system_differ_in_the_home_alone() -> None:
    one, many = (Sections((ROOT / "systemd" / name).read_text()) for name in UNITS[:2])
    assert str(one).replace("/var/lib/gad", "/var/lib/gad/%i").replace("'gad'", "'gad-%i'").replace(
        "/var/cache/gad", "/var/cache/gad-%i"
    ).replace("User': ['gad-%i']", "User': ['gad']") == str(many)


@pytest.mark.parametrize("name", UNITS[:2])
def test_the_units_of_the_system_are_hardened(name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("THE UNITS ARE NOT ANALYZED: there is no systemd-analyze here")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager"]
    done = subprocess.run([*command, str(ROOT / "systemd" / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


@pytest.mark.parametrize("name", [*UNITS, "gad.path"])
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("THE UNITS ARE NOT VERIFIED: there is no systemd-analyze here")
    text = (ROOT / "systemd" / name).read_text().replace("/opt/gad/.venv/bin/gad", "/bin/true")
    for unit in ("gad.service", name.removeprefix("user/")):
        source = (ROOT / "systemd" / "gad.service").read_text().replace("/opt/gad/.venv/bin/gad", "/bin/true")
        (tmp_path / unit).write_text(source)
    place = tmp_path / name.removeprefix("user/").replace("@", "@x")
    place.write_text(text.replace("%h/.local/bin/gad", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(place)], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or line.startswith("gad")]
    assert ours == []


def test_the_wheel_has_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        for name in (*UNITS, "gad.path"):
            assert wheel.read(f"gad/systemd/{name}") == (ROOT / "systemd" / name).read_bytes()


# -- what is written ------------------------------------------------------------------------------


def test_print_shows_the_unit_of_this_installation(home: Path) -> None:
    result = run(home, "install", "--print")
    assert result.exit_code == exits.DONE, result.stderr
    assert result.stdout.startswith(f"# /etc/systemd/system/gad.service\n{service.MARK}\n")
    unit = Sections(result.stdout)["Service"]
    assert unit["ExecStart"] == [f"{os.path.dirname(sys.executable)}/gad --home {home} up"]
    assert unit["ReadWritePaths"] == [str(home)]
    assert unit["User"] == [service.owner(home)]
    assert "LoadCredential" not in unit and unit["ProtectSystem"] == ["strict"]
    for path in (home, Path(sys.base_prefix)):
        hidden = any(path.is_relative_to(place) for place in service.HIDDEN)
        bound = [one.removeprefix("-") for one in unit.get("BindPaths", []) + unit.get("BindReadOnlyPaths", [])]
        assert any(path.is_relative_to(one) for one in bound) == hidden, bound


def test_a_home_below_home_is_all_that_is_seen_of_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HIDDEN", (home.parent,))
    monkeypatch.setattr(sys, "prefix", str(home.parent / "venv"))
    monkeypatch.setattr(sys, "base_prefix", str(home.parent / "venv" / "within"))
    unit = Sections(run(home, "install", "--print", "--name", "two").stdout)["Service"]
    assert unit["ProtectHome"] == ["tmpfs"]
    assert unit["BindPaths"] == [str(home)]
    assert unit["BindReadOnlyPaths"] == [f"-{home.parent}/venv"]
    assert unit["CacheDirectory"] == ["gad-two"]


def test_a_user_s_unit_and_a_path_unit(home: Path, tmp_path: Path) -> None:
    result = run(home, "install", "--print", "--user", "--name", "n", "--path-unit")
    assert result.exit_code == exits.DONE, result.stderr
    assert f"# {tmp_path}/config/systemd/user/gad@n.path" in result.stdout
    unit = Sections(result.stdout)
    assert "User" not in unit["Service"] and unit["Service"]["UMask"] == ["0077"]
    assert unit["Path"]["PathExistsGlob"] == [f"{home}/spool/*/input.txt"]
    assert unit["Path"]["Unit"] == ["gad@n.service"]
    assert unit["Install"]["WantedBy"] == ["default.target"]
    assert not (tmp_path / "config").exists()


def test_odd_names_are_written_so_that_systemd_reads_them(tmp_path: Path, home: Path) -> None:
    odd = tmp_path / 'a b%c"d$e'
    make_home(odd)
    unit = Sections(run(odd, "install", "--print").stdout)["Service"]
    assert unit["ReadWritePaths"] == [f'"{tmp_path}/a b%%c\\"d$e"']
    assert unit["ExecStart"][0].endswith(f' --home "{tmp_path}/a b%%c\\"d$$e" up')


def test_a_credential_is_handed_over(home: Path, tmp_path: Path) -> None:
    (home / "gad.yaml").write_text("model: claude\nmodels: {claude: {key_credential: vendor}}")
    result = run(home, "install", "--print")
    assert (result.exit_code, "say where the key lies, with --credential vendor:FILE" in result.stderr) == (1, True)
    for wrong in ("vendor", "vendor:/no/such/file", "../x:/etc/passwd"):
        assert "give a name and a file" in run(home, "install", "--print", "--credential", wrong).stderr
    (tmp_path / "key").write_text("s3cret")
    result = run(home, "install", "--print", "--credential", f"vendor:{tmp_path}/key")
    assert Sections(result.stdout)["Service"]["LoadCredential"] == [f"vendor:{tmp_path}/key"]
    assert "s3cret" not in result.stdout


def test_a_credential_is_named_as_systemd_reads_it(home: Path, tmp_path: Path) -> None:
    key = tmp_path / 'my "key" 5%'  # systemd takes the rest of the line as it is: quotes would belong to the name
    key.write_text("s3cret")
    result = run(home, "install", "--print", "--credential", f"vendor:{key}")
    assert Sections(result.stdout)["Service"]["LoadCredential"] == [f'vendor:{tmp_path}/my "key" 5%%']


def test_a_path_unit_of_an_odd_home_finds_its_tasks(tmp_path: Path, home: Path) -> None:
    odd = tmp_path / "o[d]{a,b}*?\\x"
    make_home(odd)
    units = Sections(run(odd, "install", "--print", "--path-unit").stdout)
    assert units["Path"]["PathExistsGlob"] == [f"{tmp_path}/o\\[d\\]\\{{a,b\\}}\\*\\?\\\\x/spool/*/input.txt"]
    assert units["Path"]["PathChanged"] == [f"{odd}/spool"]
    make_home(tmp_path / "end\\")  # it would take the next line of the unit with it
    assert "cannot name this path" in run(tmp_path / "end\\", "install", "--print").stderr


def test_links_are_followed_to_what_the_daemon_writes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "HIDDEN", (tmp_path / "hidden", home))
    disk, link = tmp_path / "hidden/disk", tmp_path / "link"
    disk.mkdir(parents=True)
    (home / "work").rmdir()
    (home / "work").symlink_to(disk)
    link.symlink_to(home)
    unit = Sections(run(link, "install", "--print").stdout)["Service"]
    assert unit["ReadWritePaths"] == [str(home), str(disk)]
    assert unit["BindPaths"] == [str(home), str(disk)]
    assert unit["ExecStart"][0].endswith(f"--home {home} up")
    monkeypatch.setattr(service, "PRIVATE", (disk.parent,))
    assert f"{disk} lies where every service has its own files" in run(link, "install", "--print").stderr


def test_without_a_user_s_manager_it_is_said_what_to_do(home: Path, pretend: Path) -> None:
    (pretend / "fail").write_text("Failed to connect to bus: No medium found")
    assert "export XDG_RUNTIME_DIR=/run/user/" in run(home, "install", "--user").stderr


def test_what_cannot_work_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(home, "install", "--print", "--name", "../x").exit_code == exits.USAGE
    monkeypatch.setattr(service, "BOOTED", Path("/no/such/place"))
    for command in ("install", "uninstall", "status", "logs"):
        result = run(home, command)
        assert (result.exit_code, "systemd does not run here" in result.stderr) == (exits.ERROR, True)
    monkeypatch.setattr(service, "PRIVATE", (home.parent,))
    assert "move it elsewhere" in run(home, "install", "--print").stderr
    (home / "gad.yaml").write_text("sesions: 3")
    assert "did you mean sessions?" in run(home, "install", "--print").stderr


@pytest.fixture
def pretend(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of systemd that write down how they were called."""
    for name in ("systemctl", "journalctl"):
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\ncat {tmp_path}/fail >&2 && exit 3; exit 0\n'
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(service, "BOOTED", tmp_path)
    return tmp_path


def calls(pretend: Path) -> list[str]:
    found = (pretend / "calls").read_text().splitlines()
    (pretend / "calls").unlink()
    return found


def test_install_and_uninstall_a_user_s_service(home: Path, pretend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = pretend / "config" / "systemd" / "user"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    result = run(home, "install", "--user")
    assert result.exit_code == exits.DONE, result.stderr
    assert os.listdir(units) == ["gad.service"]
    assert calls(pretend) == ["systemctl --user daemon-reload", "systemctl --user enable gad.service"]
    assert "start it now with: systemctl --user restart gad.service" in result.stderr
    assert "gad.yaml names no model; here it is claude" in result.stderr
    assert "models.claude takes its key from ANTHROPIC_API_KEY, which the service does not have" in result.stderr

    assert run(home, "install", "--user", "--path-unit").exit_code == exits.DONE
    assert sorted(os.listdir(units)) == ["gad.path", "gad.service"]
    assert calls(pretend)[1:] == ["systemctl --user disable gad.service", "systemctl --user enable gad.path"]
    assert run(home, "install", "--user").exit_code == exits.DONE
    assert os.listdir(units) == ["gad.service"]
    assert calls(pretend)[0] == "systemctl --user disable --now gad.path"

    for command in (["status"], ["logs", "-f", "-n", "5"]):
        run(home, command[0], "--user", *command[1:])
    assert calls(pretend) == [
        "systemctl --user --no-pager status gad",
        "journalctl --user --no-pager -n 5 -u gad -f",
    ]

    assert run(home, "uninstall", "--user").exit_code == exits.DONE
    assert os.listdir(units) == []
    assert calls(pretend) == ["systemctl --user disable --now gad.service", "systemctl --user daemon-reload"]
    result = run(home, "uninstall", "--user")
    assert (result.exit_code, "there is no gad.service" in result.stderr) == (exits.ERROR, True)


def test_what_systemctl_says_is_passed_on(home: Path, pretend: Path) -> None:
    (pretend / "fail").write_text("Failed to connect to bus")
    result = run(home, "install", "--user")
    assert result.exit_code == exits.ERROR
    assert "systemctl --user daemon-reload: Failed to connect to bus" in result.stderr
    assert run(home, "status", "--user").exit_code == 3


def test_a_unit_of_somebody_else_is_not_touched(home: Path, pretend: Path) -> None:
    units = pretend / "config" / "systemd" / "user"
    units.mkdir(parents=True)
    (units / "gad.service").write_text("[Service]\n")
    for command in ("install", "uninstall"):
        result = run(home, command, "--user")
        assert (result.exit_code, "was not written by gad service install" in result.stderr) == (exits.ERROR, True)
    assert (units / "gad.service").read_text() == "[Service]\n"


def test_units_of_the_system_are_root_s_to_write(home: Path, pretend: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = run(home, "install")
    assert (result.exit_code, "run this with sudo" in result.stderr) == (exits.ERROR, True)


# -- keys that systemd hands over -----------------------------------------------------------------


def test_a_key_is_read_from_what_systemd_hands_over(home: Path, tmp_path: Path) -> None:
    (home / "gad.yaml").write_text("models: {claude: {key_credential: vendor}}")
    entry = load(home, {}).models["claude"]
    assert (entry.key_env, entry.key_credential, entry.key_from) == (None, "vendor", "vendor")
    handed = {"CREDENTIALS_DIRECTORY": str(tmp_path), "ANTHROPIC_API_KEY": "not this one"}
    with pytest.raises(
        ConfigError, match=r"key_credential: vendor cannot be read: No such file.*LoadCredential=vendor:"
    ):
        read_key(entry, handed)
    with pytest.raises(ConfigError, match="no service manager has handed over vendor; give the unit LoadCredential="):
        read_key(entry, {"ANTHROPIC_API_KEY": "not this one"})
    (tmp_path / "vendor").write_text("s3cret\n")
    assert read_key(entry, handed) == "s3cret"


def test_only_one_place_of_a_key_is_named(home: Path) -> None:
    (home / "gad.yaml").write_text(
        "models: {gpt: {key_file: a, key_credential: b}, claude: {key_credential: 'sk ant'}}"
    )
    with pytest.raises(ConfigError) as caught:
        load(home, {})
    assert "models.gpt.key_credential: key_file is given as well; keep one of the two" in str(caught.value)
    assert "must be the name of a credential" in str(caught.value) and "sk ant" not in str(caught.value)
