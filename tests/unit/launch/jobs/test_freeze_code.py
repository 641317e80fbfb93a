"""A frozen project does not change when its files do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.launch.jobs.freeze_code import (
    CodeOptions,
    copy_snapshot,
    find_framework,
    freeze_code,
    make_batch_dir,
)
from epochal.records.code.code_manifest import read_manifest
from epochal.registry.project import Project

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from epochal.launch.jobs.frozen_job import FrozenCode


def write_project(folder: Path) -> Project:
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "code.py").write_text("x = 1\n")
    (folder / "pkg" / "data.bin").write_bytes(b"0" * 5000)
    (folder / ".env").write_text("PASSWORD=hunter2\n")
    (folder / "pkg" / "__pycache__").mkdir()
    return Project(folder, name="shop")


def freeze(project: Project, folder: Path, options: CodeOptions | None = None) -> FrozenCode:
    runs = folder / "runs"
    batch = make_batch_dir(runs)
    assert batch.stat().st_mode & 0o777 == 0o700
    return freeze_code(project, batch, options or CodeOptions(), log_dir=runs, command="")


def test_code_is_copied_and_what_the_snapshot_leaves_out_is_linked(tmp_path: Path) -> None:
    project = write_project(tmp_path / "project")
    frozen = freeze(project, tmp_path, CodeOptions(max_file_bytes=4000))
    (project.dir / "pkg" / "code.py").write_text("x = 2\n")
    copy = frozen.project.copy
    assert copy is not None
    assert (copy / "pkg" / "code.py").read_text() == "x = 1\n"
    assert (copy / "pkg" / "data.bin").readlink() == project.dir / "pkg" / "data.bin"
    assert (copy / ".env").readlink() == project.dir / ".env"
    assert not (copy / "pkg" / "__pycache__").exists()
    assert frozen.project.code_dirs == (copy,)
    assert frozen.project.dir == project.dir


def test_a_file_with_secrets_is_linked_since_its_copy_would_not_work(tmp_path: Path) -> None:
    project = write_project(tmp_path / "project")
    file = project.dir / "pkg" / "login.py"
    file.write_text('password = "correct-horse-battery-9"\n')
    frozen = freeze(project, tmp_path)
    assert frozen.project.copy is not None
    assert (frozen.project.copy / "pkg" / "login.py").readlink() == file


def test_each_record_gets_the_frozen_snapshot(tmp_path: Path) -> None:
    project = write_project(tmp_path / "project")
    frozen = freeze(project, tmp_path)
    (project.dir / "pkg" / "code.py").write_text("x = 2\n")
    assert frozen.snapshot is not None
    digest = copy_snapshot(frozen.snapshot, tmp_path / "run")
    manifest = read_manifest(tmp_path / "run")
    assert manifest is not None
    assert manifest.digest == digest
    assert manifest.project == str(project.dir)
    assert (tmp_path / "run" / "code" / "project" / "pkg" / "code.py").read_text() == "x = 1\n"


def test_a_folder_that_is_no_project_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write_project(tmp_path / "home")
    monkeypatch.setenv("HOME", str(project.dir))
    frozen = freeze(project, tmp_path)
    assert frozen.project.copy is None


def test_a_job_runs_with_the_epochal_of_its_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write_project(tmp_path / "project")
    frozen = freeze(project, tmp_path)
    assert find_framework(frozen.snapshot) is None
    monkeypatch.setattr("epochal.launch.jobs.freeze_code.digest_package", lambda root: "newer")
    folder = find_framework(frozen.snapshot)
    assert folder is not None
    assert (folder / "epochal" / "__init__.py").is_file()
    assert find_framework(frozen.snapshot) == folder
