"""Cross validation: one run for each fold, recorded in one folder, and their means."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, final

from torch.utils.data import DataLoader

from epochal import durable
from epochal.engine import RunResult
from epochal.engine.feed.feed import read_task_attribute
from epochal.engine.interfaces.splits import SPLITS
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import to_override
from epochal.experiment.record.past_result import read_result
from epochal.experiment.resume.resume_plan import has_run_ended
from epochal.records import read_run
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.folder.folder import CHECKPOINTS_DIR, FOLDS_DIR
from epochal.records.metrics.time_spent import parse_time_spent, sum_time_spent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from epochal.config import Node
    from epochal.experiment.config.inputs import ExperimentInputs
    from epochal.experiment.record.open_record import OpenRecord
    from epochal.records.metrics.time_spent import TimeSpent

_OWN_KEYS = ("train.fold", "tag", "record.log_dir", "record.exact", "checkpoint.dir")
_SHARED = ("data",)  # loaders are not copied: they may hold much data


def count_folds(config: Node) -> int | None:
    """The number of folds of an expanded config; None if it describes a single run."""
    names = ("train.folds", "train.fold", "runner.type")
    folds, fold, runner = (None if (n := config.find(name)) is None else n.value for name in names)
    if folds is None or fold is not None or runner in ("test", "predict"):
        return None
    return int(str(folds))


@final
class CrossValidation:
    """The folds of an experiment: the inputs of each one, and the result of all."""

    def __init__(self, inputs: ExperimentInputs, config: Node, record: OpenRecord) -> None:
        self._inputs, self._config, self._record = inputs, config, record
        self.numbers = range(1, (count_folds(config) or 0) + 1)
        """The numbers of the folds, from 1."""

        self._results: list[RunResult] = []

    def add(self, number: int, result: RunResult) -> bool:
        """Keep the result of a fold; returns whether the next one can run."""
        self._results.append(result)
        if result.ok:
            self._record.writer.log(result.metrics, number)
        return result.ok

    def summarize(self) -> RunResult:
        """The means of all folds, or the failure of the last one."""
        last = self._results[-1]
        if last.ok:
            result = summarize_folds(self._results)
        else:
            message = _name_fold(last, len(self._results), len(self.numbers))
            result = replace(last, message=message, **_sum_time(self._results).to_fields())
        return replace(result, dir=self._record.dir, config=self._config.to_plain())

    def _folder(self, number: int) -> Path | None:
        return None if self._record.dir is None else self._record.dir / FOLDS_DIR / str(number)

    def find_finished(self, number: int) -> RunResult | None:
        """The result of a fold that an earlier attempt has finished."""
        folder = self._folder(number)
        if folder is None or not (folder / "run.json").is_file():
            return None
        record = read_run(folder)
        if not has_run_ended(record):
            return None
        return read_result(record)

    def inputs_of(self, number: int) -> ExperimentInputs:
        """The inputs of one fold: its own config, and copies of the given parts."""
        folder = self._folder(number)
        changes: dict[str, object] = {"train.fold": number}
        changes["tag"] = f"{self._config.mapping['tag'].value}-fold{number}"
        if folder is not None:
            changes |= {"record.log_dir": str(folder), "record.exact": True}
            elsewhere = self._config.find("checkpoint.dir")
            if elsewhere is not None and elsewhere.value is not None:
                changes["checkpoint.dir"] = f"{elsewhere.value}/{folder.parents[1].name}"
        typed = self._inputs.overrides
        kept = [one for one in typed if one.partition("=")[0].strip() not in _OWN_KEYS]
        overrides = (*kept, *(to_override(key, value) for key, value in changes.items()))
        choices = self._inputs.choices | {
            "name": None,
            "begun": None,
            "resume_from": None,
            "resume": _find_resumable(folder),
        }
        given = replace(self._inputs.given, parts=copy_parts(self._inputs.given.parts))
        return replace(self._inputs, overrides=overrides, given=given).with_choices(choices)


def _find_resumable(folder: Path | None) -> Path | None:
    """The folder of a fold to resume; one without checkpoints is removed."""
    if folder is None:
        return None
    durable.remove_stale(folder.parent, lambda owner: True)  # this process owns all folds
    if not folder.is_dir():
        return None
    if find_checkpoints(folder / CHECKPOINTS_DIR):
        return folder
    durable.remove_tree(folder, "fold")
    return None


def copy_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given parts, copied together; their data is shared."""
    own = {name: part for name, part in given.items() if name not in _SHARED}
    memo: dict[int, Any] = {}
    for split in SPLITS:
        loader = read_task_attribute(own.get("task"), f"{split}_loader")
        if isinstance(loader, DataLoader):
            memo[id(loader.dataset)] = loader.dataset
    try:
        copied = copy.deepcopy(own, memo)
    except Exception as error:  # the user's objects may raise anything
        what = (
            f"each fold trains copies of the objects from Python, which cannot be copied: {error}"
        )
        hint = "describe it in the config, or give prepare_task and prepare_model"
        raise ConfigError(Problem("train.folds", what, hint=hint)) from error
    return {**given, **copied}


def summarize_folds(results: Sequence[RunResult]) -> RunResult:
    """The means over folds, and the standard deviations."""
    shared = set.intersection(*({*result.metrics} for result in results))
    series = {
        name: [result.metrics[name] for result in results]
        for name in results[0].metrics
        if name in shared
    }
    bests = [result.best for result in results if result.best is not None]
    spread = {name: sample_std(values) for name, values in series.items()}
    if len(bests) == len(results):
        spread["best"] = sample_std(bests)
    return RunResult(
        status="finished",
        reason="completed",
        metrics={name: fmean(values) for name, values in series.items()},
        spread=spread,
        best=fmean(bests) if len(bests) == len(results) else None,
        steps=sum(result.steps for result in results),
        epochs=sum(result.epochs for result in results),
        samples=sum(result.samples for result in results),
        **_sum_time(results).to_fields(),
        value=list(results),
    )


def _sum_time(results: Sequence[RunResult]) -> TimeSpent:
    """The time that all folds took."""
    return sum_time_spent(parse_time_spent(vars(result)) for result in results)


def sample_std(values: Sequence[float]) -> float:
    """The standard deviation of a sample."""
    mean = fmean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _name_fold(result: RunResult, number: int, folds: int) -> str:
    is_complete = result.reason == "config"  # a mistake in all folds
    name = "" if is_complete else f"fold {number} of {folds}: "
    return f"{name}{result.message}".removesuffix(": ")
