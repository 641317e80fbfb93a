"""The scenario of the fault tests: a run saves, rotates and links on a failing disk."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import torch

from epochal.checkpoint import prune_checkpoints, remove_leftovers, write_checkpoint
from epochal.records.folder.checkpoint_manifests import (
    find_checkpoints,
    find_newest_checkpoint,
    is_checkpoint,
    verify_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.folder.checkpoint_manifests import CheckpointManifest

VALUES = {1: 0.9, 2: 0.2, 3: 0.5, 4: 0.1, 5: 0.7, 6: 0.05, 7: 0.3, 8: 0.6}
"""The monitor at each step; smaller is better."""


def commit(folder: Path, step: int) -> CheckpointManifest:
    """Write the checkpoint of a step; its tensors depend on the step and fill several blocks."""
    generator = torch.Generator().manual_seed(step)
    weight = torch.randn(40, 50, generator=generator)
    optim = {0: {"m": weight.t().clone()}, "step": step}
    state = {"model": {"w": weight, "tied": weight}, "optim": optim}
    facts = {"step": step, "monitor": "val/loss", "metrics": {"val/loss": VALUES[step]}}
    return write_checkpoint(folder, f"step-{step}", state, facts)


def save(folder: Path, step: int) -> None:
    """Save as a run does: commit, update the links, remove old checkpoints."""
    commit(folder, step)
    prune_checkpoints(folder, keep_last=2, keep_best=1)


def kept_after(last: int) -> set[str]:
    """The names that remain when ``last`` was the last saved step."""
    best = min(range(1, last + 1), key=lambda step: VALUES[step], default=0)
    return {f"step-{step}" for step in (last, last - 1, best) if step > 0}


def start(template: Path, folder: Path) -> Path:
    """A copy of ``template``."""
    if template.exists():
        shutil.copytree(template, folder, symlinks=True)
    return folder


def visible(folder: Path) -> set[str]:
    """The names of visible checkpoints; all of them must be complete."""
    if not folder.is_dir():
        return set()
    names = {path.name for path in folder.iterdir() if is_checkpoint(path)}
    assert {name: verify_checkpoint(folder / name) for name in names} == dict.fromkeys(names)
    assert {one.name for one in find_checkpoints(folder)} == names
    return names


def check_links(folder: Path) -> None:
    """Links may be old, new or absent, but never broken."""
    for name in ("last", "best"):
        link = folder / name
        if link.is_symlink():
            assert verify_checkpoint(folder / os.readlink(link)) is None, f"{name} leads nowhere"  # noqa: PTH115


def newest(folder: Path) -> int:
    """The step from which a run would resume; 0 for a fresh start."""
    manifest, damage = find_newest_checkpoint(folder)
    assert damage == []
    return manifest.step if manifest else 0


def clean(folder: Path) -> None:
    """Clean up as the next start does; no temporary file may remain."""
    remove_leftovers(folder)
    if folder.is_dir():
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
