"""One optimizer step from microbatches: backward, accumulate, clip, step, average."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from torch.optim import Optimizer
from typing_extensions import override

from epochal.distributed.sharded_tensor import get_own_part, is_sharded
from epochal.distributed.strategy import NoStrategy
from epochal.engine.device.seeding import derive_seed
from epochal.engine.feed.split_batch import get_batch_index
from epochal.engine.optim.multi_optimizer import Optimizers
from epochal.engine.optim.rate import FixedRate, Rate
from epochal.engine.optim.select_parameters import require_parameters
from epochal.engine.step.nonfinite_guard import (
    NonfiniteGuard,
    build_guard,
    describe_guard_cost,
    refuse_guard,
)
from epochal.engine.step.shared_step import SharedStep, choose_sum_dtype, to_scalar
from epochal.engine.step.task_calls import TaskCalls
from epochal.errors import ConfigError, Problem, TaskError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from epochal.distributed.strategy import Strategy
    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.average import Average
    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.measure.sums import Number
    from epochal.engine.optim.multi_optimizer import Member
    from epochal.engine.run.engine_run import EngineRun


logger = logging.getLogger(__name__)


class Updater:
    """Takes one optimizer step; subclass it and override ``update`` for another kind of step.

    A step of several microbatches uses the gradient of the mean over all their items: each loss
    is weighted by its count, and gradients are divided by the total. The engine updates the
    learning rate after the step.
    """

    is_capturable: bool = False
    """Whether an overridden ``update`` or ``apply`` can be captured in a CUDA graph: it uses no
    host number that changes from step to step, and reads none from the device."""

    kind_of: Callable[[int], Hashable] | None = None
    """The kind of the step after a number of finished ones; each kind needs its own graph."""

    optimizer: Optimizer
    parameters: list[nn.Parameter]
    rate: Rate = FixedRate()
    grad_norm: Tensor | None = None
    """Norm of the last gradient before clipping, if it is logged or clipped."""

    guard: NonfiniteGuard | None = None
    """Skips updates whose gradients are not finite, if the options ask for it."""

    noise: GradientNoise | None = None
    """Noise that is added to the gradients before each update, if any."""

    average: Average | None = None
    _strategy: Strategy = NoStrategy()
    _shared: SharedStep | None = None
    _most_at_once = 1  # microbatches of a step that need no accumulation

    def bind(self, run: EngineRun) -> None:
        """Read optimizer and options of the run; called before its first step and after changes.

        A run without an optimizer has a runner with its own optimizers.
        """
        self._largest_norm = run.options.optim.clip_limit("norm")
        self._largest_value = run.options.optim.clip_limit("value")
        self._is_norm_logged = run.options.log.grad_norm
        self.noise = build_gradient_noise(run, self.noise)
        if run.optimizer is None:
            return
        self._strategy = run.strategy
        if any(map(is_sharded, run.model.parameters())):
            _require_usual_optimizer(self, run.optimizer)
        require_parameters(run.optimizer, run.model)
        self.optimizer = run.optimizer
        if self._shared is None and run.is_shared:
            self._shared, self._most_at_once = SharedStep(run), 0
        self._has_own_zero_grad = type(run.optimizer).zero_grad is not Optimizer.zero_grad
        self._read_parameters()
        used, self.rate = run.rate.used_state(), run.stage_progress.find_rate(run)
        self.rate.load_used_state(used)  # a change of the optimizer is for the next update
        run.rate = self.rate
        self._bind_guard(run)
        self._model = run.model
        if run.average is not None and self.average is not run.average:
            run.average.start(run.model)
        self.average = run.average
        self._is_plain = not (
            self._largest_norm
            or self._largest_value
            or self._is_norm_logged
            or self.guard
            or self.noise
            or self.average
            or type(self).finish_gradients is not Updater.finish_gradients
        )

    def _bind_guard(self, run: EngineRun) -> None:
        if self.guard is None:
            self.guard = build_guard(run, self.optimizer)
        else:
            self.guard.attach(self.optimizer)
        if self.cost_note(run):
            logger.info("%s", self.cost_note(run))

    def cost_note(self, run: EngineRun) -> str:
        """What the options of the run cost in every step, for the log; empty if nothing."""
        return describe_guard_cost(self.guard, run)

    def update(self, run: EngineRun, microbatches: Microbatches) -> None:
        """Take one step: forward and backward of every microbatch, then the update."""
        if self.guard is not None:
            self.guard.save_buffers()
        if len(microbatches) > self._most_at_once:
            self._accumulate(run, microbatches)
            return
        run.batch_index = run.feed.position
        outcome = run.train_function(microbatches[0])
        self.zero_grad()
        self.backward(outcome.loss)
        self.apply(run)
        run.finish_function(outcome)

    def zero_grad(self) -> None:
        """Clear the gradients; also registers parameters that were added to the optimizer."""
        count = 0
        for group in self.optimizer.param_groups:
            parameters = group["params"]
            count += len(parameters)
            for parameter in parameters:
                parameter.grad = None
        if self._has_own_zero_grad:
            self.optimizer.zero_grad()
        if count != len(self.parameters):
            self._admit()

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a loss, scaled if fp16 needs it."""
        if self.guard is not None:
            loss = self.guard.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here

    def apply(self, run: EngineRun, total: Number | None = None) -> None:
        """Divide the gradients by ``total`` items and update the weights."""
        if self._is_plain and total is None:
            self.optimizer.step()
            return
        self.finish_gradients(total)
        if self.guard is None:
            self.optimizer.step()
        else:
            self.guard.step()
            self.guard.report(run)
        self._finish_step(run)

    def finish_gradients(self, total: Number | None) -> None:
        """Divide the gradients by ``total`` items, then check, clip and measure them."""
        groups = self.optimizer.param_groups
        if sum([len(group["params"]) for group in groups]) != len(self.parameters):
            self._admit()
        if total is not None:
            divide_gradients(self._gradients(), total)
        guard = self.guard
        if guard is not None:
            guard.unscale(self._gradients())
        largest = self._largest_norm
        if largest is not None and not self._strategy.is_sharded:
            self.grad_norm = clip_grad_norm_(self.parameters, largest)
        elif largest is not None or self._is_norm_logged:
            whole = [one.grad for one in self.parameters if one.grad is not None]
            self.grad_norm = self._strategy.measure_norm(whole)
            if largest is not None:
                clip_by_norm(self._gradients(), self.grad_norm, largest)
        if guard is not None:
            # The norm of finite gradients may overflow, and logging must not change training.
            guard.check(self._gradients(), None if largest is None else self.grad_norm)
        if self._largest_value is not None:  # after the check, since it makes infinities finite
            clip_grad_value_(self.parameters, self._largest_value)
        if self.noise is not None:
            self.noise.add_to(self._gradients())

    def state_tensors(self) -> dict[str, Tensor]:
        """The tensors that a step changes besides model, optimizer, average and meter, by name."""
        tensors = {} if self.guard is None else self.guard.state_tensors()
        return tensors if self.noise is None else {**tensors, "noise": self.noise.count}

    def _finish_step(self, run: EngineRun) -> None:
        skipped = None if self.guard is None else self.guard.skipped
        if self.average is not None and self.average.every is None:
            self.average.update(skipped)
        if self._is_norm_logged and self.grad_norm is not None:
            count = 1 if skipped is None else 1 - skipped
            run.meter.add_one("grad_norm", self.grad_norm, count)

    def _accumulate(self, run: EngineRun, microbatches: Microbatches) -> None:
        if self._shared is not None:
            self._shared.take(run, self, microbatches)
            return
        total: Number = 0
        first: Number = 1
        last = len(microbatches) - 1
        for index, batch in enumerate(microbatches):
            run.batch_index = run.feed.position + get_batch_index(microbatches, index)
            outcome = run.train_function(batch)
            if index == 0:
                self.zero_grad()
                first = one_if_zero(outcome.count)
            # Relative to the first count: a factor of thousands could overflow fp16.
            share = outcome.count / first
            self.backward(outcome.loss * share)
            total = total + share
            if index == last:
                self.apply(run, total)
            run.finish_function(outcome)

    def _read_parameters(self) -> None:
        groups = self.optimizer.param_groups
        self.parameters = [parameter for group in groups for parameter in group["params"]]

    def _admit(self) -> None:
        """Register parameters that were added to the optimizer during the run."""
        self._read_parameters()
        self.rate.admit()
        if self.average is not None:
            self.average.admit(self._model)
        if self.guard is not None:
            self.guard.prepare()

    def _gradients(self) -> list[Tensor]:
        """The gradients, or those parts of them that this process has."""
        found = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        return [get_own_part(one) for one in found] if self._strategy.is_sharded else found


