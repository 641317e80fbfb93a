"""Who starts a run learns which folder it has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.records.folder.announce import VARIABLE, announce

if TYPE_CHECKING:
    import pytest


def test_the_folder_is_written_once_where_the_starter_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "run"))
    assert announce(Path("runs/a"))
    assert (tmp_path / "run").read_text() == str(Path("runs/a").absolute())
    assert VARIABLE not in os.environ
    assert not announce(Path("runs/b"))
    assert (tmp_path / "run").read_text().endswith("a")


def test_a_starter_that_cannot_be_told_is_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone" / "run"))
    announce(tmp_path)
