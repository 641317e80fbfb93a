"""The run that a runner executes, made from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.engine.evaluate import evaluate
from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.interfaces.options import Options
from epochal.engine.interfaces.splits import split_name
from epochal.engine.interfaces.stage import Stage
from epochal.engine.resume import set_resume_position
from epochal.engine.run.engine_run import EngineRun, read_meta
from epochal.engine.run.environment import Environment
from epochal.engine.stages.change_optimizer import change_optim
from epochal.engine.state.saver import save_if_requested
from epochal.engine.step.build_step import BatchFunctions, unprepared_step
from epochal.engine.step.nonfinite_watch import NonfiniteLossWarner
from epochal.engine.step.task_calls import TaskCalls
from epochal.engine.step.updater import Updater, choose_updater
from epochal.engine.tracking.save_media import save_media
from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from epochal.engine.parts import Parts


@final
class LiveRun(EngineRun):
    """One run in progress.

    Args:
        parts: The objects it is made of.
        options: The options of the sections that the engine reads.
        environment: Config, folder, device and writer.
    """

    def __init__(
        self, parts: Parts, options: Options | None = None, environment: Environment | None = None
    ) -> None:
        _require_objects(parts)
        options = options or Options()
        super().__init__(
            parts.task,
            parts.model,
            parts.hooks,
            parts.stages or (Stage(length=options.train.for_),),
            options=options,
            environment=environment or Environment(),
            notice=NonfiniteLossWarner(self),
            at_boundary=save_if_requested,
        )
        self.optimizer, self.schedule = parts.optimizer, parts.schedule
        self.metrics, self.monitor = dict(parts.metrics), parts.monitor
        self.average, self.loss = parts.average, parts.loss
        if parts.loss is not None:
            self.place(parts.loss)
        self.make_optimizer = parts.make_optimizer
        self.take_step = self.choose_step = unprepared_step
        self.eval_steps = {}
        self.set_part(Updater, parts.updater or choose_updater(parts.optimizer))
        self._bind_calls()
        set_resume_position(self)
        self.build_batch_functions()

    @override
    def bind(self) -> None:
        self.events.set_task(self.task)
        self._bind_calls()
        calls = self.part(TaskCalls)
        if self.feed.task is not self.task:
            self.feed.task = self.task
            self.meta = read_meta(self.task)
            calls.move_task()
        if self.monitor is None and calls.has_error:
            names = [name for name in named_loaders(self.task, "val") if name]
            self.monitor = Monitor("/".join(["val", *names[:1], "err"]), "min")
        self.build_batch_functions()

    def _bind_calls(self) -> None:
        self.set_part(TaskCalls, TaskCalls(self))
        self.train_metrics = {
            name: metric for name, metric in self.metrics.items() if "train" in metric.on
        }

    @override
    def build_batch_functions(self) -> None:
        functions = BatchFunctions(self)
        self.set_part(BatchFunctions, functions)
        self.set_batch_functions(functions.train, functions.finish)

    @override
    def save_media(
        self, name: str, data: object, *, kind: str = "", suffix: str = "", step: int | None = None
    ) -> Path | None:
        return save_media(self, name, data, kind=kind, suffix=suffix, step=step)

    @override
    def evaluate(self, split: str = "val") -> dict[str, float]:
        return evaluate(self, split_name(split))

    @override
    def change_optim(self, **changes: object) -> None:
        change_optim(self, **changes)

    @override
    def register_flops(
        self, data: Mapping[str, Any] | None = None, keys: Sequence[str] = ()
    ) -> int:
        from epochal.engine.analysis.model_summary import register_flops  # rarely needed

        return register_flops(self, data, keys)


def _require_objects(parts: Parts) -> None:
    for name in ("task", "model"):
        part = getattr(parts, name)
        if isinstance(part, type):
            raise TaskError(
                f"{name}: is the class {part.__name__}, not an object\n"
                f"  create one: {name}={part.__name__}(...)"
            )
