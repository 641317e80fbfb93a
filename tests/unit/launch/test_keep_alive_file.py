"""The file of a supervised command: later supervisors find it, and one at a time claims it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epochal import durable
from epochal.errors import RecordError
from epochal.launch.keep_alive_file import KeepAliveFile, find_keep_alive_file
from epochal.records.layout.process import host_name, process_token


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeepAliveFile:
    monkeypatch.chdir(tmp_path)
    return find_keep_alive_file("digits", ["epochal", "run", "digits.yaml"])


def test_the_same_command_in_the_same_folder_has_the_same_file(
    file: KeepAliveFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["epochal", "run", "digits.yaml"]
    assert file == find_keep_alive_file("digits", command)
    assert file != find_keep_alive_file("digits", [*command, "seed=1"])
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert file != find_keep_alive_file("digits", command)


def test_a_file_exists_until_the_work_is_done(file: KeepAliveFile) -> None:
    assert not file.exists
    file.create(["epochal"])
    assert file.exists
    with file.claimed(["epochal"]):
        file.remove()
        assert not file.exists
        file.remove()


def test_the_run_is_known_as_soon_as_it_has_a_folder(file: KeepAliveFile, tmp_path: Path) -> None:
    assert file.read_run() is None
    file.create([])
    file.run_file.write_text(str(tmp_path))
    assert file.read_run() == tmp_path
    file.run_file.write_text(str(tmp_path / "gone"))
    assert file.read_run() is None


def test_a_run_below_the_current_folder_has_a_relative_path(
    file: KeepAliveFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    file.create([])
    file.run_file.write_text(str(tmp_path / "runs" / "a"))
    monkeypatch.chdir(tmp_path)
    assert file.read_run() == Path("runs", "a")
    monkeypatch.chdir(tmp_path / "runs" / "a")
    assert file.read_run() == tmp_path / "runs" / "a"


def test_a_living_supervisor_is_not_replaced(file: KeepAliveFile) -> None:
    file.create([])
    parent = os.getppid()
    facts = {"pid": parent, "host": host_name(), "process": process_token(parent)}
    durable.write_json(file.path, facts)
    with pytest.raises(RecordError, match=f"process {parent} on .* supervises this command"):
        file.claimed([]).__enter__()


def test_a_dead_or_unknown_supervisor_is_replaced(file: KeepAliveFile) -> None:
    file.create([])
    known: list[dict[str, object]] = [{"pid": 1, "process": "an earlier one"}, {"pid": "?"}, {}]
    for facts in known:
        durable.write_json(file.path, {"host": host_name(), **facts})
        with file.claimed(["epochal"]):
            assert str(os.getpid()) in file.path.read_text(), facts


def test_a_supervisor_holds_a_lock_that_ends_with_it(file: KeepAliveFile) -> None:
    with (
        file.claimed(["epochal"]),
        pytest.raises(RecordError, match="supervises this command already"),
        file.claimed(["epochal"]),
    ):
        pass
    assert file.exists  # a killed one leaves it, and the next one takes it
    with file.claimed(["epochal"]):
        pass
