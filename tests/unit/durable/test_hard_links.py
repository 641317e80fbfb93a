from __future__ import annotations

import errno
import os
import stat

import pytest

from epochal import durable
from epochal.durable import WriteError, is_untouched, link_or_copy, write_readonly
from failing_disk import ERRORS, sweep


def test_a_read_only_file_is_whole_and_replaces_another(tmp_path) -> None:
    for data in (b"one", b"two"):
        write_readonly(tmp_path / "a", data)
        assert (tmp_path / "a").read_bytes() == data
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o444
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("code", ERRORS)
def test_failure_leaves_nothing_behind(tmp_path, monkeypatch, code) -> None:
    outcomes = sweep(monkeypatch, lambda: write_readonly(tmp_path / "a", b"one"), code=code)
    assert len(outcomes) >= 4
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_is_the_same_file(tmp_path) -> None:
    write_readonly(tmp_path / "a", b"one")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").samefile(tmp_path / "b")


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_the_file_is_copied_where_links_are_not_supported(tmp_path, monkeypatch, code) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    write_readonly(tmp_path / "a", b"one")
    monkeypatch.setattr(durable.system, "operations", durable.Operations(link=refuse))
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"one"
    assert not (tmp_path / "a").samefile(tmp_path / "b")


def test_linking_a_missing_file_is_an_error(tmp_path) -> None:
    with pytest.raises(WriteError, match="cannot be written: no such file") as caught:
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert caught.value.errno == errno.ENOENT


def test_linking_never_replaces_a_file(tmp_path) -> None:
    write_readonly(tmp_path / "a", b"one")
    write_readonly(tmp_path / "b", b"two")
    with pytest.raises(WriteError, match="exists"):
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"two"


def test_a_file_is_untouched_until_it_is_written_to(tmp_path) -> None:
    path = tmp_path / "a"
    assert not is_untouched(path, 3)
    write_readonly(path, b"one")
    assert is_untouched(path, 3)
    assert not is_untouched(path, 2)
    path.chmod(0o644)
    path.write_bytes(b"two")
    assert not is_untouched(path, 3)
