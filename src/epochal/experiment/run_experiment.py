"""Carries out an experiment: check it, open its record, build its parts, run, write the result."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from epochal.check import CheckReport, build_registry, check
from epochal.engine import Run, Runner, RunResult, Train
from epochal.engine.execute import execute, result_of_error
from epochal.engine.measure.phase_timer import PhaseTimer, read_spent
from epochal.errors import ConfigError, EpochalError, Problem
from epochal.experiment.build.assembly import Assembly
from epochal.experiment.build.build_run import build_monitor, build_run
from epochal.experiment.build.builder import Builder
from epochal.experiment.build.device import choose_device, describe_device, prepare_debugging
from epochal.experiment.build.optimizer import OPTIMIZER_HINT
from epochal.experiment.config.arguments import to_args
from epochal.experiment.config.check_file import split_problems
from epochal.experiment.config.replaced_sections import (
    drop_replaced_sections,
    given_sections,
    log_replaced_sections,
)
from epochal.experiment.cross_validation import CrossValidation, count_folds
from epochal.experiment.record.failure import show_failure
from epochal.experiment.record.logs import FILE_ONLY, logging_to
from epochal.experiment.record.notifier import Notifier
from epochal.experiment.record.open_record import OpenRecord, open_record
from epochal.experiment.resume.changes import ChangedError
from epochal.experiment.resume.resume_plan import plan_resume
from epochal.records import NullWriter
from epochal.records.metrics.time_spent import BUILDING, CHECKS, IMPORTS, RECORD
from epochal.records.secrets import hiding_secrets, iter_config_secrets
from epochal.text.escape import decode_typed
from epochal.text.interrupts import (
    deferring_interrupts,
    leave_preemption_to_next_run,
    raising_on_preemption,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.config import Config, Node
    from epochal.experiment.config.inputs import ExperimentInputs
    from epochal.experiment.experiment import Experiment
    from epochal.experiment.resume.resume_plan import ResumePlan

logger = logging.getLogger(__name__)


def check_experiment(
    experiment: Experiment, loaded: ExperimentInputs, runner: str | None
) -> CheckReport:
    """Every mistake of the config at once, and the config with all defaults."""
    return _check(experiment, _drop_replaced(experiment, loaded, runner), runner)


def run_experiment(
    experiment: Experiment, loaded: ExperimentInputs, runner: str | None
) -> RunResult:
    """Carry out an experiment; the result tells how it ended, whatever happened.

    A run that did not end well is described on standard error, too.
    """
    with hiding_secrets(iter_config_secrets(loaded.config.root)):
        result = _run(experiment, loaded, runner)
        show_failure(result)
    return result


def _run(
    experiment: Experiment, loaded: ExperimentInputs, runner: str | None, *, is_part: bool = False
) -> RunResult:
    begun = loaded.choices.get("begun")
    times = PhaseTimer(begun=begun, part=CHECKS if begun is None else IMPORTS)
    times.switch(CHECKS)
    try:
        loaded = _drop_replaced(experiment, loaded, runner)
        report = _check(experiment, loaded, runner)
        problems, _ = split_problems(loaded.choices, report.problems)
        if problems:
            raise ConfigError(*problems)
        is_single = count_folds(report.expanded) is None
        with raising_on_preemption(), Notifier(report, is_part=is_part) as notices:
            if not is_single:  # each fold counts its own time
                return _cross_validate(experiment, loaded, report, runner, notices)
            return _run_checked(experiment, loaded, report, runner, notices, times)
    except EpochalError as error:
        if loaded.choices.get("raise_errors", False):
            raise
        return result_of_error(error)


def _drop_replaced(
    experiment: Experiment, loaded: ExperimentInputs, runner: str | None
) -> ExperimentInputs:
    named = runner or ("test" if experiment.is_test else None)
    return drop_replaced_sections(loaded, prepared=_prepared_sections(experiment), runner=named)


def _prepared_sections(experiment: Experiment) -> set[str]:
    from epochal.experiment.experiment import overrides_method

    return {name for name in ("task", "model") if overrides_method(experiment, f"prepare_{name}")}


def _check(experiment: Experiment, loaded: ExperimentInputs, runner: str | None) -> CheckReport:
    from epochal.experiment.experiment import overrides_method

    steps = {"task": "build_task", "model": "build_model", "optim": "build_optimizer"}
    given = {*loaded.given.parts, *_prepared_sections(experiment)}
    given |= {section for section, step in steps.items() if overrides_method(experiment, step)}
    given |= {name for name in ("hooks", "metrics") if getattr(loaded.given, name)}
    own: Runner | None = loaded.given.parts.get("runner")
    has_optimizer = "optim" in {*given, *loaded.config.root.mapping}
    named = runner or ("test" if experiment.is_test else None)
    if own is not None:  # the check knows runners by their names only
        named = "train" if isinstance(own, Train) and has_optimizer else "test"
    registry = build_registry(loaded.config, user_dir=loaded.user_dir)
    report = check(loaded.config, registry, runner=named, given=given)
    if own is None:
        return report
    entries = {name: node for name, node in report.expanded.mapping.items() if name != "runner"}
    expanded = replace(report.expanded, value=MappingProxyType(entries))
    problems = report.problems
    if own.needs_optimizer and not has_optimizer:
        what = f"missing; the runner {type(own).__name__!r} needs it"
        problems = (*problems, Problem("optim", what, hint=OPTIMIZER_HINT))
    return replace(report, expanded=expanded, problems=problems)


def _plan_resume(
    experiment: Experiment, loaded: ExperimentInputs, report: CheckReport, runner: str | None
) -> ResumePlan | None:
    """The run to go on with; None for a new one, which nothing may be wrong with."""

    def recheck(config: Config, folder: Path | None) -> Node:
        choices = loaded.choices | {"user_dir": loaded.user_dir or folder}
        recorded = _drop_replaced(
            experiment, replace(loaded, config=config, choices=choices), runner
        )
        return _check(experiment, recorded, runner).expanded

    resumption = plan_resume(loaded.choices, report, recheck)
    if resumption is None and report.problems:  # all others were told before
        raise ConfigError(*report.problems)
    return resumption


def _cross_validate(
    experiment: Experiment,
    loaded: ExperimentInputs,
    report: CheckReport,
    runner: str | None,
    notices: Notifier,
) -> RunResult:
    resumption = _plan_resume(experiment, loaded, report, runner)
    assembly = _build_assembly(loaded, report)
    is_kept = not loaded.choices.get("no_file", False)
    opened = open_record(loaded.config, report, is_kept=is_kept, resumption=resumption)
    with opened as record:
        notices.begin(record)
        given = given_sections(loaded, _prepared_sections(experiment))
        record.write_start(_describe(loaded, report, assembly) | {"given": given})
        record.writer.write_status("running")
        run_fold = partial(_run, experiment, runner=runner, is_part=True)
        try:
            result = CrossValidation(loaded, report.expanded, record, run_fold).carry_out()
        except Exception as error:  # raised by choice, and the record must not say "running"
            notices.write_end(record, result_of_error(error, dir=record.dir))
            raise
        with deferring_interrupts():
            notices.write_end(record, result)
    return result


def _run_checked(
    experiment: Experiment,
    loaded: ExperimentInputs,
    report: CheckReport,
    runner: str | None,
    notices: Notifier,
    times: PhaseTimer,
) -> RunResult:
    resumption = _plan_resume(experiment, loaded, report, runner)
    assembly = _build_assembly(loaded, report, is_resumed=resumption is not None)
    assembly = replace(assembly, times=times)
    times.switch(RECORD)
    is_kept = not loaded.choices.get("no_file", False)
    opened = open_record(loaded.config, report, is_kept=is_kept, resumption=resumption)
    with opened as bare:
        record = notices.begin(bare)
        times.before = record.spent
        with logging_to(record.log_path, level=assembly.args.log.level):
            given = given_sections(loaded, _prepared_sections(experiment))
            record.write_start(_describe(loaded, report, assembly) | {"given": given})
            log_replaced_sections(loaded)
            raise_errors = loaded.choices.get("raise_errors", False)
            result = _build_and_execute(
                experiment, assembly, record, notices, raise_errors=raise_errors
            )
            _log_traceback(result)
        with deferring_interrupts():
            notices.write_end(record, result)
    return result


def build_unrecorded_run(
    experiment: Experiment, loaded: ExperimentInputs, *, is_quiet: bool = False
) -> tuple[Run, Runner, CheckReport]:
    """The run that an experiment would be, built but not started, without a record.

    Args:
        experiment: What to build.
        loaded: Its config.
        is_quiet: Leave out the hooks that every run has: nothing is shown, nothing is saved.
    """
    loaded = _drop_replaced(experiment, loaded, None)
    report = _check(experiment, loaded, None)
    if report.problems:
        raise ConfigError(*report.problems)
    assembly, record = _build_assembly(loaded, report), OpenRecord(NullWriter())
    with locating_errors(report.expanded):
        run, runner = build_run(experiment, assembly, record, is_quiet=is_quiet)
    return run, runner, report


@contextmanager
def locating_errors(config: Node) -> Iterator[None]:
    """Say where a config wrote what mistakes are about that only its parts can tell."""
    try:
        yield
    except ConfigError as error:
        error.locate(config.find_place)
        raise


def _build_assembly(
    loaded: ExperimentInputs, report: CheckReport, *, is_resumed: bool = False
) -> Assembly:
    is_debug = loaded.choices.get("debug", False)
    if is_debug:
        prepare_debugging()
    args = to_args({**loaded.replaced, **report.expanded.to_plain()})
    loaded.own.attach(args, report.expanded)
    return Assembly(
        config=report.expanded,
        args=args,
        builder=Builder(build_registry(loaded.config, user_dir=loaded.user_dir)),
        device=choose_device(loaded.choices),
        given=loaded.given,
        is_debug=is_debug,
        is_resumed=is_resumed,
        written=loaded.config.root,
        num_defaults=len(report.defaults),
        source="" if loaded.config.path is None else decode_typed(str(loaded.config.path)),
    )


def _build_and_execute(
    experiment: Experiment,
    assembly: Assembly,
    record: OpenRecord,
    notices: Notifier,
    *,
    raise_errors: bool,
) -> RunResult:
    facts: dict[str, Any] = {"dir": record.dir, "config": assembly.config.to_plain()}
    run: Run | None = None
    assembly.times.switch(BUILDING)
    try:
        run, runner = build_run(experiment, assembly, record)
        record.add_meta(run.meta)
        result = execute(
            run, runner, raise_errors=raise_errors, find_place=assembly.config.find_place
        )
        leave_preemption_to_next_run()
        return result
    except ChangedError:  # nothing has begun, and the record is put back
        raise
    except BaseException as error:  # also sys.exit: the record must not say "running" for ever
        if isinstance(error, ConfigError):
            error.locate(assembly.config.find_place)
        result = replace(result_of_error(error, **facts), **assembly.times.read_spent().to_fields())
        if run is None and record.point is not None:
            at = record.point.manifest
            result = replace(result, steps=at.step, epochs=at.epoch, samples=at.samples)
        if run is not None:
            result = replace(
                result,
                steps=run.step,
                epochs=run.epoch,
                metrics=dict(run.latest),
                **read_spent(run).to_fields(),
            )
        if raise_errors or not isinstance(error, Exception | KeyboardInterrupt):
            _log_traceback(result)
            notices.write_end(record, result)
            raise
        return result


def _log_traceback(result: RunResult) -> None:
    if result.traceback:  # a terminal shows it framed, when all is over
        logger.error("%s", result.traceback.rstrip(), extra={FILE_ONLY: True})


def _describe(loaded: ExperimentInputs, report: CheckReport, assembly: Assembly) -> dict[str, Any]:
    import torch

    args, config, monitor = assembly.args, loaded.config, build_monitor(assembly)
    return {
        "project": args.project,
        "project_dir": decode_typed(str(report.project.dir)),
        "tag": args.tag,
        "desc": args.desc,
        "seed": assembly.seed,
        "runner": _name_runner(loaded, report),
        "config_path": None if config.path is None else decode_typed(str(config.path)),
        "variant": config.variant,
        "overrides": list(config.overrides),
        "torch": torch.__version__,
        "device": describe_device(assembly.device),
        "defaults": len(report.defaults),
        "init_from": assembly.config.mapping["init_from"].to_plain(),
        "monitor": None if monitor is None else monitor.metric,
    }


def _name_runner(loaded: ExperimentInputs, report: CheckReport) -> str:
    own = loaded.given.parts.get("runner")
    node = report.expanded.find("runner.type")
    return type(own).__name__ if own is not None or node is None else str(node.value)
