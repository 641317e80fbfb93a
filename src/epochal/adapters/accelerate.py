"""Trains with an Accelerator of Hugging Face Accelerate: given, or built from the config."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import torch
from typing_extensions import override

from epochal.engine import Hook
from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.splits import SPLITS
from epochal.engine.run.engine_run import engine_run
from epochal.errors import ConfigError, Problem, TaskError
from epochal.experiment.build.device import choose_device
from epochal.experiment.build.optimizer import read_optim_options
from epochal.experiment.config.choices import to_override
from epochal.experiment.experiment import Experiment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

    from epochal.engine import Run, Task
    from epochal.engine.run.engine_run import EngineRun
    from epochal.experiment.build.builder import Assembly
    from epochal.experiment.config.choices import Choices
    from epochal.experiment.config.inputs import ExperimentInputs

    Accelerator = Any  # of an optional package

_OWN_PROCESSES = ("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_XPU")
"""Kinds of processes whose model is whole: the engine shares it between them."""

_MIXED = {"bf16": "bf16", "fp16": "fp16"}
"""Precisions of the config that an Accelerator knows, too."""


class AccelerateExperiment(Experiment):
    """Gives the task an Accelerator that agrees with the run, as ``task.accelerator``.

    The engine moves data and models, computes gradients, and saves. Precision, accumulation and
    device of a given Accelerator become options of the config.

    Args:
        config: As for ``Experiment``, like all other arguments.
        accelerator: An ``accelerate.Accelerator``; by default one is built from the config.
    """

    def __init__(
        self,
        config: object = None,
        *,
        accelerator: Accelerator | None = None,
        overrides: Sequence[str] = (),
        test: bool = False,
        choices: Choices | None = None,
        **sections: Any,  # noqa: ANN401 - as for Experiment
    ) -> None:
        self._accelerator = self._given = accelerator
        self._is_only = False
        super().__init__(config, overrides=overrides, test=test, choices=choices, **sections)
        settings = read_launched() if accelerator is None else read_settings(accelerator)
        self.inputs = take_settings(self.inputs, settings)
        if accelerator is not None:
            self.inputs = _take_device(self.inputs, accelerator.device)

    @override
    def build_data(self, assembly: Assembly, task: Task) -> None:
        """Give the task its loaders, and the Accelerator."""
        if self._given is None:
            self._accelerator, self._is_only = build_accelerator(assembly)
        check_place(self._accelerator, assembly)
        task.accelerator = self._accelerator  # type: ignore[attr-defined]  # users read it there
        super().build_data(assembly, task)

    @override
    def place_model(self, assembly: Assembly, model: nn.Module) -> nn.Module:
        """The model on the run's device; one that an Accelerator has prepared is refused."""
        _refuse_prepared("model", model)
        return super().place_model(assembly, model)

    @override
    def build_hooks(self, assembly: Assembly) -> list[object]:
        """The hooks of the config, after one that connects the Accelerator with the run."""
        connection = _Connection(self._accelerator, is_only=self._is_only)
        return [connection, *super().build_hooks(assembly)]


def read_settings(accelerator: Accelerator) -> dict[str, object]:
    """Options of the config that match the settings of an Accelerator, without defaults.

    Raises:
        ConfigError: It has a setting that the engine does not support.
    """
    problems = [Problem("accelerator", what, hint=hint) for what, hint in _iter_limits(accelerator)]
    if problems:
        raise ConfigError(*problems)
    settings: dict[str, object] = {}
    if accelerator.native_amp:
        settings["engine.precision"] = accelerator.mixed_precision
    if accelerator.gradient_accumulation_steps > 1:
        settings["optim.accumulate"] = accelerator.gradient_accumulation_steps
    if _read_options(accelerator.ddp_handler).get("find_unused_parameters"):
        settings["engine.find_unused"] = True
    return settings


