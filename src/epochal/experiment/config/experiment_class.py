"""The user's subclass of ``Experiment``: its steps, and whether a config can name it."""

from __future__ import annotations

import ast
import inspect
import symtable
import sys
from dataclasses import dataclass, replace
from importlib.util import decode_source
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.check.sections.experiment_class import KIND
from epochal.config import Node
from epochal.config.source_file import display_name
from epochal.errors import ConfigError, Place
from epochal.text.escape import decode_typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.config import Config
    from epochal.registry import Registry

_SCRIPT = "__main__"
_METHODS = ("run", "fit", "test", "predict")


@final
@dataclass(frozen=True, kw_only=True)
class ExperimentClass:
    """A subclass of ``Experiment``, and whether another process can use it again."""

    name: str
    """Its dotted path if a config can name it, else the name of the class."""

    file: Path | None
    line: int
    module: str
    steps: frozenset[str]
    """The methods of ``Experiment`` that it overrides."""

    obstacle: str = ""
    """Why a config cannot name it; empty if it can."""

    def with_obstacle(self, obstacle: str) -> ExperimentClass:
        """The same class, which a config cannot name."""
        return replace(self, obstacle=self.obstacle or obstacle)

    def locate(self, registry: Registry) -> ExperimentClass:
        """The same class with its dotted path in a project, or the obstacle that it has there."""
        if self.obstacle or self.file is None:
            return self
        folders = registry.project.code_dirs
        names = [_module_name(self.file, folder) for folder in folders]
        if self.module != _SCRIPT:
            names.append(self.module)
        for module in filter(None, names):
            dotted = f"{module}.{self.name}"
            try:
                found = registry.find(KIND, dotted)
            except ConfigError:
                continue
            if found.file is not None and found.file.resolve() == self.file.resolve():
                return replace(self, name=found.dotted)
        return self.with_obstacle(
            f"it is not in the project's folder {display_name(registry.project.dir)}"
        )

    def put_into(self, config: Config) -> Config:
        """The config with this class as its ``experiment``, or with none if it has an obstacle."""
        name = None if self.obstacle else self.name
        known = config.root.mapping.get(KIND)
        if name == (None if known is None else known.value):
            return config
        place = Place(display_name(self.file), self.line, 1) if self.file else Place("Python")
        entry = Node(name, place, place, replaced=known)
        root = config.root.with_entries({**config.root.mapping, KIND: entry})
        return replace(config, root=root)

    def to_json(self) -> dict[str, Any]:
        """What the record says about it."""
        return {
            "class": self.name,
            "file": None if self.file is None else decode_typed(str(self.file)),
            "steps": sorted(self.steps),
            "obstacle": self.obstacle,
        }


def describe_class(kind: type, base: type, *, is_named: bool) -> ExperimentClass | None:
    """The class of an experiment; None if it is ``base`` itself.

    ``is_named`` means that a config named the class, so that it can be created again.
    """
    if kind is base:
        return None
    file = _source_file(kind)
    found = ExperimentClass(
        name=kind.__name__,
        file=file,
        line=_line_of(kind),
        module=kind.__module__,
        steps=_find_overridden(kind, base),
    )
    return found if is_named else found.with_obstacle(_find_obstacle(kind, base, found))


def _find_overridden(kind: type, base: type) -> frozenset[str]:
    names = (name for name in vars(base) if not name.startswith("_"))
    return frozenset(name for name in names if getattr(kind, name) is not getattr(base, name))


def _find_obstacle(kind: type, base: type, found: ExperimentClass) -> str:
    """Why another process cannot create the same experiment from the class alone."""
    if found.file is None:
        return "it has no source file"
    if "." in kind.__qualname__:
        return "it is defined inside a function or another class"
    own = sorted(found.steps & {*_METHODS})
    if own:
        return f"it overrides {', '.join(own)}"
    if kind.__init__ is not base.__init__:  # type: ignore[misc]  # compared, not called
        return "it has its own __init__, whose arguments no config has"
    return _find_script_obstacle(found.file) if found.module == _SCRIPT else ""


def _source_file(kind: type) -> Path | None:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    path = Path(file).absolute() if isinstance(file, str) else None
    return path if path is not None and path.is_file() else None


def _line_of(kind: type) -> int:
    try:
        return inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return 0


def _module_name(file: Path, folder: Path) -> str:
    """The dotted path of a file below a folder; empty for others."""
    try:
        parts = file.resolve().relative_to(folder.resolve()).with_suffix("").parts
    except ValueError:
        return ""
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) if parts and all(part.isidentifier() for part in parts) else ""


def _find_script_obstacle(script: Path) -> str:
    """Why a script that is imported may not give the same class as one that is started."""
    try:
        source = decode_source(script.read_bytes())
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return f"{script.name} cannot be read"
    guarded = [node for node in tree.body if isinstance(node, ast.If) and _is_guard(node.test)]
    if not guarded:
        return f'importing {script.name} would run it: it lacks `if __name__ == "__main__":`'
    changed = {
        node.id
        for block in guarded
        for node in ast.walk(block)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    functions = list(_iter_functions(symtable.symtable(source, str(script), "exec")))
    for symbol in (symbol for table in functions for symbol in table.get_symbols()):
        if symbol.is_global() and symbol.is_assigned():
            changed.add(symbol.get_name())
    for table in functions:
        for symbol in table.get_symbols():
            if symbol.is_global() and symbol.is_referenced() and symbol.get_name() in changed:
                where = f"{table.get_name()} reads {symbol.get_name()}"
                return f"{where}, which is set only when {script.name} is started"
    return ""


def _is_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and getattr(test.left, "id", "") == "__name__"
        and any(getattr(one, "value", None) == _SCRIPT for one in test.comparators)
    )


def _iter_functions(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        if child.get_type() == "function":
            yield child
        yield from _iter_functions(child)
