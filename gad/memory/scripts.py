"""Scripts of SOPs: the case that one is proved on, the gate that it has to pass, and how it is started.

A script stands beside its SOP as run.py or run.sh. It is started in the task's directory with the task's arguments
as words `key=value` and as variables GAD_ARG_KEY, and its exit code says whether the work is done. That the file is
there is what counts: it has passed the gate, and one that failed too often has been put aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import yaml

from gad.core.cut import cut
from gad.core.ports import RunCommand
from gad.core.sop import parse_sop, render_sop
from gad.errors import MemoryRefused
from gad.memory.store import MemoryStore

SCRIPTS = ("run.py", "run.sh")
"""What the script of an SOP may be called."""
GATE_SECONDS = 60.0
"""How long a script may run on its recorded case."""
SHOWN = 3000
"""Characters of a script's output that a refusal tells."""
UNUSABLE = 127
"""The exit code that stands for: there is no script."""
FAILED = "[the script of procedure "
"""What the note to the agent that takes over from a script begins with."""


@dataclass(frozen=True, slots=True)
class Case:
    """A verified success of an SOP, to prove a script on: what can be had again in an empty directory.

    `arguments` are the task's, each `key=value`; `check` is its shell command; `files` are the small text files that
    arguments name by a relative path, as they were when the round was over.
    """

    arguments: tuple[str, ...]
    check: str
    files: Mapping[str, str] = field(default_factory=dict)

    def render(self) -> str:
        """Return the text of case.yaml."""
        data = {"arguments": list(self.arguments), "check": self.check, "files": dict(self.files)}
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)


