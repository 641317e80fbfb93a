"""Trains a LightningModule, with the loaders of a LightningDataModule, as an ordinary run."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import override

from epochal.config import parse_duration
from epochal.distributed.environment import read_rank_environment
from epochal.distributed.sharded_tensor import is_sharded
from epochal.engine import Task, TorchSchedule
from epochal.engine.device.move import batch_size
from epochal.engine.interfaces.hook import USER_PRIORITY
from epochal.errors import TaskError
from epochal.experiment.experiment import Experiment
from epochal.records.metrics.points import EPOCH_MEAN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine import Run
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.interfaces.task import Batch
    from epochal.experiment.build.builder import Assembly

_LIBRARIES = ("lightning.pytorch.core.", "pytorch_lightning.core.", "torch.")
"""Where classes that a module inherits from define methods that do nothing."""

_STEPS = {
    "train": "training_step",
    "val": "validation_step",
    "test": "test_step",
    "predict": "predict_step",
}
_CALLED = (
    "on_fit_start",
    "on_train_start",
    "on_train_epoch_start",
    "on_train_epoch_end",
    "on_validation_start",
    "on_validation_epoch_start",
    "on_validation_end",
    "on_test_start",
    "on_test_epoch_start",
    "on_test_end",
    "on_train_end",
    "on_fit_end",
)
"""Methods of a module without arguments that events of the same name call."""

_UNCALLED = {
    "backward": "write an updater",
    "optimizer_step": "write an updater",
    "optimizer_zero_grad": "write an updater",
    "configure_gradient_clipping": "set optim.clip",
    "lr_scheduler_step": "write a schedule",
    "transfer_batch_to_device": "give the batch a method to(device)",
    "configure_callbacks": "write a hook for each callback",
}
"""Methods that nothing would call, and what to do instead."""

_LOGGED = "logged by the module"


@final
class _LazyLoaders:
    """Loaders of a data module; found when they are first read, so that others are not loaded."""

    def __init__(self, stage: str, method: str) -> None:
        self._stage, self._method = stage, method

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: LightningTask | None, owner: type) -> object:
        if task is None:
            return self
        loaders = task.load_data(self._stage, self._method)
        vars(task)[self._name] = loaders
        return loaders


@final
class LightningTask(Task):
    """Calls the steps of the run's model, a LightningModule, and records what they log.

    ``self.log("val_acc", ...)`` in ``validation_step`` becomes ``val/acc``. A metric object of
    torchmetrics is computed over the whole pass, then reset.

    Args:
        data: A LightningDataModule; without one, the section ``data`` describes the loaders.
    """

    train_loader: Any = _LazyLoaders("fit", "train_dataloader")
    val_loader: Any = _LazyLoaders("fit", "val_dataloader")
    test_loader: Any = _LazyLoaders("test", "test_dataloader")
    predict_loader: Any = _LazyLoaders("predict", "predict_dataloader")

    def __init__(self, data: Any = None) -> None:  # noqa: ANN401 - of an optional package
        self._data = data
        self._log = _Log()
        self._prepared: set[str] = set()

    def load_data(self, stage: str, method: str) -> object:
        """What a method of the data module returns, after its ``setup``; several by number."""
        if self._data is None or not _is_overridden(self._data, method):
            return None
        if not self._prepared:
            _prepare(self._data)
        if stage not in self._prepared:
            self._data.setup(stage)
            self._prepared.add(stage)
        loaders = getattr(self._data, method)()
        if isinstance(loaders, list | tuple):
            return {str(index): loader for index, loader in enumerate(loaders)}
        return loaders

    def assembled(self, run: Run) -> None:
        """Let the module log to this run, and call its methods at the events of the run."""
        module: Any = run.model
        _check_module(module)
        self._run = run
        self._is_sharded = any(map(is_sharded, module.parameters()))
        self._sizes = {
            step: len(inspect.signature(getattr(module, step)).parameters)
            for step in _STEPS.values()
        }
        module.log, module.log_dict = self._log, self._log.add_all
        module._trainer = _TrainerFacts(run)
        for name in _CALLED:
            if _is_overridden(module, name):
                run.on(name, getattr(module, name))
        run.on("epoch_end", self._record_train_epoch, priority=USER_PRIORITY + 1)
        if _is_overridden(module, "on_train_batch_start"):
            run.on("on_train_batch_start", _call_with_batch(module.on_train_batch_start))
        if _is_overridden(module, "on_train_batch_end"):
            run.on("on_train_batch_end", _call_with_output(module.on_train_batch_end))
        if _reads_index(module.training_step):
            # Listeners inside of the step keep it eager; a captured one sees a single index.
            run.on("on_train_batch_start", _keep_step_eager)

    def teardown(self, run: Run) -> None:
        """Give the module back as it was."""
        for name in ("log", "log_dict"):
            vars(run.model).pop(name, None)
        vars(run.model)["_trainer"] = None

    def batch_forward(self, model: nn.Module, batch: Batch) -> dict[str, Any]:
        """What the step of the module returns, and what it logs."""
        split = "train" if model.training else self._run.split
        step = _STEPS[split]
        arguments = (batch, self._run.batch_index, self._find_loader_index(split))
        self._log.split, self._log.batch_size = split, batch_size(batch) or 1
        out = self._call_step(model, step, arguments[: self._sizes[step]])
        if not isinstance(out, Mapping):
            out = {"out" if split == "predict" else "loss": out}
        return {**out, _LOGGED: self._log.take(split)}

    def batch_loss(self, out: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
        """The loss that the step returned; in evaluations the one that it logged, if any."""
        if "loss" in out[_LOGGED]:
            value, count = out[_LOGGED]["loss"]
            return {"loss": (torch.as_tensor(value), count)}
        if not isinstance(out.get("loss"), Tensor):
            owner = type(self._run.model).__name__
            if self._run.split != "train":
                what = f"{owner}.{_STEPS[self._run.split]}: logged and returned no loss"
                raise TaskError(f"{what}\n  log it there, or set train.eval_loss=false")
            what = f"{owner}.training_step: returned no loss"
            raise TaskError(f'{what}\n  return the loss, or {{"loss": ...}}')
        return {"loss": (out["loss"], self._log.batch_size)}

    def batch_metric(self, out: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
        """What the step of the module logged, without a loss that ``batch_loss`` returns."""
        logged: dict[str, Any] = out[_LOGGED]
        if self._run.options.train.eval_loss:
            return {name: value for name, value in logged.items() if name != "loss"}
        return logged

    def epoch_metric(self, run: Run, split: str) -> dict[str, Any]:
        """What the module logs at the end of a pass, and the metric objects that it logged."""
        name = {"val": "on_validation_epoch_end", "test": "on_test_epoch_end"}.get(split, "")
        with _without_exchange(run.model):
            if _is_overridden(run.model, name):
                getattr(run.model, name)()
            return self._log.take_epoch(split)

    def _record_train_epoch(self, run: Run, split: str) -> None:
        """Record what the module logs at the end of an epoch, and the metric objects of its steps.

        Each process has its own samples then, so objects of torchmetrics exchange their states.
        """
        if split == "train":
            self._log.split = split  # the last batch may have been evaluated
            values = self._log.take_epoch(split)
            run.log({f"{EPOCH_MEAN_PREFIX}{name}": value for name, value in values.items()})

    def postprocess(self, out: Mapping[str, Any], batch: Batch) -> Any:  # noqa: ANN401 - the module decides
        """What ``predict_step`` returned."""
        kept = {name: value for name, value in out.items() if name != _LOGGED}
        return kept["out"] if list(kept) == ["out"] else kept

    def _call_step(self, model: nn.Module, step: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401 - the module decides
        """What a step of the module returns, called through what several processes share."""
        is_wrapped = isinstance(model, DistributedDataParallel)
        if not is_wrapped and not self._is_sharded:
            return getattr(model, step)(*arguments)
        module = self._run.raw_model if is_wrapped else model

        def take_step(*given: object) -> Any:  # noqa: ANN401 - the module decides
            del module.forward  # the step may call it
            return getattr(module, step)(*given)

        module.forward = take_step  # as Lightning does
        try:
            return model(*arguments)
        finally:
            vars(module).pop("forward", None)

    def _find_loader_index(self, split: str) -> int:
        loaders = getattr(self, f"{split}_loader", None)
        names = list(loaders) if isinstance(loaders, Mapping) else []
        return names.index(self._run.loader_name) if names else 0


def _prepare(data: Any) -> None:  # noqa: ANN401 - of an optional package
    """Let a data module download its files: in one process of each machine, and the others wait."""
    place = read_rank_environment()
    if place is None or not distributed.is_initialized():  # maybe each process is its own run
        data.prepare_data()
        return
    number = place.local_rank if data.prepare_data_per_node else place.rank
    if number == 0:
        data.prepare_data()
    distributed.barrier()


class LightningExperiment(Experiment):
    """Takes the optimizer from ``configure_optimizers``, unless the config has ``optim``."""

    @override
    def build_optimizer(
        self, assembly: Assembly, model: nn.Module
    ) -> tuple[Optimizer, AnySchedule | None]:
        """The optimizer and schedule of the config, or those of the module."""
        if assembly.config.find("optim") is not None or "optim" in assembly.given.parts:
            return super().build_optimizer(assembly, model)
        module: Any = model
        module._trainer = _TrainerPlan(assembly)
        try:
            return read_optimizers(module)
        finally:
            module._trainer = None


def read_optimizers(module: Any) -> tuple[Optimizer, AnySchedule | None]:  # noqa: ANN401 - of an optional package
    """The optimizer and the schedule that ``configure_optimizers`` returns.

    Raises:
        TaskError: It does not return exactly one optimizer, with at most one scheduler of torch.
    """
    owner = f"{type(module).__name__}.configure_optimizers"
    match module.configure_optimizers():
        case Optimizer() as optimizer:
            optimizers, schedulers = [optimizer], []
        case {"optimizer": optimizer, **rest}:
            optimizers = [optimizer]
            schedulers = [rest["lr_scheduler"]] if "lr_scheduler" in rest else []
        case [[*optimizers], [*schedulers]]:
            pass
        case [*optimizers]:
            schedulers = []
        case _:
            optimizers, schedulers = [], []
    if len(optimizers) != 1 or not isinstance(optimizers[0], Optimizer):
        what = f"{owner}: must return one optimizer"
        raise TaskError(f"{what}\n  describe several optimizers in the section optim")
    if not schedulers:
        return optimizers[0], None
    first = schedulers[0]
    options: Mapping[Any, Any] = first if isinstance(first, Mapping) else {"scheduler": first}
    scheduler = options["scheduler"]
    is_simple = isinstance(scheduler, LRScheduler) and options.get("frequency", 1) == 1
    if len(schedulers) > 1 or not is_simple:
        what = f"{owner}: must return at most one scheduler of torch, with frequency 1"
        raise TaskError(f"{what}\n  describe others in the section schedule, beside optim")
    return optimizers[0], TorchSchedule(scheduler, unit=options.get("interval", "epoch"))


@final
class _Log:
    """The ``self.log`` of a module: keeps values until the task takes them."""

    def __init__(self) -> None:
        self.split = "train"
        self.batch_size = 1
        self._values: dict[str, tuple[Any, int]] = {}
        self._metrics: dict[str, dict[str, Any]] = {}

    def __deepcopy__(self, memo: object) -> _Log:
        return self  # a copy of the module, such as averaged weights, logs to the same run

    def __call__(self, name: str, value: Any, *_: object, **options: Any) -> None:  # noqa: ANN401 - as in Lightning
        if callable(getattr(value, "compute", None)):
            self._metrics.setdefault(self.split, {})[name] = value
        else:
            value = value.detach() if isinstance(value, Tensor) else value
            self._values[name] = (value, options.get("batch_size") or self.batch_size)

    def add_all(self, values: Mapping[str, Any], *_: object, **options: Any) -> None:  # noqa: ANN401 - as in Lightning
        """The ``self.log_dict`` of a module."""
        for name, value in values.items():
            self(name, value, **options)

    def take(self, split: str) -> dict[str, tuple[Any, int]]:
        """What was logged since the last call; the loss of a training is known anyway."""
        taken = {_shorten(name, split): value for name, value in self._values.items()}
        self._values.clear()
        if split == "train":
            taken.pop("loss", None)
        return taken

    def take_epoch(self, split: str) -> dict[str, Any]:
        """What was logged since the last call, and the metric objects of the pass, then reset."""
        values = {name: value for name, (value, _) in self.take(split).items()}
        for name, metric in self._metrics.pop(self.split, {}).items():
            values[_shorten(name, split)] = metric.compute()
            metric.reset()
        return values


@final
class _TrainerFacts:
    """The ``self.trainer`` of a module: what it may read of the run."""

    sanity_checking = False
    logger = None
    loggers: tuple[object, ...] = ()

    def __init__(self, run: Run) -> None:
        self._run = run
        self.is_global_zero, self.world_size = run.is_main, run.world_size
        self.global_rank, self.local_rank = run.rank, run.local_rank

    def __deepcopy__(self, memo: object) -> _TrainerFacts:
        return self  # a copy of the module belongs to the same run

    @property
    def current_epoch(self) -> int:
        """Epochs completed."""
        return self._run.epoch

    @property
    def global_step(self) -> int:
        """Optimizer updates done."""
        return self._run.step

    @property
    def training(self) -> bool:
        """Whether the split in progress is trained."""
        return self._run.split == "train"

    @property
    def validating(self) -> bool:
        """Whether the validation data is evaluated."""
        return self._run.split == "val"

    @property
    def testing(self) -> bool:
        """Whether the test data is evaluated."""
        return self._run.split == "test"

    @property
    def callback_metrics(self) -> dict[str, float]:
        """The latest value of every metric, by the names of Epochal."""
        return dict(self._run.latest)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - raises
        _refuse_attribute(self, name)


@final
class _TrainerPlan:
    """The ``self.trainer`` of ``configure_optimizers``: the length of the training."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        length = assembly.config.get("train.for").value
        is_known = isinstance(length, str) and "stages" not in assembly.config.mapping
        self._length = parse_duration(str(length)) if is_known else None

    @property
    def max_epochs(self) -> int | None:
        """The number of epochs, if the training is counted in them."""
        return self._count("ep")

    @property
    def max_steps(self) -> int:
        """The number of steps, or -1 if the training is not counted in them."""
        return self._count("st") or -1

    @property
    def num_training_batches(self) -> int:
        """Batches of an epoch."""
        loader: Any = None if self._assembly.task is None else self._assembly.task.train_loader
        limit = self._assembly.config.get("train.limit_batches").value
        return min(len(loader), limit) if isinstance(limit, int) else len(loader)

    @property
    def estimated_stepping_batches(self) -> int:
        """All steps of the training; without ``optim``, each batch is one."""
        steps, epochs = self._count("st"), self._count("ep")
        if steps is not None:
            return steps
        if epochs is None:
            what = "self.trainer.estimated_stepping_batches: unknown before the training"
            raise TaskError(f"{what}\n  write train.for in steps or epochs, without stages")
        return epochs * self.num_training_batches

    def _count(self, unit: str) -> int | None:
        if self._length is None or self._length.unit != unit:
            return None
        return int(self._length.amount)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - raises
        _refuse_attribute(self, name)


