"""Names to factories; the one and only resolver of names to code."""

from epochal.registry.names import Registry
from epochal.registry.project import Project, find_project
from epochal.registry.table import REGISTERED, Factory, register

__all__ = ["REGISTERED", "Factory", "Project", "Registry", "find_project", "register"]
