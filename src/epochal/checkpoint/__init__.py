"""Saves and loads checkpoints and weights."""

from epochal.checkpoint.checkpoint_folder import (
    mark_as_damaged,
    prune_checkpoints,
    read_checkpoint,
    remove_leftovers,
    write_checkpoint,
)
from epochal.checkpoint.retention import choose_deletions
from epochal.checkpoint.serialize import (
    SerializedState,
    deserialize_state,
    serialize_tree,
    snapshot_to_host,
)
from epochal.checkpoint.weights import WeightMismatch, apply_tensors, load_weights, save_weights

__all__ = [
    "SerializedState",
    "WeightMismatch",
    "apply_tensors",
    "choose_deletions",
    "deserialize_state",
    "load_weights",
    "mark_as_damaged",
    "prune_checkpoints",
    "read_checkpoint",
    "remove_leftovers",
    "save_weights",
    "serialize_tree",
    "snapshot_to_host",
    "write_checkpoint",
]
