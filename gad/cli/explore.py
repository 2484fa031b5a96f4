"""gad explore: what gad does with idle time: the skill tree, the plan with its scores, the weights, the reports."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gad.cli import Place, exits
from gad.cli.listing import table
from gad.cli.memory import as_json_option, complain, say
from gad.cli.show import json_bytes
from gad.errors import GadError
from gad.spool.status import timestamp

if TYPE_CHECKING:
    from gad.cli.explore_work import Explorer
    from gad.core.explore_plan import Task
    from gad.core.explore_report import Report

SHOWN = 10
"""Reports that are listed; the rest is in memory/exploration/reports."""
REVIEW_TURNS = 12
"""Turns that a plan's reviewer may take."""


@click.group("explore", invoke_without_command=True)
@as_json_option
@click.option("--svg", "file", type=click.Path(dir_okay=False), help="Write the weights over time as an SVG file.")
@click.pass_context
def explore_command(context: click.Context, as_json: bool, file: str | None) -> None:
    """Show what has come of idle time: the skill tree, the plan with its scores, the weights, the reports.

    The trigger `idle` explores when nothing else goes on: touch triggers/idle.yaml. The other commands are what it
    and its sessions are made of.
    """
    if context.invoked_subcommand is not None:
        return
    explorer = _explorer(context.obj)
    if file is not None:
        _write_svg(explorer, file)
    elif as_json:
        click.echo(json_bytes(_found(explorer)))
    else:
        _show(explorer)


@explore_command.command("next")
@click.pass_obj
def next_command(place: Place) -> None:
    """Print what is to be handed in next, as JSON: the best task that is open, or the making of a new plan.

    Nothing is changed: a task counts as taken once there is a session with its key.
    """
    click.echo(json.dumps(_explorer(place).due(), ensure_ascii=False))


@explore_command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def check_command(place: Place, file: Path) -> None:
    """Check a plan (plan.json) or a report (report.md, with the proposals beside it) and exit with 0 when it will do.

    It is the check of exploration's sessions. A session's plan must have been approved by a sub-agent of it.
    """
    explorer = _explorer(place)
    if file.suffix == ".json":
        ideas = explorer.read_plan(file)
        explorer.check_approved(ideas, os.environ.get("GAD_SESSION", ""))
    else:
        explorer.check_report(file)
    click.echo(f"{file.name} will do")


@explore_command.command("review")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="Exit 124 after S seconds.")
@click.pass_obj
def review_command(place: Place, file: Path, timeout: float | None) -> None:
    """Have a fresh agent review the plan in FILE and print what it says; exits with 0 when it approves.

    In a session's command, the reviewer is that session's sub-agent.
    """
    from gad.cli.explore_work import REVIEWING, answer_of, is_approval
    from gad.cli.submit import parent_here
    from gad.cli.watch import giving_up, until_rest
    from gad.core.explore_texts import review_text
    from gad.spool import drop
    from gad.spool.status import render

    ideas = _explorer(place).read_plan(file)
    task: dict[str, Any] = {
        "turns": REVIEW_TURNS,
        "ask": "never",
        "confined": True,
        "labels": ["explore", REVIEWING],
    }
    if parent := parent_here(place):
        task["parent"] = parent
    name = drop.new_session_name(time.time())
    directory = drop.submit(place.spool(), name, review_text(ideas).encode(), render(task))
    with giving_up():
        status = until_rest(directory, timeout=timeout)
    answer = answer_of(directory)
    click.echo(answer if status["state"] == "done" else f"the review is {status['state']}: {status.get('error', '')}")
    if status["state"] != "done":
        sys.exit(exits.BY_STATE.get(status["state"], exits.FAILED))
    sys.exit(exits.DONE if is_approval(answer) else exits.ERROR)


@explore_command.command("file")
@click.argument("session")
@as_json_option
@click.pass_obj
def file_command(place: Place, session: str, as_json: bool) -> None:
    """Keep what came of SESSION, which planned or explored and has ended: its plan, or its report and proposals.

    The trigger does this by itself. What a failed or stopped exploration has left is kept too. Doing it again does no
    harm.
    """
    filed = _explorer(place).file(session, time.time())
    if as_json:
        click.echo(json_bytes(asdict(filed)))
        return
    if filed.plan:
        say(f"kept as plan {filed.plan.id}, {len(filed.plan.tasks)} tasks")
    if filed.report:
        say(f"kept as memory/exploration/reports/{filed.report.task}.md: {filed.report.outcome}")
        for path, became in filed.report.proposed.items():
            say(f"   {path}: {became}")
    if not filed.plan and not filed.report:
        say("it has left no plan")
    for trial in filed.trials:
        say(f"trial of {trial.task} is over: {_trial_told(asdict(trial))}")


