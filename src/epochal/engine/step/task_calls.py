"""Calls the methods of a task for a batch, and checks what they return."""

from __future__ import annotations

import logging
import numbers
import re
from collections.abc import Callable, Mapping
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, final

import torch
from torch import Tensor

from epochal.distributed.fsdp import name_class
from epochal.engine.device.move import PLAIN_BATCHES, batch_size, keep_batch
from epochal.engine.interfaces.binding import bind_by_name, parameter_names
from epochal.engine.interfaces.outcome import Outcome
from epochal.engine.interfaces.task import CALLED_WITH, ModuleTask
from epochal.engine.loss.loss import TOTAL_LOSS
from epochal.engine.optim.multi_optimizer import Optimizers, add_total_loss
from epochal.errors import ConfigError, Problem, TaskError

if TYPE_CHECKING:
    from torch import nn

    from epochal.engine.device.precision import Autocast
    from epochal.engine.interfaces.task import Batch, Output
    from epochal.engine.measure.meter import Meter
    from epochal.engine.measure.sums import Weighted
    from epochal.engine.run.engine_run import EngineRun

    _Computed = tuple[Batch, Output, Any, Any]  # the last two are unchecked values of the task
    Compute = Callable[[Batch], _Computed]

_EXTRA = ("out", "batch", "losses", "model", "run")
# The usual types first: isinstance of an abstract class is several times slower.
_MAPPINGS = (dict, Mapping)
_NUMBERS = (int, float, numbers.Real)
Fail = Callable[[str, str], NoReturn]  # takes what is wrong and a hint
NoteSize = Callable[[str, int], None]
NO_RETURN = "returned None: a `return` is missing"

logger = logging.getLogger(__name__)


class _Compute(Protocol):
    def __call__(self, batch: Batch, *, is_training: bool = True) -> _Computed: ...


