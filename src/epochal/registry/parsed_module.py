"""Python modules parsed but not executed: what they define and import."""

from __future__ import annotations

import ast
import copy
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.config.source_file import display_name
from epochal.errors import Place
from epochal.registry.star_imports import absolute_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_MAX_BYTES = 4_000_000
_read: dict[tuple[str, str], tuple[tuple[int, ...], Module]] = {}
"""By name and file, with its version; a server that runs for months keeps only the newest."""


@final
@dataclass(frozen=True, slots=True)
class Import:
    """A name bound by an import: a module, or (with ``name``) something inside one."""

    module: str
    name: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """A name bound by an assignment."""

    value: ast.expr


Binding = Import | Variable | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@final
@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A parsed module: the names that it binds at its top level."""

    name: str
    file: Path
    is_package: bool
    tree: ast.Module
    error: SyntaxError | None
    bindings: Mapping[str, Binding]
    stars: tuple[str, ...]
    """Modules imported with ``*``."""

    @property
    def is_dynamic(self) -> bool:
        """Whether names may exist here that the source does not bind."""
        return "__getattr__" in self.bindings or any(
            isinstance(node, ast.Name) and node.id in ("globals", "setattr", "vars")
            for node in ast.walk(self.tree)
        )

    def offers(self, name: str) -> bool:
        """Whether a star import of this module includes ``name``, if it exists here."""
        listed = self.bindings.get("__all__")
        if not isinstance(listed, Variable):
            return not name.startswith("_")
        try:
            return name in ast.literal_eval(listed.value)
        except (ValueError, TypeError):
            return True  # a computed list may contain any name

    def definitions(self) -> dict[str, DefinitionNode]:
        """The classes and functions that this module itself defines."""
        return {
            name: node
            for name, node in self.bindings.items()
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }

    def place(self, node: ast.stmt | ast.expr | ast.arg, *, word: str = "") -> Place:
        """Where ``node`` (or ``word`` on its first line) is written, for an error message."""
        lines = self.file.read_text(encoding="utf-8", errors="replace").splitlines()
        text = lines[node.lineno - 1] if node.lineno <= len(lines) else ""
        found = text.find(word, node.col_offset) if word else node.col_offset
        column = found if found >= 0 else node.col_offset
        return Place(display_name(self.file), node.lineno, column + 1, text, len(word) or 1)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A ``class`` or ``def`` statement and its module."""

    module: Module
    node: DefinitionNode

    @property
    def dotted(self) -> str:
        """The full name, such as ``digits.model.Mlp``."""
        return f"{self.module.name}.{self.node.name}"


def full_name(module: Module, expression: ast.expr) -> str:
    """The full dotted name of a name or attribute in ``module``; empty if it is neither."""
    if isinstance(expression, ast.Attribute):
        owner = full_name(module, expression.value)
        return owner and f"{owner}.{expression.attr}"
    if not isinstance(expression, ast.Name):
        return ""
    binding = module.bindings.get(expression.id)
    if isinstance(binding, Import):
        return f"{binding.module}.{binding.name}" if binding.name else binding.module
    return expression.id if binding is None else f"{module.name}.{expression.id}"


def read_module(name: str, file: Path, is_package: bool) -> Module:
    """The module in ``file``, parsed."""
    status = file.stat()
    version = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    known = _read.get((name, str(file)))
    if known is None or known[0] != version:
        module = _parse_module(name, file, is_package, status.st_size)
        known = _read[name, str(file)] = version, module
    return known[1]


def _parse_module(name: str, file: Path, is_package: bool, size: int) -> Module:
    tree, error = _parse_text(file, size)
    bindings: dict[str, Binding] = {}
    stars: list[str] = []
    package = name if is_package else name.rpartition(".")[0]
    _collect(tree.body, package, bindings, stars)
    return Module(name, file, is_package, tree, error, bindings, tuple(stars))


def _parse_text(file: Path, size: int) -> tuple[ast.Module, SyntaxError | None]:
    empty = ast.Module(body=[], type_ignores=[])
    if size > _MAX_BYTES:
        return empty, SyntaxError("the file is too large to be read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.read_bytes(), str(file)), None
    except SyntaxError as error:
        return empty, error
    except (ValueError, RecursionError, MemoryError) as error:
        return empty, SyntaxError(str(error))


def _collect(
    body: Sequence[ast.stmt], package: str, bindings: dict[str, Binding], stars: list[str]
) -> None:
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bindings[statement.name] = statement
        elif isinstance(statement, ast.Import):
            _bind_import(statement, bindings)
        elif isinstance(statement, ast.ImportFrom):
            _bind_import_from(statement, package, bindings, stars)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            _bind_assignment(statement, bindings)
        elif isinstance(statement, ast.AugAssign | ast.Expr):
            _bind_extended_all(statement, bindings)
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            _collect_block(statement, package, bindings, stars)


def _collect_block(
    statement: ast.If | ast.Try | ast.With,
    package: str,
    bindings: dict[str, Binding],
    stars: list[str],
) -> None:
    _collect(statement.body, package, bindings, stars)
    others: list[ast.stmt] = [] if isinstance(statement, ast.With) else [*statement.orelse]
    if isinstance(statement, ast.Try):
        others += [inner for handler in statement.handlers for inner in handler.body]
        others += statement.finalbody
    fallback: dict[str, Binding] = {}
    _collect(others, package, fallback, stars)
    for name, binding in fallback.items():  # the first branch is the usual case
        bindings.setdefault(name, binding)


def _bind_import(statement: ast.Import, bindings: dict[str, Binding]) -> None:
    for alias in statement.names:
        if alias.asname:
            bindings[alias.asname] = Import(alias.name)
        else:
            top = alias.name.split(".")[0]
            bindings[top] = Import(top)


def _bind_import_from(
    statement: ast.ImportFrom, package: str, bindings: dict[str, Binding], stars: list[str]
) -> None:
    source = absolute_name(statement.module or "", statement.level, package)
    for alias in statement.names:
        if alias.name == "*":
            stars.append(source)
        else:
            bindings[alias.asname or alias.name] = Import(source, alias.name)


def _bind_assignment(statement: ast.Assign | ast.AnnAssign, bindings: dict[str, Binding]) -> None:
    if statement.value is None:
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        if isinstance(target, ast.Name):
            old = bindings.get(target.id)
            bindings[target.id] = _decorated(old, statement.value) or Variable(statement.value)


def _decorated(binding: Binding | None, value: ast.expr) -> DefinitionNode | None:
    """The definition that ``C = change(C, ...)`` changes, as if ``change`` decorated it."""
    if not isinstance(binding, DefinitionNode) or not isinstance(value, ast.Call):
        return None
    if not any(getattr(argument, "id", "") == binding.name for argument in value.args):
        return None
    changed = copy.copy(binding)  # the tree is shared by all readers of this file
    changed.decorator_list = [*binding.decorator_list, value.func]
    return changed


def _bind_extended_all(statement: ast.AugAssign | ast.Expr, bindings: dict[str, Binding]) -> None:
    """Treat ``__all__`` as computed after ``__all__ += ...`` or ``__all__.extend(...)``."""
    target = statement.target if isinstance(statement, ast.AugAssign) else statement.value
    while isinstance(target, ast.Call | ast.Attribute):
        target = target.func if isinstance(target, ast.Call) else target.value
    if getattr(target, "id", "") == "__all__":
        bindings["__all__"] = Variable(target)
