"""The number of machines of one run: ``2``, or a range such as ``1:3``."""

from __future__ import annotations


def parse_nodes(value: int | str) -> tuple[int, int]:
    """The least and the largest number of machines: ``2``, or ``1:3``.

    Raises:
        ValueError: The value is neither; the message says why.
    """
    words = str(value).split(":")
    if len(words) > 2 or not all(word.isascii() and word.isdecimal() for word in words):
        raise ValueError(f"must be a number of machines, or a range such as 1:3, got {value!r}")
    first, last = int(words[0]), int(words[-1])
    if first < 1:
        raise ValueError(f"must be at least 1, got {value!r}")
    if last < first:
        raise ValueError(f"the largest number comes last, got {value!r}")
    return first, last
