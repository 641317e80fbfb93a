"""The options of the sections train, engine, optim, log and checkpoint of a config."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, final

from epochal.config.bounds import Above, AtLeast, AtMost, guard
from epochal.config.checkpoint_name import check_template
from epochal.config.condition import Condition, parse_condition
from epochal.config.duration import Duration, parse_duration
from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.splits import split_name
from epochal.errors import ConfigError, Problem

# Defaults are the text that a user would type, because this file is also parsed without
# being imported; `__post_init__` converts text to values.


@final
@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How long to train and when to evaluate: the section ``train``."""

    for_: Duration = "10ep"  # type: ignore[assignment]  # the schema shows what users type
    """How long to train: ``10ep``, ``500st`` (optimizer steps), ``1e6sa`` (samples) or ``2h``."""

    max_time: Duration | None = None
    """Stop after this much time even if ``for`` is not reached, such as ``24h``."""

    until: Condition | None = None
    """Stop as soon as a metric is good enough, such as ``val/acc >= 0.95``."""

    folds: Annotated[int, AtLeast(2)] | None = None
    """Cross validation: the number of runs, each with another part of the training data as val."""

    fold: Annotated[int, AtLeast(1)] | None = None
    """Train only this fold, counted from 1."""

    stratify: str | int | None = None
    """Spread labels evenly over folds: the key of the label in a sample or in the dataset."""

    eval_every: Every | Literal["auto"] | dict[str, Every | Literal["auto"]] = "auto"
    """How often to evaluate ``val``, or a mapping of split to period; 0 is never. ``auto`` is each
    epoch if ``for`` counts epochs, else each epoch or a twentieth of the run, whichever is sooner,
    and at the end."""

    eval_at_start: bool = False
    """Evaluate before the first step."""

    eval_at_end: bool = False
    """Evaluate after the last step, unless that step was already evaluated."""

    eval_loss: bool | None = None
    """Compute the loss in evaluation too, with the same random numbers each time; null computes it
    if ``monitor`` or ``until`` names ``val/loss``."""

    sanity_batches: Annotated[int, AtLeast(0)] = 2
    """Validation batches to try before the first step, to find errors early; 0 is none."""

    limit_batches: Annotated[int, AtLeast(1)] | None = None
    """Read at most this many batches of every loader."""

    limit_eval_batches: Annotated[int, AtLeast(1)] | None = None
    """Read at most this many batches of every loader in evaluations; training reads all."""

    def __post_init__(self) -> None:
        _set(self, "for_", _duration("train.for", self.for_))
        if self.max_time is not None:
            _set(self, "max_time", _duration("train.max_time", self.max_time, time_only=True))
        if self.until is not None:
            _set(self, "until", _condition("train.until", self.until))
        if isinstance(self.eval_every, dict):
            periods = {
                split: _every_or_auto(f"train.eval_every.{split}", every)
                for split, every in self.eval_every.items()
            }
            _set(self, "eval_every", periods)
        else:
            _set(self, "eval_every", _every_or_auto("train.eval_every", self.eval_every))
        if self.fold is not None and not self.fold <= (self.folds or 0):
            hint = "write a number up to train.folds"
            _refuse("train.fold", f"there is no fold {self.fold} of {self.folds}", hint)
        for split in self.eval_periods:
            if split not in ("val", "test"):
                key = f"train.eval_every.{split}"
                _refuse(key, f"{split!r} is not evaluated", "write val or test")
        guard(self, "train")

    @property
    def eval_periods(self) -> dict[str, Every | Literal["auto"]]:
        """Every evaluated split with its period, by canonical name."""
        if isinstance(self.eval_every, dict):
            return {split_name(split): every for split, every in self.eval_every.items()}
        return {"val": self.eval_every}

    @property
    def max_eval_batches(self) -> int | None:
        """The smaller limit of batches in an evaluation; None if there is none."""
        limits = [self.limit_batches, self.limit_eval_batches]
        return min((limit for limit in limits if limit is not None), default=None)


