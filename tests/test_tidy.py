"""Finding what stands in memory twice, nearly twice, or unused."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gad.core.tidy import Line, duplicates, entries, near, present, unused, without

FACTS = """# Servers
- under no heading of its own

## web
- nginx listens on port 80
  behind the proxy
- the config lies in /etc/nginx (used 3)

## database
- listens on port 5432
"""


def test_entries_have_their_heading_their_lines_and_their_count() -> None:
    assert entries("facts/s.md", FACTS) == [
        Line("facts/s.md", 2, 1, "Servers", "under no heading of its own"),
        Line("facts/s.md", 5, 2, "web", "nginx listens on port 80 behind the proxy"),
        Line("facts/s.md", 7, 1, "web", "the config lies in /etc/nginx", 3),
        Line("facts/s.md", 10, 1, "database", "listens on port 5432"),
    ]


def test_what_is_no_entry_is_none() -> None:
    assert entries("x", "# T\ntext\n  indented\n* star\n-no blank\n") == []


def test_equal_words_under_an_equal_heading_are_duplicates_in_all_files() -> None:
    first = entries("facts/a.md", "## web\n- port 80 (used 2)\n- port  80\n- port 81\n")
    second = entries("facts/b.md", "## web\n- port 80 (used 5)\n## database\n- port 80\n")
    (merge,) = duplicates([*first, *second])
    assert (merge.kept.path, merge.kept.number, merge.used) == ("facts/a.md", 2, 7)
    assert [(line.path, line.number) for line in merge.gone] == [("facts/a.md", 3), ("facts/b.md", 2)]


def test_merging_keeps_the_first_adds_up_the_counts_and_changes_nothing_else() -> None:
    a = "# A\n\n## web\n- port 80 (used 2)\n- other\n- port 80\n\ntext\n"
    b = "## web\n- port 80\n  (used 5)\n- mine\n"
    merges = duplicates([*entries("facts/a.md", a), *entries("facts/b.md", b)])
    assert without("facts/a.md", a, merges) == "# A\n\n## web\n- port 80 (used 7)\n- other\n\ntext\n"
    assert without("facts/b.md", b, merges) == "## web\n- mine\n"


def test_merging_finds_its_entries_when_the_file_has_changed_meanwhile() -> None:
    before = "## web\n- port 80\n- port 80\n"
    merges = duplicates(entries("facts/a.md", before))
    assert without("facts/a.md", "## new\n- first\n" + before, merges) == "## new\n- first\n## web\n- port 80\n"
    assert without("facts/a.md", "## web\n- else\n", merges) == "## web\n- else\n"
    assert present(before, merges[0].kept)
    assert not present("## web\n- else\n", merges[0].kept)
    assert not present(None, merges[0].kept)


def test_near_duplicates_are_found_across_headings_and_files_most_alike_first() -> None:
    lines = [
        *entries("facts/a.md", "## web\n- the build needs node 20 and pnpm\n- 服务器的配置文件在这个目录里面\n"),
        *entries("facts/b.md", "## ci\n- the build needs node 22 and pnpm\n- unrelated words stand here\n"),
        *entries("facts/c.md", "## ci\n- 服务器的配置文件在那个目录里面\n"),
    ]
    found = near(lines)
    assert [(pair.first.path, pair.second.path) for pair in found] == [
        ("facts/a.md", "facts/b.md"),
        ("facts/a.md", "facts/c.md"),
    ]
    assert found[0].ratio > found[1].ratio > 0.9
    assert near(lines, 0.99) == []


def test_exact_duplicates_are_no_near_ones() -> None:
    assert near(entries("x", "## a\n- the same words here\n## b\n- the same words here\n")) == []


def test_unused_is_what_had_no_use_for_longer_than_the_days() -> None:
    day = 86400.0
    last = {"old": 0.0, "older": -5.0, "edge": 10 * day, "new": 99 * day}
    assert unused(last, now=100 * day) == ["older", "old"]
    assert unused(last, now=100 * day, days=89) == ["older", "old", "edge"]


ENTRY = st.tuples(st.sampled_from(["one", "two words", "三个字"]), st.integers(0, 3))
FILE = st.lists(st.tuples(st.sampled_from(["", "## web", "## ci"]), st.lists(ENTRY, max_size=4)), max_size=4)


def _text(blocks: list[tuple[str, list[tuple[str, int]]]]) -> str:
    lines = []
    for heading, items in blocks:
        lines += [heading] if heading else []
        lines += [f"- {text}{f' (used {used})' if used else ''}" for text, used in items]
    return "".join(f"{line}\n" for line in lines)


@given(FILE, FILE)
def test_merging_loses_no_entry_and_no_count_and_leaves_no_duplicate(
    one: list[tuple[str, list[tuple[str, int]]]], two: list[tuple[str, list[tuple[str, int]]]]
) -> None:
    files = {"facts/a.md": _text(one), "facts/b.md": _text(two)}
    before = [line for path, content in files.items() for line in entries(path, content)]
    merges = duplicates(before)
    merged = {path: without(path, content, merges) for path, content in files.items()}
    after = [line for path, content in merged.items() for line in entries(path, content)]
    assert {(line.heading, line.text) for line in after} == {(line.heading, line.text) for line in before}
    assert sum(line.used for line in after) == sum(line.used for line in before)
    assert duplicates(after) == []
    assert len(after) == len({(line.heading, line.text) for line in before})
