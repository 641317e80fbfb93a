"""Tests of the space that a run keeps for its last words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.records.alive.disk_reserve import FILE_NAME, SIZE_BYTES, give_up, reserving

if TYPE_CHECKING:
    from pathlib import Path


def test_space_is_kept_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    with reserving(tmp_path):
        assert (tmp_path / FILE_NAME).stat().st_size == SIZE_BYTES
    assert not list(tmp_path.iterdir())


def test_space_is_given_up_once_and_for_all(tmp_path: Path) -> None:
    with reserving(tmp_path):
        give_up(tmp_path)
        assert not list(tmp_path.iterdir())
        give_up(tmp_path)


def test_what_a_killed_process_kept_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"of another process")
    with reserving(tmp_path):
        assert (tmp_path / FILE_NAME).stat().st_size == SIZE_BYTES
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of the run"), reserving(tmp_path):
        raise ValueError("of the run")
    assert not list(tmp_path.iterdir())


def test_disk_that_gives_no_space_stops_nobody(tmp_path: Path) -> None:
    with reserving(tmp_path / "missing"):
        give_up(tmp_path / "missing")
