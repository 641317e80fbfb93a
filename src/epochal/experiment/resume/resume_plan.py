"""From the folder of a run to the point where it goes on: the same config, code and data."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.config import load
from epochal.engine.parts import ResumePoint
from epochal.errors import CheckpointError, ConfigError, Problem, suggest
from epochal.experiment.resume.changes import (
    Change,
    changes_to_overrides,
    find_code_changes,
    find_config_changes,
    refuse_changes,
)
from epochal.records import RunRecord, find_runs, read_run
from epochal.records.folder.checkpoint_manifests import (
    find_best_checkpoint,
    find_checkpoints,
    find_newest_checkpoint,
)
from epochal.records.folder.derived_fields import read_time_spent
from epochal.records.layout.attempts import Attempt, begin_attempt, find_cause
from epochal.records.metrics.time_spent import parse_time_spent
from epochal.records.secrets import redact_config
from epochal.text.escape import to_openable_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.check import CheckReport
    from epochal.config import Config, Node
    from epochal.experiment.config.choices import Choices
    from epochal.records.folder.checkpoint_manifests import CheckpointDamage, CheckpointManifest
    from epochal.records.metrics.time_spent import TimeSpent
    from epochal.registry.project import Project

logger = logging.getLogger(__name__)

AUTO = "auto"
LAST = "last"
BEST = "best"
_AT_ITS_END = ("max_epochs", "max_steps", "max_samples", "max_time", "completed", "early_stop")
_EVALUATIONS = ("test", "predict")
_LIVING = ("starting", "running")
_LENGTHS = ("train.", "stages")


@final
@dataclass(frozen=True, kw_only=True)
class ResumePlan:
    """A run that is to go on, looked at but not touched."""

    record: RunRecord
    chosen: str
    """``last``, ``best`` or the name of a checkpoint."""

    overrides: tuple[str, ...]
    """Every change to the config as it was first recorded."""

    changes: tuple[Change, ...]
    """What differs from the last attempt: the config, the code."""

    is_anything_allowed: bool
    has_state: bool = True
    """Whether it goes on from a checkpoint; a cross validation goes on from its folds."""

    @property
    def checkpoint_dir(self) -> Path:
        """Where its checkpoints lie."""
        return self.record.path / "checkpoints"

    def begin(self, point: ResumePoint | None, *, is_supervised: bool = False) -> Attempt:
        """The attempt of this process, which goes on from a checkpoint, if there are any."""
        cause = find_cause(self.record.summary.status, is_supervised=is_supervised)
        known = [self.record.summary.attempt, *(one.attempt for one in self.record.attempts)]
        known += [one.attempt for one in find_checkpoints(self.checkpoint_dir)]
        attempt = replace(
            begin_attempt(max(known) + 1, cause),
            overrides=self.overrides,
            changed=tuple(map(str, self.changes)),
        )
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
    """What all attempts so far took; a checkpoint may know more of one that was killed."""
    spent = read_time_spent(record)
    if record.summary.status in _LIVING:  # its end came after it was looked at
        spent = replace(spent, killed=spent.killed + 1)
    if point is None:
        return spent
    at = parse_time_spent(point.state.get("clock", {}).get("spent", {}))
    if at.seconds > spent.seconds:
        return replace(at, killed=spent.killed)
    return spent.go_back(at) if record.summary.step > point.manifest.step else spent


def plan_resume(
    choices: Choices, report: CheckReport, recheck: Callable[[Config, Path | None], Node]
) -> ResumePlan | None:
    """The run that the choices ask to go on with; None to start a new one.

    Args:
        choices: Which run, and what may have changed.
        report: The config that is about to run.
        recheck: Gives the expanded form of a recorded config, with the project's folder.

    Raises:
        RecordError: There is no such run.
        ConfigError: It is another run, by its config or its code.
    """
    named = choices.get("resume")
    if named is None:
        return None
    _require_resumable(choices, report)
    run_name, checkpoint = split_checkpoint_name(named)
    if str(named) == AUTO:
        record = _find_unfinished(report, recheck)
        if record is None:
            return None
    else:
        record = get_training_record(run_name, _runs_dir(report))
    is_allowed = bool(choices.get("allow_changed"))
    first, latest = _recorded(record, recheck)
    values = redact_config(report.expanded).to_public()  # as the record has it
    changes = [*find_config_changes(latest, values), *_code_changes(record, report.project)]
    if not is_allowed:
        refuse_changes(record.path, changes)
    _refuse_ended(record, changes)
    return ResumePlan(
        record=record,
        chosen=choices.get("resume_from") or checkpoint or LAST,
        overrides=changes_to_overrides(find_config_changes(first, values)),
        changes=tuple(changes),
        is_anything_allowed=is_allowed,
        has_state=not _has_folds(record),
    )


def _has_folds(record: RunRecord) -> bool:
    """Whether it is a cross validation, whose folds are runs of their own."""
    train = record.expanded.get("train")
    if not isinstance(train, dict):  # the file may be damaged
        return False
    return train.get("folds") is not None and train.get("fold") is None


def split_checkpoint_name(named: Path | str) -> tuple[Path | str, str]:
    """The run that is meant and, where the folder of a checkpoint was named, its checkpoint."""
    path = Path(named)
    if path.parent.name == "checkpoints" and path.is_dir():
        return path.parent.parent, path.name
    return named, ""


def get_training_record(named: Path | str, root: Path) -> RunRecord:
    """The record of a run that has something to go on from; ``last`` is the newest training.

    Raises:
        RecordError: There is no such run.
        ConfigError: It is no training.
        CheckpointError: It has no checkpoint, not even a damaged one, and does not live.
    """
    if str(named) == LAST:
        trainings = (one.path for one in find_runs(root) if one.runner not in _EVALUATIONS)
        named = [named, *trainings][-1]
    record = read_run(named, root)
    runner = record.summary.runner
    if runner in _EVALUATIONS:
        what = f"only a training can go on, and this is a {runner}"
        raise ConfigError(Problem(str(record.path), what, hint="`epochal runs` lists the others"))
    _require_begun(record)
    return record


def _require_begun(record: RunRecord) -> None:
    """Refuse a run that ended before there was anything to go on from."""
    folder = record.path / "checkpoints"
    if record.summary.status in _LIVING or _has_folds(record):
        return
    if find_checkpoints(folder) or find_newest_checkpoint(folder)[1]:
        return
    command, config = record.run.get("command"), record.run.get("config_path")
    again = " with its config: epochal run FILE"
    if isinstance(command, str) and isinstance(config, str):
        again = f": {command}" if command.startswith("epochal ") else f": epochal run {config}"
    raise CheckpointError(
        f"{record.path}: there is nothing to resume: it ended before its first checkpoint\n"
        f"  start it again{again}"
    )


def _require_resumable(choices: Choices, report: CheckReport) -> None:
    if choices.get("no_file"):
        what = "a run goes on in its own folder"
        raise ConfigError(Problem("--no-file", what, hint="leave out --no-file, or --resume"))
    runner = report.expanded.find("runner.type")
    if runner is not None and runner.value in _EVALUATIONS:
        what = f"only a training can go on, and the runner is {runner.value!r}"
        raise ConfigError(Problem("--resume", what, hint=f"use `epochal {runner.value} RUN`"))


def _runs_dir(report: CheckReport) -> Path:
    node = report.expanded.find("record.log_dir")
    return Path("runs") if node is None else Path(str(node.value))


def get_expanded_config(record: RunRecord) -> Path:
    """The expanded config that a run left.

    Raises:
        CheckpointError: It is gone.
    """
    found = sorted((record.path / "config").glob("expanded.*"))
    if not found:
        raise CheckpointError(
            f"{record.path}: has no expanded config to go on with\n"
            f"  name the config yourself: epochal run FILE --resume {record.path}"
        )
    return found[0]


def last_overrides(record: RunRecord) -> tuple[str, ...]:
    """What the last attempt had changed in the config that the run began with."""
    return record.attempts[-1].overrides if record.attempts else ()


def project_dir(record: RunRecord) -> Path | None:
    """The folder of the code that a run used, if the record tells."""
    folder = record.run.get("project_dir")
    return Path(to_openable_path(folder)) if isinstance(folder, str) else None


def require_project_dir(record: RunRecord) -> Path:
    """The folder of the code that a run used.

    Raises:
        CheckpointError: The record does not tell.
    """
    folder = project_dir(record)
    if folder is None:
        path = record.path / "run.json"
        what = "is damaged" if path.exists() else "is missing"
        raise CheckpointError(
            f"{path}: {what}, so nobody knows where its code is\n"
            f"  name the config yourself: epochal run FILE --resume {record.path}"
        )
    return folder


def _recorded(
    record: RunRecord, recheck: Callable[[Config, Path | None], Node]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The expanded config that a run began with, and that of its last attempt."""
    path, folder = get_expanded_config(record), project_dir(record)
    first = recheck(load(path), folder).to_public()
    overrides = last_overrides(record)
    latest = recheck(load(path, overrides=overrides), folder).to_public() if overrides else first
    return first, latest


