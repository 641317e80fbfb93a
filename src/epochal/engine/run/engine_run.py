"""One run in progress, with all that the engine needs, and what surrounds it."""

from __future__ import annotations

import math
import platform
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import torch
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from epochal.distributed.strategy import NoStrategy, Strategy
from epochal.distributed.world import SingleProcess
from epochal.engine.device.move import choose_mover, move_module, parse_dtype
from epochal.engine.device.precision import Precision
from epochal.engine.device.sharding import choose_strategy
from epochal.engine.events.events import Events
from epochal.engine.feed.feed import Feed, read_task_attribute
from epochal.engine.interfaces.hook import ALIASES, EVENTS, USER_PRIORITY
from epochal.engine.interfaces.run import Run, ignore_probe
from epochal.engine.interfaces.shared_store import Store
from epochal.engine.interfaces.splits import split_name
from epochal.engine.interfaces.task import OPTIONAL_METHODS, REQUIRED_METHODS
from epochal.engine.measure.clock import Clock
from epochal.engine.measure.meter import Meter, Window
from epochal.engine.optim.rate import FixedRate, Rate, name_rates, read_rates
from epochal.engine.run.device_time import DeviceTime, NoDeviceTime
from epochal.engine.run.plan import Plan
from epochal.engine.run.stage_progress import StageProgress, TrainingLimits
from epochal.errors import TaskError, suggest
from epochal.records.folder.writer import NullWriter, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from epochal.distributed.world import World
    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.every import Every
    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.interfaces.options import OptimOptions, Options
    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.interfaces.run import ResumePoint
    from epochal.engine.interfaces.stage import OptimChange, Stage
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.loss.loss import Loss
    from epochal.engine.measure.clock import PhaseTimer
    from epochal.engine.run.plan import Alarm

    TrainBatch = Callable[[Batch], Outcome]
    FinishBatch = Callable[[Outcome], None]

PartT = TypeVar("PartT")
ValueT = TypeVar("ValueT")


def ignore_stall(message: str, step: int) -> None:
    """Do nothing when the run hangs."""


@final
@dataclass(frozen=True, kw_only=True)
class Environment:
    """Config, device, folders and writer of a run."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """The expanded config as plain values."""

    tag: str = ""
    seed: int = 0
    device: str | torch.device = "cpu"
    dtype: str | torch.dtype | None = None
    """``float32`` or ``float64`` for the model and the floats of batches; None changes none."""

    writer: Writer = field(default_factory=NullWriter)
    dir: Path | None = None
    checkpoint_dir: Path | None = None
    log_dir: Path | None = None
    """Where this process writes its logs; by default ``logs`` in the folder of the record."""

    registry: Any = None
    """Finds components by name; None for a run that no config describes."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts in every checkpoint: id, attempt, digests of config, code and data."""

    resume: ResumePoint | None = None
    """The checkpoint to resume from; None for a new run."""

    times: PhaseTimer | None = None
    """The time spent before the run was built, if it was measured."""

    on_stall: Callable[[str, int], None] = ignore_stall
    """Called with a message and the step when the run hangs; must return at once."""

    is_supervised: bool = False
    """Whether a supervisor starts the run again when its process ends."""

    is_debug: bool = False
    """Whether to find the cause of errors, even if that makes steps slow."""

    world: World = field(default_factory=SingleProcess)
    """The processes of the run."""


class MakeOptimizer(Protocol):
    """Builds the optimizer of a run again, after changes of its section."""

    def __call__(
        self, model: nn.Module, changes: Sequence[OptimChange]
    ) -> tuple[Optimizer, OptimOptions]:
        """The optimizer and the options of the section ``optim`` after some changes, in order."""


@final
@dataclass(frozen=True, slots=True)
class BadStep:
    """A step, and the batches of its epoch that it used."""

    step: int
    epoch: int
    batches: range


@final
@dataclass(frozen=True, kw_only=True)
class RunMethods:
    """Functions of a run from folders above this one; ``create_run`` passes them."""

    bind: Callable[[EngineRun], None]
    """Finds the methods of task, model and metrics again."""

    build_batch_functions: Callable[[EngineRun], None]
    save_if_requested: Callable[[EngineRun], None]
    watch_losses: Callable[[EngineRun], Callable[[str, float], None]]
    """Makes a function that gets the means of losses that are not finite."""

    build_alarm: Callable[[EngineRun], Alarm]
    settle: Callable[[EngineRun], None]
    request_end: Callable[[EngineRun, str], None]
    evaluate: Callable[[EngineRun, str], dict[str, float]]
    change_optim: Callable[..., None]
    save_media: Callable[..., Path | None]
    register_flops: Callable[..., int]


