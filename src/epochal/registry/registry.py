"""The registry: resolves a name to its factory, and imports it on demand."""

from __future__ import annotations

import ast
import importlib
import sys
from functools import cached_property
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, final

from epochal.config.source_file import display_name
from epochal.errors import ConfigError, Place, Problem, UnknownComponentError, nearest, suggest
from epochal.registry.component_names import (
    ANY_KIND,
    BUILTINS,
    KINDS,
    REGISTERED,
    Factory,
    Registered,
    conflict,
)
from epochal.registry.module_finder import ModuleFinder
from epochal.registry.parsed_module import Definition, DefinitionNode, Import, Module, full_name
from epochal.registry.targets import (
    Refused,
    Target,
    find_target,
    hidden_by,
    is_allowed_module,
    outside,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from epochal.registry.project import Project

_TORCH_MODULES = {
    "optimizer": "torch.optim",
    "schedule": "torch.optim.lr_scheduler",
    "loss": "torch.nn.modules.loss",
}
_TORCHMETRICS = (
    *("aggregation", "audio", "classification", "clustering", "detection", "image", "multimodal"),
    *("nominal", "regression", "retrieval", "segmentation", "shape", "text", "video", "wrappers"),
)
_REGISTER = (
    "epochal.register",
    "epochal.registry.register",
    "epochal.registry.component_names.register",
)
_NO_COMPONENTS = ("Optimizer", "LRScheduler", "NLLLoss2d")  # interfaces, and deprecated ones


@final
class Registry:
    """Finds the factory of a name without importing it; ``load`` imports it.

    Searched in this order: built-in names, registered names, dotted paths under the
    project's roots, entry points of installed packages (groups ``epochal.<kind>``).
    """

    def __init__(self, project: Project, imports: Sequence[str] = ()) -> None:
        self.project = project
        self.imports = tuple(imports)
        self.finder = ModuleFinder(project.code_dirs)
        self._imports_loaded = False

    @cached_property
    def _decorated(self) -> Decorated:
        return Decorated(self.imports, self.project, self.finder)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the modules listed under ``imports:``."""
        return tuple(self._decorated.problems)

    def find(self, kind: str, name: str, place: Place | None = None, *, key: str = "") -> Factory:
        """The factory of a name; the kind ``component`` searches all kinds.

        UnknownComponentError if there is none, or configs may not use it.
        """
        if "." in name or ":" in name:
            return self._find_dotted(kind, name, place, key)
        kinds = KINDS if kind == ANY_KIND else (kind,)
        if kinds[0] not in KINDS:  # code of a hook chose it
            what, hint = f"unknown kind {kind!r}", suggest(kind, KINDS)
            raise UnknownComponentError(Problem("registry", what, hint=hint))
        for one in kinds:
            factory = self._find_short(one, name)
            if factory is not None:
                return factory
        for one in kinds:
            factory = self._find_entry_point(one, name, place, key)
            if factory is not None:
                return factory
        known = [short for one in kinds for short in self.names(one)]
        offered = [*known, *self.torchmetrics] if "metric" in kinds else known
        close = nearest(name, offered)
        hint = f"did you mean {close!r}?" if close else _known_names(kind, known)
        if kind == "metric" and not close and not self.torchmetrics:
            hint = f"is it one of torchmetrics? pip install 'epochal[metrics]'; {hint}"
        raise UnknownComponentError(Problem(key or kind, f"unknown {kind} {name!r}", place, hint))

    def names(self, kind: str, *, entry_points: bool = False) -> tuple[str, ...]:
        """The short names of a kind; those of entry points only on demand, as that is slow."""
        found = {*BUILTINS.get(kind, ()), *REGISTERED[kind], *self._decorated.tables[kind]}
        if entry_points:
            targets_by_name = self._entry_point_targets(kind)
            found |= {name for name, targets in targets_by_name.items() if len(targets) == 1}
        return tuple(sorted(found | set(self._torch_names(kind))))

    @cached_property
    def torchmetrics(self) -> dict[str, str]:
        """The metrics of torchmetrics, each with its module; empty if it is not installed."""
        found: dict[str, str] = {}
        for part in _TORCHMETRICS:
            module = self.finder.find_module(f"torchmetrics.{part}")
            for name, binding in module.bindings.items() if module is not None else ():
                source = binding.module if isinstance(binding, Import) else ""
                is_own = isinstance(binding, ast.ClassDef) or source.startswith("torchmetrics.")
                if name[0].isupper() and is_own:
                    found.setdefault(name, f"torchmetrics.{part}")
        return found

    def load(self, factory: Factory) -> Callable[..., Any]:
        """The live callable; the only place that imports code because a config names it.

        ConfigError if the module that was found is not the one that Python imported.
        """
        if factory.object is not None:
            return factory.object
        self._load_imports()
        module = _import(factory)
        loaded_from = getattr(module, "__file__", None)
        if factory.file is not None and loaded_from is not None:
            _check_same_file(factory, Path(loaded_from))
        target = getattr(module, factory.qualname, None)
        if not callable(target):
            raise ConfigError(Problem(factory.name, f"{factory.dotted!r} is not callable"))
        if factory.file is None:
            _check_is_component(factory, target)
        found: Callable[..., Any] = target
        return found

    def _load_imports(self) -> None:
        if self.problems:
            raise ConfigError(*self.problems)
        for folder in reversed(self.project.code_dirs):
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
        if not self._imports_loaded:
            self._imports_loaded = True
            for name in self.imports:
                importlib.import_module(name)

    def _find_short(self, kind: str, name: str) -> Factory | None:
        claimed: Registered | None = REGISTERED[kind].get(name)
        claimed = claimed or self._decorated.tables[kind].get(name)
        if claimed is not None:
            return claimed.factory
        builtin = BUILTINS.get(kind, {}).get(name)
        if builtin is not None:
            return self._factory_at(kind, name, builtin)
        if kind == "metric" and name in self.torchmetrics:
            return self._factory_at(kind, name, f"{self.torchmetrics[name]}:{name}")
        return self._find_torch(kind, name)

    def _find_torch(self, kind: str, name: str) -> Factory | None:
        module = _TORCH_MODULES.get(kind)
        if module is None or not name.isidentifier():
            return None
        names = {known.casefold(): known for known in self._torch_names(kind)}
        if not names:  # without torch its classes cannot be listed
            return Factory(kind, name, module, name)
        real = names.get(name.casefold())
        if real is None:
            return None
        return self._factory_at(kind, name, f"{module}:{real}")

    def _torch_names(self, kind: str) -> list[str]:
        module = self.finder.find_module(_TORCH_MODULES[kind]) if kind in _TORCH_MODULES else None
        if module is None:
            return []
        return [
            name
            for name, binding in module.bindings.items()
            if name[0].isupper()
            and name not in _NO_COMPONENTS
            and (
                isinstance(binding, ast.ClassDef)
                or (isinstance(binding, Import) and binding.module.startswith(f"{module.name}."))
            )
        ]

    def _find_dotted(self, kind: str, name: str, place: Place | None, key: str) -> Factory:
        try:
            return _factory(kind, name, find_target(name, self.project, self.finder))
        except Refused as refused:
            what = f"cannot use {kind} {name!r}: {refused.why}"
            raise UnknownComponentError(Problem(key or kind, what, place, refused.hint)) from None

    def _find_entry_point(
        self, kind: str, name: str, place: Place | None, key: str
    ) -> Factory | None:
        targets = self._entry_point_targets(kind).get(name, [])
        if not targets:
            return None
        if len(targets) > 1:
            shown = " and ".join(repr(target.replace(":", ".")) for target in targets)
            what = f"installed packages give the name {name!r} to {shown}"
            hint = "uninstall one, or list a package under roots and write its dotted path"
            raise UnknownComponentError(Problem(key or kind, what, place, hint))
        return self._factory_at(kind, name, targets[0])

    @cached_property
    def _entry_points(self) -> Any:  # noqa: ANN401 - another class before Python 3.12
        from importlib.metadata import entry_points

        return entry_points()  # reads the metadata of each installed package

    def _entry_point_targets(self, kind: str) -> dict[str, list[str]]:
        """The entry points of installed packages by name, without duplicates."""
        found: dict[str, list[str]] = {}
        for entry in self._entry_points.select(group=f"epochal.{kind}"):
            target = entry.value if ":" in entry.value else f"{entry.value}:{entry.name}"
            targets = found.setdefault(entry.name, [])
            if target not in targets:
                targets.append(target)
        return found

    def _factory_at(self, kind: str, name: str, target: str) -> Factory:
        module, _, qualname = target.partition(":")
        definition = self.finder.find_definition(f"{module}.{qualname}")
        return _factory(kind, name, Target(module, qualname, definition))


def _factory(kind: str, name: str, target: Target) -> Factory:
    found: Definition | None = target.definition
    if found is None:
        return Factory(kind, name, target.module, target.name)
    module = found.module
    return Factory(kind, name, module.name, found.node.name, module.file, found.node.lineno)


def _import(factory: Factory) -> ModuleType:
    try:
        return importlib.import_module(factory.module)
    except ModuleNotFoundError as error:
        top = factory.module.partition(".")[0]
        loaded = getattr(sys.modules.get(top), "__path__", None)
        if factory.file is None or error.name is None or loaded is None:
            raise
        is_hidden = not any(factory.file.is_relative_to(folder) for folder in loaded)
        if not is_hidden or not factory.module.startswith(error.name):
            raise
        what = f"the installed package {top!r} hides the one of {display_name(factory.file)}"
        hint = f"give {top!r} of your project another name"
        raise ConfigError(Problem(factory.name, what, hint=hint)) from error


def _known_names(kind: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    dotted = "or a dotted path such as 'package.module.Class'"
    if not names:
        return "write a dotted path such as 'package.module.Class'"
    return f"known: {', '.join(names)}; {dotted}" if len(names) <= 12 else dotted


def _check_is_component(factory: Factory, target: object) -> None:
    """Refuse anything but a class or function of the package that the path names."""
    home = str(getattr(target, "__module__", ""))
    is_code = isinstance(target, type | FunctionType | BuiltinFunctionType)
    if not is_code or home.split(".")[0] != factory.module.split(".")[0]:
        what = f"{factory.dotted!r} is not a class or function of that package"
        raise ConfigError(Problem(factory.name, what))


def _check_same_file(factory: Factory, loaded: Path) -> None:
    if factory.file is not None and loaded.resolve() != factory.file.resolve():
        files = f"{display_name(factory.file)} and {display_name(loaded)}"
        what = f"two modules are called {factory.module!r}: {files}"
        hint = "give one of them another name, or start a new process"
        raise ConfigError(Problem(factory.name, what, hint=hint))


@final
class Decorated:
    """What the modules listed under ``imports:`` register, read from their decorators."""

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
        return hidden_by(top, project, finder) or Refused(what, "list only modules of your project")
    return hidden_by(top, project, finder) or outside(top, what)


def _imported(module: Module) -> Iterator[str]:
    """The modules of the same package that a module may import."""
    sources = [*module.stars]
    for binding in module.bindings.values():
        if isinstance(binding, Import):
            sources.append(binding.module)
            sources += [f"{binding.module}.{binding.name}"] if binding.name else []
    top = module.name.split(".")[0]
    return (source for source in sources if source.split(".")[0] == top)


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