@dataclass(frozen=True, slots=True)
class Command:
    """How a script is started: its words, and what its environment has besides the usual."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def read_case(store: MemoryStore, sop: str) -> Case | None:
    """Return the recorded case of an SOP, None when there is none that can be read. Raises MemoryRefused, OSError.

    Files that would lie elsewhere than in the directory of the run are left out.
    """
    try:
        data = yaml.safe_load(store.read(f"sops/{sop}/case.yaml") or "")
        arguments, files = tuple(map(str, data["arguments"])), dict(data.get("files") or {})
        inside = {str(path): str(text) for path, text in files.items() if os.path.normpath(f"/{path}") == f"/{path}"}
        return Case(arguments, str(data["check"]), inside)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        return None


def script_of(store: MemoryStore, sop: str) -> str | None:
    """Return which of `SCRIPTS` an SOP has, None without one."""
    return next((file for file in SCRIPTS if store.read(f"sops/{sop}/{file}") is not None), None)


def script_command(store: MemoryStore, sop: str, arguments: Sequence[str]) -> Command | None:
    """Return how the script of an SOP is started with arguments `key=value`, None without a script."""
    file = script_of(store, sop)
    return None if file is None else _command(os.path.join(store.root, "sops", sop, file), arguments)


def _command(path: str, arguments: Sequence[str]) -> Command:
    start = (sys.executable, "-B") if path.endswith(".py") else ("bash",)  # -B: memory holds no __pycache__
    pairs = (argument.partition("=") for argument in arguments)
    variables = {f"GAD_ARG_{key.upper().replace('-', '_')}": value for key, _, value in pairs}
    return Command((*start, path, *arguments), variables)


def codified(store: MemoryStore, path: str, who: str) -> None:
    """Take note that the script `path` (relative to memory) stands now: the SOP's stage is code, `who` in provenance.

    A former script in the other language is put aside. Raises MemoryLocked, MemoryRefused, OSError.
    """
    _, name, file = path.split("/")

    def change(before: str | None) -> str | None:
        if before is None:
            return None
        sop = parse_sop(before)
        sessions = sop.provenance if who in sop.provenance else (*sop.provenance, who)
        return render_sop(replace(sop, stage="code", provenance=sessions))

    store.commit(f"sops/{name}/SOP.md", change, who=who, note=f"{file} passed its case")
    for other in SCRIPTS:
        if other != file:
            put_aside(store, name, other, who)


def put_aside(store: MemoryStore, sop: str, file: str, who: str) -> None:
    """Keep a script under a name that is not run: run.py.old, or with a number. Nothing is done when there is none."""
    path = f"sops/{sop}/{file}"
    text = store.read(path)
    if text is None:
        return
    number, kept = 1, f"{path}.old"
    while store.read(kept) not in (None, text):
        number += 1
        kept = f"{path}.old{number}"
    note = f"{file} put aside"
    store.commit(kept, lambda before: before or text, who=who, note=note)
    store.commit(path, lambda now: None if now == text else now, who=who, note=note)


class ScriptGate:
    """Lets a script into memory only when it does its recorded case.

    `run` runs commands; `environment` is what those of a session may see; `seconds` is how long each may take.
    """

    def __init__(
        self,
        store: MemoryStore,
        run: RunCommand,
        environment: Callable[[str], Mapping[str, str]],
        *,
        seconds: float = GATE_SECONDS,
    ) -> None:
        self._store = store
        self._run = run
        self._environment = environment
        self._seconds = seconds

    async def check(self, path: str, text: str, session: str) -> str:
        """Run what is to be the script `path` (relative to memory) in a new directory; return what that has shown.

        `session` is who wants to write it.

        Raises MemoryRefused with the output when the script fails or takes too long, when the case's check fails after
        it or passes already without it, and when there is no case.
        """
        name, file = path.split("/")[1:]
        if self._store.sop(name) is None:
            raise MemoryRefused(f"{path}: there is no SOP {name} that can be read; write its SOP.md first")
        case = read_case(self._store, name)
        if case is None:
            raise MemoryRefused(
                f"{path}: no case of {name} is recorded, so nothing can show that the script works; "
                "do a task that has a `check` with this SOP first"
            )
        scratch = await asyncio.to_thread(_scratch, file, text, case)
        try:
            return await self._prove(path, case, _Trial(self._run, self._environment(session), scratch, self._seconds))
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    async def _prove(self, path: str, case: Case, trial: _Trial) -> str:
        command = _command(os.path.join(trial.scratch, path.rpartition("/")[2]), case.arguments)
        words = " ".join(case.arguments) or "no arguments"
        failed, _ = await trial.run(case.check)
        if not failed:
            raise MemoryRefused(
                f"{path}: the recorded case proves nothing: its check passes without the script ({case.check}); "
                "do a task whose check looks at what the procedure makes, by relative paths"
            )
        failed, output = await trial.run(shlex.join(command.argv), command.environment)
        if failed:
            raise MemoryRefused(
                f"{path}: not kept, nothing was changed. Run with {words} in a new directory, the script {failed}. "
                f"Mend it and write it again. Its output:\n{output}"
            )
        failed, found = await trial.run(case.check)
        if failed:
            raise MemoryRefused(
                f"{path}: not kept, nothing was changed. Run with {words} in a new directory, the script gave exit "
                f"code 0, but the check {failed}: {case.check}\n{found}\nThe script's output:\n{output}"
            )
        return f"gate: {words}: exit code 0, check passed"


@dataclass(frozen=True, slots=True)
class _Trial:
    """Runs commands in a scratch directory, each for `seconds` at most."""

    command: RunCommand
    environment: Mapping[str, str]
    scratch: str
    seconds: float

    async def run(self, command: str, variables: Mapping[str, str] | None = None) -> tuple[str, str]:
        """Return in what way a command failed, in words (empty: it did not), and its output."""
        heard: list[str] = []
        try:
            async with asyncio.timeout(self.seconds):
                exit_code, output = await self.command(
                    command,
                    cwd=os.path.join(self.scratch, "cwd"),
                    work=self.scratch,
                    environment={**self.environment, **(variables or {})},
                    emit=heard.append,
                )
        except TimeoutError:
            return f"had not ended after {self.seconds:g} s", cut("".join(heard), SHOWN)
        return f"gave exit code {exit_code}" if exit_code else "", cut(output, SHOWN)


def _scratch(file: str, text: str, case: Case) -> str:
    """Make a directory with the script, and in it one with the case's files where it is to run."""
    scratch = tempfile.mkdtemp(prefix="gad-script-")
    for path, content in {file: text, **{f"cwd/{path}": content for path, content in case.files.items()}}.items():
        target = os.path.join(scratch, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8", errors="surrogateescape", newline="") as out:
            out.write(content)
    os.makedirs(os.path.join(scratch, "cwd"), exist_ok=True)
    return scratch


class ScriptRunner:
    """Runs the scripts of SOPs for tasks that name one: what `Parts.run_script` is."""

    def __init__(self, store: MemoryStore, run: RunCommand) -> None:
        self._store = store
        self._run = run

    async def __call__(
        self,
        sop: str,
        arguments: tuple[str, ...],
        *,
        cwd: str,
        work: str,
        environment: Mapping[str, str],
        emit: Callable[[str], None],
    ) -> tuple[int, str]:
        """Return the exit code and the output; for a failure, a note to the agent that takes over."""
        known = command = None
        place = os.path.join(self._store.root, "sops", sop)
        with contextlib.suppress(MemoryRefused, OSError):  # a memory that cannot be read holds no procedure
            known = await asyncio.to_thread(self._store.sop, sop)
            command = await asyncio.to_thread(script_command, self._store, sop, arguments)
        if known is None:
            return UNUSABLE, f"[there is no procedure {sop} in memory; find out how to do the task]"
        if command is None:
            doubt = "; it has failed lately, so check each step" if known.stage == "explore" else ""
            return UNUSABLE, f"[procedure {sop} has no script: read {place}/SOP.md and follow it{doubt}]"
        if "\0" in "".join(arguments):
            return UNUSABLE, f"[the script of {sop} was not run: an argument holds a NUL character]"
        variables = {**environment, **command.environment}
        exit_code, output = await self._run(
            f"exec {shlex.join(command.argv)}", cwd=cwd, work=work, environment=variables, emit=emit
        )
        if exit_code == 0:
            return 0, output
        file = next(word for word in command.argv if word.startswith(place))
        return exit_code, (
            f"{FAILED}{sop} gave exit code {exit_code}; its output follows. Do the task yourself: {place}/SOP.md says "
            f"how, {file} is the script. When the script is what is wrong, mend it after the task works: "
            f"start_long_term_update, then file_write {file}, its last line the comment `# [proof: N]`. "
            f"It is kept if it does its recorded case.]\n{output}"
        )
