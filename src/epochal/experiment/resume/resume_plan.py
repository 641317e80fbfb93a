"""Decides whether and from which checkpoint a run resumes; refuses changed configs and code."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.checkpoint.run_weights import RunWeights, choose_run_weights
from epochal.checkpoint.weights import FINAL_WEIGHTS_FILE
from epochal.config import dump, load
from epochal.engine.interfaces.run import ResumePoint
from epochal.errors import DIVERGED, CheckpointError, ConfigError, Problem, suggest
from epochal.experiment.resume.changes import (
    Change,
    changes_to_overrides,
    find_code_changes,
    find_config_changes,
    refuse_changes,
)
from epochal.records import RunRecord, find_runs, read_run
from epochal.records.find import find_record, resolve_run
from epochal.records.folder.checkpoint_manifests import (
    find_best_checkpoint,
    find_checkpoints,
    find_newest_checkpoint,
)
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.folder.reader import find_expanded_config, read_time_spent
from epochal.records.folder.record_digests import find_changed_files, is_recorded_config
from epochal.records.layout.attempts import Attempt, begin_attempt, find_cause
from epochal.records.layout.run_folders import is_run_folder
from epochal.records.layout.run_status import ACTIVE_STATUSES, EVALUATIONS
from epochal.records.metrics.time_spent import parse_time_spent
from epochal.records.secrets import redact, redact_config
from epochal.registry.project_file import name_run
from epochal.text.escape import to_openable_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.check import CheckReport
    from epochal.experiment.config.choices import Choices
    from epochal.experiment.config.inputs import CheckedInputs
    from epochal.records.folder.checkpoint_manifests import CheckpointDamage, CheckpointManifest
    from epochal.records.metrics.time_spent import TimeSpent
    from epochal.registry.project import Project

logger = logging.getLogger(__name__)

AUTO = "auto"
LAST = "last"
BEST = "best"
EXPANDED = "expanded"
_END_REASONS = ("max_epochs", "max_steps", "max_samples", "max_time", "completed", "early_stop")
_LENGTHS = ("train.", "stages")


@final
@dataclass(frozen=True, kw_only=True)
class ResumePlan:
    """The run to resume, and how; nothing in its folder has changed yet."""

    record: RunRecord
    chosen: str
    """``last``, ``best`` or the name of a checkpoint."""

    overrides: tuple[str, ...]
    """Every change to the config as it was first recorded."""

    changes: tuple[Change, ...]
    """What differs from the last attempt: the config, the code."""

    allows_changes: bool
    has_state: bool = True
    """Whether it resumes from a checkpoint; a cross validation resumes its folds."""

    starts_again: bool = False
    """Whether it starts at step 0, since the run died before its first checkpoint."""

    @property
    def checkpoint_dir(self) -> Path:
        """The folder of its checkpoints."""
        return self.record.path / CHECKPOINTS_DIR

    def begin(self, point: ResumePoint | None, *, is_supervised: bool = False) -> Attempt:
        """The attempt of this process, which resumes from ``point`` if there is one."""
        cause = find_cause(self.record.summary.status, is_supervised=is_supervised)
        known = [self.record.summary.attempt, *(one.attempt for one in self.record.attempts)]
        known += [one.attempt for one in find_checkpoints(self.checkpoint_dir)]
        attempt = replace(
            begin_attempt(max(known) + 1, cause),
            overrides=self.overrides,
            changed=tuple(map(str, self.changes)),
        )
        if self.starts_again:
            return replace(attempt, kept_points=0)
        if point is None:
            return attempt
        points = point.state.get("log", {}).get("points")
        return replace(
            attempt,
            checkpoint=point.manifest.name,
            origin=point.manifest.attempt,
            step=point.manifest.step,
            kept_points=points if isinstance(points, int) else None,
        )


def read_spent_before(record: RunRecord, point: ResumePoint | None) -> TimeSpent:
    """The time of all attempts so far; a checkpoint may know more about a killed one."""
    spent = read_time_spent(record)
    if record.summary.status in ACTIVE_STATUSES:  # it was killed, and could not write its end
        spent = replace(spent, killed=spent.killed + 1)
    if point is None:
        return spent
    at = parse_time_spent(point.state.get("clock", {}).get("spent", {}))
    if at.seconds > spent.seconds:
        return replace(at, killed=spent.killed)
    return spent.go_back(at) if record.summary.step > point.manifest.step else spent


def plan_resume(checked: CheckedInputs) -> ResumePlan | None:
    """How to resume the run that the choices name; None to start a new one.

    Raises:
        RecordError: There is no such run.
        ConfigError: Its config or its code has changed.
    """
    choices, report = checked.inputs.choices, checked.report
    named = choices.get("resume")
    if named is None:
        return None
    _require_resumable(choices, report)
    run_name, checkpoint = split_checkpoint_name(named)
    if str(named) == AUTO:
        record = _find_unfinished(checked)
        if record is None:
            return None
    else:
        record = get_training_record(run_name, _runs_dir(report))
    is_allowed = bool(choices.get("allow_changed"))
    first, latest = _read_configs(record, checked, allows_changes=is_allowed)
    values = redact_config(report.expanded).to_public()  # as in the record
    changes = [
        *_file_changes(record),
        *find_config_changes(latest, values),
        *_class_changes(record, checked),
        *_code_changes(record, report.project),
    ]
    if not is_allowed:
        refuse_changes(record.path, changes)
    _refuse_ended(record, changes)
    chosen = choices.get("resume_from") or checkpoint or LAST
    starts_again = chosen == LAST and died_before_checkpoint(record)
    return ResumePlan(
        record=record,
        chosen=chosen,
        overrides=changes_to_overrides(find_config_changes(first, values)),
        changes=tuple(changes),
        allows_changes=is_allowed,
        has_state=not (_has_folds(record) or starts_again),
        starts_again=starts_again,
    )


def find_weights_to_evaluate(checked: CheckedInputs) -> tuple[RunWeights, str] | None:
    """The weights of the run that the choices name, if it is to be evaluated and not resumed.

    They come with a text that says which ones they are.

    Raises:
        RecordError: There is no such run.
        CheckpointError: It has no such weights.
    """
    choices, expanded = checked.inputs.choices, checked.report.expanded
    named = choices.get("resume")
    if named in (None, AUTO) or expanded.get("runner.type").value not in EVALUATIONS:
        return None
    path = Path(str(named)).expanduser()
    if path.is_file():
        return RunWeights(path, str(path)), str(path)
    run_name, checkpoint = split_checkpoint_name(path if path.exists() else str(named))
    record = get_trained_record(run_name, _runs_dir(checked.report))
    weights = choose_run_weights(record, choices.get("resume_from") or checkpoint or None)
    return weights, f"{weights} of {name_run(record.path)}"


def get_trained_record(run_name: Path | str, runs_dir: Path) -> RunRecord:
    """The named record; ``last`` and tags mean runs with weights, if there are any."""
    if is_run_folder(Path(run_name)):
        return read_run(run_name)
    found = resolve_run(str(run_name), runs_dir, is_wanted=_has_weights)
    newest = resolve_run(str(run_name), runs_dir)
    if newest != found:
        text = "%s: %s has no weights, so it means %s"
        logger.warning(text, run_name, name_run(newest), name_run(found))
    return read_run(found)


def _has_weights(folder: Path) -> bool:
    checkpoints = folder / CHECKPOINTS_DIR
    return (checkpoints / FINAL_WEIGHTS_FILE).is_file() or bool(find_checkpoints(checkpoints))


def _has_folds(record: RunRecord) -> bool:
    """Whether it is a cross validation, whose folds are separate runs."""
    train = record.expanded.get("train")
    if not isinstance(train, dict):  # the file may be damaged
        return False
    return train.get("folds") is not None and train.get("fold") is None


def split_checkpoint_name(named: Path | str) -> tuple[Path | str, str]:
    """The run and, if ``named`` is the folder of a checkpoint, that checkpoint's name."""
    path = Path(named)
    if path.parent.name == CHECKPOINTS_DIR and path.is_dir():
        return path.parent.parent, path.name
    return named, ""


