"""Variables: numbers that are recorded together with the training means.

Task, hooks and components register them once, with a function that returns the value::

    run.variables["temperature"] = lambda: self.temperature

The function is called only when training points are recorded. It may return a tensor on the
device, which is read asynchronously.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from epochal.engine.measure.sums import AsyncCopy
from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.engine.run.engine_run import EngineRun

    Variable = Callable[[], float | Tensor]

LOSS_SCALE = "loss_scale"
"""The factor of losses with fp16."""


def request_variables(run: EngineRun) -> Callable[[], dict[str, float]]:
    """Read all variables and learning rates asynchronously; returns a function for their values."""
    known: dict[str, float] = run.used_learning_rates
    copies: dict[str, AsyncCopy] = {}
    for name, value in _call_variables(run).items():
        if isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "cpu":
            copies[name] = AsyncCopy(value, [])
        else:
            known[name] = _read(name, value)
    if not copies:
        return lambda: known
    return lambda: known | {name: float(copy.read()[0]) for name, copy in copies.items()}


def _call_variables(run: EngineRun) -> dict[str, float | Tensor]:
    variables: Mapping[str, Variable] = run.variables
    values: dict[str, float | Tensor] = {}
    for name, variable in variables.items():
        if not str(getattr(variable, "__module__", "")).startswith("epochal."):
            run.events.has_run_user_code = True
        try:
            with torch.no_grad():
                value = variable()
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
        f"run.variables[{name!r}]: returned {_shown(value)}, not a number\n"
        "  return a float or a tensor with one element"
    )


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return repr(value)[:80]
