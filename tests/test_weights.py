"""The weights of characters: an estimate of a text's tokens that is hardly ever less than the true count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.weights import SHORTEST, counter, samples, slices
from gad.core.weights import ALPHA, tokens, weigh

LEAST = 0.9
"""How far the estimate may fall below the true count."""

MOST = {
    "english": 1.3,
    "german": 1.45,
    "french": 1.35,
    "chinese": 1.5,
    "japanese": 1.3,
    "korean": 1.65,
    "russian": 1.75,
    "arabic": 2.0,
    "hindi": 2.6,
    "mixed": 1.45,
    "emoji": 1.5,
    "python": 1.6,
    "markdown": 1.4,
    "json": 1.85,
    "json, indented": 1.5,
    "log": 1.65,
    "access log": 1.75,
    "numbers": 2.1,
    "hex": 1.3,
    "base64": 1.2,
}
"""How far the estimate for a kind of text may lie above the true count with o200k_base.

The weights cover other tokenizers too, and those need more tokens: for one in which every digit is a token, numbers
are twice as long.
"""

FORMER = {"english", "german", "french", "chinese", "korean", "russian", "mixed", "emoji", "python", "markdown", "json"}
FORMER |= {"json, indented", "log", "access log", "numbers", "base64"}
"""What is covered for cl100k_base, which spends far more on the other scripts than its successors do."""

ANY = st.text(st.characters(exclude_categories=()))
"""Any code points at all, lone surrogates too."""


def ratio(text: str, vocabulary: str = "o200k_base") -> float:
    return tokens(text) / counter(vocabulary)(text)


@pytest.mark.parametrize("kind", MOST)
def test_each_document_is_covered_and_its_kind_is_not_far_over(kind: str) -> None:
    texts = samples()[kind]
    assert all(len(text) >= SHORTEST for text in texts)
    assert min(map(ratio, texts)) >= LEAST
    over = sum(map(tokens, texts)) / sum(map(counter("o200k_base"), texts))
    assert over <= MOST[kind]


def test_every_kind_has_its_bound() -> None:
    assert set(samples()) == set(MOST)


@pytest.mark.parametrize("kind", MOST)
def test_a_passage_of_a_few_hundred_characters_is_covered(kind: str) -> None:
    passages = [passage for text in samples()[kind] for passage in slices(text, 600)]
    worst = min(passages, key=ratio)
    assert ratio(worst) >= LEAST, worst


@pytest.mark.parametrize("kind", sorted(FORMER))
def test_the_former_vocabulary_is_covered_too(kind: str) -> None:
    texts = samples()[kind]
    assert min(ratio(text, "cl100k_base") for text in texts) >= LEAST


@pytest.mark.parametrize("kind", ["english", "python", "json", "log", "access log", "numbers", "chinese", "japanese"])
def test_a_vocabulary_without_numbers_is_covered(kind: str) -> None:
    assert min(ratio(text, "voyage3_base") for text in samples()[kind]) >= LEAST


def test_the_mixed_whole_is_covered_and_not_far_over() -> None:
    parts = ["".join(texts)[:3000] for texts in samples().values()]
    assert 1.2 <= ratio("".join(parts)) <= 1.55


def test_an_ideograph_costs_one_to_two_tokens_and_a_letter_a_fraction() -> None:
    assert ALPHA <= weigh("中") <= 2 * ALPHA
    assert weigh("e") < ALPHA / 2


@given(ANY, ANY)
def test_weights_of_parts_add_up(one: str, other: str) -> None:
    assert weigh(one + other) == pytest.approx(weigh(one) + weigh(other))


@given(ANY, ANY)
def test_more_text_is_never_lighter(one: str, other: str) -> None:
    assert weigh(one + other) >= weigh(one) - 1e-9
    assert weigh(one) >= 0


@given(ANY)
def test_order_does_not_matter(text: str) -> None:
    assert weigh(text[::-1]) == pytest.approx(weigh(text))


@pytest.mark.parametrize("text", ["\ud800", "\udfff", "a\udc80b", "\udc00\ud800", "\ud83d" + "\ude00"])
def test_lone_surrogates_have_a_weight(text: str) -> None:
    assert weigh(text) > 0


def test_every_character_weighs_something_and_none_is_absurd() -> None:
    for first in range(0, 0x110000, 7):
        assert 0 < weigh(chr(first)) <= 3 * ALPHA, hex(first)


def test_nothing_weighs_nothing() -> None:
    assert weigh("") == tokens("") == 0


def test_an_estimate_is_the_weight_over_alpha() -> None:
    assert tokens("Hello, 世界") == weigh("Hello, 世界") / ALPHA