def get_training_record(named: Path | str, root: Path) -> RunRecord:
    """The record of a run that can be resumed.

    Raises:
        RecordError: There is no such run.
        ConfigError: It is not a training.
        CheckpointError: It has neither a checkpoint nor a config to start again.
    """
    record = read_run(named, root)
    runner = record.summary.runner
    if runner in EVALUATIONS:
        what = f"only a training can be resumed, and this is a {runner}"
        raise ConfigError(Problem(str(record.path), what, hint="`epochal runs` lists the others"))
    if died_before_checkpoint(record) and find_expanded_config(record.path) is None:
        raise CheckpointError(
            f"{record.path}: there is nothing to resume: it ended before its config was written\n"
            "  start it again with its config: epochal run FILE"
        )
    return record


def is_evaluation(folder: Path) -> bool:
    """Whether the run in a folder is not a training, so that it starts again from the beginning."""
    record = find_record(folder)
    return record is not None and record.summary.runner in EVALUATIONS


def died_before_checkpoint(record: RunRecord) -> bool:
    """Whether a training ended early and never had a checkpoint, not even one that was deleted."""
    folder = record.path / CHECKPOINTS_DIR
    if _has_folds(record) or has_run_ended(record):
        return False
    if find_checkpoints(folder) or find_newest_checkpoint(folder)[1]:
        return False
    return not any(event.get("kind") == "checkpoint_saved" for event in record.events)


