"""The built-in memory: entries that are found by their words, with links between them.

Scoring is Okapi BM25 (Robertson and Zaragoza 2009, with the idf that is never negative): for each distinct token of
the query that an entry has,

    idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean length)),  idf = ln(1 + (N - df + 0.5) / (df + 0.5))

added up, where tf is how often the entry has the token, df in how many of the N active entries it is, k1 = 1.2 and
b = 0.75. Equal scores: what did not fail first, then what was added first. An entry that shares no token with the
query is not found.

Tokens are words in any script, without regard to case and to compatibility forms (NFKC). Chinese, Japanese and Korean
do not part words by spaces alone, so a run of their characters yields its pairs of neighbours; a query of a single
such character therefore finds only that character standing alone.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

Kind = Literal["sop", "episode", "fact"]
"""An SOP is a verified procedure, an episode tells of one task; these two are pointed to. A fact is an insight."""
Support = Literal["retrieve", "consolidate", "forget"]

EVERYTHING: frozenset[Support] = frozenset(get_args(Support))
SCHEMA = 1
"""The version of the JSON form."""
K1, B = 1.2, 0.75
LINKED = 8
"""At most so many entries are added to what is found by following links."""

_CJK = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"(?P<run>[{_CJK}]+)|[^\W_{_CJK}]+")


def tokens(text: str) -> list[str]:
    """Return a text's tokens in order: lower-case words, and neighbouring pairs of CJK characters."""
    found = []
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        run = match["run"]
        if run is None or len(run) == 1:
            found.append(match[0])
        else:
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of memory. `links` are other entries' ids; `merged` the ids of equal ones that it stands for."""

    id: str
    text: str
    links: tuple[str, ...] = ()
    kind: Kind = "fact"
    failed: bool = False
    merged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What was found, best first: SOPs and episodes, facts, and what their links lead to, nearest first."""

    pointers: tuple[Entry, ...] = ()
    facts: tuple[Entry, ...] = ()
    linked: tuple[Entry, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all that was found."""
        return tuple(entry.id for entry in (*self.pointers, *self.facts, *self.linked))


