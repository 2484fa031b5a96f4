"""Hold the weights of `gad.core.weights` against real tokenizers, and measure how fast a text is weighed.

    python -m bench.weights

Prints one row a kind of text: its characters, the true tokens by each vocabulary that the venv brings, the estimate,
its ratio to each true count, and nanoseconds a character. The texts are those that the weights were not fitted to:
`tests/corpus`, gad's own sources and documents, and made-up data.
"""

from __future__ import annotations

import base64
import importlib
import json
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from gad.core.weights import tokens, weigh

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "corpus"
VOCABULARIES = ("o200k_base", "cl100k_base", "voyage3_base")
"""OpenAI's present and former vocabulary, and Voyage's; the last takes digits one by one, as many others do."""
LANGUAGES = ("english", "german", "french", "chinese", "japanese", "korean", "russian", "arabic", "hindi")
SHORTEST = 300
"""A text that has fewer characters is too short to be estimated by itself."""


@cache
def counter(vocabulary: str) -> Callable[[str], int]:
    """Return a function that counts a text's tokens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the package's own, on import
        encoding = importlib.import_module("bpe_openai").get_encoding(vocabulary)
    return lambda text: len(encoding.encode(text))


def samples() -> Mapping[str, list[str]]:
    """Return kinds of text and documents of each, the same ones every time."""
    kinds: dict[str, list[str]] = {name: [_corpus(name)] for name in (*LANGUAGES, "mixed", "emoji")}
    kinds["python"] = _files("gad/**/*.py")
    kinds["markdown"] = _files("docs/*.md")
    rng = random.Random(20)
    kinds["json"] = [json.dumps([_record(rng) for _ in range(20)], separators=(",", ":")) for _ in range(3)]
    kinds["json, indented"] = [json.dumps([_record(rng) for _ in range(12)], indent=2) for _ in range(3)]
    kinds["log"] = ["\n".join(_log(rng, 40)) for _ in range(3)]
    kinds["access log"] = ["\n".join(_access(rng, 30)) for _ in range(3)]
    kinds["numbers"] = ["\n".join(",".join(f"{rng.uniform(0, 5000):.3f}" for _ in range(6)) for _ in range(40))]
    kinds["hex"] = [rng.randbytes(1000).hex(), "\n".join(rng.randbytes(16).hex(" ") for _ in range(40))]
    kinds["base64"] = [base64.b64encode(rng.randbytes(1500)).decode(), base64.encodebytes(rng.randbytes(1500)).decode()]
    return kinds


def slices(text: str, size: int) -> Iterator[str]:
    """Cut a text into documents of `size` characters; a last piece of less than half of that is left out."""
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        if 2 * len(piece) >= size:
            yield piece


def nanoseconds(text: str) -> float:
    """Return how long it takes to weigh a text, in nanoseconds a character: the best of several tries."""
    text *= max(1, 20_000 // len(text))
    best = float("inf")
    for _ in range(15):
        began = time.perf_counter()
        weigh(text)
        best = min(best, time.perf_counter() - began)
    return best / len(text) * 1e9


def main() -> None:
    """Print the table."""
    print(
        f"{'':15}{'chars':>8}" + "".join(f"{name:>14}{'ratio':>7}" for name in VOCABULARIES) + "    estimate  ns/char"
    )
    for kind, texts in samples().items():
        estimate = sum(map(tokens, texts))
        columns = ""
        for name in VOCABULARIES:
            true = sum(map(counter(name), texts))
            columns += f"{true:>14}{estimate / true:>7.2f}"
        speed = nanoseconds("".join(texts))
        print(f"{kind:15}{sum(map(len, texts)):>8}{columns}{estimate:>12.0f}{speed:>9.2f}")


def _corpus(name: str) -> str:
    return (CORPUS / f"{name}.txt").read_text("utf-8")


def _files(pattern: str) -> list[str]:
    texts = [path.read_text("utf-8") for path in sorted(ROOT.glob(pattern))]
    return [text for text in texts if len(text) >= SHORTEST]


_PLACES = ("lisbon", "oslo", "nairobi", "lima", "hanoi")
_EVENTS = ("connection accepted", "request timed out, retrying", "cache miss", "job finished", "disk nearly full")


def _record(rng: random.Random) -> dict[str, object]:
    return {
        "id": rng.randrange(10**6),
        "name": f"sensor-{rng.choice(_PLACES)}-{rng.randrange(40)}",
        "active": rng.random() < 0.5,
        "updatedAt": f"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:15:00Z",
        "position": {"lat": round(rng.uniform(-90, 90), 5), "lon": round(rng.uniform(-180, 180), 5)},
        "tags": rng.sample(_PLACES, 2),
        "comment": f"Last {rng.choice(_EVENTS)} was seen by the night shift.",
        "error": None,
    }


def _log(rng: random.Random, lines: int) -> Iterator[str]:
    for second in range(lines):
        level = rng.choice(("INFO", "WARNING", "DEBUG", "ERROR"))
        yield (
            f"2026-11-30 08:{second:02}:{rng.randrange(60):02},{rng.randrange(1000):03} {level:7} "
            f"[worker-{rng.randrange(16)}] {rng.choice(_PLACES)}.pool: {rng.choice(_EVENTS)} "
            f"(attempt {rng.randrange(5)}, {rng.uniform(0, 900):.1f} ms, pid={rng.randrange(300, 70000)})"
        )


def _access(rng: random.Random, lines: int) -> Iterator[str]:
    for second in range(lines):
        yield (
            f"192.168.{rng.randrange(256)}.{rng.randrange(256)} - - [30/Nov/2026:08:15:{second:02} +0000] "
            f'"GET /{rng.choice(_PLACES)}/items/{rng.randrange(99999)}?page={rng.randrange(9)} HTTP/1.1" '
            f'{rng.choice((200, 304, 404, 500))} {rng.randrange(200000)} "-" "curl/8.{rng.randrange(15)}.1"'
        )


if __name__ == "__main__":
    main()
