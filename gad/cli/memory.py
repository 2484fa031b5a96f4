"""gad memory: look at what agents remember, search it, and keep it tidy."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gad.cli import Place, exits
from gad.cli.listing import table
from gad.cli.show import json_bytes
from gad.errors import GadError
from gad.spool.status import timestamp

if TYPE_CHECKING:
    from gad.core.sop import Sop
    from gad.memory.store import MemoryStore

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")


@click.group("memory")
def memory_command() -> None:
    """Look at what agents remember, search it, and keep it tidy.

    Memory lies in the home's memory directory; its meta.md says how it is organised.
    """


@memory_command.command("show")
@as_json_option
@click.pass_obj
def show(place: Place, as_json: bool) -> None:
    """Show the text that is always on and the index (L1), with their sizes, and how much lies below.

    Tokens are estimates that err upward.
    """
    from gad.core.weights import tokens
    from gad.memory.archive import Archive

    store = store_of(place)
    texts = {"always_on": store.always_on(), "index": store.read("index.md") or ""}
    sizes = {name: {"lines": len(text.splitlines()), "tokens": round(tokens(text))} for name, text in texts.items()}
    below = {
        "facts": len(names(store.root, "facts", ".md")),
        "sops": len(store.sops()),
        "archived": len(Archive(store.root, report=complain).entries()),
    }
    if as_json:
        parts = {name: {"text": text} | sizes[name] for name, text in texts.items()}
        click.echo(json_bytes({"root": store.root} | parts | below))
        return
    titles = {"always_on": "always on, at the beginning of each conversation", "index": "index.md (L1)"}
    for name, title in titles.items():
        say(f"-- {title}: {sizes[name]['lines']} lines, about {sizes[name]['tokens']} tokens")
        say(texts[name].rstrip("\n"))
    say(f"-- below: {below['facts']} files of facts, {below['sops']} SOPs, {below['archived']} archived conversations")


@memory_command.command("search")
@click.argument("words", nargs=-1)
@click.option("--day", metavar="DAY", help="Only of a day (UTC), or the beginning of one: 2026-11-30, 2026-11.")
@click.option("--label", metavar="LABEL", help="Only with a label of task.yaml.")
@click.option("--outcome", type=click.Choice(["done", "failed", "stopped"]), help="Only what ended so.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Show so many at most.")
@as_json_option
@click.pass_obj
def search(
    place: Place,
    words: tuple[str, ...],
    day: str | None,
    label: str | None,
    outcome: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Search the archived conversations for all of WORDS, newest first; without WORDS list them.

    A word is found in tasks, messages, answers, calls and results, in any case, and as a part of another word.
    What is damaged is named on standard error and passed over.
    """
    from gad.memory.archive import Archive

    archive = Archive(str(place.home() / "memory"), report=complain)
    hits = archive.search(words, day=day, label=label, outcome=outcome, limit=limit)
    if as_json:
        click.echo(json_bytes([asdict(hit) for hit in hits]))
        return
    rows = [(hit.day, hit.session, hit.outcome, hit.excerpt) for hit in hits]
    table(("DAY", "SESSION", "OUTCOME", ""), rows)


@memory_command.command("sops")
@as_json_option
@click.pass_obj
def sops(place: Place, as_json: bool) -> None:
    """List the SOPs: stage, uses, successes, and what a run takes: from the first run that is kept to the latest."""
    found = sorted(store_of(place).sops(), key=lambda sop: (sop.category, sop.name))
    if as_json:
        click.echo(json_bytes([asdict(sop) | {"path": sop.path} for sop in found]))
        return
    rows = [
        (sop.name, sop.category, sop.stage, str(sop.uses), str(sop.successes), _tokens_per_run(sop)) for sop in found
    ]
    table(("NAME", "CATEGORY", "STAGE", "USES", "SUCCESSES", "TOKENS PER RUN"), rows)


def _tokens_per_run(sop: Sop) -> str:
    from gad.cli.chart import short

    spent = [short(run.tokens) for run in sop.runs]
    return " -> ".join(spent[:: max(1, len(spent) - 1)]) or "-"


@memory_command.command("plot")
@click.argument("name")
@click.option("--svg", "file", type=click.Path(dir_okay=False), help="Write an SVG file instead of drawing here.")
@click.pass_obj
def plot(place: Place, name: str, file: str | None) -> None:
    """Draw how many tokens each run of the SOP NAME took; its front matter keeps the latest runs."""
    from gad.cli.chart import bars, svg

    sop = store_of(place).sop(name)
    if sop is None:
        raise GadError(f"there is no SOP {name}; gad memory sops lists them")
    spent = [run.tokens for run in sop.runs]
    first = sop.uses - len(spent) + 1
    if file is None:
        say(f"{name}: tokens per run (stage {sop.stage}, {sop.uses} uses, {sop.successes} successes)")
        say("\n".join(bars(spent, first=first)))
        return
    text = svg(f"{name}: tokens per run", spent, first=first, x="run", y="tokens")
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
    click.echo(f"gad: wrote {file}", err=True)


@memory_command.command("log")
@as_json_option
@click.pass_obj
def log(place: Place, as_json: bool) -> None:
    """List every change of memory, the newest last: when, by whom, what, and on which evidence."""
    found = list(changes(store_of(place).root))
    if as_json:
        click.echo(json_bytes(found))
        return
    for change in found:
        evidence = ", ".join(map(str, change.get("evidence") or ()))
        note = " ".join(str(change.get("note") or "").split())
        told = "".join(f"; {text}" for text in (f"evidence: {evidence}" if evidence else "", note) if text)
        say(f"-- {_time(change.get('at'))} {change.get('who')}: {change.get('path')}{told}")
        what = change.get("what")
        for line in what if isinstance(what, list) else []:
            say(f"   {line}")


