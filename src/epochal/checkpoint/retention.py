"""Decides from manifests which checkpoints of a run may be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.records.folder.checkpoint_manifests import newest_of_each_step, rank_by_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.records.folder.checkpoint_manifests import CheckpointManifest


def choose_deletions(
    manifests: Sequence[CheckpointManifest],
    *,
    keep_last: int | None,
    keep_best: int = 0,
    keep_regular: bool = False,
) -> list[CheckpointManifest]:
    """The checkpoints that may be deleted, oldest first; the newest always stays.

    A step that was saved again after a resume counts once, so that it replaces no other.

    Args:
        manifests: All committed checkpoints, including the one just written.
        keep_last: How many of the newest stay; None for all.
        keep_best: How many of those with the best monitored values stay.
        keep_regular: Whether to keep the newest one that was not saved at the end of a run.
    """
    ordered = sorted(manifests, key=lambda manifest: manifest.order)
    if keep_last is None:
        return []
    kept = {one.path for one in newest_of_each_step(ordered)[-max(1, keep_last) :]}
    kept |= {manifest.path for manifest in rank_by_score(ordered)[:keep_best]}
    if keep_regular:
        kept |= set([manifest.path for manifest in ordered if manifest.is_regular][-1:])
    return [manifest for manifest in ordered if manifest.path not in kept]
