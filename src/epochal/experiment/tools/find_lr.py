"""Finds a learning rate by real steps with growing rates; restores everything afterwards."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
from typing_extensions import Unpack, override

from epochal.check import SECTIONS
from epochal.config import Duration, Node
from epochal.engine import Hook, Schedule
from epochal.engine.execute import execute
from epochal.engine.optim.rate import read_rate
from epochal.engine.run.stage_progress import StageProgress
from epochal.engine.snapshot.snapshot import take_whole_snapshot
from epochal.errors import ConfigError, Problem, TaskError
from epochal.experiment.config.choices import check_choices
from epochal.experiment.experiment import Experiment, load_experiment
from epochal.experiment.run_experiment import build_unrecorded_run
from epochal.experiment.tools.profile import disable_evaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from epochal.engine import Run, RunResult
    from epochal.engine.measure.meter import Window
    from epochal.engine.run.engine_run import EngineRun
    from epochal.experiment.config.choices import Choices
    from epochal.experiment.config.inputs import ExperimentInputs

    OnStep = Callable[[int, float, float], object]


_MIN_STEPS = 10


@final
@dataclass(frozen=True)
class LrSearchResult:
    """Losses at growing learning rates, and the rate that they suggest."""

    tag: str
    device: str
    lrs: tuple[float, ...]
    """The learning rate of each step; other groups kept their ratio to it."""

    losses: tuple[float, ...]
    """The loss of each step, before its update."""

    smoothed: tuple[float, ...]
    suggestion: float | None
    """Where the loss falls fastest; None if it does not fall."""

    tenth: float | None
    """Another estimate: a tenth of the rate with the lowest loss; None if it does not fall."""

    reason: str
    """Why the test ended before its last step; empty if it did not."""

    base: float
    """The learning rate of the config."""

    changes: Mapping[str, float]
    """The suggested rates by config key; groups and further optimizers keep their ratios.

    Empty without a suggestion, and if the optimizer was given as an object."""

    result: RunResult
    """How the steps ended."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        names = ("tag", "device", "base", "suggestion", "tenth", "reason")
        lists = ("lrs", "losses", "smoothed")
        plain = {name: getattr(self, name) for name in names} | {"changes": dict(self.changes)}
        return plain | {name: list(getattr(self, name)) for name in lists}


def find_lr(
    source: object,
    *,
    min_lr: float = 1e-8,
    max_lr: float = 1.0,
    steps: int = 100,
    overrides: Sequence[str] = (),
    on_step: OnStep | None = None,
    **choices: Unpack[Choices],
) -> LrSearchResult:
    """The losses of real steps while the learning rate grows, and the rate that they suggest.

    Nothing is recorded; the parts and random generators are restored afterwards.

    Args:
        source: A config as ``ep.run`` takes it, or an ``Experiment``.
        min_lr: The rate of the first step.
        max_lr: The rate of the last step, if the loss does not diverge before.
        steps: The number of steps.
        overrides: Changes such as ``optim.type=SGD``.
        on_step: Called after each step with its number, its rate and its loss.
        choices: What belongs to this test alone; see ``Choices``.

    Raises:
        ConfigError: The config has mistakes, or the range is invalid.
        TaskError: The config does not train.
    """
    check_choices(choices, sections=SECTIONS)
    _require_range(min_lr, max_lr, steps)
    experiment = source
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(source, overrides=overrides, choices=choices)
    inputs = _without_schedule(experiment.inputs)
    run, runner, _ = build_unrecorded_run(experiment, inputs, is_quiet=True)
    if run.optimizer is None:
        raise TaskError(
            "runner: has no optimizer, so there is no learning rate to find\n"
            "  name a config that trains, or set runner=train"
        )
    run.average = None  # it would not change a loss, and has no weights before the first step
    snapshot, base = take_whole_snapshot(run), _find_base(run)
    _limit_run(run, steps)
    run.schedule = _ExponentialRise(min_lr / base, max_lr / base, steps)
    recorder = _LossRecorder(base, run.schedule, on_step)
    run.events.add_hook(recorder)
    tag, device, rates = run.tag, str(run.device), _list_rates(run.config)
    if "optim" in inputs.given.parts:
        rates = {}
    try:
        with _without_log("epochal.engine.step.nonfinite_watch"):  # divergence is expected here
            result = execute(run, runner, raise_errors=True)
    finally:
        snapshot.restore()
    advice, lrs = suggest_lr(recorder.losses), recorder.lrs
    suggestion = None if advice.steepest is None else lrs[advice.steepest]
    ratio = 0.0 if suggestion is None else suggestion / base
    return LrSearchResult(
        tag=tag,
        device=device,
        lrs=tuple(lrs),
        losses=tuple(recorder.losses),
        smoothed=advice.smoothed,
        suggestion=suggestion,
        tenth=None if suggestion is None else lrs[advice.least] / 10,
        reason=recorder.reason,
        base=base,
        changes={key: rate * ratio for key, rate in rates.items() if ratio},
        result=result,
    )