@final
class TaskCalls:
    """The methods of a run's task, looked up once; another task or model needs new calls."""

    def __init__(self, run: EngineRun) -> None:
        self._run = run
        self._model = run.model
        self._move = run.feed.move
        self._precision = run.precision
        self._metric = self._find("batch_metric")
        self._extra = self._bind("extra_batch_metrics", _EXTRA)
        self._epoch_metric = self._bind("epoch_metric", ("run", "split"))
        self._error = self._find("post_metric_to_err")
        self._postprocess = self._find("postprocess") or _return_output
        # Not bound methods: a reference cycle would keep the model alive.
        self._fail = partial(_fail, run)
        self._fail_metric = partial(_fail, run, "batch_metric")
        self._fail_loss = partial(_fail, run, "batch_loss" if self._find("batch_loss") else "")
        is_sum = isinstance(run.optimizer, Optimizers) and TOTAL_LOSS not in run.optimizer.losses
        self._note_size = _BatchSizeNote(_loss_owner(run), ignored=TOTAL_LOSS if is_sum else "")
        self._fail_extra = partial(_fail, run, "extra_batch_metrics")
        self._loss = self._bind_loss()
        if isinstance(run.optimizer, Optimizers):
            self._loss = add_total_loss(self._loss, run.optimizer.losses)
        self._compute = self._build_compute(run.model)
        trained = run.trained_model
        self.compute: Compute = (
            self._compute if trained is run.model else self._build_compute(trained)
        )
        """Forward pass, metrics and losses of a moved batch, as the task returns them."""

    @property
    def has_extra_metrics(self) -> bool:
        """Whether the task has ``extra_batch_metrics``, computed after the update."""
        return self._extra is not None

    @property
    def has_error(self) -> bool:
        """Whether the task has ``post_metric_to_err``, one error for an evaluation."""
        return self._error is not None

    @property
    def has_epoch_metric(self) -> bool:
        """Whether the task has ``epoch_metric``, computed from all batches of a pass."""
        return self._epoch_metric is not None

    def move_task(self) -> None:
        """Move the task to the device, if it has the method ``to``."""
        to = self._find("to")
        if to is not None:
            to(self._run.device)

    def forward(self, batch: Batch) -> Outcome:
        """Move a batch to the device and compute its output."""
        batch, out, _, _ = self._compute(self._move(batch), is_training=False)
        return Outcome(batch, out)

    def add_metrics(self, outcome: Outcome) -> None:
        """Compute the task's metrics of a batch."""
        if self._metric is not None:
            with torch.no_grad(), self._precision.context():
                values = self._metric(outcome.out, outcome.batch)
            outcome.metrics = check_metrics(values, self._fail_metric)

    def add_loss(self, outcome: Outcome) -> None:
        """Compute the task's losses of a batch."""
        with self._precision.context():
            losses = self._loss(outcome.out, outcome.batch)
        outcome.losses = check_losses(losses, outcome.batch, self._fail_loss, self._note_size)

    def train(self, batch: Batch) -> Outcome:
        """Everything in training before the backward pass."""
        if self._move is not keep_batch or type(batch) not in PLAIN_BATCHES:  # saves a call
            batch = self._move(batch)
        batch, out, values, losses = self.compute(batch)
        metrics = {} if values is None else check_metrics(values, self._fail_metric)
        checked = check_losses(
            losses, batch, self._fail_loss, self._note_size, may_be_empty=self._run.is_shared
        )
        loss: Any = checked["loss"][0]  # a tensor
        if not loss.requires_grad:
            what = "the loss does not depend on any trained parameter"
            hint = "compute it from the model's output, without detach() or no_grad()"
            self._fail_loss(what, hint)
        return Outcome(batch, out, checked, metrics)

    def report(self, outcome: Outcome, meter: Meter) -> None:
        """Compute extra metrics and add the batch to the means."""
        if self._extra is not None:
            with torch.no_grad():
                values = self._extra(
                    outcome.out, outcome.batch, outcome.losses, self._model, self._run
                )
            outcome.metrics = outcome.metrics | check_metrics(values, self._fail_extra)
        if outcome.metrics:
            for name in outcome.metrics.keys() & outcome.losses.keys():
                what = f"returns {name!r}, which batch_loss returns too"
                self._fail_metric(what, "rename one of them")
            meter.add(outcome.metrics)
        meter.add(outcome.losses)

    def finish(self, means: dict[str, float], split: str) -> dict[str, float]:
        """The means of a pass together with the task's epoch metrics and its error."""
        result = dict(means)
        if self._epoch_metric is not None:
            values = self._epoch_metric(self._run, split)
            if not isinstance(values, Mapping):
                self._fail("epoch_metric", f"returned {values!r}", "return {'name': value}")
            fail = partial(self._fail, "epoch_metric")
            result |= {name: check_number(name, value, fail) for name, value in values.items()}
        if self._error is not None:
            fail = partial(self._fail, "post_metric_to_err")
            result["err"] = check_number("err", self._error(result), fail)
        return result

    def postprocess(self, outcome: Outcome) -> Output:
        """The part of the output that a prediction keeps."""
        return self._postprocess(outcome.out, outcome.batch)

    def _build_compute(self, model: nn.Module) -> _Compute:
        """One function for a batch of a model, with the methods that the task has."""
        fail, loss, metric = self._fail, self._loss, self._metric
        pre, post = self._find("pre_batch_forward"), self._find("post_batch_forward")
        forward = self._find("batch_forward") or _missing(self._run, "batch_forward")

        def compute(batch: Batch, *, is_training: bool = True) -> _Computed:
            if pre is not None:
                batch = pre(batch)
                if batch is None:
                    fail("pre_batch_forward", NO_RETURN, "return the batch")
            out = forward(model, batch)
            if out is None:
                hint = 'return the output of the model, such as {"logits": ...}'
                fail("batch_forward", NO_RETURN, hint)
            if post is not None:
                out = post(out, batch)
                if out is None:
                    fail("post_batch_forward", NO_RETURN, "return the output")
            if not is_training:
                return batch, out, None, None
            values = None
            if metric is not None:
                with torch.no_grad():
                    values = metric(out, batch)
            return batch, out, values, loss(out, batch)

        autocast = self._precision.autocast
        return compute if autocast is None else _with_autocast(autocast, compute)

    def _find(self, name: str) -> Callable[..., Any] | None:
        method = getattr(self._run.task, name, None)
        return method if callable(method) else None

    def _bind(self, name: str, available: tuple[str, ...]) -> Callable[..., Any] | None:
        method = self._find(name)
        owner = f"{type(self._run.task).__name__}.{name}"
        return None if method is None else bind_by_name(method, available, owner=owner)

    def _bind_loss(self) -> Callable[..., Any]:
        method, loss = self._find("batch_loss"), self._run.loss
        if method is None:
            return _missing(self._run, "batch_loss") if loss is None else loss.forward
        if len(parameter_names(method)) >= 3:
            loss_fn = getattr(self._run.task, "loss_fn", None) if loss is None else loss
            return lambda out, batch: method(out, batch, loss_fn)
        if loss is not None:
            what = f"{type(self._run.task).__name__}.batch_loss already computes the loss"
            hint = "remove one of them, or write def batch_loss(self, out, batch, loss_fn)"
            raise ConfigError(Problem("loss", what, hint=hint))
        return method


