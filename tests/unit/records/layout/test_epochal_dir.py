from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.records.find import find_runs
from epochal.records.layout.run_folders import make_epochal_dir

if TYPE_CHECKING:
    from pathlib import Path


def test_the_folder_is_created_once_and_ignored_by_git(tmp_path: Path) -> None:
    home = make_epochal_dir(tmp_path / "runs")
    assert home == tmp_path / "runs" / ".epochal"
    assert (home / ".gitignore").read_text().splitlines()[-1] == "*"
    (home / ".gitignore").write_text("mine")
    assert (make_epochal_dir(tmp_path / "runs") / ".gitignore").read_text() == "mine"
    (home / "run.json").write_text("{}")
    assert find_runs(tmp_path) == []


def test_a_file_with_its_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".epochal").write_text("")
    with pytest.raises(OSError, match="epochal"):
        make_epochal_dir(tmp_path)
