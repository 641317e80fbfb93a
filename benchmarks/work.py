"""The work of every peer: the segment, and the clocks inside its model.

A segment is one short training of a new model. Clocks are read inside the forward pass, so that no
framework needs a callback, and time counts between two passes, without start and end of a
training.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from models import GptMini, mlp, points, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LR, WEIGHT_DECAY = 1e-3, 0.01
LOG_EVERY = 50
CASES = ("minimal", "realistic", "as-user")


class Stopwatch:
    """Reads the clocks at some forward passes, given by their index."""

    def __init__(self, marks: tuple[int, ...]) -> None:
        self.marks = marks
        self.count = 0
        self.stamps: list[tuple[float, float]] = []

    def tick(self) -> None:
        """Record that a forward pass begins."""
        if self.count in self.marks:
            self.stamps.append((time.perf_counter(), time.process_time()))
        self.count += 1


class Timed(nn.Module):
    """A model that calls its stopwatch at every forward pass."""

    def __init__(self, inner: nn.Module, watch: Stopwatch) -> None:
        super().__init__()
        self.inner = inner
        self.watch = watch

    def forward(self, x: Tensor) -> Tensor:
        """The score of each class; classes are dimension 1."""
        self.watch.tick()
        return self.inner(x)


@dataclass(frozen=True, kw_only=True)
class Work:
    """A model with its data, and how long its segments are."""

    build: Callable[[], nn.Module]
    draw: Callable[[int], tuple[Tensor, Tensor]]
    batch_size: int
    classes: int
    steps: int
    """Steps of a minimal segment, which is one epoch."""

    epoch_steps: int
    """Steps of an epoch of a realistic segment; evaluation takes a fifth as many batches."""

    epochs: int
    """Epochs of a realistic segment; the first is not timed."""

    in_turns: bool = False
    """Whether the two sides of a pair alternate at every step, because steps are long."""


WORKS = {
    "tiny": Work(
        build=lambda: mlp(32, 64, 10),
        draw=points(32),
        batch_size=32,
        classes=10,
        steps=300,
        epoch_steps=400,
        epochs=3,
    ),
    "mlp": Work(
        build=lambda: mlp(784, 512, 512, 10),
        draw=points(784),
        batch_size=128,
        classes=10,
        steps=100,
        epoch_steps=100,
        epochs=3,
        in_turns=True,
    ),
    "gpt-mini": Work(
        build=GptMini,
        draw=texts,
        batch_size=16,
        classes=GptMini.vocabulary,
        steps=30,
        epoch_steps=50,
        epochs=2,
        in_turns=True,
    ),
}


class Opaque(Dataset):
    """A dataset that can only be indexed."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        """One sample."""
        return self.dataset[index]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The inputs of a segment; every framework gets the same."""

    model: Timed
    optimizer: torch.optim.Optimizer
    train_loader: DataLoader
    val_loader: DataLoader
    epochs: int
    classes: int
    folder: Path
    """An empty folder for files."""

    steps: int
    """Training steps in the timed part."""

    passes: int
    """Forward passes of the whole segment, to notice missing or additional work."""


def draw_data(work: Work, case: str, *, steps: int | None = None) -> tuple[TensorDataset, ...]:
    """The training data and the held-out data of a segment."""
    torch.manual_seed(0)
    batches = steps or (work.epoch_steps if case == "realistic" else work.steps)
    sizes = (batches * work.batch_size, batches // 5 * work.batch_size or work.batch_size)
    return tuple(TensorDataset(*work.draw(size)) for size in sizes)


def make_job(work: Work, case: str, data: tuple[Dataset, ...], folder: Path) -> Job:
    """A fresh model, optimizer and loaders; the same weights each time."""
    train_loader, val_loader = (
        DataLoader(dataset, batch_size=work.batch_size, shuffle=False, num_workers=0)
        for dataset in data
    )
    steps, evals = len(train_loader), len(val_loader)
    if case == "realistic":  # from the last evaluated batch of the first epoch to that of the last
        epochs, per_epoch = work.epochs, steps + evals
        marks = (per_epoch - 1, epochs * per_epoch - 1)
        timed, passes = (epochs - 1) * steps, epochs * per_epoch
    else:  # from the step at 20 % to the last one
        epochs, marks, passes = 1, (steps // 5, steps - 1), steps
        timed = marks[1] - marks[0]
    torch.manual_seed(1)
    model = Timed(work.build(), Stopwatch(marks))
    return Job(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY),
        train_loader=train_loader,
        val_loader=val_loader,
        epochs=epochs,
        classes=work.classes,
        folder=folder,
        steps=timed,
        passes=passes,
    )


@torch.no_grad()
def outcome(job: Job) -> tuple[float, float]:
    """The result: loss on held-out data, and norm of all parameters."""
    model = job.model.inner.eval()
    losses = [functional.cross_entropy(model(x), y) for x, y in job.val_loader]
    norms = [parameter.double().norm() for parameter in model.parameters()]
    return torch.stack(losses).mean().item(), torch.stack(norms).norm().item()
