"""gad triggers: what hands in sessions by itself, and how it is doing."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gad.cli import Place, exits
from gad.cli.listing import table
from gad.errors import GadError
from gad.spool.lock import held
from gad.triggers.instances import STATE_DIR, Finder, Found
from gad.triggers.record import Record, Store

if TYPE_CHECKING:
    from gad.triggers.rehearsal import Rehearsal

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")


@click.group("triggers", invoke_without_command=True)
@as_json_option
@click.pass_context
def triggers_command(context: click.Context, as_json: bool) -> None:
    """List and operate what hands in sessions by itself: the files in the home's triggers directory.

    Without a command it lists them.
    """
    if context.invoked_subcommand is None:
        _list(context.obj, as_json)


@triggers_command.command("list")
@as_json_option
@click.pass_obj
def list_command(place: Place, as_json: bool) -> None:
    """List the triggers: state, when they are due, when they last fired, what came of it, why they did not fire."""
    _list(place, as_json)


@triggers_command.command("test")
@click.argument("name")
@as_json_option
@click.pass_obj
def test_command(place: Place, name: str, as_json: bool) -> None:
    """Show what the check of NAME would hand in now; nothing is handed in, and its state stays as it is."""
    told = asyncio.run(_rehearse(place, name))
    if as_json:
        sessions = [{"session": one.session, "text": one.text, "task": one.task, "exists": one.exists}
                    for one in told.sessions]  # fmt: skip
        click.echo(json.dumps({"sessions": sessions, "skipped": told.skipped, "lines": told.lines,
                               "error": told.error}, ensure_ascii=False))  # fmt: skip
    else:
        for line in told.lines:
            click.echo(f"{name}: {line}", err=True)
        for one in told.sessions:
            click.echo(f"-- {one.session}{' (is there already)' if one.exists else ''}")
            click.echo(f"{one.task}--\n{one.text}")
        if not told.sessions and not told.error:
            click.echo(f"nothing to hand in{': ' + told.skipped if told.skipped else ''}")
    if told.error:
        raise GadError(f"trigger {name}: {told.error}")


@triggers_command.command("fire")
@click.argument("name")
@click.pass_context
def fire_command(context: click.Context, name: str) -> None:
    """Have the daemon call NAME now, whether it is due or not. Caps hold all the same."""
    place: Place = context.obj
    found, store = _one(place, name)
    if not found.settings.enabled:
        raise GadError(f"trigger {name} is off: triggers/{name}.yaml says enabled: false")
    if (reason := store.disabled()) is not None:
        raise GadError(f"trigger {name} is disabled ({reason}); enable it first: gad triggers enable {name}")
    store.ask_to_fire()
    if not held(str(place.spool())):
        click.echo("gad: no daemon runs; it is called when one does (gad up)", err=True)
        context.exit(exits.TEMPORARY)


@triggers_command.command("enable")
@click.argument("name")
@click.pass_obj
def enable_command(place: Place, name: str) -> None:
    """Let NAME run again; what it is blamed for is forgotten."""
    found, store = _one(place, name)
    if not store.enable():
        off = f": triggers/{name}.yaml says enabled: false" if not found.settings.enabled else ""
        click.echo(f"gad: trigger {name} was not disabled{off}", err=True)


@triggers_command.command("disable")
@click.argument("name")
@click.argument("reason", nargs=-1)
@click.pass_obj
def disable_command(place: Place, name: str, reason: tuple[str, ...]) -> None:
    """Keep NAME from running until it is enabled; REASON says why. Its sessions go on."""
    _one(place, name)[1].disable(" ".join(reason) or "by hand")


def _list(place: Place, as_json: bool) -> None:
    from gad.cli.trigger_file import parser_of

    home = place.home()
    found = Finder(str(home), parser_of(place.config)).find()
    running = held(str(place.spool()))
    whole = [_told(one, _store(home, one.name), running) for one in found.values()]
    # A file's name may be no text: such bytes are shown as question marks.
    text = json.dumps(whole, ensure_ascii=False).encode("utf-8", "replace").decode()
    if as_json:
        click.echo(text)
        return
    told = json.loads(text)
    rows = [row for one in told for row in _rows(one, time.time())]
    table(("TRIGGER", "PLUGIN", "STATE", "NEXT", "LAST FIRED", "LAST RESULT", "OPEN", "TODAY", ""), rows)
    for one in told:
        for problem in one["problems"]:
            click.echo(f"gad: {one['trigger']}: {problem}", err=True)
    if told and not running:
        click.echo("gad: no daemon runs, so no trigger does (gad up)", err=True)


def _told(found: Found, store: Store, running: bool) -> dict[str, Any]:
    """Return what is known of an instance, for people and programs; times are in seconds since the epoch."""
    unread = ""
    try:
        record = store.load()
    except OSError as exc:  # the others are listed all the same
        record, unread = Record(), f"{exc.filename}: {exc.strerror}; mend its mode or remove it"
    record.turn_page(time.time())
    status, why = record.status, record.capped or record.skipped
    if unread:
        status, why = "broken", unread
    elif found.problem and status in ("starting", "broken"):
        status, why = "broken", found.problem
    elif not found.settings.enabled:
        status, why = "off", f"triggers/{found.name}.yaml says enabled: false"
    elif (reason := store.disabled()) is not None:
        status, why = "disabled", reason
    elif record.failures:
        status, why = "failing", record.error
    elif not running:
        status = "on"
    kept = record.plugin
    schedules = kept.get("schedules")
    problems = [str(one) for one in kept["problems"]] if isinstance(kept.get("problems"), list) else []
    if record.problem and status != "broken":
        problems.append(f"the newest version is not used: {record.problem}")
    return {
        "trigger": found.name,
        "plugin": found.plugin or found.name,
        "state": status,
        "why": why,
        "next_due": record.next_due,
        "interval": record.interval,
        "last_fired": record.last_fired,
        "last_session": record.last_session,
        "last_result": record.last_result,
        "open": sorted(record.open),
        "sessions_today": record.sessions_today,
        "usd_today": None if record.usd_unknown else round(record.spent_today(), 6),
        "failures": record.failures,
        "problems": problems,
        "schedules": schedules if isinstance(schedules, dict) else {},
    }


def _rows(one: Mapping[str, Any], now: float) -> list[tuple[str, ...]]:
    """Return an instance's line in the table, and one for each schedule that it keeps."""
    due = _when(one["next_due"], now)
    if due == "-" and one["interval"]:
        due = f"each {one['interval']:g}s"
    usd = one["usd_today"]
    today = f"{one['sessions_today']}/{'?' if usd is None else f'${usd:.2f}'}"
    result = _result(one["last_result"])
    head = (one["trigger"], one["plugin"], one["state"], due, _when(one["last_fired"], now), result)
    rows: list[tuple[str, ...]] = [(*head, str(len(one["open"])), today, one["why"])]
    for name, entry in sorted(one["schedules"].items()):
        if isinstance(entry, dict):
            times = _when(entry.get("next"), now), _when(entry.get("fired"), now)
            open_now = str(len(found)) if isinstance(found := entry.get("open"), list) else "-"
            skipped = str(entry.get("skipped") or "")
            rows.append((f"  {name}", "", "", *times, _result(entry.get("result")), open_now, "", skipped))
    return rows


