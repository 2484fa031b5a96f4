"""How a procedure evolves: from exploration to an SOP, from an SOP to a script, and back when it fails.

An SOP counts its uses. A use is a session that followed it; what it came to is what somebody else than the model says:
the task's check, the user, or a script's exit code. Three successes in a row without a failed call, and a session is
dropped that asks for a script. Two failures in a row, and the SOP goes back a stage: code, sop, explore.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import yaml

from gad.core.gate import NO_PROOF, Proof, unfit
from gad.core.messages import Text, User
from gad.core.session import Session
from gad.core.sop import Run, Sop, parse_sop, render_sop, with_run
from gad.core.sop_line import sop_of
from gad.memory import changes
from gad.memory.scripts import FAILED, Case, put_aside, read_case, script_of
from gad.memory.store import MemoryStore

log = logging.getLogger(__name__)

EARNED = 3
"""Successes in a row, without a failed call, that earn an SOP a script."""
FAILURES = 2
"""Failures in a row that send an SOP back a stage."""
CODIFY_TURNS = 12
"""Turns that the session which writes a script may take."""
CODIFY_TOOLS = ["file_read", "file_write", "file_patch"]

_FILE, _FILES = 4_000, 16_000
"""Characters of one file that a case holds, and of all of them."""
_PROOFS = 30
"""Calls of the latest success that the session which writes a script is told of: the latest."""
_SOP_FILE = re.compile(r"sops/([^/]+)/SOP\.md")
_CHECK_FAILED = "[the check failed"
"""What the session's note to the model begins with when the task's check has failed."""
_PREAMBLE = re.compile(r"\[[^\n]*\]\n\n")


@dataclass(frozen=True, slots=True)
class Use:
    """One session's use of an SOP. `script` says what its script did, if it has one and the task named the SOP.

    `deviated`: a call failed, or the check did at first. `repaired`: the session wrote the script anew.
    """

    sop: str
    arguments: tuple[str, ...]
    script: Literal["", "done", "failed"]
    deviated: bool
    repaired: bool


def guided_by(session: Session, root: str, place: str = os.sep) -> str | None:
    """Return the name of the SOP that a session followed: the one its task names, else the last one it read.

    `root` is the memory directory, `place` where the session worked, both absolute paths. A review
    or the writing of a script is no use of an SOP, and a session without memory (`memory: false`) uses none.
    """
    if session.options.review is not None or not session.options.memory:
        return None
    if named := sop_of(_task(session), session.options.sop):
        return named[0]
    reading = _reading(session, root, place)
    return None if reading is None else reading[0]


def use_of(session: Session, root: str, place: str = os.sep) -> Use | None:
    """Return what a session's use of an SOP was like, None when it followed none."""
    name = guided_by(session, root, place)
    if name is None:
        return None
    named = sop_of(_task(session), session.options.sop)
    reading = _reading(session, root, place)
    after = session.proofs if named or reading is None else session.proofs[reading[1] :]
    outside = [proof for proof in after if _inside(proof, root, place) is None]
    failed = any(not proof.ok and proof.name not in NO_PROOF for proof in outside)
    notes = _notes(session)
    checked_badly = session.check_failed or any(note.startswith(_CHECK_FAILED) for note in notes)
    script: Literal["", "done", "failed"] = ""
    if any(note.startswith(FAILED) for note in notes) or (session.by_script and checked_badly):
        script = "failed"
    elif session.by_script:
        script = "done"
    written = [_inside(proof, root, place) for proof in session.proofs if proof.ok and proof.name != "file_read"]
    return Use(
        sop=name,
        arguments=named[1] if named else (),
        script=script,
        deviated=failed or checked_badly,
        repaired=any(path in (f"sops/{name}/run.py", f"sops/{name}/run.sh") for path in written),
    )


