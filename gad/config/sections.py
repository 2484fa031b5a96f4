"""The readers of gad.yaml's other sections: the spool, the browser, the policy, the sandbox, and the small ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from gad import yaml_lines as rule
from gad.config.values import (
    BrowserSettings,
    Limits,
    LogSettings,
    MemorySettings,
    PolicySettings,
    RetainSettings,
    Retry,
    SandboxSettings,
    SpoolSettings,
)
from gad.core.policy import Rule, parse_rule
from gad.core.quota import Quota
from gad.core.uses import Action
from gad.home import CONFIG_NAME

_YEAR = 366 * 86400.0
USD = rule.number(0.0001, 1e6, "US dollars")
LIMIT_FIELDS: dict[str, rule.Field] = {
    "turns": rule.whole(1, 1_000_000),
    "tokens": rule.whole(1, 10**12),
    "usd": USD,
    "seconds": rule.seconds(1, _YEAR),
}
_RETRY: dict[str, rule.Field] = {
    "first": rule.seconds(0.01, 3600),
    "most": rule.seconds(0.01, 86400),
    "give_up": rule.seconds(0, _YEAR),
}


def _polling(node: Node) -> bool | None:
    return None if isinstance(node, ScalarNode) and node.value == "auto" else rule.flag(node)


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)?", re.ASCII | re.IGNORECASE)


def _bytes(node: Node) -> int:
    """Read a size: bytes, or a number with KB, MB, GB or TB behind it; `off` is 0."""
    written = node.value.strip() if isinstance(node, ScalarNode) else ""
    if written == "off":
        return 0
    if not (found := _SIZE.fullmatch(written)):
        raise rule.Wrong(f"must be a size such as 100MB or 2GB, or off, not {written or 'a list or a mapping'!r}")
    return int(float(found[1]) * 1000 ** ("B", "KB", "MB", "GB", "TB").index((found[2] or "B").upper()))


_SPOOL: dict[str, rule.Field] = {
    "max_bytes": rule.whole(1, 2**30),
    "users": rule.texts,
    "group": rule.text,
    "mode": rule.choice("2770", "3770"),
    "min_free": _bytes,
    "polling": _polling,
}
_QUOTA: dict[str, rule.Field] = {
    "sessions": rule.whole(1, 10_000),
    "per_day": rule.whole(1, 1_000_000),
    "usd_per_day": USD,
}
_MEMORY: dict[str, rule.Field] = {"enabled": rule.flag, "controller": rule.flag, "reviews": rule.flag}
_BROWSER: dict[str, rule.Field] = {
    "executable": rule.text,
    "headless": rule.flag,
    "cdp_url": rule.matching(r"(https?|wss?)://[^\s/]+\S*", "a URL such as http://127.0.0.1:9222"),
    "profiles": rule.texts,
    "proxy": rule.matching(
        r"(https?|socks5)://[^\s/]+", "a URL such as http://host:3128 or socks5://host:1080", secret=True
    ),
    "user_agent": rule.text,
    "idle": rule.seconds(1, 86400),
    "sandbox": rule.choice("auto", "on", "off"),
}
_SANDBOX: dict[str, rule.Field] = {
    "mode": rule.choice("auto", "none", "bwrap"),
    "network": rule.flag,
    "writable": rule.texts,
}
_KEEP = rule.seconds(3600, 100 * _YEAR)


def _keep(node: Node) -> float | None:
    return None if isinstance(node, ScalarNode) and node.value == "off" else float(_KEEP(node))


_LOG: dict[str, rule.Field] = {
    "level": rule.choice("debug", "info", "warning", "error"),
    "format": rule.choice("human", "json"),
}
_RETAIN: dict[str, rule.Field] = {"sessions": _keep, "work": _keep}
_ACTIONS: tuple[Action, ...] = ("allow", "ask", "deny")


def read_limits(reader: rule.Reader, node: Node | None) -> Limits:
    """Read `limits`."""
    return Limits(**reader.table(node, "limits", LIMIT_FIELDS))


def read_spool(reader: rule.Reader, node: Node | None) -> SpoolSettings:
    """Read `spool`."""
    spool = SpoolSettings(**reader.table(node, "spool", _SPOOL))
    if "spool.mode" in reader.lines and spool.group is None:
        what = "has no meaning without spool.group; name the group as well"
        reader.fail(reader.lines["spool.mode"], "spool.mode", what)
    return spool


def read_quota(reader: rule.Reader, node: Node | None) -> Quota:
    """Read `quota`."""
    return Quota(**reader.table(node, "quota", _QUOTA))


def read_memory(reader: rule.Reader, node: Node | None) -> MemorySettings:
    """Read `memory`."""
    return MemorySettings(**reader.table(node, "memory", _MEMORY))


def read_log(reader: rule.Reader, node: Node | None) -> LogSettings:
    """Read `log`."""
    return LogSettings(**reader.table(node, "log", _LOG))


def read_retain(reader: rule.Reader, node: Node | None) -> RetainSettings:
    """Read `retain`."""
    return RetainSettings(**reader.table(node, "retain", _RETAIN))


def read_retry(reader: rule.Reader, node: Node | None) -> Retry:
    """Read `retry`."""
    retry = Retry(**reader.table(node, "retry", _RETRY))
    if retry.first > retry.most:
        line = reader.lines.get("retry.first") or reader.lines.get("retry.most", 1)
        reader.fail(line, "retry.first", f"{retry.first:g} s is more than retry.most, {retry.most:g} s; swap them")
    return retry


def read_browser(reader: rule.Reader, node: Node | None, home: Path) -> BrowserSettings:
    """Read `browser`; a path in it is meant from the home."""
    values = reader.table(node, "browser", _BROWSER)
    for label in values.get("profiles", ()):
        if not re.fullmatch(r"[\w][\w.-]{0,63}", label):
            what = f"{label!r} cannot name a profile; use letters, digits, dots and dashes, at most 64"
            reader.fail(reader.lines["browser.profiles"], "browser.profiles", what)
    if "cdp_url" in values:
        for key in ("executable", "headless", "profiles", "proxy", "user_agent", "sandbox"):
            if line := reader.lines.get(f"browser.{key}"):
                what = "has no meaning beside cdp_url, as that browser runs already; remove one of the two"
                reader.fail(line, f"browser.{key}", what)
    if "executable" in values:
        values["executable"] = os.path.normpath(home / os.path.expanduser(values["executable"]))
    return BrowserSettings(**values)


def read_policy(reader: rule.Reader, node: Node | None) -> PolicySettings:
    """Read `policy`."""
    values = reader.table(node, "policy", {"rules": rule.as_node, "roots": rule.texts})
    roots = []
    for root in values.get("roots", ()):
        path = os.path.expanduser(root)
        if not os.path.isabs(path):
            what = f"{root!r} must be an absolute path or begin with ~/"
            reader.fail(reader.lines["policy.roots"], "policy.roots", what)
        roots.append(os.path.normpath(path))
    return PolicySettings(_rules(reader, values.get("rules")), tuple(roots))


def _rules(reader: rule.Reader, node: Node | None) -> tuple[Rule, ...]:
    """Read a list of `- allow: TOOL PATTERN` lines; `ask` and `deny` take the place of `allow`."""
    path = "policy.rules"
    if node is None:
        return ()
    if not isinstance(node, SequenceNode):
        reader.fail(node, path, "must be a list of lines such as `- ask: code_run docker`")
        return ()
    found = []
    for number, one in enumerate(node.value, 1):
        where = f"{path}[{number}]"
        line = rule.line_of(one)
        entries = reader.entries(one, where) if isinstance(one, MappingNode) else {}
        if len(entries) != 1:
            reader.fail(
                line, where, "must be one of allow, ask and deny with what it is about: `- deny: code_run docker`"
            )
            continue
        [(key, value)] = entries.items()
        action = next((known for known in _ACTIONS if known == key), None)
        if action is None:
            reader.fail(line, f"{where}.{key}", f"unknown key{rule.did_you_mean(key, _ACTIONS)}")
            continue
        try:
            found.append(parse_rule(action, rule.text(value), f"{CONFIG_NAME}:{line}"))
        except (rule.Wrong, ValueError) as exc:
            reader.fail(value, f"{where}.{key}", str(exc))
    return tuple(found)


def read_sandbox(reader: rule.Reader, node: Node | None) -> SandboxSettings:
    """Read `sandbox`, whose mode may stand alone."""
    if isinstance(node, ScalarNode):
        try:
            return SandboxSettings(mode=_SANDBOX["mode"](node))
        except rule.Wrong as exc:
            reader.fail(node, "sandbox", str(exc))
            return SandboxSettings()
    values = reader.table(node, "sandbox", _SANDBOX)
    if values.get("mode") == "none":
        for key in ("network", "writable"):
            if line := reader.lines.get(f"sandbox.{key}"):
                reader.fail(line, f"sandbox.{key}", "has no meaning beside mode: none; remove one of the two")
    places = []
    for path in values.get("writable", ()):
        expanded = os.path.expanduser(path)
        if not os.path.isabs(expanded):
            what = f"must be absolute paths, or such that begin with ~/, not {path!r}"
            reader.fail(reader.lines["sandbox.writable"], "sandbox.writable", what)
        places.append(os.path.normpath(expanded))
    if places:
        values["writable"] = tuple(places)
    return SandboxSettings(**values)
