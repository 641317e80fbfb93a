"""Small parts that make a whole run: tasks, models, clocks and writers for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from epochal.engine import Environment, Hook, Options, Parts, Run, RunResult, Task, Train
from epochal.engine.create_run import create_run
from epochal.engine.execute import execute
from epochal.engine.interfaces.options import EngineOptions, LogOptions, OptimOptions, TrainOptions
from epochal.engine.measure.meter import Meter
from epochal.records import NullWriter

if TYPE_CHECKING:
    from collections.abc import Mapping


def numbers(count: int, *, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, 3, generator=generator)
    return TensorDataset(features, features.sum(dim=1, keepdim=True))


class Sums(Task):
    """Learn to add three numbers."""

    def __init__(
        self, count: int = 20, *, batch_size: int = 4, shuffle: bool = True, val: int = 6
    ) -> None:
        self.train_loader = DataLoader(numbers(count), batch_size=batch_size, shuffle=shuffle)
        if val:
            self.val_loader = DataLoader(numbers(val, seed=1), batch_size=batch_size)
            self.test_loader = DataLoader(numbers(val, seed=2), batch_size=batch_size)

    def batch_forward(self, model: nn.Module, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"sum": model(batch[0])}

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        return {"loss": (functional.mse_loss(out["sum"], batch[1]), len(batch[1]))}

    def batch_metric(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        return {"mae": ((out["sum"] - batch[1]).abs().mean(), len(batch[1]))}


class Scored(Sums):
    """Each evaluation comes to the next score."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = list(scores)

    def epoch_metric(self, split: str) -> dict[str, float]:
        return {"score": self.scores.pop(0)} if split == "val" else {}


def adder(*, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))


class Points(NullWriter):
    """A writer that keeps what is logged."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []
        self.events: list[dict[str, object]] = []

    def log(self, points: Mapping[str, float], step: int) -> None:
        self.points.append((step, dict(points)))

    def event(self, kind: str, **data: object) -> None:
        self.events.append({"kind": kind, **data})


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def make_run(
    task: object = None,
    model: nn.Module | None = None,
    *,
    hooks: tuple[object, ...] = (),
    lr: float = 0.1,
    **options: Any,
) -> Run:
    """A run of ``Sums`` unless told otherwise.

    The options are those of ``train``; ``parts``, ``setting``, ``log``, ``optim`` and
    ``engine`` are mappings of their own.
    """
    task = Sums() if task is None else task
    model = adder() if model is None else model
    given: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), lr=lr)}
    given |= options.pop("parts", {})
    setting = Environment(**options.pop("setting", {}))
    sections = Options(
        optim=OptimOptions(**options.pop("optim", {})),
        log=LogOptions(**options.pop("log", {})),
        engine=EngineOptions(**options.pop("engine", {})),
        train=TrainOptions(**options),
    )
    return create_run(Parts(task=task, model=model, hooks=hooks, **given), sections, setting)


def fit(run: Run) -> RunResult:
    """Train and raise what goes wrong."""
    return execute(run, Train(), raise_errors=True)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


class Witness(Hook):
    """Has the run measure as on a device, and keeps what it chose."""

    priority = 900

    def run_start(self, run: Run) -> None:
        run.meter = Meter("cpu", is_async=True, wake=run.plan.wake)
        run.bind()

    def run_end(self, run: Run) -> None:
        self.choices = dict(run.choices)


class EventRecorder(Hook):
    """Writes down every event, with its split or name."""

    def __init__(self, *events: str) -> None:
        self.entries: list[str] = []
        self._wanted = events

    def _note(self, event: str, detail: object = "") -> None:
        if not self._wanted or event in self._wanted:
            self.entries.append(f"{event} {detail}".strip())

    def setup(self, run: Run) -> None:
        self._note("setup")

    def assembled(self, run: Run) -> None:
        self._note("assembled")

    def run_start(self, run: Run) -> None:
        self._note("run_start")

    def stage_start(self, run: Run, name: str) -> None:
        self._note("stage_start", name)

    def epoch_start(self, run: Run, split: str) -> None:
        self._note("epoch_start", split)

    def loop_start(self, run: Run, split: str) -> None:
        self._note("loop_start", split)

    def batch_start(self, run: Run, split: str, index: int, batch: Any) -> None:
        self._note("batch_start", f"{split} {index}")

    def batch_end(self, run: Run, split: str, index: int, batch: Any, out: Any) -> None:
        self._note("batch_end", f"{split} {index}")

    def step_end(self, run: Run) -> None:
        self._note("step_end", run.step)

    def loop_end(self, run: Run, split: str) -> None:
        self._note("loop_end", split)

    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        self._note("epoch_end", split)

    def eval_start(self, run: Run, split: str) -> None:
        self._note("eval_start", split)

    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        self._note("eval_end", split)

    def better_model(self, run: Run, value: float) -> None:
        self._note("better_model")

    def stage_end(self, run: Run, name: str) -> None:
        self._note("stage_end", name)

    def error(self, run: Run, error: BaseException) -> None:
        self._note("error", type(error).__name__)

    def run_end(self, run: Run) -> None:
        self._note("run_end")

    def teardown(self, run: Run) -> None:
        self._note("teardown")