def explain_wrong_call(error: BaseException) -> None:
    """Add a note to the error of a task's method that does not take what it is called with."""
    frames = [] if not isinstance(error, TypeError) else list(walk_tb(error.__traceback__))
    if not frames or frames[-1][0].f_globals.get("__name__") != __name__:
        return  # raised inside the method
    found = re.match(r"(?:\S*\.)?(\w+)\(\) (?:takes|missing) ", str(error))
    if found is not None and found[1] in CALLED_WITH:
        name = found[1]
        error.add_note(f"write def {name}(self, {', '.join(CALLED_WITH[name])})")


@final
class _BatchSizeNote:
    """Logs once that the batch size is taken as the count of a loss.

    ``ignored`` is the name of the total, which is the sum of the task's losses.
    """

    def __init__(self, owner: str, *, ignored: str = "") -> None:
        self._owner = owner
        self._ignored = ignored
        self._has_logged = False

    def __call__(self, name: str, size: int) -> None:
        if not self._has_logged and name != self._ignored:
            self._has_logged = True
            logger.info(
                "%s: %r has no count, so the batch size, now %d, is its weight in averages; "
                "return {%r: (value, count)} for another one",
                self._owner,
                name,
                size,
                name,
            )


def _loss_owner(run: EngineRun) -> str:
    """The user's class that computes the loss."""
    is_model = isinstance(run.task, ModuleTask)
    return name_class(run.model) if is_model else f"{type(run.task).__name__}.batch_loss"


def _missing(run: EngineRun, name: str) -> Callable[..., NoReturn]:
    what, hint = "the task has no such method", f"write def {name}(self, ...) in the task"
    if name == "batch_loss":
        hint += ", or a section loss"
    return lambda *_: _fail(run, name, what, hint)


def _with_autocast(autocast: Autocast, compute: _Compute) -> _Compute:
    def compute_within(batch: Batch, *, is_training: bool = True) -> _Computed:
        with autocast():
            return compute(batch, is_training=is_training)

    return compute_within


def _fail(run: EngineRun, method: str, what: str, hint: str) -> NoReturn:
    owner = f"{type(run.task).__name__}.{method}" if method else "loss"
    raise TaskError(
        f"{owner}: {what}\n"
        f"  in epoch {max(1, run.epoch_number)}, batch {run.batch_index + 1} of {run.split}\n"
        f"  {hint}"
    )


def _return_output(out: Output, batch: Batch) -> Output:
    return out


def _ignore_count(name: str, size: int) -> None:
    """Do not log that the batch size is the count of a loss."""


