"""The project file: its settings and the folder of the runs; imports little, for quick commands."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from epochal.errors import ConfigError, Place, Problem, suggest

_TEXTS = ("name", "runs_dir")
_KEYS = (*_TEXTS, "roots", "private_runs")
RUNS_DIR = Path("runs")
"""The folder of the runs below the current folder, if the project file names none."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectFile:
    """The settings of a project."""

    name: str
    roots: tuple[str, ...]
    runs_dir: Path
    has_private_runs: bool


def get_runs_dir(chosen: Path | str | None = None) -> Path:
    """The chosen folder of runs, that of the project around the current folder, or ``runs``."""
    if chosen is not None:
        return Path(chosen)
    folder = Path.cwd()
    for candidate in (folder, *folder.parents):
        found = read_project_file(candidate)
        if found is not None:
            return found.runs_dir
    return RUNS_DIR


def name_run(folder: Path) -> str:
    """The name of a run in a command: its id, or its folder if the id would not be found."""
    try:
        root = get_runs_dir()
    except ConfigError:  # the project file is broken, which other code reports
        root = RUNS_DIR
    above = folder.resolve().parents
    # A search for runs does not look into runs, which have their folds and the tests of those.
    is_found = root.resolve() in above and not any((one / "run.json").is_file() for one in above)
    return folder.name if is_found else shlex.quote(str(folder))


def _to_runs_dir(project: Path, written: str) -> Path:
    if not written:
        return RUNS_DIR
    path = project / Path(written).expanduser()
    # A short path is easier to read, and the record can be moved with the project.
    is_near = project in (Path.cwd(), *Path.cwd().parents) and path.is_relative_to(project)
    return Path(os.path.relpath(path)) if is_near else path


def read_project_file(folder: Path) -> ProjectFile | None:
    """The settings in ``epochal.toml`` or in ``[tool.epochal]`` of ``pyproject.toml``, if any."""
    own = folder / "epochal.toml"
    if own.is_file():
        return _check(_parse(own), own)
    shared = folder / "pyproject.toml"
    # Most pyproject files have no table of ours: avoid the cost of parsing them.
    if shared.is_file() and b"epochal" in shared.read_bytes():
        table = _parse(shared).get("tool", {}).get("epochal")
        if table is not None:
            return _check(table, shared)
    return None


def _parse(file: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            Problem(file.name, f"not valid TOML: {error}", Place(str(file)))
        ) from None


def _check(table: object, file: Path) -> ProjectFile:
    problems = []
    if not isinstance(table, dict):
        problems.append(Problem("tool.epochal", f"expected a table, got {table!r}"))
        table = {}
    for key in table:
        if key not in _KEYS:
            problems.append(Problem(key, "unknown project setting", hint=suggest(key, _KEYS)))
    roots, texts = table.get("roots", []), {key: table.get(key, "") for key in _TEXTS}
    for key, text in texts.items():
        if not isinstance(text, str):
            problems.append(Problem(key, f"expected text, got {text!r}"))
    if not isinstance(roots, list) or not all(_is_dotted(root) for root in roots):
        what = f"expected package names, got {roots!r}"
        problems.append(Problem("roots", what, hint='roots = ["torchvision"]'))
    is_private = table.get("private_runs", True)
    if not isinstance(is_private, bool):
        what = f"expected true or false, got {is_private!r}"
        problems.append(Problem("private_runs", what, hint="private_runs = false"))
    if problems:
        place = Place(str(file))
        raise ConfigError(*(Problem(p.key, p.what, place, p.hint) for p in problems))
    runs_dir = _to_runs_dir(file.parent, texts["runs_dir"])
    return ProjectFile(
        name=texts["name"], roots=tuple(roots), runs_dir=runs_dir, has_private_runs=is_private
    )


def _is_dotted(root: object) -> bool:
    return isinstance(root, str) and all(part.isidentifier() for part in root.split("."))
