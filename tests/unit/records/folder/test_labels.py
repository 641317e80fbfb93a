"""Tests of the labels of runs, and of archiving them."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest

from epochal import durable
from epochal.errors import ConfigError, RecordError
from epochal.records.folder.labels import (
    MAX_LABELS,
    RunLabels,
    change_labels,
    read_labels,
    split_labels,
)
from failing_disk import read_only_disk

if TYPE_CHECKING:
    from pathlib import Path


def test_labels_are_added_removed_and_kept_in_the_folder(tmp_path: Path) -> None:
    assert read_labels(tmp_path) == RunLabels()
    change_labels(tmp_path, add=["paper", " baseline ", "paper"])
    change_labels(tmp_path, is_archived=True)
    assert read_labels(tmp_path) == RunLabels(("baseline", "paper"), is_archived=True)
    change_labels(tmp_path, add=["图 2"], remove=["paper", "unknown"], is_archived=False)
    assert read_labels(tmp_path) == RunLabels(("baseline", "图 2"))
    assert read_labels(tmp_path).text == "baseline, 图 2"
    assert split_labels("baseline, 图 2,") == ["baseline", "图 2"]


def test_a_change_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    change_labels(tmp_path, remove=["unknown"], is_archived=False)
    assert not list(tmp_path.iterdir())


def test_impossible_labels_are_refused(tmp_path: Path) -> None:
    for label in ("", " ", "a,b", "line\nbreak", "\x1b[31m", "x" * 61, "\ud800", "a\u202eb"):
        with pytest.raises(ConfigError, match="at most 60 printable characters, without commas"):
            change_labels(tmp_path, add=["fine", label])
    with pytest.raises(ConfigError, match=f"a run has at most {MAX_LABELS}"):
        change_labels(tmp_path, add=map(str, range(MAX_LABELS + 1)))
    assert not list(tmp_path.iterdir())


def test_damaged_files_mean_no_labels(tmp_path: Path) -> None:
    file = tmp_path / "labels.json"
    for content in (b"", b"{", b"[]", b'{"labels": 3}', b'{"labels": [1, "", "a,b"]}', b"\xff"):
        file.write_bytes(content)
        assert read_labels(tmp_path) == RunLabels(), content
    file.write_bytes(b'{"labels": ["b", "a", 3, "b"], "archived": 1, "other": null}')
    assert read_labels(tmp_path) == RunLabels(("a", "b"))
    many = ", ".join(f'"{number:04}"' for number in range(1000))
    file.write_text(f'{{"labels": [{many}]}}')
    assert len(read_labels(tmp_path).labels) == MAX_LABELS


def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text('{"labels": ["mine"]}')
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "labels.json").symlink_to(outside)
    assert read_labels(run_dir) == RunLabels()
    change_labels(run_dir, add=["a"])
    assert outside.read_text() == '{"labels": ["mine"]}'


def test_changes_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    threads = [
        Thread(target=change_labels, args=(tmp_path,), kwargs={"add": [f"label {number}"]})
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_labels(tmp_path).labels == tuple(f"label {number}" for number in range(8))


def test_a_folder_that_cannot_be_written_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecordError, match="the labels cannot be written: no such file"):
        change_labels(tmp_path / "gone", add=["a"])
    monkeypatch.setattr(durable.system, "operations", read_only_disk())
    with pytest.raises(RecordError, match="read-only file system\n  ask for write permission"):
        change_labels(tmp_path, add=["a"])
