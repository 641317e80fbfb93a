"""Profiles a few real steps of an experiment; evaluates and records nothing."""

from __future__ import annotations

import logging
import re
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from typing_extensions import Unpack

from epochal import durable
from epochal.engine.analysis.model_summary import analyze_run
from epochal.engine.execute import execute
from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.every import Every
from epochal.errors import RecordError, TaskError
from epochal.experiment.experiment import load_experiment
from epochal.experiment.run_experiment import build_unrecorded_run
from epochal.text.escape import to_file_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.engine import RunResult
    from epochal.engine.analysis.model_summary import ModelSummary
    from epochal.engine.run.engine_run import EngineRun
    from epochal.experiment.config.choices import Choices
    from epochal.hooks.profiler import Profile, Profiler

logger = logging.getLogger(__name__)

MODEL_FILE = "model.txt"
_LAST_PRIORITY = 10_000


@final
@dataclass(frozen=True)
class ProfileResult:
    """The profiled steps, and how the short run ended."""

    tag: str
    device: str
    result: RunResult
    profile: Profile | None
    """None if the run failed before a step was profiled."""

    model: ModelSummary | None = None
    """None if the run failed, or its model cannot process a single sample."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        values: dict[str, Any] = {"tag": self.tag, "device": self.device}
        values |= {"status": self.result.status, "reason": self.result.reason}
        values["model"] = None if self.model is None else self.model.to_json()
        if self.profile is None:
            return values
        profile = self.profile
        known = asdict(profile) | {"dir": None if profile.dir is None else str(profile.dir)}
        return values | known | {"shares": profile.shares, "advice": profile.advice}


def profile_file(
    path: Path,
    profiler: Profiler,
    *,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    **choices: Unpack[Choices],
) -> ProfileResult:
    """Train as the config says while the profiler is active, without evaluations.

    Args:
        path: The config file.
        profiler: How many steps to profile, and in what detail.
        out: Where the trace goes; by default ``profile-<tag>`` in the working folder.
        overrides: Changes such as ``optim.lr=1e-3``.
        choices: What belongs to this run alone; see ``Choices``.

    Raises:
        ConfigError: The config has mistakes.
        RecordError: The folder for the trace exists already.
        TaskError: The config does not train, or not long enough to record a step.
    """
    if out is not None:
        _require_new(out)  # before anything is built
    experiment = load_experiment(path, overrides=overrides, choices=choices)
    run, runner, _ = build_unrecorded_run(experiment, experiment.inputs, is_quiet=True)
    if run.optimizer is None and runner.needs_optimizer is False:
        raise TaskError(
            f"{path}: its runner takes no steps, so there is nothing to profile\n"
            "  profile a config that trains, or set runner=train"
        )
    name = re.sub(r"[^\w.-]+", "-", to_file_name(run.tag))
    profiler.dir = out or Path(f"profile-{name}")
    profiler.stops_run = True
    _require_new(profiler.dir)
    disable_evaluation(run)
    run.events.add_hook(profiler)
    models: list[ModelSummary] = []
    run.on("stage_end", partial(_analyze, models), priority=_LAST_PRIORITY)
    device = str(run.device)
    result = execute(run, runner)
    needed = profiler.num_steps_needed
    if result.exit_code == 0 and result.steps < needed:
        raise TaskError(
            f"{path}: nothing was recorded: the training ends after {result.steps} steps, and at "
            f"least {needed} are needed\n"
            f"  write train.for={needed}st, or choose smaller numbers for --wait and --warmup"
        )
    done = ProfileResult(run.tag, device, result, profiler.result, models[-1] if models else None)
    _write_model(done)
    return done


def _analyze(found: list[ModelSummary], run: EngineRun) -> None:
    """Add the summary of the model after the last step, when the optimizer has its state."""
    if run.stop_status == "interrupted":
        return
    try:
        found.append(analyze_run(run))
    except Exception as error:  # user code may fail on a batch of one sample
        logger.warning("no model summary, since a batch of one sample fails: %s", error)


def _write_model(done: ProfileResult) -> None:
    """Write every layer of the model next to the trace."""
    dir = None if done.profile is None else done.profile.dir
    if dir is None or done.model is None:
        return
    try:
        durable.write_text(dir / MODEL_FILE, "\n".join([*done.model.lines(rows=None), ""]))
    except OSError as error:
        logger.warning("the table of layers could not be written: %s", error)


def _require_new(dir: Path) -> None:
    if dir.exists():
        raise RecordError(
            f"{dir}: exists already, and is not overwritten\n"
            "  name another folder with --out, or delete this one"
        )


def disable_evaluation(run: EngineRun) -> None:
    """Turn off evaluation in a run that has not started."""
    # A period that is never reached: without one, the run would warn.
    train = run.options.train
    splits = [split for split in train.eval_periods if named_loaders(run.task, split)]
    periods: dict[str, Every | Literal["auto"]] = dict.fromkeys(splits, Every.UNREACHED)
    changed = replace(
        train, eval_every=periods, eval_at_start=False, eval_at_end=False, sanity_batches=0
    )
    run.options = replace(run.options, train=changed)
