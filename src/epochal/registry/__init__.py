"""Names to factories: the only package that resolves names to code."""

from epochal.registry.factories import REGISTERED, Factory, register
from epochal.registry.project import Project, find_project
from epochal.registry.registry import Registry

__all__ = ["REGISTERED", "Factory", "Project", "Registry", "find_project", "register"]