def _code_changes(record: RunRecord, project: Project) -> list[Change]:
    attempts = [one for one in record.attempts if one.code]
    return find_code_changes(attempts[-1].code, project) if attempts else []


def _refuse_ended(record: RunRecord, changes: list[Change]) -> None:
    """Refuse a run that has come to its end, unless it is to be another end now."""
    summary = record.summary
    if has_run_ended(record) and not any(change.key.startswith(_LENGTHS) for change in changes):
        what = f"has come to its end already ({summary.status}, {summary.reason})"
        stages = record.expanded.get("stages")
        last = f"stages.{len(stages) - 1}.for=... --allow-changed" if stages else "train.for=..."
        hint = f"train longer with {last}, or begin a new run with init_from=..."
        raise ConfigError(Problem(str(record.path), what, hint=hint))


def has_run_ended(record: RunRecord) -> bool:
    """Whether a run has come to an end of its own."""
    summary = record.summary
    is_stopped = summary.status == "stopped" and summary.reason in _AT_ITS_END
    return summary.status == "finished" or is_stopped


def _find_unfinished(
    report: CheckReport, recheck: Callable[[Config, Path | None], Node]
) -> RunRecord | None:
    """The newest run of the same experiment that has checkpoints and did not come to its end."""
    values = redact_config(report.expanded).to_public()
    without = ""
    for summary in reversed(find_runs(_runs_dir(report))):
        if (summary.project, summary.tag) != (values["project"], values["tag"]):
            continue
        if summary.status in ("finished", "stopped", "damaged"):
            continue
        record = read_run(summary.path)
        if not _is_same_config(record, values, recheck):
            continue
        is_begun = _has_folds(record) or find_checkpoints(record.path / "checkpoints")
        if summary.status in _LIVING or is_begun:
            return record
        without = without or str(summary.path)
    reason = f"{without} has no checkpoint" if without else "no unfinished run of this config"
    logger.warning("resume=auto: %s; a new run starts at its beginning", reason)
    return None