class Evolution:
    """Learns from sessions that followed an SOP.

    `drop` hands in a task as a new session (its name, task.yaml, input.txt), and does nothing when there is one of
    that name. `place` gives the directory in which a session worked; None keeps input files out of recorded cases.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        drop: Callable[[str, str, str], None],
        place: Callable[[Session], str | None] = lambda session: session.options.cwd,
    ) -> None:
        self._store = store
        self._drop = drop
        self._place = place

    def ended(self, session: Session, success: bool | None) -> None:
        """Take in a session of which a round is over, or that was judged; None when nobody else says how it went.

        Repeating it counts once; another verdict than before corrects what was counted. Raises MemoryLocked,
        MemoryRefused, OSError.
        """
        use = use_of(session, self._store.root, self._place(session) or os.sep)
        if use is None or self._store.sop(use.sop) is None:
            return
        # That the script did not do it is certain, whatever the agent that took over has made of it.
        ok = False if use.script == "failed" else success
        if ok is None:
            return
        sop = self._count(session, use, ok)
        if sop is None:
            return
        if success:
            self._record_case(session, use)
        if ok and sop.stage == "sop" and sop.streak >= EARNED:
            self._ask_for_script(session, sop)

    # -- counting --------------------------------------------------------------------------------

    def _count(self, session: Session, use: Use, ok: bool) -> Sop | None:
        """Count one use in the SOP's front matter, and return the SOP as it is then; None when there is none."""
        run = Run(int(session.since), session.usage.tokens_in + session.usage.tokens_out, ok)
        path = f"sops/{use.sop}/SOP.md"
        mark = f"use by {session.name}, begun {session.began:.3f}: "
        fallen: list[str] = []
        found: list[Sop] = []

        def change(before: str | None) -> str | None:
            if before is None:
                return None
            try:
                sop = parse_sop(before)
            except ValueError:
                return before
            # A script that is there has passed the gate; a crash may have kept the front matter from saying so.
            script = script_of(self._store, use.sop)
            stage = "code" if script else "sop" if sop.stage == "code" else sop.stage
            sop = replace(sop, stage=stage)
            former = _counted(self._store.root, path, mark)
            if former is None or former.ok != ok:
                sop = with_run(sop, run) if former is None else _corrected(sop, former, run)
                if ok and use.deviated:
                    sop = replace(sop, streak=0)
                if ok and sop.stage == "explore":
                    sop = replace(sop, stage="sop")
                if not ok and _falls(sop) and not use.repaired:
                    fallen.append(script or "")
                    sop = replace(sop, stage="sop" if script else "explore", streak=0)
            found.append(sop)
            return render_sop(sop)

        note = f"{mark}{'ok' if ok else 'failed'}, {run.tokens} tokens, ended {run.at}"
        self._store.commit(path, change, who=session.name, evidence=_evidence(session, use, ok), note=note)
        for script in filter(None, fallen):
            put_aside(self._store, use.sop, script, session.name)
        return found[0] if found else None

    # -- cases and scripts -----------------------------------------------------------------------

    def _record_case(self, session: Session, use: Use) -> None:
        """Keep a verified success to prove scripts on; without a check it could prove none."""
        if not session.options.check:
            return
        case = Case(use.arguments, session.options.check, _named_files(use.arguments, self._place(session)))
        text = case.render()
        if reason := unfit(text, session.name):
            log.info("session %s: not recorded as a case of %s: %s", session.name, use.sop, reason)
            return
        path = f"sops/{use.sop}/case.yaml"
        self._store.commit(path, lambda before: text, who=session.name, note="case of the latest verified success")

    def _ask_for_script(self, session: Session, sop: Sop) -> None:
        """Drop the session that writes the script. Its name is the claim: each streak of successes asks once."""
        case = read_case(self._store, sop.name)
        if case is None:
            return
        task = {
            "review": session.name,
            "parent": session.name,
            "model": session.options.model,
            "tools": CODIFY_TOOLS,
            "turns": CODIFY_TURNS,
            "ask": "never",
            "labels": ["codify"],
            "priority": -10,
        }
        proofs = [proof for proof in session.proofs if _proves(proof, self._store.root, self._place(session) or os.sep)]
        name = f"codify-{sop.name}-{sop.failures + 1}"
        self._drop(name, yaml.safe_dump(task), codify_text(sop, case, self._store.root, proofs))


def codify_text(sop: Sop, case: Case, root: str, proofs: Sequence[Proof]) -> str:
    """Return the task of the session that writes the script of an SOP."""
    place = os.path.join(root, "sops", sop.name)
    listed = "\n".join(f"{proof.number} {proof.gist}" for proof in proofs[-_PROOFS:])
    return "\n\n".join(
        (
            f"The procedure {sop.name} has worked {sop.streak} times in a row. Write it as a script, so that it needs "
            f"no model: file_write {place}/run.py (Python) or {place}/run.sh (bash), whichever is simpler, its last "
            "line the comment `# [proof: N, M]` with the numbers of the calls below that show its commands to work. "
            "Then answer in one line.",
            "The script is started in the task's directory. Its arguments come as words key=value and as environment "
            "variables GAD_ARG_KEY. It prints the result and exits with 0 only when the work is done; else it says "
            "what went wrong, for the agent that takes over, and exits with another code. It asks nobody, and it "
            "holds no dates, temporary paths or secrets.",
            "Before it is kept, it is run in a new directory on the recorded case, and the case's check must pass "
            "there. When it is refused, mend it and write it again.",
            f"The case:\n{case.render()}",
            f"Calls of the latest success:\n{listed or '(none)'}",
            f"The procedure ({place}/SOP.md):\n{sop.body.strip()}",
        )
    )