@final
class ClosureUpdater(Updater):
    """Takes steps of optimizers that evaluate the loss several times per step, such as LBFGS.

    Only the first evaluation of a step counts in means and events.
    """

    @override
    def _bind_guard(self, run: EngineRun) -> None:
        refuse_guard(run, self.optimizer)
        if self.noise is not None:
            what = f"{type(self.optimizer).__name__} needs exact gradients for its line search"
            raise ConfigError(Problem("optim.noise", what, hint="remove it"))

    @override
    def update(self, run: EngineRun, microbatches: Microbatches) -> None:
        first: list[Outcome] = []

        def forward(index: int) -> Outcome:
            run.batch_index = run.feed.position + get_batch_index(microbatches, index)
            if len(first) > index:
                return run.part(TaskCalls).train(microbatches[index])
            first.append(run.train_function(microbatches[index]))
            return first[index]

        shared = self._shared

        def evaluate() -> Tensor:
            if shared is not None:
                places = [get_batch_index(microbatches, i) for i in range(len(microbatches))]
                return self._evaluate_shared(shared, run, forward, places)
            if len(microbatches) > 1:
                return self._evaluate(forward, len(microbatches), run.device)
            outcome = forward(0)
            self.zero_grad()
            self.backward(outcome.loss)
            self.finish_gradients(None)
            return outcome.loss.detach()

        self.optimizer.step(evaluate)  # type: ignore[arg-type]  # also accepts tensors
        self._finish_step(run)
        if shared is not None:
            shared.add_up(run, first, [get_batch_index(microbatches, i) for i in range(len(first))])
        for index, outcome in enumerate(first):
            run.batch_index = run.feed.position + get_batch_index(microbatches, index)
            run.finish_function(outcome)

    def _evaluate(
        self, forward: Callable[[int], Outcome], count: int, device: torch.device
    ) -> Tensor:
        """The mean loss of several microbatches; sets its gradient."""
        self.zero_grad()
        loss, total = torch.zeros((), device=device), torch.zeros((), device=device)
        for index in range(count):
            outcome = forward(index)
            self.backward(outcome.loss * outcome.count)
            loss = loss + outcome.loss.detach() * outcome.count
            total = total + outcome.count
        self.finish_gradients(total)
        return loss / one_if_zero(total)

    def _evaluate_shared(
        self,
        shared: SharedStep,
        run: EngineRun,
        forward: Callable[[int], Outcome],
        places: Sequence[int],
    ) -> Tensor:
        """The mean loss over all processes; sets its gradient."""
        self.zero_grad()
        unit, dtype = shared.find_unit(run), torch.float32
        losses: Number = 0.0
        shares: Number = 0.0
        with run.strategy.accumulating():
            for index, place in enumerate(places):
                outcome = forward(index)
                share = shared.find_share(run, outcome.count, place, unit)
                self.backward(outcome.loss * share)
                losses, shares = losses + outcome.loss.detach() * share, shares + share
                dtype = choose_sum_dtype(outcome.loss)
        sums = torch.stack([to_scalar(one, run.device, dtype) for one in (losses, shares)])
        loss, total = run.strategy.reduce(self._gradients(), sums).unbind()
        self.finish_gradients(total)
        return loss / one_if_zero(total)