def changes(root: str) -> Iterable[Mapping[str, Any]]:
    """Yield the lines of changes.jsonl; a torn last one is left out. Raises GadError when another cannot be read."""
    try:
        with open(os.path.join(root, "changes.jsonl"), "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    found = json.loads(line)
                    if not isinstance(found, dict):
                        raise ValueError("not an object")
                except ValueError as exc:
                    raise GadError(f"{file.name}:{number}: cannot be read: {exc}; mend or remove the line") from None
                yield found
    except FileNotFoundError:
        return


def _time(at: object) -> str:
    return timestamp(at) if isinstance(at, int | float) else str(at)


@memory_command.command("gc")
@click.option("--yes", is_flag=True, help="Do it; else it is only shown.")
@as_json_option
@click.pass_obj
def gc(place: Place, yes: bool, as_json: bool) -> None:
    """Merge what stands in facts and log twice, and put SOPs away that nobody has used for 90 days.

    Without --yes nothing is changed, and what would be done is shown. Entries that are nearly the same are shown
    too; which of them is right is yours to decide. SOPs go to archive/sops/, from where they can be put back.
    """
    from gad.cli.memory_gc import carry_out, lines_of, plan

    store = store_of(place)
    found = plan(store, time.time())
    if yes:
        carry_out(store, found)
    if as_json:
        click.echo(json_bytes({"done": yes} | asdict(found)))
        return
    for line in lines_of(found, done=yes):
        say(line)


@memory_command.command("diagnose")
@as_json_option
def diagnose(as_json: bool) -> None:
    """Run the memory controller's diagnostic: do its parts work together? It is no evidence of ability.

    The same figures come out on every machine; no model is asked, and nothing of the home is used.
    """
    from gad.core.diagnostic import SEEDS, run

    reports = [run(seed) for seed in SEEDS]
    if as_json:
        click.echo(json_bytes([report.to_json() for report in reports]))
        return
    say("\n\n".join("\n".join(report.lines()) for report in reports))


@memory_command.command("check")
@as_json_option
@click.pass_obj
def check(place: Place, as_json: bool) -> None:
    """Check memory: files that were changed behind gad's back, SOPs that cannot be read, an index that is not current.

    Exits with 1 when something is wrong, else with 0. It changes nothing.
    """
    from gad.cli.memory_check import problems

    found = problems(store_of(place))
    if as_json:
        click.echo(json_bytes({"ok": not found, "problems": [asdict(problem) for problem in found]}))
    else:
        for problem in found:
            say(f"{problem.path}: {problem.what}\n   -> {problem.mend}")
        if not found:
            say("nothing is wrong")
    sys.exit(exits.ERROR if found else exits.DONE)


@memory_command.command("review")
@click.argument("proposal", required=False)
@click.option("--accept", "verdict", flag_value="accept", help="Let it into memory.")
@click.option("--reject", "verdict", flag_value="reject", help="Take it away.")
@as_json_option
@click.pass_obj
def review(place: Place, proposal: str | None, verdict: str | None, as_json: bool) -> None:
    """List what explorations propose and the gate did not let in by itself; show, accept or reject one PROPOSAL.

    Your word takes the place of the proof that it lacks; secrets and what passes stay out all the same. Proposals are
    files below memory/proposals, so an editor mends one.
    """
    from gad.memory.exploration import Exploration

    if verdict and proposal is None:
        raise click.UsageError(f"name the proposal to {verdict}; gad memory review lists them")
    exploration = Exploration(store_of(place), complain)
    found = {one.id: one for one in exploration.proposals()}
    if proposal is not None and proposal not in found:
        raise GadError(f"there is no proposal {proposal}; gad memory review lists them")
    if verdict and proposal:
        decide = exploration.accept if verdict == "accept" else exploration.reject
        decide(found[proposal])
        if as_json:
            click.echo(json_bytes({"id": proposal, "verdict": verdict}))
    elif as_json:
        shown = found.values() if proposal is None else [found[proposal]]
        click.echo(json_bytes([{"id": one.id} | asdict(one) for one in shown]))
    elif proposal:
        say(f"-- for {found[proposal].path}, which has now:")
        say(exploration.present(found[proposal]) or "(nothing)")
        say(f"-- proposed; it waits since {found[proposal].reason or 'nobody knows why'}")
        say(found[proposal].text)
    else:
        table(("PROPOSAL", "WAITS SINCE"), [(one.id, one.reason) for one in found.values()])


def store_of(place: Place) -> MemoryStore:
    """Return the home's memory, as it is. Raises HomeNotFound."""
    from gad.memory.store import MemoryStore

    return MemoryStore(str(place.home() / "memory"))


def names(root: str, directory: str, ending: str = "") -> list[str]:
    """Return the names in a directory of memory that end so, sorted; none when there is no such directory."""
    try:
        found = os.listdir(os.path.join(root, directory))
    except FileNotFoundError:
        return []
    return sorted(name for name in found if name.endswith(ending) and not name.startswith("."))


def say(text: str) -> None:
    """Print text; a terminal is given no control characters."""
    from gad.cli.watch import printer

    printer()((text + "\n").encode("utf-8", "replace"))


def complain(text: str) -> None:
    """Print what is damaged on standard error."""
    click.echo(f"gad: {text}", err=True)