def check_losses(
    losses: object,
    batch: Batch,
    fail: Fail,
    note_size: NoteSize = _ignore_count,
    *,
    may_be_empty: bool = False,
) -> dict[str, Weighted]:
    """The losses of a batch, each with a count; a bare value gets the batch size.

    ``note_size`` is called with the name of a bare value and that size. With ``may_be_empty``, a
    loss may have no items: the batch is a slice of one that several processes share.
    """
    # Fast path at each step: exact types, no function calls.
    if type(losses) is dict and "loss" in losses:
        for entry in losses.values():
            if type(entry) is not tuple or len(entry) != 2:
                break
            value, count = entry
            if type(value) is not Tensor or value.numel() != 1:
                break
            if type(count) is Tensor:
                if count.numel() != 1:
                    break
            elif type(count) is not int or count <= 0:
                break
        else:
            return losses
    return _check_all(losses, batch, fail, note_size, may_be_empty=may_be_empty)


def check_metrics(values: object, fail: Fail) -> dict[str, Weighted]:
    """The metrics of a batch, each with a count."""
    if values is None:
        return {}
    if not isinstance(values, _MAPPINGS):
        fail(f"returned {values!r}", "return {'name': (value, count)}")
    for entry in values.values():
        if type(entry) is not tuple or len(entry) != 2:
            break
        if type(entry[0]) is not Tensor or entry[0].numel() != 1 or type(entry[1]) is not int:
            break
    else:
        return dict(values)
    return {name: _pair(name, entry, fail) for name, entry in values.items()}


def check_number(name: str, value: object, fail: Fail) -> float:
    """A metric of a whole pass as a float."""
    try:
        return float(value)  # type: ignore[arg-type]  # also tensors and arrays of one number
    except (TypeError, ValueError, RuntimeError):
        fail(f"{name!r} is {value!r}, not a number", "return a number or a tensor of one number")


def _check_all(
    losses: object, batch: Batch, fail: Fail, note_size: NoteSize, *, may_be_empty: bool
) -> dict[str, Weighted]:
    """The losses from any supported structure, or an error with a hint."""
    if isinstance(losses, Tensor):
        losses = {"loss": losses}
    if losses is None:
        fail(NO_RETURN, 'end it with return {"loss": (tensor, count)}')
    if not isinstance(losses, _MAPPINGS):
        fail(f"returned {losses!r}", 'return {"loss": (tensor, count)}')
    if "loss" not in losses:
        fail(f"returned no 'loss', only {sorted(losses)}", 'return {"loss": (tensor, count), ...}')
    checked = {
        name: _loss_pair(name, entry, batch, fail, note_size, may_be_empty=may_be_empty)
        for name, entry in losses.items()
    }
    loss = checked["loss"][0]
    if not isinstance(loss, Tensor):
        fail(f"'loss' is {loss!r}, not a tensor", "return the tensor itself, not item() or float()")
    return checked


def _loss_pair(
    name: str,
    entry: object,
    batch: Batch,
    fail: Fail,
    note_size: NoteSize,
    *,
    may_be_empty: bool,
) -> Weighted:
    if not isinstance(entry, tuple | list):
        size = batch_size(batch)
        if size is None:
            what = f"{name!r} has no count, and the batch has no known size"
            fail(what, f'return {{"{name}": (value, count)}}')
        note_size(name, size)
        entry = (entry, size)
    value, count = _pair(name, entry, fail)
    if not isinstance(count, Tensor) and (count < 0 or (count == 0 and not may_be_empty)):
        fail(f"{name!r} has the count {count!r}", "return the number of items of the mean")
    return value, count


def _pair(name: str, entry: object, fail: Fail) -> Weighted:
    if not isinstance(entry, tuple | list) or len(entry) != 2:
        found = repr(entry)
        if isinstance(entry, Tensor) and entry.numel() != 1:
            found = f"a tensor of shape {tuple(entry.shape)}"
        fail(f"{name!r} is {found}, not (value, count)", f"return {{{name!r}: (value, count)}}")
    for number in entry:
        if isinstance(number, Tensor):
            if number.numel() != 1:
                what = f"{name!r} has a tensor of shape {tuple(number.shape)}, not one number"
                fail(what, "reduce it, for example with .mean()")
        elif not isinstance(number, _NUMBERS):
            fail(f"{name!r} holds {number!r}", "return numbers or tensors of one number")
    return entry[0], entry[1]
