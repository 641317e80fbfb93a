"""Which checkpoints of a run need not be kept, decided from their manifests alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.manifests import rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.records.manifests import Manifest


def choose_deletions(
    manifests: Sequence[Manifest], *, keep_last: int | None, keep_best: int = 0
) -> list[Manifest]:
    """Those that may go, oldest first; the newest one always stays.

    Args:
        manifests: Every committed checkpoint, the one just written among them.
        keep_last: How many of the newest stay; None for all.
        keep_best: How many of those with the best monitored values stay.
    """
    ordered = sorted(manifests, key=lambda manifest: manifest.order)
    if keep_last is None:
        return []
    kept = {manifest.path for manifest in ordered[-max(1, keep_last) :]}
    kept |= {manifest.path for manifest in rank(ordered)[:keep_best]}
    return [manifest for manifest in ordered if manifest.path not in kept]