@final
@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the machine is used: the section ``engine``."""

    step: Literal["auto", "eager", "compile", "graph"] = "auto"
    """How steps run: as written, compiled, as one CUDA graph, or the best of them."""

    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp64"] = "fp32"
    """Number format of the computation; weights stay ``model.dtype``, and fp16 scales the loss."""

    on_nonfinite: Literal["warn", "skip", "stop", "rollback"] = "warn"
    """What to do when a gradient is not finite: only warn, skip that update, end the run, or roll
    back to the newest checkpoint and skip the batches since."""

    microbatch: Annotated[int, AtLeast(1)] | Literal["auto"] | None = None
    """Maximal number of samples in one forward pass; ``auto`` finds how many fit into memory."""

    recompute: list[str] = field(default_factory=list)
    """Modules, such as ``encoder.layers.*``, whose activations are computed twice, not kept."""

    channels_last: bool = False
    """Use the channels-last memory format for images and convolution weights."""

    sync_batchnorm: bool = False
    """Batch norm uses the samples of all processes; no effect with one process."""

    compile_backend: str = "inductor"
    """Backend of torch.compile, for compiled steps."""

    compile_mode: Literal["default", "max-autotune"] = "default"
    """``max-autotune`` searches longer for faster kernels; only for the backend ``inductor``."""

    compile_dynamic: bool | None = None
    """Compile for varying sizes; null decides automatically; captured steps have fixed sizes."""

    compile_fullgraph: bool = False
    """Fail if a step cannot be compiled as a whole, instead of running parts in Python."""

    compile_options: dict[str, Any] = field(default_factory=dict)
    """Further options of the backend, such as ``{epilogue_fusion: true}``."""

    strategy: Literal["auto", "ddp", "fsdp", "none"] = "auto"
    """How several processes share the model: each has all of it and gradients are averaged (ddp,
    which auto chooses for several processes), each has a part of every parameter (fsdp), or every
    process is a separate run (none)."""

    fsdp_wrap: list[str] = field(default_factory=list)
    """Modules, such as ``blocks.*``, whose parameters are gathered when they are needed and freed
    afterwards; all others are gathered at once."""

    fsdp_precision: Literal["fp32", "bf16", "fp16"] | None = None
    """Number format of gathered parameters; null is that of ``precision``. The parts that are
    trained stay ``model.dtype``."""

    fsdp_reduce: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format in which gradients are averaged over processes, if parameters are gathered in
    a smaller one."""

    fsdp_reshard: bool = True
    """Free gathered parameters after the forward pass, too: less memory, one gathering more."""

    fsdp_offload: bool = False
    """Keep parameters, gradients and optimizer state in host memory; much slower."""

    tensor_parallel: Annotated[int, AtLeast(1)] = 1
    """How many neighbouring processes share the computation of each layer in ``tensor_plan``."""

    tensor_plan: dict[str, Literal["colwise", "rowwise"]] = field(default_factory=dict)
    """How linear layers and embeddings are divided, such as ``{blocks.*.up: colwise, blocks.*.down:
    rowwise}``; a colwise layer is followed by a rowwise one."""

    find_unused: bool = False
    """Allow steps in which some parameters get no gradient, with several processes; slower."""

    check_ranks: Every = 0  # type: ignore[assignment]  # the schema shows what users type
    """How often to check that all processes have the same weights, such as ``500st``; 0 is
    never."""

    deterministic: bool = False
    """Use only deterministic kernels; operations without one fail."""

    num_threads: Annotated[int, AtLeast(1)] | None = None
    """CPU threads of one operation; by default chosen by torch."""

    empty_cache_every: Every = 0  # type: ignore[assignment]  # the schema shows what users type
    """How often the device's cached memory is released, which costs a sync; 0 is never."""

    hang_after: Every = "30min"  # type: ignore[assignment]  # the schema shows what users type
    """Without progress for this time, write the stacks of all threads; 0 is never."""

    grace_period: Every = "25s"  # type: ignore[assignment]  # the schema shows what users type
    """Without progress for this time after SIGTERM or SIGHUP, end the run unsaved; 0 is never."""

    def __post_init__(self) -> None:
        every = _every("engine.empty_cache_every", self.empty_cache_every)
        _set(self, "empty_cache_every", every)
        _set(self, "check_ranks", _every("engine.check_ranks", self.check_ranks))
        _set(self, "hang_after", _every_time("engine.hang_after", self.hang_after, "30min"))
        _set(self, "grace_period", _every_time("engine.grace_period", self.grace_period, "25s"))
        guard(self, "engine")