class LexicalMemory:
    """A memory that is searched by words. Nothing is lost: forgotten entries can come back, merged ones stay named.

    `supports` says which operations it performs; a caller asks before it uses one (`gad.core.memcon_actions` does).
    With `sops_first`, one pointer at most is an episode where there are SOPs, and a single one is an SOP: episodes hold
    the words of their tasks, so those of a task that recurs would take every place. `former` is a memory of mostly the
    same entries, whose counts of words are taken over: taking texts apart is most of the work.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        supports: Collection[Support] = EVERYTHING,
        *,
        sops_first: bool = False,
        former: LexicalMemory | None = None,
    ) -> None:
        self.supports = frozenset(supports)
        self._sops_first = sops_first
        self._entries: dict[str, Entry] = {}
        self._terms: dict[str, Counter[str]] = {}
        self._lengths: dict[str, int] = {}
        self._forgotten: set[str] = set()
        self._survivors: dict[str, str] = {}
        for entry in entries:
            known = former._entries.get(entry.id) if former is not None else None
            taken = former._terms[entry.id] if former is not None and known and known.text == entry.text else None
            self._add(entry, taken)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The active entries, in the order in which they were added."""
        return tuple(entry for entry in self._entries.values() if entry.id not in self._forgotten)

    @property
    def forgotten(self) -> tuple[Entry, ...]:
        """The entries that `forget` took out of the active memory."""
        return tuple(entry for entry in self._entries.values() if entry.id in self._forgotten)

    def __len__(self) -> int:
        """Return how many entries are active."""
        return len(self._entries) - len(self._forgotten)

    def add(self, entry: Entry) -> None:
        """Add an entry; an id that was ever used raises ValueError."""
        self._add(entry)

    def _add(self, entry: Entry, terms: Counter[str] | None = None) -> None:
        used = [name for name in (entry.id, *entry.merged) if name in self._entries or name in self._survivors]
        if used or entry.id in entry.merged:
            raise ValueError(f"memory has an entry {(used or [entry.id])[0]!r} already")
        self._entries[entry.id] = entry
        self._terms[entry.id] = Counter(tokens(entry.text)) if terms is None else terms
        self._lengths[entry.id] = self._terms[entry.id].total()
        self._survivors.update(dict.fromkeys(entry.merged, entry.id))

    def retrieve(
        self, query: str, top_k: int, insight_k: int, hop: int, leave_out: Collection[str] = frozenset()
    ) -> Retrieved:
        """Return the best `top_k` SOPs and episodes, the best `insight_k` facts, and what is linked to them.

        Facts of the same words count once. Links are followed `hop` times, from the best found on, and lead to
        `LINKED` entries at most. What is in `leave_out` (ids) is not returned, though links are followed through it.
        """
        pointers: list[Entry] = []
        facts: dict[str, Entry] = {}
        for entry in self._ranked(query):
            if entry.id in leave_out:
                continue
            if entry.kind != "fact":
                pointers.append(entry)
            else:
                facts.setdefault(_wording(entry), entry)
        if self._sops_first:
            pointers = _one_episode(pointers, top_k)
        chosen = pointers[:top_k], list(facts.values())[:insight_k]
        linked = self._linked([*chosen[0], *chosen[1]], hop)
        return Retrieved(tuple(chosen[0]), tuple(chosen[1]), tuple(e for e in linked if e.id not in leave_out)[:LINKED])

    def consolidate(self) -> dict[str, str]:
        """Merge active facts of the same words into the first of them; return which id went into which.

        The one that stays takes over the others' links and names them in `merged`; a link to any of them leads to it.
        A failed fact and one that did not fail are not the same.
        """
        first: dict[tuple[str, bool], str] = {}
        merged: dict[str, str] = {}
        for entry in self.entries:
            if entry.kind != "fact":
                continue
            survivor = first.setdefault((_wording(entry), entry.failed), entry.id)
            if survivor != entry.id:
                merged[entry.id] = survivor
        for gone, survivor in merged.items():
            kept, lost = self._entries[survivor], self._entries.pop(gone)
            del self._terms[gone]
            names = (*kept.merged, gone, *lost.merged)
            links = dict.fromkeys(link for link in (*kept.links, *lost.links) if link not in (survivor, *names))
            self._entries[survivor] = replace(kept, links=tuple(links), merged=names)
            self._survivors.update(dict.fromkeys(names, survivor))
        return merged

    def forget(self) -> tuple[str, ...]:
        """Take failed entries out of the active memory and return their ids; an SOP always stays."""
        ids = tuple(entry.id for entry in self.entries if entry.failed and entry.kind != "sop")
        self._forgotten.update(ids)
        return ids

    def restore(self, ids: Iterable[str]) -> None:
        """Undo `forget` for these ids: the entries are active again, in their old places. Others raise ValueError."""
        wanted = set(ids)
        if unknown := wanted - self._forgotten:
            raise ValueError(f"not forgotten: {', '.join(sorted(unknown))}")
        self._forgotten -= wanted

    def to_json(self) -> dict[str, Any]:
        """Return all entries and which are forgotten, as a value for `json.dumps`."""
        return {
            "schema": SCHEMA,
            "entries": [
                asdict(entry) | {"links": list(entry.links), "merged": list(entry.merged)}
                for entry in self._entries.values()
            ],
            "forgotten": [entry.id for entry in self.forgotten],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], supports: Collection[Support] = EVERYTHING) -> LexicalMemory:
        """Return the memory that `to_json` told of; another schema version or a damaged value raises ValueError."""
        try:
            if value["schema"] != SCHEMA:
                raise ValueError(f"memory of schema {value['schema']!r}, expected {SCHEMA}")
            memory = cls((_entry(item) for item in value["entries"]), supports)
            forgotten = set(value["forgotten"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"memory is damaged: {error!r}") from error
        if unknown := forgotten - memory._entries.keys():
            raise ValueError(f"memory is damaged: forgotten but not there: {', '.join(sorted(map(str, unknown)))}")
        memory._forgotten = forgotten
        return memory

    def _ranked(self, query: str) -> list[Entry]:
        """Return the active entries that share a token with the query, best first."""
        active = self.entries
        if not active:
            return []
        mean = sum(self._lengths[entry.id] for entry in active) / len(active) or 1.0
        scores = dict.fromkeys((entry.id for entry in active), 0.0)
        for token in dict.fromkeys(tokens(query)):  # in the query's order: sums of floats depend on it
            having = [entry.id for entry in active if token in self._terms[entry.id]]
            idf = math.log(1 + (len(active) - len(having) + 0.5) / (len(having) + 0.5))
            for name in having:
                count = self._terms[name][token]
                norm = K1 * (1 - B + B * self._lengths[name] / mean)
                scores[name] += idf * count * (K1 + 1) / (count + norm)
        found = [entry for entry in active if scores[entry.id] > 0]
        return sorted(found, key=lambda entry: (-scores[entry.id], entry.failed))

    def _linked(self, start: list[Entry], hop: int) -> list[Entry]:
        """Return the active entries that links lead to within `hop` steps, nearest first, `start` itself left out."""
        seen = {entry.id: entry for entry in start}
        edge = start
        for _ in range(hop):
            beyond: dict[str, Entry] = {}
            for link in (link for entry in edge for link in entry.links):
                name = self._survivors.get(link, link)
                if name in self._entries and name not in self._forgotten and name not in seen:
                    beyond[name] = self._entries[name]
            if not beyond:
                break
            seen.update(beyond)
            edge = list(beyond.values())
        return list(seen.values())[len(start) :]


def _one_episode(ranked: list[Entry], top_k: int) -> list[Entry]:
    """Return the pointers without the episodes that take an SOP's place among the first `top_k`."""
    if not any(entry.kind == "sop" for entry in ranked):
        return ranked
    episodes = [entry.id for entry in ranked if entry.kind == "episode"][: 1 if top_k > 1 else 0]
    return [entry for entry in ranked if entry.kind == "sop" or entry.id in episodes]


def _wording(entry: Entry) -> str:
    """Return what makes two facts the same: the text, white space apart."""
    return " ".join(entry.text.split())


def _entry(item: Mapping[str, Any]) -> Entry:
    entry = Entry(**{**item, "links": tuple(item["links"]), "merged": tuple(item["merged"])})
    names = (entry.id, entry.text, *entry.links, *entry.merged)
    lists = isinstance(item["links"], list) and isinstance(item["merged"], list)
    if not lists or not all(isinstance(name, str) for name in names):
        raise TypeError(f"entry {entry.id!r}")
    if entry.kind not in get_args(Kind) or not isinstance(entry.failed, bool):
        raise TypeError(f"entry {entry.id!r}")
    return entry
