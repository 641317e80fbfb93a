"""Select parameters by a pattern of their names, or by the class of their modules."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, final

from epochal.errors import nearest_few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from torch import nn

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
