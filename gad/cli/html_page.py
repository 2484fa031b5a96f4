"""gad show --html: a session's transcript as one page that needs nothing else, no network and no script.

Whatever stands in a journal is text here: it is escaped, and what would turn, hide or steer it is made visible. Should
that ever fail, the page's own policy still lets nothing run and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gad.cli.chart import columns, short
from gad.cli.plain import one_line, visible
from gad.cli.show import Record, describe
from gad.core.cut import cut
from gad.errors import GadError
from gad.spool.status import timestamp

RESULT_LIMIT = 20_000
"""Characters of a tool's result that are shown."""
TEXT_LIMIT = 200_000
"""Characters of a message, an answer or a call's argument that are shown."""
_LINE = 160
_FEW = 6
"""Lines of other records that are shown without being opened."""

STYLE = """
:root { color-scheme: light dark; --page: #fff; --box: #f3f4f6; --text: #1a1c1f; --quiet: #50565e; --line: #c9ced6;
  --mark: #0b57d0; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #121417; --box: #1e2227; --text: #e4e7eb; --quiet: #a9b1ba;
  --line: #3a4149; --mark: #8ab4f8; --bad: #ff9d94; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 0 .8rem 3rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.3rem; margin: 1rem 0 .3rem; }
h2 { font-size: .85rem; margin: 0 0 .3rem; color: var(--quiet); font-weight: 600; }
h2 b { color: var(--text); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; margin: 0; }
dt { color: var(--quiet); } dd { margin: 0; }
figure { margin: .8rem 0 0; max-width: 30rem; }
figcaption { font-size: .85rem; color: var(--quiet); }
svg { display: block; width: 100%; height: auto; font: 11px system-ui, sans-serif; }
.words { fill: var(--quiet); } .grid { stroke: var(--line); } .column { fill: var(--mark); }
section { margin: 1rem 0 0; padding: .6rem .7rem; border-left: 3px solid var(--line); }
section.you { border-color: var(--mark); background: var(--box); }
section.bad, .bad { border-color: var(--bad); }
.bad > summary, .bad > h2 > b { color: var(--bad); }
details { margin: .4rem 0; border: 1px solid var(--line); border-radius: 4px; background: var(--box); }
summary { padding: .35rem .5rem; cursor: pointer; font-size: .9rem; }
details > pre { padding: .5rem; border-top: 1px solid var(--line); font-size: .82rem; }
pre { margin: .3rem 0; font: inherit; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4;
  unicode-bidi: plaintext; }
details > pre, code { font-family: ui-monospace, monospace; }
details > pre { margin: 0; }
:target { outline: 2px solid var(--mark); }
"""
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{}'"


def page(name: str, records: Sequence[tuple[int, Record]], status: Mapping[str, Any], outcomes: Sequence[str]) -> str:
    """Return the page. Raises GadError when a record is not one that this gad knows."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    answers = [record for number, record in records if _kind(number, record) == "answer"]
    parts = [
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest)}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" '
        f'content="no-referrer">\n<title>gad: {_text(name)}</title>\n<style>{STYLE}</style>\n<main>\n',
    ]
    try:
        parts += _summary(name, records, answers, status)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise GadError(f"an answer in the journal is not one that this gad knows: {exc!r}") from None
    parts += _transcript(name, records)
    parts += [f"<section><h2>{_text(outcome)}</h2></section>\n" for outcome in outcomes]
    return "".join([*parts, "</main>\n</html>\n"])


def _summary(
    name: str, records: Sequence[tuple[int, Record]], answers: Sequence[Record], status: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what the whole session came to, and the two charts."""
    usages = [answer["usage"] for answer in answers]
    tokens = {key: sum(usage[key] for usage in usages) for key in ("tokens_in", "tokens_out", "cached")}
    costs = [_number(answer["usd"]) for answer in answers]
    cost = "unknown" if None in costs else f"${sum(value for value in costs if value is not None):.4f}"
    facts = {
        "state": status.get("state", "unknown"),
        "model": ", ".join(dict.fromkeys(str(answer["model"]) for answer in answers)),
        "turns": len(answers),
        "tokens": f"{tokens['tokens_in']:,} in ({tokens['cached']:,} from the cache), {tokens['tokens_out']:,} out",
        "cost": cost,
        "children": status.get("children_cost_usd") and f"${status['children_cost_usd']}",
        "from": records and timestamp(records[0][1]["at"]),
        "to": records and timestamp(records[-1][1]["at"]),
    }
    yield f"<h1>{_text(name)}</h1>\n<dl>\n"
    yield from (f"<dt>{key}</dt><dd>{_text(str(value))}</dd>\n" for key, value in facts.items() if value)
    yield "</dl>\n"
    if answers:
        context = [_number(usage["tokens_in"]) for usage in usages]
        largest = short(max(value or 0 for value in context))
        yield f"<figure><figcaption>context sent, tokens a turn; at most {largest}</figcaption>"
        yield columns("context size, turn by turn", context, link="#t") + "</figure>\n"
        yield f"<figure><figcaption>cost a turn; {cost} in all</figcaption>"
        yield columns("cost, turn by turn", costs, link="#t", unit="$") + "</figure>\n"


