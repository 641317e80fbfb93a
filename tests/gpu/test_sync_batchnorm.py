"""Batch norm over two processes on one GPU: statistics of the whole batch, as in one process.

This file is also the program of the processes, which gloo connects: NCCL wants a GPU for each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed, nn

import epochal as ep
from epochal.testing import TinyTask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def train(folder: Path, rank: int, ranks: int) -> None:
    if ranks > 1:
        store = distributed.FileStore(str(folder / "store"), ranks)
        timeout = timedelta(seconds=60)
        distributed.init_process_group(
            "gloo", store=store, rank=rank, world_size=ranks, timeout=timeout
        )
        numbers = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": ranks}
        os.environ.update({key: str(number) for key, number in numbers.items()})
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    ep.Experiment(
        task=TinyTask(),
        model=model,
        optim={"type": "SGD", "lr": 0.1},
        engine={"sync_batchnorm": ranks > 1, "step": "eager"},
        train={"for": "6st"},
        choices={"device": "cuda:0", "no_file": True, "raise_errors": True},
    ).fit()
    if rank == 0:
        state = {name: one.cpu().float() for name, one in model.state_dict().items()}
        save_file(state, folder / f"{ranks}.safetensors")


def test_two_processes_have_the_statistics_of_one(tmp_path: Path) -> None:
    for ranks in (1, 2):
        words = [str(tmp_path), str(ranks)]
        command = [sys.executable, __file__]
        children = [subprocess.Popen([*command, *words, str(rank)]) for rank in range(ranks)]
        assert [child.wait(120) for child in children] == [0] * ranks
    alone, together = (load_file(tmp_path / f"{ranks}.safetensors") for ranks in (1, 2))
    assert alone.keys() == together.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, atol=1e-5, rtol=1e-4, msg=name)


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[2]))
