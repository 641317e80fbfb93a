"""Count the parameters of a model, and check that the optimizer has them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from torch.nn.parameter import is_lazy

from epochal.errors import TaskError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class ParameterCount:
    """The number of parameters of a model; tied ones count once."""

    total: int
    trained: int
    is_complete: bool
    """False when the first batch sets some of the sizes, as for ``nn.LazyLinear``."""


def count_parameters(model: nn.Module) -> ParameterCount:
    """The number of parameters whose size is known."""
    sizes = [
        (parameter.numel(), parameter.requires_grad)
        for parameter in model.parameters()
        if not is_uninitialized(parameter)
    ]
    return ParameterCount(
        total=sum(size for size, _ in sizes),
        trained=sum(size for size, is_trained in sizes if is_trained),
        is_complete=not has_uninitialized(model),
    )


def has_uninitialized(model: nn.Module) -> bool:
    """Whether some sizes of the model are set by the first batch."""
    return any(is_uninitialized(tensor) for tensor in (*model.parameters(), *model.buffers()))


def require_parameters(optimizer: Optimizer, model: nn.Module) -> None:
    """Refuse an optimizer that cannot train the model, and warn of one that trains a part."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    own = dict(model.named_parameters())
    if own and not any(id(parameter) in held for parameter in own.values()):
        raise TaskError(
            f"optim: {type(optimizer).__name__} holds none of the parameters of the model, "
            f"{type(model).__name__}\n"
            "  build it for the model that the run trains, from model.parameters()"
        )
    trained = [name for name, parameter in own.items() if parameter.requires_grad]
    missed = [name for name in trained if id(own[name]) not in held]
    if missed:
        logger.warning(
            "%s misses %d of the %d trainable parameters of the model, such as %s: they stay "
            "as they are; say requires_grad_(False) if that is meant",
            type(optimizer).__name__,
            len(missed),
            len(trained),
            missed[0],
        )


def is_uninitialized(tensor: Tensor) -> bool:
    """Whether the first batch sets the size of a tensor."""
    return is_lazy(tensor)
