"""Relative paths of a config start from the current folder, and ``~`` is the home folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import epochal as ep
from small_project import write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_paths_start_from_the_current_folder_and_bases_from_their_file(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "configs").mkdir()
    write(shop / "configs" / "own.yaml", "$BASE: ../config.yaml\ncheckpoint: {dir: saved}\n")
    (shop / "here").mkdir()
    monkeypatch.chdir(shop / "here")
    result = ep.run("../configs/own.yaml", fast=True)
    assert result.dir is not None
    assert result.dir.absolute().is_relative_to(shop / "here" / "runs")
    assert (shop / "here" / "saved" / result.dir.name).is_dir()
    weights = str(result.dir / "checkpoints" / "final.safetensors")
    assert ep.run("../config.yaml", overrides=[f"init_from={weights}"], fast=True).ok


def test_home_folder_is_expanded_in_every_path(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = shop.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    write(home / "mine.yaml", f"$BASE: {shop / 'config.yaml'}\n")
    write(shop / "own.yaml", "$BASE: ~/mine.yaml\nrecord: {log_dir: ~/runs}\n")
    first = ep.run("own.yaml", overrides=["checkpoint.dir=~/saved"], fast=True)
    assert first.dir is not None
    assert first.dir.is_relative_to(home / "runs")
    assert (home / "saved" / first.dir.name).is_dir()
    (home / "saved" / first.dir.name).rename(home / "weights")
    last = "init_from=~/weights/final.safetensors"
    assert ep.run("own.yaml", overrides=[last], fast=True).ok
    assert not (shop / "~").exists()
