"""Python modules read as text: what they define and import, with nothing executed."""

from __future__ import annotations

import ast
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.errors import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DefinitionNode = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_MAX_BYTES = 4_000_000
_parsed: dict[tuple[str, int, int], tuple[ast.Module, SyntaxError | None]] = {}


@dataclass(frozen=True, slots=True)
class Import:
    """A name bound by an import: a module, or (with ``name``) something inside one."""

    module: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """A name bound by an assignment."""

    value: ast.expr


Binding = Import | Variable | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One module as text: the names that it binds at its top level."""

    name: str
    file: Path
    is_package: bool
    tree: ast.Module
    error: SyntaxError | None
    bindings: Mapping[str, Binding]
    stars: tuple[str, ...]
    """Modules of which everything is imported."""

    @property
    def is_dynamic(self) -> bool:
        """Whether names may exist here that the text does not show."""
        return "__getattr__" in self.bindings or any(
            isinstance(node, ast.Name) and node.id in ("globals", "setattr", "vars")
            for node in ast.walk(self.tree)
        )

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
        return Place(shown_path(self.file), node.lineno, column + 1, text, len(word) or 1)


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A ``class`` or ``def`` statement and the module that holds it."""

    module: Module
    node: DefinitionNode

    @property
    def dotted(self) -> str:
        """The full name, such as ``digits.model.Mlp``."""
        return f"{self.module.name}.{self.node.name}"


