"""SOP.md as a value: what is written reads back, for us and for any YAML reader; mistakes are named with their line."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.sop import (
    RUNS_KEPT,
    Run,
    Sop,
    keep_record,
    parse_sop,
    render_sop,
    split_front,
    with_run,
    without_record,
)

names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True).filter(lambda name: name not in ("by", "all"))
texts = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zs", "Zl", "Zp")), min_size=1, max_size=20)
words = st.one_of(
    texts, st.lists(texts, min_size=2, max_size=3).map(" ".join), st.sampled_from(["yes", "null", "1", "a: b"])
)
counts = st.integers(0, 10**6)
bodies = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=80).map(lambda text: text + "\n")
sops = st.builds(
    Sop,
    name=names,
    triggers=st.lists(words, min_size=1, max_size=4).map(tuple),
    category=st.sampled_from(["deploy", "部署", "web-2", "été", "7"]),
    stage=st.sampled_from(["sop", "code"]),
    uses=counts,
    successes=counts,
    failures=counts,
    streak=counts,
    provenance=st.lists(words, max_size=3).map(tuple),
    runs=st.lists(st.builds(Run, at=counts, tokens=counts, ok=st.booleans()), max_size=3).map(tuple),
    body=st.one_of(st.just(""), bodies),
)

HAND = """---
# by hand
name: deploy-staging
triggers:
  - deploy
  - "roll out: staging"   # the two
  - 'it''s down'
category: deploy
runs:
- {at: 1700000000, tokens: 1200, ok: true}
---

# Deploy

1. build
"""


@settings(deadline=None)
@given(sops)
def test_what_is_written_reads_back(sop: Sop) -> None:
    assert parse_sop(render_sop(sop)) == sop


@settings(deadline=None)
@given(sops)
def test_any_yaml_reader_sees_the_same_values(sop: Sop) -> None:
    front = yaml.safe_load("\n".join(split_front(render_sop(sop))[0]))
    assert front == {
        "name": sop.name,
        "triggers": list(sop.triggers),
        "category": sop.category,
        "stage": sop.stage,
        "uses": sop.uses,
        "successes": sop.successes,
        "failures": sop.failures,
        "streak": sop.streak,
        "provenance": list(sop.provenance),
        "runs": [{"at": run.at, "tokens": run.tokens, "ok": run.ok} for run in sop.runs],
    }


def test_front_matter_by_hand() -> None:
    sop = parse_sop(HAND)
    assert sop == Sop(
        "deploy-staging",
        ("deploy", "roll out: staging", "it's down"),
        "deploy",
        runs=(Run(1700000000, 1200, True),),
        body="\n# Deploy\n\n1. build\n",
    )
    assert sop.path == "sops/deploy-staging/SOP.md"


def front(*lines: str) -> str:
    return "\n".join(["---", *lines, "---", "body", ""])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# Deploy\n", "begins with its front matter"),
        ("---\nname: a\n", "no end"),
        (front("name: a", "triggers: [a]"), "no category"),
        (front("triggers: [a]", "category: c"), "no name"),
        (front("name: a", "category: c"), "no triggers"),
        (front("name: A b", "triggers: [a]", "category: c"), "line 2: name: must be of a-z"),
        (front("name: all", "triggers: [a]", "category: c"), "line 2: name: all is the name of a listing"),
        (front("name: a", "triggers: [a]", "category: ../c"), "line 4: category: must be lower-case"),
        (front("name: a", "triggers: a, b", "category: c"), "line 3: triggers: must be a list"),
        (front("name: a", "triggers: []", "category: c"), "line 3: triggers: is empty"),
        (front("name: a", "triggers: [a", "category: c"), "line 3: ] is missing"),
        (front("name: a", "triggers: [[a]]", "category: c"), "line 3: triggers: ['a'] is not text"),
        (front("name: a", 'triggers: ["a]', "category: c"), "line 3: a text in double quotes is not closed"),
        (front("name: a", "triggers: ['a]", "category: c"), "line 3: the quote ' is not closed"),
        (front("name: a", f"triggers: [{'x' * 81}]", "category: c"), "1 to 80 printable characters"),
        (
            front("name: a", "trigger: [a]", "category: c"),
            "line 3: 'trigger' is no key of an SOP; did you mean triggers?",
        ),
        (front("name: a", "name: b"), "line 3: name is given twice"),
        (front("name: a: b"), "line 2: 'a: b' must be quoted"),
        (front("name: *x"), "line 2: '*x' must be quoted"),
        (front("- a"), "line 2: a list item without its key"),
        (front("name"), "line 2: 'name' is not `key: value`"),
        (front("name: a", "triggers: [a]", "category: c", "stage: best"), "line 5: stage: must be explore, sop or"),
        (front("name: a", "triggers: [a]", "category: c", "uses: many"), "line 5: uses: must be a whole number"),
        (front("name: a", "triggers: [a]", "category: c", "uses: true"), "line 5: uses: must be a whole number"),
        (front("name: a", "triggers: [a]", "category: c", "runs: [1]"), "line 5: runs: each must be {at:"),
        (front("name: a", "triggers: [a]", "category: c", "runs: [{at: 1}]"), "line 5: runs: each must be {at:"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_sop(text)
    assert reason in str(caught.value)


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=40))
def test_no_text_does_worse_than_a_value_error(text: str, inner: str) -> None:
    for whole in (text, front("name: a", f"triggers: {inner}", "category: c"), f"---\n{text}\n---\n"):
        try:
            sop = parse_sop(whole)
        except ValueError:
            continue
        again = parse_sop(render_sop(sop))
        assert replace(again, body="") == replace(sop, body="") and again.body.startswith(sop.body)


def test_a_run_counts() -> None:
    sop = Sop("a", ("x",), "c")
    for ok in (True, True, False, True):
        sop = with_run(sop, Run(1, 2, ok))
    assert (sop.uses, sop.successes, sop.failures, sop.streak) == (4, 3, 1, 1)
    for _ in range(2 * RUNS_KEPT):
        sop = with_run(sop, Run(9, 9, True))
    assert len(sop.runs) == RUNS_KEPT and sop.uses == 4 + 2 * RUNS_KEPT


def test_what_gad_keeps_is_not_taken_from_an_agent() -> None:
    before = render_sop(Sop("a", ("x",), "c", "code", 5, 4, 1, 2, ("s1",), (Run(1, 2, True),), "old\n"))
    faked = render_sop(Sop("a", ("x", "y"), "d", uses=900, successes=900, provenance=("none",), body="new\n"))
    assert parse_sop(keep_record(before, faked, "s2")) == Sop(
        "a", ("x", "y"), "d", "code", 5, 4, 1, 2, ("s1", "s2"), (Run(1, 2, True),), "new\n"
    )
    assert parse_sop(keep_record(None, faked, "s2")) == Sop("a", ("x", "y"), "d", provenance=("s2",), body="new\n")
    assert parse_sop(keep_record("garbage", faked, "s2")).uses == 0
    assert keep_record(before, before, "s1") == before
    assert keep_record(before, "# no SOP\n", "s2") == "# no SOP\n"


def test_the_record_can_be_left_out() -> None:
    text = "---\nname: a\nruns:\n  - {at: 1, tokens: 2, ok: true}\ntriggers:\n- uses\n---\nuses: 3\n"
    assert without_record(text) == "---\nname: a\ntriggers:\n- uses\n---\nuses: 3\n"
    assert without_record("no front matter") == "no front matter"
