"""What a tool's child process may see of the daemon's environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"""^(OPENAI|ANTHROPIC|AZURE_OPENAI|OPENROUTER|DEEPSEEK|GEMINI|GROQ|MISTRAL)_ |
        ^AWS_.*(KEY|TOKEN|PROFILE|CREDENTIAL) |
        (API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION|ACCOUNT|MASTER)_?KEY |
        (^|_)(KEY|TOKEN|SECRET|PAT|PWD)$ | (^|_)(TOKEN|SECRET)S?(_|$) |
        PASSWORD | PASSWD | PASSPHRASE | CREDENTIAL""",
    re.VERBOSE | re.IGNORECASE,
)
"""Names that, by custom, hold a secret."""

_SUPERVISOR = frozenset(
    {"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"}
)
"""The daemon's talk with its supervisor: a child that answers there speaks in the daemon's name."""

_HABITS = {
    "PYTHONUNBUFFERED": "1",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Nobody sits at a terminal: no colours, no pagers, no prompts, output at once."""


def is_secret(name: str) -> bool:
    """Return True when a variable of this name, by custom, holds a key or a password."""
    return name != "PWD" and name != "OLDPWD" and _SECRET.search(name) is not None


def child_environment(base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Return `base` without keys and secrets, fit for a process without a terminal, plus `extra` as it is."""
    found = {name: value for name, value in base.items() if not is_secret(name) and name not in _SUPERVISOR}
    if not any(found.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
        found["LANG"] = "C.UTF-8"
    return found | _HABITS | dict(extra)
