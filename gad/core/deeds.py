"""What commands do that cannot be undone, as far as it can be told from their words."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from gad.core.commands import ANY, SCRATCH, SUBSTITUTED, UNKNOWN, Command, show
from gad.core.prefixes import SHELLS, find_roots, options_end, words_of

DeedKind = Literal["read", "write", "delete", "move", "push", "packages", "services", "disks", "self", "unreadable"]


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that a command does.

    `what` says it for people; `key` is what "always" remembers of it. `path` is the place that is read, written or
    deleted: absolute, or beginning with UNKNOWN. `linked` is False where a link itself is meant, not what it leads to.
    """

    kind: DeedKind
    what: str
    key: str
    path: str = ""
    linked: bool = True


@dataclass(frozen=True, slots=True)
class Own:
    """Whose commands they are: the session's name, and its children's."""

    session: str
    children: frozenset[str] = frozenset()


_DELETERS = words_of("rm rmdir unlink shred srm wipe trash trash-put")
_ACCOUNTS = words_of(
    "useradd userdel usermod groupadd groupdel groupmod adduser deluser addgroup delgroup passwd chpasswd chsh vipw "
    "visudo"
)
_POWER = words_of("shutdown reboot poweroff halt telinit")
_DISKS = words_of("wipefs blkdiscard sgdisk fdisk sfdisk parted mkswap")
_MANAGERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("apt", "apt-get", "aptitude"), frozenset({"remove", "purge", "autoremove", "autopurge"})),
    **dict.fromkeys(("dnf", "yum", "microdnf", "zypper", "tdnf"), frozenset({"remove", "erase", "autoremove", "rm"})),
    **dict.fromkeys(("pip", "pip2", "pip3", "pipx"), frozenset({"uninstall", "uninstall-all"})),
    **dict.fromkeys(("snap", "flatpak", "brew", "port", "apk", "gem"), frozenset({"remove", "uninstall", "del", "rm"})),
    **dict.fromkeys(("conda", "mamba", "micromamba"), frozenset({"remove", "uninstall"})),
}
_MANAGER_VALUES = words_of(
    "-o -t -c -a --option --target-release --config-file --root --installroot -n --name -p --prefix"
)
_FLAGS = {
    "dpkg": r"-[rP].*|--remove|--purge",
    "rpm": r"-[a-z]*e[a-z]*|--erase",
    "pacman": r"-R.*|--remove",
    "emerge": r"-[a-zA-Z]*[cC]|--unmerge|--depclean",
}
_SYSTEMCTL_LOOKS = words_of(
    "status show cat help is-active is-enabled is-failed is-system-running get-default show-environment "
    "list-units list-unit-files list-timers list-sockets list-jobs list-dependencies list-machines list-paths"
)
_SYSTEMCTL_VALUES = words_of(
    "-H -M -t -p -P -n -o -s -T --host --machine --type --property --state --root --signal --job-mode"
)
_OWN_UNIT = re.compile(r"gad(@.*)?(\.(service|path|socket|timer|slice|target))?")
# Writers: which of the words that are no options are written.
_ALL = words_of("touch mkdir tee truncate mkfifo mknod chattr setfacl")
_BUT_FIRST = words_of("chmod chown chgrp")
_LAST = words_of("cp mv ln install rsync scp")
_DISK = re.compile(r"/dev/((sd|hd|vd|xvd|nvme|mmcblk|md|dm-|loop|nbd)\w+|(mapper|disk)/.+)")
_TO = {"-t": "cp mv ln install", "-o": "curl sort gcc cc go", "-O": "wget", "-d": "unzip", "-C": "tar", "-P": "wget"}
_CLUSTERED = {"curl": "o", "wget": "OP", "tar": "C", "sort": "o"}
"""Programs whose option for what they write may stand behind others in one word: `curl -fsSLo`."""
_TO_LONG = re.compile(r"--(?:target-directory|output|output-document|directory|directory-prefix|output-dir)(?:=(.+))?")
_WHOLE = words_of("cp mv ln tar zip 7z rsync scp grep egrep rg")
"""Programs that read what is in a directory."""
_IN_PLACE = words_of("sed perl ruby gawk")
_GIT_VALUES = words_of("-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env")


