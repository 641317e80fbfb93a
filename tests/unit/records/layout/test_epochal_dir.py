from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.records.find import find_runs
from epochal.records.layout.epochal_dir import make_epochal_dir

if TYPE_CHECKING:
    from pathlib import Path


def test_the_home_is_made_beside_the_runs_and_kept_out_of_repositories(tmp_path: Path) -> None:
    home = make_epochal_dir(tmp_path / "runs")
    assert home == tmp_path / "runs" / ".epochal"
    assert (home / ".gitignore").read_text().splitlines()[-1] == "*"


def test_a_home_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (make_epochal_dir(tmp_path) / ".gitignore").write_text("mine")
    assert (make_epochal_dir(tmp_path) / ".gitignore").read_text() == "mine"


def test_the_home_is_no_run(tmp_path: Path) -> None:
    make_epochal_dir(tmp_path).joinpath("run.json").write_text("{}")
    assert find_runs(tmp_path) == []


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".epochal").write_text("")
    with pytest.raises(OSError, match="epochal"):
        make_epochal_dir(tmp_path)