def _transcript(name: str, records: Sequence[tuple[int, Record]]) -> Iterator[str]:
    """Yield the records in their order, as sections."""
    whole = f"the journal: gad show --json {name}"
    calls: dict[str, str] = {}
    turns = 0
    for number, record in records:
        try:
            match _kind(number, record):
                case "message":
                    head, body = f"<b>you</b> {timestamp(record['at'])}", _block(record["text"].rstrip("\n"), whole)
                    yield f'<section class="you"><h2>{head}</h2>{body}</section>\n'
                case "answer":
                    turns += 1
                    calls |= {part["call"]: part["name"] for part in record["parts"] if "call" in part}
                    yield f'<section id="t{turns}">{"".join(_answer(record, whole))}</section>\n'
                case "tool_finished":
                    yield _result(record, calls, whole)
                case _:
                    yield _other(number, record, whole)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise GadError(f"journal line {number} is not a record this gad knows: {exc!r}") from None


def _answer(record: Record, whole: str) -> Iterator[str]:
    usage, usd = record["usage"], record["usd"]
    cost = "" if usd is None else f", ${usd:.4f}"
    facts = f"{usage['tokens_in']:,} tokens in, {usage['tokens_out']:,} out{cost}, {timestamp(record['at'])}"
    yield f"<h2><b>turn {record['turn']}</b> {_text(record['model'])} ({facts})</h2>"
    for part in record["parts"]:
        if "text" in part:
            yield _block(part["text"].rstrip("\n"), whole)
        elif "thinking" in part:
            if part["thinking"].strip():
                yield f"<details><summary>thinking</summary>{_block(part['thinking'].strip(), whole)}</details>"
        else:
            told = json.dumps(part["arguments"], ensure_ascii=False)
            body = "\n".join(_argument(key, value) for key, value in part["arguments"].items())
            head = f"calls <b>{_text(part['name'])}</b> <code>{_text(_short(told))}</code>"
            yield f"<details><summary>{head}</summary>{_block(body or '(no arguments)', whole)}</details>"
            if part.get("problem"):
                yield f'<p class="bad">not run: {_text(part["problem"])}</p>'


def _argument(key: str, value: object) -> str:
    """Return one argument for people: text as it is, anything else as JSON."""
    if not isinstance(value, str):
        return f"{key}: {json.dumps(value, ensure_ascii=False)}"
    return f"{key}:\n{value}" if "\n" in value else f"{key}: {value}"


def _result(record: Record, calls: Mapping[str, str], whole: str) -> str:
    result = record["result"]
    output = result["output"]
    facts = " ".join(f"{key}={value}" for key, value in result["meta"].items())
    size = f"{len(output):,} characters" if output else "no output"
    name, status = _text(calls.get(result["result"], "a call")), _text(result["status"])
    head = f"<b>{name}</b>: {status} {_text(_short(facts))} ({size}, {record['seconds']:.1f} s)"
    shown = _block(output or "(no output)", result.get("saved") or whole, RESULT_LIMIT)
    kind = "result" if result["status"] == "ok" else "result bad"
    return f'<details class="{kind}"><summary>{head}</summary>{shown}</details>\n'


def _other(number: int, record: Record, whole: str) -> str:
    """Return any other record as gad show tells it."""
    lines = list(describe(number, record))
    if not lines:
        return ""
    kind = ' class="bad"' if record.get("state") == "failed" or record["kind"] == "rejected" else ""
    head, body = f"<h2><b>{_text(lines[0].removeprefix('-- '))}</b></h2>", "\n".join(lines[1:])
    if body.count("\n") >= _FEW:
        shown = (
            f"<details><summary>{body.count(chr(10)) + 1} lines</summary>{_block(body, whole, RESULT_LIMIT)}</details>"
        )
    else:
        shown = _block(body, whole) if body else ""
    return f"<section{kind}>{head}{shown}</section>\n"


def _kind(number: int, record: Record) -> object:
    if "kind" not in record:
        raise GadError(f"journal line {number} is not a record this gad knows: it has no kind")
    return record["kind"]


def _number(value: object) -> float | None:
    """Return a value that can be drawn, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return max(value, 0)


def _short(text: str) -> str:
    return text if len(text) <= _LINE else text[:_LINE] + "…"


def _text(text: str) -> str:
    """Return text on one line for any place in the page."""
    return html.escape(one_line(text))


def _block(text: str, whole: str, limit: int = TEXT_LIMIT) -> str:
    """Return text of any length as a block; what is too long is cut, and where `whole` of it is stands there."""
    return f'<pre dir="auto">{html.escape(visible(cut(text, limit, whole)))}</pre>'