def _require_range(min_lr: float, max_lr: float, steps: int) -> None:
    if not (0 < min_lr < max_lr and math.isfinite(max_lr)):
        what = f"the range from {min_lr:g} to {max_lr:g} is invalid"
        raise ConfigError(Problem("find-lr", what, hint="write for example --min 1e-8 --max 1"))
    if steps < _MIN_STEPS:
        what = f"needs at least {_MIN_STEPS} steps, got {steps}"
        raise ConfigError(Problem("find-lr", what, hint="write --steps 100"))


def _without_schedule(inputs: ExperimentInputs) -> ExperimentInputs:
    """The inputs without a schedule: those of torch change rates as soon as they are built."""
    root = _without(inputs.config.root, "schedule")
    optim = root.mapping.get("optim")
    if optim is not None and optim.is_mapping and "type" not in optim.mapping:  # several of them
        members = {name: _without(one, "schedule") for name, one in optim.mapping.items()}
        root = root.with_entries({**root.mapping, "optim": optim.with_entries(members)})
    config = replace(inputs.config, root=root)
    parts = {name: part for name, part in inputs.given.parts.items() if name != "schedule"}
    return replace(inputs, config=config, given=replace(inputs.given, parts=parts))


def _without(node: Node, key: str) -> Node:
    entries = {name: child for name, child in node.mapping.items() if name != key}
    return node.with_entries(entries) if node.is_mapping else node


def _list_rates(config: Mapping[str, Any]) -> dict[str, float]:
    """The learning rates of all optimizers and groups in the config, by key."""
    optim = config.get("optim") or {}
    several = {f"optim.{name}": one for name, one in optim.items() if isinstance(one, Mapping)}
    found: dict[str, float] = {}
    for path, one in ({"optim": optim} if "type" in optim else several).items():
        owners = {path: one}
        owners |= {f"{path}.groups.{i}": rule for i, rule in enumerate(one.get("groups") or ())}
        found |= {f"{key}.lr": owner["lr"] for key, owner in owners.items() if owner.get("lr")}
    return found


def _find_base(run: EngineRun) -> float:
    """The optimizer's default rate, to which those of its groups are proportional."""
    assert run.optimizer is not None
    groups = run.optimizer.param_groups
    bases = [float(group.get("initial_lr", read_rate(group["lr"]))) for group in groups]
    defaults: dict[str, Any] = getattr(run.optimizer, "defaults", {})
    default = defaults.get("lr")
    base = max(bases) if default is None or read_rate(default) not in bases else read_rate(default)
    if not base > 0:
        what = f"must be above 0, because the rates of groups are relative to it, got {base!r}"
        raise ConfigError(Problem("optim.lr", what, hint="write any other, such as 1e-3"))
    return base


def _limit_run(run: EngineRun, steps: int) -> None:
    """Limit a run that has not started to ``steps`` steps, without evaluation."""
    disable_evaluation(run)
    length = Duration(steps, "st")
    train = replace(run.options.train, for_=length, max_time=None, until=None)
    engine = replace(run.options.engine, on_nonfinite="warn")
    run.options = replace(run.options, train=train, engine=engine)
    first = replace(run.stage_progress.stages[0], length=length, until=None, schedule=None)
    run.stage_progress = StageProgress((first,))


@final
class _ExponentialRise(Schedule):
    """Grows exponentially from one factor to another."""

    def __init__(self, first: float, last: float, steps: int) -> None:
        self._first, self._ratio, self._steps = first, last / first, steps

    @override
    def factor(self, step: int, total_steps: int | None) -> float:
        return float(self._first * self._ratio ** (step / (self._steps - 1)))


