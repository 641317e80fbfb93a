"""Tests of epochal.records.folder.reader."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from epochal.records.folder.reader import find_expanded_config, find_missing_configs

NAMES = ("expanded.toml", "observed.json", "provenance.json", "written/a.toml")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "config" / "written").mkdir(parents=True)
    for name in NAMES:
        (tmp_path / "config" / name).touch()
    (tmp_path / "config" / "sources.json").write_text('[{"file": "written/a.toml", "path": null}]')
    return tmp_path


def missing(run_dir: Path, *, has_begun: bool = True) -> list[str]:
    return list(find_missing_configs(run_dir, has_begun=has_begun))


def test_the_expanded_config_is_found_in_any_format(run_dir: Path) -> None:
    assert find_expanded_config(run_dir) == run_dir / "config" / "expanded.toml"


def test_missing_configs_are_named(run_dir: Path) -> None:
    assert missing(run_dir) == []
    for name in NAMES:
        shown = "expanded.*" if name == "expanded.toml" else name
        path = run_dir / "config" / name
        for other in (f"{path}~", f"{path}.txt"):
            path.rename(other)
            assert missing(run_dir) == [f"config/{shown}: missing"], name
            Path(other).rename(path)


def test_observed_arguments_are_needed_after_the_first_step(run_dir: Path) -> None:
    (run_dir / "config" / "observed.json").unlink()
    assert missing(run_dir, has_begun=False) == []
    (run_dir / "folds").mkdir()
    assert missing(run_dir) == []


def test_a_missing_folder_is_one_line(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "config")
    assert missing(run_dir) == ["config: missing"]


def test_a_damaged_list_of_sources_is_ignored(run_dir: Path) -> None:
    for text in ["", "{}", '["a"]', '[{"file": 1}]']:
        (run_dir / "config" / "sources.json").write_text(text)
        assert missing(run_dir) == []
