"""Components that user modules register, found by reading their decorators."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, final

from epochal.errors import Problem
from epochal.registry.factories import KINDS, Factory, Registered, conflict
from epochal.registry.parsed_module import DefinitionNode, Import, Module, full_name
from epochal.registry.targets import Refused, hidden_by, is_allowed_module, outside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from epochal.registry.module_finder import ModuleFinder
    from epochal.registry.project import Project

_REGISTER = ("epochal.register", "epochal.registry.register", "epochal.registry.factories.register")


@final
class Decorated:
    """What the modules listed under ``imports:`` register, and what is wrong with them."""

    def __init__(self, imports: Sequence[str], project: Project, finder: ModuleFinder) -> None:
        self.tables: dict[str, dict[str, Registered]] = {kind: {} for kind in KINDS}
        self.problems: list[Problem] = []
        self._finder = finder
        self._seen = set[str]()
        for index, name in enumerate(imports):
            key = f"imports.{index}"
            refused = _refusal(name, project, finder)
            if refused is not None:
                self.problems.append(Problem(key, refused.why, hint=refused.hint))
            elif finder.find_module(name) is None and not finder.find_folders(name):
                self.problems.append(Problem(key, f"there is no module {name!r}"))
            else:
                self._visit(name)

    def _visit(self, name: str) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        module = self._finder.find_module(name)
        if module is None:
            return
        for node in module.definitions().values():
            for entry in _entries(module, node):
                self._claim(entry)
        for imported in _imported(module):  # importing it runs these too
            self._visit(imported)

    def _claim(self, entry: Registered) -> None:
        table = self.tables[entry.factory.kind]
        problem = conflict(entry, table.get(entry.factory.name))
        if problem is not None:
            self.problems.append(problem)
        else:
            table[entry.factory.name] = entry


def _refusal(name: str, project: Project, finder: ModuleFinder) -> Refused | None:
    """Why a module may not be imported because a config says so."""
    top = name.split(".")[0]
    if is_allowed_module(name, project) and top != "torch":
        return None
    what = f"{name!r} is outside the project's roots"
    if top == "torch":
        return hidden_by(top, project, finder) or Refused(what, "list modules of your own")
    return hidden_by(top, project, finder) or outside(top, what)


def _imported(module: Module) -> Iterator[str]:
    top = module.name.split(".")[0]
    for source in (*module.stars, *_sources(module)):
        if source.split(".")[0] == top:
            yield source


def _sources(module: Module) -> Iterator[str]:
    for binding in module.bindings.values():
        if isinstance(binding, Import):
            yield binding.module
            if binding.name:
                yield f"{binding.module}.{binding.name}"


def _entries(module: Module, node: DefinitionNode) -> Iterator[Registered]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and full_name(module, decorator.func) in _REGISTER:
            words = {word.arg: word.value for word in decorator.keywords}
            kind = _text(decorator.args[0] if decorator.args else words.get("kind"))
            name = _text(decorator.args[1] if len(decorator.args) > 1 else words.get("name"))
            override = words.get("override")
            if kind in KINDS:
                factory = Factory(
                    kind, name or node.name, module.name, node.name, module.file, node.lineno
                )
                is_override = isinstance(override, ast.Constant) and override.value is True
                yield Registered(factory, is_override)


def _text(expression: ast.expr | None) -> str:
    value = expression.value if isinstance(expression, ast.Constant) else None
    return value if isinstance(value, str) else ""