@dataclass(slots=True)
class Library:
    """Finds modules by walking folders, and definitions by following imports."""

    dirs: Sequence[Path] = ()
    """Looked through before the installed packages."""

    _modules: dict[str, Module | None] = field(default_factory=dict)

    def find_module(self, dotted: str) -> Module | None:
        """The module with this dotted name, if its source can be found."""
        if dotted not in self._modules:
            located = self._locate(dotted)
            self._modules[dotted] = None if located is None else _read(dotted, *located)
        return self._modules[dotted]

    def find_folders(self, dotted: str) -> tuple[Path, ...]:
        """The folders that hold the submodules of a package, or nothing."""
        top, *rest = dotted.split(".")
        folders = tuple(path / top for path in self._top_dirs(top)) or _installed_folders(top)
        for part in rest:
            folders = tuple(folder / part for folder in folders)
        return tuple(folder for folder in folders if folder.is_dir())

    def submodules(self, dotted: str) -> set[str]:
        """The names of the modules directly below a package."""
        names = set[str]()
        for folder in self.find_folders(dotted):
            names |= {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
            names |= {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}
        return names

    def public_names(self, module: Module, *, depth: int = 4) -> set[str]:
        """The classes, functions and imported names that a module offers, for suggestions."""
        names = {
            name
            for name, binding in module.bindings.items()
            if not name.startswith("_") and not isinstance(binding, Variable)
        }
        for star in module.stars if depth else ():
            source = self.find_module(star)
            names |= set() if source is None else self.public_names(source, depth=depth - 1)
        return names

    def resolve(self, module: Module, name: str) -> Definition | Variable | Import | None:
        """What ``name`` is in ``module``, following imports as far as text allows.

        An ``Import`` answer is where the trail ends: a module, or one without source.
        """
        return self._follow(module, name, set())

    def find_definition(self, dotted: str) -> Definition | None:
        """The class or function with this full name, wherever it is imported from."""
        module_name, _, name = dotted.rpartition(".")
        module = self.find_module(module_name) if module_name else None
        found = self.resolve(module, name) if module is not None else None
        return found if isinstance(found, Definition) else None

    def _follow(
        self, module: Module, name: str, seen: set[tuple[str, str]]
    ) -> Definition | Variable | Import | None:
        if (module.name, name) in seen:
            return None
        seen.add((module.name, name))
        binding = module.bindings.get(name)
        if binding is None:
            return self._follow_stars(module, name, seen)
        if isinstance(binding, Import):
            source = self.find_module(binding.module) if binding.name else None
            if source is None or binding.name is None:
                return binding
            return self._follow(source, binding.name, seen) or binding
        return binding if isinstance(binding, Variable) else Definition(module, binding)

    def _follow_stars(
        self, module: Module, name: str, seen: set[tuple[str, str]]
    ) -> Definition | Variable | Import | None:
        for star in () if name.startswith("_") else reversed(module.stars):
            source = self.find_module(star)
            found = None if source is None else self._follow(source, name, seen)
            if found is not None:
                return found
        return None

    def _top_dirs(self, top: str) -> Iterator[Path]:
        if is_reserved(top):
            return
        for path in self.dirs:
            if (path / top / "__init__.py").is_file() or (path / f"{top}.py").is_file():
                yield path
                return
        for path in self.dirs:  # a folder without __init__.py counts only after all others
            if (path / top).is_dir() and not _installed_folders(top):
                yield path

    def _locate(self, dotted: str) -> tuple[Path, bool] | None:
        top, _, rest = dotted.partition(".")
        if rest:
            parent, _, last = dotted.rpartition(".")
            folders = self.find_folders(parent)
            return _first_file([(folder, last) for folder in folders])
        own = _first_file([(path, top) for path in self._top_dirs(top)])
        return own or _installed_file(top)


def full_name(module: Module, expression: ast.expr) -> str:
    """The dotted name that a name or attribute of ``module`` stands for, or nothing."""
    if isinstance(expression, ast.Attribute):
        owner = full_name(module, expression.value)
        return owner and f"{owner}.{expression.attr}"
    if not isinstance(expression, ast.Name):
        return ""
    binding = module.bindings.get(expression.id)
    if isinstance(binding, Import):
        return f"{binding.module}.{binding.name}" if binding.name else binding.module
    return expression.id if binding is None else f"{module.name}.{expression.id}"


def is_reserved(top: str) -> bool:
    """Whether a top-level name always means the installed module, never one of the user's."""
    return top in ("torch", "epochal") or top in sys.stdlib_module_names


def shown_path(path: Path) -> str:
    """A file's path as the user would type it: relative when it lies below the folder here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _first_file(candidates: Sequence[tuple[Path, str]]) -> tuple[Path, bool] | None:
    for folder, name in candidates:
        package = folder / name / "__init__.py"
        if package.is_file():
            return package, True
        plain = folder / f"{name}.py"
        if plain.is_file():
            return plain, False
    return None


def _installed_file(top: str) -> tuple[Path, bool] | None:
    for folder in _installed_folders(top):
        return _first_file([(folder.parent, folder.name)])
    spec = _top_level_spec(top)
    if spec is None or spec[0] is None or not spec[0].endswith(".py"):
        return None
    return Path(spec[0]), False


def _installed_folders(top: str) -> tuple[Path, ...]:
    spec = _top_level_spec(top)
    return () if spec is None else tuple(Path(folder) for folder in spec[1])


def _top_level_spec(top: str) -> tuple[str | None, tuple[str, ...]] | None:
    # Only finders are asked, and only about a top-level name: neither imports anything.
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find(top, None)
        if spec is not None:
            return spec.origin, tuple(spec.submodule_search_locations or ())
    return None


def _read(name: str, file: Path, is_package: bool) -> Module:
    tree, error = _parse(file)
    bindings: dict[str, Binding] = {}
    stars: list[str] = []
    package = name if is_package else name.rpartition(".")[0]
    _collect(tree.body, package, bindings, stars)
    return Module(name, file, is_package, tree, error, bindings, tuple(stars))


def _parse(file: Path) -> tuple[ast.Module, SyntaxError | None]:
    status = file.stat()
    key = (str(file), status.st_mtime_ns, status.st_size)
    if key not in _parsed:
        _parsed[key] = _parse_text(file, status.st_size)
    return _parsed[key]


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
    for name, binding in fallback.items():  # what the first branch bound is the usual case
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
    source = statement.module or ""
    if statement.level:
        parts = package.split(".")
        kept = parts[: len(parts) - statement.level + 1]
        source = ".".join([*kept, source] if source else kept)
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
            bindings[target.id] = Variable(statement.value)
