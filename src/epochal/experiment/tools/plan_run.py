"""Builds an experiment and describes what it would do; runs and writes nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from epochal.check import Default, Opaque
from epochal.check.sections.schedule import read_length
from epochal.config import load
from epochal.engine.capture.obstacles import find_capture_obstacle
from epochal.engine.execute import describe_plan
from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.average import AVERAGED_SPLIT
from epochal.engine.interfaces.every import Every
from epochal.engine.optim.rate import read_rate
from epochal.engine.optim.select_parameters import is_uninitialized
from epochal.engine.run.stage_progress import ScheduleSpan
from epochal.engine.stages.rate_preview import RatePreview, preview_rates
from epochal.engine.stages.transition import StageRow, list_stages
from epochal.engine.step.updater import Updater
from epochal.engine.tracking.tracker import describe_trackers
from epochal.errors import COMMAND_LINE, Problem
from epochal.experiment.build.device import describe_ranks
from epochal.experiment.config.check_file import expand_variants, needs_expansion
from epochal.experiment.experiment import Experiment, load_experiment
from epochal.experiment.run_experiment import build_unrecorded_run, locating_errors
from epochal.hooks.banner import describe_data, describe_model, describe_optimizer, describe_periods
from epochal.launch.jobs.frozen_job import read_job
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from torch.optim import Optimizer

    from epochal.config import Node
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.run.plan import PlanRow
    from epochal.engine.run.stage_progress import TrainingLimits
    from epochal.experiment.config.choices import Choices

    ParamGroup = dict[str, Any]  # torch's own: options by name


@final
@dataclass(frozen=True)
class RunPlan:
    """The description of a run that was not started."""

    title: str
    runner: str
    device: str
    model: str
    optimizer: str
    """Empty when nothing is trained."""

    data: str
    limits: TrainingLimits
    rows: list[PlanRow]
    """Which hook is called at which event, how often, in order."""

    defaults: tuple[Default, ...]
    """Values that the config does not set."""

    note: str = ""
    """A note on options that make every step slower."""

    average: str = ""
    """The average of the weights, and what is evaluated with it; empty without one."""

    step: str = ""
    """How steps are executed; empty if the runner has its own steps or none."""

    groups: tuple[GroupRow, ...] = ()
    """The groups of parameters; empty if all have the same options."""

    stages: tuple[StageRow, ...] = ()
    """Empty if there is only one."""

    loss: str = ""
    """The terms of the config's loss; empty if the task has its own."""

    trackers: str = ""
    """Trackers that get the metrics besides the record; empty if there are none."""

    evaluate: str = ""
    """Which splits are evaluated how often; empty if none is."""

    save: str = ""
    """How often checkpoints are saved; empty if nothing is trained."""

    ranks: str = ""
    """The processes that share each batch; empty if there is only one."""

    rates: RatePreview | None = None
    """Learning rates to come, if asked for and anything is trained."""

    parameters: int | None = None
    """Numbers in the weights; None if a layer gets its size from the first batch."""

    memory_bytes: int | None = None
    """Memory for weights, gradients, averaged weights and the optimizer, without activations."""

    problems: tuple[Problem, ...] = ()
    """Mistakes that are found only with the data, of which a run would warn."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain values, without the problems."""
        values = asdict(self) | {"rows": [asdict(row) for row in self.rows]}
        del values["problems"]
        values["defaults"] = [
            {"key": one.key, "value": printable_default(one.value), "owner": one.owner}
            for one in self.defaults
        ]
        return values


def printable_default(value: object) -> object:
    """A default as it can be printed: its source text if its value is unknown."""
    return str(value) if isinstance(value, Opaque) else value


