"""Thirty small tasks for the local model, each with the files it starts from and a check of what came out.

None of them is one of the provider's examples; a few are of a kind that the examples show, and say so.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LocalTask:
    """`check` takes the working directory and the final answer and says whether the task is done.

    `seen` marks a task whose kind the provider's examples show, with other files and other words.
    """

    name: str
    prompt: str
    check: Callable[[Path, str], bool]
    files: Mapping[str, str] = field(default_factory=dict)
    seen: bool = False


def _text(directory: Path, name: str) -> str:
    path = directory / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _answers(*wanted: str) -> Callable[[Path, str], bool]:
    return lambda directory, answer: all(re.search(pattern, answer, re.IGNORECASE) for pattern in wanted)


def _holds(name: str, wanted: str) -> Callable[[Path, str], bool]:
    return lambda directory, answer: _text(directory, name).strip() == wanted


def _python(directory: Path, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, timeout=20, check=False
    )
    return run.stdout.strip() if run.returncode == 0 else f"exit {run.returncode}"


def _json(directory: Path, name: str) -> object:
    try:
        return json.loads(_text(directory, name) or "null")
    except ValueError:
        return None


def _numbers(directory: Path, name: str) -> list[int]:
    return [int(word) for word in re.findall(r"\d+", _text(directory, name))]


_ORDERS = "id,customer,amount\n1,Ada,120\n2,Bo,75\n3,Ada,30\n4,Cy,210\n5,Bo,15\n"
_LOG = "".join(
    f"2026-03-0{day} {level} {text}\n"
    for day, level, text in (
        (1, "INFO", "started"),
        (2, "ERROR", "disk full"),
        (3, "WARN", "slow reply"),
        (4, "ERROR", "no route"),
        (5, "INFO", "stopped"),
        (6, "ERROR", "disk full"),
    )
)
_STORY = "The old lighthouse stood at the edge of the cliff.\nIts keeper was called Marten.\nHe kept seven goats.\n"

TASKS: tuple[LocalTask, ...] = (
    LocalTask("plain question", "What is the capital of Japan?", _answers("tokyo"), seen=True),
    LocalTask(
        "read and answer",
        "What is the name of the lighthouse keeper in story.txt?",
        _answers("marten"),
        {"story.txt": _STORY},
        seen=True,
    ),
    LocalTask(
        "write a file",
        "Write a file greeting.txt that holds the single line: good morning",
        _holds("greeting.txt", "good morning"),
    ),
    LocalTask(
        "patch a value",
        "Change the port in server.yaml from 8080 to 9191.",
        lambda d, a: _text(d, "server.yaml") == "host: example.org\nport: 9191\ndebug: false\n",
        {"server.yaml": "host: example.org\nport: 8080\ndebug: false\n"},
        seen=True,
    ),
    LocalTask(
        "compute", "Compute 2 to the power of 61 exactly.", _answers(r"2305843009213693952|2,305,843,009,213,693,952")
    ),
    LocalTask("count lines", "How many lines does app.log have?", _answers(r"\b6\b|six"), {"app.log": _LOG}),
    LocalTask("count matches", "How many lines in app.log are errors?", _answers(r"\b3\b|three"), {"app.log": _LOG}),
    LocalTask(
        "list files",
        "Which markdown files are there in the directory notes?",
        _answers(r"plan\.md", r"ideas\.md"),
        {"notes/plan.md": "# plan\n", "notes/ideas.md": "# ideas\n", "notes/photo.jpg.txt": "x"},
    ),
    LocalTask(
        "rename",
        "Rename draft.txt to final.txt.",
        lambda d, a: _text(d, "final.txt") == "ready\n" and not (d / "draft.txt").exists(),
        {"draft.txt": "ready\n"},
    ),
    LocalTask(
        "json edit",
        "In package.json, set the version to 2.0.0 and leave everything else as it is.",
        lambda d, a: _json(d, "package.json") == {"name": "boat", "version": "2.0.0", "private": True},
        {"package.json": '{\n  "name": "boat",\n  "version": "1.4.2",\n  "private": true\n}\n'},
    ),
    LocalTask(
        "csv sum",
        "What is the total of the amount column in orders.csv?",
        _answers(r"\b450\b"),
        {"orders.csv": _ORDERS},
    ),
    LocalTask(
        "script and run",
        "Create primes.py, which prints all prime numbers below 30 on one line, separated by spaces, and run it.",
        lambda d, a: _python(d, "primes.py") == "2 3 5 7 11 13 17 19 23 29",
    ),
    LocalTask(
        "fix python",
        "average.py crashes. Fix it so that it prints the average of the numbers.",
        lambda d, a: _python(d, "average.py") in ("4", "4.0"),
        {
            "average.py": "numbers = [2, 4, 6]\ntotal = 0\nfor n in numbers:\n    total += n\n"
            "print(total / len(number))\n"
        },
    ),
    LocalTask(
        "chinese read",
        "读取文件 信息.txt,告诉我会议在哪一天举行。",
        _answers("星期四|周四|Thursday"),
        {"信息.txt": "会议通知\n时间:星期四下午三点\n地点:二号楼\n"},
    ),
    LocalTask(
        "chinese write",
        "创建文件 问候.txt,内容只有一行:你好,世界",
        lambda d, a: _text(d, "问候.txt").strip() in ("你好,世界", "你好,世界"),
    ),
    LocalTask(
        "append a line",
        "Add the line 'pears' at the end of shopping.txt.",
        lambda d, a: _text(d, "shopping.txt").split() == ["bread", "milk", "pears"],
        {"shopping.txt": "bread\nmilk\n"},
    ),
    LocalTask(
        "delete a file",
        "Delete the file old.tmp, but nothing else.",
        lambda d, a: not (d / "old.tmp").exists() and (d / "new.txt").exists(),
        {"old.tmp": "x\n", "new.txt": "y\n"},
    ),
    LocalTask(
        "make directories",
        "Make the directories src and src/lib, and an empty file src/lib/__init__.py.",
        lambda d, a: (d / "src/lib/__init__.py").is_file() and not _text(d, "src/lib/__init__.py").strip(),
    ),
    LocalTask(
        "sort lines",
        "Sort the lines of names.txt alphabetically and write them to sorted.txt.",
        lambda d, a: _text(d, "sorted.txt").split() == ["Anna", "Boris", "Mila", "Zoe"],
        {"names.txt": "Zoe\nBoris\nAnna\nMila\n"},
    ),
    LocalTask(
        "find the file",
        "One of the files in the directory box contains the word treasure. Which one?",
        _answers(r"c\.txt"),
        {"box/a.txt": "sand\n", "box/b.txt": "stones\n", "box/c.txt": "here is the treasure\n"},
    ),
    LocalTask(
        "replace everywhere",
        "Replace every 'cat' by 'dog' in pets.txt.",
        lambda d, a: _text(d, "pets.txt") == "a dog and a dog\nmy dog sleeps\n",
        {"pets.txt": "a cat and a cat\nmy cat sleeps\n"},
    ),
    LocalTask(
        "date arithmetic",
        "How many days are there from 2024-02-10 to 2024-03-15? Compute it.",
        _answers(r"\b34\b"),
    ),
    LocalTask(
        "csv to json",
        "Convert people.csv to people.json: a list of objects with the keys name and age, the age as a number.",
        lambda d, a: _json(d, "people.json") == [{"name": "Ida", "age": 31}, {"name": "Olaf", "age": 58}],
        {"people.csv": "name,age\nIda,31\nOlaf,58\n"},
    ),
    LocalTask(
        "longest word",
        "What is the longest word in words.txt?",
        _answers("watermelon"),
        {"words.txt": "fig\nbanana\nwatermelon\npeach\n"},
    ),
    LocalTask(
        "add a function",
        "Add a function multiply(a, b) to calc.py that returns the product. Keep the function add.",
        lambda d, a: _python(d, "-c", "import calc; print(calc.add(2, 3), calc.multiply(4, 5))") == "5 20",
        {"calc.py": "def add(a, b):\n    return a + b\n"},
    ),
    LocalTask(
        "shell script",
        "Write a bash script hello.sh that prints hello and its first argument, then run it with the argument gad.",
        lambda d, a: (
            subprocess.run(["bash", "hello.sh", "Eve"], cwd=d, capture_output=True, text=True, check=False)
            .stdout.strip()
            .lower()
            .replace(",", "")
            .rstrip("!")
            == "hello eve"
        ),
    ),
    LocalTask(
        "best customer",
        "Which customer in orders.csv spent the most in total? Write only the name to top.txt.",
        _holds("top.txt", "Cy"),
        {"orders.csv": _ORDERS},
    ),
    LocalTask(
        "squares table",
        "Create squares.csv with the header n,square and one row for each n from 1 to 10.",
        lambda d, a: (
            [row for row in csv.reader(io.StringIO(_text(d, "squares.csv"))) if row]
            == [["n", "square"], *[[str(n), str(n * n)] for n in range(1, 11)]]
        ),
    ),
    LocalTask(
        "failing test",
        "Run test_temp.py with python. It fails: find the mistake in temp.py and correct it.",
        lambda d, a: _python(d, "test_temp.py") == "ok" and "100" in _text(d, "test_temp.py"),
        {
            "temp.py": "def to_fahrenheit(c):\n    return c * 9 / 5 + 23\n",
            "test_temp.py": "from temp import to_fahrenheit\n\nassert to_fahrenheit(100) == 212\nprint('ok')\n",
        },
    ),
    LocalTask(
        "two files",
        "Add up the numbers in a.txt and b.txt and write the sum to sum.txt.",
        lambda d, a: _numbers(d, "sum.txt") == [1500],
        {"a.txt": "400\n600\n", "b.txt": "200\n300\n"},
    ),
)
