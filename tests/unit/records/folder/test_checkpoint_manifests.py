"""Tests of epochal.records.folder.checkpoint_manifests."""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import TYPE_CHECKING, Any

import pytest

from epochal.errors import RecordError
from epochal.records.folder.checkpoint_manifests import (
    CheckpointDamage,
    CheckpointManifest,
    StoredFile,
    encode_manifest,
    find_best_checkpoint,
    find_checkpoints,
    find_newest_checkpoint,
    rank_by_score,
    read_manifest,
    verify_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path


def make(folder: Path, name: str, **facts: Any) -> Path:
    """A checkpoint whose tensors are no tensors; manifests do not care."""
    path = folder / name
    path.mkdir(parents=True)
    files = {}
    for file in ("tensors.safetensors", "state.json"):
        data = f"{file} of {name}".encode()
        (path / file).write_bytes(data)
        files[file] = StoredFile(len(data), hashlib.sha256(data).hexdigest())
    manifest = CheckpointManifest(path=path, files=files, **facts)
    (path / "manifest.json").write_bytes(encode_manifest(manifest))
    return path


def scored(folder: Path, name: str, value: float, **facts: Any) -> Path:
    metrics = {"val/acc": value}
    return make(folder, name, monitor="val/acc", mode="max", metrics=metrics, **facts)


def test_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = make(
        tmp_path,
        "a",
        run="20260102-030405-abcd",
        attempt=2,
        step=7,
        epoch=1,
        samples=56,
        time="2026-01-02T03:04:05+00:00",
        reason="every",
        monitor="val/acc",
        mode="max",
        metrics={"val/acc": 0.5, "val/loss": math.inf},
        torch="2.13.0",
        config="c",
        code="d",
        data={"train": {"len": 10}},
        choices={"engine.step": "eager"},
    )
    manifest = read_manifest(path)
    assert (manifest.attempt, manifest.step, manifest.epoch, manifest.samples) == (2, 7, 1, 56)
    assert manifest.metrics == {"val/acc": 0.5, "val/loss": math.inf}
    assert manifest.data == {"train": {"len": 10}}
    assert manifest.name == "a"
    assert encode_manifest(manifest) == (path / "manifest.json").read_bytes()


def test_damage_names_checkpoint_file_and_reason(tmp_path: Path) -> None:
    assert verify_checkpoint(make(tmp_path, "whole")) is None
    path = make(tmp_path / "short", "a")
    (path / "state.json").write_bytes(b"")
    damage = verify_checkpoint(path)
    assert damage == CheckpointDamage(path, "state.json", "0 bytes instead of 15")
    assert str(damage) == f"{path}/state.json: damaged: 0 bytes instead of 15"
    for file in ("manifest.json", "state.json", "tensors.safetensors"):
        path = make(tmp_path / file, "a")
        (path / file).unlink()
        assert verify_checkpoint(path) == CheckpointDamage(path, file, "missing")


def test_invalid_manifests_are_damage(tmp_path: Path) -> None:
    path = make(tmp_path, "a")

    def encoded(**facts: Any) -> bytes:
        return encode_manifest(CheckpointManifest(**{"path": path, "files": {}, **facts}))

    no_manifest, invalid = "not the text of a manifest", "its values are invalid"
    for text, file, what in [
        *((text, "manifest.json", no_manifest) for text in (b"", b"[]", b"{}", b"\x80\x04}")),
        (b'{"digest": "x"}', "manifest.json", "its text was changed"),
        (encoded(format=2), "manifest.json", "format 2, and this version reads 1"),
        (encoded(), "state.json", "not named in manifest.json"),
        (encoded(step="7"), "manifest.json", invalid),
        (encoded(attempt=None), "manifest.json", invalid),
        (encoded(metrics=[1]), "manifest.json", invalid),
        (encoded(metrics={"val/acc": "high"}), "manifest.json", invalid),
        (encoded(monitor=["val/acc"]), "manifest.json", invalid),
        (encoded(files={"../../state.json": StoredFile(1, "")}), "manifest.json", invalid),
    ]:
        (path / "manifest.json").write_bytes(text)
        assert verify_checkpoint(path) == CheckpointDamage(path, file, what), text
        assert bool(find_checkpoints(tmp_path)) == (file == "state.json"), text


def test_any_changed_byte_of_any_file_is_found(tmp_path: Path) -> None:
    path = make(tmp_path, "a", step=3)
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        for position in range(len(data)):
            changed = bytearray(data)
            changed[position] ^= 0x01
            file.write_bytes(changed)
            damage = verify_checkpoint(path)
            if damage is None:  # blanks between the words of JSON mean nothing
                assert json.loads(changed) == json.loads(data)
            else:
                assert damage.file == file.name
        file.write_bytes(data)


def test_reading_a_damaged_manifest_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"manifest\.json: damaged: missing\n  `ls "):
        read_manifest(tmp_path / "nowhere")


