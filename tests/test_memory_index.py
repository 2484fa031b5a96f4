"""The always-on text: bounded whatever lies below, terse, and from it every SOP is two reads away."""

from __future__ import annotations

import asyncio
import random
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gad.core import memory_index as mi
from gad.core.ports import ToolContext
from gad.core.sop import Sop, render_sop
from gad.core.weights import tokens as weigh
from gad.memory.store import MemoryStore
from gad.tools.file_read import FileRead
from tests.test_hello import tokens

HOME = "/home/ann/gad/memory"
META = resources.files("gad.memory").joinpath("meta.md").read_text("utf-8")
FACTS = (
    mi.read_facts("facts/hosts.md", "# Hosts\n\n## Web servers\n- a\n\n## Database\n- b\n"),
    mi.read_facts("facts/repo.md", "# Repository\n\n## Layout\n- a\n\n## Tests\n- b\n"),
)
LOG = """# Log

## Errors
- pip install fails outside a venv => use .venv/bin/pip (used 3)
- never used

## Preferences
- answers in German, short (used 3)

## Patterns
- run the one failing test first, then its file (used 12)
"""
CATEGORIES = (
    "build", "deploy", "git", "python", "web", "data", "docker", "test", "docs", "release", "cloud",
    "network", "shell", "sql", "backup", "audit", "mail", "chart", "parse", "queue",
)  # fmt: skip
WORDS = (
    "staging", "rollback", "compile", "wheel", "link", "error", "flaky", "image", "restore", "rebase",
    "bisect", "changelog", "cert", "renew", "merge", "csv",
)  # fmt: skip

any_text = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), min_size=1, max_size=90)
groups = st.from_regex(r"[^\W_A-Z][\w-]{0,59}", fullmatch=True).map(str.lower)
sops = st.builds(
    Sop,
    name=st.from_regex(r"[a-z0-9][a-z0-9-]{0,59}", fullmatch=True),
    triggers=st.lists(any_text, min_size=1, max_size=6).map(tuple),
    category=groups,
    uses=st.integers(0, 10**9),
)
facts = st.builds(
    mi.Facts, groups.map(lambda name: f"facts/{name}.md"), any_text, st.lists(any_text, max_size=9).map(tuple)
)
lines = st.lists(st.one_of(any_text, st.just("- 中文规则🙂" * 20)), max_size=20)


def many(count: int, categories: int) -> list[Sop]:
    """SOPs that were used; each has a trigger of its own among words that others have too."""
    chance = random.Random(count)
    return [
        Sop(
            f"{chance.choice(WORDS)}-{number}",
            (*chance.sample(WORDS, 2), f"service{number}x"),
            CATEGORIES[number % categories],
            uses=chance.randrange(1, 20),
        )
        for number in range(count)
    ]


SMALL = many(20, 5)


def always(sops: list[Sop], rules: str = "", log: str = LOG, facts: tuple[mi.Facts, ...] = FACTS) -> str:
    return mi.always_on(HOME, META, mi.render_index(facts, sops, rules), log)


# Size


def test_twenty_sops_cost_little_and_two_thousand_hardly_more() -> None:
    small, large = tokens(always(many(20, 5))), tokens(always(many(2000, 20)))
    assert small <= 170
    assert large - small <= 0.05 * 1100


def test_an_empty_memory_is_one_line() -> None:
    text = always([], log=mi.EMPTY_LOG, facts=())
    assert text.count("\n") <= 1 and tokens(text) <= 40
    assert text.count(HOME) == 1 and "empty" in text


def test_the_directory_is_named_once() -> None:
    assert always(many(20, 5)).count(HOME) == 1


@settings(deadline=None, max_examples=50)
@given(st.lists(facts, max_size=12), st.lists(sops, max_size=12), lines, lines, st.integers(0, 500))
def test_the_bounds_hold_whatever_lies_below(
    facts: list[mi.Facts], some: list[Sop], rules: list[str], log: list[str], more: int
) -> None:
    some = [*some, *(Sop(f"x{n}", ("x",), f"c{n}") for n in range(more))]
    index = mi.render_index(facts, some, "\n".join(rules))
    text = mi.always_on("/m", "<!-- core -->\nRead first.\n<!-- /core -->", index, "\n".join(["## Patterns", *log]))
    _, _, rest = text.partition("Read first.\n")
    body, _, learnt = rest.partition("log.md:\n")
    assert len(body.splitlines()) <= mi.INDEX_LINES and weigh(body) <= mi.INDEX_TOKENS
    assert weigh("log.md:\n" + learnt) <= 150
    if some:
        assert mi.LISTING in body  # the way to every SOP is never cut off
    file = mi.render_index(facts, some)
    assert len(file.splitlines()) <= mi.INDEX_LINES and weigh(file) <= mi.INDEX_TOKENS


@settings(deadline=None)
@given(st.text(max_size=3000), st.text(max_size=3000), st.text(max_size=3000))
def test_files_that_somebody_has_ruined_are_bounded_too(meta: str, index: str, log: str) -> None:
    filled = f"<!-- core -->\n{meta}\n<!-- /core -->", f"## Rules\n{index}\n## Facts\n{index}", f"- {log}\n- {log}"
    text = mi.always_on("/m", *filled)
    assert weigh(text) <= mi.INDEX_TOKENS + 150 + mi.CORE_TOKENS + weigh("Memory: /m (empty). ") + 30
    assert len(text.splitlines()) <= mi.INDEX_LINES + mi.LOG_LINES + mi.CORE_LINES + 2


