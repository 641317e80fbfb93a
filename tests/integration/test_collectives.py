"""Epochal adds no collective to those of DistributedDataParallel, the user's or its own.

Two ranks train with a process group that counts collectives and forwards them to gloo. This file is
also their program.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from rich.console import Console as Screen
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

import epochal as ep
from epochal.distributed.process_group import ProcessGroup
from epochal.hooks.console import Console
from epochal.hooks.early_stopping import EarlyStopping
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

STEPS = 12
RANKS = 2
CLIP = 0.1
COLLECTIVES = ("all", "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv")
NAMES = [
    name
    for name in dir(dist.ProcessGroup)
    if any(word in name for word in COLLECTIVES) and not name.startswith("__")
]


class Counting(dist.ProcessGroup):
    """Counts every collective by name and forwards it to gloo."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._size = size
        self.counts: Counter[str] = Counter()

    def size(self) -> int:
        return self._size

    def getBackendName(self) -> str:
        return "counting"


def counted(name: str) -> object:
    def collective(self: Counting, *arguments: object) -> object:
        self.counts[name] += 1
        return getattr(self._gloo, name)(*arguments)

    return collective


for _name in NAMES:
    setattr(Counting, _name, counted(_name))


def counted_exchange(group: Counting, name: str, exchange: Callable[..., object]) -> object:
    def count(self: object, value: object) -> object:
        group.counts[f"{name} of objects"] += 1
        return exchange(self, value)

    return count


class Averaging(TinyTask):
    """A task that calls a collective in every step."""

    def batch_loss(self, out, batch):
        losses = super().batch_loss(out, batch)
        dist.all_reduce(losses["loss"][0].detach().clone())
        return losses


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return DistributedDataParallel(TinyModel())


def train_by_hand() -> None:
    task, model = TinyTask(), make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(STEPS // len(task.train_loader)):
        for batch in task.train_loader:
            loss = task.batch_loss(task.batch_forward(model, batch), batch)["loss"][0]
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()


def train_with_epochal(task: TinyTask) -> None:
    """A run with console, record, metrics, guard and early stopping."""
    model, console = make_model(), Console(every="1st", grad_norm=True)
    console.screen = Screen(file=io.StringIO(), force_terminal=True)
    result = ep.Experiment(
        task=task,
        model=model,
        optim={"type": "AdamW", "lr": 0.01, "clip": CLIP},
        schedule={"type": "cosine"},
        average={"type": "ema", "decay": 0.9},
        engine={"on_nonfinite": "skip"},
        train={"for": f"{STEPS}st", "eval_every": "3st"},
        log={"record_every": "1st", "grad_norm": True},
        hooks=[console, EarlyStopping(patience=100)],
        monitor="+val/acc",
        choices={"device": "cpu", "raise_errors": True},
    ).fit()
    assert result.steps == STEPS
    assert "train/interval/grad_norm" in result.metrics
    assert console.screen.file.getvalue()


def train_shared(steps: int) -> None:
    """A run that joins the process group, with everything that a step can have."""
    torch.manual_seed(0)
    result = ep.Experiment(
        task=TinyTask(),
        model=TinyModel(),
        optim={"type": "AdamW", "lr": 0.01, "clip": CLIP},
        schedule={"type": "cosine"},
        average={"type": "ema", "decay": 0.9},
        engine={"on_nonfinite": "skip", "strategy": "ddp"},
        train={"for": f"{steps}st", "eval_every": "0"},
        checkpoint={"every": 0},
        log={"record_every": "1st", "console_every": "1st", "grad_norm": True},
        choices={"device": "cpu", "raise_errors": True},
    ).fit()
    assert result.steps == steps


def work(rank: int, folder: Path) -> dict[str, dict[str, int]]:
    """Train on one rank; gives the collectives of each way to train."""
    torch.set_num_threads(1)
    dist.Backend.register_backend("counting", Counting, devices=["cpu"])
    store = dist.FileStore(str(folder / "store"), RANKS)
    dist.init_process_group("counting", store=store, rank=rank, world_size=RANKS)
    group = dist.group.WORLD
    assert isinstance(group, Counting)
    for name in ("gather", "collect", "broadcast"):  # objects have a group of their own
        setattr(ProcessGroup, name, counted_exchange(group, name, getattr(ProcessGroup, name)))
    joined = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    found = {}
    for name, train in {
        "by hand": train_by_hand,
        "epochal": lambda: train_with_epochal(TinyTask()),
        "reducing": lambda: train_with_epochal(Averaging()),
        "shared": lambda: train_shared(STEPS),
        "shared longer": lambda: train_shared(3 * STEPS),
    }.items():
        if name == "shared":
            os.environ.update(joined)
        group.counts.clear()
        train()
        found[name] = dict(group.counts)
    dist.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, int]]]:
    """The collectives of each rank, by way to train and name."""
    from forked import Child  # not at the top: the ranks run this file without it

    folder = tmp_path_factory.mktemp("ranks")
    folders = [folder / str(rank) for rank in range(RANKS)]
    for own in folders:
        own.mkdir()
    ranks = [Child(__file__, own.name, str(folder), cwd=own) for own in folders]
    for rank in ranks:
        done = rank.end()
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((own / "counts").read_text()) for own in folders]


def test_hand_written_step_reduces_its_gradients(counts) -> None:
    for rank in counts:
        assert rank["by hand"]["allreduce"] == STEPS


def test_run_has_exactly_the_collectives_of_the_hand_written_loop(counts) -> None:
    for rank in counts:
        assert rank["epochal"] == rank["by hand"]


def test_collective_of_the_task_is_counted(counts) -> None:
    for rank in counts:
        added = Counter(rank["reducing"]) - Counter(rank["by hand"])
        assert added == {"allreduce": STEPS}


def test_further_steps_of_a_shared_run_have_only_the_collectives_of_ddp(counts) -> None:
    for rank in counts:
        added = Counter(rank["shared longer"]) - Counter(rank["shared"])
        assert added == {"allreduce": 2 * STEPS}


if __name__ == "__main__":
    found = work(int(sys.argv[1]), Path(sys.argv[2]))
    Path("counts").write_text(json.dumps(found))
