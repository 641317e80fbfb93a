"""Mixes each sample of a batch with the previous one; targets become class probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from epochal.engine.step.loss_inputs import find_by_path, known_names
from epochal.errors import ConfigError, Problem, TaskError, suggest

if TYPE_CHECKING:
    from epochal.engine.run import Run

Batch = Any  # the user's loader decides
Mix = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # inputs, share -> inputs, share kept


@final
class BatchMixer:
    """Wraps a task's ``pre_batch_forward`` so that training batches are mixed on their device.

    Random numbers are drawn on the device, from the generator of the run: steps can be captured
    as a CUDA graph, and a resumed run draws the same numbers. Metrics of the task see the class
    with the larger share.

    Args:
        owner: The hook, for messages.
        mix: Mixes inputs with those of the previous sample; returns the share that was kept.
        alpha: Parameter of the Beta distribution of shares; small values mix little.
        prob: Share of the batches that are mixed.
        input: Name of the inputs in a batch; the only float tensor if None.
        target: Name of the class indices; the only 1-D integer tensor if None.
        classes: Number of classes; from ``meta["classes"]`` of the task if None.
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
        self._originals: dict[str, Any] = {}

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
            return self.mix_batch(batch) if model.training else batch

        def batch_metric(out: object, batch: Batch) -> object:
            assert metric is not None
            return metric(out, self._with_classes(batch))

        self._replace(run, "pre_batch_forward", pre_batch_forward)
        if metric is not None:
            self._replace(run, "batch_metric", batch_metric)

    def uninstall(self, run: Run) -> None:
        """Restore the methods of the task, which may serve another run."""
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
        mixed, share = self._mix(inputs, share)
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
