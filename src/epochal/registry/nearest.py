"""The known name that a misspelt one most likely meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name closest to ``name``, if one is close enough; case does not count."""
    close = nearest_few(name, known, 1, cutoff=cutoff)
    return close[0] if close else None


def nearest_few(
    name: str, known: Iterable[str], count: int, *, cutoff: float = 0.6
) -> tuple[str, ...]:
    """The closest known names that are close enough, the closest first."""
    import difflib

    folded = {candidate.casefold(): candidate for candidate in sorted(set(known))}
    close = difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=cutoff)
    return tuple(folded[found] for found in close)


def misspelling_of(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` misspells: the same words, of which any is one slip away.

    Stricter than ``nearest``, for where a name that is merely similar is nobody's mistake:
    ``batch_metrics`` misspells ``batch_metric``, but ``batch_loss_fn`` has a word more.
    """
    words = _words(name)
    meant = [other for other in known if _is_slip(words, _words(other))]
    return nearest(name, meant, cutoff=0.0)


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")


def _is_slip(written: list[str], meant: list[str]) -> bool:
    if written == meant or len(written) != len(meant):
        return "".join(written) == "".join(meant)
    if len(meant) == 1 and written[0] == f"{meant[0]}s":
        return False  # the plural of a single word is a word of its own
    pairs = zip(written, meant, strict=True)
    return all(one == other or _is_one_slip(one, other) for one, other in pairs)


def _is_one_slip(written: str, meant: str) -> bool:
    """Whether one letter is missing, added or another, or two neighbours changed places."""
    shorter = min(len(written), len(meant))
    start = 0
    while start < shorter and written[start] == meant[start]:
        start += 1
    end = 0
    while end < shorter - start and written[-1 - end] == meant[-1 - end]:
        end += 1
    one, other = written[start : len(written) - end], meant[start : len(meant) - end]
    if len(one) == 2 and one == other[::-1]:
        return True
    is_replaced = len(one) == len(other) == 1
    # Short words are one letter away from many others.
    return shorter > 3 if is_replaced else shorter > 2 and len(one) + len(other) == 1
