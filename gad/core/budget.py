"""What tokens cost. An unknown model's cost is unknown, never zero."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gad.core.messages import Usage

_SNAPSHOT = re.compile(r"[-@:](\d{8}|\d{4}-\d{2}-\d{2}|\d{4}|latest)(-v\d+(:\d+)?)?", re.ASCII)
"""What vendors append to a model's id to name one snapshot of it."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens.

    Without `cached` or `cache_write`, those tokens cost what other input does. A request of more than
    `above` input tokens has all its input multiplied by `above_input` and its output by `above_output`.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    above: int | None = None
    above_input: float = 1.0
    above_output: float = 1.0


FREE = Price(0.0, 0.0)
"""The price of a model that runs on this machine."""


def cost_usd(usage: Usage, price: Price | None) -> float | None:
    """Return what one request cost in US dollars, or None when the price is not known."""
    if price is None:
        return None
    cached = price.input if price.cached is None else price.cached
    cache_write = price.input if price.cache_write is None else price.cache_write
    plain = max(0, usage.tokens_in - usage.cached - usage.cache_write)
    spent_in = plain * price.input + usage.cached * cached + usage.cache_write * cache_write
    spent_out = usage.tokens_out * price.output
    if price.above is not None and usage.tokens_in > price.above:
        spent_in *= price.above_input
        spent_out *= price.above_output
    return (spent_in + spent_out) / 1_000_000


def find_price(prices: Mapping[str, Price], model_id: str) -> Price | None:
    """Return the price of a model by its id, or None.

    The exact id wins. Otherwise the longest entry of which the id is a snapshot counts
    (`claude-haiku-4-5` for `claude-haiku-4-5-20251001`); a sibling such as `-mini` has a price of its
    own and is not guessed.
    """
    if model_id in prices:
        return prices[model_id]
    found = [
        name
        for name in prices
        if name and model_id.startswith(name) and _SNAPSHOT.fullmatch(model_id, len(name)) is not None
    ]
    return prices[max(found, key=len)] if found else None
