"""A session's way into memory: the gate's judgement, then the store's commit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from gad.core.gate import Proof, check_change, check_write
from gad.core.lessons import confined_text, phase_text
from gad.core.session import Session
from gad.core.sop import keep_record
from gad.errors import MemoryRefused
from gad.memory.scripts import SCRIPTS, ScriptGate, codified
from gad.memory.store import MemoryStore


class SessionMemory:
    """The `Memory` port for one session.

    `reviewed` gives the session whose calls prove what this one writes, by its name; None when there is none of it.
    `gate` is what scripts must pass; without one none is taken. `place` is where a session's relative paths start.
    """

    def __init__(
        self,
        store: MemoryStore,
        session: Session,
        reviewed: Callable[[str], Session | None] = lambda name: None,
        gate: ScriptGate | None = None,
        place: Callable[[Session], str] = lambda session: session.options.cwd or os.sep,
    ) -> None:
        self.root = store.root
        self._store = store
        self._session = session
        self._reviewed = reviewed
        self._gate = gate
        self._place = place

    async def write(self, path: str, added: str, change: Callable[[str | None, str], str]) -> str:
        """Judge and commit one change; see `gad.core.ports.Memory`."""
        session = self._session
        if not session.options.memory:
            raise MemoryRefused("this task was given without memory (`memory: false`), so nothing is written there")
        self._check_confined()
        proofs, source = await self._proofs()
        text, numbers = check_write(path, added, open_phase=session.phase_open, calls=proofs, session=session.name)
        gists = {proof.number: proof.gist for proof in proofs}
        evidence = [f"{source}#{number} {gists[number]}" for number in numbers]
        if path.rpartition("/")[2] in SCRIPTS:
            await self._write_script(path, text, change, evidence)
            return f"kept in {path}: it did its recorded case; proven by {', '.join(map(str, numbers))}"

        def apply(before: str | None) -> str:
            after = change(before, text)
            check_change(path, before, after, session.name)
            return keep_record(before, after, source) if path.endswith("/SOP.md") else after

        await asyncio.to_thread(self._store.commit, path, apply, who=session.name, evidence=evidence)
        return f"kept in {path}, proven by {', '.join(map(str, numbers))}"

    async def _write_script(
        self, path: str, text: str, change: Callable[[str | None, str], str], evidence: list[str]
    ) -> None:
        """Let a script in that passes the gate; it runs before the commit, so no lock is held meanwhile."""
        who = self._session.name
        if self._gate is None:
            raise MemoryRefused(f"{path}: scripts are not taken here, since nothing can run them first")
        before = await asyncio.to_thread(self._store.read, path)
        after = change(before, text)
        check_change(path, before, after, who)
        evidence.append(await self._gate.check(path, after, who))

        def apply(now: str | None) -> str:
            if now != before:
                raise MemoryRefused(f"{path} was changed while the script was tried; read it and write it again")
            return after

        await asyncio.to_thread(self._store.commit, path, apply, who=who, evidence=evidence)
        await asyncio.to_thread(codified, self._store, path, who)

    async def open_phase(self) -> str:
        """Return the rules and this session's proofs."""
        proofs, _ = await self._proofs()
        return confined_text(proofs) if self._session.options.confined else phase_text(self.root, proofs)

    def _check_confined(self) -> None:
        if self._session.options.confined:
            raise MemoryRefused(
                "this session is confined: memory is read-only; propose what is worth keeping as the task says"
            )

    async def _proofs(self) -> tuple[Sequence[Proof], str]:
        """Return the calls that may prove something, and whose they are."""
        session = self._session
        if session.options.review is None:
            return self.proofs_of(session), session.name
        reviewed = await asyncio.to_thread(self._reviewed, session.options.review)
        if reviewed is None:
            raise MemoryRefused(f"the reviewed session {session.options.review} has no journal any more")
        if not reviewed.options.memory:
            raise MemoryRefused(
                f"session {reviewed.name} was kept out of memory (`memory: false`), so it proves nothing"
            )
        return self.proofs_of(reviewed), reviewed.name

    def proofs_of(self, session: Session) -> list[Proof]:
        """Return a session's calls; those that read or wrote memory itself are marked."""
        return [self._marked(proof, session) for proof in session.proofs]

    def _marked(self, proof: Proof, session: Session) -> Proof:
        """Mark a call that read or wrote memory itself: it shows nothing about the world."""
        try:
            place = os.path.realpath(os.path.join(self._place(session), os.path.expanduser(proof.path)))
        except ValueError:  # a NUL in it, or half a character: no call has reached a file by that
            return proof
        inside = bool(proof.path) and place.startswith(os.path.realpath(self.root) + os.sep)
        return replace(proof, of_memory=proof.of_memory or inside)


class ClosedMemory:
    """The `Memory` port of a home whose memory is switched off: what lies there is not written to."""

    def __init__(self, root: str) -> None:
        self.root = root

    async def write(self, path: str, added: str, change: Callable[[str | None, str], str]) -> str:
        """Refuse."""
        raise MemoryRefused(_OFF)

    async def open_phase(self) -> str:
        """Refuse."""
        raise MemoryRefused(_OFF)


_OFF = "memory is switched off here (memory.enabled in gad.yaml), so nothing is written there"
