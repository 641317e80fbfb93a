"""Kills and full disks with real processes, and the report of a loss."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.doctor import crash_tests
from epochal.doctor.crash_tests import check_full_disk, check_kills

if TYPE_CHECKING:
    from pathlib import Path


def test_kills_lose_no_checkpoint(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    finding = check_kills(
        tmp_path, kills=2, size=5000, tell=lambda done, of: seen.append((done, of))
    )
    assert (finding.name, finding.level) == ("kill", "ok")
    assert "2 processes killed while saving" in finding.what
    assert seen == [(1, 2), (2, 2)]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_loses_no_checkpoint(tmp_path: Path) -> None:
    finding = check_full_disk(tmp_path, size=5000)
    assert (finding.name, finding.level) == ("full disk", "ok")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ((None, []), "checkpoint 5 was written, but after a kill it is none"),
        ((None, ["step-1/x: torn"]), "a kill left a damaged checkpoint: step-1/x: torn"),
    ],
)
def test_a_loss_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: tuple[object, list[str]], what: str
) -> None:
    monkeypatch.setattr(crash_tests, "_kill_one", lambda *_: 5)
    monkeypatch.setattr(crash_tests, "find_newest_checkpoint", lambda _: found)
    finding = check_kills(tmp_path, kills=3)
    assert (finding.level, finding.what) == ("fail", what)
    assert "record.log_dir" in finding.hint


def test_the_time_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Newest:
        step = 5

    monkeypatch.setattr(crash_tests, "_kill_one", lambda *_: 5)
    monkeypatch.setattr(crash_tests, "find_newest_checkpoint", lambda _: (Newest, []))
    finding = check_kills(tmp_path, kills=99, limit_seconds=0)
    assert "1 processes killed" in finding.what


def test_the_error_of_a_process_is_reported_without_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaint = "raise OSError('/x: cannot be written: no space left')"
    monkeypatch.setattr(
        crash_tests,
        "_start",
        lambda *_: subprocess.Popen(
            [sys.executable, "-S", "-c", complaint],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ),
    )
    with pytest.raises(OSError, match=r"^/x: cannot be written: no space left$"):
        check_full_disk(tmp_path)


def test_a_process_that_cannot_write_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_tests.sys, "executable", "/bin/false")
    with pytest.raises(OSError, match="the process that saves ended early"):
        check_kills(tmp_path, kills=1)
    with pytest.raises(OSError, match="the process that saves failed"):
        check_full_disk(tmp_path)
