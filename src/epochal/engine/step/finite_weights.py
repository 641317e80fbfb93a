"""Whether the trained weights of a run are finite; asked only where the run waits anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.checkpoint.finite import are_finite
from epochal.engine.optim.parameters import is_uninitialized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from epochal.engine.interfaces.run import Run


def has_finite_weights(run: Run) -> bool:
    """Whether all trained weights, and their averages, are finite; waits for the device.

    Buffers and frozen parameters do not count: a mask may be infinite.
    """
    return are_finite(_trained_weights(run))


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
