"""Tests of epochal.durable.append: what is in the file after any operation failed."""

from __future__ import annotations

import dataclasses
import errno
import os
import sys
from pathlib import Path

import pytest

from epochal import durable
from epochal.durable import WriteError
from epochal.durable.append import extend
from failing_disk import ERRORS, Faults, sweep


def test_appended_records_follow_each_other(tmp_path) -> None:
    with durable.Appender(tmp_path / "a") as appender:
        appender.append(b"one")
        appender.append(b"two")
    with durable.Appender(tmp_path / "a") as appender:
        appender.append(b"three")
    assert (tmp_path / "a").read_bytes() == b"onetwothree"


def test_append_is_one_write_and_on_request_one_sync(tmp_path, monkeypatch) -> None:
    for sync, expected in ((False, ["write"]), (True, ["write", "fsync"])):
        with (
            monkeypatch.context() as patch,
            durable.Appender(tmp_path / "a", sync=sync) as appender,
        ):
            faults = Faults(allowed=1000)
            patch.setattr(durable.system, "operations", faults.operations)
            appender.append(b"x" * 1000)
            assert faults.names == expected


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("allowed", [0, 1])
def test_failed_append_adds_nothing_and_the_next_one_works(
    tmp_path, monkeypatch, allowed, code
) -> None:
    path = tmp_path / "a"
    with durable.Appender(path, sync=True) as appender:
        appender.append(b"old")
        monkeypatch.setattr(
            durable.system, "operations", Faults(allowed=allowed, code=code).operations
        )
        with pytest.raises(WriteError, match="cannot be written"):
            appender.append(b"lost")
        assert path.read_bytes() == b"old"
        appender.append(b"new")
    assert path.read_bytes() == b"oldnew"


def full_after(path: Path, room: int) -> durable.Operations:
    """A disk on which ``path`` can grow to ``room`` bytes only."""

    def write(descriptor: int, data: bytes | memoryview) -> int:
        left = room - path.stat().st_size
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data[:left])

    return dataclasses.replace(durable.system.operations, write=write)


@pytest.mark.parametrize("room", range(3, 8))
def test_a_record_that_does_not_fit_is_removed(tmp_path, monkeypatch, room) -> None:
    path = tmp_path / "a"
    with durable.Appender(path) as appender:
        appender.append(b"old")
        monkeypatch.setattr(durable.system, "operations", full_after(path, room))
        with pytest.raises(WriteError, match="no space left"):
            appender.append(b"too long")
        assert path.read_bytes() == b"old"


def test_a_record_that_could_not_be_removed_is_cut_before_the_next(tmp_path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "fault")

    path = tmp_path / "a"
    good = durable.system.operations
    with durable.Appender(path) as appender:
        appender.append(b"old")
        broken = dataclasses.replace(full_after(path, 5), truncate=fail)
        monkeypatch.setattr(durable.system, "operations", broken)
        with pytest.raises(WriteError, match="no space left"):
            appender.append(b"too long")
        assert path.read_bytes() == b"oldto"
        with pytest.raises(WriteError, match="fault"):
            appender.append(b"still broken")
        monkeypatch.setattr(durable.system, "operations", good)
        appender.append(b"new")
    assert path.read_bytes() == b"oldnew"


def test_appender_keeps_the_good_bytes_of_an_existing_file(tmp_path) -> None:
    (tmp_path / "a").write_bytes(b"good|torn")
    with durable.Appender(tmp_path / "a", keep=5) as appender:
        appender.append(b"new")
    assert (tmp_path / "a").read_bytes() == b"good|new"


@pytest.mark.parametrize("code", ERRORS)
def test_failing_to_open_an_appender_leaves_no_open_file(tmp_path, monkeypatch, code) -> None:
    count = iter(range(100))

    def action() -> None:
        durable.Appender(tmp_path / f"{next(count)}").close()

    outcomes = sweep(monkeypatch, action, code=code)
    assert [faults.failed for faults, _ in outcomes] == ["open", "open", "fsync", "close", "close"]
    if sys.platform == "linux":  # other threads open and close files of their own meanwhile
        targets = map(os.path.realpath, Path("/proc/self/fd").iterdir())
        assert not [target for target in targets if target.startswith(str(tmp_path))]


def test_a_closed_appender_refuses_records_and_may_be_closed_again(tmp_path) -> None:
    appender = durable.Appender(tmp_path / "a")
    appender.close()
    appender.close()
    with pytest.raises(WriteError, match="bad file descriptor"):
        appender.append(b"x")


def test_sync_reports_a_fault(tmp_path, monkeypatch) -> None:
    with durable.Appender(tmp_path / "a") as appender:
        appender.sync()
        monkeypatch.setattr(durable.system, "operations", Faults(allowed=0).operations)
        with pytest.raises(WriteError, match="a: cannot be written: input/output error"):
            appender.sync()


def test_reopening_lines_cuts_a_torn_last_one(tmp_path) -> None:
    path = tmp_path / "events.jsonl"
    new = {"number": "new"}
    durable.append_line(path, new)
    assert durable.decode_line(path.read_bytes()) == new
    for lines in (0, 1, 500):
        whole = b"".join(durable.encode_line({"number": i}) for i in range(lines))
        for torn in (b"", b'{"half":', b"x" * 10_000):
            path.write_bytes(whole + torn)
            durable.append_line(path, new)
            assert path.read_bytes() == whole + durable.encode_line(new)


def test_extend_truncates_and_appends(tmp_path) -> None:
    path = tmp_path / "cache"
    extend(path, 0, b"abcdef")
    extend(path, 3, b"xy")
    assert path.read_bytes() == b"abcxy"
    with pytest.raises(WriteError, match="cannot be written: no such file"):
        extend(tmp_path / "gone" / "cache", 0, b"")
