"""gad doctor: whether everything that gad needs is there, and what to do when it is not."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from gad import __version__
from gad.cli import Place, exits

if TYPE_CHECKING:
    from gad.config import Config, Model

GIB = 2**30
PROBE_SECONDS = 5.0
"""How long the model's server may take to list its models."""
SPARE_WATCHES = 1000
"""Watches that the user's other programs, and new sessions, should find left."""


@dataclass(frozen=True, slots=True)
class Check:
    """What one check has found. `mend` is what to do, one line a step."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    mend: tuple[str, ...] = ()


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@click.pass_obj
def doctor_command(place: Place, as_json: bool) -> None:
    """Check that everything gad needs is there: the home, the model, the file system, the machine.

    Exits with 0 when nothing fails, else with 1; a warning is no failure. Each is followed by what to do.
    """
    found = []
    for check in checks(place):
        found.append(check)
        if not as_json:
            click.echo(f"{check.status:<5} {check.name:<12} {check.detail}")
            for line in check.mend:
                click.echo(f"{'':18} -> {line}")
    failed = [check.name for check in found if check.status == "fail"]
    if as_json:
        click.echo(json.dumps({"ok": not failed, "checks": [asdict(check) for check in found]}, ensure_ascii=False))
    sys.exit(exits.ERROR if failed else exits.DONE)


def checks(place: Place) -> Iterator[Check]:
    """Make one check after the other. What needs a home is left out when there is none."""
    from gad.cli import doctor_home as care
    from gad.config import load
    from gad.errors import ConfigError, HomeNotFound

    yield from machine()
    try:
        home = place.home()
    except HomeNotFound as exc:
        what, _, mend = str(exc).partition("; ")
        yield Check("home", "fail", what, (mend,))
        return
    yield Check("home", "ok", str(home))
    config = None
    try:
        config = load(home, place.environ())
        yield Check("gad.yaml", "ok", f"read; the default model is {config.model}")
    except ConfigError as exc:
        mistakes = tuple(str(exc).splitlines())
        yield Check("gad.yaml", "fail", f"{len(mistakes)} mistake{'s' * (len(mistakes) > 1)}", mistakes)
    writable = directories(home)
    yield writable
    yield care.permissions(home, config)
    if writable.status != "fail" and (home / "spool").is_dir():
        yield care.disk(home, config)
        yield from spool(home / "spool")
        yield care.descriptors(home / "spool", config)
        yield care.clock(home / "spool", time.time())
        yield care.journals(home / "spool")
        if config is not None:
            yield care.users(home / "spool", config)
            yield from care.piled_up(home / "spool", config)
    if config is not None:
        yield sandbox(config, place.environ())
        yield from browser(config)
        yield from model(config, place.environ())


# -- the machine ----------------------------------------------------------------------------------


def machine() -> Iterator[Check]:
    """Check what does not depend on a home."""
    yield Check("gad", "ok", f"{__version__}, {os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}")
    yield Check("python", "ok", f"{platform.python_version()}, {sys.executable}")
    bash = shutil.which("bash")
    if bash:
        yield Check("bash", "ok", bash)
    else:
        yield Check("bash", "fail", "not found in PATH", ("install bash: code_run and checks need it",))
    found = find_chromium(os.environ)
    if found:
        yield Check("chromium", "ok", found)
    else:
        from gad.browser.chromium import install_command

        mend = f"install it for the web tools: {install_command(os.environ)}"
        yield Check("chromium", "warn", "not found", (mend,))


def find_chromium(environ: Mapping[str, str]) -> str | None:
    """Return the path of the browser that web tools use when gad.yaml names none, or None."""
    from gad.browser.chromium import find_chromium as find
    from gad.errors import BrowserError

    try:
        return find("", environ)
    except BrowserError:
        return None


# -- the home -------------------------------------------------------------------------------------


def directories(home: Path) -> Check:
    """Check that the home's directories are there and may be written."""
    from gad.home import DIRECTORIES

    missing = [name for name in DIRECTORIES if not (home / name).is_dir()]
    closed = [name for name in DIRECTORIES if name not in missing and not os.access(home / name, os.W_OK | os.X_OK)]
    if closed:
        mend = f"chown or chmod {' '.join(str(home / name) for name in closed)}, or use another home"
        return Check("directories", "fail", f"{', '.join(closed)} may not be written by this user", (mend,))
    if missing:
        return Check("directories", "warn", f"{', '.join(missing)} missing", (f"make the home whole: gad init {home}",))
    return Check("directories", "ok", f"{', '.join(DIRECTORIES)}: there and writable")


