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
        seen=True,
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

FRESH: tuple[LocalTask, ...] = (
    LocalTask("what it does", "What does the shell command pwd do?", _answers("director"), seen=True),
    LocalTask(
        "biggest number",
        "What is the largest number in values.txt?",
        _answers(r"\b977\b"),
        {"values.txt": "12\n977\n503\n-4\n"},
    ),
    LocalTask(
        "count words",
        "How many times does the word river occur in poem.txt?",
        _answers(r"\b3\b|three"),
        {"poem.txt": "the river runs\na bird sings\nriver, oh river\n"},
    ),
    LocalTask(
        "remove a line",
        "Remove the line that says 'eggs' from list.txt.",
        lambda d, a: _text(d, "list.txt").split() == ["flour", "sugar"],
        {"list.txt": "flour\neggs\nsugar\n"},
    ),
    LocalTask(
        "copy a file",
        "Make a copy of plan.txt named plan-old.txt.",
        lambda d, a: _text(d, "plan.txt") == _text(d, "plan-old.txt") == "step one\n",
        {"plan.txt": "step one\n"},
    ),
    LocalTask(
        "upper case",
        "Write the text of quiet.txt in capital letters to loud.txt.",
        lambda d, a: _text(d, "loud.txt").strip() == "BE STILL MY HEART",
        {"quiet.txt": "be still my heart\n"},
    ),
    LocalTask(
        "yaml flag",
        "Turn debug off in app.yaml.",
        lambda d, a: re.fullmatch(r"name: x\ndebug: (false|off)\nlevel: 3\n", _text(d, "app.yaml")) is not None,
        {"app.yaml": "name: x\ndebug: true\nlevel: 3\n"},
        seen=True,
    ),
    LocalTask("factorial", "What is the factorial of 17? Compute it.", _answers("355,?687,?428,?096,?000")),
    LocalTask(
        "json value",
        "Which city is given in user.json?",
        _answers("Lisbon"),
        {"user.json": '{"name": "Ana", "address": {"city": "Lisbon"}}\n'},
        seen=True,
    ),
    LocalTask(
        "even numbers",
        "Write the even numbers from 2 to 20 to even.txt, one on each line.",
        lambda d, a: _numbers(d, "even.txt") == list(range(2, 21, 2)),
    ),
    LocalTask(
        "reverse script",
        "Write a Python program reverse.py that prints its first command line argument reversed.",
        lambda d, a: _python(d, "reverse.py", "stressed") == "desserts",
    ),
    LocalTask(
        "rename a variable",
        "In area.py, rename the variable w to width everywhere. The program must still print 12.",
        lambda d, a: _python(d, "area.py") == "12" and not re.search(r"\bw\b", _text(d, "area.py")),
        {"area.py": "w = 3\nh = 4\nprint(w * h)\n"},
    ),
    LocalTask(
        "count files",
        "How many files are in the directory photos?",
        _answers(r"\b4\b|four"),
        {f"photos/{name}.jpg": "x" for name in ("a", "b", "c", "d")},
    ),
    LocalTask(
        "average",
        "What is the average of the prices in prices.csv?",
        _answers(r"\b2\.5"),
        {"prices.csv": "item,price\nnut,1.5\nbolt,3.5\n"},
    ),
    LocalTask(
        "japanese",
        "メモ.txt を読んで、色を教えてください。",
        _answers("青|blue"),
        {"メモ.txt": "好きな食べ物:寿司\n好きな色:青\n"},
    ),
    LocalTask(
        "syntax error",
        "greet.py has a syntax error. Correct it.",
        lambda d, a: _python(d, "greet.py") == "hello",
        {"greet.py": "def greet()\n    print('hello')\n\ngreet()\n"},
    ),
    LocalTask(
        "merge",
        "Put the contents of one.txt and then two.txt into both.txt.",
        lambda d, a: _text(d, "both.txt").split() == ["alpha", "beta"],
        {"one.txt": "alpha\n", "two.txt": "beta\n"},
    ),
    LocalTask(
        "unique lines",
        "Write the lines of dup.txt without repetitions to uniq.txt.",
        lambda d, a: sorted(_text(d, "uniq.txt").split()) == ["ant", "bee", "cow"],
        {"dup.txt": "ant\nbee\nant\ncow\nbee\n"},
    ),
    LocalTask(
        "make executable",
        "Make the file run.sh executable.",
        lambda d, a: (d / "run.sh").stat().st_mode & 0o100 != 0,
        {"run.sh": "#!/bin/sh\necho hi\n"},
    ),
    LocalTask(
        "longest line",
        "Which of the lines in lines.txt is the longest? Write only that line to longest.txt.",
        _holds("longest.txt", "a very long line indeed"),
        {"lines.txt": "short\na very long line indeed\nmedium line\n"},
    ),
)
"""Twenty tasks that the provider was never tuned on: what they give is the honest number."""
