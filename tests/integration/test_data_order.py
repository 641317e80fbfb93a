"""Random data give the same bits with any number of workers and after a resume at any step."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

import epochal as ep
from epochal.engine import Environment, Options, Parts, Run, Task
from epochal.engine.create_run import create_run
from epochal.engine.interfaces.options import OptimOptions, TrainOptions
from resume import assert_resumes_everywhere, assert_same, follow, resume

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def make_sample(index: int) -> list[Tensor]:
    """Samples that draw from every generator."""
    x = torch.full((3,), index / 10) + torch.rand(3) + random.random()
    return [x, x.sum(0, keepdim=True) + torch.tensor(np.random.randn(), dtype=torch.float32)]


class Noisy(Dataset[list[Tensor]]):
    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> list[Tensor]:
        return make_sample(index)


class Stream(IterableDataset[list[Tensor]]):
    def __iter__(self) -> Iterator[list[Tensor]]:
        return map(make_sample, range(11))


class Kept(Stream):
    """A stream that saves and restores its position."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]

    def __iter__(self) -> Iterator[list[Tensor]]:
        while self.position < 11:
            self.position += 1
            yield make_sample(self.position - 1)
        self.position = 0


class Lucky(Sampler[int]):
    """A sampler that draws indices while it iterates."""

    def __len__(self) -> int:
        return 9

    def __iter__(self) -> Iterator[int]:
        return (random.randrange(11) for _ in range(9))


class Batches:
    """A loader that is not torch's."""

    def __iter__(self) -> Iterator[list[Tensor]]:
        for number in range(4):
            samples = [make_sample(number) for _ in range(2)]
            yield [torch.stack(parts) for parts in zip(*samples, strict=True)]


def is_kept(number: int) -> bool:
    return number != 4


LOADERS: dict[str, Callable[[], Any]] = {
    "chain": lambda: ep.data.chain(list(range(11)), make_sample, ep.data.Shuffle()).loader(
        batch_size=3
    ),
    "stream of a chain": lambda: ep.data.chain(
        list(range(11)), ep.data.SplitByWorker(2), ep.data.Filter(is_kept), make_sample
    ).loader(batch_size=2),
    "shuffled": lambda: DataLoader(Noisy(), batch_size=3, shuffle=True),
    "big batches": lambda: DataLoader(Noisy(), batch_size=7, shuffle=True),
    "full batches": lambda: DataLoader(Noisy(), batch_size=3, drop_last=True),
    "own sampler": lambda: DataLoader(Noisy(), batch_size=3, sampler=Lucky()),
    "stream": lambda: DataLoader(Stream(), batch_size=3),
    "stream with a state": lambda: DataLoader(Kept(), batch_size=3),
    "own loader": Batches,
}


class Adding(Task):
    def __init__(self, train: Any, val: Any) -> None:
        self.train_loader, self.val_loader = train, val

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"sum": model(batch[0])}

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        return {"loss": (functional.mse_loss(out["sum"], batch[1]), len(batch[1]))}

    def batch_metric(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        return {"mae": ((out["sum"] - batch[1]).abs().mean(), len(batch[1]))}


def build(
    setting: dict[str, Any], make: Callable[[], Any], *, accumulate: int = 1, **options: Any
) -> Run:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 1))
    task = Adding(make(), DataLoader(Noisy(), batch_size=4))
    parts = Parts(task=task, model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.01))
    train = TrainOptions(**({"for_": "2ep", "eval_every": "2st"} | options))
    sections = Options(optim=OptimOptions(accumulate=accumulate), train=train)
    return create_run(parts, sections, Environment(**setting))


@pytest.mark.parametrize("kind", LOADERS)
def test_run_with_random_data_resumes_at_every_boundary(kind: str) -> None:
    assert assert_resumes_everywhere(partial(build, make=LOADERS[kind])) >= 4


@pytest.mark.parametrize("options", [{"accumulate": 2}, {"limit_batches": 3}])
@pytest.mark.parametrize("kind", ["shuffled", "stream with a state"])
def test_random_data_resume_with_accumulation_and_limited_batches(
    kind: str, options: dict[str, Any]
) -> None:
    assert_resumes_everywhere(partial(build, make=LOADERS[kind], **options))


def test_number_of_workers_does_not_change_the_data() -> None:
    def make(workers: int, *, kept: bool = False) -> DataLoader[Any]:
        return DataLoader(
            Noisy(), batch_size=3, shuffle=True, num_workers=workers, persistent_workers=kept
        )

    whole = follow(partial(build, make=partial(make, 0)))
    assert follow(partial(build, make=partial(make, 2, kept=True))).digests == whole.digests
    for number, workers in ((2, 1), (6, 3)):
        state = whole.states[number]
        assert_same(whole, resume(partial(build, make=partial(make, workers)), state), state)


def test_evaluation_period_does_not_change_the_batches() -> None:
    one, other = (
        follow(partial(build, make=LOADERS["shuffled"], eval_every=every))
        for every in ("1st", "1ep")
    )
    assert one.digests["model"] == other.digests["model"]


def test_evaluations_of_random_data_are_the_same_at_every_step() -> None:
    def still(setting: dict[str, Any]) -> Run:
        run = build(setting, LOADERS["shuffled"], eval_every="1st")
        run.optimizer.param_groups[0]["lr"] = 0.0
        return run

    points = [value for _, name, value in follow(still).points if name == "val/mae"]
    assert len(points) == 8
    assert len(set(points)) == 1