def _is_same_config(
    record: RunRecord, values: Mapping[str, Any], recheck: Callable[[Config, Path | None], Node]
) -> bool:
    try:
        _, latest = _recorded(record, recheck)
    except (CheckpointError, ConfigError):
        return False
    return all(change.may_change for change in find_config_changes(latest, values))


def load_resume_point(resumption: ResumePlan) -> tuple[ResumePoint, list[str]]:
    """The state to go on from, and what was damaged; the caller holds the folder's lease.

    Damaged checkpoints are named, set aside, and skipped, unless one was asked for by name.

    Raises:
        CheckpointError: There is no such checkpoint, or none that is whole.
    """
    from epochal.checkpoint.checkpoint_folder import mark_as_damaged, read_checkpoint

    folder, chosen = resumption.checkpoint_dir, resumption.chosen
    notes = []
    if chosen not in (LAST, BEST):
        path = _find_named(folder, chosen)
    else:
        found, damaged = (
            find_newest_checkpoint(folder) if chosen == LAST else find_best_checkpoint(folder)
        )
        path = _require_found(folder, chosen, found, damaged).path
        notes = [f"{one}; set aside as {mark_as_damaged(one.path).name}" for one in damaged]
    state, manifest = read_checkpoint(path)
    point = ResumePoint(
        state=state,
        manifest=manifest,
        path=path,
        is_strict=not resumption.is_anything_allowed,
        has_ended=has_run_ended(resumption.record),
    )
    return point, notes


def _find_named(folder: Path, name: str) -> Path:
    path = folder / Path(name).name
    if not path.is_dir():
        known = [manifest.name for manifest in find_checkpoints(folder)]
        hint = suggest(name, known) or f"`ls {folder}` shows what is there"
        raise CheckpointError(f"{path}: no such checkpoint\n  {hint}")
    return path


def _require_found(
    folder: Path, chosen: str, found: CheckpointManifest | None, damaged: list[CheckpointDamage]
) -> CheckpointManifest:
    if found is not None:
        return found
    if damaged:
        raise CheckpointError(
            f"{folder}: none of its checkpoints is whole, {len(damaged)} are damaged\n"
            "  begin a new run; weights can be taken from another file with init_from=..."
        )
    if chosen == BEST and find_checkpoints(folder):
        raise CheckpointError(
            f"{folder}: no checkpoint knows how good it is, since no monitor was measured\n"
            "  go on from the newest: --from last"
        )
    raise CheckpointError(
        f"{folder}: has no checkpoint to go on from\n"
        "  `epochal run FILE` starts anew; checkpoint: {every: 1ep} makes some"
    )
