"""Mixup and CutMix: training samples mixed from two, with soft targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, final

import torch
from torch import Tensor
from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost
from epochal.engine.interfaces.hook import Hook
from epochal.engine.loss.argument_routes import find_by_path, known_names
from epochal.errors import ConfigError, Problem, TaskError, suggest

if TYPE_CHECKING:
    from epochal.engine.interfaces.run import Run

Batch = Any  # the user's loader decides


class BatchMixer(Hook, ABC):
    """Mixes each training sample and its target with the previous one of the batch.

    Targets become class probabilities, as ``cross_entropy`` accepts them. Random numbers are drawn
    on the device, from the generator of the run: steps can be captured as a CUDA graph, and a
    resumed run draws the same numbers. Metrics of the task see the class with the larger share.
    """

    runners = ("train",)

    def _configure(
        self,
        *,
        alpha: float,
        prob: float,
        input: str | None,
        target: str | None,
        classes: int | None,
    ) -> None:
        self._owner = type(self).__name__
        self._alpha, self._prob = alpha, prob
        self._input, self._target, self._classes = input, target, classes
        self._originals: dict[str, Any] = {}

    @abstractmethod
    def mix(self, inputs: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs mixed with those of the previous sample, and the share that was kept."""

    @override
    def setup(self, run: Run) -> None:
        self._classes = self._classes or _count_classes(run, self._owner)
        alpha = torch.full((), self._alpha, device=run.device)
        self._shares = torch.distributions.Beta(alpha, alpha, validate_args=False)
        before, metric = (
            getattr(run.task, name, None) for name in ("pre_batch_forward", "batch_metric")
        )
        model = run.model

        def pre_batch_forward(batch: Batch) -> Batch:
            batch = batch if before is None else before(batch)
            return self.mix_batch(batch) if model.training else batch

        def batch_metric(out: object, batch: Batch) -> object:
            assert metric is not None
            return metric(out, self._with_classes(batch))

        self._replace(run, "pre_batch_forward", pre_batch_forward)
        if metric is not None:
            self._replace(run, "batch_metric", batch_metric)

    @override
    def teardown(self, run: Run) -> None:
        # The task may serve another run.
        for name, own in reversed(self._originals.items()):
            if own is not None:
                setattr(run.task, name, own)
            elif name in vars(run.task):
                delattr(run.task, name)
        self._originals.clear()

    def mix_batch(self, batch: Batch) -> Batch:
        """A batch of mixed samples."""
        if self._input is None or self._target is None:
            self._find_parts(batch)
        inputs, target = self._pick(batch, self._input), self._pick(batch, self._target)
        share = self._shares.sample().to(inputs.dtype)
        if self._prob < 1:
            is_unmixed = torch.rand((), device=inputs.device) >= self._prob
            share = torch.where(is_unmixed, torch.ones_like(share), share)
        mixed, share = self.mix(inputs, share)
        soft = self._to_probabilities(target, inputs.dtype)
        soft = torch.lerp(soft.roll(1, 0), soft, share.to(soft.dtype))
        changes = {str(self._input): mixed, str(self._target): soft}
        return _with_parts(batch, changes, self._owner)

    def _to_probabilities(self, target: Tensor, dtype: torch.dtype) -> Tensor:
        """Class indices as one-hot rows; class probabilities stay as they are."""
        if target.is_floating_point():
            return target
        classes = torch.arange(self._classes or 0, device=target.device)
        return (target.unsqueeze(1) == classes).to(dtype)

    def _with_classes(self, batch: Batch) -> Batch:
        target = None if self._target is None else find_by_path(batch, (self._target,))
        if isinstance(target, Tensor) and target.shape[1:] == (self._classes,):
            return _with_parts(batch, {str(self._target): target.argmax(dim=1)}, self._owner)
        return batch

    def _replace(self, run: Run, name: str, function: Callable[..., object]) -> None:
        self._originals[name] = vars(run.task).get(name)
        run.replace_task_method(name, function)

    def _pick(self, batch: Batch, path: str | None) -> Tensor:
        found = find_by_path(batch, (str(path),))
        if not isinstance(found, Tensor):
            names = known_names(batch)
            raise TaskError(
                f"{self._owner}: the batch has no tensor {path!r}\n  {suggest(str(path), names)}"
            )
        return found

    def _find_parts(self, batch: Batch) -> None:
        """Find inputs and targets by dtype and shape, if that is unambiguous."""
        tensors = {name: find_by_path(batch, (name,)) for name in known_names(batch)}
        tensors = {name: one for name, one in tensors.items() if isinstance(one, Tensor)}
        floats = [name for name, one in tensors.items() if one.is_floating_point()]
        rows = [name for name in tensors if name not in floats and tensors[name].dim() == 1]
        if not rows:  # another hook may have mixed them already
            rows = [name for name in floats if tensors[name].shape[1:] == (self._classes,)]
            floats = [name for name in floats if name not in rows]
        for attribute, found in (("input", floats), ("target", rows)):
            if getattr(self, f"_{attribute}") is None:
                if len(found) != 1:
                    names = ", ".join(known_names(batch)) or type(batch).__name__
                    what = f"cannot tell which part of the batch this is; the batch has {names}"
                    hint = f"write {attribute}: and one of them"
                    raise ConfigError(Problem(f"{self._owner}.{attribute}", what, hint=hint))
                setattr(self, f"_{attribute}", found[0])


