"""Mean: the average of a tensor over all its elements of all batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.components.metrics.tensor_path import get_tensor_by_path
from epochal.engine.interfaces.metric import Metric
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from torch import Tensor

SOURCES = {"out": "the output", "batch": "the batch"}


@final
class Mean(Metric):
    """The average of one tensor over every element of every batch.

    Args:
        of: The tensor: ``out.<name>`` of the task's output or ``batch.<name>`` of the batch.
    """

    def __init__(self, *, of: str) -> None:
        self._source, _, self._path = of.partition(".")
        if self._source not in SOURCES or not self._path:
            what = f"must be out.<name> or batch.<name>, got {of!r}"
            raise ConfigError(Problem("metrics.of", what, hint=f"try `of: out.{of}`"))
        self._sum: float | Tensor = 0.0
        self._count = 0

    @override
    def reset(self) -> None:
        self._sum = 0.0
        self._count = 0

    @override
    def update(self, out: Any, batch: Any) -> None:  # of any type that the user's task returns
        source = out if self._source == "out" else batch
        tensor = get_tensor_by_path(source, self._path, reader="mean", of=SOURCES[self._source])
        # Apple's devices have no float64; elsewhere it keeps long sums exact.
        wide = tensor.float() if tensor.device.type == "mps" else tensor.double()
        self._sum = self._sum + wide.sum()
        self._count += tensor.numel()

    @override
    def compute(self) -> float:
        return float(self._sum) / self._count if self._count else float("nan")