def _explorer(place: Place) -> Explorer:
    from gad.cli.explore_work import Explorer

    if not place.config().memory.enabled:
        raise GadError("exploration needs memory, which is switched off: memory.enabled in gad.yaml; or give "
                       "triggers/idle.yaml a prompt of its own under options")  # fmt: skip
    return Explorer(place.home(), complain)


def _found(explorer: Explorer) -> dict[str, Any]:
    """Return all of it as JSON can hold it."""
    from gad.core.explore import Weights, skill_tree

    tree, plans, reports = skill_tree(explorer.store.sops()), explorer.memory.plans(), explorer.memory.reports()
    return {
        "tree": {name: [asdict(skill) for skill in skills] for name, skills in tree.categories.items()},
        "plan": None
        if not plans
        else asdict(plans[-1])
        | {"tasks": [asdict(task) | {"state": explorer.standing(task, reports)[0]} for task in plans[-1].tasks]},
        "weights": asdict(explorer.memory.weights()),
        "weights_at_first": asdict(Weights()),
        "trials": [asdict(trial) for trial in explorer.memory.trials()],
        "reports": [asdict(report) for report in reports],
        "waiting": [proposal.id for proposal in explorer.memory.proposals()],
    }


def _show(explorer: Explorer) -> None:
    from gad.core.explore import breadth, skill_tree

    tree = skill_tree(explorer.store.sops())
    say("-- skills: uses of each; breadth is what a new one in the category would gain")
    rows = [
        (name, f"{breadth(tree, name):.1f}", ", ".join(f"{skill.name} {skill.uses}" for skill in skills))
        for name, skills in tree.categories.items()
    ]
    table(("CATEGORY", "BREADTH", "SKILLS"), rows)
    plans, reports = explorer.memory.plans(), explorer.memory.reports()
    if plans:
        say(f"\n-- plan {plans[-1].id}, by session {plans[-1].session}: score = breadth, depth, utility, innovation")
        heads = ("TASK", "SCORE", "B", "D", "U", "I", "STATE", "CATEGORY", "TITLE")
        table(heads, [_row(task, explorer.standing(task, reports)[0]) for task in plans[-1].tasks])
    else:
        say("\n-- no plan yet; the trigger idle makes one: touch triggers/idle.yaml, or now: gad triggers fire idle")
    _show_weights(explorer)
    if reports:
        say(f"\n-- reports: the latest {min(SHOWN, len(reports))} of {len(reports)}, in memory/exploration/reports")
        table(("TASK", "ENDED", "OUTCOME", "TURNS", "SUMMARY"), [_report_row(report) for report in reports[-SHOWN:]])
    if waiting := explorer.memory.proposals():
        say(f"\n-- {len(waiting)} proposals for memory wait for you: gad memory review")


def _row(task: Task, state: str) -> tuple[str, ...]:
    scores = task.scores
    four = (scores.breadth, scores.depth, scores.utility, scores.innovation)
    shown = tuple(f"{value:.1f}" for value in (task.predicted, *four))
    return (task.id, *shown, state, task.idea.category, task.idea.title)


def _report_row(report: Report) -> tuple[str, ...]:
    return (report.task, timestamp(report.at), report.outcome, str(report.turns), report.summary)


def _show_weights(explorer: Explorer) -> None:
    from gad.cli.chart import spark
    from gad.core.explore import DIMENSIONS

    history, trials = _history(explorer), explorer.memory.trials()
    say(f"\n-- weights, and how they came to be in {len(trials)} trials (gad explore --svg FILE draws them)")
    for name in DIMENSIONS:
        values = history[name]
        say(f"{name:<11}{values[-1]:.3f}  {spark(values, 0.5)}")
    for trial in trials[-SHOWN:]:
        say(f"{timestamp(trial.at)} {trial.task}: {_trial_told(asdict(trial))}")


def _trial_told(trial: Mapping[str, Any]) -> str:
    used = "nobody knows how often it was used" if trial["used"] is None else f"used {trial['used']} times in 30 days"
    return f"predicted {trial['predicted']:.1f}, {trial['skill'] or 'no skill'}, {used}"


def _history(explorer: Explorer) -> dict[str, list[float]]:
    """Return the weights over time, by dimension: those at first, then those after each trial."""
    from gad.core.explore import DIMENSIONS, Weights

    steps = [Weights(), *(trial.weights for trial in explorer.memory.trials())]
    return {name: [float(getattr(step, name)) for step in steps] for name in DIMENSIONS}


def _write_svg(explorer: Explorer, file: str) -> None:
    from gad.cli.chart import svg_lines

    text = svg_lines("weights of exploration's score", _history(explorer), x="trials", y="weight", first=0)
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as exc:
        raise GadError(f"{file} cannot be written: {exc.strerror}") from None
    click.echo(f"gad: wrote {file}", err=True)