def one_if_zero(total: Number) -> Number:
    """The total, or 1 if it is 0; without a sync."""
    return total + (total == 0)


def divide_gradients(gradients: list[Tensor], total: Number) -> None:
    """Divide gradients in place by the number of items, if any, on the host or on the device."""
    if isinstance(total, Tensor):
        divisor = total + (total == 0)
        for gradient in gradients:
            gradient.div_(divisor.to(gradient.device))  # fsdp_offload keeps them on the host
    elif gradients:
        torch._foreach_div_(gradients, float(total) or 1.0)


def clip_by_norm(gradients: list[Tensor], norm: Tensor, largest: float) -> None:
    """Scale gradients in place so that their norm is at most ``largest``, as torch does."""
    factor = torch.clamp(largest / (norm + 1e-6), max=1.0)
    groups: dict[torch.device, list[Tensor]] = {}
    for gradient in gradients:
        groups.setdefault(gradient.device, []).append(gradient)
    for device, group in groups.items():
        torch._foreach_mul_(group, factor.to(device))


def _require_usual_optimizer(updater: Updater, optimizer: Optimizer) -> None:
    """Refuse optimizers that cannot work with gradients of which each process has a part."""
    kind, why = type(optimizer).__name__, ""
    if isinstance(updater, ClosureUpdater):
        why = f"{kind} evaluates the loss several times per step"
    elif isinstance(updater, MultiOptimizerUpdater):
        why = "there are several optimizers, each with its own loss"
    elif type(optimizer).state_dict is not Optimizer.state_dict:
        why = f"{kind} has its own state_dict"
    if why:
        what = f"{why}, which fsdp does not support"
        hint = "write strategy: ddp, or choose another optimizer"
        raise ConfigError(Problem("engine.strategy", what, hint=hint))
    if not any(is_sharded(one) for group in optimizer.param_groups for one in group["params"]):
        what = f"{kind} was built before fsdp divided the parameters"
        hint = "describe it in the config, or build it in build_optimizer of an Experiment"
        raise ConfigError(Problem("optim", what, hint=hint))
    for group in optimizer.param_groups:
        if len({is_sharded(parameter) for parameter in group["params"]}) > 1:
            what = "a group has parameters of the model, which fsdp divides, and others"
            hint = "put parameters of loss and task in a separate group: {match: loss.*}"
            raise ConfigError(Problem("optim.groups", what, hint=hint))


