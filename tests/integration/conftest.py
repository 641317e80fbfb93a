"""A small project, and the command in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from small_project import Command, command, forgetting, write_shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a project that works, which is also the current folder."""
    folder = write_shop(tmp_path / "project")
    monkeypatch.chdir(folder)
    with forgetting(tmp_path):
        yield folder


@pytest.fixture
def epochal(capsys: pytest.CaptureFixture[str]) -> Command:
    """Types ``epochal`` and words."""
    return command(capsys)