def spool(place: Path) -> Iterator[Check]:
    """Check the spool's file system, and whether a daemon runs on it."""
    from gad.spool.trial import try_lease, try_lock
    from gad.spool.watch import NETWORK, file_system

    kind = file_system(str(place))
    if kind in NETWORK:
        yield Check(
            "file system",
            "warn",
            f"{kind}: a network file system, so the spool is polled",
            ("put the home on a local disk for answers without delay",),
        )
    else:
        yield Check("file system", "ok", kind or "unknown")
    problem = try_lock(str(place))
    if problem:
        yield Check("locks", "fail", problem, ("put the home on a file system with working locks",))
    else:
        yield Check("locks", "ok", "a lock keeps other processes out")
    problem = try_lease(str(place))
    if problem:
        yield Check(
            "leases",
            "warn",
            f"{problem}; a file counts when it has not changed for 0.2 s",
            ("write files aside and rename them into the session's directory",),
        )
    else:
        yield Check("leases", "ok", "the kernel tells when a file has been written to its end")
    yield inotify(place)
    yield running_daemon(place)


def inotify(place: Path, limits: Path = Path("/proc/sys/fs/inotify")) -> Check:
    """Check that file events come, and will for as many sessions as there are."""
    from gad.spool.trial import try_watch

    watches, instances = (_number(limits / name) for name in ("max_user_watches", "max_user_instances"))
    with os.scandir(place) as entries:
        sessions = sum(1 for entry in entries if entry.is_dir(follow_symlinks=False))
    facts = f"{sessions} directories; limits: {watches or '?'} watches, {instances or '?'} instances"
    instead = "sessions are looked at each second instead"
    more = f"sysctl fs.inotify.max_user_watches={max(524_288, 2 * (sessions + SPARE_WATCHES))}"
    if problem := try_watch(str(place)):
        mend = (more, "sysctl fs.inotify.max_user_instances=1024")
        return Check("inotify", "warn", f"{problem}; {instead} ({facts})", mend)
    if watches is not None and sessions + SPARE_WATCHES > watches:
        return Check("inotify", "warn", f"{facts}: nearly used up, then {instead}", (more,))
    return Check("inotify", "ok", f"events come; {facts}")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def running_daemon(place: Path) -> Check:
    """Tell whether a daemon runs, and whether it is of this version."""
    from gad.spool.lock import held
    from gad.spool.names import DAEMON_DIR
    from gad.spool.status import read_status

    if not held(str(place)):
        return Check("daemon", "ok", "none runs; gad up starts one")
    status = read_status(place / DAEMON_DIR)
    detail = f"pid {status.get('pid')}, version {status.get('version')}, {status.get('state')}"
    if trouble := status.get("trouble"):
        mend = "it goes on by itself once that is mended"
        return Check("daemon", "warn", f"{detail}; in trouble: {trouble}", (mend,))
    if status.get("version") != __version__:
        return Check("daemon", "warn", detail, (f"restart it: this is version {__version__}",))
    return Check("daemon", "ok", detail)


# -- the sandbox ----------------------------------------------------------------------------------


def sandbox(config: Config, environ: Mapping[str, str]) -> Check:
    """Check that what agents run can be put into a sandbox, where gad.yaml does not say that none is wanted."""
    from gad.cli.walls import sandbox_trouble

    chosen = config.sandbox
    if chosen.mode == "none":
        mend = "set sandbox: auto in gad.yaml to keep commands from the rest of the system"
        return Check("sandbox", "warn", "switched off: what agents run can do all that this user can", (mend,))
    if problem := sandbox_trouble(config, environ):
        what, _, mend = problem.partition("; ")
        needed = chosen.mode == "bwrap" or not chosen.network
        return Check("sandbox", "fail" if needed else "warn", what, (mend,))
    return Check("sandbox", "ok", f"bwrap works; the network is {'on' if chosen.network else 'off'}")


# -- the browser ----------------------------------------------------------------------------------


def browser(config: Config) -> Iterator[Check]:
    """Check the browser that gad.yaml chooses, if it does."""
    chosen = config.browser
    if chosen.executable and not (os.path.isfile(chosen.executable) and os.access(chosen.executable, os.X_OK)):
        mend = "name a program in browser.executable of gad.yaml, or remove that line"
        yield Check("browser", "fail", f"{chosen.executable} is not a program that can be run", (mend,))
    elif chosen.executable:
        yield Check("browser", "ok", chosen.executable)
    elif chosen.cdp_url:
        yield Check("browser", "ok", f"that of a person, at {chosen.cdp_url}; not asked")


# -- the model ------------------------------------------------------------------------------------


