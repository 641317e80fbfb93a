"""A run with every feature on, the hand-written loop, and counters of reads and calls."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console as Screen
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

from epochal.components.average import Ema
from epochal.engine import Environment, Monitor, Options, Parts, Run, Task, Train
from epochal.engine.create_run import create_run
from epochal.engine.interfaces.options import EngineOptions, LogOptions, OptimOptions, TrainOptions
from epochal.hooks.console import Console
from epochal.hooks.early_stopping import EarlyStopping
from epochal.hooks.recording import Recording
from epochal.hooks.tensorboard import TensorBoard
from epochal.testing import MemoryRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

LOG_EVERY = 8
"""Steps between two that log."""

EPOCH = 24
"""Steps of an epoch."""

READS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero")
BRINGERS = ("tolist", "numpy", "cpu", "__repr__", "__array__")


class Samples(Dataset):
    """Samples that a loader has to collate."""

    draws_random = False

    def __len__(self) -> int:
        return 4 * EPOCH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3,), index / 100), index % 2


class Pairs(Task):
    """Classify even and odd numbers."""

    def __init__(self) -> None:
        self.train_loader = DataLoader(Samples(), batch_size=4, shuffle=True)
        self.val_loader = DataLoader(Samples(), batch_size=4)

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> Tensor:
        return model(batch[0])

    def batch_loss(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
        return {"loss": (functional.cross_entropy(out, batch[1]), len(batch[1]))}


class Measured(Pairs):
    """The same task with a metric."""

    def batch_metric(self, out: Tensor, batch: list[Tensor]) -> dict[str, Any]:
        return {"acc": ((out.argmax(dim=1) == batch[1]).float().mean(), len(batch[1]))}


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def optimizer_of(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3} | options)


def full_run(
    task: Task,
    *,
    device: str = "cpu",
    step: str = "eager",
    on_nonfinite: str = "skip",
    precision: str = "fp32",
    dir: Path | None = None,
    **optim: Any,
) -> Run:
    """A run with console, record, averaged weights, clipping, guard, early stopping and tracker."""
    model = network().to(device)
    console = Console(every=f"{LOG_EVERY}st")
    console.screen = Screen(file=io.StringIO(), force_terminal=True, width=100)
    parts = Parts(
        task=task,
        model=model,
        optimizer=optimizer_of(model, **optim),
        hooks=(
            console,
            Recording(every=f"{LOG_EVERY}st"),
            EarlyStopping(patience=3),
            TensorBoard(every=f"{LOG_EVERY}st"),
        ),
        monitor=Monitor.parse("+val/acc"),
        average=Ema(),
    )
    options = Options(
        train=TrainOptions(for_="2ep"),
        engine=EngineOptions(step=step, on_nonfinite=on_nonfinite, precision=precision),
        optim=OptimOptions(clip=1.0),
        log=LogOptions(grad_norm=True),
    )
    return create_run(parts, options, Environment(writer=MemoryRecord(), device=device, dir=dir))


def take_by_hand(loader: DataLoader, *, clip: bool, **optim: Any) -> Iterator[None]:
    """The same training as a hand-written loop, one step at a time."""
    model = network()
    optimizer = optimizer_of(model, **optim)
    for features, label in loader:
        loss = functional.cross_entropy(model(features), label)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield


class HostReads(TorchDispatchMode):
    """Counts how often a block reads values of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._originals: dict[str, Callable[..., object]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.name().split(".")[0] in READS
        return func(*args, **kwargs or {})

    def __enter__(self) -> HostReads:
        for name in BRINGERS:
            self._originals[name] = getattr(Tensor, name)
            setattr(Tensor, name, self._counting(self._originals[name]))
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for name, original in self._originals.items():
            setattr(Tensor, name, original)

    def _counting(self, original: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            self.count += 1
            return original(*args, **kwargs)

        return counted


class Stepwise(Train):
    """Train, with a function that is called before each step and at the end of an epoch."""

    def __init__(self, look: Callable[[Run], object]) -> None:
        self._look = look

    def run(self, run: Run) -> object:
        epoch = run.feed.epoch

        def watched(number: int) -> Iterator[Any]:
            for microbatches in epoch(number):
                self._look(run)
                yield microbatches
            self._look(run)

        run.feed.epoch = watched
        return super().run(run)


def is_ordinary(step: int) -> bool:
    """Whether nothing is due after a step, counted from 1."""
    return step > 1 and step % LOG_EVERY != 0


def count_calls(function: Callable[[], object]) -> list[tuple[str, str]]:
    """File and name of every call of a Python function; resuming a generator is a call."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls
