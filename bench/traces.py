"""Made-up sessions for the benchmark of the context pipeline: what a model says and what its tools give, turn by turn.

Every trace is computed from numbers and fixed words, so it is the same each time. A tool's output stands here as the
tool gives it, whole; how much of it a request shows is the business of the pipeline that replays the trace.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

LOG = "/var/log/jobs.log"
LOG_LINES = 12_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model with its one call, and what came of it. `reply` is what the user says after it."""

    said: str
    tool: str
    arguments: Mapping[str, Any]
    output: str
    meta: Mapping[str, Any] = field(default_factory=dict)
    reply: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A session: the task, then its turns."""

    name: str
    task: str
    turns: tuple[Turn, ...]


def sixty(scale: float = 1.0) -> Trace:
    """60 turns of four kinds: read 120 log lines, print 50 to 650 lines, note, write 60 lines.

    `scale` multiplies the lengths of the lines that are read, printed and written.
    """
    turns = [_SIXTY[n % 4](n // 4, n + 1, scale) for n in range(60)]
    task = f"Go through {LOG} from the start, find the jobs that failed or came late, and write a report for each hour."
    return Trace("60 turns", task, tuple(turns))


def _read_log(round_: int, turn: int, scale: float) -> Turn:
    start = 1 + 120 * round_
    lines = [f"12:{n // 60 % 60:02}:{n % 60:02} job {100 + n % 900} ok" for n in range(start, start + 120)]
    return _read(f"I read the log from line {start} on.", LOG, start, [_sized(line, scale) for line in lines])


def _count(round_: int, turn: int, scale: float) -> Turn:
    wanted = 50 + round_ * 7 % 15 * 600 // 14  # 50 to 650 in 15 equal steps, out of order
    code = (
        f"import re\n"
        f"for line in open({LOG!r}):\n"
        f"    if found := re.search(r'job (\\d+) (\\w+)', line):\n"
        f"        number, state = int(found[1]), found[2]\n"
        f"        if number % {turn} < {wanted}:\n"
        f"            print(number, state)\n"
    )
    printed = "\n".join(_sized(f"{100 + n * turn % 900} ok", scale) for n in range(wanted))
    return _run(f"I print the jobs of window {turn}.", "python", code, printed, turn)


def _note(round_: int, turn: int, scale: float) -> Turn:
    done = 120 * (round_ + 1)
    notes = (
        f"Goal: a report for each hour of {LOG}, late jobs first.\n"
        f"Done: lines 1 to {done}; reports 1 to {round_} are written.\n"
        f"Found: job {100 + turn * 37 % 900} is late each hour, job {100 + turn * 11 % 900} failed twice.\n"
        f"Next: read on from line {done + 1}, count, write report-{round_ + 1}.md, sum up at the end."
    )
    return _checkpoint("I note what I have found so far.", notes)


def _report(round_: int, turn: int, scale: float) -> Turn:
    lines = [_sized(f"- job {100 + n * turn % 900}: ok", scale) for n in range(60)]
    return _write(f"I write report {round_ + 1}.", f"report-{round_ + 1}.md", lines)


_SIXTY = (_read_log, _count, _note, _report)


def web() -> Trace:
    """40 turns with a browser: scripts with results up to 8,000 characters, pages up to 35,000, code, files."""
    turns: list[Turn] = []
    for n in range(10):
        size = 5_000 + n * 7 % 10 * 30_000 // 9
        script = f"return [...document.querySelectorAll('li.item')].slice({n * 20}).map(item => item.innerText)"
        found = _page(n, 800 + n * 3 % 10 * 800).replace("<", "{").replace(">", "}")
        files = "\n".join(f"goods-{k}.csv {k * 371 % 9000} bytes" for k in range(12 * (n + 1)))
        rows = [f"{k + n * 40};{_words(n * 40 + k, 3)};{k * 13 % 90}.90" for k in range(40)]
        turns += [
            Turn("I collect the entries of this page.", "web_execute_js", {"script": script}, found),
            Turn("I look at the next page.", "web_scan", {"tabs_only": False}, _page(n + 100, size)),
            _run("I see which files there are.", "bash", "wc -c goods-*.csv", files, n),
            _write(f"I save page {n + 1}.", f"goods-{n + 1}.csv", rows),
        ]
    return Trace("web", "Collect all goods of shop.example with their prices, a file for each page.", tuple(turns))


def chinese() -> Trace:
    """60 turns in Chinese: files read, code run, notes and files written; every 12th turn the user says something."""
    turns: list[Turn] = []
    for n in range(15):
        read = [_sentences(n * 100 + k, 2) for k in range(60)]
        printed = "\n".join(f"第{k}段：{_sentences(n * 90 + k, 3)}" for k in range(5 + n * 7 % 15 * 8))
        notes = f"目标：整理全部会议记录。\n已完成：前{n + 1}份。\n发现：{_sentences(n, 2)}\n下一步：继续第{n + 2}份。"
        code = f"for k, line in enumerate(open('记录{n + 1}.txt')):\n    print(f'第{{k}}段：{{line.strip()}}')\n"
        turns += [
            _read(f"我先读第{n + 1}份记录。", f"/资料/记录{n + 1}.txt", 1, read),
            _run("我把每一段打印出来看看。", "python", code, printed, n),
            _checkpoint("我记下目前的发现。", notes),
            _write(f"我写第{n + 1}份摘要。", f"摘要{n + 1}.md", [f"- {_sentences(n * 70 + k, 1)}" for k in range(30)]),
        ]
    said = {11: "摘要请写得短一些。", 23: "日期也要写进去。", 35: "先处理与预算有关的内容。", 47: "最后请再检查一遍。"}
    told = [replace(turn, reply=said.get(n, "")) for n, turn in enumerate(turns)]
    task = "请把目录里的会议记录逐份读完，每份写一个摘要，最后给出总结。" + _sentences(1, 3)
    return Trace("chinese", task, tuple(told))


def short() -> Trace:
    """200 turns of small commands whose output is a few lines."""
    turns: list[Turn] = []
    for n in range(50):
        tests = n % 40 + 5
        turns += [
            _shell("I see what is there.", n, "ls", "\n".join(f"part{k}.py" for k in range(n % 7 + 1))),
            _shell("I look for the name.", n, "grep -rn total .", f"./part{n % 7}.py:{n}:    total = {_words(n, 2)}"),
            _shell("I see what has changed.", n, "diff old new", f"1c1\n< {_words(n, 6)}\n---\n> {_words(n + 1, 6)}"),
            _shell("I run the tests.", n, "python -m pytest -q", f"{'.' * tests}\n{tests} passed in 0.{n:02}s"),
        ]
    return Trace("short", "Tidy up the projects below /srv one by one; the tests must pass.", tuple(turns))


# -- one turn of each kind, as gad's own tools shape it --------------------------------------------


def _read(said: str, path: str, start: int, lines: list[str]) -> Turn:
    end, total = start + len(lines), max(LOG_LINES, start + len(lines))
    shown = [f"{number}|{line}" for number, line in enumerate(lines, start)]
    shown.append(f"[{total - end + 1:,} more lines; read on with start={end}]")
    arguments = {"path": path, "start": start, "count": len(lines)}
    return Turn(said, "file_read", arguments, "\n".join(shown), {"lines": total})


def _run(said: str, language: str, code: str, printed: str, seed: int) -> Turn:
    facts = {"exit": 0, "seconds": (3 + seed * 7 % 40) / 100}
    return Turn(said, "code_run", {"type": language, "code": code}, printed, facts)


def _shell(said: str, project: int, command: str, printed: str) -> Turn:
    return _run(said, "bash", f"cd /srv/project{project} && {command}", printed, project)


def _checkpoint(said: str, notes: str) -> Turn:
    return Turn(said, "update_working_checkpoint", {"key_info": notes}, "noted")


def _write(said: str, path: str, lines: list[str]) -> Turn:
    content = "\n".join(lines) + "\n"
    size = len(content.encode())
    output = f"wrote {len(lines):,} lines, {size:,} bytes to a new file"
    return Turn(said, "file_write", {"path": path, "content": content}, output)


# -- texts -----------------------------------------------------------------------------------------

_MORE = " after one retry on worker seven, queue empty, next run at noon, no warnings, output kept for a week" * 4
_GOODS = """
amber anchor apple basket brick bridge button candle carpet cedar copper cotton desk drawer feather garden glass hammer
kettle ladder lamp linen marble mirror needle orchard paper pencil pillow river saddle silver spoon table
"""
_PHRASES = """
项目进度 预算报告 会议记录 技术方案 市场部门 客户反馈 系统测试 数据分析 下个季度 负责人员
需要确认 已经完成 正在进行 存在风险 按时交付 重新评估 成本控制 产品质量 用户需求 合同条款
供应商 服务器 数据库 接口文档 安全检查 培训计划 人事安排 建议采用 暂时推迟 进一步讨论
"""


def _sized(line: str, scale: float) -> str:
    """Return a line of `scale` times its own length."""
    return (line + _MORE)[: round(len(line) * scale)]


def _words(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices(_GOODS.split(), k=count))


def _sentences(seed: int, count: int) -> str:
    chance, phrases = random.Random(seed), _PHRASES.split()
    return "".join("，".join(chance.choices(phrases, k=3 + k % 3)) + "。" for k in range(count))


def _page(seed: int, size: int) -> str:
    """Return a page of goods, as HTML of about `size` characters and not more."""
    parts = [f"<html><head><title>Goods, page {seed}</title></head><body><ul>"]
    room = size - len(parts[0]) - len("\n</ul></body></html>")
    for n in range(size):
        name = _words(seed * 1000 + n, 4)
        item = (
            f'\n<li class="item"><a href="/goods/{seed * 1000 + n}?ref=list">{name}</a>'
            f'<span class="price">{n * 13 % 90}.{seed % 10}0</span></li>'
        )
        room -= len(item)
        if room < 0:
            break
        parts.append(item)
    return "".join(parts) + "\n</ul></body></html>"