# Rules


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=300).filter(lambda text: "\n## " not in f"\n{text}"))
@example("- a\r\n\u2028## not a heading\r## nor this\n\x85")
@example("0" * 2000)
def test_rules_are_kept_byte_for_byte(rules: str) -> None:
    rules = rules if not rules or rules.endswith("\n") else rules + "\n"
    index = mi.render_index(FACTS, SMALL, rules)
    assert mi.rules_of(index) == rules
    assert mi.rules_of(mi.render_index((), (), mi.rules_of(index))) == rules


def test_rules_that_are_too_long_are_cut_for_agents_and_the_file_says_so() -> None:
    rules = "".join(f"- rule {number}\n" for number in range(20))
    index = mi.render_index(FACTS, [], rules)
    assert mi.rules_of(index) == rules
    assert "of 20 lines of rules agents see the first 8" in index
    text = always([], rules)
    assert "- rule 7" in text and "- rule 8" not in text and "of 20 lines" not in text
    assert "lines of rules" not in mi.render_index(FACTS, [], "- one\n")


def test_a_hand_written_file_without_its_generated_part_keeps_its_rules() -> None:
    assert mi.rules_of("# Mine\n## Rules\n- a\r\n\n- b") == "- a\r\n\n- b"
    assert mi.rules_of("# Mine\n") == ""
    assert mi.rules_of("## Rules\n- a\n### sub\n## Facts\n- b\n") == "- a\n### sub\n"


# Contents


def test_facts_are_told_by_their_headings() -> None:
    assert mi.read_facts("facts/a.md", "# The title \n\n##  One\n- x\n## Two  things\n###  not\n") == mi.Facts(
        "facts/a.md", "The title", ("One", "Two things")
    )
    assert mi.read_facts("facts/a.md", "- x\n") == mi.Facts("facts/a.md", "a", ())
    assert "facts/hosts.md: Web servers, Database" in always([])
    crowd = tuple(mi.Facts(f"facts/f{n:02}.md", "t", ("h",)) for n in range(40))
    assert "more files in facts/" in always([], facts=crowd)


def test_categories_come_by_use_and_the_rest_is_counted() -> None:
    some = [Sop(f"s{n}", ("t",), f"category-number-{n}", uses=n) for n in range(100)]
    text = always(some)
    assert "category-number-99, category-number-98" in text and "category-number-1," not in text
    assert "more categories" in text and mi.LISTING in text


def test_the_log_shows_what_is_used_most() -> None:
    assert mi.log_lines(LOG) == [
        "- run the one failing test first, then its file",
        "- answers in German, short",
        "- pip install fails outside a venv => use .venv/bin/pip",
        "- never used",
    ]
    long = "## Patterns\n- " + "word " * 300 + "(used 9)\n- short (used 1)\n"
    assert mi.log_lines(long) == ["- short"]


def test_a_listing_names_what_cannot_be_read() -> None:
    listing = mi.render_listing([Sop("b", ("x", "y"), "c")], {"a": "line 2: name:\nmissing"})
    assert listing == "a: (cannot be read: line 2: name: missing) -> sops/a/SOP.md\nb: x, y -> sops/b/SOP.md\n"


# Reach


@pytest.mark.parametrize(("count", "categories"), [(20, 5), (200, 10), (2000, 20), (2000, 1)])
def test_every_sop_is_two_reads_from_the_index(tmp_path: Path, count: int, categories: int) -> None:
    """The first read is of a listing that the text names, with a word of the task; it names the file for the second."""
    every = many(count, categories)
    for sop in every:
        (tmp_path / "sops" / sop.name).mkdir(parents=True)
        (tmp_path / sop.path).write_text(render_sop(sop), "utf-8")
    store = MemoryStore(str(tmp_path))
    store.prepare()
    text = store.always_on()
    assert len(store.sops()) == count
    context = ToolContext("s", "c", store.root, store.root, lambda text: None, {})
    chance = random.Random(3)
    wanted = every if count < 500 else chance.sample(every, 60)

    async def read(path: str, keyword: str = "") -> str:
        outcome = await FileRead().run({"path": path, "keyword": keyword}, context)
        assert outcome.status == "ok", outcome
        return outcome.output

    async def look() -> None:
        for sop in wanted:
            assert sop.category in text
            for listing, named in ((mi.LISTING, mi.LISTING), (mi.category_path(sop.category), "sops/by/<category>.md")):
                assert named in text
                shown = await read(listing, sop.triggers[-1])
                [line] = [line for line in shown.splitlines() if f"|{sop.name}: " in line]
                assert ", ".join(sop.triggers) in line
                path = line.rpartition(" -> ")[2]
            assert f"name: {sop.name}\n" in (await read(path)).replace("|", "\n").replace('"', "") + "\n"

    asyncio.run(look())
    if count // categories <= 100:  # a whole category is on one page, for those who do not know the word
        page = asyncio.run(read(mi.category_path(every[0].category)))
        assert all(f"|{sop.name}: " in page for sop in every if sop.category == every[0].category)
