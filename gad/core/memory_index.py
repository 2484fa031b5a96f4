"""What an agent is told of its memory: the index (L1), the listings of SOPs, and the text that is always on.

Whatever lies in memory, the index stays within `INDEX_LINES` and `INDEX_TOKENS`: it names files of facts and
categories of SOPs, and where to look for what it does not name. From it every SOP is two `file_read`s away: a listing,
then the SOP. Sizes are estimates of `gad.core.weights`, which err upward.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gad.core.sop import Sop
from gad.core.weights import tokens

INDEX_LINES, INDEX_TOKENS = 30, 400
"""What the index may take of a request at most, the user's rules included."""
RULE_LINES, RULE_TOKENS = 8, 100
"""What the user's rules may take of that."""
LOG_LINES, LOG_TOKENS = 4, 145
"""What lines of the log may take of a request at most, beside the line that names it."""
CORE_LINES, CORE_TOKENS = 5, 150
"""What the core of meta.md may take of a request at most."""

FACT_LINES, FACT_TOKENS = 8, 90
"""What the lines about facts may take of the index."""
FACT_LINE_TOKENS = 24
"""Tokens of the headings that are shown of one file of facts."""
HINT_TOKENS = 70
"""Tokens of the categories for which triggers are shown too."""
CATEGORY_TOKENS = 80
"""Tokens of the categories that are named at most."""
LISTED = 240
"""Characters of triggers in a listing's line."""

LISTING = "sops/all.md"
FACTS = "## Facts"
SOPS = "## SOPs"
EMPTY_LOG = "# Log\n\n## Errors\n\n## Preferences\n\n## Patterns\n"