def read_launched() -> dict[str, object]:
    """Options of the config that match the arguments of ``accelerate launch``."""
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    accumulate = int(os.environ.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1"))
    settings: dict[str, object] = {} if precision == "no" else {"engine.precision": precision}
    return settings | ({"optim.accumulate": accumulate} if accumulate > 1 else {})


def take_settings(inputs: ExperimentInputs, settings: Mapping[str, object]) -> ExperimentInputs:
    """The inputs with the settings of an Accelerator in their config.

    Raises:
        ConfigError: The config says something else.
    """
    root, changes = inputs.config.root, dict(settings)
    for key, value in settings.items():
        node = root.find(key)
        if node is not None and node.value != value:
            what = f"{node.value!r} contradicts the Accelerator, which says {value!r}"
            raise ConfigError(Problem(key, what, node.place, "keep one of them"))
    if "optim.accumulate" in changes and "optim" in inputs.given.parts:
        what = "an optimizer object cannot accumulate, as gradient_accumulation_steps asks for"
        hint = "describe it: optim={'type': 'AdamW', 'lr': 1e-3}"
        raise ConfigError(Problem("optim", what, hint=hint))
    optim = root.find("optim")
    if optim is None or not optim.is_mapping:  # nothing is trained, or it is just a name
        accumulate = changes.pop("optim.accumulate", None)
        if optim is not None and accumulate is not None:
            changes["optim"] = {"type": optim.value, "accumulate": accumulate}
    if not changes:
        return inputs
    written = [to_override(key, value) for key, value in changes.items()]
    return replace(inputs, overrides=(*inputs.overrides, *written)).with_choices({})


def _take_device(inputs: ExperimentInputs, device: torch.device) -> ExperimentInputs:
    """The inputs with the device of an Accelerator as their choice."""
    choices = inputs.choices
    if choices.get("device") is not None or choices.get("gpus") is not None:
        chosen = choose_device(choices)
        if not _is_same_device(chosen, device):
            what = f"{str(chosen)!r} contradicts the Accelerator, which is on {str(device)!r}"
            raise ConfigError(Problem("--device", what, hint="leave it out"))
        return inputs
    return inputs.with_choices({"device": "cpu" if device.type == "cpu" else str(device)})


def _iter_limits(accelerator: Accelerator) -> Iterator[tuple[str, str]]:
    """Settings of an Accelerator that the engine does not support, each with a hint."""
    kind = accelerator.distributed_type.name
    if kind not in _OWN_PROCESSES:
        hint = (
            "write engine.strategy: fsdp, which divides parameters, gradients and optimizer state"
        )
        yield f"{kind} is not supported", hint
        return
    if accelerator.mixed_precision not in ("no", *_MIXED):
        yield f"mixed_precision {accelerator.mixed_precision!r} is not supported", "use bf16"
    if accelerator.state.dynamo_plugin.backend.name != "NO":
        yield "dynamo_backend would compile the model", "write engine.step: compile instead"
    if accelerator.parallelism_config is not None:
        yield "parallelism_config is not supported", "write engine.tensor_parallel instead"
    if accelerator.dispatch_batches:
        yield "dispatch_batches: each process reads its own samples here", "leave it out"
    if accelerator.num_processes > 1 and not accelerator.split_batches:
        what = "split_batches is False, but a batch size is that of all processes here"
        hint = "multiply batch sizes by the number of processes, and write "
        yield what, f"{hint}dataloader_config=DataLoaderConfiguration(split_batches=True)"
    accumulation = accelerator.gradient_state.plugin_kwargs
    for name, default in (("sync_with_dataloader", True), ("sync_each_batch", False)):
        if accumulation.get(name, default) is not default:
            yield f"{name}={not default} is not supported", "leave it out"
    for name in ("ddp_handler", "scaler_handler", "autocast_handler"):
        options = _read_options(getattr(accelerator, name))
        for option in sorted(options.keys() - {"find_unused_parameters"}):
            yield f"{option}={options[option]!r} is not supported", "leave it out"


def _read_options(handler: Any) -> Mapping[str, Any]:  # noqa: ANN401 - of an optional package
    """The options of a handler that are not defaults."""
    return {} if handler is None else handler.to_kwargs()


def build_accelerator(assembly: Assembly) -> tuple[Accelerator, bool]:
    """An Accelerator that says what the config says, in the processes of the run.

    Also whether it is the only one: all of a process share their state.

    Raises:
        ConfigError: ``accelerate launch`` has an option that the engine does not support, or the
            user has an Accelerator with other settings.
    """
    try:
        from accelerate import Accelerator, DataLoaderConfiguration
        from accelerate.state import is_initialized
    except ModuleNotFoundError as error:
        hint = "pip install 'epochal[accelerate]'"
        what = "the package accelerate is not installed"
        raise ConfigError(Problem("experiment", what, hint=hint)) from error
    is_only = not is_initialized()
    try:
        with _same_place(assembly):
            accelerator = Accelerator(
                cpu=assembly.device.type == "cpu",
                mixed_precision=_MIXED.get(assembly.args.engine.precision, "no"),
                gradient_accumulation_steps=_read_accumulation(assembly),
                dataloader_config=DataLoaderConfiguration(split_batches=True),
            )
    except ValueError as error:
        what = str(error).partition("\n")[0]
        hint = "give your Accelerator: AccelerateExperiment(..., accelerator=accelerator)"
        raise ConfigError(Problem("accelerator", what, hint=hint)) from error
    read_settings(accelerator)  # refuses what variables of `accelerate launch` ask for
    return accelerator, is_only


def _read_accumulation(assembly: Assembly) -> int:
    return read_optim_options(assembly, assembly.config.find("optim")).accumulate


@contextmanager
def _same_place(assembly: Assembly) -> Iterator[None]:
    """In a block, an Accelerator is made on the device and in the processes of the run."""
    world, threads = assembly.world, torch.get_num_threads()
    places = {"ACCELERATE_TORCH_DEVICE": str(assembly.device)}
    if not world.is_single:  # Slurm and MPI have variables of their own
        numbers = {
            "RANK": world.rank,
            "LOCAL_RANK": world.local_rank,
            "WORLD_SIZE": world.world_size,
        }
        places |= {name: str(number) for name, number in numbers.items()}
    before = {name: os.environ.get(name) for name in places}
    os.environ.update(places)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "OMP_NUM_THREADS")  # the threads are set again
            yield
    finally:
        torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def check_place(accelerator: Accelerator, assembly: Assembly) -> None:
    """Refuse an Accelerator of another device, or of other processes than those of the run."""
    world = assembly.world
    if (accelerator.num_processes, accelerator.process_index) != (world.world_size, world.rank):
        what = (
            f"it is process {accelerator.process_index + 1} of {accelerator.num_processes}, "
            f"and the run has {world.rank + 1} of {world.world_size}"
        )
        hint = "start all processes with `accelerate launch`, and leave out --nproc and strategy"
        raise ConfigError(Problem("accelerator", what, hint=hint))
    if not _is_same_device(accelerator.device, assembly.device):
        what = f"it is on {accelerator.device}, and the run is on {assembly.device}"
        raise ConfigError(Problem("accelerator", what, hint="leave out --device"))


