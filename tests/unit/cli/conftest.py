"""A small project, and the command in this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from small_project import Command, command, forgetting, write_shop

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@pytest.fixture(autouse=True)
def command_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that finds ``epochal``, so that messages can name it."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
