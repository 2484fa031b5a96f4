"""Checks a call's arguments against its tool's schema before the tool runs.

Only the part of JSON Schema that our terse schemas use: type, enum, items, required, minimum.
What is obviously meant is accepted: "5" for an integer, one string for a list of strings, null for "not given".
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from gad.core.ports import ToolSchema


def check_arguments(schema: ToolSchema, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, coerced to the schema's types.

    Raises ValueError with a short text for the model that names the argument and what is expected.
    """
    known: Mapping[str, Mapping[str, Any]] = schema.parameters.get("properties", {})
    required = schema.parameters.get("required", ())
    checked: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes: {', '.join(known)}"
            raise ValueError(f"{schema.name} has no argument {name}; {hint}")
        if value is None and name not in required:
            continue
        checked[name] = _coerce(f"{schema.name}: {name}", known[name], value)
    missing = [name for name in required if name not in checked]
    if missing:
        raise ValueError(f"{schema.name} needs {', '.join(missing)}")
    return checked


def _coerce(where: str, rule: Mapping[str, Any], value: Any) -> Any:
    kind = rule.get("type")
    found: Any = _CASTS[kind](value) if kind in _CASTS else value
    if found is None:
        raise ValueError(f"{where} must be {_NAMES.get(str(kind), kind)}, not {_show(value)}")
    if "enum" in rule and found not in rule["enum"]:
        raise ValueError(f"{where} must be one of {', '.join(map(str, rule['enum']))}, not {_show(value)}")
    if "minimum" in rule and found < rule["minimum"]:
        raise ValueError(f"{where} must be at least {rule['minimum']}, not {_show(value)}")
    if kind == "array" and "items" in rule:
        return [_coerce(f"{where}[{index}]", rule["items"], item) for index, item in enumerate(found)]
    return found


def _string(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Neither infinity nor NaN is a length of time or a count.
    return value if -1e15 < value < 1e15 else None


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _array(value: Any) -> list[Any] | None:
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        return parsed if isinstance(parsed, list) else [value]
    return list(value) if isinstance(value, list | tuple) else None


def _object(value: Any) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, Mapping) else None


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


_CASTS = {
    "string": _string,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "array": _array,
    "object": _object,
}
_NAMES = {"integer": "an integer", "array": "an array", "object": "an object"} | {
    name: f"a {name}" for name in ("string", "number", "boolean")
}
