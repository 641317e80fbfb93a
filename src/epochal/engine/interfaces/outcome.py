"""The outcome of a batch: its output, losses and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from torch import Tensor

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch, Output
    from epochal.engine.measure.sums import Number, Weighted


@final
@dataclass(slots=True)
class Outcome:
    """One batch with its output, losses and metrics."""

    batch: Batch
    """The batch that the model got: moved, cast and after ``pre_batch_forward``."""

    out: Output
    losses: dict[str, Weighted] = field(default_factory=dict)
    metrics: dict[str, Weighted] = field(default_factory=dict)

    @property
    def loss(self) -> Tensor:
        """The loss to back-propagate."""
        loss = self.losses["loss"][0]
        assert isinstance(loss, Tensor)
        return loss

    @property
    def count(self) -> Number:
        """The number of items over which the loss is a mean."""
        return self.losses["loss"][1]
