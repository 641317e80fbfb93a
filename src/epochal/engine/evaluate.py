"""Evaluation and prediction: a pass over a split that does not affect training."""

from __future__ import annotations

import copy
import csv
import io
import logging
import math
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Any, NoReturn, final

import torch
from torch import Tensor

from epochal.distributed.rank_listener import INTERRUPTED
from epochal.distributed.world import join_numbers
from epochal.engine.events.events import Events
from epochal.engine.feed.feed import count_batches, iter_batches, named_loaders, require_loaders
from epochal.engine.feed.rank_shares import WholeBatches
from epochal.engine.feed.sampling_order import DataPass, derive_order_seed
from epochal.engine.interfaces.average import AVERAGED_SPLIT
from epochal.engine.interfaces.outcome import Outcome
from epochal.engine.interfaces.splits import SPLITS
from epochal.engine.loss.metric_adapter import find_unmergeable
from epochal.engine.measure.meter import Meter
from epochal.engine.optim.select_parameters import has_uninitialized
from epochal.engine.output_pipes import TO_HOST, OutputPipes
from epochal.engine.process.signals import (
    EvaluationInterrupted,
    is_interrupted_or_preempted,
)
from epochal.engine.run.agreement import end_run
from epochal.engine.run.stage_progress import TARGET
from epochal.engine.snapshot.snapshot import keeping_training_modes, working_on_split
from epochal.engine.state.rank_state import collect_metrics, merge_metrics
from epochal.engine.step.finite_weights import has_finite_weights
from epochal.engine.step.task_calls import TaskCalls, check_number
from epochal.errors import TaskError, suggest
from epochal.records.folder.writer import NullWriter
from epochal.records.metrics.points import INTERVAL_MEAN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from epochal.engine.feed.feed import OpenLoader
    from epochal.engine.interfaces.metric import Metric
    from epochal.engine.interfaces.task import Batch, Loader, Output
    from epochal.engine.measure.meter import Window
    from epochal.engine.output_pipes import OutputPass
    from epochal.engine.prediction_file import PredictionFile
    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)

_NO_OUTPUT = object()
_EXCHANGED_BATCHES = 16  # per process: more would need more memory, fewer more exchanges


def evaluate(run: EngineRun, split: str) -> dict[str, float]:
    """Evaluate a split, record its metrics, update the monitor, and fire all events.

    Returns:
        Values named ``<split>[/<loader>]/<metric>``; those of ``val`` with averaged weights,
        if the run has them, as ``val_ema``.
    """
    run.meter.deliver()  # training means come before those of the evaluation
    log_interval_means(run)
    with run.clock.paused(), working_on_split(run, split):
        run.fire("eval_start", split)
        run.fire("epoch_start", split)
        metrics = measure_split(
            run, split, events=run.events, limit=run.options.train.max_eval_batches
        )
        run.fire("epoch_end", split, metrics)
        metrics |= _measure_averaged(run, split)
        run.log(metrics)
        run.evaluated_at[split] = run.step
        update_monitor(run, split, metrics)
        if split == "val" and run.step > 0:
            run.rate.after_eval(run.step)
        run.fire("eval_end", split, metrics)
    return metrics


def log_interval_means(run: EngineRun) -> None:
    """Record the training means since the previous evaluation, in runs not measured in epochs."""
    means = {} if run.interval_means is None else run.interval_means.read()
    if means:
        run.log({f"{INTERVAL_MEAN_PREFIX}{name}": value for name, value in means.items()})


def _measure_averaged(run: EngineRun, split: str) -> dict[str, float]:
    """The metrics with averaged weights, with the same random numbers.

    Fires the events of ``val`` for the task, but not for hooks.
    """
    if run.average is None or split != "val":
        return {}
    events, limit = Events(task=run.task), run.options.train.max_eval_batches
    with run.average.swapped(), working_on_split(run, split):
        events.fire("epoch_start", run, split)
        metrics = measure_split(run, split, events=events, limit=limit, title=AVERAGED_SPLIT)
        events.fire("epoch_end", run, split, metrics)
    return metrics


