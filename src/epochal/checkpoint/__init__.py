"""Tensors in and out of files that outlive the run."""

from epochal.checkpoint.checkpoint_folder import (
    read_checkpoint,
    remove_leftovers,
    set_aside,
    tidy,
    write_checkpoint,
)
from epochal.checkpoint.retention import choose_deletions
from epochal.checkpoint.serialize import Split, join, snapshot, split
from epochal.checkpoint.weights import Mismatch, apply_weights, load_weights, save_weights

__all__ = [
    "Mismatch",
    "Split",
    "apply_weights",
    "choose_deletions",
    "join",
    "load_weights",
    "read_checkpoint",
    "remove_leftovers",
    "save_weights",
    "set_aside",
    "snapshot",
    "split",
    "tidy",
    "write_checkpoint",
]
