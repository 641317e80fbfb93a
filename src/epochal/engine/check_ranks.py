"""Checks that all processes of a run have the same weights."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from epochal.errors import TaskError

if TYPE_CHECKING:
    from torch import nn

    from epochal.engine.run.engine_run import EngineRun

_MAX_NAMED = 3


def check_ranks(run: EngineRun) -> None:
    """Compare a digest of every parameter.

    Raises:
        TaskError: They differ: something changes them in one process only.
    """
    found = run.world.gather(_digest_parameters(run.raw_model))
    different = [name for name in found[0] if any(one.get(name) != found[0][name] for one in found)]
    if not different and all(one.keys() == found[0].keys() for one in found):
        return
    first = different[0] if different else "the model"
    ranks = [str(rank) for rank, one in enumerate(found) if one.get(first) != found[0].get(first)]
    names = ", ".join(different[:_MAX_NAMED]) + (", ..." if len(different) > _MAX_NAMED else "")
    raise TaskError(
        f"engine.check_ranks: after step {run.step} the weights of rank {', '.join(ranks)} "
        f"differ from those of rank 0: {names or 'other parameters'}\n"
        "  a hook or the task changes them with values that only one process has; use "
        "run.world.broadcast, or call the same code in every process"
    )


@torch.no_grad()
def _digest_parameters(model: nn.Module) -> dict[str, str]:
    return {
        name: hashlib.blake2b(
            one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
            digest_size=8,
        ).hexdigest()
        for name, one in model.named_parameters()
    }