def _is_same_device(one: torch.device, other: torch.device) -> bool:
    is_same_index = one.type == "cpu" or (one.index or 0) == (other.index or 0)
    return one.type == other.type and is_same_index


def _refuse_prepared(name: str, part: object) -> None:
    if getattr(part, "_is_accelerate_prepared", False):
        what = "the Accelerator has prepared it, which the run does itself"
        hint = "leave out accelerator.prepare(...)"
        raise ConfigError(Problem(name, what, hint=hint))


@final
class _Connection(Hook):
    """Lets methods of an Accelerator know the models, steps and evaluations of a run."""

    def __init__(self, accelerator: Accelerator, *, is_only: bool) -> None:
        self._accelerator, self._is_only = accelerator, is_only
        self._replaced: dict[str, Callable[..., Any]] = {}

    @override
    def setup(self, run: Run) -> None:
        _refuse_prepared("optim", run.optimizer)
        for split in SPLITS:
            for loader in named_loaders(run.task, split).values():
                _refuse_prepared(f"{split}_loader", loader)
        accelerator = self._accelerator
        accelerator.step = 0  # an earlier loop may have ended inside a step
        accelerator.gradient_state._set_sync_gradients(True)
        self._steps = _StepEnds(accelerator, engine_run(run))
        accelerator.gradient_state._add_dataloader(self._steps)
        self._accumulate = accelerator.gradient_accumulation_steps
        self._replaced = _replace_methods(accelerator, engine_run(run))
        for name, method in self._replaced.items():
            setattr(accelerator, name, method)

    @override
    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train":  # a stage may have changed it
            accumulate = engine_run(run).feed.accumulate
            self._accelerator.gradient_accumulation_steps = accumulate

    @override
    def teardown(self, run: Run) -> None:
        for name in self._replaced:
            delattr(self._accelerator, name)
        if self._replaced:
            self._accelerator.gradient_state._remove_dataloader(self._steps)
            self._accelerator.gradient_accumulation_steps = self._accumulate
        if self._is_only:
            _forget_state()

    def state_dict(self) -> dict[str, Any]:
        """The scale of losses, for steps of the user that call ``accelerator.backward``."""
        scaler = self._accelerator.scaler
        return {} if scaler is None else scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with a saved scale."""
        if state and self._accelerator.scaler is not None:
            self._accelerator.scaler.load_state_dict(state)


def _forget_state() -> None:
    """Let the next Accelerator of this process have another device or precision."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@final