def _to_averaged_names(metrics: dict[str, float]) -> dict[str, float]:
    return {AVERAGED_SPLIT + name.removeprefix("val"): value for name, value in metrics.items()}


def check_sanity(run: EngineRun) -> None:
    """Evaluate a few validation batches, to find mistakes before hours of training.

    Fires events for the task, but not for hooks. Generators, metrics, the store and the record
    do not change, and requests to stop are ignored.
    """
    limit = run.options.train.sanity_batches
    if not limit or not named_loaders(run.task, "val"):
        _require_val_loader(run)
        return
    with run.clock.paused(), working_on_split(run, "val"), _discarding_effects(run):
        try:
            metrics = _run_sanity_batches(run, Events(task=run.task), limit)
        except Exception as error:
            error.add_note(
                "raised in the sanity evaluation before the first step; "
                "train.sanity_batches=0 disables it"
            )
            raise
        if run.average is not None:
            metrics |= _to_averaged_names(metrics)  # the weights are equal before the first step
        _require_monitored_metrics(run, "val", metrics)
    if not metrics and not run.eval_periods["val"][0].is_never:
        logger.info(
            "val measures nothing: set train.eval_loss=true, or return metrics in batch_metric"
        )


def _run_sanity_batches(run: EngineRun, events: Events, limit: int) -> dict[str, float]:
    events.fire("eval_start", run, "val")
    events.fire("epoch_start", run, "val")
    metrics = measure_split(run, "val", events=events, limit=limit)
    events.fire("epoch_end", run, "val", metrics)
    events.fire("eval_end", run, "val", metrics)
    return metrics


@contextmanager
def _discarding_effects(run: EngineRun) -> Iterator[None]:
    """Discard what a block logs, stores and requests; keep interruptions and preemption."""
    writer, latest = run.writer, dict(run.latest)
    stop = run.stop_reason, run.stop_status
    run.writer = NullWriter()
    try:
        with run.store.untouched():
            yield
    finally:
        run.writer, run.latest = writer, latest
        if not is_interrupted_or_preempted(run):
            run.stop_reason, run.stop_status = stop


def initialize_lazy_modules(run: EngineRun) -> None:
    """Initialize lazy modules with a forward pass of one batch."""
    found = (named_loaders(run.task, split) for split in SPLITS)
    loader = next((loader for loaders in found for loader in loaders.values()), None)
    if loader is None or not has_uninitialized(run.model):
        return
    with working_on_split(run, run.split), _evaluation_mode(run):
        for batch in iter_batches(loader, "the first loader", 1, open_loader=_make_opener(run)):
            run.part(TaskCalls).forward(batch)


def predict(run: EngineRun, file: PredictionFile | None = None) -> object:
    """The outputs of all batches of ``predict``: a list, or a list per named loader.

    With a file they are written there instead.
    """
    outputs: dict[str, list[Output]] = {}
    with run.clock.paused(), working_on_split(run, "predict"), _evaluation_mode(run):
        run.fire("epoch_start", "predict")
        for name, loader in require_loaders(run.task, "predict").items():
            run.loader_name = name
            outputs[name] = _collect(run, loader, file)
        run.fire("epoch_end", "predict", {})
    return outputs[""] if list(outputs) == [""] else outputs


def measure_split(
    run: EngineRun, split: str, *, events: Events, limit: int | None, title: str = ""
) -> dict[str, float]:
    """The metrics of all loaders of a split, under its name or another title."""
    measured: dict[str, float] = {}
    if run.is_shared:  # each process has its own statistics of batch norm
        run.world.broadcast_tensors(list(run.model.buffers()))
    with _evaluation_mode(run):
        for name, loader in require_loaders(run.task, split).items():
            run.loader_name = name
            prefix = "/".join(filter(None, (title or split, name)))
            values = _measure_loader(run, prefix, loader, events, limit)
            measured |= {f"{prefix}/{metric}": value for metric, value in values.items()}
    return measured


