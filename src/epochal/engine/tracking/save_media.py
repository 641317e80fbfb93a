"""What a run shows beside numbers: images, figures, sounds and texts go into its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from epochal.records.folder.media import save_media as save

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.run import Run


def save_media(
    run: Run,
    name: str,
    data: object,
    *,
    kind: str = "",
    suffix: str = "",
    step: int | None = None,
) -> Path | None:
    """Keep what the run shows now; see ``epochal.records.folder.media`` for what ``data`` may be.

    A tensor is an image as an array is. Gives the file, or None when the run records nothing.
    """
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu()
        data = (data.float() if data.is_floating_point() else data).numpy()
    step = run.step if step is None else step
    media = save(run.writer, name, data, step=step, kind=kind, suffix=suffix)
    if media is None:
        return None
    for tracker in run.trackers:
        tracker.take_media(media)
    return media.path
