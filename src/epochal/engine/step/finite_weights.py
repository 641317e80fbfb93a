"""Checks whether the trained weights of a run are finite; waits for the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.checkpoint.finite import are_finite
from epochal.distributed.sharded_tensor import get_own_part, is_sharded
from epochal.engine.optim.select_parameters import is_uninitialized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from epochal.engine.interfaces.run import Run


def has_finite_weights(run: Run) -> bool:
    """Whether all trained weights, and their averages, are finite; waits for the device.

    If each process has a part of them, all must call it together.

    Buffers and frozen parameters do not count: a mask may be infinite.
    """
    weights = list(_trained_weights(run))
    found = are_finite(map(get_own_part, weights))
    return all(run.world.gather(found)) if any(map(is_sharded, weights)) else found


def _trained_weights(run: Run) -> Iterator[Tensor]:
    trained = {
        name: one
        for name, one in run.model.named_parameters()
        if one.requires_grad and not is_uninitialized(one)
    }
    yield from trained.values()
    if run.average is not None:
        averaged = run.average.state_tensors()
        yield from (averaged[name] for name in trained if name in averaged)
