"""Selects parameters by patterns of names or classes of modules, and counts them."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, final

from torch.nn.parameter import is_lazy

from epochal.errors import TaskError, nearest_few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from torch import Tensor, nn
    from torch.optim import Optimizer

logger = logging.getLogger(__name__)


_MAX_NAMED = 8


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a pattern matches a name: ``head.*`` and ``head`` match all under ``head``."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


@final
class ParameterSelector:
    """Selects parameters of a model; tied ones go by the first of their names.

    ``only`` names those to select from; ``more`` are further ones, such as those of a task.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        only: Collection[str] | None = None,
        more: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        every: dict[str, nn.Parameter] = {**dict(model.named_parameters()), **(more or {})}
        self.parameters = {name: every[name] for name in every if only is None or name in only}
        """Every parameter, by its first name."""

        first = {id(parameter): name for name, parameter in self.parameters.items()}
        known = [*model.named_parameters(remove_duplicate=False), *(more or {}).items()]
        self._names = [(name, first[id(one)]) for name, one in known if id(one) in first]
        self._modules = list(model.named_modules(remove_duplicate=False))

    def by_name(self, pattern: str) -> set[str]:
        """The parameters that a pattern matches by any of their names."""
        return {first for name, first in self._names if matches_pattern(name, pattern)}

    def by_class(self, wanted: str) -> set[str]:
        """The parameters in modules of a class or of a subclass, at any depth."""
        prefixes = [name for name, module in self._modules if _is_class(type(module), wanted)]
        return {first for name, first in self._names if _is_under_any(name, prefixes)}

    def suggest_names(self, pattern: str) -> str:
        """A hint for a pattern that matches nothing."""
        names = {name for name, _ in self._names}
        names |= {name for name, _ in self._modules if name and self.by_name(name)}
        outermost = [name.partition(".")[0] for name in self.parameters]
        return _suggest(pattern.removesuffix(".*"), names, outermost)

    def suggest_classes(self, wanted: str) -> str:
        """A hint for a class that has no parameters here."""
        names = [
            type(module).__name__
            for _, module in self._modules
            if next(module.parameters(recurse=False), None) is not None
        ]
        return _suggest(wanted.rpartition(".")[2], set(names), names)


def _suggest(wanted: str, known: Collection[str], others: Iterable[str]) -> str:
    near = nearest_few(wanted, known, 3, cutoff=0.5)
    some = [*dict.fromkeys(others)][:_MAX_NAMED]
    return f"near it: {', '.join(near)}" if near else f"there are: {', '.join(some)}"


def _is_under_any(name: str, prefixes: Iterable[str]) -> bool:
    return any(not prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def _is_class(kind: type, wanted: str) -> bool:
    """Whether a class, or one that it extends, has a name or dotted path."""
    module, _, name = wanted.rpartition(".")
    if not module:
        return any(one.__name__ == name for one in kind.__mro__)
    # The public path of a class is often not where it is defined; the module is imported already
    # if an object of the class exists.
    meant = getattr(sys.modules.get(module), name, None)
    return isinstance(meant, type) and issubclass(kind, meant)


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
            "%s misses %d of the %d trainable parameters of the model, such as %s: they are not "
            "trained; call requires_grad_(False) if that is intended",
            type(optimizer).__name__,
            len(missed),
            len(trained),
            missed[0],
        )


def is_uninitialized(tensor: Tensor) -> bool:
    """Whether the first batch sets the size of a tensor."""
    return is_lazy(tensor)
