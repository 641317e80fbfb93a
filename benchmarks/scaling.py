"""Weak scaling on CPU processes: Epochal beside a hand-written DistributedDataParallel loop.

Every process has the same number of samples in each step, whatever the number of processes. Both
loops run in the same processes, in turns; the data are in memory, and the optimizer is the same.
Prints medians of the time per step and their ratio, with the goal; writes nothing.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import epochal as ep
from epochal.distributed.elastic import launch_ranks

SAMPLES, FEATURES, CLASSES = 64, 256, 10  # samples in a step of one process
WARMUP, STEPS, ROUNDS = 20, 200, 7
GOAL = 1.02


def make_model() -> nn.Module:
    """A few layers: a step of some milliseconds."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(FEATURES, FEATURES), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))


def make_data(processes: int) -> TensorDataset:
    """One epoch of data for all processes."""
    size = SAMPLES * processes * (WARMUP + STEPS)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (size,), generator=generator)
    return TensorDataset(torch.randn(size, FEATURES, generator=generator), labels)


class Task(ep.Task):
    """The same loss as in the hand-written loop."""

    def __init__(self, data: TensorDataset, processes: int) -> None:
        self.train_loader = DataLoader(data, batch_size=SAMPLES * processes, shuffle=True)

    def batch_forward(self, model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        """The scores of a batch."""
        scores: torch.Tensor = model(batch[0])
        return scores

    def batch_loss(
        self, out: torch.Tensor, batch: list[torch.Tensor]
    ) -> dict[str, tuple[torch.Tensor, int]]:
        """The cross entropy of a batch."""
        return {"loss": (functional.cross_entropy(out, batch[1]), len(out))}


class Stopwatch(ep.Hook):
    """Measures the steps after the first ones."""

    def __init__(self) -> None:
        self.begun = self.seconds = 0.0

    def setup(self, run: ep.Run) -> None:
        """Start after the warm-up."""
        run.on("step_end", self.begin, every=f"{WARMUP}st")

    def begin(self, run: ep.Run) -> None:
        """Start once."""
        if run.step == WARMUP:
            self.begun = time.perf_counter()

    def loop_end(self, run: ep.Run, split: str) -> None:
        """Stop with the last step."""
        self.seconds = time.perf_counter() - self.begun


def time_epochal(data: TensorDataset, processes: int) -> float:
    """Seconds per step of a run."""
    watch = Stopwatch()
    ep.Experiment(
        task=Task(data, processes),
        model=make_model(),
        optim={"type": "AdamW", "lr": 1e-3},
        train={"for": "1ep", "eval_every": 0},
        log={"console_every": 0, "tensorboard": False, "system_every": 0, "level": "error"},
        engine={"num_threads": 1, "strategy": "ddp"},
        hooks=[watch],
        choices={"device": "cpu", "no_file": True, "raise_errors": True},
    ).fit()
    return watch.seconds / STEPS


def time_by_hand(data: TensorDataset, processes: int) -> float:
    """Seconds per step of a loop as one would write it."""
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    own = order.view(-1, processes, SAMPLES)[:, dist.get_rank()]
    begun, (inputs, labels) = 0.0, data.tensors
    for step, indices in enumerate(own):
        if step == WARMUP:
            begun = time.perf_counter()
        loss = functional.cross_entropy(model(inputs[indices]), labels[indices])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - begun) / STEPS


def work(processes: int) -> dict[str, float]:
    """Medians of both loops in one process."""
    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the summaries of the runs
    dist.init_process_group("gloo")
    data = make_data(processes)
    found: dict[str, list[float]] = {"by hand": [], "Epochal": []}
    for _ in range(ROUNDS):
        found["by hand"].append(time_by_hand(data, processes))
        found["Epochal"].append(time_epochal(data, processes))
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Measure with 1, 2 and all cores, and print a table."""
    cores = os.cpu_count() or 1
    print(f"{'processes':>9}{'by hand':>12}{'Epochal':>12}{'ratio':>8}{'goal':>7}")
    for processes in sorted({1, min(2, cores), cores}):
        end = launch_ranks(work, processes, nproc=processes, start_method="spawn", environment={})
        if end.failed_rank is not None:
            sys.exit(f"rank {end.failed_rank} ended with {end.code}")
        by_hand, ours = end.values[0]["by hand"], end.values[0]["Epochal"]
        times = f"{by_hand * 1e3:>9.3f} ms{ours * 1e3:>9.3f} ms"
        print(f"{processes:>9}{times}{ours / by_hand:>8.3f}{GOAL:>7.2f}")


if __name__ == "__main__":
    main()
