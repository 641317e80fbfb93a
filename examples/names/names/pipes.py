"""Data pipes: from lines such as ``Ada/person lives in Oslo/place`` to numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

TAGS = ("other", "person", "place")


def open_lines(path: str) -> Iterator[str]:
    """The lines of a file."""
    with Path(path).open(encoding="utf-8") as file:
        yield from file


def parse(line: str) -> dict[str, Any]:
    """The words of a line and their tags."""
    pairs = [word.partition("/") for word in line.split()]
    return {
        "words": [word for word, _, _ in pairs],
        "tags": [tag or "other" for _, _, tag in pairs],
    }


def is_short(sample: dict[str, Any], most: int = 12) -> bool:
    """Whether a sentence has no more than ``most`` words."""
    return len(sample["words"]) <= most


def encode(sample: dict[str, Any], vocab: int = 512) -> dict[str, Any]:
    """Arrays of one number per word; 0 is left for padding."""
    words = sample["words"]
    return {
        "text": " ".join(words),
        "word": np.array([1 + crc32(word.encode()) % (vocab - 1) for word in words]),
        "is_upper": np.array([word[0].isupper() for word in words], dtype=np.float32),
        "tag": np.array([TAGS.index(tag) for tag in sample["tags"]]),
    }
