"""Tests of the copy of the code, and of the parent of a run."""

from __future__ import annotations

import logging
import subprocess
from typing import TYPE_CHECKING

import pytest

from epochal.experiment.record.code_copy import (
    DIFF_FILE,
    CodeCopy,
    discard_code,
    find_home,
    find_parent,
)
from epochal.records import RecordOptions
from epochal.records.code import read_file, read_manifest
from epochal.records.code.code_snapshot import CodeSnapshot
from epochal.records.code.content_store import ContentStore
from epochal.records.folder.folder import PARENT_VARIABLE, Parent

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n")
    return root


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "p" / "t" / "one"
    folder.mkdir(parents=True)
    return folder


def options(run_dir: Path, **more: object) -> RecordOptions:
    return RecordOptions(log_dir=run_dir.parents[2], **more)  # type: ignore[arg-type]


def test_code_is_copied_as_the_options_say(project: Path, run_dir: Path) -> None:
    (project / "b.txt").write_text("0123456789")
    chosen = options(run_dir, ignore=("c.py",), max_file_bytes=8)
    (project / "c.py").write_text("")
    code = CodeCopy(chosen, project=project, run_dir=run_dir)
    code.save(version="0.1", is_dirty=False)
    manifest = read_manifest(run_dir)
    assert manifest is not None
    assert list(manifest.by_path) == ["a.py"]
    assert {other.path: other.kind for other in manifest.others} == {
        "b.txt": "large",
        "c.py": "ignored",
    }
    assert code.digest == manifest.digest


def test_nothing_is_copied_if_the_options_say_so(project: Path, run_dir: Path) -> None:
    code = CodeCopy(options(run_dir, code=False), project=project, run_dir=run_dir)
    code.save(version="0.1", is_dirty=False)
    code.add({"a.py": "00"})
    assert list(run_dir.iterdir()) == []
    assert not (run_dir.parents[2] / ".epochal").exists()
    assert code.digest == ""


def test_a_failure_is_logged_once_and_stops_nothing(
    project: Path,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: object) -> None:
        raise RecursionError("very deep")

    monkeypatch.setattr(CodeSnapshot, "take", fail)
    code = CodeCopy(options(run_dir), project=project, run_dir=run_dir)
    with caplog.at_level(logging.WARNING):
        code.save(version="0.1", is_dirty=False)
        code.add({"a.py": "00"})
    assert [one.getMessage() for one in caplog.records] == [
        "the record's copy of the code is not complete: very deep"
    ]


def test_without_a_shared_folder_the_run_has_its_own_copies(
    project: Path, run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (run_dir.parents[2] / ".epochal").write_text("in the way")
    CodeCopy(options(run_dir), project=project, run_dir=run_dir).save(version="", is_dirty=False)
    assert caplog.records == []
    assert read_file(run_dir, "a.py") == b"x = 1\n"


def test_an_unwritable_store_is_not_used(
    project: Path,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ContentStore, "put", refuse)
    monkeypatch.setattr(ContentStore, "keep_package", refuse)
    code = CodeCopy(options(run_dir), project=project, run_dir=run_dir)
    code.save(version="", is_dirty=False)
    manifest = read_manifest(run_dir)
    assert caplog.records == []
    assert manifest is not None
    assert manifest.framework is not None
    assert (run_dir / "code" / manifest.framework.archive).is_file()
    assert read_file(run_dir, "a.py") == b"x = 1\n"


def test_uncommitted_changes_are_saved(project: Path, run_dir: Path) -> None:
    def git(*words: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(project), *names, *words], check=True)

    git("init", "-q")
    git("add", "a.py")
    git("commit", "-q", "-m", "first")
    (project / "a.py").write_text("x = 2\n")
    CodeCopy(options(run_dir), project=project, run_dir=run_dir).save(version="", is_dirty=True)
    assert "-x = 1\n+x = 2\n" in (run_dir / "code" / DIFF_FILE).read_text()


def test_imported_files_are_added(project: Path, run_dir: Path) -> None:
    code = CodeCopy(options(run_dir, ignore=("a.py",)), project=project, run_dir=run_dir)
    code.save(version="", is_dirty=False)
    before = code.digest
    code.add({"a.py": "00"})
    assert read_file(run_dir, "a.py") == b"x = 1\n"
    assert code.digest != before


def test_code_of_a_refused_attempt_is_removed(project: Path, run_dir: Path) -> None:
    CodeCopy(options(run_dir), project=project, run_dir=run_dir).save(version="", is_dirty=False)
    (project / "a.py").write_text("x = 2\n")
    later = CodeCopy(options(run_dir), project=project, run_dir=run_dir, attempt=1)
    later.save(version="", is_dirty=False)
    assert read_file(run_dir, "a.py", attempt=1) == b"x = 2\n"
    discard_code(run_dir, 1)
    assert read_file(run_dir, "a.py", attempt=1) == b"x = 1\n"
    discard_code(run_dir, 0)
    assert read_file(run_dir, "a.py") == b"x = 1\n"


def test_the_shared_folder_of_an_exact_run_is_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "whole" / "folds" / "1"
    alone = RecordOptions(log_dir=folder, exact=True)
    assert find_home(alone, folder) is None
    (tmp_path / "runs" / ".epochal").mkdir(parents=True)
    assert find_home(alone, folder) == tmp_path / "runs" / ".epochal"


def test_the_parent_of_a_fold_is_its_cross_validation(tmp_path: Path) -> None:
    fold = tmp_path / "whole" / "folds" / "1"
    fold.mkdir(parents=True)
    assert find_parent(fold, {}) is None
    (tmp_path / "whole" / "run.json").write_text("{}")
    assert find_parent(fold, {}) == Parent("whole", "fold")


def test_the_parent_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PARENT_VARIABLE, "trial:sweep-1")
    assert find_parent(tmp_path / "one", {}) == Parent("sweep-1", "trial")
    assert find_parent(tmp_path / "two", {}) is None


def test_the_parent_of_a_run_is_the_run_whose_weights_it_starts_with(tmp_path: Path) -> None:
    weights = tmp_path / "first" / "checkpoints" / "final.safetensors"
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "run.json").write_text("{}")
    for runner, kind in (("train", "weights"), ("test", "test"), ("predict", "predict")):
        for init_from in (str(weights), {"path": str(weights)}, str(tmp_path / "first")):
            found = find_parent(tmp_path / "second", {"init_from": init_from, "runner": runner})
            assert found is not None
            assert (found.run, found.kind) == ("first", kind)
    for other in (None, "", "weights.pt", {}, {"path": None}, 3):
        assert find_parent(tmp_path, {"init_from": other}) is None, other
