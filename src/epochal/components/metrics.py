"""Metrics of an evaluation, besides the task's own."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor
from typing_extensions import override

from epochal.engine.interfaces.metric import Metric
from epochal.engine.loss.loss import find_by_path, find_missing_name
from epochal.errors import ConfigError, Problem, TaskError, suggest


@final
class Accuracy(Metric):
    """The share of targets that are among the ``topk`` highest scores.

    Args:
        output: Where the scores are in the task's output; classes lie along dimension 1.
        target: Where the class numbers are in the batch.
        topk: How many of the highest scores count as a hit.
        ignore_index: Targets with this number are left out, as in torch's cross entropy.
    """

    def __init__(
        self,
        *,
        output: str = "logits",
        target: str = "label",
        topk: int = 1,
        ignore_index: int = -100,
    ) -> None:
        if topk < 1:
            what = f"must be at least 1, got {topk!r}"
            raise ConfigError(Problem("metrics.topk", what, hint="write `topk: 1`"))
        self._output = output
        self._target = target
        self._topk = topk
        self._ignore_index = ignore_index
        self._hits: int | Tensor = 0
        self._count: int | Tensor = 0

    @override
    def reset(self) -> None:
        self._hits = 0
        self._count = 0

    @override
    def update(self, out: Any, batch: Any) -> None:  # of any type that the user's task returns
        scores = get_tensor_by_path(out, self._output, reader="accuracy", of="the output")
        target = get_tensor_by_path(batch, self._target, reader="accuracy", of="the batch").to(
            scores.device
        )
        self._check(scores, target)
        best = scores.topk(self._topk, dim=1).indices
        counted = target != self._ignore_index
        hits = (best == target.unsqueeze(1)).any(dim=1) & counted
        # The sums stay on the device, so no batch waits for it.
        self._hits = self._hits + hits.sum()
        self._count = self._count + counted.sum()

    @override
    def compute(self) -> float:
        count = int(self._count)
        return int(self._hits) / count if count else float("nan")

    def _check(self, scores: Tensor, target: Tensor) -> None:
        expected = (scores.shape[0], *scores.shape[2:]) if scores.dim() > 1 else ()
        if scores.dim() < 2 or tuple(target.shape) != expected:
            raise TaskError(
                f"accuracy: {self._output!r} has shape {tuple(scores.shape)} and "
                f"{self._target!r} has shape {tuple(target.shape)}\n"
                "  scores must be (batch, classes, ...) and targets class numbers (batch, ...)"
            )
        if self._topk > scores.shape[1]:
            raise TaskError(
                f"accuracy: topk is {self._topk!r}, but {self._output!r} has "
                f"{scores.shape[1]} classes\n  set topk to at most {scores.shape[1]}"
            )


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


def get_tensor_by_path(source: object, path: str, *, reader: str, of: str) -> Tensor:
    """The tensor at a path such as ``logits``, ``boxes.score`` or ``1`` in an output or a batch.

    ``reader``, the metric, and ``of``, the name of the source, are for the error message.
    """
    value = find_by_path(source, path.split("."))
    if value is None:
        name, known = find_missing_name(source, path.split("."))
        what = f"{reader}: no {path!r} in {of}, which is a {type(source).__name__}"
        hint = suggest(name, known) or "name a key, an attribute or a position of it"
        raise TaskError(f"{what}\n  {hint}")
    if not isinstance(value, Tensor):
        what = f"{reader}: {path!r} in {of} is a {type(value).__name__}, not a tensor"
        raise TaskError(f"{what}\n  name the entry of {of} that is the tensor")
    return value
