"""Tests of ``epochal new``."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from small_project import Command, forgetting, tree

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_new_project_passes_check_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochal: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    done = epochal("new", "my-idea")
    assert done.code == 0
    assert "cd my-idea" in done.out
    assert (tmp_path / "my-idea" / "my_idea" / "task.py").is_file()
    monkeypatch.chdir(tmp_path / "my-idea")
    with forgetting(tmp_path):
        assert epochal("check", "config.yaml").code == 0
        done = epochal("run", "config.yaml", "--fast", "--device", "cpu")
    assert done.code == 0, done.err


def test_empty_folder_is_accepted(tmp_path: Path, epochal: Command) -> None:
    (tmp_path / "fresh").mkdir()
    assert epochal("new", tmp_path / "fresh").code == 0


def test_names_that_cannot_name_a_package_are_refused(tmp_path: Path, epochal: Command) -> None:
    for name, message in [
        ("1abc", "cannot name a project"),
        ("class", "cannot name a project"),
        ("...", "cannot name a project"),
        ("epochal", "'epochal' is the name of another package"),
        ("Json", "'json' is the name of another package"),
        ("torch", "epochal new my-torch"),
    ]:
        done = epochal("new", tmp_path / name)
        assert done.code == 78, name
        assert message in done.err, name
        assert tree(tmp_path) == {}, name


def test_names_in_other_languages_are_fine(tmp_path: Path, epochal: Command) -> None:
    assert epochal("new", tmp_path / "größe").code == 0
    assert (tmp_path / "größe" / "größe" / "model.py").is_file()


def test_new_project_can_be_installed_by_pip(tmp_path: Path, epochal: Command) -> None:
    for name, distribution in [
        ("my-idea", "my-idea"),
        ("größe", "gr-e"),
        ("a b", "a-b"),
        ("ß", "project"),
    ]:
        assert epochal("new", tmp_path / name).code == 0, name
        found = tomllib.loads((tmp_path / name / "pyproject.toml").read_text(encoding="utf-8"))
        assert found["build-system"]["build-backend"] == "hatchling.build", name
        assert Requirement(found["project"]["name"]).name == distribution, name
        # Only named packages: runs/ and tests/ beside them would stop the discovery of packages.
        (package,) = found["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        assert (tmp_path / name / package / "__init__.py").is_file(), name
        assert "pytest" in found["project"]["optional-dependencies"]["dev"], name


def test_folder_that_is_not_empty_is_refused(tmp_path: Path, epochal: Command) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    before = tree(tmp_path)
    for name in ("mine", "file"):
        done = epochal("new", tmp_path / name)
        assert done.code == 78
        assert "exists already" in done.err
    assert tree(tmp_path) == before


def test_name_with_a_space_is_quoted(
    tmp_path: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "  cd 'a b'\n  epochal check config.yaml\n" in epochal("new", "a b").out
