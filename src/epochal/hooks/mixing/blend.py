"""Batches in which each sample meets the one before it, and targets that are shares of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from epochal.engine.pick import known_names, pick
from epochal.errors import ConfigError, Problem, TaskError, suggest

if TYPE_CHECKING:
    from epochal.engine.run import Run

Batch = Any  # whatever the user's loader gives
Mix = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # inputs, share -> inputs, share kept


@final
class Blend:
    """Wraps a task's ``pre_batch_forward`` so that training batches are mixed on their device.

    Every random number is a tensor drawn there, from the generator of the run: steps can be
    captured, and a run that goes on draws what it would have drawn. Metrics of the task see the
    class with the larger share.

    Args:
        owner: The hook, for messages.
        mix: Mixes inputs with those of the sample before; gives the share that was kept.
        alpha: Of the Beta distribution that shares come from; small ones mix little.
        prob: How many of the batches are mixed.
        input: Where inputs are in a batch; the only tensor of floats if None.
        target: Where class numbers are; the only row of integers if None.
        classes: How many classes there are; by ``meta["classes"]`` of the task if None.
    """

    def __init__(
        self,
        owner: str,
        mix: Mix,
        *,
        alpha: float,
        prob: float,
        input: str | None,
        target: str | None,
        classes: int | None,
    ) -> None:
        self._owner, self._mix = owner, mix
        self._alpha, self._prob = alpha, prob
        self._input, self._target, self._classes = input, target, classes
        self._kept: dict[str, Any] = {}

    def install(self, run: Run) -> None:
        """Change the methods of the run's task."""
        self._classes = self._classes or _count_classes(run, self._owner)
        alpha = torch.full((), self._alpha, device=run.device)
        self._shares = torch.distributions.Beta(alpha, alpha, validate_args=False)
        before, metric = (
            getattr(run.task, name, None) for name in ("pre_batch_forward", "batch_metric")
        )
        model = run.model

        def pre_batch_forward(batch: Batch) -> Batch:
            batch = batch if before is None else before(batch)
            return self.blend(batch) if model.training else batch

        def batch_metric(out: object, batch: Batch) -> object:
            assert metric is not None
            return metric(out, self._with_classes(batch))

        self._replace(run, "pre_batch_forward", pre_batch_forward)
        if metric is not None:
            self._replace(run, "batch_metric", batch_metric)

    def uninstall(self, run: Run) -> None:
        """Give the task its own methods back; it may serve another run."""
        for name, own in reversed(self._kept.items()):
            if own is not None:
                setattr(run.task, name, own)
            elif name in vars(run.task):
                delattr(run.task, name)
        self._kept.clear()

    def blend(self, batch: Batch) -> Batch:
        """A batch of mixed samples."""
        if self._input is None or self._target is None:
            self._find_parts(batch)
        inputs, target = self._pick(batch, self._input), self._pick(batch, self._target)
        share = self._shares.sample().to(inputs.dtype)
        if self._prob < 1:
            is_left = torch.rand((), device=inputs.device) >= self._prob
            share = torch.where(is_left, torch.ones_like(share), share)
        mixed, share = self._mix(inputs, share)
        wanted = self._soften(target, inputs.dtype)
        wanted = torch.lerp(wanted.roll(1, 0), wanted, share.to(wanted.dtype))
        changes = {str(self._input): mixed, str(self._target): wanted}
        return _with_parts(batch, changes, self._owner)

    def _soften(self, target: Tensor, dtype: torch.dtype) -> Tensor:
        """Class numbers as shares of all classes; those that are shares already stay."""
        if target.is_floating_point():
            return target
        classes = torch.arange(self._classes or 0, device=target.device)
        return (target.unsqueeze(1) == classes).to(dtype)

    def _with_classes(self, batch: Batch) -> Batch:
        target = None if self._target is None else pick(batch, (self._target,))
        if isinstance(target, Tensor) and target.shape[1:] == (self._classes,):
            return _with_parts(batch, {str(self._target): target.argmax(dim=1)}, self._owner)
        return batch

    def _replace(self, run: Run, name: str, function: Callable[..., object]) -> None:
        self._kept[name] = vars(run.task).get(name)
        run.replace_task_method(name, function)

    def _pick(self, batch: Batch, path: str | None) -> Tensor:
        found = pick(batch, (str(path),))
        if not isinstance(found, Tensor):
            names = known_names(batch)
            raise TaskError(
                f"{self._owner}: the batch has no tensor {path!r}\n  {suggest(str(path), names)}"
            )
        return found

    def _find_parts(self, batch: Batch) -> None:
        """Find inputs and targets by their kinds, if there is no doubt."""
        tensors = {name: pick(batch, (name,)) for name in known_names(batch)}
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
                    what = f"cannot tell which part of the batch it is; it has {names}"
                    hint = f"write {attribute}: and one of them"
                    raise ConfigError(Problem(f"{self._owner}.{attribute}", what, hint=hint))
                setattr(self, f"_{attribute}", found[0])


def _count_classes(run: Run, owner: str) -> int:
    known = run.meta.get("classes")
    if isinstance(known, int):
        return known
    if known is None:
        what = "how many classes there are is not known"
        hint = 'write classes: 10, or set self.meta["classes"] in the task'
        raise ConfigError(Problem(f"{owner}.classes", what, hint=hint))
    return len(known)


def _with_parts(batch: Batch, parts: Mapping[str, Tensor], owner: str) -> Batch:
    """A batch with other tensors in some places."""
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
