"""The price table that gad ships: US dollars per million tokens, standard processing, checked on 2026-11-30.

Prices change; gad.yaml's `prices` override these. Where they come from:

- The vendors' own model pages: Opus 5.5, Opus 5, Sonnet 5 and Sonnet 5.5 (https://platform.claude.com/docs),
  gpt-6.2-sol and gpt-6-sol (https://developers.openai.com/api/docs/models).
- Public projects that quote the vendors' price lists: the other Anthropic models (docs.rs/synaps 0.10.2, checked
  there on 2026-10-10); Haiku 5.5 and Sonnet 5.5's cache reads since 2026-10-07 (TheKrush/PromptFuel v1.0.23);
  gpt-6.2-astra (BerriAI/litellm discussion 52347), gpt-6.1-sol (amine123max/Codex-Manager 0.4.7),
  gpt-6-astra (BerriAI/litellm discussion 39633), gpt-6-luna (merefield/codexometer v0.18.4).

Anthropic's cache writes are those of five minutes, 1.25 times the input price.
A model that is not here has no known cost until gad.yaml names its price.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gad.core.budget import Price


def _gpt(input_: float, output: float, cached: float, cache_write: float | None = None) -> Price:
    return Price(input_, output, cached, cache_write, above=272_000, above_input=2.0, above_output=1.5)


SHIPPED: Mapping[str, Price] = MappingProxyType(
    {
        "claude-fable-5-1": Price(10.00, 50.00, 0.25, 12.50),
        "claude-fable-5": Price(10.00, 50.00, 1.00, 12.50),
        "claude-opus-5-5": Price(4.00, 20.00, 0.20, 5.00),
        "claude-opus-5": Price(5.00, 25.00, 0.50, 6.25),
        "claude-opus-4-8": Price(5.00, 25.00, 0.50, 6.25),
        "claude-opus-4-7": Price(5.00, 25.00, 0.50, 6.25),
        "claude-opus-4-6": Price(5.00, 25.00, 0.50, 6.25),
        "claude-opus-4-5": Price(5.00, 25.00, 0.50, 6.25),
        "claude-sonnet-5-5": Price(2.00, 10.00, 0.10, 2.50),
        "claude-sonnet-5": Price(2.00, 10.00, 0.20, 2.50),
        "claude-sonnet-4-6": Price(3.00, 15.00, 0.30, 3.75),
        "claude-sonnet-4-5": Price(3.00, 15.00, 0.30, 3.75),
        "claude-haiku-5-5": Price(0.10, 0.50, 0.01, 0.125, above=100_000, above_input=5.0, above_output=5.0),
        "claude-haiku-4-5": Price(1.00, 5.00, 0.10, 1.25),
        "gpt-6.2-astra": _gpt(8.00, 40.00, 0.40),
        "gpt-6.2-sol": _gpt(2.00, 10.00, 0.10, 2.50),
        "gpt-6.1-sol": _gpt(2.00, 10.00, 0.10),
        "gpt-6-astra": _gpt(10.00, 50.00, 1.00, 12.50),
        "gpt-6-sol": _gpt(2.00, 10.00, 0.20, 2.50),
        "gpt-6-luna": _gpt(0.10, 0.50, 0.01, 0.125),
    }
)
