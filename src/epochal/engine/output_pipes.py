"""Runs the output stages of each batch and the evaluation stages of each evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

import torch
from torch import Tensor

from epochal.engine.device.move import BatchMover, batch_size
from epochal.engine.interfaces.binding import bind_by_name, parameter_names
from epochal.engine.interfaces.output_stage import EvaluationStage, OutputStage
from epochal.engine.loss.argument_routes import function_name
from epochal.engine.step.task_calls import TaskCalls, check_number
from epochal.errors import TaskError
from epochal.records.folder.writer import NullWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.interfaces.output_stage import Samples
    from epochal.engine.run.engine_run import EngineRun

    Stage = Any  # an object of an interface, or a function

TO_HOST = BatchMover(torch.device("cpu"), None, is_detached=True)
_PROCESS = ("samples", "out", "batch", "run")
_EVALUATE = ("samples", "metrics", "run", "split")


@final
class OutputPipes:
    """The output stages and the evaluation stages of a run, in order."""

    def __init__(self, outputs: Sequence[Stage] = (), evaluation: Sequence[Stage] = ()) -> None:
        self._outputs, self._evaluation = outputs, evaluation

    def open(self, run: EngineRun, *, is_saving: bool = True, first_id: int = 0) -> OutputPass:
        """The stages that are valid in the run's split, for one pass over a loader.

        Without ``is_saving`` they write no files. ``first_id`` is the number of the first sample,
        in a prediction that is continued.
        """
        outputs = [one for one in self._outputs if run.split in _splits(one, OutputStage.on)]
        evaluation = [
            one for one in self._evaluation if run.split in _splits(one, EvaluationStage.on)
        ]
        return OutputPass(run, outputs, evaluation, is_saving=is_saving, first_id=first_id)


@final
class OutputPass:
    """One pass over a loader."""

    def __init__(
        self,
        run: EngineRun,
        outputs: Sequence[Stage],
        evaluation: Sequence[Stage],
        *,
        is_saving: bool,
        first_id: int,
    ) -> None:
        self._writing = nullcontext if is_saving else partial(_without_record, run)
        self._run, self._split = run, run.split
        self._outputs, self._evaluation = outputs, evaluation
        self._process = [_bind(one, "process", _PROCESS) for one in outputs]
        called: list[Stage] = [getattr(one, "evaluate", one) for one in evaluation]
        self._is_kept = any("samples" in parameter_names(one) for one in called)
        self.is_needed = bool(outputs) or self._is_kept
        """Whether samples have to be made of the outputs."""

        self._columns: dict[str, list[Any]] = {}
        self.count = first_id
        """The samples of the loader so far."""

        for stage in outputs:
            if hasattr(stage, "start"):
                with self._writing():
                    stage.start(run, self._split)

    def add(self, outcome: Outcome) -> Samples:
        """Pass a batch through the output stages; returns its samples."""
        samples = self._make_samples(outcome)
        for stage, process in zip(self._outputs, self._process, strict=True):
            with self._writing():
                changed = process(samples, outcome.out, outcome.batch, self._run)
            if changed is not None and not isinstance(changed, Mapping):
                fail(stage, f"returned a {type(changed).__name__}", "return columns by name")
            samples = samples if changed is None else dict(changed)
        if self._is_kept:
            self._keep(samples)
        return samples

    def finish(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics of the pass with those of the evaluation stages."""
        self.close(is_whole=True)
        samples = {name: join(parts) for name, parts in self._columns.items()}
        for stage in self._evaluation:
            evaluate = _bind(stage, "evaluate", _EVALUATE)
            with self._writing():
                scores = evaluate(samples, metrics, self._run, self._split)
            if scores is None:
                continue
            if not isinstance(scores, Mapping):
                fail(
                    stage, f"returned a {type(scores).__name__}", "return {'name': value}, or None"
                )
            for name in scores.keys() & metrics.keys():
                fail(stage, f"returns {name!r}, which exists already", "give it another name")
            check = partial(fail, stage)
            metrics |= {name: check_number(name, one, check) for name, one in scores.items()}
        return metrics

    def close(self, *, is_whole: bool) -> None:
        """End the output stages; without ``is_whole`` after an error."""
        stages, self._outputs = self._outputs, ()
        for stage in stages:
            if hasattr(stage, "end"):
                stage.end(self._run, self._split, is_whole=is_whole)

    def _make_samples(self, outcome: Outcome) -> Samples:
        """What the task's ``postprocess`` keeps of a batch, on the host, with ids."""
        kept = TO_HOST(self._run.part(TaskCalls).postprocess(outcome))
        samples = dict(kept) if isinstance(kept, Mapping) else {"output": kept}
        sizes = [len(one) for one in samples.values() if isinstance(one, list)]
        sizes += [len(one) for one in samples.values() if isinstance(one, Tensor) and one.dim()]
        size = sizes[0] if sizes else batch_size(outcome.batch) or 1
        if "id" not in samples:
            samples = {"id": list(range(self.count, self.count + size)), **samples}
        self.count += size
        return samples

    def _keep(self, samples: Samples) -> None:
        for name, column in samples.items():
            self._columns.setdefault(name, []).append(column)


@contextmanager
def _without_record(run: EngineRun) -> Iterator[None]:
    folder, writer = run.dir, run.writer
    run.dir, run.writer = None, NullWriter()
    try:
        yield
    finally:
        run.dir, run.writer = folder, writer


def join(parts: list[Any]) -> Any:  # noqa: ANN401 - a list or a tensor
    """The columns of several batches as one."""
    is_tensor = all(isinstance(one, Tensor) and one.dim() for one in parts)
    if is_tensor and len({one.shape[1:] for one in parts}) == 1:
        return torch.cat(parts)
    return [one for part in parts for one in (part if hasattr(part, "__len__") else [part])]


def fail(stage: Stage, what: str, hint: str) -> NoReturn:
    """Raise an error that names a stage."""
    raise TaskError(f"{function_name(stage)}: {what}\n  {hint}")


def _splits(stage: Stage, default: tuple[str, ...]) -> tuple[str, ...]:
    return getattr(stage, "on", None) or default


def _bind(stage: Stage, method: str, available: tuple[str, ...]) -> Callable[..., Any]:
    called: Stage = getattr(stage, method, stage)
    return bind_by_name(called, available, owner=function_name(stage))