def update_monitor(run: EngineRun, split: str, metrics: dict[str, float]) -> None:
    """Update the monitor, if this split has its metric; stop if ``train.until`` is reached."""
    _require_monitored_metrics(run, split, metrics)
    until, monitor = run.options.train.until, run.monitor
    if until is not None and until.metric in metrics and until.holds(metrics[until.metric]):
        logger.info("%s: reached %.6g", until, metrics[until.metric])
        run.stop(TARGET, status="finished")
    run.stage_progress.check_until(run, metrics)
    if monitor is None or monitor.metric not in metrics:
        return
    value = metrics[monitor.metric]
    is_ranked = not monitor.is_better(value) or has_finite_weights(run)
    if monitor.update(value if is_ranked else math.nan):  # NaN weights give an accuracy too
        run.fire("better_model", value)
    if run.step > 0:
        run.rate.after_value(value, run.step)


def _is_metric_of_split(metric: str, split: str) -> bool:
    """Whether a metric belongs to a split."""
    named = metric.split("/")[0]
    return named == split or (named == AVERAGED_SPLIT and split == "val")


def compute_metrics(
    metrics: Mapping[str, Metric],
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The numbers and the matrices of metric objects; several of one are ``<name>/<key>``."""
    numbers: dict[str, float] = {}
    matrices: dict[str, Tensor] = {}
    for name, metric in metrics.items():
        value: Any = metric.compute()
        parts = (
            {f"{name}/{key}": part for key, part in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        fail = partial(_fail_metric, metric)
        for full, part in parts.items():
            if isinstance(part, Tensor) and part.dim() == 2:
                matrices[full] = part
            else:
                numbers[full] = check_number(full, part, fail)
    return numbers, matrices


def join_metrics(
    run: EngineRun, prefix: str, means: dict[str, float], metrics: Mapping[str, Metric]
) -> dict[str, float]:
    """Means over batches together with the values of metric objects; refuses equal names.

    Matrices are saved as tables of the record.
    """
    values, matrices = compute_metrics(metrics)
    for name in means.keys() & values.keys():
        raise TaskError(
            f"metrics: {name!r} is the name of both a metric and a value of the task\n"
            "  rename one of them"
        )
    for name, matrix in matrices.items():
        table = _to_table(matrix, run.meta.get("classes"))
        run.save_media(f"{prefix}/{name}", table, kind="table", suffix="csv")
    return means | values


def _to_table(matrix: Tensor, classes: object) -> str:
    """A matrix as CSV, with the names of the classes if there is one for each row and column."""
    height, width = matrix.shape
    names = list(classes) if isinstance(classes, Sequence) else []
    titles, columns = (
        (names, names) if len(names) == height == width else (range(height), range(width))
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["", *columns])
    for title, row in zip(titles, matrix.tolist(), strict=True):
        writer.writerow([title, *(f"{number:.6g}" for number in row)])
    return text.getvalue()


def _fail_metric(metric: Metric, what: str, hint: str) -> NoReturn:
    raise TaskError(f"metrics: {type(metric).__name__}.compute: {what}\n  {hint}")


def _own_metrics(run: EngineRun, split: str) -> dict[str, Metric]:
    """The metric objects of a split; copies of those that training updates."""
    return {
        name: copy.deepcopy(metric) if "train" in metric.on else metric
        for name, metric in run.metrics.items()
        if split in metric.on
    }


def _measure_loader(
    run: EngineRun, prefix: str, loader: Loader, events: Events, limit: int | None
) -> dict[str, float]:
    split, meter = run.split, Meter(run.device)
    window = meter.window()
    before, run.pass_means = run.pass_means, window
    metrics = _own_metrics(run, split)
    # Neither the sanity check nor averaged weights have output files of their own.
    pipe = run.part(OutputPipes).open(run, is_saving=events is run.events)
    has_loss = bool(run.options.train.eval_loss)
    for metric in metrics.values():
        metric.reset()

    def measure(outcome: Outcome) -> None:
        with run.precision.context():
            run.part(TaskCalls).add_metrics(outcome)
            if has_loss:
                run.part(TaskCalls).add_loss(outcome)
        run.part(TaskCalls).report(outcome, meter)
        for metric in metrics.values():
            metric.update(outcome.out, outcome.batch)
        if pipe.is_needed:
            pipe.add(outcome)

    share = _find_share(run, metrics, pipe, count_batches(loader, limit))
    with _closing_output(pipe):
        try:
            ended = _run_pass(run, loader, measure, events=events, limit=limit, share=share)
            if not run.world.is_single:
                _merge(run, window, metrics, ended, is_shared=share is not None)
            means = join_metrics(run, prefix, window.read(), metrics)
        finally:
            run.pass_means = before
            meter.forget()  # frees device memory without garbage collection
        for metric in metrics.values():
            metric.reset()
        found = pipe.finish(run.part(TaskCalls).finish(means, split))
        return run.world.broadcast(found)


def _find_share(
    run: EngineRun, metrics: Mapping[str, Metric], pipe: OutputPass, num_batches: int | None
) -> WholeBatches | None:
    """The batches that this process evaluates; None for all of them."""
    world, split = run.world, run.split
    if world.is_single:
        return None
    why = "" if not run.part(TaskCalls).has_epoch_metric else "epoch_metric may need every batch"
    if name := find_unmergeable(metrics):
        why = f"the metric {name!r} has no method merge"
    if pipe.is_needed:
        why = "output stages may need every batch"
    if not _can_share(run, num_batches):
        why = "each needs a batch to gather the parameters with"
    if why:
        key = f"evaluation of {split}"
        text = "%s: every process computes all batches, since %s"
        if run.choices.get(key) != why:
            run.choices[key] = why
            logger.info(text, split, why)
        return None
    return WholeBatches(run.data_rank, run.num_data_ranks)


def _can_share(run: EngineRun, num_batches: int | None) -> bool:
    """Whether several processes can divide this many batches."""
    return not run.strategy.is_sharded or (num_batches or 0) >= run.num_data_ranks


def _merge(
    run: EngineRun,
    window: Window,
    metrics: Mapping[str, Metric],
    ended: str,
    *,
    is_shared: bool,
) -> None:
    """Give window and metrics the batches of all processes, in one exchange.

    ``ended`` is the request from outside that interrupted the pass of this process, if any; it
    interrupts that of all.
    """
    window.peek()
    parts: dict[str, Any] = {"ended": ended}
    if is_shared:
        parts["window"] = window.state_dict()
        parts["metrics"] = collect_metrics(metrics)
    found = run.gather_by_data(parts)
    for kind in filter(None, (part["ended"] for part in found)):
        end_run(run, kind)
        raise EvaluationInterrupted if run.plan.is_running_due else KeyboardInterrupt
    if not is_shared:
        return
    windows = [part["window"] for part in found]
    window.load_state_dict(
        {name: join_numbers([one[name] for one in windows]) for name in ("sums", "counts")}
    )
    merge_metrics(run, metrics, [part["metrics"] for part in found])


def require_mergeable(run: EngineRun) -> None:
    """Refuse metrics of training whose parts of several processes cannot be merged."""
    if name := find_unmergeable(run.train_metrics):
        raise TaskError(
            f"metrics: {name!r} is computed while training, by several processes, and has no "
            "method merge\n"
            "  write def merge(self, other), which adds the batches of another object, or "
            "on: [val]"
        )


def gather_train_metrics(run: EngineRun) -> dict[str, Metric]:
    """The metric objects of training with the batches of all processes."""
    if run.world.is_single or not run.train_metrics:
        return run.train_metrics
    merged = {name: copy.deepcopy(metric) for name, metric in run.train_metrics.items()}
    merge_metrics(run, merged, run.gather_by_data(collect_metrics(merged)))
    return merged


def _collect(run: EngineRun, loader: Loader, file: PredictionFile | None) -> list[Output]:
    """The outputs of a loader in the main process; none if a file gets them."""
    outputs: list[Output] = []
    name, world, done = run.loader_name, run.world, (0, 0)
    if file is not None:
        done = file.count_batches(name), file.count_samples(name)
    start, first_id = world.broadcast(done)
    pipe = run.part(OutputPipes).open(run, first_id=first_id)

    def keep(output: Output) -> None:
        if file is not None:
            file.add(name, output, samples=pipe.count)
        elif world.is_main:
            outputs.append(output)

    limit = run.options.train.limit_batches
    num_batches = None if start else count_batches(loader, limit)
    # Stages get every batch, in order.
    is_whole = world.is_single or pipe.is_needed or not _can_share(run, num_batches)
    share = None if is_whole else WholeBatches(run.data_rank, run.num_data_ranks)
    ordered = _OrderedOutputs(run, keep)

    def collect(outcome: Outcome) -> None:
        if pipe.is_needed:
            keep(pipe.add(outcome))
            return
        output = TO_HOST(run.part(TaskCalls).postprocess(outcome))
        if share is None:
            keep(output)
        else:
            ordered.add(output)

    with _closing_output(pipe):
        ended = _run_pass(
            run, loader, collect, events=run.events, limit=limit, start=start, share=share
        )
        if not world.is_single:
            ordered.finish(ended)
        pipe.close(is_whole=True)
    return outputs


@final
class _OrderedOutputs:
    """Gives the main process the outputs of all of them, in the order of batches."""

    def __init__(self, run: EngineRun, keep: Callable[[Output], None]) -> None:
        self._run, self._keep = run, keep
        self._waiting: list[Output] = []

    def add(self, output: Output) -> None:
        """Add the output of this process's next batch."""
        self._waiting.append(output)
        if len(self._waiting) == _EXCHANGED_BATCHES:
            self._exchange("", is_over=False)

    def finish(self, ended: str) -> None:
        """Wait for the other processes; ``ended`` is the outside request that ended the pass."""
        while not self._exchange(ended, is_over=True):
            pass

    def _exchange(self, ended: str, *, is_over: bool) -> bool:
        """Send the waiting outputs; returns whether all processes have finished."""
        world, waiting, self._waiting = self._run.world, self._waiting, []
        parts = world.collect((waiting, ended, is_over))  # empty in other processes
        ends = next((end for _, end, _ in parts if end), "")
        are_over, ends = world.broadcast((all(over for *_, over in parts), ends))
        if ends:
            end_run(self._run, ends)
            raise KeyboardInterrupt
        parts = parts[:: world.world_size // self._run.num_data_ranks]
        for row in zip_longest(*(outputs for outputs, *_ in parts), fillvalue=_NO_OUTPUT):
            for output in row:
                if output is not _NO_OUTPUT:
                    self._keep(output)
        return are_over


@contextmanager
def _closing_output(pipe: OutputPass) -> Iterator[None]:
    """Let output stages remove incomplete output after an error."""
    try:
        yield
    finally:
        pipe.close(is_whole=False)


def _run_pass(
    run: EngineRun,
    loader: Loader,
    process: Callable[[Outcome], None],
    *,
    events: Events,
    limit: int | None,
    start: int = 0,
    share: WholeBatches | None = None,
) -> str:
    """Compute and process each batch of a loader from ``start`` on, or of a share.

    Fires the events of a loop. With several processes, returns the stop request that ended the
    pass early.
    """
    split = run.split
    first, each = (0, 1) if share is None else (share.rank, share.world_size)
    opener = _make_opener(run, start, share)
    step = run.eval_steps.get(split, _plain_step)
    events.fire("loop_start", run, split)
    batches = (  # a resumed prediction may have no batches left
        opener(loader, limit)
        if start
        else iter_batches(
            loader,
            _label(run),
            limit,
            open_loader=opener,
            find_log=run.feed.find_read_log,
            may_be_empty=bool(first),
            must_end=split != "predict",
        )
    )
    for index, batch in zip(count(start + first, each), batches, strict=False):
        run.batch_index = index
        events.fire("batch_start", run, split, index, batch)
        with run.precision.context():
            outcome = _as_outcome(step(run, batch), batch)
        process(outcome)
        events.fire("batch_end", run, split, index, outcome.batch, outcome.out)
        if run.strategy.is_sharded and not run.world.is_single:
            continue  # each process must compute the same number of batches
        if run.listener is not None:
            kind = run.listener.find_end()
            if kind == INTERRUPTED or (kind and run.plan.is_running_due):
                return kind
        elif is_interrupted_or_preempted(run):
            if run.plan.is_running_due:
                raise EvaluationInterrupted
            if run.stop_status == "interrupted":
                raise KeyboardInterrupt
    if run.strategy.is_sharded and share is not None:
        whole = -(-(count_batches(loader, limit) or 0) // each)
        for _ in range(whole - len(range(first, index + 1, each))):
            with run.precision.context():  # joins the all-gather of parameters; result unused
                step(run, batch)
    events.fire("loop_end", run, split)
    return ""


def _make_opener(run: EngineRun, start: int = 0, share: WholeBatches | None = None) -> OpenLoader:
    """Opens loaders of the current split; each pass gives the same bits."""
    seed = derive_order_seed(run.seed, run.split)
    return partial(run.feed.open, one_pass=DataPass(seed, start=start, share=share))


def _plain_step(run: EngineRun, batch: Batch) -> Outcome:
    return run.part(TaskCalls).forward(batch)


def _as_outcome(result: object, batch: Batch) -> Outcome:
    return result if isinstance(result, Outcome) else Outcome(batch, result)


@contextmanager
def _evaluation_mode(run: EngineRun) -> Iterator[None]:
    """Set eval mode, without gradients unless the task needs them; modes are restored."""
    needs_grad = bool(getattr(run.task, "eval_needs_grad", False))
    with keeping_training_modes(run.model, run.loss), torch.set_grad_enabled(needs_grad):
        run.model.eval()
        if run.loss is not None:
            run.loss.eval()
        yield
        run.strategy.end_evaluation(run.model)


def _label(run: EngineRun) -> str:
    name = f"[{run.loader_name!r}]" if run.loader_name else ""
    return f"{run.split}_loader{name}"


def _require_val_loader(run: EngineRun) -> None:
    monitor = run.monitor
    is_val = monitor is not None and _is_metric_of_split(monitor.metric, "val")
    if is_val and not named_loaders(run.task, "val"):
        raise TaskError(
            f"monitor: {str(monitor)!r} needs a validation loader, but there is none\n"
            "  set self.val_loader in the task, or write data.val in the config"
        )


def _require_monitored_metrics(run: EngineRun, split: str, metrics: dict[str, float]) -> None:
    owners = {"monitor": run.monitor, "train.until": run.options.train.until}
    for key, owner in owners.items():
        if owner is None or not _is_metric_of_split(owner.metric, split) or owner.metric in metrics:
            continue
        produced = ", ".join(metrics) or "nothing"
        hint = suggest(owner.metric, metrics)
        several = any(named_loaders(run.task, split))
        cause = "; each loader has its own metrics" if several else ""
        raise TaskError(
            f"{key}: no metric is named {owner.metric!r}\n"
            f"  evaluating {split} produced: {produced}{cause}"
            + (f"\n  {hint}" if hint.startswith("did") else "")
        )
