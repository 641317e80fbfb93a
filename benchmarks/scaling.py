"""Weak scaling on CPU processes: Epochal beside a hand-written DistributedDataParallel loop.

Every process has the same number of samples in each step, whatever the number of processes. Both
loops run in the same processes, in pairs whose order alternates, on the same samples in the same
order, and must have the same weights after twenty steps. Prints the median time of a step of both,
the median and the quartiles of the ratios of all pairs, and the same ratio for the CPU time of the
main thread, which other work on the machine changes less. Writes nothing; takes a minute or two.
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
from epochal.distributed.node_group import single_node
from epochal.engine.device.seeding import derive_seed

SAMPLES, FEATURES, CLASSES = 64, 256, 10  # samples in a step of one process
WARMUP, STEPS, PAIRS = 20, 200, 16
GOAL = 1.02


def make_model() -> nn.Module:
    """A few layers: a step of some milliseconds."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(FEATURES, FEATURES), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))


def make_data(processes: int, steps: int = WARMUP + STEPS) -> TensorDataset:
    """One epoch of data for all processes."""
    size = SAMPLES * processes * steps
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
    """Measures the steps after the first ones: the time, and the CPU time of the main thread."""

    def __init__(self) -> None:
        self.begun = self.per_step = (0.0, 0.0)

    def setup(self, run: ep.Run) -> None:
        """Start after the warm-up."""
        run.on("step_end", self.begin, every=f"{WARMUP}st")

    def begin(self, run: ep.Run | None = None) -> None:
        """Start once."""
        if run is None or run.step == WARMUP:
            self.begun = time.perf_counter(), time.thread_time()

    def loop_end(self, run: ep.Run | None = None, split: str = "") -> None:
        """Stop with the last step."""
        now = time.perf_counter(), time.thread_time()
        self.per_step = (now[0] - self.begun[0]) / STEPS, (now[1] - self.begun[1]) / STEPS


def train_with_epochal(data: TensorDataset, processes: int) -> tuple[Stopwatch, nn.Module]:
    """A run."""
    watch, model = Stopwatch(), make_model()
    ep.Experiment(
        task=Task(data, processes),
        model=model,
        optim={"type": "AdamW", "lr": 1e-3},
        train={"for": "1ep", "eval_every": 0},
        log={"console_every": 0, "tensorboard": False, "system_every": 0, "level": "error"},
        engine={"num_threads": 1, "strategy": "ddp"},
        hooks=[watch],
        seed=0,
        choices={"device": "cpu", "no_file": True, "raise_errors": True},
    ).fit()
    return watch, model


def train_by_hand(data: TensorDataset, processes: int) -> tuple[Stopwatch, nn.Module]:
    """A loop as one would write it, over the samples of the run."""
    watch, model = Stopwatch(), make_model()
    shared = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(shared.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(derive_seed(0, "order", 0))
    order = torch.randperm(len(data), generator=generator)
    own = order.view(-1, processes, SAMPLES)[:, dist.get_rank()]
    inputs, labels = data.tensors
    for step, indices in enumerate(own):
        if step == WARMUP:
            watch.begin()
        loss = functional.cross_entropy(shared(inputs[indices]), labels[indices])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    watch.loop_end()
    return watch, model


def verify(processes: int) -> None:
    """Compare the weights after twenty steps; sums of more than two processes are rounded."""
    data = make_data(processes, 20)
    by_hand, ours = train_by_hand(data, processes)[1], train_with_epochal(data, processes)[1]
    for one, other in zip(by_hand.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0.0)


def work(processes: int) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The times of each pair in one process, by hand first."""
    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the summaries of the runs
    dist.init_process_group("gloo")
    verify(processes)
    data = make_data(processes)
    pairs = []
    for number in range(PAIRS):
        trains = [train_by_hand, train_with_epochal]
        found = [train(data, processes) for train in (trains if number % 2 else trains[::-1])]
        by_hand, ours = found if number % 2 else found[::-1]
        pairs.append((by_hand[0].per_step, ours[0].per_step))
    return pairs


def main() -> None:
    """Measure with 1, 2 and 4 processes, if there are as many cores, and print a table."""
    cores = os.cpu_count() or 1
    titles = f"{'by hand':>12}{'Epochal':>12}{'ratio':>8}{'quartiles':>16}{'CPU':>8}{'goal':>7}"
    print(f"{'processes':>9}{titles}")
    for processes in sorted({1, min(2, cores), min(4, cores)}):
        end = launch_ranks(
            work,
            processes,
            nproc=processes,
            start_method="spawn",
            environment={},
            nodes=single_node(),
        )
        if end.failed_rank is not None:
            sys.exit(f"rank {end.failed_rank} ended with {end.code}")
        pairs = end.values[0]
        times = [statistics.median(pair[i][0] for pair in pairs) * 1e3 for i in (0, 1)]
        ratios = [ours[0] / by_hand[0] for by_hand, ours in pairs]
        first, ratio, third = statistics.quantiles(ratios, n=4)
        cpu = statistics.median(ours[1] / by_hand[1] for by_hand, ours in pairs)
        spread = f"{first:.3f} to {third:.3f}"
        shown = f"{times[0]:>9.3f} ms{times[1]:>9.3f} ms{ratio:>8.3f}{spread:>16}{cpu:>8.3f}"
        print(f"{processes:>9}{shown}{GOAL:>7.2f}")


if __name__ == "__main__":
    main()