def _require_resumable(choices: Choices, report: CheckReport) -> None:
    if choices.get("no_file"):
        what = "a run is resumed in its own folder"
        raise ConfigError(Problem("--no-file", what, hint="leave out --no-file, or --resume"))
    runner = report.expanded.find("runner.type")
    if runner is not None and runner.value in EVALUATIONS:
        what = f"only a training can be resumed, and the runner is {runner.value!r}"
        verb = "evaluate" if runner.value == "watch" else runner.value
        raise ConfigError(Problem("--resume", what, hint=f"use `epochal {verb} RUN`"))


def _runs_dir(report: CheckReport) -> Path:
    node = report.expanded.find("record.log_dir")
    return Path("runs") if node is None else Path(str(node.value)).expanduser()


def get_expanded_config(
    record: RunRecord, instead: str = "", *, allows_changes: bool = False
) -> Path:
    """The path of the expanded config in a record, as the run wrote it.

    ``instead`` is what the user can add to ``epochal run FILE`` if it is missing.

    Raises:
        CheckpointError: A file from which the run is built again is missing, or has changed.
    """
    if not allows_changes:
        _refuse_changed_files(record, instead)
    found = find_expanded_config(record.path)
    if found is None:
        raise CheckpointError(
            f"{record.path}: has no expanded config, or one that is not a regular file\n"
            f"  name the config yourself: epochal run FILE {instead or f'--resume {record.path}'}"
        )
    return found


def _refuse_changed_files(record: RunRecord, instead: str) -> None:
    """Refuse a run whose recorded files were edited or damaged."""
    for path in find_changed_files(record.path, record.run):
        is_there = path.exists() or path.is_symlink()
        is_regular = path.is_file() and not path.is_symlink()
        what = "was edited or damaged since the run wrote it" if is_there else "is missing"
        what = "is not a regular file" if is_there and not is_regular else what
        hint = "undo the change, or " if is_there else ""
        if instead:
            hint += f"name the config yourself: epochal run FILE {instead}"
        elif path.stem == EXPANDED:
            hint += "restore it with the config that the run began with:\n"
            hint += f"    {_first_command(record)} --resume {record.path}\n"
            hint += "  values change as overrides: epochal resume RUN key=value --allow-changed"
        else:
            hint += "resume regardless: --allow-changed"
        raise CheckpointError(f"{path}: {what}\n  {hint}")