def plan_file(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    is_drawn: bool = False,
    **choices: Unpack[Choices],
) -> Iterator[RunPlan]:
    """The plan of a file, or of each of its variants with ``variant="all"`` or ``"base,all"``.

    ``is_drawn`` adds the learning rates of all steps.
    """
    chosen = choices.get("variant")
    variants: list[str | None] = [chosen]
    if chosen is not None and needs_expansion(chosen):
        found = load(path, allow_python=choices.get("allow_python", False)).variants
        variants = expand_variants(chosen, found)
    for variant in variants:
        choices["variant"] = variant
        experiment = load_experiment(path, overrides=overrides, choices=choices)
        yield _plan_one(experiment, variant, is_drawn=is_drawn)


def plan_job(file: Path, *, device: str | None = None) -> RunPlan:
    """The plan of a frozen job, built with its config and its code."""
    job = read_job(file)
    choices: Choices = {**job.choices, "device": device, "frozen": job.code}  # type: ignore[typeddict-item]  # from the file that freeze_configs wrote
    experiment = load_experiment(job.source, overrides=job.overrides, choices=choices)
    return _plan_one(experiment, job.choices.get("variant"), is_drawn=False)


def _plan_one(experiment: Experiment, variant: str | None, *, is_drawn: bool) -> RunPlan:
    run, runner, report = build_unrecorded_run(experiment, experiment.inputs)
    with locating_errors(report.expanded):
        rows = describe_plan(run, runner)
    title = run.tag if variant is None else f"{run.tag} (variant {variant})"
    train = run.options.train
    if train.folds is not None:
        title = f"{title}, fold {train.fold or 1} of {train.folds}"
    return RunPlan(
        title,
        type(runner).__name__,
        str(run.device),
        describe_model(run.model),
        describe_optimizer(run.optimizer),
        describe_data(run),
        run.limits,
        rows,
        report.defaults,
        run.part(Updater).cost_note(run),
        _describe_average(run),
        _describe_step(run),
        tuple(list_groups(run)),
        tuple(list_stages(run)),
        loss="" if run.loss is None else run.loss.describe(),
        trackers=describe_trackers(run),
        ranks=describe_ranks(experiment.inputs.choices),
        **(describe_periods(run) if run.optimizer is not None else {}),
        rates=preview_rates(run) if is_drawn and run.optimizer is not None else None,
        parameters=_count_parameters(run.model),
        memory_bytes=_estimate_memory(run),
        problems=tuple(_find_long_warmups(run, report.expanded)),
    )


def _count_parameters(model: nn.Module) -> int | None:
    found = list(model.parameters())
    return None if any(map(is_uninitialized, found)) else sum(one.numel() for one in found)


def _estimate_memory(run: EngineRun) -> int | None:
    """Bytes of everything that stays in memory between steps."""
    if _count_parameters(run.model) is None:
        return None
    tensors = [*run.model.parameters(), *run.model.buffers()]
    weights = sum(one.nbytes for one in tensors) * (1 if run.average is None else 2)
    if run.optimizer is None:
        return weights
    total = float(weights)
    for group in run.optimizer.param_groups:
        trained = sum(one.nbytes for one in group["params"] if one.requires_grad)
        total += trained * (1 + _count_states(run.optimizer, group))
    return int(total)


def _count_states(optimizer: Optimizer, group: ParamGroup) -> float:
    """How many numbers the optimizer keeps per weight, tried with a small one; 2 if unknown."""
    probe = nn.Parameter(torch.zeros(8, 8))
    probe.grad = torch.zeros_like(probe)
    options = {name: value for name, value in group.items() if name in optimizer.defaults}
    try:
        trial = type(optimizer)([probe], **options)
        trial.step()
        kept = [one for one in trial.state[probe].values() if isinstance(one, Tensor)]
    except Exception:  # optimizers of users, and those that need a closure or a model
        return 2.0
    return sum(one.numel() for one in kept) / probe.numel()


