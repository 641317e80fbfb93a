"""Tests of epochal.records.layout.lease."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from epochal.records.layout.lease import (
    RESERVE_BYTES,
    RESERVE_FILE,
    release_reserve,
    reserving_disk_space,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_space_is_reserved_during_the_block(tmp_path: Path) -> None:
    (tmp_path / RESERVE_FILE).write_bytes(b"of a killed process")
    with suppress(ValueError), reserving_disk_space(tmp_path):
        assert (tmp_path / RESERVE_FILE).stat().st_size == RESERVE_BYTES
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_space_can_be_released_early(tmp_path: Path) -> None:
    with reserving_disk_space(tmp_path):
        release_reserve(tmp_path)
        assert not list(tmp_path.iterdir())
        release_reserve(tmp_path)


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    with reserving_disk_space(tmp_path / "missing"):
        release_reserve(tmp_path / "missing")