CLIPS = ("norm", "value")
"""The kinds of gradient clipping."""


@final
@dataclass(frozen=True, kw_only=True)
class OptimOptions:
    """How gradients become an update: extra keys of the section ``optim``."""

    accumulate: Annotated[int, AtLeast(1)] = 1
    """Batches whose gradients are accumulated for one step, weighted by their counts."""

    clip: Annotated[float, Above(0)] | dict[str, float] | None = None
    """Maximal norm of the gradient of all parameters, or ``{value: 0.5}`` for the maximal absolute
    value of its elements; null does not clip."""

    noise: Annotated[float, Above(0)] | None = None
    """Initial variance of normal noise that is added to gradients; null adds none."""

    noise_decay: Annotated[float, AtLeast(0)] = 0.55
    """How that variance decreases: after t steps it is ``noise / (1 + t) ** noise_decay``."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    """Options for some parameters: ``{match: "*.bias", weight_decay: 0}``; later rules win."""

    no_decay: Literal["auto"] | None = None
    """``auto``: no weight decay for biases, vectors, norms and parameters that modules declare."""

    layer_decay: Annotated[float, Above(0), AtMost(1)] | None = None
    """Factor of the learning rate from each layer to the one below it."""

    freeze: list[str] = field(default_factory=list)
    """Patterns of parameters that are not trained, such as ``encoder.*``."""

    def __post_init__(self) -> None:
        guard(self, "optim")
        if isinstance(self.clip, dict):
            kind, limit = next(iter(self.clip.items()), ("", 0.0))
            if len(self.clip) != 1 or kind not in CLIPS or not limit > 0:
                hint = "write {norm: 1.0} or {value: 0.5}, with a number above 0"
                _refuse("optim.clip", f"cannot clip by {self.clip!r}", hint)

    def clip_limit(self, kind: Literal["norm", "value"]) -> float | None:
        """The limit for clipping by norm or value; None if gradients are not clipped so."""
        if isinstance(self.clip, dict):
            return self.clip.get(kind)
        return self.clip if kind == "norm" else None


@final
@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What is shown and recorded while training, and how often: the section ``log``."""

    console_every: Every = "50st"  # type: ignore[assignment]  # the schema shows what users type
    """How often a line of progress is printed; 0 is never."""

    record_every: Every = "10st"  # type: ignore[assignment]  # the schema shows what users type
    """How often points are written to the record; 0 is never."""

    system_every: Every = "10s"  # type: ignore[assignment]  # the schema shows what users type
    """How often the use of CPU, memory, disk and GPUs is recorded; 0 is never."""

    grad_norm: bool = False
    """Measure the norm of the gradient at every step."""

    data_time: bool = True
    """Show how long a step waits for its data."""

    memory: bool = True
    """Show the peak device memory."""

    tensorboard: bool = True
    """Write event files for TensorBoard, if it is installed."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The minimal level of log messages."""

    def __post_init__(self) -> None:
        _set(self, "console_every", _every("log.console_every", self.console_every))
        _set(self, "record_every", _every("log.record_every", self.record_every))
        _set(self, "system_every", _every_time("log.system_every", self.system_every, "10s"))


