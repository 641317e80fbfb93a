"""The summary of a model: layers, parameters, FLOPs, latency and memory."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from epochal.engine.analysis.layers import (
    Flops,
    Layer,
    count_flops,
    find_layers,
    format_amount,
    layer_lines,
)
from epochal.engine.analysis.sample import copy_batch, first_of_columns, first_sample
from epochal.engine.device.seeding import generator_states, restore_generators
from epochal.engine.optim.select_parameters import has_uninitialized
from epochal.engine.snapshot.snapshot import keeping_training_modes, working_on_split
from epochal.engine.step.task_calls import TaskCalls
from epochal.errors import TaskError
from epochal.records.metrics.time_spent import format_precise_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch.optim import Optimizer

    from epochal.engine.run.engine_run import EngineRun

    Call = Callable[[], object]
    Prepare = Callable[[], Call]

logger = logging.getLogger(__name__)

_ROWS = 20
_PASSES_PER_STEP = 3
_MAX_RUNS = 30  # of a call whose latency is measured
_MIN_RUNS = 2
_WARMUP_RUNS = 3
_MAX_SECONDS = 1.0


@final
@dataclass(frozen=True)
class ModelSummary:
    """Layers, FLOPs, latency and memory of a model; ``str`` formats them as a table."""

    model: Layer
    """The model, with its layers as ``children``."""

    flops: int | None
    """FLOPs of a forward pass of one sample; None if they cannot be counted."""

    latency: Latency
    """Latency of a forward pass of one sample."""

    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of parameters, buffers, gradients and, if known, optimizer state."""

    uncounted: tuple[str, ...] = ()
    """Operations of unknown cost, which count as 0."""

    samples_per_step: int | None = None

    @property
    def step_flops(self) -> int | None:
        """FLOPs of a training step, if a backward pass costs two forward passes."""
        if self.flops is None or self.samples_per_step is None:
            return None
        return _PASSES_PER_STEP * self.flops * self.samples_per_step

    def lines(self, *, rows: int | None = _ROWS) -> list[str]:
        """Totals, then a table of layers; ``rows=None`` lists every layer."""
        totals = _totals(self)
        width = max(map(len, totals))
        head = [f"{name:<{width}}  {text}" for name, text in totals.items()]
        return [*head, "", *layer_lines(self.model, rows=rows)] if self.model.children else head

    def to_json(self) -> dict[str, Any]:
        """The summary as plain values, with every layer."""
        return {
            "kind": self.model.kind,
            "parameters": self.model.parameters,
            "trained": self.model.trained,
            "flops": self.flops,
            "step_flops": self.step_flops,
            "samples_per_step": self.samples_per_step,
            "uncounted": list(self.uncounted),
            "latency": asdict(self.latency),
            "memory_bytes": dict(self.memory_bytes),
            "layers": [_layer_to_json(layer) for depth, layer in self.model.walk() if depth],
        }

    @override
    def __str__(self) -> str:
        return "\n".join(self.lines())


def analyze(model: nn.Module, *inputs: object, **named: object) -> ModelSummary:
    """The summary of a model that is called with these inputs.

    The inputs are one sample, as a batch of one. They are copied, the model runs in eval mode,
    and its modes and all random generators are restored.

    Raises:
        TaskError: The model has uninitialized lazy modules.
    """
    _require_sizes(model)
    device = next((one.device for one in model.parameters()), torch.device("cpu"))

    def prepare() -> Call:
        return partial(model, *copy_batch(inputs), **copy_batch(named))

    with _keeping_generators(), _evaluating(model):
        return _analyze(model, prepare, device)


def analyze_run(run: EngineRun) -> ModelSummary:
    """The summary of a run's model, with the first training sample, through the task."""
    _require_sizes(run.model)
    with _without_side_effects(run):
        found = _analyze(run.model, _sample_calls(run), run.device, optimizer=run.optimizer)
    return replace(found, samples_per_step=run.feed.samples_per_step)


def register_flops(run: EngineRun, data: Mapping[str, Any] | None, keys: Sequence[str]) -> int:
    """Count the FLOPs of one sample, and write them into every checkpoint."""
    _require_sizes(run.model)
    with _without_side_effects(run):
        prepare = _sample_calls(run) if data is None else _data_calls(run, data, keys)
        prepare()()  # errors of model or data are raised here, without the counter
        flops = _count(prepare(), run.model)
    if flops is None:
        raise TaskError(
            f"register_flops: torch's counter fails with {type(run.model).__name__}\n"
            "  see the log for the reason, or pass a known number to register_caches"
        )
    run.register_caches({"flops": flops.total})
    return flops.total


def _sample_calls(run: EngineRun) -> Prepare:
    batch = run.feed.move(first_sample(run.feed.loader))
    return lambda: partial(run.part(TaskCalls).forward, copy_batch(batch))


def _data_calls(run: EngineRun, data: Mapping[str, Any], keys: Sequence[str]) -> Prepare:
    inputs = run.feed.move(first_of_columns(data, keys))

    def forward(inputs: Sequence[object]) -> object:
        with run.precision.context():
            return run.model(*inputs)

    return lambda: partial(forward, copy_batch(inputs))