def choose_updater(optimizer: Optimizer | None) -> Updater:
    """The updater that an optimizer needs."""
    if optimizer is None:
        return Updater()
    if isinstance(optimizer, Optimizers):
        return MultiOptimizerUpdater()
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    is_needed = closure is not None and closure.default is closure.empty
    return ClosureUpdater() if is_needed else Updater()


def takes_shared_steps(updater: Updater) -> bool:
    """Whether the numbers of each step can travel with its gradients."""
    return type(updater).update is Updater.update


def warn_of_custom_train_step(run: EngineRun, owner: str) -> None:
    """Warn of options that have no effect, or none without the updater, in a custom step."""
    engine = run.options.engine
    needs_updater = {
        "average": run.average is not None and run.average.every is None,
        "optim.noise": run.options.optim.noise is not None,
        f"engine.on_nonfinite={engine.on_nonfinite}": engine.on_nonfinite != "warn",
        "the scaled loss of engine.precision=fp16": run.precision.is_scaled,
        "optim.clip": run.options.optim.clip is not None,
    }
    unused = {"step": engine.step in ("graph", "compile"), "microbatch": engine.microbatch}
    for key in (key for key, is_set in unused.items() if is_set):
        text = "engine.%s=%s: has no effect, because %s overrides train_step"
        logger.warning(text, key, getattr(engine, key), owner)
    for key in (key for key, is_set in needs_updater.items() if is_set):
        text = "%s: %s overrides train_step, where it works only through run.part(Updater).update"
        logger.warning(text, key, owner)


