"""Steps that several processes share: losses are weighted by their counts in all processes."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from epochal.distributed.strategy import MAX_SUMS, NoStrategy, Strategy
from epochal.engine.feed.split_batch import get_batch_index
from epochal.engine.measure.sums import multiply_by_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.measure.sums import Number, Weighted
    from epochal.engine.run.engine_run import EngineRun
    from epochal.engine.step.updater import Updater

_MAX_NAMES = (MAX_SUMS - 1) // 2

logger = logging.getLogger(__name__)


def share_model(run: EngineRun) -> None:
    """Share the model between processes; does nothing unless what is trained has changed."""
    strategy, optimizer = run.strategy, run.optimizer
    if isinstance(strategy, NoStrategy):
        return
    own = {id(parameter) for parameter in run.raw_model.parameters()}
    groups = [] if optimizer is None else optimizer.param_groups
    held: list[Any] = [one for group in groups for one in group["params"]]
    others = [one for one in held if id(one) not in own and one.requires_grad]
    before = run.trained_model
    strategy.share(run.raw_model, others, carries=run.has_usual_steps)
    run.trained_model = strategy.trained_model
    if run.trained_model is not before:
        run.bind()  # the task is called with the shared model


def explain_shared_step(error: BaseException, run: EngineRun) -> None:
    """Add a note to an error that comes from sharing the model, where torch does not say so."""
    text, note = str(error), ""
    if isinstance(error, RuntimeError) and "Expected to have finished reduction" in text:
        note = (
            "some parameters got no gradient in the step before: freeze those that are not used "
            "(requires_grad_(False), optim.freeze), or write engine.find_unused=true, which is "
            "slower"
        )
    elif isinstance(error, AttributeError) and isinstance(error.obj, DistributedDataParallel):
        if error.name is not None and hasattr(run.raw_model, error.name):
            note = (
                "with several processes the task gets the model in DistributedDataParallel, which "
                "averages gradients when it is called: call model(...), and use "
                f"{error.name} in its forward"
            )
    elif "more than 1 value per channel when training" in text and not run.world.is_single:
        note = (
            "this process had one sample of the batch, and batch norm needs several: leave out a "
            "short last batch with drop_last, use larger batches, or another norm"
        )
    if note:
        error.add_note(note)


@final
class SharedStep:
    """Takes the forward and backward passes of a step that several processes share.

    The gradient is that of the mean over the items of all processes, whatever their slices are:
    each loss is weighted by its count, and gradients are divided by the total of all processes.
    Losses and metrics are added up in the same exchange, so that those of every step are known
    for the whole batch.
    """

    def __init__(self, run: EngineRun) -> None:
        self._strategy: Strategy = run.strategy
        self._world = run.world
        self._num_data_ranks = run.num_data_ranks
        self._names: list[str] | None = None

    def take(self, run: EngineRun, updater: Updater, microbatches: Microbatches) -> None:
        """Take a step of an updater."""
        unit = self.find_unit(run)
        last = len(microbatches) - 1
        for index, batch in enumerate(microbatches):
            place = get_batch_index(microbatches, index)
            run.batch_index = run.feed.position + place
            with nullcontext() if index == last else self._strategy.accumulating():
                outcome = run.train_function(batch)
                if index == 0:
                    updater.zero_grad()
                share = self.find_share(run, outcome.count, place, unit)
                numbers = self._pack(outcome, share, unit, is_counted=self.is_counted(run, place))
                is_plain = type(share) is float and share == 1.0
                loss = outcome.loss if is_plain else outcome.loss * share
                self._strategy.carry(numbers)
                updater.backward(loss)
            if index == last:
                total = self._unpack(outcome, unit, self._strategy.read_sums())
                updater.apply(run, total)
            else:
                discard_counts(outcome)
            self.finish(run, outcome, place)

    def finish(self, run: EngineRun, outcome: Outcome, place: int) -> None:
        """Count a microbatch after its backward pass; only its means if it has no samples here."""
        if self.is_counted(run, place):
            run.finish_function(outcome)
        else:
            run.report_function(outcome)

    def find_unit(self, run: EngineRun) -> float:
        """The mean number of samples per process in this step; counts are divided by it.

        It keeps shares close to 1, since large ones could overflow fp16.
        """
        return sum(run.feed.rows) / run.num_data_ranks

    def is_counted(self, run: EngineRun, place: int) -> bool:
        """Whether this process has samples of a batch of the step."""
        return run.data_rank < run.feed.rows[place]

    def find_share(self, run: EngineRun, count: Number, place: int, unit: float) -> Any:  # noqa: ANN401 - a number, on the host or on the device
        """The weight of a loss with a count in this step."""
        return count / unit if self.is_counted(run, place) else 0.0

    def leave_out(self, outcome: Outcome) -> None:
        """Give a batch of which this process has no samples the weight 0."""
        outcome.losses = {name: (value * 0.0, 0) for name, (value, _) in outcome.losses.items()}
        outcome.metrics = {}

    def add_up(self, run: EngineRun, outcomes: Sequence[Outcome], places: Sequence[int]) -> None:
        """Give the last outcome of a step the values of all processes, in a separate exchange."""
        unit = self.find_unit(run)
        packed = [
            self._pack(outcome, 0.0, unit, is_counted=self.is_counted(run, place))
            for outcome, place in zip(outcomes, places, strict=True)
        ]
        sums = self._strategy.reduce((), torch.stack(packed).sum(0))
        self._unpack(outcomes[-1], unit, sums)
        for outcome in outcomes[:-1]:
            discard_counts(outcome)

    def _pack(self, outcome: Outcome, share: Number, unit: float, *, is_counted: bool) -> Tensor:
        """The numbers of a microbatch: the share, then sum and count of each value."""
        values: dict[str, Weighted] = {**outcome.losses, **outcome.metrics}
        if self._names is None:
            self._names = self._agree_on_names(values)
        device, dtype = outcome.loss.device, choose_sum_dtype(outcome.loss)
        packed: list[Number] = [share]
        is_on_host = device.type == "cpu"
        for name in self._names:
            value, count = values.get(name, (0.0, 0))
            if is_on_host:  # numbers of Python are faster than tensors
                value, count = _to_number(value), _to_number(count)
            if not is_counted or (not isinstance(count, Tensor) and count <= 0):
                packed += [0.0, 0.0]
            elif isinstance(count, Tensor):
                packed += multiply_by_count(value, count / unit, dtype)
            else:
                weight = count / unit
                packed += [value.detach() * weight if isinstance(value, Tensor) else value * weight]
                packed += [weight]
        if is_on_host or not any(isinstance(one, Tensor) for one in packed):
            return torch.tensor([float(one) for one in packed], dtype=dtype, device=device)
        return torch.stack([to_scalar(one, device, dtype) for one in packed])

    def _agree_on_names(self, values: dict[str, Weighted]) -> list[str]:
        """The names of all processes, asked for once."""
        names = sorted({name for part in self._world.gather(sorted(values)) for name in part})
        if len(names) > _MAX_NAMES:
            text = "only the first %d of %d losses and metrics are means over all processes"
            logger.warning(text, _MAX_NAMES, len(names))
        return names[:_MAX_NAMES]

    def _unpack(self, outcome: Outcome, unit: float, sums: Tensor) -> Number | None:
        """Give the last microbatch the values of the step; returns the total of all shares.

        None if it is 1, as for equal slices.
        """
        names, scale = self._names or [], unit * self._num_data_ranks
        if sums.device.type == "cpu":
            numbers: Sequence[Any] = sums.tolist()
            total: Number | None = None if numbers[0] == 1.0 else numbers[0]
        else:
            numbers, total = sums.unbind(), sums[0]
        found: dict[str, Weighted] = {}
        for index, name in enumerate(names):
            weighted, count = numbers[1 + 2 * index], numbers[2 + 2 * index]
            if isinstance(count, Tensor):
                found[name] = weighted / count, count * scale
            elif count > 0:
                found[name] = weighted / count, _as_whole(count * scale)
        losses = {name: found.get(name, (value, 0)) for name, (value, _) in outcome.losses.items()}
        outcome.metrics = {name: one for name, one in found.items() if name not in losses}
        outcome.losses = losses
        return total


def discard_counts(outcome: Outcome) -> None:
    """Keep a microbatch out of all means: the last one of its step has its numbers, too."""
    outcome.losses = {name: (value, 0) for name, (value, _) in outcome.losses.items()}
    outcome.metrics = {}


def choose_sum_dtype(loss: Tensor) -> torch.dtype:
    """The number format in which losses and counts of several processes are added up."""
    return loss.dtype if loss.dtype in (torch.float32, torch.float64) else torch.float32


def _to_number(value: Number) -> float:
    return value.item() if isinstance(value, Tensor) else value


def to_scalar(number: Number, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A number as a tensor without dimensions."""
    if isinstance(number, Tensor):
        return number.detach().reshape(()).to(device, dtype)
    return torch.full((), number, device=device, dtype=dtype)


def _as_whole(count: float) -> float | int:
    """A count as it was before it was scaled: almost always a whole number."""
    whole = round(count)
    return whole if abs(count - whole) < 1e-3 * max(1.0, abs(count) * 1e-3) else count