def _find_long_warmups(run: EngineRun, config: Node) -> Iterator[Problem]:
    """Warm-ups that last as long as the training, if the config sets the length of both."""
    lengths = ("train.for", "train.limit_batches")
    if any(config.get(path).layer == COMMAND_LINE for path in lengths):
        return  # a trial run
    for path, span in _iter_schedules(run, config):
        length = read_length(config.get(f"{path}.warmup").value)
        per_unit = {"st": 1, "ep": span.per_epoch}.get(length.unit) if length else None
        if length and per_unit and span.steps and length.amount * per_unit >= span.steps:
            key, taken = f"{path}.warmup", format_count(int(length.amount * per_unit), "step")
            what = f"the warm-up takes {taken}, and the training only {span.steps}"
            hint = "make the warm-up shorter, or the training longer"
            yield Problem(key, what, config.find_place(key), hint)


def _iter_schedules(run: EngineRun, config: Node) -> Iterator[tuple[str, ScheduleSpan]]:
    """The path of each schedule in the config, and the steps over which it is counted."""
    progress = run.stage_progress
    yield "schedule", progress.run_span
    for name in config.get("optim").mapping:
        yield f"optim.{name}.schedule", progress.run_span
    ends = [*progress.starts[1:], progress.run_span.steps]
    for stage, first, end in zip(progress.stages, progress.starts, ends, strict=False):
        steps = None if first is None or end is None else end - first
        yield f"{stage.key}.schedule", ScheduleSpan(0, steps)


def _describe_average(run: EngineRun) -> str:
    if run.average is None:
        return ""
    kind = type(run.average).__name__
    (every, *_) = run.eval_periods.get("val", [Every.NEVER])
    if every.is_never or not named_loaders(run.task, "val"):
        return kind
    return f"{kind}; val is evaluated twice, with averaged weights as {AVERAGED_SPLIT}"


def _describe_step(run: EngineRun) -> str:
    step = run.choices.get("step")
    if step is None or run.options.engine.step == "eager":
        return "" if step is None else "eager"
    obstacle = find_capture_obstacle(run)
    if not obstacle:
        return "captured as a CUDA graph, after a comparison with eager steps"
    return f"{'compiled, not captured' if step == 'compile' else 'eager'}: {obstacle}"


_SHOWN = frozenset({"params", "name", "rule", "lr", "initial_lr", "weight_decay"})


@final
@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """One group of parameters, or all those that are frozen."""

    name: str
    rule: str
    """The rule that defines it, if any; for frozen parameters, their names."""

    tensors: int
    parameters: int
    lr: float | None = None
    weight_decay: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Other options in which groups differ."""


def list_groups(run: EngineRun) -> list[GroupRow]:
    """The groups of the run's optimizer, and the frozen parameters at the end.

    Empty if all parameters have the same options.
    """
    groups = [] if run.optimizer is None else run.optimizer.param_groups
    rows = [_row(group, groups, index) for index, group in enumerate(groups)]
    held = {id(one) for group in groups for one in group["params"]}
    frozen = {name: one for name, one in run.model.named_parameters() if id(one) not in held}
    if groups and frozen:
        tensors, parameters = _sizes(frozen.values())
        names = ", ".join([*frozen][:3]) + (", ..." if len(frozen) > 3 else "")
        rows.append(GroupRow(name="frozen", rule=names, tensors=tensors, parameters=parameters))
    return rows if len(rows) > 1 else []


def _row(group: ParamGroup, groups: Sequence[ParamGroup], index: int) -> GroupRow:
    tensors, parameters = _sizes(group["params"])
    rate: float | Tensor = group["initial_lr"] if "initial_lr" in group else group["lr"]
    others = {name: value for name, value in group.items() if name not in _SHOWN}
    return GroupRow(
        name=str(group.get("name", index)),
        rule=str(group.get("rule", "")),
        tensors=tensors,
        parameters=parameters,
        lr=read_rate(rate),
        weight_decay=group.get("weight_decay"),
        options={
            name: _plain(value)
            for name, value in others.items()
            if any(_plain(other.get(name)) != _plain(value) for other in groups)
        },
    )


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, Tensor) else value


def _sizes(parameters: Iterable[Tensor]) -> tuple[int, int]:
    sizes = [0 if is_uninitialized(one) else one.numel() for one in parameters]
    return len(sizes), sum(sizes)
