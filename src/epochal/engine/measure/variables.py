"""Variables: numbers that somebody wants in the record beside the means of training.

Task, hooks and components name them once, with a function that gives their value::

    run.variables["temperature"] = lambda: self.temperature

The function is asked whenever the record takes a point of training, and at no other step. It may
give a tensor on the device, which is read when it has arrived, so that nobody waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from epochal.engine.measure.device_sums import AsyncCopy
from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.engine.run import Run

    Variable = Callable[[], float | Tensor]

LOSS_SCALE = "loss_scale"
"""What fp16 multiplies losses with."""


def request_variables(run: Run) -> Callable[[], dict[str, float]]:
    """Ask for every variable and every learning rate; gives what reads them later.

    Raises:
        TaskError: A variable is no number.
    """
    known: dict[str, float] = dict(run.learning_rates)
    coming: dict[str, Tensor] = {}
    for name, value in _ask(run).items():
        if isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "cpu":
            coming[name] = value
        else:
            known[name] = _read(name, value)
    if not coming:
        return lambda: known
    copies = {name: AsyncCopy(value, []) for name, value in coming.items()}
    return lambda: known | {name: float(copy.read()[0]) for name, copy in copies.items()}


def _ask(run: Run) -> dict[str, float | Tensor]:
    variables: Mapping[str, Variable] = run.variables
    values: dict[str, float | Tensor] = {}
    for name, ask in variables.items():
        if not str(getattr(ask, "__module__", "")).startswith("epochal."):
            run.events.has_run_user_code = True
        try:
            with torch.no_grad():
                value = ask()
        except Exception as error:
            error.add_note(f"raised by run.variables[{name!r}]")
            raise
        values[name] = value.detach() if isinstance(value, Tensor) else value
    return values


def _read(name: str, value: object) -> float:
    if isinstance(value, Tensor | int | float):
        try:
            return float(value)
        except (RuntimeError, ValueError):  # a tensor of several numbers
            pass
    raise TaskError(
        f"run.variables[{name!r}]: gives {_shown(value)}, which is not a number\n"
        "  give a float or a tensor with one element"
    )


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return repr(value)[:80]
