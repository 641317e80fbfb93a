"""The trials of a sweep, read from the records of their runs."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

from epochal import durable
from epochal.errors import RecordError
from epochal.launch.pool.pool import read_run_file
from epochal.records.find import find_record
from epochal.records.folder.reader import describe_error
from epochal.records.layout.process import describe_process, is_owner_gone
from epochal.records.layout.run_status import COMPLETED_STATUSES
from epochal.records.layout.stop_request import STOP_REQUESTED, read_stop_request
from epochal.sweep.settings import MAX_REPEATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from epochal.launch.pool.backlog import WaitingJob
    from epochal.records.folder.reader import RunRecord
    from epochal.sweep.settings import Objective, SweepSettings
    from epochal.sweep.space import Values
    from epochal.sweep.sweep_folder import SweepFolder

TrialState = Literal["waiting", "running", "finished", "pruned", "failed"]
PRUNED = "pruned"
SEED = "seed"
"""The key that repeats set, besides the values of their trial."""


@final
@dataclass(eq=False)
class TrialRun:
    """One run of a trial; trials with ``repeats`` have several."""

    job: WaitingJob
    path: Path | None = None
    state: TrialState = "waiting"
    curves: tuple[tuple[float, ...], ...] = ()
    """The values of each objective, one per evaluation; of a cross validation, one per fold."""

    fold_curves: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """The values of each objective in each fold of a cross validation."""

    constrained: tuple[float, ...] = ()
    """The last value of the metric of each constraint, or its mean over folds."""

    error: str = ""
    status: str = ""
    """That of its record."""

    stamp: int = -1
    """The size of the file with its points when they were read last."""

    lock: durable.HeldLock | None = None
    """Held by this process and by that of the run."""

    @property
    def number(self) -> int:
        """The number of its trial."""
        return self.job.key // MAX_REPEATS

    @property
    def repeat(self) -> int:
        """Its number among the runs of the trial."""
        return self.job.key % MAX_REPEATS

    def acquire(self) -> bool:
        """Take its lock; False while another process has it."""
        path, owner = self.job.file.with_suffix(".lock"), describe_process(os.getpid())
        self.lock = durable.try_lock(path, owner, is_gone=is_owner_gone)
        return self.lock is not None

    def release(self) -> None:
        """Free its lock."""
        if self.lock is not None:
            self.lock.release()

    def read(self, settings: SweepSettings) -> None:
        """Read what its record says now."""
        self.path = self.path or read_run_file(self.job.run_file)
        record = find_record(self.path)
        if record is None:
            return
        self._read_points(record, settings)
        status = self.status = record.summary.status
        if status in COMPLETED_STATUSES:
            reason = str(record.result.get("reason") or "")
            is_cut_short = reason.startswith((PRUNED, STOP_REQUESTED))
            self.state = "pruned" if is_cut_short else "finished"
        elif status in ("failed", "diverged"):
            self.state = "failed"
            self.error = describe_error(record.result) or status
        elif read_stop_request(record.path).startswith(PRUNED):
            self.state = "pruned"

    def _read_points(self, record: RunRecord, settings: SweepSettings) -> None:
        size = _size_of_points(record.path)
        if size == self.stamp:
            return
        self.stamp = size
        metrics = [one.metric for one in settings.objectives]
        folds = record.folds
        self.curves = _read_curves(record, metrics)
        self.fold_curves = tuple(_read_curves(fold, metrics) for fold in folds)
        limits = [one.metric for one in settings.metric_constraints]
        found = [_read_curves(one, limits) for one in folds or (record,)]
        self.constrained = tuple(
            _mean([curves[index][-1] if curves[index] else math.nan for curves in found])
            for index in range(len(limits))
        )

    def get_value(self, index: int, objective: Objective) -> float:
        """The value of an objective, or its mean over folds; NaN if it has none."""
        parts = self.fold_curves or (self.curves,)
        return _mean([_get_value(one[index], objective) for one in parts if index < len(one)])


@final
@dataclass(eq=False)
class Trial:
    """One proposal of a sweep, with its runs."""

    number: int
    values: Values
    runs: list[TrialRun] = field(default_factory=list)

    @property
    def state(self) -> TrialState:
        """The state of all of its runs together."""
        states = [run.state for run in self.runs]
        for one in ("failed", "pruned", "running", "waiting"):
            if one in states:
                return one
        return "finished"

    @property
    def is_ended(self) -> bool:
        """Whether nothing of it will run any more."""
        return self.state in ("finished", "pruned", "failed")

    @property
    def error(self) -> str:
        """Why it failed."""
        return next((run.error for run in self.runs if run.error), "")

    def get_objectives(self, settings: SweepSettings) -> tuple[float, ...] | None:
        """The mean of each objective over its runs; None if one is missing or not finite."""
        if self.state not in ("finished", "pruned"):
            return None
        means = [
            _mean([run.get_value(index, one) for run in self.runs if run.curves])
            for index, one in enumerate(settings.objectives)
        ]
        return tuple(means) if all(map(math.isfinite, means)) else None

    def get_deviation(self, settings: SweepSettings) -> float | None:
        """The standard deviation of the first objective over the repeats."""
        found = [run.get_value(0, settings.objectives[0]) for run in self.runs if run.curves]
        found = [value for value in found if math.isfinite(value)]
        if len(found) < 2:
            return None
        mean = _mean(found)
        return math.sqrt(sum((value - mean) ** 2 for value in found) / (len(found) - 1))

    def get_violation(self, settings: SweepSettings) -> float:
        """By how much the constraints on metrics are missed; 0 if all hold."""
        total = 0.0
        for index, condition in enumerate(settings.metric_constraints):
            found = [run.constrained[index] for run in self.runs if run.constrained]
            value = _mean(found)
            miss = (condition.value - value) * (1.0 if condition.sign == "+" else -1.0)
            total += miss if miss > 0 else math.inf if math.isnan(miss) else 0.0
        return min(total, 1e300)


def read_trials(folder: SweepFolder, settings: SweepSettings) -> dict[int, Trial]:
    """Every trial of a sweep by its number, read from the records."""
    trials: dict[int, Trial] = {}
    is_searched = any(one.key == SEED for one in settings.space.parameters)
    for job in folder.iter_jobs():
        facts = job.job.choices["trial"]
        values = {k: one for k, one in facts["values"].items() if k != SEED or is_searched}
        trial = trials.setdefault(facts["number"], Trial(facts["number"], values))
        run = TrialRun(job)
        run.read(settings)
        trial.runs.append(run)
    return trials


def rank_trials(trials: Iterable[Trial], settings: SweepSettings) -> list[Trial]:
    """The finished trials, best first; with several objectives, those on the Pareto front."""
    judged = [
        (one, found)
        for one in trials
        if one.state == "finished"
        and (found := one.get_objectives(settings)) is not None
        and one.get_violation(settings) == 0
    ]
    signs = [1.0 if one.mode == "min" else -1.0 for one in settings.objectives]
    costs = [
        (one, [sign * value for sign, value in zip(signs, found, strict=True)])
        for one, found in judged
    ]
    if len(signs) == 1:
        return [one for one, _ in sorted(costs, key=lambda pair: (pair[1], pair[0].number))]
    return [one for one, cost in costs if not any(_dominates(other, cost) for _, other in costs)]


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _get_value(curve: Sequence[float], objective: Objective) -> float:
    known = [value for value in curve if not math.isnan(value)]
    if not known:
        return math.nan
    if objective.at == "last":
        return curve[-1]
    return min(known) if objective.mode == "min" else max(known)


def _size_of_points(path: Path) -> int:
    try:
        return (path / "metrics.bin").stat().st_size
    except OSError:
        return -1


def _read_curves(record: RunRecord, metrics: Iterable[str]) -> tuple[tuple[float, ...], ...]:
    return tuple(_read_series(record, name) for name in metrics)


def _read_series(record: RunRecord, name: str) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in record.series(name)[1])
    except (KeyError, RecordError):
        return ()


def to_plain(trial: Trial, settings: SweepSettings) -> dict[str, Any]:
    """A trial for tables and exports."""
    found = trial.get_objectives(settings)
    names = [one.metric for one in settings.objectives]
    values = dict(zip(names, found, strict=True)) if found else dict.fromkeys(names)
    return {"number": trial.number, "state": trial.state, **values, **trial.values}
