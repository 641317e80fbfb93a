"""Stand-ins for packages that a peer imports but does not use in what is measured."""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType


class Empty(ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder:
    """Finds some packages, and everything below them, as empty modules."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for what this finder stands in for."""
        if name.partition(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An empty module."""
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute."""


def stand_in(*packages: str) -> None:
    """Let imports of these packages succeed from now on."""
    sys.meta_path.append(Finder(packages))
