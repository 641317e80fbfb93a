"""Tools for tests of hooks and tasks: small parts that train fast, and conformance suites.

Subclass a suite in a test file that pytest collects::

    class TestGreeter(HookConformance):
        def make(self) -> Greeter:
            return Greeter(name="Ada")
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from typing_extensions import override

from epochal.engine.create_run import create_run
from epochal.engine.execute import execute
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import EVENTS, Hook
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.interfaces.options import LogOptions, Options, TrainOptions
from epochal.engine.interfaces.task import Task
from epochal.engine.parts import Parts
from epochal.engine.run.engine_run import engine_run
from epochal.engine.runner import Predict, Runner, Test, Train
from epochal.records.folder.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.engine.interfaces.run import Run
    from epochal.engine.result import RunResult
    from epochal.engine.run.engine_run import EngineRun, Environment
    from epochal.records.layout.run_status import Status

    Batch = dict[str, Tensor]

FEATURES, CLASSES = 4, 3


class TinyModel(nn.Module):
    """One linear layer with dropout, so that training, evaluation and seeds all have effects."""

    def __init__(self, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(FEATURES, CLASSES)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """The score of each class."""
        scores: Tensor = self.linear(self.dropout(x))
        return scores


class TinyTask(Task):
    """Classifies points of three classes; has a loader for every split.

    Args:
        num_samples: Points in each split.
        batch_size: Points in a batch.
    """

    def __init__(self, *, num_samples: int = 24, batch_size: int = 4) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(num_samples, FEATURES, generator=generator)
        samples = [{"x": row, "label": row[:CLASSES].argmax()} for row in x]
        self.train_loader = _loader(samples, batch_size, shuffle=True)
        self.val_loader = self.test_loader = self.predict_loader = _loader(samples, batch_size)

    def batch_forward(self, model: nn.Module, batch: Batch) -> Batch:
        """The scores of a batch."""
        return {"logits": model(batch["x"])}

    def batch_loss(self, out: Batch, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """The cross entropy of a batch."""
        loss = functional.cross_entropy(out["logits"], batch["label"])
        return {"loss": (loss, len(batch["label"]))}

    def batch_metric(self, out: Batch, batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """The accuracy on a batch."""
        hits = out["logits"].argmax(1) == batch["label"]
        return {"acc": (hits.float().mean(), len(batch["label"]))}


def _loader(samples: list[Batch], batch_size: int, *, shuffle: bool = False) -> DataLoader[Batch]:
    # torch reads a list like a dataset, but its types do not allow it.
    return DataLoader(samples, batch_size=batch_size, shuffle=shuffle)  # type: ignore[arg-type]  # see above


@final
class EventRecorder(Hook):
    """Appends every event to ``entries``, as ``name`` or ``name split``.

    Args:
        events: The events to record; by default all.
    """

    def __init__(self, *events: str) -> None:
        self.entries: list[str] = []
        for event in events or EVENTS:
            setattr(self, event, self._writer(event))

    def _writer(self, event: str) -> Callable[..., None]:
        has_split = "split" in EVENTS[event]

        def write(*values: object) -> None:
            self.entries.append(f"{event} {values[1]}" if has_split else event)

        return write


@final
class MemoryRecord(Writer):
    """A record writer that stores points, events and statuses in lists, and nothing else."""

    path = None

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []
        self.events: list[tuple[str, dict[str, object]]] = []
        self.statuses: list[tuple[str, dict[str, object]]] = []

    @override
    def log(self, points: Mapping[str, float], step: int) -> None:
        """Store the points of a step."""
        self.points.append((step, dict(points)))

    @property
    @override
    def num_points(self) -> int:
        """The number of stored values."""
        return sum(len(points) for _, points in self.points)

    @override
    def event(self, kind: str, **data: object) -> None:
        """Store an event."""
        self.events.append((kind, data))

    @override
    def write_status(self, status: Status, **fields: object) -> None:
        """Store a status of the run."""
        self.statuses.append((status, fields))

    @override
    def go_back(self, *, checkpoint: str, origin: int, step: int, points: object) -> int:
        """The number of the attempt that follows ``origin``."""
        return origin + 1

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    write_readme = write_config = write_observed = write_run = write_result = _ignore
    sync = require_lease = set_on_loss = set_on_stop_request = close = _ignore

    def series(self, name: str) -> dict[int, float]:
        """The values of one metric by step."""
        return {step: points[name] for step, points in self.points if name in points}


def tiny_run(
    *hooks: object,
    task: object = None,
    model: nn.Module | None = None,
    monitor: str | None = "+val/acc",
    options: Options | None = None,
    setting: Environment | None = None,
) -> EngineRun:
    """A run of two short epochs, ready for ``execute_run``."""
    if model is None:
        torch.default_generator.manual_seed(0)
        model = TinyModel()
    parts = Parts(
        task=TinyTask() if task is None else task,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        hooks=hooks,
        monitor=None if monitor is None else Monitor.parse(monitor),
    )
    return create_run(parts, options or short_options(), setting)


def short_options(*, log: LogOptions | None = None, **train: object) -> Options:
    """Options of a training of two epochs; ``train`` are arguments of TrainOptions."""
    known: dict[str, Any] = {"for_": "2ep", **train}  # each option has its own type
    return Options(train=TrainOptions(**known), log=log or LogOptions())


def execute_run(run: Run, runner: Runner | None = None) -> RunResult:
    """Execute a run with ``runner``, by default training; errors are raised."""
    return execute(engine_run(run), runner or Train(), raise_errors=True)


class HookConformance:
    """Tests that every hook must pass; subclass it and define ``make``."""

    acts_on_training = False
    """Set it for hooks that change weights or the end of training on purpose."""

    def make(self) -> object:
        """A new hook."""
        raise NotImplementedError("define make(self) in the subclass")

    def make_run(self, *hooks: object) -> EngineRun:
        """A run in which the hook can act."""
        return tiny_run(*hooks)

    def test_it_works_with_every_runner(self) -> None:
        """Training, testing and predicting all succeed."""
        for runner in (Train(), Test(), Predict()):
            execute_run(self.make_run(self.make()), runner)

    def test_it_does_not_hide_the_error_of_a_failing_run(self) -> None:
        """The run fails with its own error, and the hook raises no other."""
        run = self.make_run(self.make(), _FailingHook())
        result = execute(run, Train())
        assert (result.status, result.exception_type) == ("failed", "InjectedError")
        assert "after that:" not in result.traceback, "it raises in its method error"

    def test_other_hooks_get_the_same_events_without_it(self) -> None:
        """Removing the hook from a config changes nothing for other hooks."""
        if self.acts_on_training:
            return
        with_hook, alone = EventRecorder(), EventRecorder()
        execute_run(self.make_run(self.make(), with_hook))
        execute_run(self.make_run(alone))
        assert with_hook.entries == alone.entries

    def test_training_gives_the_same_weights_without_it(self) -> None:
        """The hook neither draws random numbers nor touches the model."""
        if self.acts_on_training:
            return
        assert _same(_weights_after(self.make_run(self.make())), _weights_after(self.make_run()))

    def test_two_instances_work_in_one_run(self) -> None:
        """No state is shared between objects."""
        execute_run(self.make_run(self.make(), self.make()))

    def test_it_accepts_to_never_act_at_steps(self) -> None:
        """``every: 0`` is a valid setting of each hook."""
        hook: Any = self.make()  # any object may be a hook
        hook.every = Every.NEVER
        execute_run(self.make_run(hook))

    def test_it_can_be_copied_before_the_run(self) -> None:
        """The constructor stores only plain data."""
        execute_run(self.make_run(copy.deepcopy(self.make())))

    def test_its_state_survives_a_round_trip(self) -> None:
        """A hook returns the state that it has loaded."""
        hook: Any = self.make()  # any object may be a hook
        if not hasattr(hook, "state_dict"):
            return
        execute_run(self.make_run(hook))
        state = copy.deepcopy(hook.state_dict())
        restored: Any = self.make()  # same
        restored.load_state_dict(state)
        assert restored.state_dict() == state


class TaskConformance:
    """Tests that every task must pass; subclass it, define ``make_task`` and ``make_model``."""

    def make_task(self) -> object:
        """A new task, with small loaders."""
        raise NotImplementedError("define make_task(self) in the subclass")

    def make_model(self) -> nn.Module:
        """A new model for the task; the same weights each time."""
        raise NotImplementedError("define make_model(self) in the subclass")

    def make_run(self, *hooks: object) -> EngineRun:
        """A run of two batches per loader."""
        options = short_options(for_="1ep", limit_batches=2, eval_loss=False)
        return tiny_run(
            *hooks, task=self.make_task(), model=self.make_model(), monitor=None, options=options
        )

    def test_it_trains(self) -> None:
        """Losses are finite and at least one weight changes."""
        before = _state(self.make_model())
        run = self.make_run()
        model = run.model
        result = execute_run(run)
        losses = [value for name, value in result.metrics.items() if "loss" in name]
        assert losses, f"no loss among {sorted(result.metrics)}"
        assert all(math.isfinite(loss) for loss in losses), result.metrics
        assert not _same(_state(model), before), "no weight changed in training"

    def test_the_same_seed_trains_the_same_weights(self) -> None:
        """All randomness comes from the seeded generators."""
        assert _same(_weights_after(self.make_run()), _weights_after(self.make_run()))

    def test_evaluating_twice_gives_the_same_numbers(self) -> None:
        """An evaluation does not depend on earlier ones."""
        run = self.make_run(_EvaluateTwice())
        if getattr(run.task, "val_loader", None) is not None:
            execute_run(run)

    def test_evaluating_does_not_change_the_model(self) -> None:
        """Weights and buffers are the same after an evaluation."""
        run = self.make_run()
        if getattr(run.task, "val_loader", None) is None:
            return
        model = run.model
        before = copy.deepcopy(_state(model))
        execute_run(run, Test(split="val"))
        assert _same(_state(model), before)


class InjectedError(Exception):
    """Raised on purpose by the tests of failing runs."""


@final
class _FailingHook(Hook):
    @override
    def epoch_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        raise InjectedError("on purpose")


@final
class _EvaluateTwice(Hook):
    @override
    def run_start(self, run: Run) -> None:
        first, second = run.evaluate("val"), run.evaluate("val")
        assert list(first) == list(second)
        for name, value in first.items():
            assert value == second[name] or math.isnan(value), f"{name}: {value}, {second[name]}"


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _weights_after(run: Run) -> dict[str, Tensor]:
    model = run.model
    execute_run(run)
    return _state(model)


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


__all__ = [
    "EventRecorder",
    "HookConformance",
    "MemoryRecord",
    "TaskConformance",
    "TinyModel",
    "TinyTask",
    "execute_run",
    "short_options",
    "tiny_run",
]
