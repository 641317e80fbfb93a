"""The interface of a run, for hooks, tasks and runners: its position, parts, facts and services.

``docs/hooks.md`` lists all of it. What only the engine needs is in ``engine/run``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

from epochal.engine.interfaces.hook import USER_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from epochal.distributed.world import World
    from epochal.engine.interfaces.average import Average
    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.interfaces.monitor import Monitor
    from epochal.engine.interfaces.options import Options
    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.interfaces.shared_store import Store
    from epochal.engine.interfaces.stage import Stage
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.measure.clock import Clock
    from epochal.engine.measure.meter import Meter
    from epochal.records.folder.checkpoint_manifests import CheckpointManifest
    from epochal.records.folder.media import Media
    from epochal.records.folder.writer import Writer

    Variable = Callable[[], float | Tensor]


ProbeKind = Literal["scalar", "histogram", "image", "attention", "table", "text", "video"]


class ProbeFunction(Protocol):
    """Records an intermediate value, if this step is probed."""

    def __call__(self, name: str, value: object, kind: ProbeKind | None = None) -> None:
        """Record a value; by default its kind is inferred from the value."""


def ignore_probe(name: str, value: object, kind: ProbeKind | None = None) -> None:
    """Record nothing."""


class RecordReceiver(Protocol):
    """Gets what a run records; a tracker is one."""

    def take_points(self, points: Mapping[str, float], step: int) -> None:
        """Take the points of a step."""

    def take_media(self, media: Media) -> None:
        """Take a file."""


@final
@dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """The checkpoint from which a run resumes."""

    state: Mapping[str, Any]
    """The state of every part, by the part's name."""

    manifest: CheckpointManifest
    path: Path
    """The folder of the checkpoint."""

    is_strict: bool = True
    """Whether its parts must match those of the run; False if the config may have changed."""

    has_ended: bool = False
    """Whether the run had ended and is continued anyway."""


