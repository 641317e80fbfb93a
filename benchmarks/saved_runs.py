"""Real runs in the benchmark of checkpoints: delays by saves, and the time to resume."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import epochal as ep
from epochal.checkpoint import snapshot_to_host

if TYPE_CHECKING:
    from pathlib import Path

FEATURES = 64
BATCH = 16
_QUIET = {"console_every": 0, "record_every": 0, "level": "error"}


class Rows(Dataset[Tensor]):
    """A map-style dataset that can only be indexed."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((FEATURES,), float(index % 7))


class Work(ep.Task):
    """A task with short steps, so that other costs are visible."""

    def __init__(self, steps: int) -> None:
        self.train_loader = DataLoader(Rows(steps * BATCH), batch_size=BATCH, shuffle=True)

    def batch_forward(self, model: nn.Module, batch: Tensor) -> Tensor:
        """The outputs for a batch."""
        return model(batch)

    def batch_loss(self, out: Tensor, batch: Tensor) -> dict[str, tuple[Tensor, int]]:
        """The loss."""
        return {"loss": (out.square().mean(), len(batch))}


class Heavy(nn.Module):
    """A small model that carries ``size`` bytes of state."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 1))
        for number in range(32):
            self.register_buffer(f"load{number}", torch.randn(size // (4 * 32)))

    def forward(self, x: Tensor) -> Tensor:
        """One number per row."""
        return self.body(x)


@dataclass
class Stall:
    """Seconds measured in one run with background saves."""

    pauses: list[float] = field(default_factory=list)
    """Steps that include a save."""

    copies: list[float] = field(default_factory=list)
    """Only the copy of the same state to host memory."""

    ordinary: list[float] = field(default_factory=list)
    """Steps while nothing is written."""

    beside: list[float] = field(default_factory=list)
    """Steps while a checkpoint is written."""


@dataclass
class _Watch(ep.Hook):
    """Requests a save every ``period`` steps, and times every step."""

    period: int
    stall: Stall = field(default_factory=Stall)
    _begun: float = 0.0
    _is_asked: bool = False
    _is_writing: bool = False

    def step_end(self, run: ep.Run) -> None:
        """Record the step; before each save, copy once without saving."""
        seconds = time.perf_counter() - self._begun
        if self._is_asked:
            self.stall.pauses.append(seconds)
            self._is_asked, self._is_writing = False, True
        elif run.step > 1:
            (self.stall.beside if self._is_writing else self.stall.ordinary).append(seconds)
        if run.step % self.period == 0 and not self._is_writing:
            self.stall.copies.append(time_copy(run.model))
            run.request_save("benchmark")
            self._is_asked = True
        self._begun = time.perf_counter()

    def checkpoint_saved(self, run: ep.Run, path: Path) -> None:
        """Record that the checkpoint is on the disk."""
        self._is_writing = False


def time_copy(model: nn.Module) -> float:
    """Seconds to copy the state of a model to host memory."""
    state = {"model": dict(model.state_dict())}
    warm_memory(sum(tensor.nbytes for tensor in model.state_dict().values()))
    begin = time.perf_counter()
    snapshot_to_host(state)
    return time.perf_counter() - begin


def warm_memory(size: int) -> None:
    """Touch and free so many bytes, so that the next allocation is fast."""
    torch.ones(size // 4)


def measure_stall(folder: Path, size: int, saves: int, period: int) -> Stall:
    """Train with ``saves`` saves of ``size`` bytes, at least ``period`` steps apart."""
    watch = _Watch(period)
    ep.Experiment(
        task=Work((saves + 1) * period),
        model=Heavy(size),
        optim={"type": "AdamW", "lr": 1e-3},
        train={"for": "1ep"},
        log=_QUIET,
        checkpoint={"every": 0},
        record={"log_dir": str(folder / "runs")},
        hooks=[watch],
        choices={"device": "cpu", "raise_errors": True},
    ).fit()
    return watch.stall


@dataclass
class _Saves(ep.Hook):
    """Requests a save at some steps."""

    steps: tuple[int, ...]

    def step_end(self, run: ep.Run) -> None:
        """Request a save at the chosen steps."""
        if run.step in self.steps:
            run.request_save("benchmark")


class _FirstStep(ep.Hook):
    """Ends a run after its first step, and records the time."""

    at = 0.0

    def step_end(self, run: ep.Run) -> None:
        """Stop the run."""
        if not self.at:
            self.at = time.perf_counter()
            run.stop("measured")


def measure_resume(folder: Path, steps: int, rounds: int) -> tuple[dict[int, list[float]], float]:
    """Seconds from the request to resume to the end of the first step, by position.

    Also the seconds of the whole epoch, which a resume that reads all data again would need.
    """
    places = (10, steps // 2, steps * 99 // 100)
    begin = time.perf_counter()
    result = _long_epoch(steps, folder / "runs", _Saves(places), {})
    whole = time.perf_counter() - begin
    times: dict[int, list[float]] = {place: [] for place in places}
    for _ in range(rounds):
        for place in places:
            copy = folder / "copy"
            assert result.dir is not None
            shutil.copytree(result.dir, copy, symlinks=True)
            first, begin = _FirstStep(), time.perf_counter()
            choices = {"resume": copy, "resume_from": f"step-{place}", "allow_changed": True}
            _long_epoch(steps, folder / "runs", first, choices)
            times[place].append(first.at - begin)
            shutil.rmtree(copy)
    return times, whole


def _long_epoch(
    steps: int, runs_dir: Path, hook: ep.Hook, choices: dict[str, object]
) -> ep.RunResult:
    return ep.Experiment(
        task=Work(steps),
        model=nn.Linear(FEATURES, 1),
        optim={"type": "AdamW", "lr": 1e-3},
        train={"for": "2ep" if choices else "1ep"},
        log=_QUIET,
        checkpoint={"every": 0, "keep_last": None, "name": "step-{step}"},
        record={"log_dir": str(runs_dir)},
        hooks=[hook],
        choices={"device": "cpu", "raise_errors": True, **choices},
    ).fit()