def _analyze(
    model: nn.Module, prepare: Prepare, device: torch.device, optimizer: Optimizer | None = None
) -> ModelSummary:
    latency = measure_latency(prepare, device)
    flops = _count(prepare(), model)
    return ModelSummary(
        model=find_layers(model, flops),
        flops=None if flops is None else flops.total,
        latency=latency,
        memory_bytes=_measure_memory(model, optimizer),
        uncounted=() if flops is None else flops.uncounted,
    )


def _count(call: Call, model: nn.Module) -> Flops | None:
    """The FLOPs of a call, or None if the counter makes it fail."""
    try:
        return count_flops(call, model)
    except Exception as error:
        logger.warning("FLOPs are not counted: torch's counter fails: %s", error)
        return None


def _measure_memory(model: nn.Module, optimizer: Optimizer | None) -> dict[str, int]:
    parameters = list(model.parameters())
    sizes = {
        "parameters": _sum_bytes(parameters),
        "gradients": _sum_bytes(one for one in parameters if one.requires_grad),
        "buffers": _sum_bytes(model.buffers()),
    }
    if optimizer is not None and optimizer.state:
        states = optimizer.state.values()
        sizes["optimizer"] = _sum_bytes(
            value for state in states for value in state.values() if isinstance(value, Tensor)
        )
    return sizes


def _sum_bytes(tensors: Iterable[Tensor]) -> int:
    unique = {id(tensor): tensor for tensor in tensors}
    return sum(tensor.numel() * tensor.element_size() for tensor in unique.values())


def _require_sizes(model: nn.Module) -> None:
    if has_uninitialized(model):
        raise TaskError(
            f"{type(model).__name__}: its lazy modules are not initialized\n"
            "  run a forward pass first; in a run, they are initialized before run_start"
        )


@contextmanager
def _without_side_effects(run: EngineRun) -> Iterator[None]:
    """Use a run's model and task without affecting training."""
    needs_grad = bool(getattr(run.task, "eval_needs_grad", False))
    with working_on_split(run, "train"), _evaluating(run.model, needs_grad=needs_grad):
        yield


@contextmanager
def _evaluating(model: nn.Module, *, needs_grad: bool = False) -> Iterator[None]:
    with keeping_training_modes(model), torch.set_grad_enabled(needs_grad):
        model.eval()
        yield


@contextmanager
def _keeping_generators() -> Iterator[None]:
    states = generator_states()
    try:
        yield
    finally:
        restore_generators(states)


def _totals(found: ModelSummary) -> dict[str, str]:
    """The lines above the table, by name."""
    model, latency = found.model, found.latency
    frozen = model.parameters - model.trained
    lines = {
        "model": model.kind,
        "parameters": f"{model.parameters:,}" + (f", {frozen:,} of them frozen" if frozen else ""),
        "FLOPs": "not counted" if found.flops is None else _describe_flops(found),
        "latency": (
            f"{format_precise_time(latency.mean_seconds)} "
            f"± {format_precise_time(latency.std_seconds)} "
            f"a sample, forward, mean of {latency.runs}"
        ),
        "memory": ", ".join(
            f"{name} {format_amount(size, unit='B')}"
            for name, size in found.memory_bytes.items()
            if size
        ),
    }
    if found.uncounted:
        lines["not counted"] = ", ".join(found.uncounted)
    return {name: text for name, text in lines.items() if text}


def _describe_flops(found: ModelSummary) -> str:
    text = f"{format_amount(found.flops or 0)} a sample, forward"
    if found.step_flops is None:
        return text
    return f"{text}; about {format_amount(found.step_flops)} a step"


def _layer_to_json(layer: Layer) -> dict[str, Any]:
    """A layer as plain values, without its children."""
    names = ("name", "kind", "parameters", "trained", "tied", "flops", "calls")
    return {name: getattr(layer, name) for name in names}


@final
@dataclass(frozen=True, slots=True)
class Latency:
    """Time from the start of a call until the device has finished it."""

    mean_seconds: float
    std_seconds: float
    runs: int


def measure_latency(
    prepare: Callable[[], Call],
    device: torch.device,
    *,
    now: Callable[[], float] = time.perf_counter,
) -> Latency:
    """Repeat the calls that ``prepare`` makes for up to a second, at least twice.

    Only the calls are timed, until the device has finished them.
    """
    begun = now()
    for _ in range(_WARMUP_RUNS):
        prepare()()
        if now() - begun > _MAX_SECONDS / 2:
            break
    time_one = _timer(device, now)
    seconds: list[float] = []
    begun = now()
    while len(seconds) < _MIN_RUNS or (len(seconds) < _MAX_RUNS and now() - begun < _MAX_SECONDS):
        seconds.append(time_one(prepare()))
    return Latency(fmean(seconds), stdev(seconds), len(seconds))


def _timer(device: torch.device, now: Callable[[], float]) -> Callable[[Call], float]:
    if device.type == "cuda":
        return _time_on_cuda
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)

    def time_on_host(call: Call) -> float:
        if synchronize is not None:
            synchronize()
        begun = now()
        call()
        if synchronize is not None:
            synchronize()
        return now() - begun

    return time_on_host


def _time_on_cuda(call: Call) -> float:
    begin, end = (_event() for _ in range(2))
    torch.cuda.synchronize()  # earlier work, such as copies of inputs, does not count
    begin.record()
    call()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # by torch