def _refuse_attribute(trainer: object, name: str) -> NoReturn:
    if name.startswith("_"):
        raise AttributeError(name)
    known = ", ".join(one for one in dir(type(trainer)) if not one.startswith("_"))
    raise TaskError(f"self.trainer.{name}: not available in Epochal\n  there are: {known}")


@contextmanager
def _without_exchange(model: nn.Module) -> Iterator[None]:
    """Let metrics of torchmetrics compute without the other processes, which have all samples."""
    metrics = [one for one in model.modules() if hasattr(one, "distributed_available_fn")]
    functions = [one.distributed_available_fn for one in metrics]
    for one in metrics:
        one.distributed_available_fn = _find_no_others  # type: ignore[assignment]
    try:
        yield
    finally:
        for one, function in zip(metrics, functions, strict=True):
            one.distributed_available_fn = function


def _find_no_others() -> bool:
    return False


def _check_module(module: Any) -> None:  # noqa: ANN401 - of an optional package
    owner = type(module).__name__
    if not hasattr(module, "training_step"):
        hint = "LightningTask is for a LightningModule; write a task for other models"
        raise TaskError(f"model: {owner} has no training_step\n  {hint}")
    if not getattr(module, "automatic_optimization", True):
        hint = "write a runner that calls the optimizers"
        raise TaskError(f"{owner}: manual optimization is not supported\n  {hint}")
    for name, advice in _UNCALLED.items():
        if _is_overridden(module, name):
            raise TaskError(f"{owner}.{name}: nothing would call it\n  remove it and {advice}")


def _is_overridden(owner: object, name: str) -> bool:
    """Whether a class of the user defines the method."""
    definer = next((kind for kind in type(owner).__mro__ if name in vars(kind)), None)
    return definer is not None and not definer.__module__.startswith(_LIBRARIES)


def _shorten(name: str, split: str) -> str:
    """``acc`` for ``val_acc`` or ``val/acc``; the split is part of every recorded name."""
    for word in {"val": ("validation", "valid", "val")}.get(split, (split,)):
        if name.startswith((f"{word}_", f"{word}/")):
            return name[len(word) + 1 :] or name
    return name


def _reads_index(step: Callable[..., object]) -> bool:
    """Whether a step uses its argument ``batch_idx``."""
    code = getattr(step, "__func__", step)
    return any(
        one.argval == "batch_idx" and one.opname.startswith("LOAD_")
        for one in dis.get_instructions(code)
    )


def _call_with_batch(method: Callable[..., object]) -> Callable[..., object]:
    return lambda run, batch: method(batch, run.batch_index)


def _call_with_output(method: Callable[..., object]) -> Callable[..., object]:
    return lambda run, batch, out: method(out, batch, run.batch_index)


def _keep_step_eager(run: Run) -> None:
    """Do nothing."""