class Run(ABC):
    """One run in progress, as hooks, tasks and runners see it."""

    # Position

    step: int
    """Optimizer updates done."""

    first_step: int
    """The step at which this process began."""

    epoch: int
    """Epochs completed; also the index of the current one."""

    is_in_epoch: bool
    """Whether a training epoch has started and not ended."""

    split: str
    """The split in progress: train, val, test or predict."""

    loader_name: str
    """The loader in progress, if the split has several."""

    batch_index: int
    """Index of the current batch in its loader."""

    stop_reason: str
    """Why the run will end; empty while it continues."""

    stop_status: str
    """The status with which it will end; empty while it continues."""

    # Parts

    task: Any
    """The task: any object that has the methods."""

    model: nn.Module
    optimizer: Optimizer | None
    schedule: AnySchedule | None
    loss: nn.Module | None
    """The loss that the config describes."""

    metrics: dict[str, Metric]
    monitor: Monitor | None
    average: Average | None
    trackers: list[RecordReceiver]
    """The trackers that mirror the record."""

    # Facts

    config: Mapping[str, Any]
    """The expanded config as plain values."""

    options: Options
    registry: Any
    """Finds components by name; None for a run that no config describes."""

    tag: str
    seed: int
    dir: Path | None
    """The folder of the record; None without a record, and in all processes but the main one."""

    checkpoint_dir: Path | None
    log_dir: Path | None
    """Where this process writes its logs; None without a record."""

    device: torch.device
    dtype: torch.dtype | None
    facts: Mapping[str, Any]
    """What every checkpoint says about the run: id, attempt, digests of config, code and data."""

    resume: ResumePoint | None
    """The checkpoint that it will resume from; None in a new run and after the resume."""

    latest: dict[str, float]
    """The latest value of every metric."""

    meta: dict[str, Any]
    """What the task knows about its data, such as the names of classes."""

    choices: dict[str, object]
    """What the engine decided, such as the kind of step; recorded."""

    is_debug: bool

    world: World
    """All processes of the run: ``barrier``, ``broadcast``, ``gather``, ``reduce``."""

    # Services

    console: Any
    """The ``rich`` console that the run prints to; None without the hook ``Console``."""

    writer: Writer
    """Writes the record; ``writer.event("name", ...)`` adds an event."""

    variables: dict[str, Variable]
    """Functions whose values are recorded with the training means, by name."""

    store: Store
    """Values shared between hooks and components."""

    caches: dict[str, Any]
    """Values that go into every checkpoint."""

    probe: ProbeFunction
    """Records an intermediate value, such as ``run.probe("attention", weights, "attention")``, in
    the steps that the hook ``Probe`` chooses; ignores it in all others."""

    meter: Meter
    clock: Clock

    @property
    def rank(self) -> int:
        """The number of this process among those of the run; 0 in a run of one process."""
        return self.world.rank

    @property
    def local_rank(self) -> int:
        """The number of this process among those on this machine."""
        return self.world.local_rank

    @property
    def world_size(self) -> int:
        """How many processes the run has."""
        return self.world.world_size

    @property
    def is_main(self) -> bool:
        """Whether this process writes the record and prints: it has rank 0."""
        return self.world.is_main

    @property
    @abstractmethod
    def raw_model(self) -> nn.Module:
        """The model without a wrapper such as DistributedDataParallel."""

    @property
    @abstractmethod
    def samples(self) -> int:
        """Training samples seen."""

    @property
    @abstractmethod
    def epoch_number(self) -> int:
        """The epoch counted from 1; after an epoch it still has that epoch's number."""

    @property
    @abstractmethod
    def stage(self) -> Stage:
        """The current stage; a run without stages has one named ``main``."""

    @property
    @abstractmethod
    def learning_rates(self) -> dict[str, float]:
        """The rate of the next update as ``lr``; several groups have ``lr/<name or index>``."""

    @property
    @abstractmethod
    def used_learning_rates(self) -> dict[str, float]:
        """The rates of the latest update, which are recorded; named as ``learning_rates``."""

    @property
    @abstractmethod
    def averages(self) -> dict[str, float]:
        """The means of losses and metrics so far: of the epoch, or of the current evaluation.

        Reading them waits for the device.
        """

    @property
    @abstractmethod
    def hooks(self) -> tuple[object, ...]:
        """The hooks of the run, those of the config and those given in Python."""

    @property
    @abstractmethod
    def device_facts(self) -> dict[str, Any]:
        """Type, name and memory of the device, and the number format of the run."""

    @abstractmethod
    def log(self, values: Mapping[str, float | Tensor], step: int | None = None) -> None:
        """Record values at this step, or at another one; reads tensors at once."""

    @abstractmethod
    def save_media(
        self, name: str, data: object, *, kind: str = "", suffix: str = "", step: int | None = None
    ) -> Path | None:
        """Record an image, figure, sound or text; returns its file, or None without a record.

        Args:
            name: The series that it belongs to.
            data: A tensor or array, a figure, a path, bytes or a text.
            kind: ``image``, ``audio``, ``text`` and so on; found from the data by default.
            suffix: The ending of the file; found from the data by default.
            step: The step it belongs to; the current one by default.
        """

    @abstractmethod
    def on(
        self,
        event: str,
        function: Callable[..., object],
        *,
        priority: int = USER_PRIORITY,
        every: object = None,
    ) -> None:
        """Call a function at an event; it takes any of the event's arguments, by name."""

    @abstractmethod
    def stop(self, reason: str, *, status: str = "stopped") -> None:
        """End the run after the current step; only the first reason counts."""

    @abstractmethod
    def request_save(self, reason: str) -> None:
        """Save a checkpoint at the next step boundary, or at this one; safe in signal handlers."""

    @abstractmethod
    def evaluate(self, split: str = "val") -> dict[str, float]:
        """Evaluate a split now, with all events; training is not disturbed."""

    @abstractmethod
    def place(self, module: nn.Module) -> nn.Module:
        """The module on the run's device, in its dtype; shared if several processes train it."""

    @abstractmethod
    def change_optim(self, **changes: object) -> None:
        """Change keys of the section ``optim`` between two steps: ``lr=1e-4, clip=1.0``.

        Another ``type`` builds another optimizer; ``state="keep"`` or ``"reset"`` says whether
        the optimizer's state is kept.
        """

    @abstractmethod
    def replace_task_method(self, name: str, function: Callable[..., object]) -> None:
        """Replace a method of the task from the next batch on; it gets no ``self``."""

    @abstractmethod
    def register_caches(self, caches: Mapping[str, Any]) -> None:
        """Write values into every checkpoint."""

    @abstractmethod
    def register_flops(
        self, data: Mapping[str, Any] | None = None, keys: Sequence[str] = ()
    ) -> int:
        """Count the FLOPs of a forward pass of one sample, and write them into every checkpoint.

        Args:
            data: Tensors or lists of samples by name; only the first sample is used. By default
                the first sample of the training data, through the task.
            keys: The names that the model takes, in this order; empty is all.
        """

    @abstractmethod
    def train_batch(self, batch: Batch) -> Outcome:
        """Compute the loss of a training batch; for runners and updaters."""

    @abstractmethod
    def finish_batch(self, outcome: Outcome) -> None:
        """Count a training batch after its backward pass; for runners and updaters."""
