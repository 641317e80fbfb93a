"""Tests of the space that a run keeps for its last words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.records.alive.disk_reserve import (
    RESERVE_BYTES,
    RESERVE_FILE,
    release_reserve,
    reserving_disk_space,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_space_is_kept_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    with reserving_disk_space(tmp_path):
        assert (tmp_path / RESERVE_FILE).stat().st_size == RESERVE_BYTES
    assert not list(tmp_path.iterdir())


def test_space_is_given_up_once_and_for_all(tmp_path: Path) -> None:
    with reserving_disk_space(tmp_path):
        release_reserve(tmp_path)
        assert not list(tmp_path.iterdir())
        release_reserve(tmp_path)


def test_what_a_killed_process_kept_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / RESERVE_FILE).write_bytes(b"of another process")
    with reserving_disk_space(tmp_path):
        assert (tmp_path / RESERVE_FILE).stat().st_size == RESERVE_BYTES
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of the run"), reserving_disk_space(tmp_path):
        raise ValueError("of the run")
    assert not list(tmp_path.iterdir())


def test_disk_that_gives_no_space_stops_nobody(tmp_path: Path) -> None:
    with reserving_disk_space(tmp_path / "missing"):
        release_reserve(tmp_path / "missing")
