"""Tests of epochal.records.folder.folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.records.folder.folder import RUN_FILE_VARIABLE, report_run_folder

if TYPE_CHECKING:
    import pytest


def test_the_folder_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_FILE_VARIABLE, str(tmp_path / "run"))
    assert report_run_folder(Path("runs/a"))
    assert (tmp_path / "run").read_text() == str(Path("runs/a").absolute())
    assert RUN_FILE_VARIABLE not in os.environ
    assert not report_run_folder(Path("runs/b"))
    assert (tmp_path / "run").read_text().endswith("a")


def test_an_unwritable_report_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_FILE_VARIABLE, str(tmp_path / "gone" / "run"))
    report_run_folder(tmp_path)