@final
class EngineRun(Run):
    """A run with what only the engine needs.

    Objects whose classes are above this folder, such as the updater, are found by class:
    ``run.part(Updater)``.
    """

    step = first_step = epoch = batch_index = 0
    is_in_epoch = False
    split = "train"
    loader_name = stop_reason = stop_status = ""
    console = None

    is_between_steps: bool = False
    """Whether the state is that after the last step, so that it can be saved and resumed."""

    has_started: bool = False

    is_probing: bool = False
    """Whether the current step is taken eagerly, so that probes see its values."""

    save_reasons: str = ""
    """Reasons to save at the next step boundary, joined by commas."""

    diverged_at: BadStep | None = None
    """The step that makes the run roll back; None while it continues."""

    interval_means: Window | None = None
    """The means since the previous evaluation, in a training that does not last epochs."""

    counts: Window | None = None
    """The counts of all losses so far, if the task says what they count."""

    nonfinite_losses: tuple[int, int] | None = None
    """The approximate first and last step of this process whose loss was not finite, if any."""

    message: str = ""
    """Why a run that raised no error did not succeed."""

    rollbacks: tuple[dict[str, Any], ...] = ()
    """What each rollback left out."""

    limits = TrainingLimits()
    rate: Rate = FixedRate()
    """The owner of the learning rate."""

    device_time: DeviceTime | NoDeviceTime = NoDeviceTime()
    make_optimizer: MakeOptimizer | None = None
    """Builds the optimizer again, if a config describes it."""

    has_usual_steps: bool = True
    """Whether each step is one of the run's updater, not of the user's own code."""

    rank_states: tuple[dict[str, Any], ...] = ()
    """State that differs between processes, by rank; of a checkpoint that is being saved."""

    train_function: TrainBatch
    """What ``train_batch`` calls; the updater calls it directly."""

    finish_function: FinishBatch
    """What ``finish_batch`` calls."""

    report_function: FinishBatch
    """The part of it that adds a batch to the means."""

    take_step: Callable[[Microbatches], object]
    """Takes one optimizer step; chosen before the loop."""

    choose_step: Callable[[], object]
    """Chooses ``take_step`` again after a change of what a step does."""

    eval_steps: dict[str, Callable[[EngineRun, Batch], object]]
    """What the runner does with a batch of each split."""

    loss: Loss | None
    train_metrics: dict[str, Metric]
    """The metrics that training updates."""

    def __init__(
        self,
        task: object,
        model: nn.Module,
        hooks: Iterable[object],
        stages: tuple[Stage, ...],
        *,
        options: Options,
        environment: Environment,
        methods: RunMethods,
    ) -> None:
        self._methods = methods
        self.options = options
        self.config, self.tag, self.seed = environment.config, environment.tag, environment.seed
        self.dir, self.checkpoint_dir = environment.dir, environment.checkpoint_dir
        self.log_dir = environment.log_dir or (None if self.dir is None else self.dir / "logs")
        self.writer, self.facts = environment.writer, environment.facts
        self.registry = environment.registry
        self.resume, self.on_stall = environment.resume, environment.on_stall
        self.is_debug, self.is_supervised = environment.is_debug, environment.is_supervised
        self.device = torch.device(environment.device)
        self.precision = Precision(
            options.engine.precision, self.device, parse_dtype(environment.dtype)
        )
        self.dtype = self.precision.dtype
        self.world = environment.world
        self.strategy: Strategy = choose_strategy(options.engine, self.world, self.device)
        self.is_shared = not isinstance(self.strategy, NoStrategy)
        """Whether the model is shared between processes, even if there is only one."""

        together = options.engine.tensor_parallel if self.strategy.is_sharded else 1
        self.data_rank = self.world.rank // together
        """The rank of this process among those with different samples; the processes of one
        tensor-parallel group have the same one."""

        self.num_data_ranks = self.world.world_size // together

        self.listener = None if self.world.is_single else self.world.listener
        """Listens to the other processes, if there are any."""

        self._trained_model: nn.Module | None = None
        self.task, self.model = task, unwrap(model) if self.is_shared else model
        self.variables, self.trackers = {}, []
        self.probe = ignore_probe
        self.latest, self.choices, self.caches = {}, {}, {}
        self.evaluated_at: dict[str, int] = {}
        """The step of each split's latest evaluation."""

        self.meta = read_meta(task)
        self.store = Store()
        self.clock = Clock(times=environment.times)
        self.stage_progress = StageProgress(stages)
        self.events = Events(hooks, task=task)
        if self.listener is not None:
            self.clock.agreed_seconds = 0.0
        self.plan = Plan(
            self.events, at_boundary=methods.save_if_requested, alarm=methods.build_alarm(self)
        )
        self.meter = Meter(self.device, notice=methods.watch_losses(self), wake=self.plan.wake)
        self.feed = Feed(
            task,
            seed=self.seed,
            accumulate=options.optim.accumulate,
            limit=options.train.limit_batches,
            move=choose_mover(self.device, self.dtype, channels_last=options.engine.channels_last),
            ranks=(self.data_rank, self.num_data_ranks) if self.is_shared else None,
        )
        self.pass_means: Window | None = None
        """The means of the current epoch or evaluation, for ``averages``."""

        self._parts: dict[type, Any] = {}

    def bind(self) -> None:
        """Find the methods of task, model and metrics again; needed after one was replaced."""
        self._methods.bind(self)

    def set_batch_functions(
        self, train: TrainBatch, finish: FinishBatch, report: FinishBatch
    ) -> None:
        """Set what ``train_batch`` and ``finish_batch`` do, and restart the plan."""
        self.train_function, self.finish_function, self.report_function = train, finish, report
        if self.plan.is_started:
            self.plan.start(self)

    @contextmanager
    def finishing_batches_by(self, finish: FinishBatch) -> Iterator[None]:
        """Let ``finish_batch`` call another function in a block."""
        before, self.finish_function = self.finish_function, finish
        try:
            yield
        finally:
            self.finish_function = before

    def set_part(self, kind: type[PartT], part: PartT | None) -> None:
        """Set or remove the part of a class."""
        self._parts[kind] = part

    def part(self, kind: type[PartT]) -> PartT:
        """The part of a class that every run has."""
        part: PartT = self._parts[kind]
        return part

    def find_part(self, kind: type[PartT]) -> PartT | None:
        """The part of a class, or None."""
        return self._parts.get(kind)

    @property
    def parts(self) -> list[Any]:
        """All parts that were set by class."""
        return [part for part in self._parts.values() if part is not None]

    def position(self) -> tuple[object, ...]:
        """What changes with every step and every evaluated batch."""
        where = self.split, self.loader_name, self.batch_index
        return self.has_started, self.epoch, self.step, *where

    @property
    def trained_model(self) -> nn.Module:
        """The model that the task gets in training; wrapped if several processes share it."""
        return self.model if self._trained_model is None else self._trained_model

    @trained_model.setter
    def trained_model(self, model: nn.Module) -> None:
        self._trained_model = model

    def gather_by_data(self, value: ValueT) -> list[ValueT]:
        """The values of the processes with different samples, by their rank."""
        values = self.world.gather(value)
        return values[:: len(values) // self.num_data_ranks]

    @property
    def agreed_step(self) -> float:
        """The step after which all processes act together; infinite if there is none."""
        return math.inf if self.listener is None else self.listener.due_step

    def settle(self) -> None:
        """Do what all processes agreed to do after this step, if anything."""
        if self.listener is not None:
            self._methods.settle(self)

    def request_end(self, status: str) -> None:
        """Let the run save and end after a step, in all its processes; any thread may call it."""
        self._methods.request_end(self, status)

    def fire(self, event: str, *values: object) -> None:
        """Call every listener of an event."""
        self.events.fire(event, self, *values)

    def release(self) -> None:
        """Drop every part, so that its memory is free; plain values stay."""
        self.plan.close()
        self.meter.forget()
        self.events.clear()
        self.store.clear()
        self._parts.clear()
        for name in _RELEASED:
            self.__dict__.pop(name, None)

    @property
    @override
    def raw_model(self) -> nn.Module:
        return unwrap(self.model)

    @property
    @override
    def samples(self) -> int:
        return self.feed.samples

    @property
    def eval_periods(self) -> dict[str, tuple[Every, ...]]:
        """Every evaluated split with its periods; known once the runner has prepared the run."""
        periods = self.options.train.eval_periods
        return {split: self.stage_progress.find_periods(every) for split, every in periods.items()}

    @property
    def count_unit(self) -> str:
        """What the task counts: ``samples``, ``tokens`` or the like."""
        return str(getattr(self.task, "count_unit", "samples"))

    @property
    @override
    def epoch_number(self) -> int:
        return self.epoch + 1 if self.is_in_epoch else self.epoch

    @property
    @override
    def stage(self) -> Stage:
        return self.stage_progress.stage

    @property
    @override
    def learning_rates(self) -> dict[str, float]:
        return read_rates(self.optimizer, self.rate.values)

    @property
    @override
    def averages(self) -> dict[str, float]:
        return {} if self.pass_means is None else self.pass_means.peek()

    @property
    @override
    def used_learning_rates(self) -> dict[str, float]:
        return name_rates(self.optimizer, self.rate.get_used(self.step))

    @property
    @override
    def hooks(self) -> tuple[object, ...]:
        return tuple(self.events.hooks)

    @property
    @override
    def device_facts(self) -> dict[str, Any]:
        return {**read_device_facts(self.device), "precision": self.options.engine.precision}

    @override
    def log(self, values: Mapping[str, float | Tensor], step: int | None = None) -> None:
        points = {
            name: float(value.detach() if isinstance(value, torch.Tensor) else value)
            for name, value in values.items()
        }
        self.latest.update(points)
        step = self.step if step is None else step
        self.writer.log(points, step)
        for tracker in self.trackers:
            tracker.take_points(points, step)

    @override
    def on(
        self,
        event: str,
        function: Callable[..., object],
        *,
        priority: int = USER_PRIORITY,
        every: object = None,
    ) -> None:
        self.events.add_function(event, function, priority=priority, every=every)
        self._methods.build_batch_functions(self)

    @override
    def stop(self, reason: str, *, status: str = "stopped") -> None:
        if not self.stop_reason:
            self.stop_status, self.stop_reason = status, reason
        self.plan.wake()

    @override
    def request_save(self, reason: str) -> None:
        reasons = [*filter(None, self.save_reasons.split(", "))]
        if reason not in reasons:
            self.save_reasons = ", ".join([*reasons, reason])
        self.plan.wake()

    @override
    def place(self, module: nn.Module) -> nn.Module:
        channels_last = self.options.engine.channels_last
        placed = move_module(module, self.device, self.dtype, channels_last=channels_last)
        return self.strategy.share_another(placed)

    @override
    def replace_task_method(self, name: str, function: Callable[..., object]) -> None:
        known = (*REQUIRED_METHODS, *OPTIONAL_METHODS, *EVENTS, *ALIASES)
        if name not in known:
            raise TaskError(f"{name}: a task has no such method\n  {suggest(name, known)}")
        setattr(self.task, name, function)
        self.bind()

    @override
    def register_caches(self, caches: Mapping[str, Any]) -> None:
        self.caches.update(caches)

    @override
    def save_media(
        self, name: str, data: object, *, kind: str = "", suffix: str = "", step: int | None = None
    ) -> Path | None:
        return self._methods.save_media(self, name, data, kind=kind, suffix=suffix, step=step)

    @override
    def evaluate(self, split: str = "val") -> dict[str, float]:
        return self._methods.evaluate(self, split_name(split))

    @override
    def change_optim(self, **changes: object) -> None:
        self._methods.change_optim(self, **changes)

    @override
    def register_flops(
        self, data: Mapping[str, Any] | None = None, keys: Sequence[str] = ()
    ) -> int:
        return self._methods.register_flops(self, data, keys)

    @override
    def train_batch(self, batch: Batch) -> Outcome:
        return self.train_function(batch)

    @override
    def finish_batch(self, outcome: Outcome) -> None:
        self.finish_function(outcome)


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside of DistributedDataParallel; any other model itself."""
    inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    return inner


def engine_run(run: Run) -> EngineRun:
    """The same run, for hooks that are part of the engine."""
    assert isinstance(run, EngineRun)
    return run


def read_device_facts(device: torch.device) -> dict[str, Any]:
    """``type`` and ``name``; for CUDA also ``memory_bytes`` and ``capability``."""
    if device.type != "cuda":
        name = platform.processor() or platform.machine() if device.type == "cpu" else device.type
        return {"type": device.type, "name": name}
    properties = torch.cuda.get_device_properties(device)
    return {
        "type": "cuda",
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": (properties.major, properties.minor),
    }


def read_meta(task: object) -> dict[str, Any]:
    """What a task knows about its data; empty if it says nothing."""
    meta: Any = read_task_attribute(task, "meta")  # users put anything there
    return {} if meta is None else meta


_RELEASED = (
    *("task", "model", "optimizer", "schedule", "metrics", "train_metrics", "average", "loss"),
    *(
        "feed",
        "meter",
        "pass_means",
        "interval_means",
        "rate",
        "take_step",
        "choose_step",
        "make_optimizer",
    ),
    *(
        "stage_progress",
        "eval_steps",
        "caches",
        "variables",
        "trackers",
        "console",
        "registry",
        "meta",
    ),
    *("resume", "train_function", "finish_function", "report_function"),
    *("strategy", "_trained_model"),
)
"""What holds memory, or refers to what does."""
