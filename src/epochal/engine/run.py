"""One run in progress: its parts, its position, and what hooks may ask of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from epochal.engine import evaluate as evaluation
from epochal.engine import resume as resuming
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
from epochal.engine.optim.group_rates import read_rates
from epochal.engine.parts import Environment, Options, Parts
from epochal.engine.stages.change_optimizer import change_optim
from epochal.engine.stages.stage import Stage, StageProgress
from epochal.engine.stages.training_length import TrainingLimits
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
    "change_optim",
    "save_media",
    "make_optimizer",
    "course",
    "eval_steps",
    "caches",
    "variables",
    "mirrors",
    "meta",
    "saver",
    "watch",
    "attributes",
    "resume",
)


@final
class Run:
    """What every hook receives: the parts of a run, its position and its services.

    Args:
        parts: What it is made of.
        options: How it goes.
        setting: Where it takes place.
    """

    step: int = 0
    """Optimizer updates done."""

    first_step: int = 0
    """The step at which this process began."""

    epoch: int = 0
    """Epochs completed, which is also the index of the current one."""

    is_in_epoch: bool = False
    has_started: bool = False

    split: str = "train"
    """The split that is worked on now."""

    loader_name: str = ""
    """Its loader, when the split has several."""

    batch_index: int = 0
    """Index of the batch in its loader."""

    stop_reason: str = ""
    """Why the run is to end; empty while it goes on."""

    stop_status: str = ""

    requests_save: str = ""
    """Why the run is to be saved at its next step boundary; empty if it is not."""

    saver: Saver | None = None
    """What makes its checkpoints; None makes none."""

    watch: NonfiniteWatch | None = None
    """What knows whose gradients were not finite; None if nobody looks."""

    diverged_at: BadStep | None = None
    """The step from which the run is to go back; None while it goes on."""

    rollbacks: tuple[dict[str, Any], ...] = ()
    """What was left out each time that the run went back."""

    attributes: ChangedAttributes
    """What task and model change in themselves while the run trains."""

    limits = TrainingLimits()
    """Totals of the run, as far as they are known."""

    course: StageProgress
    """Its stages, of which every run has at least one."""

    make_optimizer: MakeOptimizer | None
    """Makes its optimizer anew, where a config describes it."""

    change_optim: Callable[..., None]
    """Changes keys of the section ``optim`` between two steps: ``lr=1e-4, clip=1.0``, another
    ``type=...``; ``state="keep"`` or ``"reset"`` says what becomes of the optimizer's own."""

    take_step: Callable[[Microbatches], object]
    """Takes one step's microbatches; chosen before the loop."""

    choose_step: Callable[[], object]
    """Chooses ``take_step`` anew, after a change of what a step does."""

    eval_steps: dict[str, Callable[[Run, Batch], object]]
    """What the runner does with a batch of each split."""

    variables: dict[str, Variable]
    """Functions whose values the record takes beside the means of training, by name."""

    mirrors: list[Tracker]
    """Who else gets all points and media of the record."""

    save_media: Callable[..., Path | None]
    """Keeps an image, figure, sound or text in the record: ``save_media("samples", image)``."""

    train_batch: TrainBatch
    finish_batch: FinishBatch
    report_batch: FinishBatch
    measure_batch: FinishBatch

    device_time: DeviceTime | NoDeviceTime = NoDeviceTime()
    """How long its steps take on the device."""

    def __init__(
        self, parts: Parts, options: Options | None = None, setting: Environment | None = None
    ) -> None:
        _require_objects(parts)
        self.options = options or Options()
        setting = setting or Environment()
        self.config, self.tag, self.seed = setting.config, setting.tag, setting.seed
        self.writer, self.facts, self.resume = setting.writer, setting.facts, setting.resume
        self.dir, self.checkpoint_dir = setting.dir, setting.checkpoint_dir
        self.is_debug, self.on_stall = setting.is_debug, setting.on_stall
        self.device = torch.device(setting.device)
        self.precision = Precision(
            self.options.engine.precision, self.device, parse_dtype(setting.dtype)
        )
        self.dtype = self.precision.dtype
        self.task: Any = parts.task  # users bring any object that has the methods
        self.model = parts.model
        self.optimizer, self.schedule = parts.optimizer, parts.schedule
        self.metrics = dict(parts.metrics)
        self.train_metrics = _train_metrics(self.metrics)
        self.monitor = parts.monitor
        _init_stages_and_steps(self, parts)
        self.updater = parts.updater or choose_updater(parts.optimizer)
        self.average, self.loss = parts.average, parts.loss
        if self.loss is not None:
            self.place(self.loss)

        self.latest: dict[str, float] = {}
        """The latest value of every metric."""

        self.evaluated_at: dict[str, int] = {}
        """The step of each split's latest evaluation."""

        self.caches: dict[str, Any] = {}
        """Facts of the run that go into every checkpoint."""

        self.choices: dict[str, object] = {}
        """What the engine decided by itself, such as the kind of step, for the record."""

        self.meta = _read_meta(parts.task)
        """What the task knows about its data, such as the names of classes."""

        self.store = Store()
        self.clock = Clock(times=setting.times)
        self.events = Events(parts.hooks, task=parts.task)
        self.plan = Plan(self.events)
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
        resuming.set_resume_position(self)
        _rebuild_batch_functions(self)

    @property
    def samples(self) -> int:
        """Training samples seen."""
        return self.feed.samples

    @property
    def epoch_number(self) -> int:
        """The epoch as people count it: 1 in the first one, and 1 just after it too."""
        return self.epoch + 1 if self.is_in_epoch else self.epoch

    @property
    def learning_rates(self) -> dict[str, float]:
        """The rate as ``lr``; with several groups ``lr/<name or index>`` for each."""
        return read_rates(self.optimizer, self.updater.rate.values)

    def bind(self) -> None:
        """Look at the parts anew; needed after a change of task, model or metrics."""
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
        """Tell everyone who listens to an event."""
        self.events.fire(event, self, *values)

    def log(self, values: Mapping[str, float | Tensor], step: int | None = None) -> None:
        """Record values now, at this step unless another is given; reads tensors at once."""
        points = {name: float(value) for name, value in values.items()}
        self.latest.update(points)
        step = self.step if step is None else step
        self.writer.log(points, step)
        for mirror in self.mirrors:
            mirror.take_points(points, step)

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
        """End the run after the current step; the first reason given stays."""
        if not self.stop_reason:
            self.stop_status, self.stop_reason = status, reason
        self.plan.wake()

    def evaluate(self, split: str = "val") -> dict[str, float]:
        """Evaluate a split now, with all events; training is not disturbed."""
        return evaluation.evaluate(self, split_name(split))

    def place(self, module: nn.Module) -> nn.Module:
        """The module on the run's device, in its dtype."""
        channels_last = self.options.engine.channels_last
        return move_module(module, self.device, self.dtype, channels_last=channels_last)

    def replace_task_method(self, name: str, function: Callable[..., object]) -> None:
        """Give the task another method, from the next batch on; it gets no ``self``."""
        known = (*REQUIRED_METHODS, *OPTIONAL_METHODS, *EVENTS, *ALIASES)
        if name not in known:
            raise TaskError(f"{name}: a task has no such method\n  {suggest(name, known)}")
        setattr(self.task, name, function)
        self.bind()

    def register_caches(self, caches: Mapping[str, Any]) -> None:
        """Have facts written into every checkpoint."""
        self.caches.update(caches)

    def register_flops(
        self, data: Mapping[str, Any] | None = None, keys: Sequence[str] = ()
    ) -> int:
        """Count the FLOPs of a forward pass of one sample, and write them into every checkpoint.

        Args:
            data: Tensors or lists of samples by name, of which the first sample counts; by
                default it is the first one of the training data, through the task.
            keys: Which of them the model takes, in this order; empty is all.
        """
        from epochal.engine.analysis import model_summary as anatomy  # hardly any run needs it

        return anatomy.register_flops(self, data, keys)

    def release(self) -> None:
        """Let go of every part, so that their memory is free; plain facts stay."""
        self.plan.close()
        self.meter.forget()
        self.events.clear()
        self.store.clear()
        for name in _PARTS:
            self.__dict__.pop(name, None)


