"""What the daemon has spent today, in US dollars: an append-only file, so that a restart does not forget."""

from __future__ import annotations

import json
import logging
import os
import time

from gad.spool import names

log = logging.getLogger(__name__)


class Ledger:
    """The day's spend of one spool. A day is the local calendar day."""

    def __init__(self, spool: str) -> None:
        self._path = os.path.join(spool, names.DAEMON_DIR, "spend.jsonl")
        self._day = ""
        self._usd = 0.0

    def spent_today(self) -> float:
        """Return today's spend so far."""
        self._turn_page()
        return self._usd

    def spend(self, session: str, usd: float) -> None:
        """Add one request's cost. A disk that does not take it is no reason to lose an answer that is paid for."""
        self._turn_page()
        self._usd += usd
        line = json.dumps({"day": self._day, "session": session, "usd": usd})
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as exc:
            log.error("session %s: %g USD could not be written to %s: %s", session, usd, self._path, exc)

    def _turn_page(self) -> None:
        today = time.strftime("%Y-%m-%d")
        if today == self._day:
            return
        self._day, self._usd = today, 0.0
        try:
            with open(self._path, encoding="utf-8") as file:
                for line in file:
                    try:
                        entry = json.loads(line)
                    except ValueError:  # torn by a crash; the journals hold the truth
                        continue
                    if entry.get("day") == today:
                        self._usd += float(entry["usd"])
        except FileNotFoundError:
            return
