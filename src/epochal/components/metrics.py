"""Metrics of an evaluation, besides the task's own; equal to those of torchmetrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, NoReturn, final

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from epochal.engine.interfaces.metric import Metric
from epochal.errors import ConfigError, Problem, TaskError

Average = Literal["macro", "micro", "weighted", "none"]
_IGNORED = -100  # torch's default of ignore_index
_NAN = float("nan")


@final
class Accuracy(Metric):
    """The share of targets that are among the ``topk`` highest scores.

    It is fed with ``logits``, the scores, and ``target``, the class numbers. One score for each
    target is that of class 1 of two, above 0 if class 1 is predicted. Where an optional ``mask``
    is False, nothing counts. The other metrics of classes are fed the same way.

    Args:
        topk: How many of the highest scores count as a hit.
        ignore_index: Targets with this number are left out, as in torch's cross entropy.
        class_dim: The dimension of the classes in ``logits``, such as -1.
    """

    def __init__(self, *, topk: int = 1, ignore_index: int = _IGNORED, class_dim: int = 1) -> None:
        if topk < 1:
            what = f"must be at least 1, got {topk!r}"
            raise ConfigError(Problem("metrics.topk", what, hint="write `topk: 1`"))
        self._topk = topk
        self._ignore_index, self._class_dim = ignore_index, class_dim

    @override
    def update(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        rows = _to_rows("accuracy", logits, target, mask, self._ignore_index, self._class_dim)
        classes = 2 if rows.is_binary else rows.scores.shape[1]
        if self._topk > classes:
            raise TaskError(
                f"accuracy: topk is {self._topk!r}, but logits have {classes} classes\n"
                f"  set topk to at most {classes}"
            )
        if rows.is_binary:
            best = rows.predicted.unsqueeze(1)
        else:
            best = rows.scores.topk(self._topk, dim=1).indices
        hits = (best == rows.target.unsqueeze(1)).any(dim=1) & rows.counted
        self.add(hits=hits.sum(), count=rows.counted.sum(), nans=rows.nans)

    @override
    def compute(self) -> float:
        return _divide_unless_nan(self, "hits", "count")


class ClassScore(Metric, ABC):
    """A score of each class from right and wrong predictions; fed like ``accuracy``.

    Args:
        average: ``macro`` is the mean over the classes that occur; ``micro`` counts all samples
            alike; ``weighted`` weights classes by their targets; ``none`` is a value per class.
            Of two classes with one score, the value is that of class 1.
        ignore_index: Targets with this number are left out, as in torch's cross entropy.
        class_dim: The dimension of the classes in ``logits``, such as -1.
    """

    def __init__(
        self, *, average: Average = "macro", ignore_index: int = _IGNORED, class_dim: int = 1
    ) -> None:
        self._average: Average = average
        self._ignore_index, self._class_dim = ignore_index, class_dim

    @override
    def update(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        owner = type(self).__name__.removesuffix("Score").lower()
        rows = _to_rows(owner, logits, target, mask, self._ignore_index, self._class_dim)
        _add_confusion(self, rows)

    @abstractmethod
    def divide(self, hits: Tensor, targets: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        """The two numbers of each class whose quotient is its score."""

    @override
    def compute(self) -> float | dict[str, float]:
        confusion = _read_confusion(self, type(self).__name__.removesuffix("Score").lower())
        if not confusion.dim() or bool(confusion.isnan().any()):  # no batches, or no numbers
            return _NAN
        hits, targets, predictions = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
        is_binary = int(self.total("binary")) > 0
        if self._average == "micro" and not is_binary:
            hits, targets, predictions = (one.sum() for one in (hits, targets, predictions))
        part, whole = self.divide(hits, targets, predictions)
        values = part / whole.clamp(min=1)
        if is_binary or not values.dim():
            return float(values[1] if is_binary else values)
        if self._average == "none":
            return {str(index): value for index, value in enumerate(values.tolist())}
        weights = targets if self._average == "weighted" else (targets + predictions > 0).double()
        total = float(weights.sum())
        return float((values * weights).sum()) / total if total else _NAN


@final
class PrecisionScore(ClassScore):
    """Of the predictions of each class, the share that is right."""

    @override
    def divide(self, hits: Tensor, targets: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        return hits, predictions


@final
class Recall(ClassScore):
    """Of the targets of each class, the share that is found."""

    @override
    def divide(self, hits: Tensor, targets: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        return hits, targets


@final
class F1(ClassScore):
    """The harmonic mean of precision and recall."""

    @override
    def divide(self, hits: Tensor, targets: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * hits, targets + predictions


@final
class MeanIou(ClassScore):
    """Intersection over union of predicted and target elements, the mean over the classes.

    Targets are usually images (batch, height, width).
    """

    @override
    def divide(self, hits: Tensor, targets: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        return hits, targets + predictions - hits


@final
class ConfusionMatrix(Metric):
    """How often each class, a row, is predicted as each class, a column: a table of the record.

    It is fed like ``accuracy``.

    Args:
        normalize: Divide each row by its sum.
        ignore_index: Targets with this number are left out, as in torch's cross entropy.
        class_dim: The dimension of the classes in ``logits``, such as -1.
    """

    def __init__(
        self, *, normalize: bool = False, ignore_index: int = _IGNORED, class_dim: int = 1
    ) -> None:
        self._normalize = normalize
        self._ignore_index, self._class_dim = ignore_index, class_dim

    @override
    def update(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        rows = _to_rows(
            "confusion_matrix", logits, target, mask, self._ignore_index, self._class_dim
        )
        _add_confusion(self, rows)

    @override
    def compute(self) -> Tensor:
        confusion = _read_confusion(self, "confusion_matrix")
        if not self._normalize:
            return confusion
        return confusion / confusion.sum(dim=1, keepdim=True).clamp(min=1)


@final
class Auroc(Metric):
    """The area under the ROC curve: how often a score of the class is above one of the others.

    It is fed like ``accuracy`` and keeps all scores until the end of the pass. Several classes are
    compared by softmax, each with all others; the value is their mean. Without samples of a
    class, or of any other class, it is not a number.

    Args:
        average: ``none`` gives a value per class.
        ignore_index: Targets with this number are left out, as in torch's cross entropy.
        class_dim: The dimension of the classes in ``logits``, such as -1.
    """

    def __init__(
        self,
        *,
        average: Literal["macro", "none"] = "macro",
        ignore_index: int = _IGNORED,
        class_dim: int = 1,
    ) -> None:
        self._average = average
        self._ignore_index, self._class_dim = ignore_index, class_dim

    @override
    def update(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        rows = _to_rows("auroc", logits, target, mask, self._ignore_index, self._class_dim)
        scores = rows.scores if rows.is_binary else rows.scores.softmax(dim=1)
        self.keep(scores=scores, target=rows.target, counted=rows.counted)
        self.add(nans=rows.nans)

    @override
    def compute(self) -> float | dict[str, float]:
        scores, counted = self.joined("scores"), self.joined("counted").bool()
        if not len(scores) or int(self.total("nans")):
            return _NAN
        scores, target = scores[counted], self.joined("target")[counted]
        if scores.dim() == 1:
            return _area(scores, target == 1)
        areas = [_area(scores[:, one], target == one) for one in range(scores.shape[1])]
        if self._average == "none":
            return {str(one): area for one, area in enumerate(areas)}
        return sum(areas) / len(areas)


@final
class Perplexity(Metric):
    """The exponential of the mean cross entropy per target, usually a token; fed like ``accuracy``.

    Args:
        ignore_index: Targets with this number are left out, as in torch's cross entropy.
        class_dim: The dimension of the classes in ``logits``, such as -1.
    """

    def __init__(self, *, ignore_index: int = _IGNORED, class_dim: int = 1) -> None:
        self._ignore_index, self._class_dim = ignore_index, class_dim

    @override
    def update(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        rows = _to_rows("perplexity", logits, target, mask, self._ignore_index, self._class_dim)
        if rows.is_binary:
            _refuse_shapes("perplexity", logits, target)
        target = rows.target.where(rows.counted, _IGNORED)
        scores = rows.scores.float()
        loss = functional.cross_entropy(scores, target, reduction="none", ignore_index=_IGNORED)
        self.add(loss=_widen(loss).sum(), count=rows.counted.sum(), nans=rows.nans)

    @override
    def compute(self) -> float:
        return float(torch.tensor(_divide_unless_nan(self, "loss", "count")).exp())


@final
class Mae(Metric):
    """The mean absolute error of ``preds`` against ``target``, over all elements.

    Both have the same shape. Where an optional ``mask`` is False, nothing counts.
    """

    @override
    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        error, _, count = _to_errors("mae", preds, target, mask)
        self.add(total=error.abs().sum(), count=count)

    @override
    def compute(self) -> float:
        return _divide(self, "total", "count")


@final
class Rmse(Metric):
    """The root of the mean squared error of ``preds`` against ``target``; fed like ``mae``."""

    @override
    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        error, _, count = _to_errors("rmse", preds, target, mask)
        self.add(total=error.square().sum(), count=count)

    @override
    def compute(self) -> float:
        return float(_divide(self, "total", "count") ** 0.5)


@final
class R2(Metric):
    """The share of the variance of ``target`` that ``preds`` explains; fed like ``mae``.

    Equal targets have no variance: the value is then not a number.
    """

    @override
    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        error, wide, count = _to_errors("r2", preds, target, mask)
        self.add(squares=wide.square().sum(), sum=wide.sum(), count=count)
        self.add(error=error.square().sum())

    @override
    def compute(self) -> float:
        count = float(self.total("count"))
        if not count:
            return _NAN
        variance = float(self.total("squares")) - float(self.total("sum")) ** 2 / count
        return 1 - float(self.total("error")) / variance if variance > 0 else _NAN


@final
class Mean(Metric):
    """The mean of one tensor, ``value``, over all elements, or those where ``mask`` is True."""

    @override
    def update(self, value: Tensor, mask: Tensor | None = None) -> None:
        _require_tensors("mean", value=value)
        counted = _read_mask("mean", mask, value)
        wide = _widen(value)
        self.add(
            total=(wide if counted is None else wide.where(counted, 0)).sum(),
            count=value.numel() if counted is None else counted.sum(),
        )

    @override
    def compute(self) -> float:
        return _divide(self, "total", "count")


class _Rows(NamedTuple):
    """Samples or elements of a batch, one per row."""

    scores: Tensor
    """Of each class, or of class 1 alone."""

    target: Tensor
    counted: Tensor
    """Which rows count."""

    nans: Tensor
    """How many rows that count have a score that is not a number."""

    @property
    def is_binary(self) -> bool:
        return self.scores.dim() == 1

    @property
    def predicted(self) -> Tensor:
        return (self.scores > 0).long() if self.is_binary else self.scores.argmax(dim=1)


def _to_rows(
    owner: str, logits: Tensor, target: Tensor, mask: Tensor | None, ignored: int, class_dim: int
) -> _Rows:
    _require_tensors(owner, logits=logits, target=target)
    target = target.to(logits.device)
    is_binary = logits.shape == target.shape and (logits.dim() != 2 or logits.shape[1] == 1)
    if is_binary or logits.shape == (*target.shape[:1], 1, *target.shape[1:]):
        scores = logits.reshape(-1)
    elif logits.dim() < 2 or not -logits.dim() <= class_dim < logits.dim():
        _refuse_shapes(owner, logits, target)
    else:
        moved = logits.movedim(class_dim, -1)
        if moved.shape[:-1] != target.shape:
            _refuse_shapes(owner, logits, target)
        scores = moved.reshape(-1, moved.shape[-1])
    counted = target != ignored
    masked = _read_mask(owner, mask, target)
    counted = (counted if masked is None else counted & masked).reshape(-1)
    is_nan = scores.isnan() if scores.dim() == 1 else scores.isnan().any(dim=1)
    return _Rows(scores, target.reshape(-1).long(), counted, (is_nan & counted).sum())


def _refuse_shapes(owner: str, logits: Tensor, target: Tensor) -> NoReturn:
    raise TaskError(
        f"{owner}: logits have shape {tuple(logits.shape)} and target has shape "
        f"{tuple(target.shape)}\n"
        "  logits must be (batch, classes, ...) and target class numbers (batch, ...); "
        "class_dim names another dimension of the classes"
    )


def _add_confusion(metric: Metric, rows: _Rows) -> None:
    """Add the pairs of target and prediction; nothing is read from the device."""
    classes = 2 if rows.is_binary else rows.scores.shape[1]
    is_known = (rows.target >= 0) & (rows.target < classes)
    counted = rows.counted & is_known
    pairs = (rows.target * classes + rows.predicted).where(counted, 0)
    flat = torch.zeros(classes * classes, dtype=torch.int64, device=pairs.device)
    flat = flat.scatter_add(0, pairs, counted.long())
    unknown = (rows.counted & ~is_known).sum()
    metric.add(confusion=flat.view(classes, classes), unknown=unknown, nans=rows.nans)
    metric.add(binary=int(rows.is_binary))


def _read_confusion(metric: Metric, owner: str) -> Tensor:
    """Targets by predictions on the host; NaN everywhere if a score was not a number."""
    unknown = int(metric.total("unknown"))
    confusion = metric.total("confusion").cpu().double()
    if unknown:
        raise TaskError(
            f"{owner}: {unknown} targets are not class numbers from 0 to {len(confusion) - 1}\n"
            "  set ignore_index to the number that means no class"
        )
    return confusion * _NAN if int(metric.total("nans")) else confusion


def _area(scores: Tensor, is_class: Tensor) -> float:
    """How often a score of the class is higher than another one; equal ones count half."""
    others, ours = int((~is_class).sum()), int(is_class.sum())
    if not others or not ours:
        return _NAN
    _, group, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    last = sizes.double().cumsum(0)  # the highest rank of each group of equal scores
    ranks = (last - (sizes - 1) / 2)[group]
    above = float(ranks[is_class].sum()) - ours * (ours + 1) / 2
    return above / (ours * others)


def _to_errors(
    owner: str, preds: Tensor, target: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | int]:
    """Differences and targets, 0 where the mask is False, and how many count."""
    _require_tensors(owner, preds=preds, target=target)
    if preds.shape != target.shape:
        raise TaskError(
            f"{owner}: preds have shape {tuple(preds.shape)} and target has shape "
            f"{tuple(target.shape)}\n  give both the same shape, for example with squeeze(1)"
        )
    wide = _widen(target.to(preds.device))
    error = _widen(preds) - wide
    counted = _read_mask(owner, mask, preds)
    if counted is None:
        return error, wide, error.numel()
    return error.where(counted, 0), wide.where(counted, 0), counted.sum()


def _read_mask(owner: str, mask: Tensor | None, like: Tensor) -> Tensor | None:
    """The mask with one element per value; a mask of samples applies to all values of a sample."""
    if mask is None:
        return None
    _require_tensors(owner, mask=mask)
    mask = mask.to(like.device).bool()
    if mask.shape != like.shape[: mask.dim()]:
        raise TaskError(
            f"{owner}: mask has shape {tuple(mask.shape)}, the values have shape "
            f"{tuple(like.shape)}\n  give one element for each value, or one for each sample"
        )
    return mask.reshape(*mask.shape, *(1,) * (like.dim() - mask.dim())).expand(like.shape)


def _widen(value: Tensor) -> Tensor:
    # Apple's devices have no float64; elsewhere it keeps long sums exact.
    return value.float() if value.device.type == "mps" else value.double()


def _divide(metric: Metric, total: str, count: str) -> float:
    number = float(metric.total(count))
    return float(metric.total(total)) / number if number else _NAN


def _divide_unless_nan(metric: Metric, total: str, count: str) -> float:
    return _NAN if int(metric.total("nans")) else _divide(metric, total, count)


def _require_tensors(metric: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            what = f"{metric}: {name} is a {type(value).__name__}, not a tensor"
            raise TaskError(f"{what}\n  name the entry of it that is the tensor under `inputs:`")
