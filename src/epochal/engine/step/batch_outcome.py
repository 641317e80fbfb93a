"""Checks of the losses and metrics that a task returns for a batch."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from torch import Tensor

from epochal.engine.device.move import batch_size

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.measure.sums import Weighted

# The usual types first: isinstance of an abstract class is several times slower.
_MAPPINGS = (dict, Mapping)
_NUMBERS = (int, float, numbers.Real)

Fail = Callable[[str, str], NoReturn]  # takes what is wrong and a hint
SayCount = Callable[[str, int], None]

NO_RETURN = "returned None: a `return` is missing"


def _say_nothing(name: str, size: int) -> None:
    """Leave it unsaid that the batch size is the count of a loss."""


def check_losses(
    losses: object, batch: Batch, fail: Fail, say_count: SayCount = _say_nothing
) -> dict[str, Weighted]:
    """The losses of a batch, each with a count; a bare value gets the batch size.

    ``say_count`` is called with the name of a bare value and that size.
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
    return _check_all(losses, batch, fail, say_count)


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
    losses: object, batch: Batch, fail: Fail, say_count: SayCount
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
        name: _loss_pair(name, entry, batch, fail, say_count) for name, entry in losses.items()
    }
    loss = checked["loss"][0]
    if not isinstance(loss, Tensor):
        fail(f"'loss' is {loss!r}, not a tensor", "return the tensor itself, not item() or float()")
    return checked


def _loss_pair(name: str, entry: object, batch: Batch, fail: Fail, say_count: SayCount) -> Weighted:
    if not isinstance(entry, tuple | list):
        size = batch_size(batch)
        if size is None:
            what = f"{name!r} has no count, and the batch has no known size"
            fail(what, f'return {{"{name}": (value, count)}}')
        say_count(name, size)
        entry = (entry, size)
    value, count = _pair(name, entry, fail)
    if not isinstance(count, Tensor) and count <= 0:
        fail(f"{name!r} has the count {count!r}", "return the number of items of the mean")
    return value, count


def _pair(name: str, entry: object, fail: Fail) -> Weighted:
    if not isinstance(entry, tuple | list) or len(entry) != 2:
        fail(f"{name!r} is {entry!r}, not (value, count)", f"return {{{name!r}: (value, count)}}")
    for number in entry:
        if isinstance(number, Tensor):
            if number.numel() != 1:
                what = f"{name!r} has a tensor of shape {tuple(number.shape)}, not one number"
                fail(what, "reduce it, for example with .mean()")
        elif not isinstance(number, _NUMBERS):
            fail(f"{name!r} holds {number!r}", "return numbers or tensors of one number")
    return entry[0], entry[1]
