"""The known name that a misspelt one most likely meant."""

from __future__ import annotations

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