_HEAD = "# Memory index\n<!-- generated; only the rules are yours to edit -->\n"
_RULES = re.compile(r"^## Rules[ \t]*\r?\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_CORE = re.compile(r"<!-- core -->[ \t]*\n(.*?)<!-- /core -->", re.DOTALL)
_USED = re.compile(r"\s*\(used (\d{1,9})\)\s*$")


@dataclass(frozen=True, slots=True)
class Facts:
    """One file of facts: its path in memory, its title and its headings."""

    path: str
    title: str
    headings: tuple[str, ...]


def read_facts(path: str, text: str) -> Facts:
    """Return what the index needs of a file of facts; without a title its name stands for it."""
    title = path.rpartition("/")[2].removesuffix(".md")
    headings = []
    for line in text.split("\n"):
        if line.startswith("# ") and line[2:].strip():
            title = _line(line[2:])
        elif line.startswith("## ") and line[3:].strip():
            headings.append(_line(line[3:]))
    return Facts(path, title, tuple(headings))


def category_path(category: str) -> str:
    """Return where a category's SOPs are listed."""
    return f"sops/by/{category}.md"


def rules_of(index: str) -> str:
    """Return the user's part of an index file as it is, without the line `## Rules`; empty when there is none."""
    found = _RULES.search(index)
    return found[1] if found else ""


def render_index(facts: Sequence[Facts], sops: Sequence[Sop], rules: str = "") -> str:
    """Return index.md: the user's rules as they are, and the rest made from facts and SOPs."""
    shown = _rule_lines(rules)
    own = rules if not rules or rules.endswith("\n") else rules + "\n"
    whole = sum(1 for line in rules.split("\n") if line.strip())
    note = f"<!-- of {whole} lines of rules agents see the first {len(shown)}: make them shorter -->\n"
    proven = [sop for sop in sops if sop.stage != "explore"]
    generated = [FACTS, *_fact_lines(facts), SOPS, *_sop_lines(proven)]
    return f"{_HEAD}{note if len(shown) < whole else ''}## Rules\n{own}" + "\n".join(generated) + "\n"


def render_listing(sops: Iterable[Sop], broken: Mapping[str, str] | None = None) -> str:
    """Return a listing, one line an SOP, in the order of the names.

    `broken` maps names of SOPs that cannot be read to the reason.
    """
    lines = {sop.name: f"{sop.name}: {_triggers(sop)}{_doubt(sop)} -> {sop.path}" for sop in sops}
    for name, reason in (broken or {}).items():
        lines[name] = f"{_line(name)}: (cannot be read: {_line(reason)}) -> sops/{_line(name)}/SOP.md"
    return "".join(f"{lines[name]}\n" for name in sorted(lines))


def _doubt(sop: Sop) -> str:
    return " (unproven: it failed lately)" if sop.stage == "explore" else ""


def by_category(sops: Iterable[Sop]) -> dict[str, list[Sop]]:
    """Return the SOPs by category: the most used category first, and in it the most used SOP."""
    groups: dict[str, list[Sop]] = {}
    for sop in sorted(sops, key=lambda sop: (-sop.uses, sop.name)):
        groups.setdefault(sop.category, []).append(sop)
    return dict(sorted(groups.items(), key=lambda item: (-sum(sop.uses for sop in item[1]), -len(item[1]), item[0])))


def always_on(root: str, meta: str, index: str, log: str) -> str:
    """Return the text that every conversation begins with: where memory is, the core of meta.md, the index, the log.

    `root` is the memory directory, `meta`, `index` and `log` the contents of meta.md, index.md and log.md.
    """
    rules, generated = _rule_lines(rules_of(index)), list(_generated(index))
    learnt = log_lines(log)
    if not (rules or generated or learnt):
        return f"Memory: {root} (empty). What is proven and lasting goes there: start_long_term_update."
    core = list(_within(_core(meta), CORE_LINES, CORE_TOKENS))
    body = list(_within([*rules, *generated], INDEX_LINES, INDEX_TOKENS))
    return "\n".join([f"Memory: {root}", *core, *body, *(["log.md:", *learnt] if learnt else [])])


def log_lines(log: str) -> list[str]:
    """Return the log's lines that are always on: the most used ones, the user's preferences before others."""
    entries: list[tuple[int, int, int, str]] = []
    section = 0
    for number, line in enumerate(log.split("\n")):
        if line.startswith("## "):
            section = 1 if line.rstrip() == "## Preferences" else 0
        elif line.startswith("- ") and line[2:].strip():
            used = _USED.search(line)
            text = _line(line[: used.start()] if used else line)
            entries.append((-int(used[1]) if used else 0, -section, -number, text))
    return list(_within((entry[3] for entry in sorted(entries)), LOG_LINES, LOG_TOKENS, skip=True))


def _core(meta: str) -> list[str]:
    found = _CORE.search(meta)
    return [_line(line) for line in found[1].split("\n") if line.strip()] if found else []


def _rule_lines(rules: str) -> list[str]:
    lines = (_line(line) for line in rules.split("\n") if line.strip())
    return list(_within(lines, RULE_LINES, RULE_TOKENS))


def _generated(index: str) -> Iterator[str]:
    """Yield the lines of an index file that are made from facts and SOPs."""
    after = False
    for line in map(_line, index.split("\n")):
        after = after or line.startswith(FACTS)
        if after and line and not line.startswith("## "):
            yield line


def _fact_lines(facts: Sequence[Facts]) -> Iterator[str]:
    """Yield a line for each file of facts, its headings as far as there is room; then the number of those left out."""
    room, named = float(FACT_TOKENS), 0
    for one in sorted(facts, key=lambda one: one.path):
        path = _line(one.path)
        heads = list(_within(one.headings or (one.title,), 20, FACT_LINE_TOKENS, skip=True))
        more = ", ..." if len(heads) < len(one.headings) else ""
        line = f"{path}: {', '.join(heads)}{more}" if heads else path
        room -= tokens(line) + 1
        if room < 0 or named == FACT_LINES - 1:
            break
        named += 1
        yield line
    if named < len(facts):
        yield f"and {len(facts) - named} more files in facts/"


def _sop_lines(sops: Sequence[Sop]) -> list[str]:
    """Return the lines about SOPs: the categories, with as many triggers each as there is room for."""
    if not sops:
        return []
    groups = by_category(sops)
    named = [line[2:] for line in _within((f", {name}" for name in groups), len(groups), CATEGORY_TOKENS)]
    head = f"{len(sops)} SOPs: {LISTING} with a keyword, or {category_path('<category>')} of"
    if not named:
        return [f"{len(sops)} SOPs: {LISTING} with a keyword"]
    if len(named) < len(groups):
        return [f"{head} {', '.join(named)}; {len(groups) - len(named)} more categories"]
    for count in (3, 2, 1):
        hinted = [f"{name} ({', '.join(_hints(group, count))})" for name, group in groups.items()]
        if tokens(", ".join(hinted)) <= HINT_TOKENS:
            return [f"{head} {', '.join(hinted)}"]
    return [f"{head} {', '.join(named)}"]


def _hints(group: Sequence[Sop], count: int) -> list[str]:
    """Return triggers of a category: the first of its most used SOPs, then the second of them, and so on."""
    deepest = max(len(sop.triggers) for sop in group)
    offered = (sop.triggers[depth] for depth in range(deepest) for sop in group if depth < len(sop.triggers))
    return list(dict.fromkeys(offered))[:count]


def _triggers(sop: Sop) -> str:
    """Return an SOP's triggers on one line, whole ones only, as far as there is room."""
    shown, room = [], LISTED
    for trigger in sop.triggers:
        room -= len(trigger) + 2
        if room < 0:
            break
        shown.append(_line(trigger))
    return ", ".join(shown)


def _within(lines: Iterable[str], count: int, most: float, *, skip: bool = False) -> Iterator[str]:
    """Yield the first lines that fit into a number of lines and tokens together, line ends included.

    A line that does not fit is the end; with `skip` it is left out, and shorter ones may follow.
    """
    for line in lines:
        weight = tokens(line + "\n")
        if count < 1 or (weight > most and not skip):
            return
        if weight <= most:
            count, most = count - 1, most - weight
            yield line


def _line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())