def _first_command(record: RunRecord) -> str:
    path, overrides = record.run.get("config_path"), record.run.get("overrides")
    words = [str(path) if isinstance(path, str) else "FILE"]
    words += map(str, overrides if isinstance(overrides, list) else ())
    variant = record.run.get("variant")
    words += ["--variant", variant] if isinstance(variant, str) else []
    return f"epochal run {shlex.join(words)}"


def _file_changes(record: RunRecord) -> list[Change]:
    found = find_changed_files(record.path, record.run)
    return [Change(str(path.relative_to(record.path)), "as recorded", "changed") for path in found]


def _restore_config(record: RunRecord, checked: CheckedInputs) -> None:
    """Write the expanded config of a record again if it has changed and this config equals it."""
    config = checked.inputs.config
    path = record.path / "config" / f"{EXPANDED}.{config.format}"
    if path not in find_changed_files(record.path, record.run):
        return
    text = dump(redact_config(checked.report.expanded), config.format)
    for data in (redact(text).encode(), text.encode()):
        if is_recorded_config(record.run, path.name, data):
            durable.write_bytes(path, data)
            logger.warning("%s: was edited or damaged; restored", path)
            return


def last_overrides(record: RunRecord) -> tuple[str, ...]:
    """The changes of the last attempt to the config that the run began with."""
    return record.attempts[-1].overrides if record.attempts else ()


def project_dir(record: RunRecord) -> Path | None:
    """The folder of the code that a run used, if the record has it."""
    folder = record.run.get("project_dir")
    path = Path(to_openable_path(folder)) if isinstance(folder, str) else None
    return path if path is not None and path.is_absolute() else None  # runs write no relative ones


def require_project_dir(record: RunRecord) -> Path:
    """The folder of the code that a run used."""
    folder = project_dir(record)
    if folder is None:
        path = record.path / "run.json"
        what = "is damaged" if path.exists() else "is missing"
        raise CheckpointError(
            f"{path}: {what}, so the folder of its code is unknown\n"
            "  name that folder yourself: --user-dir DIR\n"
            f"  or resume with the config: epochal run FILE --resume {record.path}"
        )
    return folder