def deeds(commands: Iterable[Command], own: Own) -> Iterator[Deed]:
    """Yield what the commands do that a rule may want to know of."""
    for command in commands:
        for path in command.writes:
            yield from _device(command, path)
        for path in command.reads:
            yield _place("read", path, command)
        if command.words:
            yield from _run(command, own)


def _run(command: Command, own: Own) -> Iterator[Deed]:
    words, name = command.words, command.name
    if re.fullmatch(r"python[\d.]*", name) and "-m" in words[1:-1]:  # python -m pip is pip
        at = words.index("-m", 1)
        words = words[at + 1 :]
        name = words[0]
    if name == "uv" and words[1:2] == ("pip",):
        words, name = words[1:], "pip"
    if re.fullmatch(r"pip[\d.]+", name):
        name = "pip"
    if name in ("apt", "apt-get", "aptitude") and "install" in words and any(w.endswith("-") for w in words[2:]):
        yield _act("packages", command, name, "install")
    yield from _mentioned(command, name)
    yield from _files(command, words, name)
    if command.opaque:
        source = _feeding(command)
        what = f"run as shell code what `{source}` prints" if source else f"run what is fetched: {command.shown}"
        yield Deed("unreadable", what, f"run {UNKNOWN} as shell code")
    elif name in SHELLS and _inline_words(words):
        yield Deed(
            "unreadable", f"run shell code that is not known yet: {command.shown}", f"run {UNKNOWN} as shell code"
        )
    elif name in SHELLS | {"source", "."} and any(word.startswith(SUBSTITUTED) for word in words[1:]):
        yield Deed("unreadable", f"run as shell code what another command prints: {command.shown}", f"run {UNKNOWN}")
    if name == "git":
        yield from _git(command, words)
    elif name in _MANAGERS:
        verb = next(iter(_plain(words, _MANAGER_VALUES)), "")
        if verb in _MANAGERS[name]:
            yield _act("packages", command, name, verb)
    elif name in _FLAGS and any(re.fullmatch(_FLAGS[name], word) for word in words[1:]):
        yield _act("packages", command, name, next(w for w in words[1:] if re.fullmatch(_FLAGS[name], w)))
    elif name == "gad":
        yield from _gad(command, words, own)
    else:
        yield from _machine(command, words, name)


def _machine(command: Command, words: Sequence[str], name: str) -> Iterator[Deed]:
    """Yield what is done to services, disks and the machine as a whole."""
    plain = _plain(words, _SYSTEMCTL_VALUES)
    if name == "systemctl":
        verb = plain[0] if plain else "list-units"
        if verb not in _SYSTEMCTL_LOOKS:
            if any(_OWN_UNIT.fullmatch(unit) for unit in plain[1:]):
                yield Deed("self", f"change gad's own service: {command.shown}", "gad's service")
            yield _act("services", command, name, verb)
    elif name in ("service", "rc-service", "invoke-rc.d", "sv", "initctl", "launchctl", "supervisorctl"):
        if plain and not {"status", "list", "print"} & set(plain):
            if any(_OWN_UNIT.fullmatch(unit) for unit in plain):
                yield Deed("self", f"change gad's own service: {command.shown}", "gad's service")
            yield _act("services", command, name, *plain[:2])
    elif re.match(r"/etc/(rc\.d/)?init\.d/", words[0]):
        if plain[:1] != ["status"]:
            yield _act("services", command, words[0], *plain[:1])
    elif (
        name in _POWER
        or (name == "init" and plain[:1] and plain[0] in "0123456S")
        or name in ("update-rc.d", "chkconfig", "rc-update")
    ):
        yield _act("services", command, name)
    elif name in ("pkill", "killall") and "gad" in plain:
        yield Deed("self", f"end gad itself: {command.shown}", "gad's process")
    elif name in _DISKS or name.startswith("mkfs"):
        if not {"-l", "--list"} & set(words):
            yield _act("disks", command, name, *plain[-1:])
    elif name in _ACCOUNTS:
        yield _place("write", "/etc/passwd", command)


# -- files ---------------------------------------------------------------------------------------


