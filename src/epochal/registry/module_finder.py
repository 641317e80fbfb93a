"""Finds modules by searching folders, and definitions by following imports in source files."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import wraps
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, final

from epochal.registry.parsed_module import Definition, Import, Module, Variable, read_module
from epochal.registry.star_imports import StarImports, mentions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Params = ParamSpec("Params")
ResultT = TypeVar("ResultT")
_Located = tuple[Path | None, tuple[Path, ...]]
_NOTHING: _Located = (None, ())


@final
@dataclass(slots=True)
class ModuleFinder:
    """Finds modules and definitions in source files, without importing them."""

    dirs: Sequence[Path] = ()
    """Searched before the installed packages."""

    results: dict[tuple[object, ...], Any] = field(default_factory=dict)
    """Of functions that are ``cached_by_finder``."""

    _modules: dict[str, Module | None] = field(default_factory=dict)
    _located: dict[str, _Located] = field(default_factory=dict)
    _finders: dict[Path, FileFinder] = field(default_factory=dict)
    _spelled: dict[tuple[str, str], bool] = field(default_factory=dict)
    _star_imports: StarImports = field(init=False)

    def __post_init__(self) -> None:
        self._star_imports = StarImports(self._find_file)

    def find_module(self, dotted: str) -> Module | None:
        """The module with this dotted name, if its source can be found."""
        if dotted not in self._modules:
            located = self._find_file(dotted)
            self._modules[dotted] = None if located is None else read_module(dotted, *located)
        return self._modules[dotted]

    def find_folders(self, dotted: str) -> tuple[Path, ...]:
        """The folders with the submodules of a package; empty if there are none."""
        return self._locate(dotted)[1]

    def submodules(self, dotted: str) -> set[str]:
        """The names of the modules directly below a package."""
        names = set[str]()
        for folder in self.find_folders(dotted):
            names |= {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
            names |= {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}
        return names

    def public_names(self, module: Module) -> dict[str, str]:
        """The public names of a module, each with the module that binds it."""
        names = {
            name: source
            for star in module.stars
            for name, source in self._star_imports.offered(star)
        }
        for name, binding in module.bindings.items():
            if not name.startswith("_") and not isinstance(binding, Variable):
                names[name] = module.name
        return names

    def may_hide(self, module: Module, name: str) -> bool:
        """Whether ``name`` may exist in a module although its source does not bind it."""
        if any(self._star_imports.lacks_source(star) for star in module.stars):
            return True
        # A name that is bound at run time is usually written somewhere in the package.
        return module.is_dynamic and self.is_spelled(module, name)

    def is_spelled(self, module: Module, name: str) -> bool:
        """Whether any source of the module's package contains ``name``."""
        top = module.name.partition(".")[0]
        if (top, name) not in self._spelled:
            folders = self.find_folders(top)
            found = not folders or any(mentions(folder, name) for folder in folders)
            self._spelled[top, name] = found
        return self._spelled[top, name]

    def resolve(self, module: Module, name: str) -> Definition | Variable | Import | None:
        """What ``name`` is in ``module``, following imports through source files.

        The answer is an ``Import`` if it leads to a module, or to one without source.
        """
        found = self._follow(module, name, set(), strict=True)
        if found is None or isinstance(found, Import):
            return self._follow(module, name, set(), strict=False)
        return found

    def find_definition(self, dotted: str) -> Definition | None:
        """The class or function with this full name, also if the module only imports it."""
        module_name, _, name = dotted.rpartition(".")
        module = self.find_module(module_name) if module_name else None
        found = self.resolve(module, name) if module is not None else None
        return found if isinstance(found, Definition) else None

    def _follow(
        self, module: Module, name: str, seen: set[tuple[str, str]], *, strict: bool
    ) -> Definition | Variable | Import | None:
        if (module.name, name) in seen:
            return None
        seen.add((module.name, name))
        binding = module.bindings.get(name)
        if binding is None:
            return self._follow_stars(module, name, seen, strict=strict)
        if isinstance(binding, Import):
            source = self.find_module(binding.module) if binding.name else None
            if source is None or binding.name is None:
                return binding
            return self._follow(source, binding.name, seen, strict=strict) or binding
        return binding if isinstance(binding, Variable) else Definition(module, binding)

    def _follow_stars(
        self, module: Module, name: str, seen: set[tuple[str, str]], *, strict: bool
    ) -> Definition | Variable | Import | None:
        """What a star import binds; ``strict``: only what its source defines and exports."""
        for star in reversed(module.stars):
            if not self._star_imports.may_offer(star, name, defined=strict):
                continue  # parsing them all would take minutes
            source = self.find_module(star)
            # Decorators may extend __all__, so a name that it lacks may still be exported.
            lenient = not strict and not name.startswith("_")
            if source is not None and (lenient or source.offers(name)):
                found = self._follow(source, name, seen, strict=strict)
                if found is not None:
                    return found
        return None

    def _find_file(self, dotted: str) -> tuple[Path, bool] | None:
        file, _ = self._locate(dotted)
        return None if file is None else (file, file.name == "__init__.py")

    def _locate(self, dotted: str) -> _Located:
        """The file of a module and the folders of its submodules, as Python would find them."""
        if dotted not in self._located:
            parent, _, last = dotted.rpartition(".")
            if parent:
                found = self._search(self.find_folders(parent), last)
            else:
                found = _NOTHING if is_reserved(last) else self._search(self.dirs, last)
                if found[0] is None:  # namespace packages come last
                    file, folders = _find_installed(last)
                    found = file, folders or found[1]
            self._located[dotted] = found
        return self._located[dotted]

    def _search(self, folders: Sequence[Path], name: str) -> _Located:
        portions: list[str] = []
        for folder in folders:
            if folder not in self._finders:
                source = (SourceFileLoader, SOURCE_SUFFIXES)
                self._finders[folder] = FileFinder(str(folder), source)
            spec = self._finders[folder].find_spec(name)
            if spec is None:
                continue
            if spec.origin is not None:
                return Path(spec.origin), tuple(map(Path, spec.submodule_search_locations or ()))
            portions += spec.submodule_search_locations or ()
        return None, tuple(map(Path, portions))


def cached_by_finder(function: Callable[Params, ResultT]) -> Callable[Params, ResultT]:
    """Compute a function of source files once per finder, which is its last argument."""

    @wraps(function)
    def look_up(*args: Params.args, **words: Params.kwargs) -> ResultT:
        *others, finder = args
        assert isinstance(finder, ModuleFinder)
        key = (function, *(getattr(one, "dotted", one) for one in others))
        if key not in finder.results:
            finder.results[key] = function(*args, **words)
        found: ResultT = finder.results[key]
        return found

    return look_up


def is_standard(top: str) -> bool:
    """Whether a top-level name means a module of Python's standard library."""
    return top in sys.stdlib_module_names


def is_reserved(top: str) -> bool:
    """Whether a top-level name always means the installed module, never one of the user's."""
    return top in ("torch", "epochal") or is_standard(top)


def _find_installed(top: str) -> _Located:
    # Finders of a top-level name import nothing.
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find(top, None)
        if spec is not None:
            file = Path(spec.origin) if str(spec.origin).endswith(".py") else None
            return file, tuple(map(Path, spec.submodule_search_locations or ()))
    return _NOTHING
