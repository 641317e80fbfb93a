"""Loads the weights of a run or file into a model that exists already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.checkpoint.run_weights import choose_run_weights
from epochal.checkpoint.weights import init_weights
from epochal.experiment.resume.resume_plan import get_trained_record
from epochal.records.layout.run_folders import is_run_folder
from epochal.registry.project_file import get_runs_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from epochal.checkpoint.weights import Ema, WeightMismatch


def recover(
    model: nn.Module,
    source: Path | str,
    *,
    weights: str | int | None = None,
    try_ema: Ema = True,
    strict: bool = True,
    exclude: Sequence[str] = (),
    runs_dir: Path | str | None = None,
) -> WeightMismatch:
    """Load trained weights into a model, all or none; returns the names that did not match.

    Args:
        model: Its weights are replaced, in its own number format and on its own device.
        source: A file with weights, the folder of a checkpoint, or a run: its folder, its id or a
            part of it, or ``last``.
        weights: Which ones of a run, as in ``ep.load``: by default the best, without a monitor
            the final ones.
        try_ema: Take averaged weights if there are any, else its own ones with a warning;
            ``"required"`` fails without them.
        strict: Whether all names must match.
        exclude: Patterns of names to skip, such as ``head.*``.
        runs_dir: Where ids are looked up; by default the folder of the project's runs.

    Raises:
        RecordError: There is no such run.
        CheckpointError: It has no weights, or they do not fit the model.
    """
    path = Path(source).expanduser()
    if is_run_folder(path) or (not path.exists() and not path.suffix):
        record = get_trained_record(source, get_runs_dir(runs_dir))
        path = choose_run_weights(record, weights).path
    return init_weights(model, path, exclude=exclude, strict=strict, try_ema=try_ema)
