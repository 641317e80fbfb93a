"""What a CUDA device gains from small trainings side by side: captured by hand, without Epochal.

Each trial has its own model, data, optimizer and stream, and one graph of a gather and a step. One
thread replays the graphs in turn:

    python benchmarks/side_by_side.py
    python benchmarks/side_by_side.py --case tiny --steps 4     # four steps in one graph

A row has microseconds per step of one trial, for each number of trials at once; ``launch`` is what
the host needs for one replay, and ``bits`` compares all weights with those of each trial alone.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_models import CLASSES, ResNet18, Tiny

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS = 3
COMPARED = 50
"""Replays after which the weights are compared."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model with its data and how often its graphs are replayed."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    samples: int
    replays: int
    counts: tuple[int, ...]
    """How many trials run at once."""

    is_bf16: bool = False


def perceptron() -> nn.Module:
    """A perceptron of 784-512-512-10."""
    hidden = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(512, CLASSES))


CASES = {
    "tiny": Case(
        model=Tiny, shape=(32,), batch=32, samples=4096, replays=2000, counts=(1, 4, 8, 16)
    ),
    "mlp": Case(
        model=perceptron, shape=(784,), batch=128, samples=4096, replays=1000, counts=(1, 4, 8, 16)
    ),
    "resnet18": Case(
        model=lambda: ResNet18(width=64),
        shape=(3, 32, 32),
        batch=32,
        samples=1024,
        replays=100,
        counts=(1, 4, 8),
        is_bf16=True,
    ),
}


class Trial:
    """A training whose next steps are one graph on its own stream.

    The stream is also the one of the capture: cuBLAS has one workspace for each stream.
    """

    def __init__(self, case: Case, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        device, size, samples = torch.device("cuda"), case.batch, case.samples
        memory = torch.channels_last if case.is_bf16 else torch.contiguous_format
        self.model = case.model().to(device, memory_format=memory)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, fused=True, capturable=True
        )
        self._inputs = torch.randn(samples, *case.shape).to(device)
        self._labels = torch.randint(0, CLASSES, (samples,)).to(device)
        self._order = torch.randperm(samples).to(device)
        self._span = torch.arange(size, device=device)
        self._first = torch.zeros((), dtype=torch.int64, device=device)
        self._batch = self._inputs[:size].clone(), self._labels[:size].clone()
        self._case = case
        self.stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self._step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            for _ in range(steps):
                self._step()
        self._start = [tensor.clone() for tensor in self._state()]

    def _step(self) -> None:
        case, (inputs, labels) = self._case, self._batch
        rows = self._order[(self._span + self._first) % case.samples]
        torch.index_select(self._inputs, 0, rows, out=inputs)
        torch.index_select(self._labels, 0, rows, out=labels)
        self._first.add_(case.batch)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=case.is_bf16):
            loss = functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _state(self) -> list[Tensor]:
        moments = [value for one in self._optimizer.state.values() for value in one.values()]
        return [*self.model.state_dict().values(), *moments, self._first]

    def restart(self) -> None:
        """Go back to the state after the capture."""
        for tensor, start in zip(self._state(), self._start, strict=True):
            tensor.copy_(start)

    def weights(self) -> Tensor:
        """A copy of all weights."""
        return torch.cat([one.detach().flatten() for one in self.model.parameters()])


def replay(trials: list[Trial], times: int) -> None:
    """Replay the graph of each trial in turn, each on its own stream."""
    for _ in range(times):
        for trial in trials:
            torch.cuda.set_stream(trial.stream)
            trial.graph.replay()
    torch.cuda.set_stream(torch.cuda.default_stream())


def measure(trials: list[Trial], times: int) -> tuple[float, float]:
    """The seconds until the device has finished, and until the host has, at best."""
    found = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        replay(trials, times)
        launched = time.perf_counter() - begun
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begun, launched))
    return min(found)


def have_equal_bits(trials: list[Trial]) -> bool:
    """Whether the weights of each trial are those it gets alone."""
    alone = []
    for trial in trials:
        replay([trial], COMPARED)
        torch.cuda.synchronize()
        alone.append(trial.weights())
        trial.restart()
    torch.cuda.synchronize()
    replay(trials, COMPARED)
    torch.cuda.synchronize()
    return all(torch.equal(one.weights(), known) for one, known in zip(trials, alone, strict=True))


def main() -> None:
    """Measure the cases and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=CASES, help="by default all")
    parser.add_argument("--steps", type=int, default=1, help="steps in one graph")
    arguments = parser.parse_args()
    for name in arguments.case or CASES:
        case, steps = CASES[name], arguments.steps
        trials = [Trial(case, seed, steps) for seed in range(max(case.counts))]
        bits = "equal" if have_equal_bits(trials) else "different"
        columns = []
        for count in case.counts:
            times = max(4, 2 * case.replays // steps // count)
            seconds, _ = measure(trials[:count], times)
            columns.append(f"{count}: {1e6 * seconds / times / count / steps:7.1f}")
        _, launch = measure(trials[:1], 20)
        row = "  ".join(columns)
        print(f"{name:<9} {row}  launch {1e6 * launch / 20:.1f}  bits {bits}", flush=True)


if __name__ == "__main__":
    main()
