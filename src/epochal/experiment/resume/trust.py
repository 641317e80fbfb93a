"""Decides whether the code of a run may be executed: it belongs to this project, or is trusted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.errors import CheckpointError, RecordError, UntrustedCodeError
from epochal.experiment.resume.resume_plan import require_project_dir
from epochal.records.code.verify import describe_damage, find_code_damage
from epochal.registry.project import Project, find_project
from epochal.registry.project_file import read_project_file

if TYPE_CHECKING:
    from epochal.records import RunRecord


def require_trusted_code(record: RunRecord, *, trust: bool) -> Path:
    """The folder of a run's code, which its evaluation or resumption executes.

    Raises:
        CheckpointError: The record does not say where the code is, or it is not there.
        RecordError: The code is not of this project, and the record's copy of it was altered.
        UntrustedCodeError: The code is not of this project, and the user does not ``trust`` it.
    """
    folder = require_project_dir(record)
    if not folder.is_dir():
        raise CheckpointError(
            f"{record.path}: its code was in {folder}, which does not exist here\n"
            "  name the folder that has it: --user-dir DIR"
        )
    projects = _current_projects()
    if any(_has_code(project, folder.resolve(), record.path.resolve()) for project in projects):
        return folder
    damage = find_code_damage(record.path, record.summary.attempt)
    if damage:
        raise RecordError(
            f"{record.path / 'code'}: {describe_damage(damage)}\n"
            "  copy the run again, or name the folder of code that you have checked: --user-dir DIR"
        )
    if not trust:
        raise UntrustedCodeError(
            f"{record.path}: would execute the code in {folder}, which is not part of this "
            f"project ({projects[0].dir})"
        )
    return folder


def _current_projects() -> list[Project]:
    """The project of the current folder, and that of the running script."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    starts = [Path.cwd(), *([Path(script)] if script else [])]
    return [find_project(start) for start in starts]


def _has_code(project: Project, code: Path, run_dir: Path) -> bool:
    """Whether ``code`` is the folder of the project, or one of its own below it."""
    home, runs_dir = project.dir.resolve(), project.runs_dir.resolve()
    if code == home:
        return True
    if not code.is_relative_to(home):
        return False
    if any(code.is_relative_to(folder) for folder in (runs_dir, run_dir)):
        return False  # a copied run could bring its own code
    inner = code.relative_to(home)
    if any(_is_other_project(home / folder) for folder in (inner, *inner.parents[:-1])):
        return False
    # Without a project file, any folder is a project, such as the user's home.
    return read_project_file(home) is not None or run_dir.is_relative_to(runs_dir)


def _is_other_project(folder: Path) -> bool:
    return (folder / ".git").exists() or read_project_file(folder) is not None
