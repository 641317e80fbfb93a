"""Small projects on disk for the tests of names and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from epochal.registry import Project, Registry

if TYPE_CHECKING:
    from pathlib import Path

WriteProject = Callable[..., Registry]


@pytest.fixture
def write_project(write_files: Callable[[Mapping[str, str]], Path]) -> WriteProject:
    """A registry of a project with these files: ``write_project({"a.py": ...}, roots=...)``."""

    def write(
        files: Mapping[str, str], *, roots: tuple[str, ...] = (), imports: tuple[str, ...] = ()
    ) -> Registry:
        return Registry(Project(write_files(files), roots, "test"), imports)

    return write
