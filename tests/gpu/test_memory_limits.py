"""Clipping, microbatches and recomputed modules on a CUDA device, captured and out of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import epochal as ep
from epochal.testing import TinyTask

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Deep(nn.Module):
    """A wide layer that needs much memory for each sample."""

    def __init__(self, *, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(4, width), nn.GELU(), nn.Dropout(dropout))
        self.last = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


def train(model: nn.Module, task: Any = None, **sections: Any) -> ep.RunResult:
    return ep.Experiment(
        task=TinyTask(num_samples=48, batch_size=8) if task is None else task,
        model=model,
        choices={"device": "cuda", "no_file": True, "raise_errors": True},
        **{"optim": {"type": "AdamW"}, "train": {"for": "4ep", "eval_every": 0}} | sections,
    ).fit()


class Noting(ep.Hook):
    def run_end(self, run: ep.Run) -> None:
        self.choices = dict(run.choices)


def steps(options: dict[str, Any], **model: Any) -> tuple[list[Tensor], str]:
    """The weights after eager steps equal those after captured ones; gives both."""
    found, choice = [], ""
    for step in ("eager", "graph"):
        noting, net = Noting(), Deep(**model)
        engine = {"step": step, "deterministic": True, **options.get("engine", {})}
        optim = {"type": "AdamW", **options.get("optim", {})}
        train(net, engine=engine, optim=optim, hooks=[noting])
        found.append(torch.cat([parameter.detach().flatten() for parameter in net.parameters()]))
        choice = str(noting.choices["step"])
    return found, choice


@pytest.mark.parametrize(
    "options",
    [
        {"optim": {"clip": {"value": 0.01}}},
        {"optim": {"clip": {"norm": 0.01}, "accumulate": 2}},
        {"engine": {"microbatch": 3}},
        {"engine": {"microbatch": "auto"}},
        {"engine": {"recompute": ["first"]}},
        {"engine": {"recompute": ["first"], "microbatch": 4}},
    ],
)
def test_microbatches_and_recomputation_are_captured_and_train_the_same(options: Any) -> None:
    (eager, captured), choice = steps(options)
    assert choice == "graph"
    assert torch.equal(eager, captured)


def test_recomputed_dropout_trains_the_same_captured_or_not() -> None:
    (eager, captured), _ = steps({"engine": {"recompute": ["first"]}}, dropout=0.3)
    assert torch.equal(eager, captured)
    plain = Deep(dropout=0.3)
    train(plain, engine={"step": "eager", "deterministic": True})
    expected = torch.cat([parameter.detach().flatten() for parameter in plain.parameters()])
    assert torch.equal(eager, expected)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Room for about half a GiB."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**29) / total)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.usefixtures("little_memory")
def test_batches_are_halved_until_they_fit_and_the_search_finds_as_many() -> None:
    def task() -> TinyTask:
        return TinyTask(num_samples=8192, batch_size=8192)

    noting = Noting()
    sections = {"engine": {"microbatch": "auto", "step": "eager"}, "train": {"for": "2st"}}
    sections["train"] |= {"eval_every": 0, "sanity_batches": 0}
    assert train(Deep(width=16384), task(), hooks=[noting], **sections).steps == 2
    assert 1 <= int(str(noting.choices["microbatch"])) < 8192
    experiment = ep.Experiment(
        task=task(),
        model=Deep(width=16384),
        optim={"type": "AdamW"},
        choices={"device": "cuda"},
    )
    found = ep.find_batch(experiment)
    assert int(str(noting.choices["microbatch"])) <= found.samples < 8192
    assert found.bytes_per_sample > 0
