"""The interface of tasks, which users write: loaders, forward pass, losses and metrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from epochal.engine.interfaces.run import Run

Batch = Any  # any object that the user's loader yields
Output = Any  # any object that the user's task returns
Loader = Iterable[Batch]  # a DataLoader, or any other iterable of batches

REQUIRED_METHODS: tuple[str, ...] = ("batch_forward", "batch_loss")
"""Methods a task must have; ``batch_loss`` only for training or ``train.eval_loss``."""

OPTIONAL_METHODS: tuple[str, ...] = (
    "pre_batch_forward",
    "post_batch_forward",
    "batch_metric",
    "extra_batch_metrics",
    "epoch_metric",
    "post_metric_to_err",
    "postprocess",
    "input_sample",
    "to",
    "optim_groups",
    "on_stage_start",
    "state_dict",
    "load_state_dict",
    "render_sample",
)
"""Methods a task may have, besides the events of hooks and their aliases."""

CALLED_WITH: dict[str, tuple[str, ...]] = {
    "batch_forward": ("model", "batch"),
    "batch_loss": ("out", "batch"),
    "batch_metric": ("out", "batch"),
    "pre_batch_forward": ("batch",),
    "post_batch_forward": ("out", "batch"),
    "postprocess": ("out", "batch"),
}
"""What methods get by position; ``batch_loss`` also the loss of the config, if it takes that."""


class Task:
    """Subclass it, set loaders, and write ``batch_forward`` and ``batch_loss``.

    - ``batch_forward(model, batch)`` returns the output, usually a dict.
    - ``batch_loss(out, batch)`` returns ``{"loss": (tensor, count), ...}``; ``loss`` is
      back-propagated, the others are logged. A third parameter receives ``loss_fn``.

    All other methods are optional and looked up by name once, before the run:

    - ``pre_batch_forward(batch)`` returns the batch, ``post_batch_forward(out, batch)`` the output.
    - ``batch_metric(out, batch)`` returns ``{name: (value, count)}``; means are weighted.
    - ``extra_batch_metrics(out, batch, losses, model, run)``, with any of these arguments,
      returns the same.
    - ``epoch_metric(run)`` returns ``{name: value}`` at the end of an evaluation.
    - ``post_metric_to_err(result)`` returns one error of an evaluation; smaller is better.
    - ``postprocess(out, batch)`` returns the part of the output that a prediction keeps.
    - ``input_sample(row)`` returns a sample of a row of ``epochal predict --input``.
    - ``to(device)`` is called once, between ``setup`` and ``assembled``.
    - ``optim_groups(model, optim)`` returns the parameter groups of the optimizer.
    - ``on_stage_start(run, name, ...)`` gets the parameters of a stage when it starts.
    - ``state_dict()`` and ``load_state_dict(state)`` save and restore state in checkpoints.
    - any event of a hook, such as ``epoch_end(run, split)`` or ``onBatchEnd(index)``.
    """

    train_loader: Loader | None = None
    val_loader: Loader | Mapping[str, Loader] | None = None
    """One loader, or several by name; the attribute is read at each evaluation."""

    test_loader: Loader | Mapping[str, Loader] | None = None
    predict_loader: Loader | Mapping[str, Loader] | None = None

    batch_spec: Mapping[Any, Mapping[str, Any]] | None = None
    """``shape``, ``dtype`` and ``range`` of entries of a batch; the first batch must fit."""

    eval_needs_grad: bool = False
    """Whether evaluation needs gradients, such as for forces that are derivatives."""

    count_unit: str = "samples"
    """What the count of ``loss`` counts, such as ``tokens``; speeds are then shown in it."""

    @cached_property
    def meta(self) -> dict[str, Any]:
        """Facts about the data for other code, such as the names of classes."""
        return {}


class ModuleTask(Task):
    """The task of a model that computes its own loss, or whose loss the config describes.

    In training the model is called as ``model.train_forward(batch)`` if it has that method, in
    evaluation as ``model.infer_forward(batch)`` followed by ``model.postprocess(out)``. Otherwise
    it is called as ``model(**batch)``, ``model(*batch)`` or ``model(batch)``, depending on the
    type of the batch, with the parts of the batch that ``forward`` takes. It returns ``{"loss":
    ..., ...}`` or ``(outputs, losses)``; the count is the batch size. Any other return value is
    called ``outputs``.
    """

    _taken: tuple[str, ...] | None = None

    def assembled(self, run: Run) -> None:
        """Find the parts of a batch that ``forward`` takes; None is all."""
        parameters = inspect.signature(run.model.forward).parameters.values()
        is_open = any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters)
        self._taken = None if is_open else tuple(one.name for one in parameters)

    def batch_forward(self, model: nn.Module, batch: Batch) -> dict[str, Any]:
        """The model's output as one mapping, losses included."""
        train_forward = getattr(model, "train_forward", None)
        infer_forward = getattr(model, "infer_forward", None)
        if model.training and train_forward is not None:
            return _as_mapping(train_forward(batch))
        if not model.training and infer_forward is not None:
            postprocess = getattr(model, "postprocess", None)
            out = infer_forward(batch)
            return _as_mapping(out if postprocess is None else postprocess(out))
        return _as_mapping(_call(model, batch, self._taken))

    def batch_loss(
        self, out: Mapping[str, Any], batch: Batch, loss_fn: Callable[..., Any] | None = None
    ) -> dict[str, Any]:
        """The loss of the config, or the entries of the output that are losses."""
        if loss_fn is not None:
            losses: dict[str, Any] = loss_fn(out, batch)
            return losses
        return {
            name: value
            for name, value in out.items()
            if name == "loss" or ("loss" in name and getattr(value, "ndim", 0) == 0)
        }


def _call(model: nn.Module, batch: Batch, taken: tuple[str, ...] | None) -> object:
    if isinstance(batch, Mapping):
        return model(**{k: one for k, one in batch.items() if taken is None or k in taken})
    if isinstance(batch, list | tuple):
        return model(*(batch if taken is None else batch[: len(taken)]))
    return model(batch)


def _as_mapping(result: object) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
        outputs, losses = result
        if losses and "loss" not in losses:
            losses = {**losses, "loss": sum(losses.values())}
        named = dict(outputs) if isinstance(outputs, Mapping) else {"outputs": outputs}
        return named | dict(losses)
    return {"outputs": result}
