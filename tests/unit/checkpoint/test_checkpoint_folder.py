"""Checkpoint folders; what happens when the disk fails is in tests/faults."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from epochal import durable
from epochal.checkpoint import checkpoint_folder
from epochal.checkpoint.checkpoint_folder import (
    mark_as_damaged,
    prune_checkpoints,
    read_checkpoint,
    remove_leftovers,
    write_checkpoint,
)
from epochal.checkpoint.serialize import snapshot_to_host
from epochal.errors import CheckpointError, LeaseLostError
from epochal.records.folder.checkpoint_manifests import (
    TENSORS_FILE,
    StoredFile,
    encode_manifest,
    find_checkpoints,
    find_newest_checkpoint,
    read_manifest,
    verify_checkpoint,
)
from failing_disk import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

STATE = {"model": {"w": torch.arange(3.0)}, "data": {"epoch": 2, "position": (1, 2)}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save(folder: Path, step: int, value: float | None = None) -> None:
    metrics = {} if value is None else {"val/loss": value}
    facts = {"step": step, "monitor": "val/loss", "mode": "min", "metrics": metrics}
    write_checkpoint(folder, f"step-{step}", {"step": step}, facts)


def test_state_is_read_as_it_was_written(folder: Path) -> None:
    written = write_checkpoint(folder, "step-7", STATE, {"step": 7, "run": "r", "samples": 56})
    state, manifest = read_checkpoint(folder / "step-7")
    assert state["model"]["w"].tolist() == [0, 1, 2]
    assert state["data"] == STATE["data"]
    assert manifest == written == read_manifest(folder / "step-7")
    assert (manifest.step, manifest.run, manifest.samples) == (7, "r", 56)
    assert manifest.torch == torch.__version__
    assert names(folder) == ["step-7"]
    assert names(folder / "step-7") == ["manifest.json", "state.json", "tensors.safetensors"]


def test_snapshot_is_written_as_it_was_taken(folder: Path) -> None:
    weight = torch.ones(2)
    taken = snapshot_to_host({"model": weight})
    weight.zero_()
    write_checkpoint(folder, "a", taken, {})
    assert read_checkpoint(folder / "a")[0]["model"].tolist() == [1, 1]


def test_tensors_can_be_read_by_the_library(folder: Path) -> None:
    from safetensors.torch import load_file

    write_checkpoint(folder, "a", {"model": {"conv": torch.ones(2, 3, 4).permute(2, 0, 1)}}, {})
    assert load_file(folder / "a" / "tensors.safetensors")["model/conv"].shape == (4, 2, 3)


def test_a_name_that_exists_gets_a_number_and_equal_states_make_equal_files(folder: Path) -> None:
    first, second, third = (write_checkpoint(folder, "a", STATE, {}) for _ in range(3))
    assert (first.name, second.name, third.name) == ("a", "a~2", "a~3")
    assert first.files == second.files == third.files


@pytest.mark.parametrize("name", ["", "last", "best", ".hidden", "a/b", "a.damaged", "x" * 200])
def test_invalid_names_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be the name of a checkpoint\n  use 'step-"):
        write_checkpoint(folder, name, STATE, {})


def test_an_unsupported_state_leaves_no_files(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^hooks: 0\.x: cannot be kept"):
        write_checkpoint(folder, "a", {"hooks": [{"x": object()}]}, {})
    assert not folder.exists()


def test_a_checkpoint_that_is_not_confirmed_leaves_no_files(folder: Path) -> None:
    def refuse() -> None:
        raise LeaseLostError("the folder belongs to another process")

    with pytest.raises(LeaseLostError):
        write_checkpoint(folder, "step-7", STATE, {"step": 7}, confirm=refuse)
    assert names(folder) == []


def test_loaded_tensors_do_not_need_the_file(folder: Path) -> None:
    write_checkpoint(folder, "a", STATE, {})
    state, _ = read_checkpoint(folder / "a")
    path = folder / "a" / "tensors.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert state["model"]["w"].tolist() == [0, 1, 2]


def test_a_missing_or_damaged_checkpoint_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"step-9: no such checkpoint\n  `ls "):
        read_checkpoint(folder / "step-9")
    write_checkpoint(folder, "a", STATE, {})
    with (folder / "a" / "state.json").open("ab") as file:
        file.write(b" ")
    with pytest.raises(CheckpointError, match=r"a/state\.json: damaged: \d+ bytes instead of \d+"):
        read_checkpoint(folder / "a")


def test_links_lead_to_the_newest_and_to_the_best(folder: Path) -> None:
    for step, value in ((1, 0.9), (2, 0.1), (3, 0.5)):
        save(folder, step, value)
        prune_checkpoints(folder, keep_last=None, keep_best=1)
    assert (folder / "last").readlink() == Path("step-3")
    assert (folder / "best").readlink() == Path("step-2")
    assert read_checkpoint(folder / "best")[0] == {"step": 2}
    assert [manifest.step for manifest in find_checkpoints(folder)] == [1, 2, 3]


def test_without_a_measured_value_there_is_no_best(folder: Path) -> None:
    save(folder, 1)
    prune_checkpoints(folder, keep_last=1, keep_best=1)
    assert names(folder) == ["last", "step-1"]


def test_old_checkpoints_are_removed_and_the_best_stays(folder: Path) -> None:
    removed = []
    for step, value in ((1, 0.9), (2, 0.1), (3, 0.5), (4, 0.6)):
        save(folder, step, value)
        removed += prune_checkpoints(folder, keep_last=1, keep_best=1)
    assert removed == ["step-1", "step-3"]
    assert names(folder) == ["best", "last", "step-2", "step-4"]


def test_a_damaged_checkpoint_is_renamed(folder: Path) -> None:
    for _ in range(2):
        save(folder, 1)
        (folder / "step-1" / "state.json").unlink()
        target = mark_as_damaged(folder / "step-1")
        assert (target / "manifest.json").exists()
    assert names(folder) == ["step-1.damaged", "step-1.damaged-2"]
    assert find_newest_checkpoint(folder) == (None, [])


def test_leftovers_of_dead_processes_and_of_this_one_are_removed(folder: Path) -> None:
    save(folder, 1)
    alive = f".staging-step-5-{os.getppid()}.{'0' * 8}"  # its number was used by another before
    for name in (
        f".staging-step-2-{os.getpid()}.00000000",
        ".removing-x-999999999.00000000",
        alive,
    ):
        (folder / name / "inner").mkdir(parents=True)
        (folder / name / "inner" / "file").touch()
    (folder / ".last.999999999-ab12.tmp").symlink_to("step-1")
    assert len(remove_leftovers(folder)) == 4
    assert names(folder) == ["step-1"]
    assert verify_checkpoint(folder / "step-1") is None


def test_the_staged_folder_of_a_living_process_stays(folder: Path) -> None:
    assert remove_leftovers(folder) == []  # there is no folder
    parent = os.getppid()
    name = f".staging-step-2-{parent}.{checkpoint_folder._stamp(parent)}"
    (folder / name).mkdir(parents=True)
    assert remove_leftovers(folder) == []
    assert names(folder) == [name]


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda folder: write_checkpoint(folder, "b", STATE, {}), "b: cannot be written"),
        (lambda folder: mark_as_damaged(folder / "step-1"), "step-1: cannot be renamed"),
        (
            lambda folder: prune_checkpoints(folder, keep_last=1, keep_best=0),
            "last: cannot be written",
        ),
        (remove_leftovers, "checkpoints: cannot be cleaned"),
    ],
)
def test_failing_disk_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object], what: str
) -> None:
    save(folder, 1)
    (folder / ".staging-x-999999999.00000000").mkdir()
    faults = Faults(allowed=0, code=errno.ENOSPC)
    monkeypatch.setattr(durable.system, "operations", faults.operations)
    with pytest.raises(
        CheckpointError, match=rf"{what}: no space left on device\n  free some space there, or"
    ):
        act(folder)
    assert verify_checkpoint(folder / "step-1") is None


def test_invalid_tensors_with_a_valid_digest_are_an_error(folder: Path) -> None:
    manifest = write_checkpoint(folder, "a", STATE, {})
    (folder / "a" / "tensors.safetensors").write_bytes(b"x")
    stored = StoredFile(1, hashlib.sha256(b"x").hexdigest())
    changed = dataclasses.replace(manifest, files={**manifest.files, TENSORS_FILE: stored})
    (folder / "a" / "manifest.json").write_bytes(encode_manifest(changed))
    with pytest.raises(CheckpointError, match=r"tensors\.safetensors: cannot be read: "):
        read_checkpoint(folder / "a")
