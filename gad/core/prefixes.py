"""What stands before a command and runs another: sudo, env, xargs, a shell with `-c`. Words only, nothing is run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "su", "runuser"})

STDIN = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""Names of standard input."""


def words_of(text: str) -> frozenset[str]:
    """Return the words of a line as a set."""
    return frozenset(text.split())


# What comes before another command: its options that take a value, and how many words more stand before the command.
PREFIXES: dict[str, tuple[str, int]] = {
    "sudo": ("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --chroot --role --type", 0),
    "doas": ("-u -C", 0),
    "pkexec": ("--user", 0),
    "env": ("-u -C --unset --chdir", 0),
    "runuser": ("-u -g -G --user --group --supp-group", 0),
    "setpriv": ("--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits", 0),
    "unshare": ("-R -w -S -G --root --wd --setuid --setgid", 0),
    "nsenter": ("-t -S -G --target --setuid --setgid", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("-a", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n --class --classdata", 0),
    "chrt": ("", 1),
    "taskset": ("", 1),
    "time": ("-o -f --output --format", 0),
    "timeout": ("-s -k --signal --kill-after", 1),
    "stdbuf": ("-i -o -e --input --output --error", 0),
    "unbuffer": ("", 0),
    "chronic": ("", 0),
    "watch": ("-n --interval", 0),
    "strace": ("-o -e -p -s", 0),
    "flock": ("-w -E --timeout --conflict-exit-code", 1),
    "chroot": ("", 1),
    "busybox": ("", 0),
    "toybox": ("", 0),
    "xargs": ("-I -n -P -L -d -E -s -a --max-args --max-procs --max-lines --delimiter --arg-file", 0),
    "parallel": ("-j -N -n -I --jobs", 0),
    "systemd-run": ("-u -p -E --unit --property --setenv --uid --gid --slice", 0),
}

_DIRECTORIES = {"env": ("-C", "--chdir"), "sudo": ("-D", "--chdir"), "unshare": ("-w", "--wd")}
"""The options by which a prefix runs its command in another directory."""


def directory(name: str, words: Sequence[str]) -> str:
    """Return the directory in which a prefix runs its command, empty where it stays."""
    short, long = _DIRECTORIES.get(name, ("", ""))
    for at, word in enumerate(words if short else ()):
        if word in (short, long):
            return "".join(words[at + 1 : at + 2])
        if word.startswith((short, f"{long}=")):
            return word.removeprefix(f"{long}=" if word.startswith("--") else short)
        if not word.startswith("-"):
            break
    return ""


def options_end(words: Sequence[str], valued: Collection[str]) -> int:
    """Return where the words that are no options begin; `valued` are the options that take the next word."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] == "--":
            return at + 1
        at += 2 if words[at] in valued else 1
    return min(at, len(words))


def find_roots(words: Sequence[str]) -> list[str]:
    """Return the places in which a `find` looks."""
    roots = []
    for word in words[1:]:
        if word in ("-H", "-L", "-P"):
            continue
        if word.startswith(("-", "(", "!")):
            break
        roots.append(word)
    return roots or ["."]


def behind(name: str, words: list[str]) -> list[str]:
    """Return the command that a prefix such as sudo runs."""
    valued, more = PREFIXES[name]
    if name == "env":
        for at, word in enumerate(words):
            if word.startswith(("-S", "--split-string")):
                text = word[2:] if word.startswith("-S") else word.partition("=")[2]
                return (text.split() + words[at + 1 :]) if text else words[at + 1].split() if words[at + 1 :] else []
            if not word.startswith("-"):
                break
    if name == "flock" and "-c" in words:
        return ["sh", *words[words.index("-c") :]]
    if name == "nice" and words and re.fullmatch(r"-\d+", words[0]):
        words = words[1:]
    rest = words[options_end(words, valued.split()) :]
    while name == "env" and rest and ("=" in rest[0] or rest[0] == "-"):
        rest = rest[1:]
    return rest[more:]


def inline(words: Sequence[str]) -> str | None:
    """Return the code that a shell gets as a word."""
    for at, word in enumerate(words[1:], 1):
        if (re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word) or word in ("--command",)) and words[at + 1 :]:
            rest = [one for one in words[at + 1 :] if not re.fullmatch(r"-[A-Za-z]+", one)]
            return rest[0] if rest else None
        if word.startswith("--command="):
            return word.partition("=")[2]
        if not word.startswith(("-", "+")) and posixpath.basename(words[0]) not in ("su", "runuser"):
            return None
    return None


def reads_stdin(words: Sequence[str]) -> bool:
    """Return whether the words start a shell that reads its code from standard input."""
    if posixpath.basename(words[0]) not in SHELLS - {"su", "runuser"} or inline(words) is not None:
        return False
    rest = words[1:]
    return "-s" in rest or not [word for word in rest if not word.startswith(("-", "+")) and word not in STDIN]
