"""Runs configs one after the other, evaluates finished runs, and resumes unfinished ones."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import Unpack

from epochal.check import SECTIONS
from epochal.checkpoint.run_weights import RunWeights, choose_run_weights
from epochal.config import load
from epochal.config.source_file import display_name
from epochal.data.file_rows import require_row_format
from epochal.distributed.environment import read_rank_environment
from epochal.durable.remote import is_url
from epochal.engine.execute import RANK_LOST, result_of_error
from epochal.engine.interfaces.splits import split_name
from epochal.errors import CheckpointError, ConfigError, EpochalError, Problem, RecordError
from epochal.experiment.build.device import count_ranks
from epochal.experiment.config.check_file import (
    CheckedConfig,
    expand_variants,
    names_several,
    needs_expansion,
)
from epochal.experiment.config.choices import Choices, check_choices, check_overrides, to_override
from epochal.experiment.experiment import load_experiment
from epochal.experiment.record.failure import show_failure
from epochal.experiment.record.open_record import find_withheld_secrets
from epochal.experiment.record.uncaught import to_raised
from epochal.experiment.resume.resume_plan import (
    died_before_checkpoint,
    get_expanded_config,
    get_trained_record,
    get_training_record,
    last_overrides,
    split_checkpoint_name,
)
from epochal.experiment.resume.trust import require_trusted_code
from epochal.experiment.run_experiment import build_trained_model
from epochal.experiment.run_pool import run_in_pool
from epochal.experiment.run_ranks import refuse_second_start, run_ranks, wants_ranks
from epochal.launch.jobs.frozen_job import read_job
from epochal.records.find import read_run
from epochal.records.folder.experiment_facts import find_unnamed_class
from epochal.records.folder.folder import JOB_RUN_FILE_VARIABLE
from epochal.records.layout.coerce import iter_leaves
from epochal.registry.project_file import get_runs_dir, name_run
from epochal.text.escape import decode_typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import nn

    from epochal.engine import RunResult
    from epochal.launch.jobs.frozen_job import FrozenJob
    from epochal.records import RunRecord

logger = logging.getLogger(__name__)

_MAX_PATH = 250  # characters; a longer text is not a path
_PATH_SECTIONS = ("task", "model", "data", "hooks", "loss", "metrics")  # with paths of the user
_ENDS_SERIES = ("interrupted", "preempted")
_LIMIT_KEYS = ("limit_batches", "limit_eval_batches")
WeightsName = str | int | Path | None
Devices = str | int | list[str | int] | list[int] | list[str] | None
ConfigSource = Any  # a path, a mapping, a namespace or an OmegaConf object


@overload
def run(
    source: list[ConfigSource],
    *,
    overrides: Sequence[str] = ...,
    devices: Devices = ...,
    per_device: int | None = ...,
    **choices: Unpack[Choices],
) -> list[RunResult]: ...


@overload
def run(
    source: ConfigSource, *, overrides: Sequence[str] = ..., **choices: Unpack[Choices]
) -> RunResult: ...


def run(
    source: ConfigSource | list[ConfigSource],
    *,
    overrides: Sequence[str] = (),
    devices: Devices = None,
    per_device: int | None = None,
    **choices: Unpack[Choices],
) -> RunResult | list[RunResult]:
    """Run what a config describes; a list of configs gives a list of results, in that order.

    A run that fails is recorded and described on standard error, then its error is raised; with
    ``raise_errors=False`` the result describes it instead, as it does for a list of configs. Ctrl-C
    and SIGTERM end a list: ``KeyboardInterrupt`` is raised, or with
    ``raise_errors=False`` the runs that were not started have such a result too.

    Args:
        source: A file, a mapping, an argparse namespace or an OmegaConf object, or a list.
        overrides: Changes such as ``optim.lr=1e-3``.
        devices: For a list: run the configs at once, each in its own process, on these devices,
            such as ``[0, 1]`` or ``"cpu"``; ``device`` is then the preferred one.
        per_device: How many of them share a device; without ``devices``: on all GPUs, or the CPU.
        choices: What belongs to this run alone; see ``Choices``.
    """
    __tracebackhide__ = True
    refuse_second_start()
    check_choices(choices, sections=SECTIONS)
    if devices is not None or per_device is not None:
        if not isinstance(source, list):
            what = "runs a list of configs"
            raise ConfigError(Problem("devices", what, hint="ep.run([config], devices=...)"))
        return run_in_pool(
            source, overrides=overrides, choices=choices, devices=devices, per_device=per_device
        )
    sources = source if isinstance(source, list) else [source]
    is_single = not isinstance(source, list) and not names_several(choices.get("variant"))
    is_raised = choices.get("raise_errors", True)
    choices = {"raise_errors": is_single, **choices}
    results = list(run_series(sources, overrides=overrides, **choices))
    for result in results if is_raised else ():
        if result.status in _ENDS_SERIES:
            raise to_raised(result, None)
    return results[0] if is_single else results


def run_series(
    sources: Sequence[ConfigSource], *, overrides: Sequence[str] = (), **choices: Unpack[Choices]
) -> Iterator[RunResult]:
    """The result of each run as it ends; a failed run does not stop the others.

    After Ctrl-C and SIGTERM the others are not started, and have a result that says so. A source
    may also be a ``CheckedConfig``, which is not loaded again.
    """
    ended: RunResult | None = None
    for source in sources:
        for variant in _variants(source, choices):
            if ended is not None:
                yield _not_started(ended)
                continue
            try:
                result = _run_one(source, overrides, choices | {"variant": variant})
            except SystemExit as end:  # the user's code called sys.exit; its record says so
                if choices.get("raise_errors"):
                    raise
                result = result_of_error(end)
            choices["begun"] = None  # the next run starts only now
            yield result
            ended = result if result.status in _ENDS_SERIES else None


def run_job(file: Path, placed: Choices, *, resume: Path | None = None) -> RunResult:
    """Run a frozen job with its own config and code, or resume its run.

    Args:
        file: The file of the job.
        placed: Where it runs: the device, and how many processes and machines share it.
        resume: The run to continue.

    Raises:
        RecordError: The file is damaged.
    """
    job = read_job(file)
    if job.is_resume:
        return _resume_job(job, resume, placed)
    here: Choices = {**placed, "frozen": job.code}
    choices: Choices = {**job.choices, **here}  # type: ignore[typeddict-item]  # from the file that freeze_configs wrote
    if resume is not None:
        choices |= {"resume": resume, "resume_from": None}
    result = _run_one(job.source, job.overrides, choices)
    if not job.has_test or not result.ok or result.dir is None:  # another machine has the record
        return result
    os.environ.pop(JOB_RUN_FILE_VARIABLE, None)  # the run of the job is the training
    for name in ("nproc", "fast", "debug"):
        if name in choices:
            here[name] = choices[name]
    here |= {"nnodes": None, "rdzv_endpoint": None, "begun": None}
    return ([one for one in test_trained(result, **here) if not one.ok] or [result])[0]


def test_trained(trained: RunResult, **choices: Unpack[Choices]) -> list[RunResult]:
    """Evaluate a run that has just been trained on its test data; each fold, if it has any."""
    assert trained.dir is not None, "a run without a record has no weights"
    folders = [one.path for one in read_run(trained.dir).folds] or [trained.dir]
    choices["raise_errors"] = False
    return [test(one, trust=True, **choices) for one in folders]


def _resume_job(job: FrozenJob, run_dir: Path | None, placed: Choices) -> RunResult:
    """Resume the run of a job with its own config, if its code is part of this project.

    The job may have a copy of the code that the run had, where the project has changed since.
    """
    if run_dir is None:
        raise RecordError(f"{job.name} can no longer be resumed\n  it has finished, or was deleted")
    choices: Choices = {**placed, "raise_errors": False}
    if job.code.project.copy is not None:
        choices["frozen"] = job.code
    return resume(run_dir, runs_dir=job.log_dir, **choices)


def test(
    run_name: Path | str,
    *,
    weights: WeightsName = None,  # noqa: PT028 - not a test of pytest
    overrides: Sequence[str] = (),  # noqa: PT028
    runs_dir: Path | str | None = None,  # noqa: PT028
    trust: bool = False,  # noqa: PT028
    **choices: Unpack[Choices],
) -> RunResult:
    """Evaluate a run on its test data, as a separate run.

    Args:
        run_name: Its folder, id or tag, a part of them, or ``last``.
        weights: ``best``, ``last``, ``final``, a step, the name of a checkpoint, or a path; by
            default the best, without a monitor the final ones. The result says which.
        overrides: Changes to its config.
        runs_dir: Where names are looked up; by default the folder of the project's runs.
        trust: Execute the run's code even if it is not part of this project.
        choices: What belongs to this evaluation alone; ``user_dir`` names other code for it.

    Raises:
        RecordError: There is no such run.
        UntrustedCodeError: Its code is not part of this project.
        CheckpointError: It has no such weights, or Python gave some parts.
    """
    choices = {"raise_errors": True, **choices}
    folder = get_runs_dir(runs_dir)
    return evaluate_run(
        run_name, "test", folder, weights=weights, overrides=overrides, trust=trust, **choices
    )


def predict(
    run_name: Path | str,
    *,
    input: Path | str | None = None,
    output: Path | str | None = None,
    batch_size: int | None = None,
    weights: WeightsName = None,
    overrides: Sequence[str] = (),
    runs_dir: Path | str | None = None,
    trust: bool = False,
    **choices: Unpack[Choices],
) -> RunResult:
    """Collect the outputs of a run's model as ``result.value``; takes what ``test`` takes too.

    Args:
        run_name: As for ``test``.
        input: A file or URL of rows to predict (JSON lines, JSON, CSV, Parquet, npz, txt), instead
            of the data of the config.
        output: A file for the predictions, JSON lines or Parquet; ``result.value`` is then its
            path and their number. A prediction that was killed is continued.
        batch_size: Rows of the input in a batch, 64 by default.
        weights: As for ``test``, and so are all others.
        overrides: Changes to its config.
        runs_dir: Where names are looked up.
        trust: Execute the run's code even if it is not part of this project.
        choices: What belongs to this prediction alone.
    """
    choices = {"raise_errors": True, **choices}
    return evaluate_run(
        run_name,
        "predict",
        get_runs_dir(runs_dir),
        weights=weights,
        overrides=overrides,
        trust=trust,
        changes=describe_prediction(
            input, None if output is None else Path(output).absolute(), batch_size
        ),
        **choices,
    )


def describe_prediction(
    input: Path | str | None, output: Path | str | None, batch_size: int | None = None
) -> dict[str, object]:
    """The changes to a config that predicts rows of a file, or into a file."""
    changes: dict[str, object] = {}
    if input is not None:
        path = str(input) if is_url(input) else str(Path(input).absolute())
        require_row_format(path)
        size = 64 if batch_size is None else batch_size
        changes["data.predict"] = {"type": "file", "path": path, "batch_size": size}
    elif batch_size is not None:
        what = "is the number of rows of an input in a batch, and there is no input"
        hint = "change data.predict.batch_size instead"
        raise ConfigError(Problem("batch_size", what, hint=hint))
    if output is not None:
        changes["runner"] = {"type": "predict", "output": str(output)}
    return changes


def load_model(
    run_name: Path | str,
    *,
    weights: WeightsName = None,
    device: str = "cpu",
    overrides: Sequence[str] = (),
    runs_dir: Path | str | None = None,
    user_dir: Path | str | None = None,
    trust: bool = False,
) -> nn.Module:
    """The model of a run, in eval mode; takes what ``test`` takes. Nothing else is built.

    Raises:
        RecordError: There is no such run.
        CheckpointError: It has no such weights, or Python gave the model.
        UntrustedCodeError: Its code is not part of this project.
    """
    record = get_trained_record(run_name, get_runs_dir(runs_dir))
    chosen = choose_run_weights(record, weights)
    _require_configured(record, "load", ("model",), chosen)
    config, choices = get_expanded_config(record), Choices(device=device, no_file=True)
    choices["user_dir"] = user_dir or require_trusted_code(record, trust=trust)
    values = record.run.get("task_values")
    known = values.items() if isinstance(values, dict) else ()  # the file may be damaged
    changes = {key: value for key, value in known if key.startswith("model.")}
    changes |= _evaluation_changes(record, "test", chosen)
    changed = _recorded_overrides(record, config, changes, overrides, choices)
    experiment = load_experiment(config, overrides=changed, choices=choices)
    return build_trained_model(experiment, experiment.inputs)


def evaluate_run(
    run_name: Path | str,
    runner: str,
    runs_dir: Path,
    /,
    *,
    weights: WeightsName = None,
    overrides: Sequence[str] = (),
    trust: bool = False,
    changes: Mapping[str, object] | None = None,
    **choices: Unpack[Choices],
) -> RunResult:
    """Evaluate weights of a run with the config it ran with; see ``test``.

    ``changes`` are further changes to that config; data that they describe replace its data.
    """
    check_choices(choices, sections=SECTIONS)
    record = get_trained_record(run_name, runs_dir)
    chosen = choose_run_weights(record, weights)
    _require_configured(record, runner, ("task", "model", "data"), chosen)
    config = get_expanded_config(record, f"runner={runner} init_from={chosen.path}")
    if choices.get("user_dir") is None:
        choices["user_dir"] = require_trusted_code(record, trust=trust)
    changes = {**_evaluation_changes(record, runner, chosen), **(changes or {})}
    for key, value in list(changes.items()):
        section, _, split = key.partition(".")
        if section == "data" and isinstance(value, dict):
            data = record.expanded.get("data")
            before = data.get(split) if isinstance(data, dict) else None
            gone = [one for one in before or () if one not in value]
            changes |= {f"{key}.{one}": "$delete" for one in gone}
    log_dir = record.expanded.get("record", {}).get("log_dir")
    is_here = runs_dir.resolve() in record.path.resolve().parents
    if is_here and log_dir != str(runs_dir):  # it was relative to another folder
        changes.setdefault("record.log_dir", str(runs_dir))
    if not choices.get("fast"):  # a trial run limits its own evaluations only
        train = record.expanded.get("train")
        limits = [key for key in _LIMIT_KEYS if isinstance(train, dict) and train.get(key)]
        changes |= {f"train.{key}": None for key in limits}
    if not any(one.startswith("init_from") for one in overrides):
        choices["evaluated"] = f"{chosen} of {name_run(record.path)}"
    return _run_recorded(record, config, changes, overrides, choices)


def evaluate_checkpoints(
    run_name: Path | str,
    runs_dir: Path,
    /,
    *,
    split: str = "val",
    is_watching: bool = False,
    overrides: Sequence[str] = (),
    trust: bool = False,
    **choices: Unpack[Choices],
) -> RunResult:
    """Evaluate every checkpoint of a run, as a separate run; see ``epochal evaluate``."""
    check_choices(choices, sections=SECTIONS)
    if count_ranks(choices) > 1:
        what, hint = "checkpoints are evaluated in one process", "name one device"
        raise ConfigError(Problem("--device", what, hint=hint))
    of_split = split_name(split, key="--split")
    record = read_run(run_name, runs_dir)
    chosen = RunWeights(record.path, "checkpoints")
    _require_configured(record, "evaluate", ("task", "model", "data"), chosen)
    config = get_expanded_config(record)
    if choices.get("user_dir") is None:
        choices["user_dir"] = require_trusted_code(record, trust=trust)
    runner = {"type": "watch", "run": str(record.path.absolute()), "split": of_split}
    changes = _evaluation_changes(record, "watch", chosen)
    changes |= {"runner": {**runner, "is_once": not is_watching}, "init_from": None}
    return _run_recorded(record, config, changes, overrides, choices)


def resume(
    run_name: Path | str,
    *,
    overrides: Sequence[str] = (),
    runs_dir: Path | str | None = None,
    trust: bool = False,
    **choices: Unpack[Choices],
) -> RunResult:
    """Resume a run from its newest checkpoint, in its own folder.

    A run that died before its first checkpoint starts again at step 0.

    Args:
        run_name: Its folder, id or tag, a part of them, or ``last``; or the folder of a
            checkpoint.
        overrides: Changes such as ``train.for=20ep``; those that change what is computed are
            refused unless ``allow_changed=True``.
        runs_dir: Where names are looked up; by default the folder of the project's runs.
        trust: Execute the run's code even if it is not part of this project.
        choices: What belongs to this process alone; ``resume_from`` names a checkpoint.

    Raises:
        RecordError: There is no such run.
        UntrustedCodeError: Its code is not part of this project.
        CheckpointError: Its checkpoints or its config are missing, or Python gave some parts.
    """
    __tracebackhide__ = True
    check_choices(choices, sections=SECTIONS)
    choices = {"raise_errors": True, **choices}
    run_name, checkpoint = split_checkpoint_name(run_name)
    record = get_training_record(run_name, get_runs_dir(runs_dir))
    _refuse_given(record)
    if checkpoint and not choices.get("resume_from"):
        choices["resume_from"] = checkpoint
    if choices.get("user_dir") is None:
        choices["user_dir"] = require_trusted_code(record, trust=trust)
    choices["resume"] = record.path
    has_weights = record.expanded.get("init_from") is not None
    if died_before_checkpoint(record):
        has_weights = False  # the run starts with them again; otherwise the file may be gone by now
    changes = {"init_from": None} if has_weights else {}
    config = get_expanded_config(record, allows_changes=bool(choices.get("allow_changed")))
    return _run_recorded(record, config, changes, overrides, choices)


def _run_recorded(
    record: RunRecord,
    config: Path,
    changes: Mapping[str, object],
    overrides: Sequence[str],
    choices: Choices,
) -> RunResult:
    """Run a recorded config with the changes of its last attempt, ``changes`` and ``overrides``."""
    refuse_second_start()
    _warn_about_paths(record)
    changed = _recorded_overrides(record, config, changes, overrides, choices)
    return _run_one(config, changed, choices)


def _recorded_overrides(
    record: RunRecord,
    config: Path,
    changes: Mapping[str, object],
    overrides: Sequence[str],
    choices: Choices,
) -> list[str]:
    """The changes to a recorded config: of its last attempt, ``changes`` and ``overrides``."""
    check_overrides(overrides)
    typed = [decode_typed(one) for one in overrides]
    keys = {one.partition("=")[0].strip() for one in typed}
    keys |= {"train.for"} if choices.get("epochs") is not None else set()
    replaced = keys | {*changes}
    changed = [one for one in last_overrides(record) if one.partition("=")[0] not in replaced]
    changed += [to_override(key, value) for key, value in changes.items() if key not in keys]
    changed += typed
    return [*changed, *find_withheld_secrets(record, config, changed)]


def _warn_about_paths(record: RunRecord) -> None:
    """Warn of relative paths that existed where the run was started, but not here."""
    begun_in, here = record.run.get("cwd"), Path.cwd()
    if not isinstance(begun_in, str) or Path(begun_in) == here:
        return
    for key, value in iter_leaves({name: record.expanded.get(name) for name in _PATH_SECTIONS}):
        if not isinstance(value, str) or not 0 < len(value) < _MAX_PATH:
            continue
        if (Path(begun_in) / value).exists() and not (here / value).exists():
            text = "%s: %r is relative to %s, where the run was started, and is not in %s"
            logger.warning(f"{text}\n  run `cd %s` first", key, value, begun_in, here, begun_in)


def _refuse_given(record: RunRecord) -> None:
    """Refuse a run if its config does not describe every part."""
    _refuse_unnamed_class(record, "resume", f"choices={{'resume': {str(record.path)!r}}})")
    given = record.run.get("given")
    if isinstance(given, list) and given:
        raise CheckpointError(
            f"{record.path}: {', '.join(map(str, given))} came from Python, so its config alone "
            "cannot resume it\n"
            "  run the script that made it, with "
            f"Experiment(..., choices={{'resume': {str(record.path)!r}}})"
        )


def _refuse_unnamed_class(record: RunRecord, verb: str, arguments: str) -> None:
    """Refuse a run whose parts are built by a class that its config cannot name."""
    found = find_unnamed_class(record.run)
    if found is not None:
        script = display_name(Path(found.script)) if found.script else "the script that made it"
        raise CheckpointError(
            f"{record.path}: its config alone cannot {verb} it\n"
            f"  its experiment is {found}\n"
            f"  another process cannot import that class: {found.why}\n"
            f"  run {script} with {found.name}(..., {arguments}"
        )


def _require_configured(
    record: RunRecord, verb: str, parts: Sequence[str], chosen: RunWeights
) -> None:
    """Refuse a run if its config does not describe these parts."""
    method = "test" if verb in ("load", "evaluate") else verb
    arguments = f"init_from={str(chosen.path)!r}).{method}()"
    _refuse_unnamed_class(record, verb, arguments)
    given = record.run.get("given")
    known = given if isinstance(given, list) else ()  # the file may be damaged
    missing = [name for name in parts if name in known]
    if missing:
        text = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        advice = (
            f"use experiment.{method}() in the script that made them, with "
            f"init_from={str(chosen.path)!r}"
        )
        if verb == "load":
            advice = (
                f"build the model, then load the weights: ep.recover(model, {str(record.path)!r})"
            )
        raise CheckpointError(
            f"{record.path}: its {text} came from Python, so its config alone cannot {verb} it\n"
            f"  {advice}"
        )


def _evaluation_changes(record: RunRecord, runner: str, chosen: RunWeights) -> dict[str, object]:
    """The changes to the config of a training that an evaluation needs."""
    changes: dict[str, object] = {"runner": runner, "init_from": chosen.init_from}
    # An evaluation does not use them, so its record should not show them.
    unused = ("optim", "schedule", "notify")
    changes |= {key: "$delete" for key in unused if record.expanded.get(key)}
    if record.expanded.get("record", {}).get("exact"):  # the training has that folder
        changes |= {"record.exact": False, "record.log_dir": str(record.path / runner)}
    return changes


def run_rank(source: ConfigSource, overrides: Sequence[str], choices: Choices) -> RunResult | None:
    """Run as one of several processes; the first one of each machine returns the result.

    Raises:
        SystemExit: Another process is lost; the exit code tells the launcher.
    """
    try:
        result = _run_one(source, overrides, {**choices, "raise_errors": False})
    except (KeyboardInterrupt, SystemExit) as end:  # the user's code may call sys.exit
        result = result_of_error(end)
    if result.reason == RANK_LOST:
        raise SystemExit(result.exit_code)
    place = read_rank_environment()
    return result if place is None or place.local_rank == 0 else None


def _run_one(source: ConfigSource, overrides: Sequence[str], choices: Choices) -> RunResult:
    __tracebackhide__ = True
    raise_errors = choices.get("raise_errors", False)
    if wants_ranks(choices):
        result = run_ranks(run_rank, source, overrides, choices)
        if raise_errors and not result.ok:
            is_error = result.status == "failed"
            raise to_raised(result, EpochalError(result.message) if is_error else None)
        return result
    try:
        experiment = load_experiment(source, overrides=overrides, choices=choices)
        return experiment.run(raise_errors=raise_errors)
    except EpochalError as error:
        if raise_errors:
            raise
        result = result_of_error(error)
        show_failure(result)
        return result


def _not_started(ended: RunResult) -> RunResult:
    """The result of a run that was not started, because an earlier one was interrupted."""
    message = f"not started: an earlier run of the series was {ended.status}"
    return type(ended)(
        status=ended.status, reason=ended.reason, message=message, exit_code=ended.exit_code
    )


def _variants(source: ConfigSource, choices: Choices) -> Sequence[str | None]:
    if isinstance(source, CheckedConfig):
        return [source.config.variant]
    chosen = choices.get("variant")
    if chosen is None or not needs_expansion(chosen):
        return [chosen]
    try:
        found = load(source, allow_python=choices.get("allow_python", False)).variants
    except EpochalError:  # the run itself reports it
        return [None]
    return expand_variants(chosen, found)
