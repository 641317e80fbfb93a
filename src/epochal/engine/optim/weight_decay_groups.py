"""Find parameters without weight decay: biases, vectors, norms, and declared ones."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from epochal.engine.optim.parameter_count import is_uninitialized
from epochal.engine.optim.parameter_selector import matches_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine.optim.parameter_selector import ParameterSelector

logger = logging.getLogger(__name__)

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def find_no_decay(model: nn.Module, selector: ParameterSelector) -> set[str]:
    """The parameters that are biases or vectors, are in norms, or that modules declare.

    A module declares them by a method ``no_decay()``, which returns names or patterns of its
    parameters and of those in its children.
    """
    found = {name for name, one in selector.parameters.items() if _is_bias_or_vector(name, one)}
    for prefix, module in model.named_modules():
        if isinstance(module, _NORMS):
            found |= selector.by_name(prefix) if prefix else set(selector.parameters)
        for name in _declared(prefix, module):
            found |= selector.by_name(name)
    return found


def _is_bias_or_vector(name: str, parameter: nn.Parameter) -> bool:
    last = name.rpartition(".")[2]
    is_bias = last == "bias" or last.endswith("_bias")
    return is_bias or (not is_uninitialized(parameter) and parameter.ndim <= 1)


def _declared(prefix: str, module: nn.Module) -> Iterator[str]:
    declare: Any = getattr(module, "no_decay", None)  # a method of the user
    if not callable(declare) or isinstance(declare, nn.Module):
        return
    own = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    for pattern in declare():
        if not any(matches_pattern(name, pattern) for name in own):
            where = f"{type(module).__name__}.no_decay" + (f" of {prefix}" if prefix else "")
            logger.warning("%s names %r, which is none of its parameters", where, pattern)
        yield f"{prefix}.{pattern}" if prefix else pattern
