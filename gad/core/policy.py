"""What agents may do: rules of gad.yaml and those that come with gad, and what one tool call would do.

The order is simple. Gad's own files and keys are denied, whatever the rules say. Then the first rule that matches
counts: those of gad.yaml from top to bottom, then those that come with gad (`SHIPPED`). What no rule matches is
allowed, except that writing and deleting outside of the roots asks, and so do deeds that cannot be undone
(`gad.core.deeds`).

A call does several things at once: each is judged by itself, and the strictest verdict is the call's. Code is read, not
run, so for code this is a net and no wall.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gad.core import globs
from gad.core.commands import ANY, UNKNOWN, show
from gad.core.cut import cut
from gad.core.uses import Action, Place, Use, Uses

RuleTool = Literal["file_read", "file_write", "code_run", "web"]

CANDIDATES = ("yes", "no", "always")
"""What a person may answer when permission is asked for; any other words are a no."""

_TOOLS: dict[str, RuleTool] = {
    "file_read": "file_read",
    "file_write": "file_write",
    "code_run": "code_run",
    "web": "web",
}
_OTHER_NAMES = {
    "file_patch": "file_write",
    "web_scan": "web",
    "web_execute_js": "web",
    "files": "file_read or file_write",
    "bash": "code_run",
    "python": "code_run",
}
_STRICTNESS: Mapping[Action, int] = {"allow": 0, "ask": 1, "deny": 2}
_SHOWN = 6000
"""Characters of a call that a question shows."""
_NAMED = 12
"""Things that a question or a refusal names one by one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `source` says where it stands, for people.

    `pattern` is a path's pattern for the file tools; for code a regular expression between slashes or a command's
    first words; a host's pattern for the web. Empty: whatever the tool does. `linked` is the pattern with the links in
    its directory followed.
    """

    action: Action
    tool: RuleTool
    pattern: str = ""
    source: str = ""
    linked: str = ""

    @property
    def shown(self) -> str:
        """The rule for people to read."""
        return f"{self.source}: {self.action} {self.tool} {self.pattern}".rstrip()


def parse_rule(action: Action, text: str, source: str = "") -> Rule:
    """Read a rule as it stands in gad.yaml: `file_write /srv/**`. Raises ValueError that says what it must be."""
    tool, _, pattern = text.strip().partition(" ")
    pattern = pattern.strip()
    if tool not in _TOOLS:
        known = ", ".join(_TOOLS)
        hint = f"; write {_OTHER_NAMES[tool]}, which holds for it as well" if tool in _OTHER_NAMES else ""
        raise ValueError(f"must begin with one of {known}, not {tool!r}{hint}")
    if tool.startswith("file_") and pattern:
        if not pattern.startswith(("/", "~/", "**/")) and pattern != "~":
            raise ValueError(f"a path's pattern must begin with /, ~/ or **/, not as {pattern!r}")
        if {".", ".."} & set(pattern.split("/")):
            raise ValueError(f"write {pattern!r} without . and ..")
        globs.check_pattern(pattern)
    if tool == "code_run" and pattern.startswith("/") and pattern.endswith("/") and len(pattern) > 2:
        try:
            re.compile(pattern[1:-1], re.MULTILINE)
        except re.error as exc:
            raise ValueError(f"not a regular expression: {exc}") from None
    if tool == "web" and ("/" in pattern or " " in pattern):
        raise ValueError(f"must be a host such as example.org, or *, not {pattern!r}")
    if tool == "web":
        globs.check_pattern(pattern)
    return Rule(action, _TOOLS[tool], pattern, source)


def _shipped() -> tuple[Rule, ...]:
    secret = """~/.ssh/id_* ~/.ssh/*.pem ~/.ssh/*.key ~/.gnupg/private-keys-v1.d ~/.gnupg/secring.gpg ~/.aws/credentials
        ~/.netrc ~/.pgpass ~/.my.cnf ~/.git-credentials ~/.config/gh/hosts.yml ~/.config/gcloud/**/*credentials*
        ~/.kube/config ~/.docker/config.json ~/.password-store ~/.local/share/keyrings /etc/shadow /etc/shadow-
        /etc/gshadow /etc/gshadow- /etc/ssl/private /etc/ssh/ssh_host_*_key /proc/*/environ /proc/*/mem
        /proc/*/root /proc/*/task/*/environ"""
    rules = [Rule("allow", "file_read", "~/.ssh/*.pub", "gad: public keys")]
    rules += [Rule("deny", "file_read", pattern, "gad: secrets") for pattern in secret.split()]
    rules += [Rule("ask", "file_write", pattern, "gad: system and login settings") for pattern in ("/etc", "~/.ssh")]
    return tuple(rules)


SHIPPED = _shipped()
"""The rules that come with gad; those of gad.yaml stand before them."""

_UNITS = [
    "/etc/systemd",
    "/run/systemd",
    "/lib/systemd",
    "/usr/lib/systemd",
    "/usr/local/lib/systemd",
    "~/.config/systemd",
]
OWN_UNITS = tuple(f"{place}/**/{name}" for place in _UNITS for name in ("gad.*", "gad@*"))
"""Unit files of gad's own service."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a call. `rules` decided it, `what` says what they are about, `keys` what "always" means."""

    action: Action
    rules: tuple[str, ...] = ()
    what: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def question(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return what a person is asked: why, what the replies mean, and the call as it is; a long one is cut.

        What would steer a terminal, or hide or turn what stands there, shows as an escape sequence.
        """
        return _visible(
            (
                f"May this call of {tool} run? It would",
                *_listed(self.what),
                f"Asked because of {'; '.join(self.rules)}.",
                "yes: it runs, this once.",
                "no, or any other words: it does not run, and the agent reads your words.",
                "always: it runs, and in this session nobody is asked again to",
                *_listed(self.keys),
                f"The call, {tool}:",
                *(f"    {line}" for line in _call(arguments).split("\n")),
            )
        )

    def refusal(self, *, asked: bool = False) -> str:
        """Return what the model is told; `asked` says that it needs a permission which nobody is there to give."""
        what = "\n".join(_listed(self.what))
        rules = "; ".join(self.rules)
        if asked:
            return (
                f"not run: the user's permission is needed ({rules}), and nobody is there to give it. It would\n"
                f"{what}\nDo it another way: work in the cwd, and delete nothing outside of it. If there is no other "
                "way, leave it, and say in your answer what is left for the user to do."
            )
        return (
            f"not run: this is not allowed ({rules}). It would\n{what}\n"
            "Do not try the same by other means. Go on without it, or say in your answer why it is needed."
        )


def _listed(items: tuple[str, ...]) -> list[str]:
    shown = [f"- {_line(item)}" for item in items[:_NAMED]]
    return shown + ([f"- and {len(items) - _NAMED} more"] if len(items) > _NAMED else [])


def _line(text: str) -> str:
    """Return text on one line: what a model wrote must not look like words of gad's own."""
    shown = " ".join(text.split())
    return shown if len(shown) <= 300 else shown[:200] + " ... " + shown[-95:]


def _visible(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )


def _call(arguments: Mapping[str, Any]) -> str:
    """Return a call's arguments, the long ones last."""
    found = sorted(((name, str(value)) for name, value in arguments.items()), key=lambda one: len(one[1]))
    return cut("\n".join(f"{name}: {value}" for name, value in found), _SHOWN)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in force. `home` is the user's directory, `roots` are writable beside a session's own directories.

    `own` are patterns that no agent may write to, and `secrets` such that it may not read either; in the `spool` it may
    hand sessions in and speak to its children. No rule changes that. `temporary` are the directories in which each
    session's code finds files of its own alone, since the sandbox sees to that.
    """

    home: str = "/"
    rules: tuple[Rule, ...] = SHIPPED
    roots: tuple[str, ...] = ()
    own: tuple[str, ...] = OWN_UNITS
    secrets: tuple[str, ...] = ()
    spool: str = ""
    temporary: tuple[str, ...] = ()

    def judge(self, tool: str, arguments: Mapping[str, Any], place: Place) -> Verdict:
        """Return the verdict on one call, whose arguments fit the tool's schema."""
        found: dict[Action, list[tuple[Use, str]]] = {"allow": [], "ask": [], "deny": []}
        for use in Uses(self.home, self.roots, self.temporary, self.spool).of(tool, arguments, place):
            action, rule = self._decide(use, place)
            if rule:
                found[action].append((use, rule))
        action = max((one for one in found if found[one]), key=lambda one: _STRICTNESS[one], default="allow")
        decisive = found[action]
        return Verdict(
            action,
            tuple(dict.fromkeys(rule for _, rule in decisive)),
            tuple(dict.fromkeys(show(use.what) for use, _ in decisive)),
            tuple(dict.fromkeys(f"{show(use.key)} ({rule})" for use, rule in decisive)),
        )

    # -- one use -------------------------------------------------------------------------------

    def _decide(self, use: Use, place: Place) -> tuple[Action, str]:
        """Return what holds for a use and the rule that says so, which is empty where none does."""
        if use.access and any(globs.matches_path(one, path) for one in self.secrets for path in use.paths):
            return "deny", "gad: its own keys and logins"
        if use.access in ("write", "delete") and any(self._is_own(path, use.access, place) for path in use.paths):
            return "deny", "gad: its own files"
        if use.default == "deny":
            return "deny", use.reason
        rule = next((rule for rule in self.rules if _applies(rule, use)), None)
        action, shown = (use.default, use.reason) if rule is None else (rule.action, rule.shown)
        if action == "ask" and place.confined and use.access in ("write", "delete") and shown.startswith("gad: "):
            return "allow", ""  # its walls refuse what it may not write, so there is nothing to ask
        return action, shown

    def _is_own(self, path: str, access: str, place: Place) -> bool:
        if any(globs.matches_path(one, path) for one in self.own):
            return True
        # Deleting a directory deletes what is in it.
        if access == "delete" and any(_below(one, path) for one in (*self.own, self.spool) if one):
            return True
        return bool(self.spool) and globs.inside(path, self.spool) and self._is_theirs(path, access, place)

    def _is_theirs(self, path: str, access: str, place: Place) -> bool:
        """Return whether a path in the spool is not for this session to change."""
        session, *rest = [*path[len(self.spool) :].strip("/").split("/"), ""][:3]
        if session == place.session:
            return True  # it could answer its own questions
        if rest[:1] in ([], [""]):
            return access == "delete"
        return session not in place.children and rest[0] in ("reply.txt", "verdict.txt")


def _below(pattern: str, directory: str) -> bool:
    """Return whether something of a pattern may lie below a directory, which may hold what a shell expands later."""
    if directory.startswith(UNKNOWN) or not pattern.startswith("/"):
        return False
    return globs.matches_path(directory.replace(ANY, "*"), globs.literal_head(pattern))


# -- rules and uses ------------------------------------------------------------------------------


def _applies(rule: Rule, use: Use) -> bool:
    """Return whether a rule is about a use. What allows must be sure of it, what asks or denies need not."""
    allows = rule.action == "allow"
    match rule.tool:
        case "file_read" | "file_write":
            if (use.access == "read") != (rule.tool == "file_read") or not use.access:
                return False
            patterns = {rule.pattern, rule.linked or rule.pattern}
            if not rule.pattern:
                return True
            paths = use.paths[-1:] if allows else use.paths
            guess = use.access != "read"
            return any(globs.matches_path(one, path, surely=allows, guess=guess) for one in patterns for path in paths)
        case "code_run":
            return use.code is not None and _applies_to_code(rule.pattern, use, allows=allows)
        case "web":
            if use.host is None:
                return False
            return not rule.pattern or (use.host != "" and globs.matches_host(rule.pattern, use.host))


def _applies_to_code(pattern: str, use: Use, *, allows: bool) -> bool:
    if use.code is None:
        return False
    if pattern.startswith("/") and pattern.endswith("/") and len(pattern) > 2:
        expression = re.compile(pattern[1:-1], re.MULTILINE)
        if allows:
            return expression.fullmatch(use.code.strip()) is not None
        return use.level == "code" and expression.search(use.code) is not None
    if not pattern:
        return allows or use.bare
    if not use.words:
        return False
    if allows:
        return globs.begins_with(use.words, pattern.split())
    return use.level == "command" and globs.could_begin_with(use.words, pattern.split())


def make_policy(
    rules: Iterable[Rule],
    *,
    home: str,
    real: Callable[[str], str],
    roots: Iterable[str] = (),
    own: Iterable[str] = (),
    secrets: Iterable[str] = (),
    spool: str = "",
) -> Policy:
    """Return the policy with these rules of the user's; links in its patterns are followed now, once."""

    def expanded(pattern: str) -> str:
        return home + pattern[1:] if pattern == "~" or pattern.startswith("~/") else pattern

    def linked(pattern: str) -> str:
        head = globs.literal_head(pattern)
        return real(head).rstrip("/") + pattern[len(head.rstrip("/")) :] if pattern.startswith("/") else pattern

    def both(paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one for path in paths for one in (path, linked(path))))

    made = []
    for rule in (*rules, *SHIPPED):
        pattern = expanded(rule.pattern) if rule.tool.startswith("file_") else rule.pattern
        made.append(replace(rule, pattern=pattern, linked=linked(pattern) if rule.tool.startswith("file_") else ""))
    return Policy(
        home,
        tuple(made),
        both(map(expanded, roots)),
        both((*own, *map(expanded, OWN_UNITS))),
        both(secrets),
        spool and real(spool),
    )
