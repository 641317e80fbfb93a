"""Losses that are not finite: warnings, the end of diverged runs, and checks of debug mode."""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, final
from weakref import ref

import torch
from torch import Tensor

from epochal.engine.loss.argument_routes import find_by_path, known_names
from epochal.engine.loss.loss import TOTAL_LOSS
from epochal.engine.measure.meter import EMPTY_BATCH_LOSS
from epochal.engine.step.finite_weights import has_finite_weights
from epochal.engine.step.nonfinite_watch import stop_diverged, suggest_after_divergence
from epochal.engine.step.updater import Updater
from epochal.errors import DIVERGED, TaskError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run.engine_run import EngineRun, TrainBatch

logger = logging.getLogger(__name__)

_MAX_SHOWN = 5
_OPERATION = re.compile(r"Function '(\w+)'")
_FORWARD_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def check_each_loss(run: EngineRun, train: TrainBatch) -> TrainBatch:
    """A function that calls ``train`` and then checks the gradient of each named loss.

    A loss whose backward pass fails raises an error with its name. The first time that a loss or
    its gradients are not finite, that is logged. The update does not change.
    """
    reported: set[str] = set()

    def train_and_check(batch: Batch) -> Outcome:
        outcome = train(batch)
        names = sorted(outcome.losses, key=lambda name: name == TOTAL_LOSS)  # the sum comes last
        has_found = False
        for name in names:
            if name == TOTAL_LOSS and has_found:
                break
            problem = _find_problem(run, name, outcome)
            if problem:
                has_found = True
                if name not in reported:
                    reported.add(name)
                    logger.error("%s", problem)
        return outcome

    return train_and_check


def _find_problem(run: EngineRun, name: str, outcome: Outcome) -> str:
    """A description of what is wrong with one loss; empty if nothing is."""
    value = outcome.losses[name][0]
    if not isinstance(value, Tensor) or not value.requires_grad:
        return ""
    named = {id(one): path for path, one in run.model.named_parameters()}
    parameters = [one for one in run.part(Updater).parameters if one.requires_grad]
    try:
        found: tuple[Tensor | None, ...] = torch.autograd.grad(
            value, parameters, retain_graph=True, allow_unused=True
        )
    except RuntimeError as error:
        what = str(error).strip().splitlines()[0]
        raise TaskError(
            f"loss {name!r}: its backward pass fails: {what}\n  {_describe(run, name, outcome)}"
        ) from error
    bad = [
        named.get(id(parameter), "a parameter outside the model")
        for parameter, gradient in zip(parameters, found, strict=True)
        if gradient is not None and not bool(torch.isfinite(gradient).all())
    ]
    if bool(torch.isfinite(value).all()) and not bad:
        return ""
    gradient = f"; gradients that are not finite: {_listing(bad)}" if bad else ""
    gradient += _find_origin(value, parameters) if bad else ""
    return f"loss {name!r} is {float(value.detach())}{gradient}; {_describe(run, name, outcome)}"


def _find_origin(value: Tensor, parameters: Sequence[Tensor]) -> str:
    """The first operation with a NaN gradient, and the line that called it; empty if unknown.

    Lines are known for operations of a block with ``recording_forward_lines``.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with torch.autograd.set_detect_anomaly(True, check_nan=True):
                torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            operation = _OPERATION.search(str(error))
            lines = [line for one in caught for line in _FORWARD_LINE.findall(str(one.message))]
            own = [line for line in lines if "site-packages" not in line[0]]
            if operation is None or not own:
                return ""
            file, number, function = own[-1]
            return f"; the first NaN is in {operation[1]}, called in {file}:{number}, {function}"
    return ""


@contextmanager
def recording_forward_lines(is_debug: bool) -> Iterator[None]:
    """Let autograd remember which line of code called each operation, while debugging."""
    if not is_debug:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        mode = torch.autograd.set_detect_anomaly(True, check_nan=False)
    with mode:
        yield


def _describe(run: EngineRun, name: str, outcome: Outcome) -> str:
    """Epoch, batch, and the ranges of the tensors in output and batch."""
    place = f"in epoch {run.epoch_number}, batch {run.batch_index + 1}"
    parts = [f"its value is {float(torch.as_tensor(outcome.losses[name][0]).detach())}"]
    for source, value in (("out", outcome.out), ("batch", outcome.batch)):
        if isinstance(value, Tensor):
            parts.append(f"{source} {_range(value)}")
        for key in known_names(value)[:_MAX_SHOWN]:
            part = find_by_path(value, (key,))
            if isinstance(part, Tensor) and part.numel():
                parts.append(f"{source}.{key} {_range(part)}")
    return f"{place}: {', '.join(parts)}"


def _range(tensor: Tensor) -> str:
    flat = tensor.detach().reshape(-1)
    flat = flat.abs() if flat.is_complex() else flat
    bad = int((~torch.isfinite(flat)).sum())
    shape = "x".join(str(size) for size in tensor.shape) or "one number"
    text = f"({shape}) from {float(flat.min()):.4g} to {float(flat.max()):.4g}"
    return f"{text}, {bad} not finite" if bad else text


def _listing(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more


@final
class NonfiniteLossWarner:
    """Warns once of losses that are not finite, when their means are read."""

    def __init__(self, run: EngineRun) -> None:
        self._run = ref(run)  # the meter of the run holds this object
        self._warned: set[bool] = set()

    def __call__(self, name: str, mean: float) -> None:
        """Warn of the first loss that is not finite, and of the first one of an empty batch."""
        is_empty = name == EMPTY_BATCH_LOSS
        run = self._run()
        assert run is not None, "its meter is in use"
        if name == TOTAL_LOSS:
            first, _ = run.nonfinite_losses or (run.step, run.step)
            run.nonfinite_losses = first, run.step
        if is_empty in self._warned or "loss" not in name:
            return
        self._warned.add(is_empty)
        if run.part(Updater).guard is not None:
            what = "such updates are skipped; train/skipped is their share"
        elif is_empty:
            what = "its gradient may not be finite either; divide by count.clamp(min=1)"
        else:
            advice = suggest_after_divergence(run)
            what = f"the run continues, but is unlikely to learn; {advice}; "
            what += "engine.on_nonfinite=stop ends such a run"
        logger.warning("train/%s is %s since about step %d: %s", name, mean, run.step, what)


def end_if_diverged(run: EngineRun) -> None:
    """End a run as diverged, for any reason of its end, if weights or last losses are not finite.

    A run that skipped every update of its last epoch has diverged too.
    """
    if run.stop_reason == DIVERGED or run.step == run.first_step:
        return
    first, last = run.nonfinite_losses or (0, 0)
    has_guard = run.part(Updater).guard is not None
    if not has_finite_weights(run):
        what = "the weights are not finite"
        if first:
            what = f"loss and weights are not finite since about step {first}"
    elif has_guard and run.latest.get("train/skipped") == 1:
        what = "all updates of the last epoch were skipped, since no gradient was finite"
    elif last == run.step and not has_guard:
        what = f"the loss is not finite since about step {first}"
    else:
        return
    stop_diverged(run, what)