def _task(session: Session) -> str:
    """Return the first message as the client wrote it, without the line that the engine puts before it."""
    first = session.history.transcript[:1]
    texts = [part.text for message in first for part in message.parts if isinstance(part, Text) and not part.note]
    return _PREAMBLE.sub("", texts[0], count=1) if texts and _PREAMBLE.match(texts[0]) else "".join(texts[:1])


def _notes(session: Session) -> list[str]:
    """Return what the engine has said to the model."""
    spoken = (part for said in session.history.transcript if isinstance(said, User) for part in said.parts)
    return [part.text for part in spoken if isinstance(part, Text) and part.note]


def _reading(session: Session, root: str, place: str) -> tuple[str, int] | None:
    """Return the SOP that a session read last, and the number of that call."""
    for proof in reversed(session.proofs):
        if proof.ok and proof.name == "file_read" and (found := _SOP_FILE.fullmatch(_inside(proof, root, place) or "")):
            return found[1], proof.number
    return None


def _inside(proof: Proof, root: str, place: str) -> str | None:
    """Return which file of memory a call's path names, relative to it; None when it names none."""
    top = os.path.realpath(root) + os.sep
    try:
        path = os.path.realpath(os.path.join(place, os.path.expanduser(proof.path)))
    except ValueError:  # a NUL in it, or half a character: no call has reached a file by that
        return None
    return path.removeprefix(top) if proof.path and path.startswith(top) else None


def _proves(proof: Proof, root: str, place: str) -> bool:
    return proof.ok and proof.name not in NO_PROOF and _inside(proof, root, place) is None


def _evidence(session: Session, use: Use, ok: bool) -> list[str]:
    """Return who says how a use went."""
    if use.script:
        return [f"{session.name}: script {use.script}"]
    if session.judged is not None and session.judged.ok == ok:
        return [f"{session.name}: the user's verdict"]
    return [f"{session.name}: check {'passed' if ok else 'failed'}: {session.options.check or ''}"]


def _falls(sop: Sop) -> bool:
    """Return whether the SOP has failed so often in a row that it goes back a stage: at 2, and again at 4."""
    failed = 0
    for run in reversed(sop.runs):
        if run.ok:
            break
        failed += 1
    return failed > 0 and failed % FAILURES == 0


def _counted(root: str, path: str, mark: str) -> Run | None:
    """Return what was counted of a use already: the file of changes is where that stands for good."""
    found = None
    with open(os.path.join(root, changes.FILE), "rb") as file:
        for line in file:
            if mark.encode() not in line:
                continue
            try:
                entry = json.loads(line)
            except ValueError:  # damaged: the store passes over it too
                continue
            told = re.fullmatch(
                r"(ok|failed), (\d+) tokens, ended (\d+)", str(entry.get("note", "")).removeprefix(mark)
            )
            if told and entry["path"] == path:
                found = Run(int(told[3]), int(told[2]), told[1] == "ok")
    return found


def _corrected(sop: Sop, former: Run, run: Run) -> Sop:
    """Return the SOP with one use seen otherwise than it was counted."""
    gain = int(run.ok) - int(former.ok)
    runs = list(sop.runs)
    newest = bool(runs) and runs[-1] == former
    if former in runs:
        runs[len(runs) - 1 - runs[::-1].index(former)] = run
    streak = (sop.streak + newest) if run.ok else 0
    return replace(sop, successes=sop.successes + gain, failures=sop.failures - gain, streak=streak, runs=tuple(runs))


def _named_files(arguments: Sequence[str], place: str | None) -> dict[str, str]:
    """Return the small text files in `place` that arguments name by a relative path."""
    found: dict[str, str] = {}
    if place is None:
        return found
    top = os.path.realpath(place)
    for _, _, value in (argument.partition("=") for argument in arguments):
        path = os.path.join(top, value)
        if not value or os.path.isabs(value) or os.path.realpath(path) != path or not os.path.isfile(path):
            continue
        try:
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read(_FILE + 1)
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) <= _FILE and sum(map(len, found.values())) + len(text) <= _FILES:
            found[value] = text
    return found
