"""Lists the classes and functions of a project that its configs may name, for editors."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.signatures.classes import find_mro
from epochal.registry.component_names import KINDS
from epochal.registry.parsed_module import Definition
from epochal.registry.project import project_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.registry.parsed_module import Module
    from epochal.registry.registry import Registry

_KINDS_BY_BASE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "epochal.engine.interfaces.task.Task": ("task",),
        "epochal.engine.interfaces.hook.Hook": ("hook",),
        "epochal.engine.interfaces.metric.Metric": ("metric",),
        "epochal.engine.interfaces.output_stage.OutputStage": ("output",),
        "epochal.engine.interfaces.output_stage.EvaluationStage": ("evaluation",),
        "epochal.engine.interfaces.schedule.Schedule": ("schedule",),
        "epochal.engine.interfaces.average.Average": ("average",),
        "epochal.engine.runner.Runner": ("runner",),
        "epochal.engine.step.updater.Updater": ("updater",),
        "torch.nn.modules.module.Module": ("model", "loss"),
        "torch.optim.lr_scheduler.LRScheduler": ("schedule",),
        "torch.optim.optimizer.Optimizer": ("optimizer",),
        "epochal.data.pipe.Pipe": ("source", "pipe"),
        "torch.utils.data.dataset.Dataset": ("data", "source"),
    }
)
_WITHOUT_BASE = (
    "model",
    "data",
    "loss",
    "metric",
    "source",
    "pipe",
)  # functions and plain classes can be these
_TESTS = ("test", "tests", "conftest", "setup")


@final
@dataclass(frozen=True, slots=True)
class OwnClass:
    """A public class or function of the project."""

    dotted: str
    """Where it is defined: ``digits.model.Mlp``."""

    spellings: tuple[str, ...]
    """This and the paths of modules that import it, such as ``digits.Mlp``."""

    kinds: tuple[str, ...]
    """The kinds of component that it may be, judged by its bases."""


def own_classes(registry: Registry) -> tuple[OwnClass, ...]:
    """The public classes and functions of the project, without those of its tests."""
    spellings: dict[str, set[str]] = {}
    definitions: dict[str, Definition] = {}
    tops = set(registry.project.own_modules())
    for name in project_modules(registry.project):
        module = None if _is_test(name) else registry.finder.find_module(name)
        for short, found in _public(module, tops, registry) if module is not None else ():
            definitions[found.dotted] = found
            spellings.setdefault(found.dotted, {found.dotted}).add(f"{name}.{short}")
    return tuple(
        OwnClass(dotted, tuple(sorted(spellings[dotted])), _kinds(definitions[dotted], registry))
        for dotted in sorted(definitions)
    )


def _is_test(name: str) -> bool:
    return any(part in _TESTS or part.startswith("test_") for part in name.split("."))


def _public(module: Module, tops: set[str], registry: Registry) -> Iterator[tuple[str, Definition]]:
    """The project's public classes and functions that a module defines or imports."""
    for short in registry.finder.public_names(module):
        found = registry.finder.resolve(module, short)
        if not isinstance(found, Definition) or _returns_nothing(found.node):
            continue
        if found.module.name.split(".")[0] in tops:
            yield short, found


def _returns_nothing(node: ast.stmt) -> bool:
    """Whether a function is annotated as returning nothing, such as ``main``."""
    returned = getattr(node, "returns", None)
    return isinstance(returned, ast.Constant) and returned.value is None


def _kinds(definition: Definition, registry: Registry) -> tuple[str, ...]:
    if not isinstance(definition.node, ast.ClassDef):
        return _WITHOUT_BASE
    order = find_mro(definition, registry.finder)
    for item in order:
        if item is not None and item.dotted in _KINDS_BY_BASE:
            return _KINDS_BY_BASE[item.dotted]
    return KINDS if None in order else _WITHOUT_BASE
