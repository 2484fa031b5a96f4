"""gad service: has systemd run the daemon of this home, with units that are made from the templates in systemd/."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import gad
from gad.cli import Place
from gad.errors import GadError
from gad.home import DIRECTORIES

if TYPE_CHECKING:
    from gad.config import Config

TEMPLATES = Path(gad.__file__).parent / "systemd"
MARK = "# Written by `gad service install`; changes of your own belong into a drop-in: systemctl edit"
BOOTED = Path("/run/systemd/system")
"""There when systemd runs the machine (sd_booted(3))."""
SYSTEM_UNITS = Path("/etc/systemd/system")
HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user")))
"""What ProtectHome= takes away."""
PRIVATE = tuple(map(Path, ("/tmp", "/var/tmp")))
"""What PrivateTmp= takes away."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Service:
    """One service: the user's own or one of the system, and what it is called; an empty name is the only one."""

    user: bool
    name: str

    @property
    def stem(self) -> str:
        """What its units are called, without what stands behind the dot."""
        return f"gad@{self.name}" if self.name else "gad"

    @property
    def directory(self) -> Path:
        """Where its units lie."""
        if not self.user:
            return SYSTEM_UNITS
        base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
        return Path(base) / "systemd" / "user"

    @property
    def manager(self) -> tuple[str, ...]:
        """The option that names its manager to systemd's commands."""
        return ("--user",) if self.user else ()

    def units(self) -> list[Path]:
        """Return its unit files that are there. Raises GadError when one was not written by us."""
        found = [path for kind in ("service", "path") if (path := self.directory / f"{self.stem}.{kind}").exists()]
        for path in found:
            if not path.read_text("utf-8", "replace").startswith(MARK):
                raise GadError(f"{path} was not written by gad service install; move it away, or choose --name")
        return found

    def systemctl(self, *arguments: str) -> None:
        """Run systemctl. Raises GadError with what it says."""
        command = ["systemctl", *self.manager, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            if self.user and "connect to bus" in said:
                said += (
                    f"; your service manager runs while you are logged in, which sudo and su are not: log in, or "
                    f"loginctl enable-linger, and export XDG_RUNTIME_DIR=/run/user/{os.geteuid()}"
                )
            raise GadError(f"{' '.join(command)}: {said}")


def chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which service is meant."""

    @click.option("--user", is_flag=True, help="The user's own service instead of one of the system.")
    @click.option("--name", metavar="NAME", default="", help="Which one, where there are several homes: gad@NAME.")
    @wraps(command)
    def inner(user: bool, name: str, **rest: Any) -> Any:
        if name and not _NAME.fullmatch(name):
            raise click.UsageError(f"--name {name}: use letters, digits, dots and dashes")
        return command(service=Service(user, name), **rest)

    return inner


@click.group("service")
def service_command() -> None:
    """Have systemd run the daemon of a home."""


@service_command.command("install")
@chosen
@click.option("--path-unit", is_flag=True, help="Start the daemon when a task appears, not with the machine.")
@click.option(
    "--credential",
    "credentials",
    metavar="NAME:FILE",
    multiple=True,
    help="The file whose key systemd hands over under NAME, for key_credential in gad.yaml.",
)
@click.option("--print", "--dry-run", "only_print", is_flag=True, help="Show what would be written; change nothing.")
@click.pass_obj
def install_command(
    place: Place, service: Service, path_unit: bool, credentials: tuple[str, ...], only_print: bool
) -> None:
    """Write units for this home and this installation of gad, and enable them.

    The daemon of a system's service runs as the owner of the home.
    """
    found = place.config()
    config = replace(found, home=found.home.resolve())  # what a link names may lie where a unit must name it
    units = {f"{service.stem}.service": service_unit(service, config, credentials)}
    if path_unit:
        units[f"{service.stem}.path"] = path_of(service, config.home)
    if only_print:
        for name, text in units.items():
            click.echo(f"# {service.directory / name}\n{text}")
        return
    _require_systemd(service)
    for old in service.units():
        if old.name not in units:  # it was installed with --path-unit before
            service.systemctl("disable", "--now", old.name)
            old.unlink()
    service.directory.mkdir(parents=True, exist_ok=True)
    for name, text in units.items():
        (service.directory / name).write_text(text, "utf-8")
        click.echo(f"gad: written: {service.directory / name}", err=True)
    service.systemctl("daemon-reload")
    enabled = list(units)[-1]
    if path_unit:
        service.systemctl("disable", f"{service.stem}.service")
    service.systemctl("enable", enabled)
    options = " ".join(("systemctl", *service.manager))
    click.echo(f"gad: enabled; start it now with: {options} restart {enabled}", err=True)
    for warning in warnings(service, config):
        click.echo(f"gad: warning: {warning}", err=True)


@service_command.command("uninstall")
@chosen
def uninstall_command(service: Service) -> None:
    """Stop the service and remove its units. The home stays as it is."""
    _require_systemd(service)
    units = service.units()
    if not units:
        raise GadError(f"there is no {service.stem}.service in {service.directory}")
    # The path unit first, or it would start what is being stopped.
    service.systemctl("disable", "--now", *[path.name for path in reversed(units)])
    for path in units:
        path.unlink()
        click.echo(f"gad: removed: {path}", err=True)
    service.systemctl("daemon-reload")


@service_command.command("status")
@chosen
def status_command(service: Service) -> None:
    """Show how the service is doing; the exit code is that of systemctl status."""
    _require_systemd()
    sys.exit(subprocess.run(["systemctl", *service.manager, "--no-pager", "status", service.stem]).returncode)


@service_command.command("logs")
@chosen
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, show_default=True, help="How many lines.")
def logs_command(service: Service, follow: bool, lines: int) -> None:
    """Show what the service has logged."""
    _require_systemd()
    command = ["journalctl", *service.manager, "--no-pager", "-n", str(lines), "-u", service.stem]
    sys.exit(subprocess.run(command + ["-f"] * follow).returncode)


def _require_systemd(writes: Service | None = None) -> None:
    """Raise GadError unless systemd runs here, and we may write the units of a service."""
    if not BOOTED.is_dir() or shutil.which("systemctl") is None:
        raise GadError(
            f"systemd does not run here (there is no {BOOTED}); have another supervisor run `gad up`, "
            f"or see what would be installed: gad service install --print"
        )
    if writes is not None and not writes.user and os.geteuid() != 0:
        raise GadError(
            f"units in {writes.directory} are root's to write: run this with sudo (and --home), or install a service "
            f"of your own with --user"
        )


# -- the units ------------------------------------------------------------------------------------


def service_unit(service: Service, config: Config, credentials: Sequence[str] = ()) -> str:
    """Return the text of a service's unit. Raises GadError when the home cannot be served like that."""
    home = config.home
    command = " ".join(_argument(word) for word in (*program(), "--home", str(home), "up"))
    lines = {
        "Description": [f"Description=gad, LLM agents through a directory: {_percent(str(home))}"],
        "ExecStart": [f"ExecStart={command}"],
        "LoadCredential": [f"LoadCredential={_percent(one)}" for one in handed_over(config, credentials)],
    }
    if service.user:
        return _render("user/gad.service", lines)
    written = [home, *elsewhere(home)]
    for path in written:
        if any(path.is_relative_to(place) for place in PRIVATE):
            raise GadError(f"{path} lies where every service has its own files (PrivateTmp=); move it elsewhere")
    cache = f"gad-{service.name}" if service.name else "gad"
    lines |= {
        "User": [f"User={owner(home)}"],
        "ReadWritePaths": [f"ReadWritePaths={_word(str(path))}" for path in written],
        "CacheDirectory": [f"CacheDirectory={cache}"],
        "Environment": [f"Environment=XDG_CACHE_HOME=/var/cache/{cache}"],
    }
    if seen := [path for path in needed(config) if any(path.is_relative_to(place) for place in HIDDEN)]:
        lines["ProtectHome"] = ["ProtectHome=tmpfs"] + [
            f"BindPaths={_bound(path)}" if path in written else f"BindReadOnlyPaths=-{_bound(path)}" for path in seen
        ]
    return _render("gad.service", lines)


def path_of(service: Service, home: Path) -> str:
    """Return the text of the unit that starts a service when a task appears."""
    spool = _percent(str(home / "spool"))
    literal = re.sub(r"([][*?{}\\])", r"\\\1", spool)
    lines = {
        "Description": [f"Description=Start gad when a task appears: {_percent(str(home))}"],
        "PathChanged": [f"PathChanged={spool}"],
        "PathExistsGlob": [f"PathExistsGlob={literal}/*/input.txt"],
        "Unit": [f"Unit={service.stem}.service"],
        "WantedBy": [f"WantedBy={'default' if service.user else 'multi-user'}.target"],
    }
    return _render("gad.path", lines)


def program() -> tuple[str, ...]:
    """Return the command line that runs this installation of gad."""
    script = os.path.join(os.path.dirname(sys.executable), "gad")
    return (script,) if os.access(script, os.X_OK) else (sys.executable, "-m", "gad")


def needed(config: Config) -> list[Path]:
    """Return the directories without which the daemon cannot run: the home first, none within another."""
    from gad.browser.chromium import find_chromium
    from gad.errors import BrowserError

    places = [
        *elsewhere(config.home),
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(gad.__file__).parent.parent,
        TEMPLATES,
    ]
    places += [Path(entry.weights) for entry in config.models.values() if entry.weights]
    with contextlib.suppress(BrowserError):  # the web tools say so when they are used
        places.append(Path(find_chromium(config.browser.executable or "", os.environ)).parent)
    found: list[Path] = [config.home]
    for place in sorted({place.resolve() for place in places}):
        if not any(place.is_relative_to(other) for other in found):
            found.append(place)
    return found


def elsewhere(home: Path) -> list[Path]:
    """Return where those of a home's directories lie that are links to another place."""
    found = [(home / name).resolve() for name in (*DIRECTORIES, "browser") if (home / name).is_symlink()]
    return [path for path in dict.fromkeys(found) if not path.is_relative_to(home)]


def owner(home: Path) -> str:
    """Return the name of the user to whom a home belongs, or the number where there is no name."""
    import pwd

    number = home.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def handed_over(config: Config, credentials: Sequence[str]) -> list[str]:
    """Return what LoadCredential= is to say. Raises GadError when gad.yaml wants one that is not given."""
    found: dict[str, str] = {}
    for one in credentials:
        name, colon, file = one.partition(":")
        if not colon or not _NAME.fullmatch(name) or not os.path.isfile(file):
            raise GadError(f"--credential {one}: give a name and a file that is there, as in anthropic:/etc/gad/key")
        found[name] = os.path.abspath(file)
    for entry in config.models.values():
        if entry.key_credential and entry.key_credential not in found:
            raise GadError(
                f"models.{entry.name}.key_credential in gad.yaml: say where the key lies, "
                f"with --credential {entry.key_credential}:FILE"
            )
    return [f"{name}:{file}" for name, file in found.items()]


def warnings(service: Service, config: Config) -> list[str]:
    """Return what will not work as it does in this shell, and what should not be."""
    found = []
    if config.source("model").startswith("environment"):
        found.append(f"gad.yaml names no model; here it is {config.model} because of the {config.source('model')}, "
                     f"which the service does not have: write model: {config.model}")  # fmt: skip
    for name in config.chain_of(config.model):
        entry = config.models[name]
        if entry.provider != "local" and entry.key_env:
            found.append(f"models.{name} takes its key from {entry.key_env}, which the service does not have: write "
                         f"key_credential: {name} instead, and install with --credential {name}:FILE")  # fmt: skip
    if not service.user and config.home.stat().st_uid == 0:
        found.append(f"{config.home} belongs to root, so agents run as root; give it to a user of its own "
                     f"(useradd --system gad; chown -R gad {config.home}) and install again")  # fmt: skip
    if service.user:
        found.append("it ends with your last login, unless: loginctl enable-linger")
    return found


def _render(template: str, chosen: Mapping[str, Sequence[str]]) -> str:
    """Return a template with lines put in the place of those of their keys, and our mark for its heading."""
    lines = [MARK, ""]
    _, section, body = (TEMPLATES / template).read_text("utf-8").partition("[Unit]\n")
    for line in (section + body).splitlines():
        lines += chosen.get(line.removeprefix("#").partition("=")[0], [line]) if "=" in line else [line]
    return "\n".join(lines) + "\n"


def _percent(text: str) -> str:
    if any(not char.isprintable() for char in text) or text.endswith("\\"):
        raise GadError(f"{text!r}: a unit of systemd cannot name this path; rename it")
    return text.replace("%", "%%")


def _word(text: str) -> str:
    """Return a word of a list in a unit."""
    text = _percent(text)
    if not re.search(r"""[\s"'\\]""", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bound(path: Path) -> str:
    if ":" in str(path):
        raise GadError(f"{path}: a unit of systemd cannot name a path with a colon here; rename it")
    return _word(str(path))


def _argument(text: str) -> str:
    """Return a word of a command line in a unit."""
    return _word(text.replace("$", "$$"))
