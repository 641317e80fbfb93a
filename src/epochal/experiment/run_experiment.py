"""Runs an experiment: check it, open its record, build its parts, execute, write the result."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from epochal.config import Node
from epochal.distributed.environment import LAUNCHED_VARIABLE, is_main_process
from epochal.distributed.world import SingleProcess
from epochal.engine.device.seeding import derive_seed, seeded
from epochal.engine.execute import (
    RANK_LOST,
    execute_and_catch,
    is_expected,
    result_of_error,
    tell_ranks,
)
from epochal.engine.measure.clock import PhaseTimer
from epochal.engine.process.signals import PREEMPTED
from epochal.engine.result import select_result_metrics
from epochal.engine.run.speed import read_spent
from epochal.errors import ConfigError, EpochalError, Problem
from epochal.experiment.build.build_run import build_monitor, build_run
from epochal.experiment.build.builder import Assembly, Builder
from epochal.experiment.build.device import choose_device, describe_device, prepare_debugging
from epochal.experiment.build.join_world import joining_world
from epochal.experiment.config.check_file import find_blocking_problems
from epochal.experiment.config.choices import is_debugging
from epochal.experiment.config.inputs import check_inputs
from epochal.experiment.config.script_arguments import to_args
from epochal.experiment.cross_validation import CrossValidation, count_folds
from epochal.experiment.record.failure import redact_message, show_failure
from epochal.experiment.record.logs import FILE_ONLY, logging_to
from epochal.experiment.record.notifier import Notifier
from epochal.experiment.record.open_record import OpenRecord, follow_record, open_record
from epochal.experiment.record.post_mortem import open_post_mortem
from epochal.experiment.record.success import show_success
from epochal.experiment.record.system_sampler import sampling_system
from epochal.experiment.record.uncaught import to_raised
from epochal.experiment.resume.changes import ChangedError
from epochal.experiment.resume.resume_plan import find_weights_to_evaluate, plan_resume
from epochal.records import NullWriter
from epochal.records.folder.reader import find_expanded_config
from epochal.records.layout.stop_request import read_stop_request
from epochal.records.metrics.time_spent import BUILDING, CHECKS, IMPORTS, RECORD
from epochal.records.secrets import hiding_secrets, iter_config_secrets
from epochal.text.escape import decode_typed
from epochal.text.interrupts import (
    deferring_interrupts,
    leave_preemption_to_next_run,
    raising_on_preemption,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import nn

    from epochal.check import CheckReport
    from epochal.distributed.world import World
    from epochal.engine import Runner, RunResult
    from epochal.engine.run.engine_run import EngineRun
    from epochal.experiment.build.build_run import BuildSteps
    from epochal.experiment.config.inputs import CheckedInputs, ExperimentInputs
    from epochal.experiment.resume.resume_plan import ResumePlan

Ended = tuple["RunResult", BaseException | None]
logger = logging.getLogger(__name__)


def run_experiment(
    steps: BuildSteps,
    inputs: ExperimentInputs,
    runner: str | None,
    *,
    raise_errors: bool | None = None,
) -> RunResult:
    """Run an experiment; a failure is recorded, described on standard error, and raised.

    A success is summarized on standard output.

    Args:
        steps: Build the parts.
        inputs: What the experiment was given.
        runner: Replaces the config's.
        raise_errors: False returns the result of a failed run; by default the choice decides.
    """
    __tracebackhide__ = True
    if raise_errors is None:
        raise_errors = inputs.choices.get("raise_errors", True)
    with hiding_secrets(iter_config_secrets(inputs.config.root)):
        result, error = _run(steps, inputs, runner)
        is_raised = raise_errors and not result.ok
        # The code that shows the error also reports a mistake found before the run.
        is_early = is_raised and result.reason == "config" and result.dir is None
        is_main = _is_main(inputs) and not _is_handled_by_launcher(result)
        unshown = redact_message(result) if is_early and is_main else ""
        if is_main:
            show_success(result)
        if is_main and not is_early:
            show_failure(result)
            if inputs.choices.get("debug") and inputs.choices.get("debug_rank") is None:
                open_post_mortem(error)
    try:
        if is_raised or (error is not None and not is_expected(error)):
            raise to_raised(result, error, unshown=unshown)
        return result
    finally:
        error = None  # the traceback refers to this frame


def _is_handled_by_launcher(result: RunResult) -> bool:
    """Whether the parent process decides what happens after a lost process."""
    return result.reason == RANK_LOST and LAUNCHED_VARIABLE in os.environ


def _is_main(inputs: ExperimentInputs) -> bool:
    """Whether this process reports how the run ended."""
    node = inputs.config.root.find("engine.strategy")
    return is_main_process() or (node is not None and node.value == "none")


def _run(
    steps: BuildSteps,
    inputs: ExperimentInputs,
    runner: str | None,
    *,
    is_part: bool = False,
    world: World | None = None,
) -> Ended:
    begun = inputs.choices.get("begun")
    times = PhaseTimer(begun=begun, part=CHECKS if begun is None else IMPORTS)
    times.switch(CHECKS)
    try:
        checked = check_inputs(inputs, runner)
        evaluated = inputs.choices.get("evaluated") or ""
        found = find_weights_to_evaluate(checked)
        if found is not None:
            weights, evaluated = found
            checked = check_inputs(inputs.with_weights(weights.init_from), runner)
        report = checked.report
        problems = find_blocking_problems(inputs.choices, report.problems)
        if problems:
            raise ConfigError(*problems)
        is_trial = inputs.choices.get("trial") is not None
        joining = joining_world(report.expanded, inputs.choices)
        with raising_on_preemption(), joining if world is None else nullcontext(world) as world:
            if not world.is_main:
                return _run_other(steps, checked, times, world)
            notifying = Notifier(report, is_part=is_part, is_trial=is_trial)
            return _run_main(steps, checked, times, world, notifying, evaluated)
    except EpochalError as error:
        return result_of_error(error), error


def _run_main(
    steps: BuildSteps,
    checked: CheckedInputs,
    times: PhaseTimer,
    world: World,
    notifying: Notifier,
    evaluated: str,
) -> Ended:
    """Run as the main process, which writes the record."""
    report = checked.report
    with notifying as notifier:
        plan = plan_resume(checked)
        is_resumed = plan is not None and not plan.starts_again
        if report.problems and not is_resumed:  # those that matter only to a new run
            raise ConfigError(*report.problems)
        if count_folds(report.expanded) is not None:  # each fold has its own timer
            return _cross_validate(steps, checked, plan, notifier, world)
        result, error = _run_checked(steps, checked, plan, notifier, times, world)
        return replace(result, weights=evaluated), error


def _run_other(steps: BuildSteps, checked: CheckedInputs, times: PhaseTimer, world: World) -> Ended:
    """Run as a process other than rank 0; writes only a log."""
    if count_folds(checked.report.expanded) is not None:
        return _run_other_folds(steps, checked, world)
    record = follow_record(world)
    is_resumed = record.resume_point is not None
    assembly = _build_assembly(checked, is_resumed=is_resumed, world=world)
    assembly = replace(assembly, times=times)
    times.before = record.spent
    with logging_to(record.log_path, level=assembly.args.log.level, is_shown=False):
        result, error = _build_and_execute(steps, assembly, record)
        _log_traceback(result)
    return result, error


def _run_other_folds(steps: BuildSteps, checked: CheckedInputs, world: World) -> Ended:
    follow_record(world)
    record = OpenRecord(NullWriter())
    folds = CrossValidation(checked.inputs, checked.report.expanded, record)
    ended: Ended | None = None
    while number := world.broadcast(0):
        ended = _run(steps, folds.inputs_of(number), checked.runner, is_part=True, world=world)
        if world.has_failed:
            break
    return ended or (result_of_error(KeyboardInterrupt()), None)


def _cross_validate(
    steps: BuildSteps,
    checked: CheckedInputs,
    plan: ResumePlan | None,
    notifier: Notifier,
    world: World,
) -> Ended:
    assembly = _build_assembly(checked)
    with _open_record(checked, plan, world) as record:
        notifier.begin(record)
        record.write_start(_describe(checked, assembly))
        record.writer.write_status("running")
        folds = CrossValidation(checked.inputs, checked.report.expanded, record)
        error: BaseException | None = None
        try:
            for number in folds.numbers:
                result = folds.find_finished(number)
                if result is None:
                    inputs = folds.inputs_of(number)
                    world.broadcast(number)
                    result, error = _run(steps, inputs, checked.runner, is_part=True, world=world)
                if not folds.add(number, result):
                    break
            if not world.has_failed:
                world.broadcast(0)
            result = folds.summarize()
        except Exception as unexpected:  # the record must not say "running"
            notifier.write_end(record, result_of_error(unexpected, dir=record.dir))
            raise
        result, error = _apply_stop_request(result, error, record.dir)
        with deferring_interrupts():
            notifier.write_end(record, result)
    return result, error


def _run_checked(
    steps: BuildSteps,
    checked: CheckedInputs,
    plan: ResumePlan | None,
    notifier: Notifier,
    times: PhaseTimer,
    world: World,
) -> Ended:
    is_resumed = plan is not None and not plan.starts_again
    assembly = _build_assembly(checked, is_resumed=is_resumed, world=world)
    assembly = replace(assembly, times=times)
    times.switch(RECORD)
    with _open_record(checked, plan, world) as opened:
        record = notifier.begin(opened)
        times.before = record.spent
        with logging_to(record.log_path, level=assembly.args.log.level, is_owner=record.is_owner):
            record.write_start(_describe(checked, assembly))
            for name, section in checked.inputs.replaced.items():
                has_dtype = name == "model" and isinstance(section, dict) and "dtype" in section
                except_for = " except for its dtype" if has_dtype else ""
                text = "%s: given by Python; the section of the config is not used%s"
                logger.info(text, name, except_for)
            for name, of_config, of_python in checked.inputs.count_merged():
                logger.info("%s: %d of the config, %d given by Python", name, of_config, of_python)
            result, error = _build_and_execute(steps, assembly, record)
            result, error = _apply_stop_request(result, error, record.dir)
            _log_traceback(result)
        with deferring_interrupts():
            notifier.write_end(record, result)
    return result, error


def build_unrecorded_run(
    steps: BuildSteps, inputs: ExperimentInputs, *, is_quiet: bool = False
) -> tuple[EngineRun, Runner, CheckReport]:
    """The run of an experiment, built but not started, without a record.

    If it ``is_quiet``, it has no default hooks: it shows and saves nothing.
    """
    checked = check_inputs(inputs, None)
    report = checked.report
    if report.problems:
        raise ConfigError(*report.problems)
    with locating_errors(report.expanded):
        run, runner = build_run(
            steps, _build_assembly(checked), OpenRecord(NullWriter()), is_quiet=is_quiet
        )
    return run, runner, report


def build_trained_model(steps: BuildSteps, inputs: ExperimentInputs) -> nn.Module:
    """The model of an experiment with the weights of ``init_from``, in eval mode.

    Nothing else is built.
    """
    checked = check_inputs(inputs, None)
    report = checked.report
    if report.problems:
        raise ConfigError(*report.problems)
    assembly = _build_assembly(checked)
    for key, node in report.expanded.get("model").iter_leaves():
        if node.is_deferred:
            what = f"{node.value} is known only when the task is built"
            hint = f"give its value: overrides=['model.{key}=...']"
            raise ConfigError(Problem(f"model.{key}", what, node.place, hint))
    with locating_errors(report.expanded), seeded(derive_seed(assembly.seed, "model")):
        model = steps.build_model(assembly)
        return steps.place_model(assembly, model).eval()


@contextmanager
def locating_errors(config: Node) -> Iterator[None]:
    """Add the place in the config to errors that are found only when parts are built."""
    try:
        yield
    except ConfigError as error:
        error.locate(config.find_place)
        raise


def _open_record(
    checked: CheckedInputs, plan: ResumePlan | None, world: World
) -> AbstractContextManager[OpenRecord]:
    choices = checked.inputs.choices
    return open_record(
        checked.inputs.config,
        checked.report,
        is_kept=not choices.get("no_file", False),
        resume_plan=plan,
        frozen=choices.get("frozen"),
        world=world,
    )


def _build_assembly(
    checked: CheckedInputs, *, is_resumed: bool = False, world: World | None = None
) -> Assembly:
    inputs, report = checked.inputs, checked.report
    is_debug = is_debugging(inputs.choices)
    if is_debug:
        prepare_debugging()
    args = to_args({**inputs.replaced, **report.expanded.to_plain()})
    inputs.own.attach(args, report.expanded)
    return Assembly(
        config=report.expanded,
        args=args,
        builder=Builder(checked.registry),
        device=choose_device(inputs.choices),
        given=inputs.given,
        world=world or SingleProcess(),
        is_debug=is_debug,
        is_resumed=is_resumed,
        written=Node({}) if _is_recorded(inputs) else inputs.config.root,
        num_defaults=0 if _is_recorded(inputs) else len(report.defaults),
        variant=inputs.config.variant,
        source=_find_source(inputs),
    )


def _is_recorded(inputs: ExperimentInputs) -> bool:
    """Whether the config is that of a resumed run or cross validation, with all defaults."""
    path = inputs.config.path
    if path is None or not (path.parent.parent / "run.json").is_file():
        return False
    return find_expanded_config(path.parent.parent) == path


def _find_source(inputs: ExperimentInputs) -> str:
    """The config file, if ``epochal plan`` can read the experiment from it."""
    path = inputs.config.path
    return "" if path is None or inputs.given.sections else decode_typed(str(path))


def _build_and_execute(steps: BuildSteps, assembly: Assembly, record: OpenRecord) -> Ended:
    facts: dict[str, Any] = {"dir": record.dir, "config": assembly.config.to_plain()}
    run: EngineRun | None = None
    assembly.times.switch(BUILDING)
    try:
        run, runner = build_run(steps, assembly, record)
        record.add_meta(run.meta)
        find_place = assembly.config.find_place
        with sampling_system(run):
            result, ended_by = execute_and_catch(run, runner, find_place=find_place)
        leave_preemption_to_next_run()
        return result, ended_by
    except ChangedError:  # nothing has started, and the record is restored
        raise
    except BaseException as error:  # also sys.exit: the record must not stay "running"
        if isinstance(error, ConfigError):
            error.locate(assembly.config.find_place)
        error = tell_ranks(assembly.world, error)
        result = replace(result_of_error(error, **facts), **assembly.times.read_spent().to_fields())
        if run is None and record.resume_point is not None:
            at = record.resume_point.manifest
            result = replace(result, steps=at.step, epochs=at.epoch, samples=at.samples)
        if run is not None:
            result = replace(
                result,
                steps=run.step,
                epochs=run.epoch,
                metrics=select_result_metrics(run.latest),
                **read_spent(run).to_fields(),
            )
        return result, error


def _apply_stop_request(
    result: RunResult, error: BaseException | None, folder: Path | None
) -> Ended:
    """A run that saved and ended because it was asked to was not preempted, but stopped."""
    reason = read_stop_request(folder) if folder and result.status == PREEMPTED else ""
    if not reason:
        return result, error
    stopped = replace(
        result,
        status="stopped",
        reason=reason,
        exit_code=0,
        exception_type=None,
        message="",
        traceback="",
    )
    return stopped, None


def _log_traceback(result: RunResult) -> None:
    if result.traceback:  # the terminal shows it in a box at the end
        logger.error("%s", result.traceback.rstrip(), extra={FILE_ONLY: True})


def _describe(checked: CheckedInputs, assembly: Assembly) -> dict[str, Any]:
    """What ``run.json`` says about the run before it is built."""
    inputs, report = checked.inputs, checked.report
    args, config, monitor = assembly.args, inputs.config, build_monitor(assembly)
    return {
        "project": args.project,
        "project_dir": decode_typed(str(report.project.dir)),
        "tag": args.tag,
        "desc": args.desc,
        "seed": assembly.seed,
        "runner": _name_runner(inputs, report),
        "config_path": None if config.path is None else decode_typed(str(config.path)),
        "variant": config.variant,
        "fast": bool(inputs.choices.get("fast")),
        "overrides": list(config.overrides),
        "torch": torch.__version__,
        "device": describe_device(assembly.device) | _describe_processes(assembly.world),
        "defaults": len(report.defaults),
        "init_from": assembly.config.mapping["init_from"].to_plain(),
        "evaluates": _find_watched_run(report),
        "monitor": None if monitor is None else monitor.metric,
        "trial": _describe_trial(inputs.choices.get("trial")),
        "given": inputs.given.sections,
        "experiment": None if inputs.kind is None else inputs.kind.to_json(),
    }


def _describe_processes(world: World) -> dict[str, Any]:
    return {} if world.world_size == 1 else {"processes": world.world_size}


def _find_watched_run(report: CheckReport) -> str | None:
    """The folder of the run whose checkpoints this one evaluates, if it does."""
    node = report.expanded.find("runner.run")
    is_watch = node is not None and report.expanded.get("runner.type").value == "watch"
    return str(node.value) if is_watch and node is not None else None


def _describe_trial(trial: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if trial is None else {key: trial[key] for key in trial if key != "seal"}


def _name_runner(inputs: ExperimentInputs, report: CheckReport) -> str:
    own = inputs.given.parts.get("runner")
    node = report.expanded.find("runner.type")
    return type(own).__name__ if own is not None or node is None else str(node.value)