def _files(command: Command, words: Sequence[str], name: str) -> Iterator[Deed]:
    plain = _plain(words, ())
    if command.listed:  # what xargs adds comes from the command before
        before = command.feeds.words if command.feeds is not None else ()
        said = find_roots(before) if before[:1] == ("find",) else _plain(before, ())
        plain = [*plain, *(said or [UNKNOWN])]
    if name in _DELETERS or (name == "" and any(re.fullmatch(r"-[a-z]*r[a-z]*", word) for word in words[1:])):
        everything = any(re.fullmatch(r"-[A-Za-z]*[rR][A-Za-z]*|--rec.*", word) for word in words[1:])
        for target in plain:
            path = command.path(target)
            if everything or not path.startswith(UNKNOWN):
                yield _place("delete", path, command, linked=target.endswith("/"))
    elif name == "find" and "-delete" in words:
        for root in find_roots(words):
            yield _place("delete", command.path(root), command)
    elif name == "mv":
        for source in plain if _into(words) else plain[:-1]:
            yield _place("move", command.path(source), command, linked=source.endswith("/"))
    elif name == "dd":
        for word in words[1:]:
            if word.startswith("of="):
                yield from _device(command, command.path(word[3:]))
    elif name == "rsync" and any(word.startswith("--del") for word in words) and plain:
        yield _place("delete", command.path(plain[-1]), command)
    for path in _written(command, words, name, plain):
        yield from _device(command, path)


def _into(words: Sequence[str]) -> str:
    """Return the directory that an option names as the one to write to, empty when there is none."""
    for at, word in enumerate(words[1:], 1):
        if word in ("-t", "-C", "--target-directory", "--directory") and words[at + 1 :]:
            return words[at + 1]
        if found := re.fullmatch(r"(?:--target-directory=|--directory=|-[tC])(/.+)", word):
            return found[1]
    return ""


def _written(command: Command, words: Sequence[str], name: str, plain: list[str]) -> Iterator[str]:
    """Yield the places that a command writes to."""
    targets: list[str] = []
    if name in _ALL:
        targets = plain
    elif name in _BUT_FIRST:
        targets = plain[1:]
    elif (
        name in _IN_PLACE and any(re.fullmatch(r"-[A-Za-z]*i.*|--in-place.*", word) for word in words[1:])
    ) or name in ("patch", "ed", "ex", "vi", "vim", "nano"):
        targets = plain
    elif name in _LAST:
        if name == "install" and "-d" in words:
            targets = plain
        elif name == "ln" and len(plain) == 1:
            targets = [posixpath.basename(plain[0])]
        else:
            targets = plain[-1:] if len(plain) > 1 else []
            # Into a directory: the file there has the source's name.
            targets += [posixpath.join(targets[0], posixpath.basename(one)) for one in plain[:-1]] if targets else []
    for at, word in enumerate(words[1:], 1):
        for option, names in _TO.items():
            if name in names.split() and word.startswith(option) and not word.startswith("--"):
                targets.append(word[2:] or (words[at + 1] if words[at + 1 :] else ""))
        following = "".join(words[at + 1 : at + 2])
        letters = _CLUSTERED.get(name, "")
        found = _TO_LONG.fullmatch(word) or (letters and re.fullmatch(rf"-[A-Za-z#]+?[{letters}](.*)", word))
        if found:
            targets.append(found[1] or following)
    for target in targets:
        if target and not (name in ("scp", "rsync") and ":" in target):
            yield command.path(target)


def _device(command: Command, path: str) -> Iterator[Deed]:
    if _DISK.fullmatch(path) or (
        command.name == "dd" and path.startswith("/dev/") and path not in ("/dev/null", "/dev/stdout", "/dev/stderr")
    ):
        what = f"overwrite a disk: {show(path)}: {command.shown}"
        yield Deed("disks", what, f"{command.name} {path}".strip())
    yield _place("write", path, command)


def _mentioned(command: Command, name: str) -> Iterator[Deed]:
    """Yield every word that could be a file as one that is read; a key that ssh is told to use is not shown by it."""
    key = False
    into = _into(command.words)
    last = len(command.words) - 1 if name in _LAST and not into else 0  # is written to
    for at, word in enumerate(command.words[1:], 1):
        if key or len(word) > 4096 or "\n" in word:
            key = False
            continue
        key = word == "-i" and name in ("ssh", "scp", "sftp", "rsync", "ssh-copy-id", "autossh")
        for part in (word, word.partition("=")[2], word.partition("@")[2]):
            if part and not part.startswith("-"):
                yield _place("read", command.path(part), command)
                if name in _WHOLE and at != last and part != into:
                    yield _place("read", command.path(f"{part}/{ANY}"), command)


