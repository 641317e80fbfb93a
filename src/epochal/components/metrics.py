"""Metrics of an evaluation, besides the task's own."""

from __future__ import annotations

from typing import final

from torch import Tensor
from typing_extensions import override

from epochal.engine.interfaces.metric import Metric
from epochal.errors import ConfigError, Problem, TaskError


@final
class Accuracy(Metric):
    """The share of targets that are among the ``topk`` highest scores.

    It is fed with ``logits``, the scores, whose classes are along dimension 1, and ``target``,
    the class numbers.

    Args:
        topk: How many of the highest scores count as a hit.
        ignore_index: Targets with this number are left out, as in torch's cross entropy.
    """

    def __init__(self, *, topk: int = 1, ignore_index: int = -100) -> None:
        if topk < 1:
            what = f"must be at least 1, got {topk!r}"
            raise ConfigError(Problem("metrics.topk", what, hint="write `topk: 1`"))
        self._topk = topk
        self._ignore_index = ignore_index
        self._hits: int | Tensor = 0
        self._count: int | Tensor = 0

    @override
    def reset(self) -> None:
        self._hits = 0
        self._count = 0

    @override
    def update(self, logits: Tensor, target: Tensor) -> None:
        _require_tensors("accuracy", logits=logits, target=target)
        target = target.to(logits.device)
        self._check(logits, target)
        best = logits.topk(self._topk, dim=1).indices
        counted = target != self._ignore_index
        hits = (best == target.unsqueeze(1)).any(dim=1) & counted
        # The sums stay on the device, so no batch waits for it.
        self._hits = self._hits + hits.sum()
        self._count = self._count + counted.sum()

    @override
    def merge(self, other: Metric) -> None:
        assert isinstance(other, Accuracy)
        self._hits = self._hits + other._hits
        self._count = self._count + other._count

    @override
    def compute(self) -> float:
        count = int(self._count)
        return int(self._hits) / count if count else float("nan")

    def _check(self, logits: Tensor, target: Tensor) -> None:
        expected = (logits.shape[0], *logits.shape[2:]) if logits.dim() > 1 else ()
        if logits.dim() < 2 or tuple(target.shape) != expected:
            raise TaskError(
                f"accuracy: logits have shape {tuple(logits.shape)} and "
                f"target has shape {tuple(target.shape)}\n"
                "  logits must be (batch, classes, ...) and target class numbers (batch, ...)"
            )
        if self._topk > logits.shape[1]:
            raise TaskError(
                f"accuracy: topk is {self._topk!r}, but logits have "
                f"{logits.shape[1]} classes\n  set topk to at most {logits.shape[1]}"
            )


@final
class Mean(Metric):
    """The average of one tensor, ``value``, over every element of every batch."""

    def __init__(self) -> None:
        self._sum: float | Tensor = 0.0
        self._count = 0

    @override
    def reset(self) -> None:
        self._sum = 0.0
        self._count = 0

    @override
    def update(self, value: Tensor) -> None:
        _require_tensors("mean", value=value)
        # Apple's devices have no float64; elsewhere it keeps long sums exact.
        wide = value.float() if value.device.type == "mps" else value.double()
        self._sum = self._sum + wide.sum()
        self._count += value.numel()

    @override
    def merge(self, other: Metric) -> None:
        assert isinstance(other, Mean)
        self._sum = self._sum + other._sum
        self._count += other._count

    @override
    def compute(self) -> float:
        return float(self._sum) / self._count if self._count else float("nan")


def _require_tensors(metric: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            what = f"{metric}: {name} is a {type(value).__name__}, not a tensor"
            raise TaskError(f"{what}\n  name the entry of it that is the tensor under `inputs:`")
