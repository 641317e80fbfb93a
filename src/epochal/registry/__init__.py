"""Names to factories: the only package that resolves names to code."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.registry.component_names import REGISTERED, Factory, register
    from epochal.registry.project import Project, find_project
    from epochal.registry.registry import Registry

_HOMES = {
    "REGISTERED": "component_names",
    "Factory": "component_names",
    "Project": "project",
    "Registry": "registry",
    "find_project": "project",
    "register": "component_names",
}

__all__ = ["REGISTERED", "Factory", "Project", "Registry", "find_project", "register"]


def __getattr__(name: str) -> object:
    # Imported on first use: commands that only read runs need only the project file.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(f"{__name__}.{_HOMES[name]}:{name}")
