from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from epochal.checkpoint import deserialize_state
from epochal.checkpoint.checkpoint_folder import read_checkpoint, write_checkpoint, write_shard
from epochal.checkpoint.serialize import SerializedState
from epochal.checkpoint.sharded import ShardedValue, find_parts, fit_to, read_whole
from epochal.distributed.world import SingleProcess
from epochal.engine.state.shard_exchange import leading_write
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = torch.arange(30).reshape(6, 5)
PARTS = {"w@0,0": WHOLE[:4, :2], "w@0,2": WHOLE[:4, 2:], "w@4,0": WHOLE[4:]}
TAG = {"$shards": "w", "shape": [6, 5], "dtype": "int64"}


def make_value(parts: dict[str, torch.Tensor]) -> ShardedValue:
    return ShardedValue("w", (6, 5), torch.int64, find_parts(parts).get("w", ()))


def test_any_region_is_read_from_parts() -> None:
    value = make_value({**PARTS, "w@6,0": WHOLE[6:], "other@0,0": -WHOLE})
    assert value.read_whole().equal(WHOLE)
    for start, shape in [((0, 0), (6, 5)), ((3, 1), (2, 3)), ((5, 4), (1, 1)), ((6, 0), (0, 5))]:
        region = WHOLE[start[0] : start[0] + shape[0], start[1] : start[1] + shape[1]]
        assert value.read(start, shape).equal(region), (start, shape)


def test_missing_part_is_an_error_only_where_it_is_needed() -> None:
    value = make_value({name: part for name, part in PARTS.items() if name != "w@4,0"})
    assert value.read((0, 0), (4, 5)).equal(WHOLE[:4])
    with pytest.raises(CheckpointError, match="a part of 'w' is missing"):
        value.read_whole()


def test_checkpoint_of_several_processes_is_put_together(tmp_path: Path) -> None:
    names = list(PARTS)

    def add_files(staged: Path) -> dict:
        files = {}
        for rank, name in enumerate(names):
            files |= write_shard(staged, rank, {name: PARTS[name]})
        return files

    state = SerializedState({"model": {"a": TAG, "b": [TAG]}}, {})
    path = write_checkpoint(tmp_path, "one", state, {"step": 1}, add_files=add_files).path
    files = ("manifest.json", "state.json", "tensors.safetensors")
    assert sorted(one.name for one in path.iterdir()) == sorted(
        [*files, *(f"shard-0000{rank}.safetensors" for rank in range(3))]
    )
    found, _ = read_checkpoint(path)
    assert found["model"]["a"].equal(WHOLE)
    assert found["model"]["b"][0] is found["model"]["a"]
    kept, _ = read_checkpoint(path, keeps_shards=True)
    assert isinstance(kept["model"]["a"], ShardedValue)
    assert fit_to(kept["model"]["a"], torch.zeros(6, 5)).equal(WHOLE)


def test_states_in_memory_have_parts_too() -> None:
    tree = deserialize_state({"a": TAG}, {}, PARTS)
    assert read_whole(tree)["a"].equal(WHOLE)


def test_part_that_cannot_be_written_names_its_rank_and_leaves_no_checkpoint(
    tmp_path: Path,
) -> None:
    state = SerializedState({"a": TAG}, {})
    with leading_write(SingleProcess(), PARTS) as add_files:

        def lose_folder(staged: Path) -> dict:
            (staged / "shard-00000.safetensors").mkdir()
            return add_files(staged)

        with pytest.raises(CheckpointError, match="rank 0 cannot write its part: "):
            write_checkpoint(tmp_path, "one", state, {"step": 1}, add_files=lose_folder)
    assert not [*tmp_path.iterdir()]