def _read_configs(
    record: RunRecord, checked: CheckedInputs, *, allows_changes: bool = False
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The expanded config that a run began with, and that of its last attempt."""
    _restore_config(record, checked)
    path = get_expanded_config(record, allows_changes=allows_changes)
    folder = project_dir(record)
    first = checked.expand(load(path), folder).to_public()
    overrides = last_overrides(record)
    if not overrides:
        return first, first
    return first, checked.expand(load(path, overrides=overrides), folder).to_public()


def _class_changes(record: RunRecord, checked: CheckedInputs) -> list[Change]:
    """Whether the class of the experiment has changed, or the build steps that it overrides."""
    recorded, kind = record.run.get("experiment"), checked.inputs.kind
    before = recorded if isinstance(recorded, dict) else {}
    after = {} if kind is None else kind.to_json()
    if "experiment" not in record.run:  # recorded by an earlier version
        return []
    if _named_class(before) != _named_class(after):  # the config shows that
        return []
    return [
        Change(f"experiment, {name}", before.get(name), after.get(name))
        for name in ("class", "steps")
        if before.get(name) != after.get(name)
    ]


def _named_class(facts: Mapping[str, Any]) -> object:
    """The class, if the config names it."""
    return None if facts.get("obstacle") else facts.get("class")


def _code_changes(record: RunRecord, project: Project) -> list[Change]:
    attempts = [one for one in record.attempts if one.code]
    return find_code_changes(attempts[-1].code, project) if attempts else []


def _refuse_ended(record: RunRecord, changes: list[Change]) -> None:
    """Refuse a run that has finished, unless its length has changed."""
    summary = record.summary
    if has_run_ended(record) and not any(change.key.startswith(_LENGTHS) for change in changes):
        what = f"has already finished ({summary.status}, {summary.reason})"
        stages = record.expanded.get("stages")
        last = f"stages.{len(stages) - 1}.for=... --allow-changed" if stages else "train.for=..."
        hint = f"train longer with {last}, or start a new run with init_from=..."
        raise ConfigError(Problem(str(record.path), what, hint=hint))


def has_run_ended(record: RunRecord) -> bool:
    """Whether a run has finished: it was neither interrupted nor did it fail."""
    summary = record.summary
    is_stopped = summary.status == "stopped" and summary.reason in _END_REASONS
    return summary.status == "finished" or is_stopped


def _find_unfinished(checked: CheckedInputs) -> RunRecord | None:
    """The newest unfinished run of the same experiment that has checkpoints."""
    values = redact_config(checked.report.expanded).to_public()
    without = ""
    for summary in reversed(find_runs(_runs_dir(checked.report))):
        if (summary.project, summary.tag) != (values["project"], values["tag"]):
            continue
        if summary.status in ("finished", "stopped", DIVERGED, "damaged"):
            continue
        record = read_run(summary.path)
        if not _is_same_config(record, values, checked):
            continue
        is_begun = _has_folds(record) or find_checkpoints(record.path / CHECKPOINTS_DIR)
        if summary.status in ACTIVE_STATUSES or is_begun:
            return record
        without = without or str(summary.path)
    reason = f"{without} has no checkpoint" if without else "no unfinished run of this config"
    logger.warning("resume=auto: %s; starting a new run", reason)
    return None


def _is_same_config(record: RunRecord, values: Mapping[str, Any], checked: CheckedInputs) -> bool:
    try:
        _, latest = _read_configs(record, checked)
    except ConfigError:
        return False
    except CheckpointError as error:
        logger.warning("resume=auto: %s", error)
        return False
    return all(change.may_change for change in find_config_changes(latest, values))


def load_resume_point(plan: ResumePlan) -> tuple[ResumePoint, list[str]]:
    """The state to resume from, and notes on damaged checkpoints; the caller holds the lease.

    Damaged checkpoints are renamed and skipped, unless one was asked for by name.

    Raises:
        CheckpointError: There is no such checkpoint, or all are damaged.
    """
    from epochal.checkpoint.checkpoint_folder import mark_as_damaged, read_checkpoint

    folder, chosen = plan.checkpoint_dir, plan.chosen
    notes = []
    if chosen not in (LAST, BEST):
        path = _find_named(folder, chosen)
    else:
        found, damaged = (
            find_newest_checkpoint(folder) if chosen == LAST else find_best_checkpoint(folder)
        )
        path = _require_found(folder, chosen, found, damaged).path
        notes = [f"{one}; renamed to {mark_as_damaged(one.path).name}" for one in damaged]
    state, manifest = read_checkpoint(path, keeps_shards=True)
    point = ResumePoint(
        state=state,
        manifest=manifest,
        path=path,
        is_strict=not plan.allows_changes,
        # Also a stopped run, even if a hook stopped it: the user wants more training.
        has_ended=has_run_ended(plan.record) or plan.record.summary.status == "stopped",
    )
    return point, notes


def _find_named(folder: Path, name: str) -> Path:
    path = folder / Path(name).name
    if not path.is_dir():
        known = [manifest.name for manifest in find_checkpoints(folder)]
        hint = suggest(name, known) or f"`ls {folder}` lists the checkpoints"
        raise CheckpointError(f"{path}: no such checkpoint\n  {hint}")
    return path


def _require_found(
    folder: Path, chosen: str, found: CheckpointManifest | None, damaged: list[CheckpointDamage]
) -> CheckpointManifest:
    if found is not None:
        return found
    if damaged:
        raise CheckpointError(
            f"{folder}: all {len(damaged)} checkpoints are damaged\n"
            "  start a new run; init_from=... loads weights from another file"
        )
    if chosen == BEST and find_checkpoints(folder):
        raise CheckpointError(
            f"{folder}: there is no best checkpoint, since no monitor was measured\n"
            "  resume from the newest: --from last"
        )
    raise CheckpointError(
        f"{folder}: has no checkpoint to resume from\n"
        "  `epochal run FILE` starts a new run; checkpoint: {every: 1ep} writes checkpoints"
    )
