"""What a session has shown that may be worth keeping: its proofs, the errors it overcame, if it earned a review."""

from __future__ import annotations

from collections.abc import Sequence

from gad.core.cut import cut
from gad.core.gate import NO_PROOF, Proof
from gad.core.messages import Text
from gad.core.session import Session

EARNED_TURNS = 15
"""Turns from which on a proven success is worth a look at what to keep of it."""
_SHOWN = 60
"""Proofs that are listed, at most: the latest."""

RULES = """\
Keep only what was proven here, stays true, and will be needed again; nothing is a fine answer.
- facts/<section>.md: `## heading`, then `- ` lines: paths, settings, versions, how a system behaves.
- sops/<name>/SOP.md: front matter (name, triggers: [...], category), then Preconditions, Key steps, Pitfalls, Recovery;
  short: what took tries to find out, not what is obvious.
- log.md: under Errors `- error => correction`, under Preferences what the user stated, under Patterns what worked.
Never: what passes (dates, pids, session names, temporary paths), secrets, guesses, what is easily found again.
Read what is there first, then make the smallest change with file_patch or file_write, and end the new text with the
line `[proof: 3, 7]`: the numbers of the calls below that prove it."""


def overcome(proofs: Sequence[Proof]) -> tuple[tuple[Proof, Proof], ...]:
    """Return the calls that failed, each with the later call of the same tool that worked."""
    found: list[tuple[Proof, Proof]] = []
    for failed in proofs:
        if not failed.ok and failed.name not in NO_PROOF:
            worked = next((later for later in proofs[failed.number :] if later.name == failed.name and later.ok), None)
            if worked is not None:
                found.append((failed, worked))
    return tuple(found)


def earned_review(session: Session, *, success: bool) -> bool:
    """Say whether a round that ended should be reviewed for what to keep of it.

    Only a success that somebody else than the model has stated counts, after long work or after an error overcome in
    this round.
    """
    turns = session.allowance.spent.turns - session.round_turns
    mended = any(failed.number > session.round_calls for failed, _ in overcome(session.proofs))
    enough = turns >= EARNED_TURNS or mended
    return success and enough and session.options.review is None and session.options.memory


def phase_text(root: str, proofs: Sequence[Proof]) -> str:
    """Return what a model is told when it may write into memory at `root`, on these proofs."""
    lines = [f"Memory is {root}.", RULES, "", "Calls that worked:", *_listed(proofs)]
    if mended := overcome(proofs):
        lines += ["Errors overcome:"]
        lines += [f"{failed.number} {failed.gist} -> {worked.number} {worked.gist}" for failed, worked in mended[-10:]]
    return "\n".join(lines)


def confined_text(proofs: Sequence[Proof]) -> str:
    """Return what a model is told that may propose something to memory, and not write it."""
    told = "This session is confined: memory is read-only; propose what it should keep as the task says."
    return "\n".join([told, "Calls that worked:", *_listed(proofs)])


def _listed(proofs: Sequence[Proof]) -> list[str]:
    listed = [proof for proof in proofs if proof.ok and proof.name not in NO_PROOF and not proof.of_memory][-_SHOWN:]
    return [f"{proof.number} {proof.gist}" for proof in listed] or ["(none: nothing can be proven, so write nothing)"]


def outcome(session: Session) -> bool | None:
    """Return whether the round that ended was a success, or None when nobody but the model says so.

    The user's verdict counts most, then the task's own check, then the exit code of a procedure's script.
    """
    if session.judged is not None:
        return session.judged.ok
    if session.options.check:
        return {"done": True, "failed": False if session.check_failed else None}.get(session.state)
    return True if session.state == "done" and session.by_script else None


def review_text(reviewed: Session, root: str, proofs: Sequence[Proof]) -> str:
    """Return the task of a session that reviews another one for what to keep of it."""
    first = reviewed.history.transcript[0].parts
    task = next((part.text for part in first if isinstance(part, Text) and not part.note), "")
    lines = [f"{number} {line}" for _, number, line in reviewed.history.summaries]
    return "\n\n".join(
        (
            f"Session {reviewed.name} has done its task well. Decide what of it is worth keeping in memory, "
            "if anything, write that, and answer in one line what you kept.",
            f"Its task:\n{cut(task, 1500)}",
            f"Its answer:\n{cut(reviewed.answer, 1500)}",
            "What its latest turns did:\n" + "\n".join(lines),
            phase_text(root, proofs),
        )
    )
