"""What the model is told of the tools, the check of its arguments, and the two tools that act on the session."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import warnings
from typing import Any

import pytest

from gad.core.arguments import check_arguments
from gad.core.ports import Question, ToolContext
from gad.tools.ask import AskUser
from gad.tools.memory import UpdateWorkingCheckpoint
from gad.tools.toolset import all_schemas

SCHEMAS = {schema.name: schema for schema in all_schemas()}
CONTEXT = ToolContext("s", "c", "/", "/", lambda text: None)


def test_the_tool_set_and_its_order() -> None:
    assert list(SCHEMAS) == [
        "code_run", "file_read", "file_patch", "file_write", "ask_user", "update_working_checkpoint",
        "start_long_term_update", "web_scan", "web_execute_js",
    ]  # fmt: skip


def test_the_schemas_are_terse() -> None:
    wire = [
        {
            "type": "function",
            "function": {"name": s.name, "description": s.description, "parameters": s.parameters},
        }
        for s in all_schemas()
    ]
    text = json.dumps(wire, separators=(",", ":"))
    with warnings.catch_warnings(action="ignore"):  # the tokenizer's import uses what Python deprecates
        tokenizer = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    assert len(tokenizer.encode(text)) <= 770


@pytest.mark.parametrize(
    ("name", "given", "checked"),
    [
        ("file_read", {"path": "a"}, {"path": "a"}),
        ("file_read", {"path": "a", "start": "5", "count": 7.0}, {"path": "a", "start": 5, "count": 7}),
        ("file_read", {"path": "a", "start": None, "keyword": 12}, {"path": "a", "keyword": "12"}),
        ("code_run", {"type": "bash", "code": "x", "timeout": "1.5"}, {"type": "bash", "code": "x", "timeout": 1.5}),
        ("ask_user", {"question": "q", "candidates": "a"}, {"question": "q", "candidates": ["a"]}),
        ("ask_user", {"question": "q", "candidates": '["a", "b"]'}, {"question": "q", "candidates": ["a", "b"]}),
        ("ask_user", {"question": "q", "candidates": ["a", 2]}, {"question": "q", "candidates": ["a", "2"]}),
    ],
)
def test_arguments_that_are_meant_well(name: str, given: dict[str, Any], checked: dict[str, Any]) -> None:
    found = check_arguments(SCHEMAS[name], given)
    assert found == checked
    assert [type(value) for value in found.values()] == [type(value) for value in checked.values()]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("file_patch", {"path": "a"}, "file_patch needs old_content, new_content"),
        ("file_read", {"path": None}, "file_read: path must be a string, not null"),
        ("file_read", {"path": "a", "star": 1}, "file_read has no argument star; did you mean start?"),
        ("file_read", {"path": "a", "zzz": 1}, "has no argument zzz; it takes: path, start, count, keyword"),
        ("file_read", {"path": "a", "start": "five"}, 'start must be an integer, not "five"'),
        ("file_read", {"path": "a", "start": 1.5}, "start must be an integer, not 1.5"),
        ("file_read", {"path": "a", "start": True}, "start must be an integer, not true"),
        ("file_read", {"path": ["a"]}, 'path must be a string, not ["a"]'),
        ("code_run", {"type": "ruby", "code": "x"}, 'type must be one of python, bash, not "ruby"'),
        ("code_run", {"type": "bash", "code": "x", "timeout": "inf"}, "timeout must be a number"),
        ("ask_user", {"question": "q", "candidates": [{}]}, "candidates[0] must be a string"),
    ],
)
def test_arguments_that_are_wrong_are_named(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_arguments(SCHEMAS[name], given)


def test_ask_user_gives_a_question_to_the_session() -> None:
    given = {"question": " 去哪儿? ", "candidates": ["北京", " ", "上海 🎉"]}
    outcome = asyncio.run(AskUser().run(given, CONTEXT))
    assert outcome.question == Question("去哪儿?", ("北京", "上海 🎉"))
    assert outcome.status == "ok"
    assert asyncio.run(AskUser().run({"question": " "}, CONTEXT)).status == "error"


def test_update_working_checkpoint_gives_notes_to_the_session() -> None:
    tool = UpdateWorkingCheckpoint()
    assert asyncio.run(tool.run({"key_info": "目标: x\n"}, CONTEXT)).key_info == "目标: x"
    assert asyncio.run(tool.run({"key_info": ""}, CONTEXT)).key_info == ""