def _place(
    kind: Literal["read", "write", "delete", "move"], path: str, command: Command, *, linked: bool = True
) -> Deed:
    where = show(path) if not path.startswith(UNKNOWN) else f"{show(path)} (known only when it runs)"
    by = f": {command.shown}" if command.words else ""
    return Deed(kind, f"{kind} {where}{by}", f"{kind} {path}", path, linked)


def is_scratch(path: str) -> bool:
    """Return whether a path is that of a temporary file that the code itself makes."""
    return SCRATCH in path


# -- programs ------------------------------------------------------------------------------------


def _git(command: Command, words: Sequence[str]) -> Iterator[Deed]:
    rest = list(words[1:])
    start = options_end(rest, _GIT_VALUES)
    settings = [rest[at + 1] for at, word in enumerate(rest[:start]) if word == "-c" and rest[at + 1 :]]
    where = [rest[at + 1] for at, word in enumerate(rest[:start]) if word == "-C" and rest[at + 1 :]]
    verb, *given = rest[start:] or [""]
    if verb == "config":
        settings += [f"{one}={other}" for one, other in pairwise(given)]
    aliased = any(one.startswith("alias.") and _alias_forces(one.partition("=")[2].split()) for one in settings)
    forced = verb == "push" and any(map(_forces, given)) and not {"-n", "--dry-run"} & set(given)
    if forced or aliased:
        yield _act("push", command, "git", "push", *_plain(["push", *given], ("-o", "--push-option"))[:1])
    elif verb == "clean" and not {"-n", "--dry-run"} & set(given):
        yield _place("delete", command.path((where or ["."])[-1]), command)


def _alias_forces(words: Sequence[str]) -> bool:
    return "push" in words and any(map(_forces, words[words.index("push") + 1 :]))


def _forces(word: str) -> bool:
    """Return whether a word of `git push` overwrites or removes what is there."""
    if word.startswith("--"):
        return re.match(r"--(force(?!-if)|forc$|mirr|del|prune)", word) is not None
    if word.startswith("-"):
        return re.match(r"-[a-zA-Z]*[fd]", word) is not None and not word.startswith("-o")
    return word.startswith(("+", ":")) and word != ":"


def _gad(command: Command, words: Sequence[str], own: Own) -> Iterator[Deed]:
    """Yield what a session may not do with gad's own commands: answer, judge or change what is above it."""
    plain = _plain(words, ("--home",))
    verb, target = (*plain, "", "")[:2]
    theirs = target not in own.children and not target.startswith(UNKNOWN)
    if verb == "reply" and theirs:
        yield Deed("self", f"reply to a session that is not its child: {command.shown}", "gad reply")
    elif verb in ("ok", "bad") and target in (own.session, ""):
        yield Deed("self", f"judge its own work: {command.shown}", "gad verdict")
    elif verb == "service" and target not in ("status", "logs", ""):
        yield Deed("self", f"change gad's own service: {command.shown}", "gad service")
    elif verb == "triggers" and target in ("enable", "disable"):
        yield Deed("self", f"change gad's triggers: {command.shown}", "gad triggers")


def _act(kind: DeedKind, command: Command, *first: str) -> Deed:
    """Return a deed of which "always" remembers its first words."""
    verbs = {"push": "overwrite or remove what others have pushed", "packages": "remove packages",
             "services": "control services or the machine", "disks": "overwrite a disk"}  # fmt: skip
    return Deed(kind, f"{verbs[kind]}: {command.shown}", " ".join(first))


def _plain(words: Sequence[str], valued: Collection[str]) -> list[str]:
    """Return the words behind the program that are no options, nor options' values."""
    found: list[str] = []
    at, only = 1, False
    while at < len(words):
        word = words[at]
        if only or not word.startswith("-") or word == "-":
            found.append(word)
        elif word == "--":
            only = True
        elif word in valued:
            at += 1
        at += 1
    return found


def _inline_words(words: Sequence[str]) -> Sequence[str]:
    """Return the code that a shell gets in its words when nothing of it is known."""
    at = next((at for at, word in enumerate(words) if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word)), None)
    return () if at is None else [word for word in words[at + 1 : at + 2] if show(word).strip() in ("…", "*", "{}")]


def _feeding(command: Command) -> str:
    return command.feeds.shown if command.feeds is not None else ""
