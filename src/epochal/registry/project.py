"""The project of a config: its folder, and the packages that its configs may name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.registry.module_finder import is_reserved
from epochal.registry.project_file import RUNS_DIR, read_project_file

if TYPE_CHECKING:
    from collections.abc import Collection

FIXED_ROOTS = ("torch.nn", "torch.optim", "torch.utils.data", "torchmetrics", "epochal")
_MAX_FILES = 500


@final
@dataclass(frozen=True, slots=True)
class Project:
    """The folder of the user's code, and the other packages that configs may name."""

    dir: Path
    """The folder whose packages and modules configs may name."""

    roots: tuple[str, ...] = ()
    """Further packages that the project file allows, such as ``torchvision``."""

    name: str = ""
    """Groups the records of this project's runs."""

    runs_dir: Path = RUNS_DIR
    """The folder of the runs; a relative path if the current folder is in the project."""

    has_private_runs: bool = True
    """Whether only the user who starts a run may read its folder."""

    copy: Path | None = None
    """A frozen copy of ``dir``; its code is used instead."""

    @property
    def code_dir(self) -> Path:
        """The folder that code is imported from: ``dir``, or its frozen copy."""
        return self.copy or self.dir

    @property
    def code_dirs(self) -> tuple[Path, ...]:
        """The folders with the project's own packages."""
        source = self.code_dir / "src"
        return (self.code_dir, source) if source.is_dir() else (self.code_dir,)

    def owns(self, top: str) -> bool:
        """Whether a top-level module belongs to the project."""
        return not is_reserved(top) and self.has_module(top)

    def has_module(self, top: str) -> bool:
        """Whether its folders have a module of this name, even if another one hides it."""
        return any(_is_module(folder, top) for folder in self.code_dirs)

    def own_modules(self) -> tuple[str, ...]:
        """The names of the project's own top-level packages and modules."""
        found = set[str]()
        for folder in self.code_dirs:
            for entry in folder.iterdir() if folder.is_dir() else ():
                top = entry.stem if entry.suffix == ".py" else entry.name
                if top.isidentifier() and entry not in self.code_dirs and self.owns(top):
                    found.add(top)
        return tuple(sorted(found))


def project_modules(project: Project) -> dict[str, Path]:
    """The files of the project's own modules, by dotted name."""
    found = {}
    for folder in project.code_dirs:
        for top in project.own_modules():
            files = sorted((folder / top).rglob("*.py"))[:_MAX_FILES]
            for file in (folder / f"{top}.py", *files):
                if file.is_file():
                    parts = file.relative_to(folder).with_suffix("").parts
                    found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def find_project(
    start: Path, *, user_dir: Path | None = None, modules: Collection[str] = ()
) -> Project:
    """The project of a config or folder: the nearest project file above, or a folder.

    A project file is ``epochal.toml``, or ``pyproject.toml`` with a ``[tool.epochal]`` table.
    Without one, it is the nearest folder from the config's own up to the current one that holds
    any of ``modules``, the top-level names which the config uses; else the config's own.
    ``user_dir`` replaces the folder in which the user's modules are looked for.
    """
    start = (user_dir or start).absolute()
    folder = start if start.is_dir() else start.parent
    for candidate in (folder, *folder.parents):
        found = read_project_file(candidate)
        if found is not None:
            home = folder if user_dir is not None else candidate
            name = found.name or candidate.name
            return Project(home, found.roots, name, found.runs_dir, found.has_private_runs)
    if user_dir is None:
        folder = _nearest_owner(folder, modules) or folder
    return Project(folder, (), folder.name)


def _nearest_owner(folder: Path, modules: Collection[str]) -> Path | None:
    current = Path.cwd()
    above = [parent for parent in folder.parents if parent.is_relative_to(current)]
    for is_owner in (Project.owns, Project.has_module):  # a hidden module is found to report it
        for candidate in (folder, *above):
            if any(is_owner(Project(candidate), top) for top in modules):
                return candidate
    return None


def _is_module(folder: Path, top: str) -> bool:
    if (folder / f"{top}.py").is_file():
        return True
    package = folder / top
    # A folder of code is a package without __init__.py too.
    patterns = ("__init__.py", "*.py", "*/*.py")
    return any(next(package.glob(pattern), None) is not None for pattern in patterns)