def _result(result: object) -> str:
    if not isinstance(result, dict):
        return "-"
    return f"{result.get('state')}" + (f": {result['error']}"[:60] if result.get("error") else "")


def _when(at: object, now: float) -> str:
    """Return a time as one of today, or with its day."""
    try:
        there, here = time.localtime(at), time.localtime(now)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):  # a plugin of anybody's may keep what it likes
        return "-"
    if at is None:
        return "-"
    return time.strftime("%H:%M:%S" if there[:3] == here[:3] else "%Y-%m-%d %H:%M", there)


async def _rehearse(place: Place, name: str) -> Rehearsal:
    from gad.cli.trigger_file import door_of
    from gad.tools.environment import child_environment
    from gad.triggers.rehearsal import rehearse

    found, store = _one(place, name)
    if found.problem:
        raise GadError(found.problem)
    config = place.config()
    return await rehearse(
        found,
        store.load(),
        home=str(config.home),
        door=door_of(lambda: config),
        environment=child_environment(os.environ, {"GAD_HOME": str(config.home)}),
        now=time.time,
    )


def _one(place: Place, name: str) -> tuple[Found, Store]:
    """Return an instance and its files. Raises GadError when there is none of this name."""
    from gad.cli.trigger_file import parser_of

    home = place.home()
    found = Finder(str(home), parser_of(place.config)).find()
    if name not in found:
        there = f"there are: {', '.join(found)}" if found else f"there is none in {home / 'triggers'}"
        raise GadError(f"there is no trigger {name}; {there}")
    return found[name], _store(home, name)


def _store(home: Path, name: str) -> Store:
    return Store(str(home / "triggers" / STATE_DIR), name)
