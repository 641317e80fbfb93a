"""Saves images, figures, audio and texts of a run in its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from epochal.records.folder.media import save_media as save

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.run.engine_run import EngineRun


def save_media(
    run: EngineRun,
    name: str,
    data: object,
    *,
    kind: str = "",
    suffix: str = "",
    step: int | None = None,
) -> Path | None:
    """Save media in the record; returns the file, or None if the run has no record.

    ``epochal.records.folder.media`` lists what ``data`` may be; tensors are treated as arrays.
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
