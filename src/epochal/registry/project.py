"""The project of a config: its folder, and the packages that its configs may name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.errors import ConfigError, Place, Problem, suggest
from epochal.registry.module_finder import is_reserved

if TYPE_CHECKING:
    from collections.abc import Collection

FIXED_ROOTS = ("torch.nn", "torch.optim", "torch.utils.data", "torchmetrics", "epochal")
_KEYS = ("name", "roots")
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

    @property
    def code_dirs(self) -> tuple[Path, ...]:
        """The folders with the project's own packages."""
        source = self.dir / "src"
        return (self.dir, source) if source.is_dir() else (self.dir,)

    def owns(self, top: str) -> bool:
        """Whether a top-level module name is the project's own code."""
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
        table, file = _read_project_file(candidate)
        if file is not None:
            home = folder if user_dir is not None else candidate
            return Project(home, table.get("roots", ()), table.get("name") or candidate.name)
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


def _read_project_file(folder: Path) -> tuple[dict[str, Any], Path | None]:
    own = folder / "epochal.toml"
    if own.is_file():
        return _checked(_parse(own), own), own
    shared = folder / "pyproject.toml"
    # Most pyproject files have no table of ours: avoid the cost of parsing them.
    if shared.is_file() and b"epochal" in shared.read_bytes():
        table = _parse(shared).get("tool", {}).get("epochal")
        if table is not None:
            return _checked(table, shared), shared
    return {}, None


def _parse(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            Problem(file.name, f"not valid TOML: {error}", Place(str(file)))
        ) from None


def _checked(table: object, file: Path) -> dict[str, Any]:
    problems = []
    if not isinstance(table, dict):
        problems.append(Problem("tool.epochal", f"expected a table, got {table!r}"))
        table = {}
    for key in table:
        if key not in _KEYS:
            problems.append(Problem(key, "unknown project setting", hint=suggest(key, _KEYS)))
    name, roots = table.get("name", ""), table.get("roots", [])
    if not isinstance(name, str):
        problems.append(Problem("name", f"expected text, got {name!r}"))
    if not isinstance(roots, list) or not all(_is_dotted(root) for root in roots):
        what = f"expected package names, got {roots!r}"
        problems.append(Problem("roots", what, hint='roots = ["torchvision"]'))
    if problems:
        place = Place(str(file))
        raise ConfigError(*(Problem(p.key, p.what, place, p.hint) for p in problems))
    return {"name": name, "roots": tuple(roots)}


def _is_dotted(root: object) -> bool:
    return isinstance(root, str) and all(part.isidentifier() for part in root.split("."))
