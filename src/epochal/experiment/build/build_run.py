"""Takes every build step in order: from an assembly to a run and its runner."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from epochal.check.sections.experiment_class import find_built_sections
from epochal.check.sections.monitor import computes_eval_loss
from epochal.engine import Environment, Monitor, Options, Parts, Predict, Runner, Test
from epochal.engine.create_run import create_run
from epochal.engine.device.seeding import derive_seed, seeded
from epochal.engine.interfaces.options import (
    CheckpointOptions,
    EngineOptions,
    LogOptions,
    TrainOptions,
)
from epochal.engine.interfaces.schedule import OptimizerSchedules
from epochal.engine.tracking.tracker import is_installed
from epochal.experiment.build.build_parts import (
    build_loss,
    build_output_stages,
    model_dtype,
    read_caches,
    refuse_half_weights,
    require_loss_parameters,
    set_fold_loaders,
)
from epochal.experiment.build.build_stages import build_stages, rebuild_optimizer
from epochal.experiment.build.device import describe_device
from epochal.experiment.build.optimizer import read_optim_options
from epochal.experiment.build.task_values import resolve_task_values
from epochal.experiment.record.open_record import to_recordable
from epochal.hooks.banner import Banner
from epochal.hooks.checkpointing import Checkpointing
from epochal.hooks.console import Console
from epochal.hooks.recording import Recording
from epochal.hooks.safetensors_export import FinalWeights
from epochal.hooks.tensorboard import TensorBoard
from epochal.hooks.time_report import TimeReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from torch.optim import Optimizer

    from epochal.engine import Metric, Task
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.engine.run.engine_run import EngineRun
    from epochal.experiment.build.builder import Assembly
    from epochal.experiment.record.open_record import OpenRecord

PartT = TypeVar("PartT")


class BuildSteps(Protocol):
    """The build steps of an experiment; each gets the parts built so far."""

    def build_task(self, assembly: Assembly) -> Task:
        """The task."""

    def build_data(self, assembly: Assembly, task: Task) -> None:
        """Give the task its loaders."""

    def build_model(self, assembly: Assembly) -> nn.Module:
        """The model, on any device."""

    def place_model(self, assembly: Assembly, model: nn.Module) -> nn.Module:
        """The model on the run's device."""

    def build_metrics(self, assembly: Assembly) -> dict[str, Metric]:
        """The metrics by name."""

    def build_optimizer(
        self, assembly: Assembly, model: nn.Module
    ) -> tuple[Optimizer, AnySchedule | None]:
        """The optimizer and its schedule; only when training."""

    def build_hooks(self, assembly: Assembly) -> list[object]:
        """The user's hooks."""


def build_run(
    steps: BuildSteps, assembly: Assembly, record: OpenRecord, *, is_quiet: bool = False
) -> tuple[EngineRun, Runner]:
    """The run and its runner: all build steps taken in order; nothing runs yet."""

    def step(name: str, build: Callable[..., PartT], *parts: object) -> PartT:
        # A seed for each part: adding a layer must not change the order of the data.
        with seeded(derive_seed(assembly.seed, name)):
            return build(assembly, *parts)

    task = step("task", steps.build_task)
    assembly = replace(assembly, task=task)
    step("data", steps.build_data, task)
    step("folds", set_fold_loaders, task)
    assembly, from_task = resolve_task_values(assembly, task)
    record.add_task_values(from_task)
    model = step("model", steps.build_model)
    model = step("model", steps.place_model, model)
    runner: Runner = _build_section(assembly, "runner")
    options = _build_options(assembly)
    if _needs_loss(runner, options):
        assembly = replace(assembly, loss=step("loss", build_loss))
    optimizer, schedule = None, None
    if _is_training(assembly, runner):
        refuse_half_weights(model)
        optimizer, schedule = step("optim", steps.build_optimizer, model)
        require_loss_parameters(assembly.loss, optimizer)
    hooks = step("hooks", steps.build_hooks)
    parts = Parts(
        task=task,
        model=model,
        optimizer=optimizer,
        schedule=schedule,
        updater=_build_section(assembly, "updater") if optimizer is not None else None,
        average=_build_section(assembly, "average") if optimizer is not None else None,
        loss=assembly.loss,
        metrics=step("metrics", steps.build_metrics),
        outputs=step("outputs", build_output_stages, "outputs"),
        evaluation=step("evaluation", build_output_stages, "evaluation"),
        hooks=hooks if is_quiet else [*_default_hooks(assembly, options, hooks), *hooks],
        monitor=build_monitor(assembly),
        stages=build_stages(assembly),
        make_optimizer=partial(rebuild_optimizer, assembly) if _has_rebuilder(assembly) else None,
    )
    record.add_given(_record_given(assembly, parts))
    if record.resume_point is None:
        record.writer.write_observed(assembly.builder.observed)
    run = create_run(parts, options, _build_environment(assembly, record, task))
    if isinstance(runner, Test | Predict):
        run.register_caches(read_caches(assembly))
    run.register_caches(assembly.given.caches)
    return run, runner