def test_checkpoints_are_sorted_by_attempt_and_step(tmp_path: Path) -> None:
    make(tmp_path, "c", attempt=0, step=200)
    make(tmp_path, "b", attempt=1, step=50, time="1999-01-01T00:00:00+00:00")
    make(tmp_path, "a", attempt=0, step=100, time="2099-01-01T00:00:00+00:00")
    for number, name in enumerate("bac"):
        os.utime(tmp_path / name, (number, number))
    assert [one.name for one in find_checkpoints(tmp_path)] == ["a", "c", "b"]
    newest, damage = find_newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.name == "b"
    assert damage == []


def test_damaged_newer_checkpoints_are_skipped_and_named(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        make(tmp_path, f"step-{step}", step=step)
    (tmp_path / "step-4" / "manifest.json").write_bytes(b"x")
    (tmp_path / "step-3" / "tensors.safetensors").write_bytes(b"x")
    newest, damage = find_newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 2
    assert [(one.path.name, one.file) for one in damage] == [
        ("step-4", "manifest.json"),
        ("step-3", "tensors.safetensors"),
    ]


def test_the_best_undamaged_checkpoint_is_found(tmp_path: Path) -> None:
    for step, value in ((1, -0.5), (2, -0.1), (3, math.nan), (4, -0.3)):
        scored(tmp_path, f"step-{step}", value, step=step)
    make(tmp_path, "step-5", step=5)
    best, _ = find_best_checkpoint(tmp_path)
    assert best is not None
    assert best.step == 2
    (tmp_path / "step-2" / "state.json").unlink()
    best, damage = find_best_checkpoint(tmp_path)
    assert best is not None
    assert best.step == 4
    assert [one.file for one in damage] == ["state.json"]


def test_a_folder_without_checkpoints_gives_none(tmp_path: Path) -> None:
    assert find_newest_checkpoint(tmp_path / "nowhere") == (None, [])
    assert find_best_checkpoint(tmp_path) == (None, [])


def test_links_hidden_folders_and_other_folders_are_no_checkpoints(tmp_path: Path) -> None:
    path = make(tmp_path, "step-1")
    (tmp_path / "last").symlink_to(path)
    (tmp_path / "exports").mkdir()
    (tmp_path / "model.safetensors").touch()
    make(tmp_path, ".staging-step-2-1.0")
    make(tmp_path, "step-0.damaged")
    assert [one.name for one in find_checkpoints(tmp_path)] == ["step-1"]
    assert find_newest_checkpoint(tmp_path)[1] == []


def test_lower_values_are_better_in_mode_min(tmp_path: Path) -> None:
    for step, value in ((1, 3.0), (2, -4.0), (3, -math.inf), (4, math.nan)):
        metrics = {"val/loss": value}
        make(tmp_path, f"{step}", step=step, monitor="val/loss", mode="min", metrics=metrics)
    assert [one.step for one in rank_by_score(find_checkpoints(tmp_path))] == [3, 2, 1]


def test_checkpoints_of_an_interruption_are_not_regular(tmp_path: Path) -> None:
    regular = {"every": True, "best, end": True, "start": True, "end": False, "preempted": False}
    for reason, is_regular in regular.items():
        path = make(tmp_path, reason, reason=reason)
        assert read_manifest(path).is_regular == is_regular, reason
