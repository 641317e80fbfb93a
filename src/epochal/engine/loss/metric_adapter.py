"""Metrics of other libraries and plain functions, fed with parts of output and batch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

import torch
from torch import Tensor
from typing_extensions import override

from epochal.engine.interfaces.metric import Metric
from epochal.engine.interfaces.splits import split_name
from epochal.engine.loss.argument_routes import ArgumentRoutes, function_name, read_parameters
from epochal.errors import EpochalError, Place, TaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from epochal.engine.interfaces.task import Batch, Output

AnyMetric = Any  # an object with update, compute and reset, or a function

_METHODS = ("reset", "update", "compute")


def adapt_metric(
    metric: AnyMetric,
    *,
    inputs: Mapping[str, str] | None = None,
    key: str = "metrics",
    place: Place | None = None,
) -> Metric:
    """A metric that takes output and batch; the object itself if it does so already."""
    if isinstance(metric, Metric) and not inputs:
        is_adapter = isinstance(metric, MetricAdapter)
        if is_adapter or read_parameters(metric.update)[0] == ["out", "batch"]:
            return metric
    return MetricAdapter(metric, inputs=inputs, key=key, place=place)


@final
class MetricAdapter(Metric):
    """Feeds a metric with parts of output and batch: one of torchmetrics, or any callable.

    A metric object has ``update``, ``compute`` and ``reset``. A function returns a number for a
    batch, or that and a count; the metric is its mean over all batches, weighted by the count.

    Args:
        metric: The object or function.
        inputs: The path of each argument, such as ``{"preds": "out.logits", "target":
            "batch.label"}``. Missing ones are found by name, if that is unambiguous.
        name: The name of its values; by default that of the class or function.
        on: The splits on which it is computed; by default the metric's own, or val and test.
        key: Its key in the config, for messages.
        place: Its place in the config file, for messages.
    """

    def __init__(
        self,
        metric: AnyMetric,
        *,
        inputs: Mapping[str, str] | None = None,
        name: str | None = None,
        on: Sequence[str] | None = None,
        key: str = "metrics",
        place: Place | None = None,
    ) -> None:
        owner = function_name(metric)
        self._label = f"{key}: {owner}"
        self._fail = partial(_fail, self._label)
        is_object = all(callable(getattr(metric, method, None)) for method in _METHODS)
        if not is_object and not callable(metric):
            self._fail(
                "is not a metric", "give an object with update, compute and reset, or a function"
            )
        called = metric.update if is_object else metric
        self._routes = ArgumentRoutes(called, inputs, owner=owner, key=key, place=place)
        self.metric: AnyMetric = metric if is_object else _BatchMean(metric, self._fail)
        """The object that is fed."""

        self._is_object = is_object
        self.name = name or owner.rpartition(".")[2].lower()
        own = getattr(metric, "on", None) or Metric.on
        self.on = tuple(split_name(split) for split in (own if on is None else on))
        if not self._routes.needed and not inputs and is_object:
            hint = "write for example inputs: {preds: out.logits, target: batch.label}"
            self._fail("has no readable signature", hint)

    def to(self, device: torch.device) -> None:
        """Move the metric to a device, if it can be moved."""
        if callable(getattr(self.metric, "to", None)):
            self.metric.to(device)

    @override
    def reset(self) -> None:
        self.metric.reset()

    @override
    def update(self, out: Output, batch: Batch) -> None:
        arguments = self._routes.read(out, batch)
        try:
            if self._is_object:
                self.metric.update(**arguments)
            else:
                self.metric.update(arguments, self._routes.count(arguments, batch))
        except Exception as error:
            raise self._noted(error, "fed") from error.__cause__

    @override
    def compute(self) -> float | Tensor | dict[str, float]:
        try:
            value = self.metric.compute()
        except Exception as error:
            raise self._noted(error, "computed") from error.__cause__
        numbers: float | Tensor | dict[str, float] = self._to_numbers(value)
        return numbers

    def _noted(self, error: Exception, verb: str) -> Exception:
        """The error of a foreign metric, with the metric of the config that raised it."""
        if not isinstance(error, EpochalError):
            error.add_note(f"{self._label} raised this while it was {verb}")
        return error

    @override
    def merge(self, other: MetricAdapter) -> None:
        if callable(getattr(self.metric, "merge", None)):
            self.metric.merge(other.metric)
        elif hasattr(self.metric, "metric_state"):
            _TorchmetricsState(self.metric).merge(other.metric)
        else:
            what = "has no method merge, so processes cannot join its batches"
            self._fail(what, "write def merge(self, other) in its class")

    @property
    def state_part(self) -> object:
        """The object whose state goes into checkpoints."""
        is_torchmetrics = hasattr(self.metric, "metric_state")
        return _TorchmetricsState(self.metric) if is_torchmetrics else self.metric

    def _to_numbers(self, value: Any) -> Any:  # noqa: ANN401 - what a foreign metric returns
        """The value with each entry of a vector or a mapping under its own name."""
        if isinstance(value, Mapping):
            found: dict[str, Any] = {}
            for key, part in value.items():
                numbers = self._to_numbers(part)
                is_several = isinstance(numbers, dict)
                found |= (
                    {f"{key}/{name}": one for name, one in numbers.items()}
                    if is_several
                    else {str(key): numbers}
                )
            return found
        if isinstance(value, Tensor) and value.dim() == 1 and len(value) != 1:
            return {str(index): one for index, one in enumerate(value.tolist())}
        if isinstance(value, Tensor) and value.numel() == 1:
            return value.item()
        if isinstance(value, Tensor) and value.dim() == 2:
            return value
        if isinstance(value, list | tuple | Tensor):
            shape = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else "several parts"
            what = f"computes a {type(value).__name__} of {shape}, not a number"
            self._fail(what, "use a metric of one number, one number per class, or a matrix")
        return value


def find_unmergeable(metrics: Mapping[str, Metric]) -> str:
    """The name of a metric that cannot merge the batches of several processes; empty if none."""
    return next((name for name, metric in metrics.items() if not _can_merge(metric)), "")


def _can_merge(metric: AnyMetric) -> bool:
    if isinstance(metric, MetricAdapter):
        return hasattr(metric.metric, "metric_state") or _can_merge(metric.metric)
    if isinstance(metric, Metric):
        kind = type(metric)
        return kind.merge is not Metric.merge or kind.reset is Metric.reset
    return callable(getattr(metric, "merge", None))


def merge_metric(
    metric: Metric, states: Sequence[Any], load: Callable[[Metric, Any], None]
) -> None:
    """Give a metric the batches of several processes, by rank.

    ``load`` puts a metric into a state.
    """
    load(metric, states[0])
    for state in states[1:]:
        other = copy.deepcopy(metric)
        load(other, state)
        metric.merge(other)


@final
class _BatchMean:
    """The mean of a function over all batches, weighted by their counts."""

    def __init__(self, function: Callable[..., Any], fail: Callable[[str, str], NoReturn]) -> None:
        self._function, self._fail = function, fail
        self.reset()

    def reset(self) -> None:
        self._sum: float | Tensor = 0.0
        self._count: float | Tensor = 0

    def update(self, arguments: Mapping[str, Any], size: int | None) -> None:
        value, count = self._function(**arguments), size
        if isinstance(value, tuple) and len(value) == 2:
            value, count = value
        if count is None:
            what = "returned no count, and the batch has no known size"
            self._fail(what, "return (value, count)")
        if isinstance(value, Tensor):
            if value.numel() != 1:
                what = f"returned a tensor of shape {tuple(value.shape)}, not one number"
                self._fail(what, "reduce it, for example with .mean()")
            # Apple's devices have no float64; elsewhere it keeps long sums exact.
            value = value.float() if value.device.type == "mps" else value.double()
        elif not isinstance(value, int | float):
            what = f"returned {value!r}, not a number"
            self._fail(what, "return a number, or (number, count)")
        # Sums of tensors stay on the device, so no batch waits for it.
        self._sum = self._sum + value * count
        self._count = self._count + count

    def compute(self) -> float:
        count = float(self._count)
        return float(self._sum) / count if count else float("nan")

    def merge(self, other: _BatchMean) -> None:
        self._sum = self._sum + other._sum
        self._count = self._count + other._count


@final
class _TorchmetricsState:
    """The state of a metric of torchmetrics, whose own ``state_dict`` is empty by default.

    A collection has that of each of its metrics.
    """

    def __init__(self, metric: AnyMetric) -> None:
        self._metric = metric

    def _find_members(self) -> dict[str, _TorchmetricsState] | None:
        is_collection = not hasattr(self._metric, "_update_count")
        members = self._metric.items(keep_base=True) if is_collection else ()
        return {name: _TorchmetricsState(one) for name, one in members} or None

    def state_dict(self) -> dict[str, Any]:
        members = self._find_members()
        if members is not None:
            return {name: member.state_dict() for name, member in members.items()}
        states = dict(self._metric.metric_state)
        return {"states": states, "updates": self._metric._update_count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        members = self._find_members()
        if members is not None:
            for name, member in members.items():
                member.load_state_dict(state[name])
            return
        device = self._metric.device
        for name, value in state["states"].items():
            is_list = isinstance(value, list)
            moved = [one.to(device) for one in value] if is_list else value.to(device)
            setattr(self._metric, name, moved)
        self._metric._update_count = state["updates"]
        self._metric._computed = None

    def merge(self, other: AnyMetric) -> None:
        """Add the batches of another metric of the same class."""
        members = self._find_members()
        for name, member in (members or {}).items():
            member.merge(other[name])
        if members is None and other._update_count:
            if self._metric._update_count:
                self._metric.merge_state(other)
                self._metric._computed = None
            else:  # it has nothing to add them to yet
                self.load_state_dict(_TorchmetricsState(other).state_dict())


def _fail(owner: str, what: str, hint: str) -> NoReturn:
    raise TaskError(f"{owner} {what}\n  {hint}")
