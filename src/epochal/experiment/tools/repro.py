"""Tests whether a config trains reproducibly: a few steps in two processes, bit for bit."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from typing_extensions import override

from epochal import durable
from epochal.engine.execute import execute
from epochal.engine.interfaces.hook import Hook
from epochal.errors import EpochalError, TaskError
from epochal.experiment.experiment import load_experiment
from epochal.experiment.record.failure import show_failure
from epochal.experiment.run_experiment import build_unrecorded_run
from epochal.experiment.tools.profile import disable_evaluation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from epochal.engine.interfaces.run import Run
    from epochal.engine.measure.meter import Window
    from epochal.experiment.config.choices import Choices

StepDigests = dict[str, dict[str, str]]
"""The state after a step: digests by part (losses, weights, optimizer) and name."""

_LAST_PRIORITY = 10_000
_HINTS = {
    "start": "the model is built differently: draw its weights from torch's own generator, "
    "and do not iterate over sets",
    "losses": "the data or the forward pass differs: look for your own generators, sets, "
    "threads and clocks in dataset and task",
    "rest": "the backward pass or the update differs: try engine.deterministic=true, which "
    "refuses or replaces nondeterministic operations",
}


@final
@dataclass(frozen=True)
class ReproResult:
    """Two trainings of the same config, step by step."""

    steps: int
    """The number of steps that both took."""

    first_difference: int | None = None
    """The step after which they differ; 0 is before the first one."""

    parts: tuple[str, ...] = ()
    """What differs there, such as ``weights: linear.bias``."""

    hint: str = ""
    exit_code: int = 0

    @property
    def is_same(self) -> bool:
        """Whether every bit is the same."""
        return self.first_difference is None and self.exit_code == 0

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self) | {"is_same": self.is_same}


def check_repro(
    path: Path, *, steps: int, overrides: Sequence[str] = (), choices: Choices | None = None
) -> ReproResult:
    """Train ``steps`` steps in each of two new processes, and compare them; records nothing."""
    request = {
        "path": str(path),
        "steps": steps,
        "overrides": list(overrides),
        "choices": choices or {},
    }
    traces: list[list[StepDigests]] = []
    with tempfile.TemporaryDirectory(prefix="epochal-repro-") as folder:
        for number in range(2):
            out = Path(folder, f"{number}.json")
            words = [sys.executable, "-m", "epochal.experiment.tools.repro", str(out)]
            text = json.dumps(request, default=str)  # paths become text
            done = subprocess.run(words, input=text, text=True, check=False)
            if done.returncode or not out.exists():
                return ReproResult(steps=0, exit_code=done.returncode or 1)
            traces.append(json.loads(out.read_bytes()))
    return compare_traces(*traces)


def compare_traces(first: Sequence[StepDigests], second: Sequence[StepDigests]) -> ReproResult:
    """Where two traces differ first, and a likely cause."""
    steps = min(len(first), len(second)) - 1
    for step, (one, other) in enumerate(zip(first, second, strict=False)):
        parts = tuple(_differences(one, other))
        if parts:
            kind = "losses" if parts[0].startswith("losses") else "rest"
            hint = _HINTS["start" if step == 0 else kind]
            return ReproResult(steps, step, parts, hint, exit_code=1)
    if len(first) != len(second):
        counts = f"{len(first) - 1} and {len(second) - 1} steps were taken"
        return ReproResult(steps, steps + 1, (counts,), _HINTS["losses"], exit_code=1)
    return ReproResult(steps)


def _differences(one: StepDigests, other: StepDigests) -> Iterator[str]:
    for part in dict.fromkeys((*one, *other)):
        here, there = one.get(part, {}), other.get(part, {})
        names = [n for n in dict.fromkeys((*here, *there)) if here.get(n) != there.get(n)]
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            yield f"{part}: {', '.join(names[:5])}{more}"


def trace_steps(
    path: Path, *, steps: int, overrides: Sequence[str] = (), choices: Choices | None = None
) -> list[StepDigests] | int:
    """The digests of the first steps; the exit code if the training fails before."""
    experiment = load_experiment(path, overrides=overrides, choices=choices)
    run, runner, _ = build_unrecorded_run(experiment, experiment.inputs, is_quiet=True)
    if run.optimizer is None:
        raise TaskError(
            f"{path}: trains nothing, so there is nothing to repeat\n  check a config that trains"
        )
    disable_evaluation(run)
    hook = _DigestHook(steps)
    run.events.add_hook(hook)
    result = execute(run, runner)
    if not result.ok:
        show_failure(result)
        return result.exit_code
    return hook.digests


@final
class _DigestHook(Hook):
    """Computes digests after each step, and ends the run after a few steps."""

    priority = _LAST_PRIORITY

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.digests: list[StepDigests] = []

    @override
    def run_start(self, run: Run) -> None:
        self._window: Window = run.meter.window()
        self._take(run)

    @override
    def step_end(self, run: Run) -> None:
        self._take(run)
        if run.step >= self.steps:
            run.stop("repro")

    def _take(self, run: Run) -> None:
        losses = {name: float(mean).hex() for name, mean in self._window.read().items()}
        weights = {name: _digest(one) for name, one in run.model.state_dict().items()}
        self.digests.append({"losses": losses, "weights": weights, "optimizer": _optimizer(run)})


def _optimizer(run: Run) -> dict[str, str]:
    names = {id(parameter): name for name, parameter in run.model.named_parameters()}
    state = {} if run.optimizer is None else run.optimizer.state
    return {
        f"{names.get(id(parameter), number)}.{key}": _digest(value)
        for number, (parameter, values) in enumerate(state.items())
        if isinstance(values, Mapping)
        for key, value in values.items()
    }


def _digest(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    tensor = value.detach().cpu().contiguous().reshape(-1)
    data = tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return hashlib.sha256(data).hexdigest()[:16]


def main(out: Path, text: str) -> int:
    """Run one training of ``check_repro``; returns the exit code."""
    request = json.loads(text)
    choices: Choices = request["choices"]
    path, steps, overrides = Path(request["path"]), request["steps"], request["overrides"]
    try:
        found = trace_steps(path, steps=steps, overrides=overrides, choices=choices)
    except EpochalError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the parent's standard error
        return error.exit_code
    if isinstance(found, int):
        return found
    durable.write_json(out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.stdin.read()))