@final
class Mixup(BatchMixer):
    """Each training sample is a weighted mean of two, and so is its target.

    Args:
        alpha: Shares are drawn from Beta(alpha, alpha); small values mix little.
        prob: Share of the batches that are mixed.
        input: Name of the inputs in a batch; the only float tensor if null.
        target: Name of the class indices; the only 1-D integer tensor if null.
        classes: Number of classes; from the task's ``meta["classes"]`` if null.
    """

    def __init__(
        self,
        *,
        alpha: Annotated[float, Above(0)] = 0.2,
        prob: Annotated[float, AtLeast(0), AtMost(1)] = 1.0,
        input: str | None = None,
        target: str | None = None,
        classes: Annotated[int, AtLeast(2)] | None = None,
    ) -> None:
        self._configure(alpha=alpha, prob=prob, input=input, target=target, classes=classes)

    @override
    def mix(self, inputs: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        return torch.lerp(inputs.roll(1, 0), inputs, share), share


@final
class CutMix(BatchMixer):
    """Pastes a rectangle of another image of the batch into each one; mixes targets by area.

    Args:
        alpha: The kept share of the area is drawn from Beta(alpha, alpha).
        prob: Share of the batches that are mixed.
        input: Name of the images (batch, ..., height, width); the only float tensor if null.
        target: Name of the class indices; the only 1-D integer tensor if null.
        classes: Number of classes; from the task's ``meta["classes"]`` if null.
    """

    def __init__(
        self,
        *,
        alpha: Annotated[float, Above(0)] = 1.0,
        prob: Annotated[float, AtLeast(0), AtMost(1)] = 1.0,
        input: str | None = None,
        target: str | None = None,
        classes: Annotated[int, AtLeast(2)] | None = None,
    ) -> None:
        self._configure(alpha=alpha, prob=prob, input=input, target=target, classes=classes)

    @override
    def mix(self, inputs: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        if inputs.dim() < 3:
            raise TaskError(
                f"CutMix: needs images (batch, ..., height, width), got shape "
                f"{tuple(inputs.shape)}\n  use Mixup, or name the images with `input:`"
            )
        length = (1 - share).clamp(min=0).sqrt()
        rows = _inside(inputs.shape[-2], length, inputs)
        columns = _inside(inputs.shape[-1], length, inputs)
        mask = rows.unsqueeze(1) & columns
        kept = 1 - mask.to(share.dtype).mean()  # the actual area, also where the border cuts it
        return torch.where(mask, inputs.roll(1, 0), inputs), kept


def _inside(size: int, length: Tensor, images: Tensor) -> Tensor:
    """A mask of the indices inside the rectangle along one side; its centre is random."""
    indices = torch.arange(size, device=images.device) + 0.5
    centre = torch.rand((), device=images.device) * size
    return (indices - centre).abs() < length.float() * size / 2


def _count_classes(run: Run, owner: str) -> int:
    known = run.meta.get("classes")
    if isinstance(known, int):
        return known
    if known is None:
        what = "the number of classes is unknown"
        hint = 'write classes: 10, or set self.meta["classes"] in the task'
        raise ConfigError(Problem(f"{owner}.classes", what, hint=hint))
    return len(known)


def _with_parts(batch: Batch, parts: Mapping[str, Tensor], owner: str) -> Batch:
    """A copy of the batch with some tensors replaced."""
    if isinstance(batch, Mapping):
        return {**batch, **parts}
    if type(batch) in (list, tuple):
        return type(batch)(parts.get(str(place), one) for place, one in enumerate(batch))
    if hasattr(batch, "_replace"):  # a named tuple
        return batch._replace(**parts)
    raise TaskError(
        f"{owner}: cannot change a batch that is a {type(batch).__name__}\n"
        "  give dicts, tuples or lists, or mix in pre_batch_forward of the task"
    )
