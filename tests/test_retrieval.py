"""The built-in memory: finding by words in any script, links, merging, forgetting and undoing it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gad.core.memcon_actions import perform
from gad.core.memcon_state import ACTIONS
from gad.core.retrieval import LINKED, Entry, LexicalMemory, Retrieved, tokens


def sop(name: str, text: str, *links: str, failed: bool = False) -> Entry:
    return Entry(name, text, links, "sop", failed)


def episode(name: str, text: str, *links: str, failed: bool = False) -> Entry:
    return Entry(name, text, links, "episode", failed)


def fact(name: str, text: str, *links: str, failed: bool = False) -> Entry:
    return Entry(name, text, links, "fact", failed)


def found(memory: LexicalMemory, query: str, top_k: int = 9, insight_k: int = 9, hop: int = 0) -> tuple[str, ...]:
    return memory.retrieve(query, top_k, insight_k, hop).ids


# -- tokens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Read the file_name, twice!", ["read", "the", "file", "name", "twice"]),
        ("数据库备份", ["数据", "据库", "库备", "备份"]),
        ("用gad备份", ["用", "gad", "备份"]),
        ("ＧＡＤ Straße", ["gad", "strasse"]),
        ("データ", ["デー", "ータ"]),
        ("한국어", ["한국", "국어"]),
        ("Žluťoučký кот 8100", ["žluťoučký", "кот", "8100"]),
        ("", []),
        (" \n,;—", []),
    ],
)
def test_tokens_of_several_scripts(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_chinese_is_found_without_spaces() -> None:
    memory = LexicalMemory([sop("a", "如何恢复数据库的备份"), sop("b", "如何部署网页服务"), sop("c", "天气预报")])
    assert found(memory, "请备份数据库", top_k=1) == ("a",)
    assert found(memory, "服务部署") == ("b",)
    assert found(memory, "音乐") == ()


# -- scoring -----------------------------------------------------------------------------------------


def test_rare_words_short_texts_and_repeats_count_more() -> None:
    rare = [sop("a", "deploy the service"), sop("b", "restart the service"), sop("c", "stop the service")]
    assert found(LexicalMemory(rare), "restart service")[0] == "b"
    assert found(
        LexicalMemory([sop("long", "deploy it and then wait for it"), sop("short", "deploy it")]), "deploy"
    ) == (
        "short",
        "long",
    )
    assert (
        found(LexicalMemory([sop("once", "deploy it now"), sop("twice", "deploy deploy it")]), "deploy")[0] == "twice"
    )


def test_the_order_is_that_of_the_formula() -> None:
    # Query "x y", mean length 8/3. df(x) = 2, df(y) = 1: idf(x) = ln(1 + 1.5/2.5), idf(y) = ln(1 + 2.5/1.5).
    memory = LexicalMemory([sop("xx", "x x z"), sop("y", "y z z z"), sop("x", "x")])

    def part(tf: int, df: int, length: int) -> float:
        idf = math.log(1 + (3 - df + 0.5) / (df + 0.5))
        return idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / (8 / 3)))

    scores = {"xx": part(2, 2, 3), "y": part(1, 1, 4), "x": part(1, 2, 1)}
    assert found(memory, "x y x") == tuple(sorted(scores, key=lambda name: -scores[name])) == ("y", "x", "xx")


def test_ties_go_to_what_did_not_fail_and_then_to_the_older() -> None:
    memory = LexicalMemory([episode("f", "same", failed=True), episode("b", "same"), episode("a", "same")])
    assert found(memory, "same") == ("b", "a", "f")


def test_counts_are_kept_apart_for_pointers_and_facts() -> None:
    entries = [kind(f"{kind.__name__}{n}", "deploy") for n in range(4) for kind in (sop, episode, fact)]
    result = LexicalMemory(entries).retrieve("deploy", 3, 2, 0)
    assert [entry.id for entry in result.pointers] == ["sop0", "episode0", "sop1"]
    assert [entry.id for entry in result.facts] == ["fact0"]  # equal facts count once
    assert LexicalMemory(entries).retrieve("deploy", 0, 0, 0) == Retrieved()


def test_equal_facts_count_once_and_give_room_to_others() -> None:
    memory = LexicalMemory([fact("a", "port is 80"), fact("b", " port  is\n80"), fact("c", "port is 80 or 8080")])
    assert found(memory, "port", insight_k=2) == ("a", "c")


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert found(LexicalMemory(), "deploy") == ()
    assert found(LexicalMemory([fact("a", ""), fact("b", "deploy")]), "") == ()
    assert found(LexicalMemory([fact("a", "")]), "deploy") == ()


# -- links -------------------------------------------------------------------------------------------


def chained() -> LexicalMemory:
    return LexicalMemory(
        [sop("a", "deploy", "b", "gone"), fact("b", "one", "c"), fact("c", "two", "d", "a"), fact("d", "3")]
    )


@pytest.mark.parametrize(("hop", "ids"), [(0, "a"), (1, "ab"), (2, "abc"), (3, "abcd"), (99, "abcd")])
def test_hops_follow_links(hop: int, ids: str) -> None:
    assert found(chained(), "deploy", hop=hop) == tuple(ids)


def test_linked_entries_are_few_and_never_what_was_found_anyway() -> None:
    many = [f"n{number}" for number in range(LINKED + 5)]
    memory = LexicalMemory(
        [sop("a", "deploy", "b", *many), sop("b", "deploy", "a"), *(fact(name, name) for name in many)]
    )
    assert found(memory, "deploy", hop=2) == ("a", "b", *many[:LINKED])


def test_what_is_left_out_makes_room_and_is_followed_through() -> None:
    memory = LexicalMemory([sop("a", "deploy", "b"), fact("b", "one", "c"), fact("c", "two"), sop("d", "deploy it")])
    assert memory.retrieve("deploy", 1, 1, 2, {"a"}).ids == ("d",)
    assert memory.retrieve("deploy", 1, 1, 2, {"b"}).ids == ("a", "c")


def test_links_to_forgotten_entries_lead_nowhere() -> None:
    memory = LexicalMemory([sop("a", "deploy", "f"), episode("f", "x", "c", failed=True), fact("c", "y")])
    assert found(memory, "deploy", hop=2) == ("a", "f", "c")
    memory.forget()
    assert found(memory, "deploy", hop=2) == ("a",)


# -- merging -----------------------------------------------------------------------------------------


def test_equal_facts_are_merged_and_say_so() -> None:
    memory = LexicalMemory(
        [
            sop("s", "see", "c"),
            fact("a", "port is 80", "b", "x"),
            fact("b", "port  is 80", "y", "c"),
            fact("c", "port is 80", "a"),
            fact("f", "port is 80", failed=True),
            fact("d", "Port is 80"),
            sop("p", "port is 80"),
        ]
    )
    assert memory.consolidate() == {"b": "a", "c": "a"}
    assert [entry.id for entry in memory.entries] == ["s", "a", "f", "d", "p"] and len(memory) == 5
    assert memory.entries[1] == Entry("a", "port is 80", ("x", "y"), "fact", False, ("b", "c"))
    assert found(memory, "see", hop=1) == ("s", "a")
    assert memory.consolidate() == {}


def test_provenance_survives_merging_again() -> None:
    memory = LexicalMemory([fact("b", "same"), fact("c", "same")])
    memory.consolidate()
    later = LexicalMemory([fact("a", "same"), *memory.entries, sop("s", "see", "c")])
    assert later.consolidate() == {"b": "a"}
    assert later.entries[0].merged == ("b", "c") and found(later, "see", hop=1) == ("s", "a")


# -- forgetting --------------------------------------------------------------------------------------


def test_only_failed_records_are_forgotten_and_never_an_sop() -> None:
    memory = LexicalMemory(
        [
            episode("e", "deploy", failed=True),
            episode("ok", "deploy"),
            sop("s", "deploy", failed=True),
            fact("f", "deploy", failed=True),
        ]
    )
    assert memory.forget() == ("e", "f")
    assert [entry.id for entry in memory.entries] == ["ok", "s"] and len(memory) == 2
    assert [entry.id for entry in memory.forgotten] == ["e", "f"]
    assert found(memory, "deploy") == ("ok", "s")
    assert memory.forget() == ()


def test_forgetting_undone_restores_equal_entries_in_their_places() -> None:
    memory = LexicalMemory([episode("e", "a b", "ok", failed=True), episode("ok", "a"), fact("f", "a", failed=True)])
    before, text, ranked = memory.entries, json.dumps(memory.to_json()), found(memory, "a b")
    memory.restore(memory.forget())
    assert memory.entries == before and json.dumps(memory.to_json()) == text and found(memory, "a b") == ranked


def test_only_what_is_forgotten_can_be_restored() -> None:
    memory = LexicalMemory([episode("e", "a", failed=True), episode("ok", "a")])
    memory.forget()
    for ids in (["ok"], ["e", "nothing"]):
        with pytest.raises(ValueError, match="not forgotten"):
            memory.restore(ids)
    assert len(memory) == 1


def test_an_id_is_used_once() -> None:
    memory = LexicalMemory([fact("a", "x"), fact("b", "x"), episode("e", "x", failed=True)])
    memory.consolidate()
    memory.forget()
    for entry in (fact("a", "new"), fact("b", "new"), fact("e", "new"), Entry("n", "x", merged=("n",))):
        with pytest.raises(ValueError, match="already"):
            memory.add(entry)
    assert len(memory) == 1


# -- as a backend of the controller ------------------------------------------------------------------


def test_an_operation_that_is_not_supported_changes_nothing() -> None:
    memory = LexicalMemory([fact("a", "x"), fact("b", "x"), episode("e", "x", failed=True)], supports={"retrieve"})
    before = memory.to_json()
    notes = [perform(ACTIONS[action], "x", memory).note for action in (5, 6)]
    assert notes == ["this memory does not support consolidate", "this memory does not support forget"]
    assert memory.to_json() == before and perform(ACTIONS[0], "x", memory).found.ids == ("e", "a")


def test_forgetting_through_the_controller_returns_nothing_unless_told() -> None:
    for retrieves in (False, True):
        memory = LexicalMemory([episode("e", "x", failed=True), episode("ok", "x")])
        result = perform(ACTIONS[6], "x", memory, maintenance_retrieves=retrieves)
        assert result.note == "failed records forgotten: 1" and len(memory) == 1
        assert result.found.ids == (("ok",) if retrieves else ())


# -- JSON and what always holds ----------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "备份", "数据"]), max_size=4).map(" ".join)
ENTRIES = st.lists(
    st.builds(
        Entry,
        st.integers(0, 30).map(str),
        WORDS,
        st.lists(st.integers(0, 30).map(str), max_size=3).map(tuple),
        st.sampled_from(["sop", "episode", "fact"]),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda entry: entry.id,
)


@settings(max_examples=150)
@given(ENTRIES, st.lists(st.sampled_from(["consolidate", "forget", "restore"]), max_size=4), WORDS)
def test_json_keeps_all_of_it(entries: list[Entry], verbs: list[str], query: str) -> None:
    memory = LexicalMemory(entries)
    for verb in verbs:
        if verb == "restore":
            memory.restore([entry.id for entry in memory.forgotten][:1])
        else:
            getattr(memory, verb)()
    again = LexicalMemory.from_json(json.loads(json.dumps(memory.to_json())))
    assert again.entries == memory.entries and again.forgotten == memory.forgotten
    assert again.to_json() == memory.to_json()
    assert again.retrieve(query, 3, 8, 2) == memory.retrieve(query, 3, 8, 2)
    names = [name for entry in (*memory.entries, *memory.forgotten) for name in (entry.id, *entry.merged)]
    assert sorted(names) == sorted(entry.id for entry in entries)  # nothing is lost


@settings(max_examples=150)
@given(ENTRIES, WORDS, st.integers(0, 3), st.integers(0, 8), st.integers(0, 2))
def test_what_is_found(entries: list[Entry], query: str, top_k: int, insight_k: int, hop: int) -> None:
    memory = LexicalMemory(entries)
    result = memory.retrieve(query, top_k, insight_k, hop)
    assert len(result.pointers) <= top_k and len(result.facts) <= insight_k and len(result.linked) <= LINKED
    assert len(set(result.ids)) == len(result.ids) and {*result.ids} <= {entry.id for entry in memory.entries}
    assert all(set(tokens(entry.text)) & set(tokens(query)) for entry in (*result.pointers, *result.facts))
    more = memory.retrieve(query, top_k + 1, insight_k + 1, hop)
    assert more.pointers[:top_k] == result.pointers and more.facts[:insight_k] == result.facts


@settings(max_examples=100)
@given(ENTRIES)
def test_forget_and_restore_are_inverse(entries: list[Entry]) -> None:
    memory = LexicalMemory(entries)
    ids = memory.forget()
    assert all(entry.failed and entry.kind != "sop" for entry in memory.forgotten)
    assert not any(entry.failed and entry.kind != "sop" for entry in memory.entries)
    memory.restore(ids)
    assert memory.entries == tuple(entries)


def sample() -> dict[str, Any]:
    memory = LexicalMemory([fact("a", "x", "b"), fact("b", "x"), episode("e", "x", failed=True)])
    memory.consolidate()
    memory.forget()
    value: dict[str, Any] = json.loads(json.dumps(memory.to_json()))
    return value


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"entries": None},
        {"entries": [{"id": "a"}]},
        {"entries": ["a"]},
        {"entries": [], "forgotten": ["a"]},
        {"forgotten": [["a"]]},
    ],
)
def test_a_damaged_memory_is_refused(change: dict[str, Any]) -> None:
    assert LexicalMemory.from_json(sample()).to_json() == sample()
    with pytest.raises(ValueError, match=r"."):
        LexicalMemory.from_json(sample() | change)


@pytest.mark.parametrize(
    "change", [{"id": 3}, {"kind": "rumour"}, {"failed": 0}, {"links": "ab"}, {"more": 1}, {"text": None}]
)
def test_a_damaged_entry_is_refused(change: dict[str, Any]) -> None:
    value = sample()
    value["entries"][0].update(change)
    with pytest.raises(ValueError, match=r"."):
        LexicalMemory.from_json(value)


def test_episodes_leave_room_for_sops_where_this_is_wanted() -> None:
    told = [Entry(f"e{n}", "rotate the logs", kind="episode") for n in range(3)]
    sops = [Entry(f"s{n}", "logs and much else that is longer", kind="sop") for n in range(2)]

    def found(entries: list[Entry], top_k: int, *, sops_first: bool = False) -> list[str]:
        memory = LexicalMemory(entries, sops_first=sops_first)
        return [entry.id for entry in memory.retrieve("rotate the logs", top_k, 0, 0).pointers]

    assert found([*told, *sops], 3) == ["e0", "e1", "e2"]
    assert found([*told, *sops], 3, sops_first=True) == ["e0", "s0", "s1"]
    assert found([*told, *sops], 1, sops_first=True) == ["s0"]
    assert found(told, 2, sops_first=True) == ["e0", "e1"]


def test_a_former_memory_saves_work_and_changes_nothing() -> None:
    former = LexicalMemory([Entry("a", "red apple"), Entry("b", "green pear"), Entry("gone", "red")])
    now = [Entry("b", "red pear"), Entry("a", "red apple"), Entry("c", "red red")]
    plain, quick = LexicalMemory(now), LexicalMemory(now, former=former)
    assert quick.to_json() == plain.to_json()
    for query in ("red", "green", "pear apple"):
        assert quick.retrieve(query, 0, 3, 0) == plain.retrieve(query, 0, 3, 0)
