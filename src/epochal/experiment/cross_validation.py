"""Cross validation: one run for each fold, inside the record of the whole, and their means."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, final

from torch.utils.data import DataLoader

from epochal import durable
from epochal.engine import RunResult
from epochal.engine.feed.feed import read_task_attribute
from epochal.engine.interfaces.splits import SPLITS
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import to_override
from epochal.experiment.resume.resume_plan import has_run_ended
from epochal.records import read_run
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.folder.folder import FOLDS_DIR
from epochal.records.metrics.time_spent import parse_time_spent, sum_time_spent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from epochal.config import Node
    from epochal.experiment.config.inputs import ExperimentInputs
    from epochal.experiment.record.open_record import OpenRecord
    from epochal.records.metrics.time_spent import TimeSpent

_OWN_KEYS = ("train.fold", "tag", "record.log_dir", "record.exact", "checkpoint.dir")
_SHARED = ("data",)  # loaders stay as they are, and may hold much


def count_folds(config: Node) -> int | None:
    """How many folds an expanded config asks for; None if it describes a single run."""
    names = ("train.folds", "train.fold", "runner.type")
    folds, fold, runner = (None if (n := config.find(name)) is None else n.value for name in names)
    if folds is None or fold is not None or runner in ("test", "predict"):
        return None
    return int(str(folds))


@final
@dataclass(frozen=True)
class CrossValidation:
    """Carries out the folds of an experiment.

    Args:
        loaded: What the whole experiment was given.
        config: The expanded config.
        record: That of the whole, which holds those of the folds.
        run: Carries out one fold.
    """

    loaded: ExperimentInputs
    config: Node
    record: OpenRecord
    run: Callable[[ExperimentInputs], RunResult]

    def carry_out(self) -> RunResult:
        """Run every fold that has not come to its end yet; the mean of all, or what went wrong."""
        folds = count_folds(self.config)
        assert folds is not None
        given = dict(self.loaded.given.parts)
        results: list[RunResult] = []
        for number in range(1, folds + 1):
            result = self._find_finished(number)
            if result is None:
                result = self.run(self._loaded_for(number, folds, given))
            if not result.ok:
                spent = _join([*results, result]).to_fields()
                named = replace(result, message=_named(result, number, folds), **spent)
                return self._as_whole(named)
            self.record.writer.log(result.metrics, number)
            results.append(result)
        return self._as_whole(summarize_folds(results))

    def _as_whole(self, result: RunResult) -> RunResult:
        return replace(result, dir=self.record.dir, config=self.config.to_plain())

    def _folder(self, number: int) -> Path | None:
        return None if self.record.dir is None else self.record.dir / FOLDS_DIR / str(number)

    def _find_finished(self, number: int) -> RunResult | None:
        """What a fold came to that had come to its end before."""
        folder = self._folder(number)
        if folder is None or not (folder / "run.json").is_file():
            return None
        record = read_run(folder)
        if not has_run_ended(record):
            return None
        known = {one.name for one in fields(RunResult)}
        values = {name: value for name, value in record.result.items() if name in known}
        return RunResult(**values | {"dir": folder, "config": record.expanded})

    def _loaded_for(self, number: int, folds: int, given: Mapping[str, Any]) -> ExperimentInputs:
        """The experiment of one fold: another config, and parts that no other fold has trained."""
        folder = self._folder(number)
        changes: dict[str, object] = {"train.fold": number}
        changes["tag"] = f"{self.config.mapping['tag'].value}-fold{number}"
        if folder is not None:
            changes |= {"record.log_dir": str(folder), "record.exact": True}
            elsewhere = self.config.find("checkpoint.dir")
            if elsewhere is not None and elsewhere.value is not None:
                changes["checkpoint.dir"] = f"{elsewhere.value}/{folder.parents[1].name}"
        kept = [one for one in self.loaded.overrides if _key(one) not in _OWN_KEYS]
        overrides = (*kept, *(to_override(key, value) for key, value in changes.items()))
        choices = self.loaded.choices | {
            "name": None,
            "begun": None,
            "resume_from": None,
            "resume": _find_begun(folder),
        }
        parts = copy_parts(given)
        loaded = replace(
            self.loaded, overrides=overrides, given=replace(self.loaded.given, parts=parts)
        )
        return loaded.with_choices(choices)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _find_begun(folder: Path | None) -> Path | None:
    """The run of a fold that can go on; what was begun and left no checkpoint is removed."""
    if folder is None or not folder.is_dir():
        return None
    if find_checkpoints(folder / "checkpoints"):
        return folder
    durable.remove_tree(folder, "fold")
    return None


def copy_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that came as objects, copied together; data they read from is shared.

    Raises:
        ConfigError: One of them cannot be copied.
    """
    own = {name: part for name, part in given.items() if name not in _SHARED}
    memo: dict[int, Any] = {}
    for split in SPLITS:
        loader = read_task_attribute(own.get("task"), f"{split}_loader")
        if isinstance(loader, DataLoader):
            memo[id(loader.dataset)] = loader.dataset
    try:
        copied = copy.deepcopy(own, memo)
    except Exception as error:  # of the user's objects, which may forbid it in any way
        what = f"each fold trains copies of what Python gives, and that cannot be copied: {error}"
        hint = "describe it in the config, or give prepare_task and prepare_model"
        raise ConfigError(Problem("train.folds", what, hint=hint)) from error
    return {**given, **copied}


def summarize_folds(results: Sequence[RunResult]) -> RunResult:
    """The means of what folds came to, and the standard deviation from fold to fold."""
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
        **_join(results).to_fields(),
        value=list(results),
    )


def _join(results: Sequence[RunResult]) -> TimeSpent:
    """What folds took together."""
    return sum_time_spent(parse_time_spent(vars(result)) for result in results)


def sample_std(values: Sequence[float]) -> float:
    """The standard deviation of a sample."""
    mean = fmean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _named(result: RunResult, number: int, folds: int) -> str:
    is_complete = result.reason == "config"  # a mistake of all folds
    name = "" if is_complete else f"fold {number} of {folds}: "
    return f"{name}{result.message}".removesuffix(": ")
