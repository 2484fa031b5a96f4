"""Exploration's pure part: the formulas, the weights that learn, plans and reports as values."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gad.core.explore import (
    DIMENSIONS,
    TRIAL,
    Scores,
    Skill,
    Tree,
    Weights,
    adapt,
    breadth,
    depth,
    dominant,
    parts,
    skill_tree,
    total,
    used_within,
)
from gad.core.explore_plan import CATEGORIES, MOST, Idea, Plan, read_tasks, scored
from gad.core.explore_report import Draft, Report, read_draft
from gad.core.explore_texts import LATELY, SKILLS, plan_text, review_text, task_text
from gad.core.sop import Run, Sop

TREE = Tree({"web": (Skill("login", 9), Skill("scrape", 0), Skill("forms", 2)), "files": (Skill("merge", 4),)})
"""Three skills and one: two a category on average."""


def sop(name: str, category: str, uses: int = 0, runs: tuple[Run, ...] = ()) -> Sop:
    """Return an SOP of that many uses."""
    return Sop(name, ("x",), category, uses=uses, successes=uses, runs=runs)


def idea(**changed: Any) -> dict[str, Any]:
    """Return a task of a plan.json."""
    return {
        "title": "How backups are restored",
        "category": "backup",
        "deepens": None,
        "goal": "Restore one file and compare it.",
        "why": "Nobody has tried.",
        "utility": 8,
        "innovation": 6,
    } | changed


def plan_file(*tasks: dict[str, Any]) -> str:
    return json.dumps({"tasks": list(tasks)})


GOOD = [idea(title=f"Task {n}", category=category) for n, category in enumerate(["web", "files", "backup", "mail"])]

# -- the formulas ------------------------------------------------------------------------------


def test_the_tree_is_derived_from_the_procedures() -> None:
    found = skill_tree([sop("b", "web", 3), sop("a", "web"), sop("c", "files", 7)])
    assert found == Tree({"files": (Skill("c", 7),), "web": (Skill("a", 0), Skill("b", 3))})
    assert list(found.categories) == ["files", "web"]
    assert (found.mean, found.most_used) == (1.5, 7)
    assert found.skill("b") == ("web", Skill("b", 3))
    assert found.skill("d") is None


@pytest.mark.parametrize(
    ("category", "value"),
    [("web", 0.0), ("files", 10 * (1 - 1 / 3)), ("mail", 10.0)],  # |Sc| = 3, 1, 0; mean = 2
)
def test_breadth_is_formula_3(category: str, value: float) -> None:
    assert breadth(TREE, category) == pytest.approx(value)


@pytest.mark.parametrize(("skill", "value"), [("login", 9.0), ("merge", 4.0), ("scrape", 0.0), (None, 0.0), ("?", 0.0)])
def test_depth_is_formula_4(skill: str | None, value: float) -> None:
    assert depth(TREE, skill) == pytest.approx(value)  # umax = 9, so each use is worth 1


def test_an_empty_tree_gives_all_breadth_and_no_depth() -> None:
    assert (Tree().mean, Tree().most_used, breadth(Tree(), "web"), depth(Tree(), None)) == (0, 0, 10, 0)


def test_the_score_is_formula_2() -> None:
    assert asdict(Weights()) == {"breadth": 0.3, "depth": 0.2, "utility": 0.3, "innovation": 0.2}
    assert total(Scores(10, 5, 8, 6), Weights()) == pytest.approx(0.3 * 10 + 0.2 * 5 + 0.3 * 8 + 0.2 * 6)


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.lists(st.integers(0, 500), max_size=6), max_size=6), st.text()
)
def test_all_dimensions_are_from_0_to_10(made: dict[str, list[int]], category: str) -> None:
    found = skill_tree(sop(f"s{n}", name, uses) for name, counts in made.items() for n, uses in enumerate(counts))
    for name in (*found.categories, category):
        assert 0 <= breadth(found, name) <= 10
        for skill in found.categories.get(name, ()):
            assert 0 <= depth(found, skill.name) < 10
    fewest = min(found.categories, key=lambda name: len(found.categories[name]), default=None)
    assert fewest is None or all(breadth(found, fewest) >= breadth(found, name) for name in found.categories)


# -- the weights -------------------------------------------------------------------------------

_SCORES = st.builds(Scores, *[st.floats(0, 10)] * 4)
_WEIGHTS = st.tuples(*[st.floats(0.01, 1)] * 4).map(lambda four: Weights(*(one / sum(four) for one in four)))


@pytest.mark.parametrize(
    ("predicted", "used", "factor"),
    [
        (8.1, 2, 0.9),
        (8.1, 0, 0.9),
        (8.1, 3, 1.0),
        (8.0, 0, 1.0),
        (5.0, 9, 1.0),
        (4.9, 5, 1.0),
        (4.9, 6, 1.1),
        (6.5, 0, 1.0),
        (6.5, 99, 1.0),
    ],
)
def test_the_dominant_weight_learns_at_these_bounds(predicted: float, used: int, factor: float) -> None:
    found = adapt(Weights(), Scores(10, 10, 1, 1), predicted, used)  # breadth adds 3, depth 2
    raw = {"breadth": 0.3 * factor, "depth": 0.2, "utility": 0.3, "innovation": 0.2}
    assert asdict(found) == pytest.approx({name: value / sum(raw.values()) for name, value in raw.items()})
    assert (found == Weights()) == (factor == 1.0)


@given(_WEIGHTS, _SCORES, st.floats(0, 10), st.integers(0, 50))
def test_weights_always_add_up_to_1_and_only_the_dominant_one_changes_its_share(
    weights: Weights, scores: Scores, predicted: float, used: int
) -> None:
    found = adapt(weights, scores, predicted, used)
    assert sum(asdict(found).values()) == pytest.approx(1)
    rest = [name for name in DIMENSIONS if name != dominant(scores, weights)]
    before = [getattr(weights, name) / getattr(weights, rest[0]) for name in rest]
    assert [getattr(found, name) / getattr(found, rest[0]) for name in rest] == pytest.approx(before)


@given(_WEIGHTS, _SCORES)
def test_the_parts_add_up_to_the_score_which_is_from_0_to_10(weights: Weights, scores: Scores) -> None:
    assert math.fsum(parts(scores, weights).values()) == pytest.approx(total(scores, weights))
    assert -1e-9 <= total(scores, weights) <= 10 + 1e-9
    assert all(value <= parts(scores, weights)[dominant(scores, weights)] for value in parts(scores, weights).values())


def test_uses_are_counted_within_30_days() -> None:
    runs = tuple(Run(int(at), 1, True) for at in (50, 100, 100 + TRIAL, 101 + TRIAL))
    assert used_within(sop("a", "web", 4, runs), 100) == 2
    assert used_within(None, 100) == 0
    assert used_within(sop("a", "web"), 100) == 0


def test_uses_that_a_procedure_does_not_remember_any_more_are_unknown_and_not_none() -> None:
    later = tuple(Run(int(200 + TRIAL) + n, 1, True) for n in range(10))
    assert used_within(sop("a", "web", 14, later), 100) is None
    assert used_within(sop("a", "web", 10, later), 100) == 0  # it remembers all of its runs
    assert used_within(sop("a", "web", 14, (Run(50, 1, True), *later[1:])), 100) == 0  # what it forgot was before
    assert used_within(sop("a", "web", 14, (Run(150, 1, True), *later[1:])), 100) is None  # once, or oftener


# -- plans -------------------------------------------------------------------------------------


def test_a_good_plan_is_read_and_scored_the_best_first() -> None:
    tasks = [*GOOD[:3], idea(title="Logins", category="web", deepens="login", utility=10, innovation=10)]
    ideas = read_tasks(plan_file(*tasks, idea(title="Mail", category="mail", utility=1, innovation=1)), TREE)
    plan = scored("p7", "idle-x", 5.0, ideas, TREE, Weights())
    assert [task.id for task in plan.tasks] == ["p7-1", "p7-2", "p7-3", "p7-4", "p7-5"]
    assert [task.idea.title for task in plan.tasks] == ["Logins", "Task 2", "Task 1", "Task 0", "Mail"]
    assert plan.tasks[0].scores == Scores(0.0, 9.0, 10, 10)
    assert [task.predicted for task in plan.tasks] == sorted((task.predicted for task in plan.tasks), reverse=True)
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("{", "plan.json is not JSON"),
        ("[]", 'must be {"tasks": [...]}'),
        ('{"tasks": {}}', 'must be {"tasks": [...]}'),
        (plan_file(*GOOD[:3]), "the tasks span 3 categories; 4 at least are wanted"),
        (plan_file(), "the tasks span 0 categories"),
        (json.dumps({"tasks": [*GOOD, "five"]}), "task 5: must be an object"),
        (plan_file(*GOOD, idea(title="Task 1")), "task 5: title: an earlier task has the same"),
        (plan_file(*GOOD, *(idea(title=f"More {n}") for n in range(MOST))), "16 tasks are too many"),
        (plan_file(*GOOD, idea(utility=0)), "task 5: utility: must be a number from 1 to 10"),
        (plan_file(*GOOD, idea(utility=11)), "task 5: utility"),
        (plan_file(*GOOD, idea(innovation=True)), "task 5: innovation"),
        (plan_file(*GOOD, idea(innovation="7")), "task 5: innovation"),
        (plan_file(*GOOD, idea(innovation=math.nan)), "task 5: innovation"),
        (plan_file(*GOOD, idea(category="Web Pages")), "task 5: category: must be lower-case"),
        (plan_file(*GOOD, idea(category=None)), "task 5: category"),
        (plan_file(*GOOD, idea(deepens="nothing")), "task 5: deepens: there is no skill 'nothing'"),
        (plan_file(*GOOD, idea(deepens="login")), "login is in the category web; align"),
        (plan_file(*GOOD, idea(title="a\nb")), "task 5: title: must be one line"),
        (plan_file(*GOOD, idea(title="x" * 81)), "task 5: title: has 81 characters; 80 are the most"),
        (plan_file(*GOOD, idea(goal=" ")), "task 5: goal: must be a text"),
        (plan_file(*GOOD, idea(why=7)), "task 5: why: must be a text"),
        (plan_file(*GOOD, idea(score=9)), "task 5: score: no key of a task"),
    ],
)
def test_a_plan_that_will_not_do_says_what_to_mend(text: str, mistake: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_tasks(text, TREE)
    assert mistake in str(caught.value)


def test_all_mistakes_of_a_plan_are_named_at_once() -> None:
    with pytest.raises(ValueError) as caught:
        read_tasks(plan_file(idea(utility=0, category="?"), idea(title="")), TREE)
    assert len(str(caught.value).splitlines()) == 4


@given(st.permutations(GOOD), st.integers(0, 3))
def test_what_a_reviewer_is_asked_is_of_the_tasks_and_of_nothing_else(tasks: list[dict[str, Any]], indent: int) -> None:
    one = read_tasks(plan_file(*tasks), TREE)
    turned = [dict(reversed(task.items())) for task in tasks]
    assert review_text(one) == review_text(read_tasks(json.dumps({"tasks": turned}, indent=indent), TREE))
    assert review_text(one) != review_text((*one[:3], replace(one[3], utility=9)))


# -- reports -----------------------------------------------------------------------------------

REPORT = Report(
    "p3-2", "Title: with # marks", "web", "idle-p3-2", 1.5, "success", 'He said "yes": ok', "login", 7.25,
    Scores(1, 2, 3, 4), 12, None, {"facts/net.md": "kept"}, "# Title\n\n---\nText\n",
)  # fmt: skip


def test_a_report_is_read_back_as_it_was_kept() -> None:
    assert Report.parse(REPORT.render()) == REPORT


@given(st.text(), st.text(), st.one_of(st.none(), st.floats(0, 100)))
def test_any_report_is_read_back(body: str, summary: str, usd: float | None) -> None:
    body = body.replace("\r", "")
    report = replace(REPORT, body=body, summary=summary, usd=usd)
    assert Report.parse(report.render()) == report


@pytest.mark.parametrize("text", ["", "# no front matter", "---\ntask: 1\n---\n", "---\ntask: {\n---\n"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Report.parse(text)


@pytest.mark.parametrize("skill", ["skill: restore-backup\n", 'skill: "restore-backup"\n'])
def test_an_agents_report_is_read(skill: str) -> None:
    draft = read_draft(f"---\noutcome: success\nsummary: it works\n{skill}---\n# Title\ntext\n")
    assert draft == Draft("success", "it works", "restore-backup", "# Title\ntext\n")
    assert read_draft("---\noutcome: failure\nsummary: 'no' way\nskill:\n---\nx").skill is None


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("# Title", "begins with its front matter"),
        ("---\noutcome: success\nsummary: x\n---\n \n", "no text below"),
        ("---\noutcome: great\nsummary: x\n---\ntext", "outcome: must be success or failure"),
        ("---\noutcome: unfinished\nsummary: x\n---\ntext", "outcome: must be success or failure"),
        ("---\noutcome: success\n---\ntext", "summary: must be one line"),
        (f"---\noutcome: success\nsummary: {'x' * 201}\n---\ntext", "summary: must be one line"),
        ("---\noutcome: success\nsummary: x\nskill: Not A Name\n---\ntext", "skill: must be of a-z"),
        ("---\noutcome: success\nsummary: x\nmood: fine\n---\ntext", "no line of a report's front matter"),
        ("---\noutcome: success\nsummary: x\n---\n" + "y" * 30_001, "30,000 are the most"),
    ],
)
def test_an_agents_report_that_will_not_do_says_what_to_mend(text: str, mistake: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_draft(text)
    assert mistake in str(caught.value)


# -- what agents are told ------------------------------------------------------------------------


def test_a_planner_is_told_a_bounded_part_of_what_there_is() -> None:
    large = Tree({f"c{n:03}": tuple(Skill(f"skill-{n}-{m}", m) for m in range(30)) for n in range(20)})
    many = [replace(REPORT, title=f"Report {n}") for n in range(500)]
    text = plan_text(large, many)
    assert sum(text.count(f"skill-{n}-") for n in range(20)) == SKILLS
    assert text.count("Report ") == LATELY
    assert "Report 499 (success" in text
    assert "- c019: 30 more" in text
    assert text.count("\n") < 70
    assert re.search(r"\nSkills by category, with uses:\n- none\nExplored lately.*:\n- none$", plan_text(Tree(), []))


def test_reviewer_and_explorer_are_told_the_whole_task() -> None:
    ideas = read_tasks(plan_file(*GOOD, idea(category="web", deepens="login", title="Logins")), TREE)
    task = scored("p1", "s", 0.0, ideas, TREE, Weights()).tasks
    text = review_text(ideas)
    assert all(one.title in text and one.goal in text for one in ideas)
    told = [task_text(one) for one in task]
    assert all(one.idea.title in text and one.idea.goal in text for one, text in zip(task, told, strict=True))
    assert sum("improve the procedure login" in text for text in told) == 1
    draft = told[0][told[0].index("---\n") :].split("\n(outcome")[0]
    assert read_draft(draft).outcome == "success"  # the example that they are shown is one that will do


def test_the_example_of_a_plan_that_a_planner_is_shown_has_the_right_keys() -> None:
    text = plan_text(Tree(), [])
    shown = json.loads(text[text.index('{"tasks"') : text.index("]}") + 2])["tasks"][0]
    assert shown.keys() == asdict(Idea("", "", "", "", 1, 1)).keys()
    assert CATEGORIES == 4