def _record_given(assembly: Assembly, parts: Parts) -> list[str]:
    """Record the parts that no section of the config made.

    Returns the names of those that the experiment's class did not build either.
    """
    made = {
        "task": parts.task,
        "model": parts.model,
        "optim": parts.optimizer,
        "schedule": parts.schedule,
        "updater": parts.updater,
        "average": parts.average,
    }
    made |= assembly.given.parts
    observed = assembly.builder.observed
    described = {path.partition(".")[0] for path in observed}
    if isinstance(parts.schedule, OptimizerSchedules):  # described in `optim`
        described.add("schedule")
    own = {name: part for name, part in made.items() if part is not None and name not in described}
    own.pop("data", None)  # some of its splits may come from the config
    observed.update({name: to_recordable(part) for name, part in own.items()})
    for name, entries in assembly.given.lists.items():
        observed.update({f"{name}.given.{i}": to_recordable(e) for i, e in enumerate(entries)})
    built = find_built_sections(assembly.given.overridden) - assembly.given.parts.keys()
    return [name for name in own if name not in built]


def _build_section(assembly: Assembly, section: str) -> Any:  # noqa: ANN401 - any kind of part
    """The part of a section: given, or what the config describes; None if there is neither."""
    given = assembly.given.parts.get(section)
    spec = assembly.spec(section)
    return given if given is not None or spec is None else assembly.builder.build(spec)


def _has_rebuilder(assembly: Assembly) -> bool:
    """Whether the optimizer can be built again: the config alone describes it."""
    given = assembly.given
    is_described = "optim" in assembly.config.mapping and "optim" not in given.parts
    return is_described and "build_optimizer" not in given.overridden


def _needs_loss(runner: Runner, options: Options) -> bool:
    """Whether the run may compute the loss; inference works without one."""
    if isinstance(runner, Predict):
        return False
    return bool(options.train.eval_loss) or not isinstance(runner, Test)


def _is_training(assembly: Assembly, runner: Runner) -> bool:
    """Whether an optimizer is built: if the runner needs one, or if one is given."""
    has_optimizer = "optim" in {*assembly.config.mapping, *assembly.given.parts}
    is_evaluation = isinstance(runner, Test | Predict)
    return runner.needs_optimizer or (has_optimizer and not is_evaluation)


def build_monitor(assembly: Assembly) -> Monitor | None:
    """The monitor of the key ``monitor``, if there is one."""
    node = assembly.config.mapping.get("monitor")
    return None if node is None or node.value is None else Monitor.parse(node.to_plain())


def _build_options(assembly: Assembly) -> Options:
    train = TrainOptions(**assembly.options("train"))
    return Options(
        train=replace(train, eval_loss=computes_eval_loss(assembly.config)),
        engine=EngineOptions(**assembly.options("engine")),
        optim=read_optim_options(assembly, assembly.config.find("optim")),
        log=LogOptions(**assembly.options("log")),
        checkpoint=CheckpointOptions(**assembly.options("checkpoint")),
    )


def _build_environment(assembly: Assembly, record: OpenRecord, task: object) -> Environment:
    return Environment(
        config=assembly.config.to_plain(),
        tag=assembly.args.tag,
        seed=assembly.seed,
        device=assembly.device,
        dtype=model_dtype(assembly),
        writer=record.writer,
        dir=record.dir,
        checkpoint_dir=record.checkpoint_dir,
        registry=assembly.builder.registry,
        facts=record.add_origins(assembly.builder.registry.project, assembly.config, task),
        resume=record.resume_point,
        times=assembly.times,
        on_stall=record.on_stall,
        is_supervised=record.is_supervised,
        is_debug=assembly.is_debug,
        world=assembly.world,
        log_dir=None if record.log_path is None else record.log_path.parent,
    )


def _default_hooks(assembly: Assembly, options: Options, others: list[object]) -> list[object]:
    """The default hooks of a run, except those that the user replaces with one of the same kind."""
    log = options.log
    if not assembly.world.is_main:  # it shows nothing, but saves take part of all
        saving: list[object] = [Checkpointing(options.checkpoint)]
        saving += [FinalWeights()] if options.engine.strategy == "fsdp" else []
        return [one for one in saving if not any(isinstance(other, type(one)) for other in others)]
    own: list[object] = [
        Banner(
            machine=describe_device(assembly.device),
            config=assembly.written,
            num_defaults=assembly.num_defaults,
            source=assembly.source,
            variant=assembly.variant,
        ),
        Console(
            every=log.console_every,
            grad_norm=log.grad_norm,
            data_time=log.data_time,
            memory=log.memory,
            bar=not assembly.is_debug,  # it would overwrite the prompt of a debugger
        ),
        Recording(every=log.record_every),
        Checkpointing(options.checkpoint),
        FinalWeights(),
        TimeReport(),
    ]
    if log.tensorboard and is_installed(TensorBoard.package):
        own.append(TensorBoard())
    return [hook for hook in own if not any(isinstance(other, type(hook)) for other in others)]