def model(config: Config, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check that the default model can be asked; of a chain, that one of its entries can."""
    entry = config.models[config.model]
    if entry.chain:
        yield from chain(config, entry, environ)
    else:
        yield from single_model(entry, environ)


def chain(config: Config, entry: Model, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check each entry of a chain: what fails is a warning as long as another one works."""
    found = {link: list(single_model(config.models[link], environ)) for link in entry.chain}
    failing = [link for link, made in found.items() if any(check.status == "fail" for check in made)]
    works = len(failing) < len(found)
    for link, made in found.items():
        for check in made:
            mild = "warn" if check.status == "fail" and works else check.status
            yield replace(check, name=f"{link} {check.name}", status=mild)
    if not works:
        yield Check("chain", "fail", f"{entry.name}: none of {', '.join(failing)} can be asked", ("mend one of them",))
    elif failing:
        rest = f"{', '.join(failing)} cannot be asked"
        yield Check("chain", "warn", f"{entry.name}: {rest}; the others answer instead", ("see above",))
    else:
        yield Check("chain", "ok", f"{entry.name}: each of {', '.join(entry.chain)} can be asked")


def single_model(entry: Model, environ: Mapping[str, str]) -> Iterator[Check]:
    """Check that one model can be asked."""
    from gad.cli.compose import find_key
    from gad.errors import GadError

    if entry.provider == "local":
        yield from local_model(entry)
        return
    try:
        key = find_key(entry, environ)
    except GadError as exc:
        what, _, mend = str(exc).partition(": ")
        yield Check("key", "fail", what, (mend,))
        return
    yield Check("key", "ok", "not needed" if key == "none" else f"from {entry.key_from}")
    yield asyncio.run(reach(entry, environ))


async def reach(entry: Model, environ: Mapping[str, str]) -> Check:
    """Ask the model's server for its models: it costs nothing, and needs the network and the key to be right."""
    from gad.cli.compose import vendor_provider
    from gad.errors import BadRequest, GadError

    where = f"{entry.name} ({entry.model})"
    provider = None
    try:
        provider = vendor_provider(entry, environ)
        names = await provider.models(PROBE_SECONDS)
    except BadRequest as exc:
        return Check("model", "warn", f"{where}: its server answers, but does not list its models", (str(exc),))
    except GadError as exc:
        what, _, mend = str(exc).partition(". ")
        return Check("model", "fail", f"{where}: {what}", (mend,) if mend else ())
    finally:
        if provider is not None:
            await provider.close()
    # Anthropic's list comes in pages, so it cannot tell that a name is missing.
    if names and entry.model not in names and entry.provider == "openai":
        known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return Check(
            "model",
            "warn",
            f"{where}: its server answers, but does not list this model",
            (f"it lists {known}; see models.{entry.name}.model in gad.yaml",),
        )
    return Check("model", "ok", f"{where}: its server answers")


def local_model(entry: Model) -> Iterator[Check]:
    """Check that the embedded model can be started: its runtime, its weights, or the space to fetch them."""
    from gad.providers.local.process import MISSING
    from gad.providers.local.weights import MARGIN, MODELS, cache_directory, present

    if importlib.util.find_spec("xllamacpp"):
        yield Check("runtime", "ok", "xllamacpp is installed")
    else:
        what, _, mend = MISSING.partition(": ")
        yield Check("runtime", "fail", what, (mend,))
    if entry.weights:
        if os.access(entry.weights, os.R_OK) and os.path.isfile(entry.weights):
            yield Check("weights", "ok", entry.weights)
        else:
            yield Check(
                "weights",
                "fail",
                f"{entry.weights} is not a readable file",
                (f"name a GGUF file in models.{entry.name}.weights, or remove that line",),
            )
        return
    spec = MODELS.get(entry.model)
    if spec is None:
        yield Check(
            "weights",
            "fail",
            f"there are none for {entry.model!r}",
            (f"choose {' or '.join(MODELS)}, or name a GGUF file in models.{entry.name}.weights",),
        )
        return
    if path := present(spec):
        yield Check("weights", "ok", str(path))
        return
    cache = cache_directory()
    standing = next(directory for directory in (cache, *cache.parents) if directory.is_dir())
    free = shutil.disk_usage(standing).free
    size = f"{spec.size / GIB:.1f} GiB"
    if free < spec.size + MARGIN:
        yield Check(
            "weights",
            "fail",
            f"not here yet; {size} are to be fetched, {free / GIB:.1f} GiB are free in {standing}",
            ("free some space, or set XDG_CACHE_HOME to a larger disk",),
        )
    else:
        yield Check(
            "weights",
            "warn",
            f"not here yet; {size} are fetched once, at the first task, into {cache}",
            ("gad run hello fetches them now",),
        )