@final
class GradientNoise:
    """Normal noise with the variance ``eta / (1 + t) ** decay`` after t updates.

    Updates are counted on the device, so that steps can be captured.
    """

    def __init__(
        self,
        *,
        eta: float,
        decay: float,
        count: Tensor,
        make_generator: Callable[[], torch.Generator | None] = lambda: None,
    ) -> None:
        self._scale = eta**0.5
        self._power = -decay / 2
        self.count = count
        self._make_generator = make_generator

    @torch.no_grad()
    def add_to(self, gradients: Sequence[Tensor]) -> None:
        """Add noise to gradients in place, from the generator of their device by default."""
        generator = self._make_generator()
        if generator is None:
            noise = [torch.randn_like(gradient) for gradient in gradients]
        else:
            noise = [torch.empty_like(one).normal_(generator=generator) for one in gradients]
        if noise:
            torch._foreach_mul_(noise, self._scale * (1 + self.count) ** self._power)
            torch._foreach_add_(list(gradients), noise)
        self.count.add_(1)


def build_gradient_noise(run: EngineRun, previous: GradientNoise | None) -> GradientNoise | None:
    """The noise of ``optim.noise``; continues the count of the previous one."""
    options = run.options.optim
    if options.noise is None:
        return None
    count = torch.zeros((), device=run.device) if previous is None else previous.count

    def make_generator() -> torch.Generator | None:
        """The same for all processes, whose weights must stay equal."""
        if not run.is_shared:
            return None
        seed = derive_seed(run.seed, "noise", run.step)
        return torch.Generator(run.device).manual_seed(seed)

    return GradientNoise(
        eta=options.noise, decay=options.noise_decay, count=count, make_generator=make_generator
    )


