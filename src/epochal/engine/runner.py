"""Runners: train, test, predict, or what a user writes."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, final

from typing_extensions import override

from epochal.checkpoint.weights import locate_weights
from epochal.engine.capture.captured_steps import choose_step
from epochal.engine.check_ranks import check_loaders, check_ranks
from epochal.engine.device import memory
from epochal.engine.evaluate import check_sanity, evaluate, predict, require_mergeable
from epochal.engine.feed.feed import named_loaders, refuse_endless, require_loaders
from epochal.engine.interfaces.average import AVERAGED_SPLIT
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.splits import split_name
from epochal.engine.loop import train
from epochal.engine.prediction_file import PredictionFile
from epochal.engine.process.signals import (
    EvaluationInterrupted,
    is_interrupted_or_preempted,
)
from epochal.engine.run.device_time import choose_device_time
from epochal.engine.run.plan import run_position
from epochal.engine.stages.transition import announce_stage, plan_training_end, prepare_stages
from epochal.engine.state.changed_attributes import ChangedAttributes
from epochal.engine.step.build_step import build_step
from epochal.engine.step.debug_losses import end_if_diverged
from epochal.engine.step.microbatch import wrap_microbatching
from epochal.engine.step.recompute import enable_recompute
from epochal.engine.step.task_calls import TaskCalls
from epochal.engine.step.updater import (
    Updater,
    takes_shared_steps,
    warn_of_custom_train_step,
)
from epochal.errors import DataError, TaskError

if TYPE_CHECKING:
    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.task import Batch
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.build_step import TakeStep

logger = logging.getLogger(__name__)


class Runner(ABC):
    """What a run does; subclass it, or override single steps of ``Train``.

    Step methods are looked up once, before the run starts.
    """

    kind: str = "train"
    """Which hooks act: those for ``train``, ``test`` or ``predict``."""

    needs_optimizer: bool = False
    """Whether the run must have an optimizer; False in a ``Train`` with its own optimizers."""

    @abstractmethod
    def run(self, run: EngineRun) -> object:
        """Do all the work; the return value becomes the ``value`` of the result."""

    def prepare(self, run: EngineRun) -> None:
        """Prepare the run; called after ``assembled`` and before ``run_start``."""
        run.take_step = partial(self.train_step, run)
        run.eval_steps = {
            "val": self.eval_step,
            "test": self.test_step,
            "predict": self.predict_step,
        }

    def train_step(self, run: EngineRun, microbatches: Microbatches) -> None:
        """Take one optimizer step; the engine updates the learning rate afterwards."""
        run.part(Updater).update(run, microbatches)

    def eval_step(self, run: EngineRun, batch: Batch) -> object:
        """Compute one validation batch; returns the output or an Outcome."""
        return run.part(TaskCalls).forward(batch)

    def test_step(self, run: EngineRun, batch: Batch) -> object:
        """Compute one test batch; the same as in validation by default."""
        return self.eval_step(run, batch)

    def predict_step(self, run: EngineRun, batch: Batch) -> object:
        """Compute one batch of ``predict``."""
        return run.part(TaskCalls).forward(batch)


class Train(Runner):
    """Trains, and evaluates as often as the config says."""

    needs_optimizer: bool = True

    @override
    def prepare(self, run: EngineRun) -> None:
        super().prepare(run)
        if run.optimizer is None and (self.needs_optimizer or _takes_usual_steps(self, run)):
            raise TaskError(
                "optim: training needs an optimizer\n  write for example optim: {type: AdamW}"
            )
        _refuse_shared_workers(run)
        # Before run_start, where hooks can set modules to eval mode.
        run.model.train()
        options = run.options.train
        prepare_stages(run)
        enable_recompute(run)
        is_usual = type(self).train_step is Runner.train_step
        run.has_usual_steps = is_usual and takes_shared_steps(run.part(Updater))
        run.part(Updater).bind(run)
        if not is_usual:
            warn_of_custom_train_step(run, type(self).__name__)
        run.choose_step = partial(self._choose_step, run)
        run.choose_step()
        if not run.world.is_single:
            require_mergeable(run)
            check_loaders(run, ["train", *run.eval_periods])
            run.plan.add_period("check ranks", run.options.engine.check_ranks, check_ranks)
        _add_averaging(run)  # before evaluations at the same step
        for split, periods in run.eval_periods.items():
            is_asked_for = isinstance(options.eval_every, dict) and not periods[0].is_never
            if is_asked_for or named_loaders(run.task, split):
                loaders = require_loaders(run.task, split)
                if options.max_eval_batches is None and not periods[0].is_never:
                    for one in loaders.values():  # before the training, not after it
                        refuse_endless(one, f"{split}_loader")
                call = partial(_evaluate_once if len(periods) > 1 else _evaluate_due, split)
                run.plan.add_soonest(f"evaluate {split}", periods, call)
                if options.eval_periods[split] == "auto":
                    run.stage_progress.at_end[f"evaluate {split}"] = partial(_evaluate_once, split)
        if options.eval_at_end:
            run.stage_progress.before_last_save = _evaluate_all
        run.set_part(ChangedAttributes, ChangedAttributes(run))
        run.device_time = choose_device_time(run.device)
        run.device_time.add_to(run)
        empty_cache = memory.find_empty_cache(run.device)
        if empty_cache is not None:
            every = run.options.engine.empty_cache_every
            run.plan.add_period("empty the cache", every, lambda _: empty_cache())
        plan_training_end(run)

    def _choose_step(self, run: EngineRun) -> None:
        take_step: TakeStep = partial(self.train_step, run)
        if type(self).train_step is Runner.train_step:
            take_step = choose_step(run, wrap_microbatching(run, run.part(Updater).update))
        run.take_step = build_step(run, take_step)

    @override
    def run(self, run: EngineRun) -> object:
        options = run.options.train
        _warn_of_unmeasured(run)
        announce_stage(run)
        if run.resume is None:
            check_sanity(run)
        if run.resume is None and options.eval_at_start:
            _evaluate_all(run)
        train(run)
        if not is_interrupted_or_preempted(run):
            end_if_diverged(run)
        if options.eval_at_end:  # for a stop that no save followed
            _evaluate_all(run)
        return None


class Test(Runner):
    """Evaluates one split; needs no optimizer.

    Args:
        split: The split to evaluate.
    """

    kind: str = "test"
    __test__ = False  # else pytest collects a class of this name

    def __init__(self, *, split: str = "test") -> None:
        self.split = split_name(split)

    @override
    def run(self, run: EngineRun) -> dict[str, float]:
        check_loaders(run, [self.split])
        return evaluate(run, self.split)


@final
@dataclass(frozen=True, slots=True)
class WrittenPredictions:
    """Where predictions were written, and how many."""

    path: Path
    count: int


class Predict(Runner):
    """Collects the model's outputs for the split ``predict``; needs no optimizer.

    Args:
        output: A file that gets them instead, as JSON lines or, by its suffix, as Parquet; a
            relative path is one in the run's folder. A prediction that was killed is continued.
    """

    kind: str = "predict"

    def __init__(self, *, output: str | None = None) -> None:
        self._output = output

    @override
    def run(self, run: EngineRun) -> object:
        check_loaders(run, ["predict" if named_loaders(run.task, "predict") else "test"])
        if self._output is None:
            return predict(run)
        config = {name: run.config.get(name) for name in ("init_from", "model", "data", "outputs")}
        facts = {
            **config,
            "seed": run.seed,
            "modified": _find_change_time(config["init_from"]),
            "files": _find_file_facts(config["data"]),
        }
        if not run.is_main:  # it sends its predictions to the main process
            predict(run)
            return None
        file = PredictionFile((run.dir or Path.cwd()) / self._output, facts)
        is_whole = False
        try:
            predict(run, file)
            is_whole = True
        finally:
            file.close(is_whole=is_whole)
        return WrittenPredictions(file.path, file.rows)


def _find_change_time(weights: object) -> int | None:
    """When the weights were written, if they are a file or folder."""
    path = weights.get("path") if isinstance(weights, Mapping) else weights
    found = locate_weights(path) if isinstance(path, str) else None
    return found.stat().st_mtime_ns if found is not None and found.exists() else None


def _find_file_facts(value: object) -> dict[str, tuple[int, int]]:
    """Size and time of the files that a part of the config names."""
    if isinstance(value, str):
        path = Path(value)
        try:
            facts = path.stat() if path.is_file() else None
        except (OSError, ValueError):  # no path at all
            facts = None
        return {} if facts is None else {value: (facts.st_size, facts.st_mtime_ns)}
    inner = value.values() if isinstance(value, Mapping) else value
    parts = inner if isinstance(inner, Iterable) else ()
    return {path: facts for one in parts for path, facts in _find_file_facts(one).items()}


def _takes_usual_steps(runner: Runner, run: EngineRun) -> bool:
    """Whether neither the updater nor the runner replaces the usual step."""
    is_usual = type(run.part(Updater)).update is Updater.update
    return is_usual and type(runner).train_step is Runner.train_step


def _refuse_shared_workers(run: EngineRun) -> None:
    """Refuse to evaluate the train loader if its persistent workers cannot serve two passes."""
    loader = run.feed.loader
    if not getattr(loader, "persistent_workers", False):
        return
    for split in ("val", *run.options.train.eval_periods):
        if any(one is loader for one in named_loaders(run.task, split).values()):
            raise DataError(
                f"{split}_loader: is the train_loader itself, but persistent workers can serve "
                "only one pass at a time\n"
                "  make a second DataLoader of the same dataset, or use persistent_workers=False"
            )


def _warn_of_unmeasured(run: EngineRun) -> None:
    until, monitor = run.options.train.until, run.monitor
    text = "%s: %s is never measured because %s is never evaluated: %s; set train.eval_every"
    if until is not None and (split := _unevaluated(run, until.metric)):
        logger.warning(text, "train.until", until.metric, split, "it cannot end the run")
    is_default = (
        run.part(TaskCalls).has_error and monitor is not None and monitor.metric.endswith("/err")
    )
    if monitor is not None and not is_default and (split := _unevaluated(run, monitor.metric)):
        effect = "there is no best model and no early stopping"
        logger.warning(text, "monitor", monitor.metric, split, effect)


def _unevaluated(run: EngineRun, metric: str) -> str:
    """The split of a metric if it is never evaluated, else an empty string."""
    options = run.options.train
    split = metric.split("/")[0]
    split = "val" if split == AVERAGED_SPLIT else split
    (every, *_) = run.eval_periods.get(split, [Every.NEVER])
    at_an_end = split in options.eval_periods and (options.eval_at_start or options.eval_at_end)
    is_never = every.is_never or _is_longer_than_run(run, split)
    return "" if split == "train" or at_an_end or not is_never else split


def _is_longer_than_run(run: EngineRun, split: str) -> bool:
    """Whether the run ends before its first evaluation of a split; only for the same unit."""
    if run.options.train.eval_periods.get(split) == "auto":  # also evaluates at the end
        return False
    lengths = [stage.length for stage in run.stage_progress.stages]
    return all(
        every != Every.UNREACHED
        and sum(one.amount for one in lengths if one is not None) < every.amount
        and all(one is not None and one.unit == every.unit for one in lengths)
        for every in run.eval_periods[split]
    )


def _evaluate_due(split: str, run: EngineRun) -> None:
    if is_interrupted_or_preempted(run):
        if run.plan.is_running_due:
            raise EvaluationInterrupted
        return
    evaluate(run, split)


def _evaluate_all(run: EngineRun) -> None:
    for split in run.options.train.eval_periods:
        if named_loaders(run.task, split):
            _evaluate_once(split, run)


def _evaluate_once(split: str, run: EngineRun) -> None:
    """Evaluate a split, unless this step was already evaluated."""
    if run.evaluated_at.get(split) != run.step:
        _evaluate_due(split, run)


def _add_averaging(run: EngineRun) -> None:
    """Plan the updates of the run's average, if it is updated between steps."""
    average = run.average
    if average is None or average.every is None:
        return
    begin = average.begin

    def update(run: EngineRun) -> None:
        if begin is None or run_position(run, begin.unit) >= begin.amount:
            average.update()

    run.plan.add_period("average", average.every, update)
