"""Tests of epochal.durable.shared."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.durable import WriteError, is_untouched, link_or_copy, write_readonly
from failing_disk import ERRORS, sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_kept_file_is_whole_and_read_only(tmp_path: Path) -> None:
    write_readonly(tmp_path / "a", b"one")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o444
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_kept_file_replaces_another(tmp_path: Path) -> None:
    write_readonly(tmp_path / "a", b"one")
    write_readonly(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"


@pytest.mark.parametrize("code", ERRORS)
def test_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    outcomes = sweep(monkeypatch, lambda: write_readonly(tmp_path / "a", b"one"), code=code)
    assert len(outcomes) >= 4
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_shared_file_is_the_same_file(tmp_path: Path) -> None:
    write_readonly(tmp_path / "a", b"one")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").samefile(tmp_path / "b")


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_where_links_cannot_be_the_file_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    write_readonly(tmp_path / "a", b"one")
    monkeypatch.setattr(durable.system, "operations", durable.Operations(link=refuse))
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"one"
    assert not (tmp_path / "a").samefile(tmp_path / "b")


def test_sharing_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="cannot be written: no such file") as caught:
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert caught.value.errno == errno.ENOENT


def test_sharing_never_replaces_a_file(tmp_path: Path) -> None:
    write_readonly(tmp_path / "a", b"one")
    write_readonly(tmp_path / "b", b"two")
    with pytest.raises(WriteError, match="exists"):
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"two"


def test_a_kept_file_is_known_until_somebody_writes_into_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert not is_untouched(path, 3)
    write_readonly(path, b"one")
    assert is_untouched(path, 3)
    assert not is_untouched(path, 2)
    path.chmod(0o644)
    path.write_bytes(b"two")
    assert not is_untouched(path, 3)