def _rebuild_batch_functions(run: Run) -> None:
    """Choose anew what is done with each batch and between steps."""
    functions = BatchFunctions(run)
    run.train_batch = functions.train
    run.finish_batch = functions.finish
    run.report_batch = functions.report
    run.measure_batch = functions.measure
    if run.plan.is_started:
        run.plan.start(run)


def _init_stages_and_steps(run: Run, parts: Parts) -> None:
    """Give a run its stages, and no steps yet."""
    run.course = StageProgress(parts.stages or (Stage(length=run.options.train.for_),))
    run.make_optimizer = parts.make_optimizer
    run.change_optim = partial(change_optim, run)
    run.take_step = run.choose_step = unprepared_step
    run.eval_steps = {}
    run.variables, run.mirrors = {}, []
    run.save_media = partial(save_media, run)


def _read_meta(task: object) -> dict[str, Any]:
    meta: Any = read_task_attribute(task, "meta")  # users fill it with what they like
    return {} if meta is None else meta


def _train_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    return {name: metric for name, metric in metrics.items() if "train" in metric.on}


def _require_objects(parts: Parts) -> None:
    for name in ("task", "model"):
        part = getattr(parts, name)
        if isinstance(part, type):
            raise TaskError(
                f"{name}: is the class {part.__name__}, not an object\n"
                f"  make one: {name}={part.__name__}(...)"
            )