class _StepEnds:
    """Shows an Accelerator when a step ends, in place of the loader that it would ask."""

    remainder = 0

    def __init__(self, accelerator: Accelerator, run: EngineRun) -> None:
        self._accelerator, self._run = accelerator, run

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the next batch that is accumulated is the last of its step."""
        feed = self._run.feed
        return bool(self._accelerator.step + 1 >= feed.next_position - feed.position)


def _replace_methods(accelerator: Accelerator, run: EngineRun) -> dict[str, Callable[..., Any]]:
    """Methods that would not work on the models and loaders of a run, as they do there."""
    prepare_model, no_sync = accelerator.prepare_model, accelerator.no_sync
    unwrap_model, gather = accelerator.unwrap_model, accelerator.gather_for_metrics

    def is_model(model: nn.Module) -> bool:
        return model is run.raw_model or model is run.trained_model

    def prepare_own(model: nn.Module, *args: Any, **options: Any) -> nn.Module:  # noqa: ANN401
        return model if is_model(model) else prepare_model(model, *args, **options)

    def unwrap_own(model: nn.Module, *args: Any, **options: Any) -> nn.Module:  # noqa: ANN401
        return run.raw_model if is_model(model) else unwrap_model(model, *args, **options)

    def accumulate_own(model: nn.Module) -> AbstractContextManager[None]:
        return no_sync(run.trained_model if is_model(model) else model)  # type: ignore[no-any-return]

    def gather_in_training(data: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        # In evaluations each sample is in one process, and what is computed there is joined.
        return gather(data, *args, **options) if run.split == "train" else data

    def save_state(output_dir: object = None, **_: object) -> None:
        if output_dir is not None:
            what = "accelerator.save_state: a run saves into its own folder"
            raise TaskError(f"{what}\n  leave out {output_dir!r}")
        run.request_save("accelerator.save_state")

    def load_state(*_: object, **__: object) -> None:
        what = "accelerator.load_state: a run resumes as a whole"
        raise TaskError(f"{what}\n  use `epochal resume`, or init_from for weights alone")

    return {
        "prepare_model": prepare_own,
        "unwrap_model": unwrap_own,
        "no_sync": accumulate_own,
        "gather_for_metrics": gather_in_training,
        "save_state": save_state,
        "load_state": load_state,
    }
