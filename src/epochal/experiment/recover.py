"""Loads the weights of a run or file into a model that exists already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.checkpoint.weights import init_weights
from epochal.records import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from epochal.checkpoint.weights import Ema, WeightMismatch


def recover(
    model: nn.Module,
    source: Path | str,
    *,
    try_ema: Ema = True,
    strict: bool = True,
    exclude: Sequence[str] = (),
    runs_dir: Path | str = "runs",
) -> WeightMismatch:
    """Load trained weights into a model, all or none; returns the names that did not match.

    Args:
        model: Its weights are replaced, in its own number format and on its own device.
        source: A file with weights, the folder of a checkpoint, or a run: its folder, its id or a
            part of it, or ``last``. Of a run the weights at its end are taken, or those of its
            newest checkpoint if it has not ended.
        try_ema: Take averaged weights if there are any, else its own ones with a warning;
            ``"required"`` fails without them.
        strict: Whether all names must match.
        exclude: Patterns of names to skip, such as ``head.*``.
        runs_dir: Where ids are looked up.

    Raises:
        RecordError: There is no such run.
        CheckpointError: It has no weights, or they do not fit the model.
    """
    path = Path(source).expanduser()
    if not path.exists() and not path.suffix:
        path = read_run(str(source), Path(runs_dir)).path
    return init_weights(model, path, exclude=exclude, strict=strict, try_ema=try_ema)
