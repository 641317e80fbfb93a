"""Initialises the weights of a model from a file, a checkpoint or a run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from epochal.checkpoint.checkpoint_folder import read_checkpoint
from epochal.checkpoint.weights import (
    WeightMismatch,
    apply_tensors,
    load_weights,
    replace_tensors,
)
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import MANIFEST_FILE, find_newest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor, nn

logger = logging.getLogger(__name__)

FINAL_WEIGHTS_FILE = "final.safetensors"
"""The weights at the end of training."""

AVERAGED_WEIGHTS_FILE = "final-ema.safetensors"
"""The averaged weights, if any."""

_SHOWN = 20

Ema = bool | Literal["required"]


def init_weights(
    model: nn.Module,
    path: Path,
    *,
    exclude: Sequence[str] = (),
    strict: bool = True,
    try_ema: Ema = False,
) -> WeightMismatch:
    """Load the weights at ``path`` into a model; logs and gives what did not match.

    Args:
        model: The model.
        path: A safetensors file, a file of ``torch.save``, a checkpoint folder, or a run folder.
        exclude: Patterns of names to skip, such as ``head.*``.
        strict: Whether all other names must match.
        try_ema: Use averaged weights if there are any; ``required`` fails without them.

    Raises:
        CheckpointError: There are no weights, or they do not fit the model.
    """
    tensors, source = load_weights_from(path, try_ema=try_ema)
    mismatch = apply_tensors(model, tensors, source, strict=strict, exclude=exclude)
    total = len(model.state_dict())
    logger.info("init_from: %d of %d tensors from %s", mismatch.num_loaded, total, source)
    for what, names in (("kept as built", mismatch.missing), ("not used", mismatch.unexpected)):
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            logger.warning("init_from: %s: %s%s", what, ", ".join(names[:_SHOWN]), more)
    return mismatch


def load_weights_from(path: Path, *, try_ema: Ema = False) -> tuple[dict[str, Tensor], Path]:
    """The weights at ``path`` by name, and their file or folder.

    Raises:
        CheckpointError: There are none, or no averaged ones when required.
    """
    if not path.is_dir():
        return _read_file(path, try_ema)
    if (path / MANIFEST_FILE).exists():
        return _read_checkpoint(path, try_ema)
    folder = path / "checkpoints"
    if (folder / FINAL_WEIGHTS_FILE).is_file():
        return _read_file(folder / FINAL_WEIGHTS_FILE, try_ema)
    found, damaged = find_newest_checkpoint(folder)
    for damage in damaged:
        logger.warning("%s", damage)
    if found is None:
        raise CheckpointError(
            f"{path}: neither a run that has weights nor a checkpoint\n"
            "  name the folder of a run, one of its checkpoints, or a .safetensors or .pt file"
        )
    return _read_checkpoint(found.path, try_ema)


def _read_file(path: Path, try_ema: Ema) -> tuple[dict[str, Tensor], Path]:
    averaged = path.with_name(AVERAGED_WEIGHTS_FILE)
    if try_ema and path.name == FINAL_WEIGHTS_FILE and averaged.is_file():
        return load_weights(averaged), averaged
    if try_ema and path.name != AVERAGED_WEIGHTS_FILE:
        _report_missing_average(path, try_ema)
    return load_weights(path), path


def _read_checkpoint(path: Path, try_ema: Ema) -> tuple[dict[str, Tensor], Path]:
    state, _ = read_checkpoint(path)
    weights: dict[str, Tensor] = state["model"]["weights"]
    average = state.get("average")
    if try_ema and average:
        weights = replace_tensors(weights, average)
    elif try_ema:
        _report_missing_average(path, try_ema)
    return weights, path


def _report_missing_average(path: Path, try_ema: Ema) -> None:
    if try_ema == "required":
        raise CheckpointError(
            f"{path}: has no averaged weights\n  take the others with try_ema: true, or false"
        )
    logger.warning("%s: has no averaged weights; its own ones are taken", path)
