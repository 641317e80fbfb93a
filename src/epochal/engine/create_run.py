"""Creates a run from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.engine.device.move import move_module
from epochal.engine.evaluate import evaluate
from epochal.engine.feed.feed import named_loaders
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.interfaces.options import Options
from epochal.engine.interfaces.stage import Stage
from epochal.engine.loss.metric_adapter import MetricAdapter, adapt_metric
from epochal.engine.output_pipes import OutputPipes
from epochal.engine.resume import set_resume_position
from epochal.engine.run.agreement import build_alarm, request_end, settle_agreement
from epochal.engine.run.engine_run import EngineRun, Environment, RunMethods, read_meta
from epochal.engine.stages.change_optimizer import change_optim
from epochal.engine.state.saver import save_if_requested
from epochal.engine.step.build_step import BatchFunctions, unprepared_step
from epochal.engine.step.debug_losses import NonfiniteLossWarner
from epochal.engine.step.task_calls import TaskCalls
from epochal.engine.step.updater import Updater, choose_updater
from epochal.engine.tracking.tracker import save_media
from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.parts import Parts


def create_run(
    parts: Parts, options: Options | None = None, environment: Environment | None = None
) -> EngineRun:
    """A run of these parts, ready to be executed."""
    _require_objects(parts)
    options = options or Options()
    run = EngineRun(
        parts.task,
        parts.model,
        parts.hooks,
        parts.stages or (Stage(length=options.train.for_),),
        options=options,
        environment=environment or Environment(),
        methods=_METHODS,
    )
    run.optimizer, run.schedule = parts.optimizer, parts.schedule
    run.metrics, run.monitor = _adapt_metrics(parts.metrics, run.device), parts.monitor
    run.average, run.loss = parts.average, parts.loss
    if parts.loss is not None:
        move_module(parts.loss, run.device, run.dtype)
    run.make_optimizer = parts.make_optimizer
    run.take_step = run.choose_step = unprepared_step
    run.eval_steps = {}
    run.set_part(Updater, parts.updater or choose_updater(parts.optimizer))
    run.set_part(OutputPipes, OutputPipes(parts.outputs, parts.evaluation))
    _bind_calls(run)
    set_resume_position(run)
    _build_batch_functions(run)
    return run


def _adapt_metrics(metrics: Mapping[str, Any], device: torch.device) -> dict[str, Metric]:
    """The metrics as objects that take output and batch, on the device of the run."""
    adapted = {name: adapt_metric(metric) for name, metric in metrics.items()}
    for metric in adapted.values():
        if isinstance(metric, MetricAdapter):
            metric.to(device)
    return adapted


def _bind(run: EngineRun) -> None:
    run.events.set_task(run.task)
    _bind_calls(run)
    calls = run.part(TaskCalls)
    if run.feed.task is not run.task:
        run.feed.task = run.task
        run.meta = read_meta(run.task)
        calls.move_task()
    if run.monitor is None and calls.has_error:
        loaders = named_loaders(run.task, "val")
        if loaders:  # without validation data there is no error to monitor
            names = [name for name in loaders if name]
            run.monitor = Monitor("/".join(["val", *names[:1], "err"]), "min")
    _build_batch_functions(run)


def _bind_calls(run: EngineRun) -> None:
    run.set_part(TaskCalls, TaskCalls(run))
    run.train_metrics = {
        name: metric for name, metric in run.metrics.items() if "train" in metric.on
    }


def _build_batch_functions(run: EngineRun) -> None:
    functions = BatchFunctions(run)
    run.set_part(BatchFunctions, functions)
    run.set_batch_functions(functions.train, functions.finish, functions.report)


def _register_flops(run: EngineRun, data: Mapping[str, Any] | None, keys: Sequence[str]) -> int:
    from epochal.engine.analysis.model_summary import register_flops  # rarely needed

    return register_flops(run, data, keys)


def _require_objects(parts: Parts) -> None:
    for name in ("task", "model"):
        part = getattr(parts, name)
        if isinstance(part, type):
            raise TaskError(
                f"{name}: is the class {part.__name__}, not an object\n"
                f"  create one: {name}={part.__name__}(...)"
            )


_METHODS = RunMethods(
    bind=_bind,
    build_batch_functions=_build_batch_functions,
    save_if_requested=save_if_requested,
    build_alarm=build_alarm,
    settle=settle_agreement,
    request_end=request_end,
    watch_losses=NonfiniteLossWarner,
    evaluate=evaluate,
    change_optim=change_optim,
    save_media=save_media,
    register_flops=_register_flops,
)