@final
class _LossRecorder(Hook):
    """Records the loss of each step, and stops the run when it diverges."""

    def __init__(self, base: float, schedule: Schedule, on_step: OnStep | None) -> None:
        self.lrs: list[float] = []
        self.losses: list[float] = []
        self.reason = ""
        self._base, self._schedule, self._on_step = base, schedule, on_step
        self._ending = DivergenceStop()
        self._window: Window

    @override
    def run_start(self, run: Run) -> None:
        self._window = run.meter.window("find-lr")

    @override
    def step_end(self, run: Run) -> None:
        loss = self._window.read().get("loss", math.nan)
        lr = self._base * self._schedule.factor(run.step - 1, None)
        self.reason = self._ending.check_loss(loss)
        if math.isfinite(loss):
            self.lrs.append(lr)
            self.losses.append(loss)
        if self._on_step is not None:
            self._on_step(run.step, lr, loss)
        if self.reason:
            run.stop("diverged", status="finished")


@contextmanager
def _without_log(name: str) -> Iterator[None]:
    """Disable a logger in a block."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


# As shares of all steps:
_SMOOTHING = 0.03  # standard deviation of the smoothing window
_SLOPE_REACH = 0.04  # half the width over which a slope is measured
_IGNORED_START = 0.1  # the first rates are too small to change the loss
_MOMENTUM = 0.8  # of the running mean that decides when to stop
_MIN_POINTS = 5
_MIN_NOISE_DROP = 2.0  # a smaller drop, in multiples of the noise, does not count
DIVERGENCE_FACTOR = 4.0
"""The search ends when the loss reaches this multiple of the lowest loss."""


@final
@dataclass(frozen=True)
class LrSuggestion:
    """Suggested learning rates, as indices into the curve."""

    steepest: int | None
    """Where the loss falls fastest; None if it never falls."""

    least: int
    """Where it is lowest."""

    smoothed: tuple[float, ...]


def suggest_lr(losses: Sequence[float]) -> LrSuggestion:
    """Where the loss of steps with growing rates falls fastest, and where it is lowest."""
    smoothed = smooth_losses(losses)
    count = len(smoothed)
    first, reach = round(_IGNORED_START * count), max(1, round(_SLOPE_REACH * count))
    least = min(range(count), key=smoothed.__getitem__, default=0)
    # Behind the lowest loss it diverges, which is not noise.
    jumps = [losses[one + 1] - losses[one] for one in range(least)]
    noise = math.sqrt(sum(one * one for one in jumps) / max(1, len(jumps)) / 2)
    start = sum(losses[: count // 4]) / max(1, count // 4)
    if least <= first or start - smoothed[least] <= _MIN_NOISE_DROP * noise:
        return LrSuggestion(None, least, smoothed)

    def slope(index: int) -> float:
        before, after = max(0, index - reach), min(count - 1, index + reach)
        return (smoothed[after] - smoothed[before]) / (after - before)

    steepest = min(range(first, least + 1), key=slope)
    return LrSuggestion(steepest, least, smoothed)


def smooth_losses(losses: Sequence[float]) -> tuple[float, ...]:
    """The losses smoothed by a Gaussian window, which shifts nothing."""
    if not losses:
        return ()
    width = max(1.0, _SMOOTHING * len(losses))
    reach = math.ceil(3 * width)
    window = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    inside = slice(reach, reach + len(losses))
    sums = np.convolve(np.asarray(losses, np.float64), window)[inside]
    shares = np.convolve(np.ones(len(losses)), window)[inside]  # smaller at both ends
    return tuple((sums / shares).tolist())


@final
class DivergenceStop:
    """Decides after each loss whether the search is over."""

    def __init__(self) -> None:
        self._mean, self._weight, self._count = 0.0, 0.0, 0
        self._least = math.inf

    def check_loss(self, loss: float) -> str:
        """The reason to end the search; empty to continue."""
        if not math.isfinite(loss):
            return "the loss is no longer finite"
        self._count += 1
        self._mean = _MOMENTUM * self._mean + (1 - _MOMENTUM) * loss
        self._weight = _MOMENTUM * self._weight + (1 - _MOMENTUM)
        mean = self._mean / self._weight
        self._least = min(self._least, mean)
        # Also right for negative losses, where a multiple of the lowest would be lower.
        is_high = mean > self._least + (DIVERGENCE_FACTOR - 1) * abs(self._least)
        is_settled = self._count > _MIN_POINTS
        return f"the loss is {DIVERGENCE_FACTOR:g} times the lowest" * (is_high and is_settled)
