"""From microbatches to one optimizer update: backward, accumulate, clip, step, schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, get_total_norm

from epochal.engine.lr import FixedRate, build_rate
from epochal.errors import TaskError

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from epochal.engine.feed import Microbatches
    from epochal.engine.meters import Number
    from epochal.engine.run import Run


class Updater:
    """Takes one optimizer step; subclass it and override ``update`` to take another kind.

    A step of several microbatches gives the gradient of the mean over all their items: each
    loss is weighted by its count, and gradients are divided by the total.
    """

    optimizer: Optimizer
    parameters: list[nn.Parameter]
    rate = FixedRate()

    def bind(self, run: Run) -> None:
        """Take what is needed from the run; called before its first step."""
        if run.optimizer is None:
            raise TaskError(
                "optim: training needs an optimizer\n  write for example optim: {type: AdamW}"
            )
        self.optimizer = run.optimizer
        groups = run.optimizer.param_groups
        self.parameters = [parameter for group in groups for parameter in group["params"]]
        self.rate = build_rate(
            run.schedule, run.optimizer, step=run.step, total_steps=run.limits.steps
        )
        self._clip = run.options.optim.clip
        self._is_norm_logged = run.options.log.grad_norm
        self.grad_norm: Tensor | None = None
        """Norm of the last gradient before clipping, if anybody asked for it."""

    def update(self, run: Run, microbatches: Microbatches) -> None:
        """Take one step: every microbatch through the task and back, then the update."""
        last = len(microbatches) - 1
        total: Number = 0
        for index, batch in enumerate(microbatches):
            run.batch_index = run.feed.position + index
            outcome = run.train_batch(batch)
            if index == 0:
                self.optimizer.zero_grad()
            if last == 0:
                self.backward(outcome.loss)
            else:
                self.backward(outcome.loss * outcome.count)
                total = total + outcome.count
            if index == last:
                self.apply(run, total if last else None)
            run.finish_batch(outcome)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss to those of the parameters."""
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here

    def apply(self, run: Run, total: Number | None = None) -> None:
        """Turn the gradients, divided by ``total`` items, into an update."""
        if total is not None:
            self._divide(total)
        if self._clip is not None:
            self.grad_norm = clip_grad_norm_(self.parameters, self._clip)
        elif self._is_norm_logged:
            self.grad_norm = get_total_norm(self._gradients())
        self.optimizer.step()
        self.rate.after_step(run.step + 1)
        if self._is_norm_logged and self.grad_norm is not None:
            run.meter.add_one("grad_norm", self.grad_norm, 1)

    def _divide(self, total: Number) -> None:
        gradients = self._gradients()
        if isinstance(total, Tensor):
            for gradient in gradients:
                gradient.div_(total)
        elif gradients:
            torch._foreach_div_(gradients, float(total))

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]
