"""One run in progress: its position, its parts and its services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from epochal.engine import evaluate as evaluation
from epochal.engine.device.device_facts import read_device_facts
from epochal.engine.device.move import choose_mover, move_module, parse_dtype
from epochal.engine.device.precision import Precision
from epochal.engine.device.step_time import DeviceTime, NoDeviceTime
from epochal.engine.events.events import Events
from epochal.engine.events.step_plan import Plan
from epochal.engine.feed.feed import Feed, named_loaders, read_task_attribute
from epochal.engine.interfaces.hook import ALIASES, EVENTS, USER_PRIORITY
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.interfaces.shared_store import Store
from epochal.engine.interfaces.splits import split_name
from epochal.engine.interfaces.task import OPTIONAL_METHODS, REQUIRED_METHODS
from epochal.engine.measure.clock import Clock
from epochal.engine.measure.meter import Meter
from epochal.engine.optim.group_rates import name_rates, read_rates
from epochal.engine.parts import Environment, Options, Parts
from epochal.engine.resume import set_resume_position
from epochal.engine.stages.change_optimizer import change_optim
from epochal.engine.stages.stage import Stage, StageProgress
from epochal.engine.stages.training_length import TrainingLimits
from epochal.engine.state.saver import request_save, save_if_requested
from epochal.engine.step.build_step import BatchFunctions, unprepared_step
from epochal.engine.step.nonfinite_watch import NonfiniteLossWarner
from epochal.engine.step.task_calls import TaskCalls
from epochal.engine.step.updater import choose_updater
from epochal.engine.tracking.save_media import save_media
from epochal.errors import TaskError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.measure.variables import Variable
    from epochal.engine.stages.change_optimizer import MakeOptimizer
    from epochal.engine.state.changed_attributes import ChangedAttributes
    from epochal.engine.state.saver import Saver
    from epochal.engine.step.build_step import FinishBatch, TrainBatch
    from epochal.engine.step.nonfinite_watch import BadStep, NonfiniteWatch
    from epochal.engine.tracking.tracker import Tracker

_PARTS = (
    "task",
    "model",
    "optimizer",
    "schedule",
    "metrics",
    "train_metrics",
    "updater",
    "average",
    "loss",
    "feed",
    "meter",
    "calls",
    "train_batch",
    "finish_batch",
    "report_batch",
    "measure_batch",
    "take_step",
    "choose_step",
    "make_optimizer",
    "course",
    "eval_steps",
    "caches",
    "variables",
    "trackers",
    "console",
    "registry",
    "meta",
    "saver",
    "watch",
    "attributes",
    "resume",
)


@final
class Run:
    """One run in progress: its position, its parts and its services.

    Hooks may use everything up to the heading "engine"; ``docs/hooks.md`` lists it.

    Args:
        parts: The objects it is made of.
        options: The options of the sections that the engine reads.
        environment: Config, folder, device and writer.
    """

    # Position

    step: int = 0
    """Optimizer updates done."""

    epoch: int = 0
    """Epochs completed; also the index of the current one."""

    is_in_epoch: bool = False
    """Whether a training epoch has started and not ended."""

    split: str = "train"
    """The split in progress: train, val, test or predict."""

    loader_name: str = ""
    """The loader in progress, if the split has several."""

    batch_index: int = 0
    """Index of the current batch in its loader."""

    stop_reason: str = ""
    """Why the run will end; empty while it continues."""

    stop_status: str = ""
    """The status with which it will end; empty while it continues."""

    # Services that are attributes

    console: Any = None
    """The ``rich`` console that the run prints to; None without the hook ``Console``."""

    trackers: list[Tracker]
    """The trackers that mirror the record."""

    variables: dict[str, Variable]
    """Functions whose values are recorded with the training means, by name."""

    train_batch: TrainBatch
    """Compute the loss of a training batch; for runners and updaters."""

    finish_batch: FinishBatch
    """Count a training batch after its backward pass; for runners and updaters."""

    # Engine: what hooks do not need

    first_step: int = 0
    """The step at which this process began."""

    is_between_steps: bool = False
    """Whether the state is that after the last step, so that it can be saved and resumed."""

    has_started: bool = False

    save_reasons: str = ""
    """Reasons to save at the next step boundary, joined by commas."""

    saver: Saver | None = None
    watch: NonfiniteWatch | None = None
    """Finds steps whose gradients were not finite; None if the policy does not need it."""

    diverged_at: BadStep | None = None
    """The step that makes the run roll back; None while it continues."""

    rollbacks: tuple[dict[str, Any], ...] = ()
    """What each rollback left out."""

    attributes: ChangedAttributes
    """Attributes that task and model change while the run trains."""

    limits = TrainingLimits()
    course: StageProgress
    make_optimizer: MakeOptimizer | None
    """Builds the optimizer again, if a config describes it."""

    take_step: Callable[[Microbatches], object]
    """Takes one optimizer step; chosen before the loop."""

    choose_step: Callable[[], object]
    """Chooses ``take_step`` again after a change of what a step does."""

    eval_steps: dict[str, Callable[[Run, Batch], object]]
    """What the runner does with a batch of each split."""

    report_batch: FinishBatch
    measure_batch: FinishBatch
    device_time: DeviceTime | NoDeviceTime = NoDeviceTime()

    def __init__(
        self, parts: Parts, options: Options | None = None, environment: Environment | None = None
    ) -> None:
        _require_objects(parts)
        self.options = options or Options()
        environment = environment or Environment()
        self.config, self.tag, self.seed = environment.config, environment.tag, environment.seed
        self.dir, self.checkpoint_dir = environment.dir, environment.checkpoint_dir
        self.writer, self.facts = environment.writer, environment.facts
        self.registry = environment.registry
        self.resume, self.on_stall = environment.resume, environment.on_stall
        self.is_debug = environment.is_debug
        self.device = torch.device(environment.device)
        self.precision = Precision(
            self.options.engine.precision, self.device, parse_dtype(environment.dtype)
        )
        self.dtype = self.precision.dtype
        self.task: Any = parts.task  # any object that has the methods
        self.model = parts.model
        self.optimizer, self.schedule = parts.optimizer, parts.schedule
        self.metrics = dict(parts.metrics)
        self.train_metrics = _train_metrics(self.metrics)
        self.monitor = parts.monitor
        self.average, self.loss = parts.average, parts.loss
        if self.loss is not None:
            self.place(self.loss)
        self.updater = parts.updater or choose_updater(parts.optimizer)
        self.course = StageProgress(parts.stages or (Stage(length=self.options.train.for_),))
        self.make_optimizer = parts.make_optimizer
        self.take_step = self.choose_step = unprepared_step
        self.eval_steps = {}
        self.variables, self.trackers = {}, []

        self.latest: dict[str, float] = {}
        """The latest value of every metric."""

        self.evaluated_at: dict[str, int] = {}
        """The step of each split's latest evaluation."""

        self.caches: dict[str, Any] = {}
        """Values that go into every checkpoint."""

        self.choices: dict[str, object] = {}
        """What the engine decided, such as the kind of step; recorded."""

        self.meta = _read_meta(parts.task)
        """What the task knows about its data, such as the names of classes."""

        self.store = Store()
        """Values shared between hooks and components."""

        self.clock = Clock(times=environment.times)
        self.events = Events(parts.hooks, task=parts.task)
        self.plan = Plan(self.events, at_boundary=save_if_requested)
        self.meter = Meter(self.device, notice=NonfiniteLossWarner(self), wake=self.plan.wake)
        self.feed = Feed(
            parts.task,
            seed=self.seed,
            accumulate=self.options.optim.accumulate,
            limit=self.options.train.limit_batches,
            move=choose_mover(
                self.device, self.dtype, channels_last=self.options.engine.channels_last
            ),
        )
        self.calls = TaskCalls(self)
        set_resume_position(self)
        _rebuild_batch_functions(self)

    @property
    def samples(self) -> int:
        """Training samples seen."""
        return self.feed.samples

    @property
    def epoch_number(self) -> int:
        """The epoch counted from 1; after an epoch it still has that epoch's number."""
        return self.epoch + 1 if self.is_in_epoch else self.epoch

    @property
    def learning_rates(self) -> dict[str, float]:
        """The rate of the next update as ``lr``; several groups have ``lr/<name or index>``."""
        return read_rates(self.optimizer, self.updater.rate.values)

    @property
    def used_learning_rates(self) -> dict[str, float]:
        """The rates of the latest update, which are recorded; named as ``learning_rates``."""
        return name_rates(self.optimizer, self.updater.rate.get_used(self.step))

    @property
    def hooks(self) -> tuple[object, ...]:
        """The hooks of the run, those of the config and those given in Python."""
        return tuple(self.events.hooks)

    @property
    def device_facts(self) -> dict[str, Any]:
        """Type, name and memory of the device, and the number format of the run."""
        return {**read_device_facts(self.device), "precision": self.options.engine.precision}

    def log(self, values: Mapping[str, float | Tensor], step: int | None = None) -> None:
        """Record values at this step, or at another one; reads tensors at once."""
        points = {name: float(value) for name, value in values.items()}
        self.latest.update(points)
        step = self.step if step is None else step
        self.writer.log(points, step)
        for tracker in self.trackers:
            tracker.take_points(points, step)

    def save_media(
        self, name: str, data: object, *, kind: str = "", suffix: str = "", step: int | None = None
    ) -> Path | None:
        """Record an image, figure, sound or text; gives its file, or None without a record.

        Args:
            name: The series that it belongs to.
            data: A tensor or array, a figure, a path, bytes or a text.
            kind: ``image``, ``audio``, ``text`` and so on; found from the data by default.
            suffix: The ending of the file; found from the data by default.
            step: The step it belongs to; the current one by default.
        """
        return save_media(self, name, data, kind=kind, suffix=suffix, step=step)

    def on(
        self,
        event: str,
        function: Callable[..., object],
        *,
        priority: int = USER_PRIORITY,
        every: object = None,
    ) -> None:
        """Call a function at an event; it takes any of the event's arguments, by name."""
        self.events.add_function(event, function, priority=priority, every=every)
        _rebuild_batch_functions(self)

    def stop(self, reason: str, *, status: str = "stopped") -> None:
        """End the run after the current step; only the first reason counts."""
        if not self.stop_reason:
            self.stop_status, self.stop_reason = status, reason
        self.plan.wake()

    def request_save(self, reason: str) -> None:
        """Save a checkpoint at the next step boundary, or at this one; safe in signal handlers."""
        request_save(self, reason)

    def evaluate(self, split: str = "val") -> dict[str, float]:
        """Evaluate a split now, with all events; training is not disturbed."""
        return evaluation.evaluate(self, split_name(split))

    def place(self, module: nn.Module) -> nn.Module:
        """The module on the run's device, in its dtype."""
        channels_last = self.options.engine.channels_last
        return move_module(module, self.device, self.dtype, channels_last=channels_last)

    def change_optim(self, **changes: object) -> None:
        """Change keys of the section ``optim`` between two steps: ``lr=1e-4, clip=1.0``.

        Another ``type`` builds another optimizer; ``state="keep"`` or ``"reset"`` says whether
        the optimizer's state is kept.
        """
        change_optim(self, **changes)

    def replace_task_method(self, name: str, function: Callable[..., object]) -> None:
        """Replace a method of the task from the next batch on; it gets no ``self``."""
        known = (*REQUIRED_METHODS, *OPTIONAL_METHODS, *EVENTS, *ALIASES)
        if name not in known:
            raise TaskError(f"{name}: a task has no such method\n  {suggest(name, known)}")
        setattr(self.task, name, function)
        self.bind()

    def register_caches(self, caches: Mapping[str, Any]) -> None:
        """Write values into every checkpoint."""
        self.caches.update(caches)

    def register_flops(
        self, data: Mapping[str, Any] | None = None, keys: Sequence[str] = ()
    ) -> int:
        """Count the FLOPs of a forward pass of one sample, and write them into every checkpoint.

        Args:
            data: Tensors or lists of samples by name; only the first sample is used. By default
                the first sample of the training data, through the task.
            keys: The names that the model takes, in this order; empty is all.
        """
        from epochal.engine.analysis.model_summary import register_flops  # rarely needed

        return register_flops(self, data, keys)

    # Engine

    def bind(self) -> None:
        """Find the methods of task, model and metrics again; needed after one was replaced."""
        self.events.set_task(self.task)
        self.calls = TaskCalls(self)
        self.train_metrics = _train_metrics(self.metrics)
        if self.feed.task is not self.task:
            self.feed.task = self.task
            self.meta = _read_meta(self.task)
            self.calls.move_task()
        if self.monitor is None and self.calls.has_error:
            names = [name for name in named_loaders(self.task, "val") if name]
            self.monitor = Monitor("/".join(["val", *names[:1], "err"]), "min")
        _rebuild_batch_functions(self)

    def fire(self, event: str, *values: object) -> None:
        """Call every listener of an event."""
        self.events.fire(event, self, *values)

    def release(self) -> None:
        """Drop every part, so that its memory is free; plain values stay."""
        self.plan.close()
        self.meter.forget()
        self.events.clear()
        self.store.clear()
        for name in _PARTS:
            self.__dict__.pop(name, None)


def _rebuild_batch_functions(run: Run) -> None:
    """Build the functions for each batch again, and restart the plan."""
    functions = BatchFunctions(run)
    run.train_batch = functions.train
    run.finish_batch = functions.finish
    run.report_batch = functions.report
    run.measure_batch = functions.measure
    if run.plan.is_started:
        run.plan.start(run)


def _read_meta(task: object) -> dict[str, Any]:
    meta: Any = read_task_attribute(task, "meta")  # users put anything there
    return {} if meta is None else meta


def _train_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if "train" in metric.on}


def _require_objects(parts: Parts) -> None:
    for name in ("task", "model"):
        part = getattr(parts, name)
        if isinstance(part, type):
            raise TaskError(
                f"{name}: is the class {part.__name__}, not an object\n"
                f"  create one: {name}={part.__name__}(...)"
            )
