"""Output and evaluation stages: from logits to names, and how many of them are right."""

from __future__ import annotations

from typing import Any

from names.pipes import TAGS


def find_names(samples: dict[str, Any]) -> dict[str, Any]:
    """The names in each sentence of a batch, expected and found, such as ``Oslo (place)``."""
    rows = zip(
        samples["text"], samples["tag"].tolist(), samples["logits"].argmax(2).tolist(), strict=True
    )
    named = [(_names(text, tags), _names(text, found)) for text, tags, found in rows]
    return {
        "id": samples["id"],
        "text": samples["text"],
        "expected": [expected for expected, _ in named],
        "found": [found for _, found in named],
        "wrong": [len({*expected} ^ {*found}) for expected, found in named],
    }


def _names(text: str, tags: list[int]) -> list[str]:
    pairs = zip(text.split(), tags, strict=False)  # tags of padding are at the end
    return [f"{word} ({TAGS[tag]})" for word, tag in pairs if tag]


def score(samples: dict[str, Any]) -> dict[str, float]:
    """F1 of the names in a whole pass."""
    both = sum(
        len({*expected} & {*found})
        for expected, found in zip(samples["expected"], samples["found"], strict=True)
    )
    total = sum(len({*names}) for names in (*samples["expected"], *samples["found"]))
    return {"f1": 2 * both / max(total, 1)}