@final
class MultiOptimizerUpdater(Updater):
    """Takes steps in which each due optimizer minimizes its own loss.

    All losses come from one forward pass. The gradient of a loss reaches only the parameters of
    its optimizers, and all gradients are computed before the first optimizer steps.
    """

    is_capturable = True  # kind_of distinguishes steps with different optimizers

    @override
    def bind(self, run: EngineRun) -> None:
        super().bind(run)
        optimizer: Any = self.optimizer
        self._optimizers: Optimizers = optimizer
        self._firsts: dict[str, Number] = {}
        self._totals: dict[str, Number] = {}
        self.kind_of = None if self._optimizers.steps_together else self._find_kind
        self._parts = {one.name: one.parameters for one in self._optimizers.members}
        self._limits = {
            one.name: (one.options.clip_limit("norm"), one.options.clip_limit("value"))
            for one in self._optimizers.members
        }

    def _find_kind(self, step: int) -> Hashable:
        return tuple([(step + 1) % one.options.every == 0 for one in self._optimizers.members])

    @override
    def update(self, run: EngineRun, microbatches: Microbatches) -> None:
        if self.guard is not None:
            self.guard.save_buffers()
        self._optimizers.choose_due(run.step)
        last = len(microbatches) - 1
        self._firsts, self._totals = {}, {}
        if self._shared is not None:
            self._update_shared(run, microbatches, self._shared)
            return
        for index, batch in enumerate(microbatches):
            run.batch_index = run.feed.position + get_batch_index(microbatches, index)
            outcome = run.train_function(batch)
            if index == 0:
                self.zero_grad()
            self._backward_losses(run, outcome, is_only=last == 0)
            if index == last:
                self.apply(run)
            run.finish_function(outcome)

    def _update_shared(
        self, run: EngineRun, microbatches: Microbatches, shared: SharedStep
    ) -> None:
        """Take a step of several processes, whose gradients are reduced after all losses."""
        names = sorted({member.options.loss for member in self._optimizers.due})
        self._firsts = dict.fromkeys(names, shared.find_unit(run))
        outcomes = []
        places = [get_batch_index(microbatches, index) for index in range(len(microbatches))]
        with run.strategy.accumulating():
            for index, batch in enumerate(microbatches):
                run.batch_index = run.feed.position + places[index]
                outcomes.append(run.train_function(batch))
                if index == 0:
                    self.zero_grad()
                if not shared.is_counted(run, places[index]):
                    shared.leave_out(outcomes[-1])
                self._backward_losses(run, outcomes[-1], is_only=False)
        dtype, totals = choose_sum_dtype(outcomes[-1].loss), self._totals
        sums = torch.stack([to_scalar(totals.get(one, 0.0), run.device, dtype) for one in names])
        sums = run.strategy.reduce(self._gradients(), sums)
        self._totals = dict(zip(names, sums.unbind(), strict=True))
        self.apply(run)
        shared.add_up(run, outcomes, places)
        for index, outcome in enumerate(outcomes):
            run.batch_index = run.feed.position + places[index]
            shared.finish(run, outcome, places[index])

    def _backward_losses(self, run: EngineRun, outcome: Outcome, *, is_only: bool) -> None:
        """Add the gradient of each loss to the parameters of its optimizers."""
        due: dict[str, list[Member]] = {}
        for member in self._optimizers.due:
            due.setdefault(member.options.loss, []).append(member)
        num_left = len(due)
        for name, members in due.items():
            num_left -= 1
            loss, count = _find_loss(run, outcome, name, members[0])
            if not is_only:  # relative to the first count, which cannot overflow
                share = count / self._firsts.setdefault(name, one_if_zero(count))
                loss = loss * share
                self._totals[name] = self._totals.get(name, 0) + share
            if self.guard is not None:
                loss = self.guard.scale(loss)
            parts = [self._parts[member.name] for member in members]
            parameters = [one for part in parts for one in part if one.requires_grad]
            if parameters:  # empty if a stage froze all of them
                torch.autograd.backward(loss, inputs=parameters, retain_graph=num_left > 0)

    @override
    def finish_gradients(self, total: Number | None) -> None:
        due = self._optimizers.due
        for member in due:
            if member.options.loss in self._totals:
                parameters = self._parts[member.name]
                gradients = [one.grad for one in parameters if one.grad is not None]
                divide_gradients(gradients, self._totals[member.options.loss])
        guard, gradients = self.guard, self._gradients()
        if guard is not None:
            guard.unscale(gradients)
        if self._is_norm_logged:
            self.grad_norm = get_total_norm(gradients)
        if guard is not None:
            guard.check(gradients)
        for member in due:
            norm, value = self._limits[member.name]
            if norm is not None:
                clip_grad_norm_(self._parts[member.name], norm)
            if value is not None:
                clip_grad_value_(self._parts[member.name], value)
        if self.noise is not None:
            self.noise.add_to(gradients)


def _find_loss(
    run: EngineRun, outcome: Outcome, name: str, member: Member
) -> tuple[Tensor, Number]:
    where = f"{type(run.task).__name__}.batch_loss"
    found: Mapping[str, Any] = outcome.losses
    if name not in found:
        raise TaskError(
            f"{where}: returned no {name!r}, the loss of optim.{member.name}\n"
            f"  it returned: {', '.join(sorted(found))}"
        )
    loss, count = found[name]
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise TaskError(
            f"{where}: {name!r} does not depend on any trained parameter\n"
            f"  compute it from parameters of optim.{member.name}, without detach() or no_grad()"
        )
    return loss, count
