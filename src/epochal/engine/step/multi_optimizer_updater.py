"""One step of several optimizers, each with its own loss and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from typing_extensions import override

from epochal.engine.feed.split_batch import get_batch_index
from epochal.engine.step.updater import Updater, divide_gradients, one_if_zero
from epochal.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from epochal.engine.feed.feed import Microbatches
    from epochal.engine.interfaces.outcome import Outcome
    from epochal.engine.measure.sums import Number
    from epochal.engine.optim.multi_optimizer import Member, Optimizers
    from epochal.engine.run.engine_run import EngineRun


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
        for index, batch in enumerate(microbatches):
            run.batch_index = run.feed.position + get_batch_index(microbatches, index)
            outcome = run.train_function(batch)
            if index == 0:
                self.zero_grad()
            self._backward_losses(run, outcome, is_only=last == 0)
            if index == last:
                self.apply(run)
            run.finish_function(outcome)

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
