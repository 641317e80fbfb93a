"""Runs configs one after the other, evaluates finished runs, and resumes unfinished ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import Unpack

from epochal.check import SECTIONS
from epochal.config import load
from epochal.config.source_file import display_name
from epochal.engine.execute import result_of_error
from epochal.errors import CheckpointError, EpochalError
from epochal.experiment.config.check_file import ALL_VARIANTS, CheckedConfig
from epochal.experiment.config.choices import check_choices, to_override
from epochal.experiment.experiment import load_experiment
from epochal.experiment.record.failure import show_failure
from epochal.experiment.record.open_record import find_withheld_secrets
from epochal.experiment.record.success import FINAL_WEIGHTS
from epochal.experiment.resume.resume_plan import (
    died_before_checkpoint,
    get_expanded_config,
    get_training_record,
    last_overrides,
    project_dir,
    require_project_dir,
    split_checkpoint_name,
)
from epochal.records import RunRecord, find_runs, read_run
from epochal.records.folder.experiment_facts import find_unnamed_class
from epochal.records.layout.coerce import iter_leaves
from epochal.text.escape import decode_typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.engine import RunResult
    from epochal.experiment.config.choices import Choices

logger = logging.getLogger(__name__)

_MAX_PATH = 250  # characters; a longer text is no path
_BUILT = ("task", "model", "data", "hooks", "loss", "metrics")  # sections with the user's paths
ConfigSource = Any  # a path, a mapping, a namespace or an OmegaConf object


@overload
def run(
    source: list[ConfigSource], *, overrides: Sequence[str] = ..., **choices: Unpack[Choices]
) -> list[RunResult]: ...


@overload
def run(
    source: ConfigSource, *, overrides: Sequence[str] = ..., **choices: Unpack[Choices]
) -> RunResult: ...


def run(
    source: ConfigSource | list[ConfigSource],
    *,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> RunResult | list[RunResult]:
    """Run what a config describes; a list of configs gives a list of results, in that order.

    The result also describes a failure; with ``raise_errors=True`` an error is raised instead.

    Args:
        source: A file, a mapping, an argparse namespace or an OmegaConf object, or a list.
        overrides: Changes such as ``optim.lr=1e-3``.
        choices: What belongs to this run alone; see ``Choices``.
    """
    check_choices(choices, sections=SECTIONS)
    sources = source if isinstance(source, list) else [source]
    results = list(run_series(sources, overrides=overrides, **choices))
    is_single = not isinstance(source, list) and choices.get("variant") != ALL_VARIANTS
    return results[0] if is_single else results


def run_series(
    sources: Sequence[ConfigSource], *, overrides: Sequence[str] = (), **choices: Unpack[Choices]
) -> Iterator[RunResult]:
    """The result of each run as it ends; a failed run does not stop the others.

    Ctrl-C and SIGTERM do. A source may also be a ``CheckedConfig``, which is not loaded again.
    """
    for source in sources:
        for variant in _variants(source, choices):
            result = _run_one(source, overrides, choices | {"variant": variant})
            choices["begun"] = None  # the next run starts only now
            yield result
            if result.status in ("interrupted", "preempted"):
                return


def evaluate_run(
    run_name: str,
    runner: str,
    runs_dir: Path,
    /,
    *,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> RunResult:
    """Evaluate the final weights of a run, with the config it ran with.

    Raises:
        RecordError: There is no such run.
        CheckpointError: It left no weights.
    """
    record = _read_finished(run_name, runs_dir)
    weights = record.path / FINAL_WEIGHTS
    if not weights.is_file():
        raise CheckpointError(
            f"{record.path}: has no weights to {runner}, it is {record.summary.status!r}\n"
            f"  weights are written as {weights.name} when a training ends; "
            "`epochal runs` lists other runs"
        )
    _require_configured(record, runner)
    config = get_expanded_config(record, f"runner={runner} init_from={weights}")
    if choices.get("user_dir") is None:
        choices["user_dir"] = project_dir(record)
    changes = _changes(record, runner) | {"init_from": str(weights)}
    return _run_recorded(record, config, changes, overrides, choices)


def resume(
    run_name: Path | str,
    *,
    overrides: Sequence[str] = (),
    runs_dir: Path | str = "runs",
    **choices: Unpack[Choices],
) -> RunResult:
    """Resume a run from its newest checkpoint, in its own folder.

    A run that died before its first checkpoint starts again at step 0.

    Args:
        run_name: Its folder, its id or a part of it, or ``last`` for the newest training; or the
            folder of a checkpoint.
        overrides: Changes such as ``train.for=20ep``; those that change what is computed are
            refused unless ``allow_changed=True``.
        runs_dir: Where ids are looked up.
        choices: What belongs to this process alone; ``resume_from`` names a checkpoint.

    Raises:
        RecordError: There is no such run.
        CheckpointError: Its checkpoints or its config are missing, or Python gave some parts.
    """
    check_choices(choices, sections=SECTIONS)
    run_name, checkpoint = split_checkpoint_name(run_name)
    record = get_training_record(run_name, Path(runs_dir))
    _refuse_given(record)
    if checkpoint and not choices.get("resume_from"):
        choices["resume_from"] = checkpoint
    if choices.get("user_dir") is None:
        choices["user_dir"] = require_project_dir(record)
    choices["resume"] = record.path
    has_weights = record.expanded.get("init_from") is not None
    if died_before_checkpoint(record):
        has_weights = False  # the run starts with them again; otherwise the file may be gone by now
    changes = {"init_from": None} if has_weights else {}
    return _run_recorded(record, get_expanded_config(record), changes, overrides, choices)


def _run_recorded(
    record: RunRecord,
    config: Path,
    changes: Mapping[str, object],
    overrides: Sequence[str],
    choices: Choices,
) -> RunResult:
    """Run a recorded config with the changes of its last attempt, ``changes`` and ``overrides``."""
    _warn_about_paths(record)
    typed = [decode_typed(one) for one in overrides]
    keys = {one.partition("=")[0].strip() for one in typed}
    keys |= {"train.for"} if choices.get("epochs") is not None else set()
    changed = [one for one in last_overrides(record) if one.partition("=")[0] not in keys]
    changed += [to_override(key, value) for key, value in changes.items() if key not in keys]
    changed += typed
    return _run_one(config, [*changed, *find_withheld_secrets(record, config, changed)], choices)


def _warn_about_paths(record: RunRecord) -> None:
    """Warn if relative paths of a config led to files where the run was started, but not here."""
    begun_in, here = record.run.get("cwd"), Path.cwd()
    if not isinstance(begun_in, str) or Path(begun_in) == here:
        return
    for key, value in iter_leaves({name: record.expanded.get(name) for name in _BUILT}):
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
    """Refuse a run whose parts a class builds that its config cannot name."""
    found = find_unnamed_class(record.run)
    if found is not None:
        script = display_name(Path(found.script)) if found.script else "the script that made it"
        raise CheckpointError(
            f"{record.path}: its config alone cannot {verb} it\n"
            f"  its experiment is {found}\n"
            f"  another process cannot import that class: {found.why}\n"
            f"  run {script} with {found.name}(..., {arguments}"
        )


def _read_finished(run_name: str, runs_dir: Path) -> RunRecord:
    """The named record; ``last`` is the newest run with final weights, if there is one."""
    if run_name == "last":
        for summary in reversed(find_runs(runs_dir)):
            if (summary.path / FINAL_WEIGHTS).is_file():
                return read_run(summary.path)
    return read_run(run_name, runs_dir)


def _require_configured(record: RunRecord, runner: str) -> None:
    """Refuse a run if its config does not describe task, model and data."""
    weights = str(record.path / FINAL_WEIGHTS)
    _refuse_unnamed_class(record, runner, f"init_from={weights!r}).{runner}()")
    given = record.run.get("given")
    known = given if isinstance(given, list) else ()  # the file may be damaged
    missing = [name for name in ("task", "model", "data") if name in known]
    if missing:
        parts = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
        raise CheckpointError(
            f"{record.path}: its {parts} came from Python, so its config alone cannot {runner} it\n"
            f"  use experiment.{runner}() in the script that made them, with "
            f"init_from={weights!r}"
        )


def _changes(record: RunRecord, runner: str) -> dict[str, object]:
    """The changes to the config of a training that an evaluation needs."""
    changes: dict[str, object] = {"runner": runner}
    # An evaluation does not use them, so its record should not show them.
    unused = ("optim", "schedule", "notify")
    changes |= {key: "$delete" for key in unused if record.expanded.get(key)}
    if record.expanded.get("record", {}).get("exact"):  # the training has that folder
        changes |= {"record.exact": False, "record.log_dir": str(record.path / runner)}
    return changes


def _run_one(source: ConfigSource, overrides: Sequence[str], choices: Choices) -> RunResult:
    try:
        return load_experiment(source, overrides=overrides, choices=choices).run()
    except EpochalError as error:
        if choices.get("raise_errors"):
            raise
        result = result_of_error(error)
        show_failure(result)
        return result


def _variants(source: ConfigSource, choices: Choices) -> Sequence[str | None]:
    if isinstance(source, CheckedConfig):
        return [source.config.variant]
    if choices.get("variant") != ALL_VARIANTS:
        return [choices.get("variant")]
    try:
        found = load(source, allow_python=choices.get("allow_python", False)).variants
    except EpochalError:  # the run itself reports it
        return [None]
    return [*found] or [None]