@final
@dataclass(frozen=True, kw_only=True)
class CheckpointOptions:
    """When the state of a run is saved, and which checkpoints are kept: section ``checkpoint``."""

    every: Every | Literal["auto"] | list[Every] = "auto"
    """How often to save: ``1ep``, ``500st``, ``10min``, or a list; 0 saves only at the end.
    ``auto`` is as often as ``train.eval_every: auto`` evaluates."""

    keep_last: Annotated[int, AtLeast(1)] | None = 1
    """How many of the newest checkpoints to keep; null keeps all."""

    keep_best: Annotated[int, AtLeast(0)] = 1
    """How many of the best by ``monitor`` to keep; unless 0, each better model is saved."""

    on_error: bool = True
    """Save after an error between two steps, such as in an evaluation or in the data."""

    on_failure: Literal["warn", "stop"] = "warn"
    """When a checkpoint cannot be written: warn and try the next one, or end the run."""

    name: str = "{tag}-{step}"
    """Names of checkpoints: {tag}, {step}, {epoch}, {samples} and metrics, as {val/acc:.3f}."""

    dir: str | None = None
    """Where to create the folder of a run's checkpoints; null is the folder of the run."""

    def __post_init__(self) -> None:
        written = self.every if isinstance(self.every, list | tuple) else [self.every]
        _set(self, "every", [_every_or_auto("checkpoint.every", every) for every in written])
        try:
            check_template(self.name)
        except ValueError as error:
            what, _, hint = str(error).partition("\n")
            _refuse("checkpoint.name", f"{self.name!r} {what}", hint)
        guard(self, "checkpoint")

    @property
    def periods(self) -> list[Every | Literal["auto"]]:
        """The periods of saving, without those that are never."""
        periods: list[Every | Literal["auto"]] = self.every  # type: ignore[assignment]  # see above
        return [every for every in periods if every == "auto" or not every.is_never]


@final
@dataclass(frozen=True, kw_only=True)
class HookOptions:
    """When a hook is called: extra keys of every entry of ``hooks``."""

    on: tuple[str, ...] | None = None
    """The splits at whose events it is called; all by default."""

    priority: int | None = None
    """The order among the hooks of an event, low first; by default the hook's own."""

    every: Every | None = None
    """Period of its ``step_end`` (``50st``, ``10min``) or ``epoch_end`` (``2ep``)."""

    runners: tuple[Literal["train", "test", "predict"], ...] | None = None
    """The runners under which it is called; by default those of the hook."""

    def __post_init__(self) -> None:
        if self.on is not None:
            _set(self, "on", tuple(split_name(split) for split in self.on))
        if self.every is not None:
            _set(self, "every", _every("hooks.every", self.every))


@final
@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of all sections that the engine reads."""

    train: TrainOptions = field(default_factory=TrainOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    optim: OptimOptions = field(default_factory=OptimOptions)
    log: LogOptions = field(default_factory=LogOptions)
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)


def _set(options: object, name: str, value: object) -> None:
    object.__setattr__(options, name, value)


def _duration(key: str, value: object, *, time_only: bool = False) -> Duration:
    try:
        duration = value if isinstance(value, Duration) else parse_duration(str(value))
    except (TypeError, ValueError) as error:
        raise ConfigError(Problem(key, str(error))) from error
    if time_only and duration.unit != "s":
        _refuse(key, f"must be a time, got {str(duration)!r}", "write for example 24h or 90min")
    return duration


def _condition(key: str, value: object) -> Condition:
    try:
        return value if isinstance(value, Condition) else parse_condition(str(value))
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise ConfigError(Problem(key, what, hint=hint)) from error


def _every(key: str, value: object) -> Every:
    try:
        return Every.parse(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(Problem(key, str(error))) from error


def _every_or_auto(key: str, value: object) -> Every | Literal["auto"]:
    return "auto" if value == "auto" else _every(key, value)


def _every_time(key: str, value: object, example: str) -> Every:
    every = _every(key, value)
    if not every.is_never and every.unit != "s":
        _refuse(key, f"must be a time, got {str(every)!r}", f"write for example {example}, or 0")
    return every


def _refuse(key: str, what: str, hint: str) -> None:
    raise ConfigError(Problem(key, what, hint=hint))
