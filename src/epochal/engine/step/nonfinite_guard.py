"""Skips updates whose gradients are not finite, and scales the loss for fp16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam

from epochal.engine.optim.multi_optimizer import list_optimizers
from epochal.engine.run.variables import LOSS_SCALE
from epochal.engine.step.nonfinite_watch import NonfiniteWatch
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.optim import Optimizer

    from epochal.engine.run.engine_run import EngineRun

# As in torch.amp.GradScaler.
_FIRST_SCALE = 65536.0
_GROWTH, _BACKOFF, _GROWTH_STEPS = 2.0, 0.5, 2000


@final
class NonfiniteGuard:
    """Skips updates whose gradients are not finite; its state is on the device.

    A fused optimizer skips by a flag on the device, without a sync. Any other optimizer costs
    one host read per step.

    Args:
        optimizer: Takes the updates.
        device: Where the gradients are.
        is_scaled: Whether losses are scaled, as fp16 needs.
        stops_on_nonfinite: Whether all updates after the first such gradient are skipped.
        keeps_history: Whether to record which of the latest steps had such gradients.
        buffers: Buffers of the model, restored when an update is skipped.
        agree: Sets a flag to 1 if it is 1 in any process, if each has a part of the gradients.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        device: torch.device | str = "cpu",
        *,
        is_scaled: bool = False,
        stops_on_nonfinite: bool = False,
        keeps_history: bool = False,
        buffers: Iterable[Tensor] = (),
        agree: Callable[[Tensor], object] = lambda flag: None,
    ) -> None:
        self.is_scaled = is_scaled
        self.stops_on_nonfinite = stops_on_nonfinite
        self.keeps_history = keeps_history
        self.skipped = torch.zeros((), device=device)
        """1 if the latest update was skipped, else 0."""

        self.history = torch.zeros((), dtype=torch.int64, device=device)
        """One bit for each of the latest steps, the last one lowest: 1 if its gradient was not
        finite for another reason than the scale of the loss."""

        self._one = torch.ones((), device=device)
        self._has_diverged = torch.zeros((), device=device)
        self._scale = torch.full((), _FIRST_SCALE if is_scaled else 1.0, device=device)
        self._growth_tracker = torch.zeros((), dtype=torch.int32, device=device)
        self._buffers = BufferSnapshot(buffers, self.skipped.device)
        self._agree = agree
        self.attach(optimizer)

    def attach(self, optimizer: Optimizer) -> None:
        """Guard the updates of another optimizer instead."""
        self.optimizer = optimizer
        self.syncs_each_step = not can_skip_on_device(optimizer)
        """Whether each step waits for the device."""

        self.prepare()

    def prepare(self) -> None:
        """Initialize the state of the parameters; call again when the optimizer gets new ones."""
        fused = [] if self.syncs_each_step else list_optimizers(self.optimizer)
        # torch leaves the first momentum unset if it skips the first update. Starting with
        # zeros gives the same bits: 0 * momentum + gradient.
        for optimizer in (one for one in fused if isinstance(one, SGD)):
            for group in optimizer.param_groups:
                for parameter in group["params"] if group["momentum"] else ():
                    state = optimizer.state[parameter]
                    if state.get("momentum_buffer") is None:
                        state["momentum_buffer"] = torch.zeros_like(parameter)

    def save_buffers(self) -> None:
        """Save the buffers before the forward pass of a step, which changes them."""
        self._buffers.save()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss to send backward."""
        return loss * self._scale if self.is_scaled else loss

    def unscale(self, gradients: Sequence[Tensor]) -> None:
        """Divide the gradients by the scale, and record whether they are finite."""
        if self.is_scaled:
            # As in GradScaler, since float32 division may be imprecise; MPS has no float64.
            exact = self._scale if self._scale.device.type == "mps" else self._scale.double()
            self._unscale_and_check(gradients, exact.reciprocal().float())

    def check(self, gradients: Sequence[Tensor], norm: Tensor | None = None) -> None:
        """Record whether the gradients are finite, by their norm if it is known."""
        if not self.is_scaled:
            if norm is not None:
                self.skipped.copy_(norm.isfinite().logical_not())
            else:
                self._unscale_and_check(gradients, self._one)
        bad = self.skipped
        if self.is_scaled and (self.stops_on_nonfinite or self.keeps_history):
            # Scaled gradients overflow occasionally, which is no divergence.
            bad = bad * (self._scale <= 1)
        if self.stops_on_nonfinite:
            self._has_diverged.copy_(torch.maximum(self._has_diverged, bad))
        if self.keeps_history:
            self.history.bitwise_left_shift_(1).bitwise_or_(bad.long())

    def step(self) -> None:
        """Update the weights, unless the gradients are not finite."""
        if self.is_scaled:
            torch._amp_update_scale_(
                self._scale, self._growth_tracker, self.skipped, _GROWTH, _BACKOFF, _GROWTH_STEPS
            )
        if self.stops_on_nonfinite:
            self.skipped.copy_(torch.maximum(self.skipped, self._has_diverged))
        self._buffers.restore_if_skipped(self.skipped)
        optimizer: Any = self.optimizer  # torch reads these two, but does not declare them
        if self.syncs_each_step:
            if not self.skipped.item():
                optimizer.step()
            part: Any
            for part in list_optimizers(optimizer):
                # Else a scheduler of torch would warn that the first step is missing.
                part._opt_called = True
            return
        optimizer.found_inf, optimizer.grad_scale = self.skipped, None
        try:
            optimizer.step()
        finally:
            del optimizer.found_inf, optimizer.grad_scale

    def read_scale(self) -> Tensor:
        """The current factor of the losses."""
        return self._scale

    def report(self, run: EngineRun) -> None:
        """Add to the means of the run whether the update was skipped."""
        run.meter.add_one("skipped", self.skipped, 1)

    def state_tensors(self) -> dict[str, Tensor]:
        """The tensors that a step changes, by name."""
        state = {"skipped": self.skipped}
        if self.stops_on_nonfinite:
            state["has_diverged"] = self._has_diverged
        if self.keeps_history:
            state["history"] = self.history
        if self.is_scaled:
            state |= {"scale": self._scale, "growth_tracker": self._growth_tracker}
        return state

    def _unscale_and_check(self, gradients: Sequence[Tensor], inverse: Tensor) -> None:
        """Multiply gradients by a number, and record whether they were finite."""
        self.skipped.zero_()
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for gradient in gradients:
            values = gradient._values() if gradient.is_sparse else gradient
            values = torch.view_as_real(values) if values.is_complex() else values
            by_dtype.setdefault(values.dtype, []).append(values)
        for group in by_dtype.values():
            torch._amp_foreach_non_finite_check_and_unscale_(group, self.skipped, inverse)
        self._agree(self.skipped)


def build_guard(run: EngineRun, optimizer: Optimizer) -> NonfiniteGuard | None:
    """The guard that the options of a run need; None if gradients need no check."""
    action = run.options.engine.on_nonfinite
    if action == "warn" and not run.precision.is_scaled:
        return None
    guard = NonfiniteGuard(
        optimizer,
        run.device,
        is_scaled=run.precision.is_scaled,
        stops_on_nonfinite=action in ("stop", "rollback"),
        keeps_history=action != "warn",
        # With "warn" only the loss scale causes skips, and then the buffers are valid.
        buffers=() if action == "warn" else run.model.buffers(),
        agree=run.strategy.agree,
    )
    if guard.keeps_history:
        run.set_part(NonfiniteWatch, NonfiniteWatch(run, guard.history))
    if guard.is_scaled:
        run.variables[LOSS_SCALE] = guard.read_scale
    return guard


def refuse_guard(run: EngineRun, optimizer: Optimizer) -> None:
    """Refuse options that skip updates, for an optimizer that evaluates the loss itself."""
    kind, engine = type(optimizer).__name__, run.options.engine
    what = f"{kind} evaluates the loss several times per step, so no update can be skipped"
    if engine.on_nonfinite != "warn":
        hint = "write warn, or choose another optimizer"
        raise ConfigError(Problem("engine.on_nonfinite", what, hint=hint))
    if run.precision.is_scaled:
        hint = "write bf16, or choose another optimizer"
        raise ConfigError(Problem("engine.precision", what, hint=hint))


def describe_guard_cost(guard: NonfiniteGuard | None, run: EngineRun) -> str:
    """What the guard costs in every step, for the log; empty if it costs nothing."""
    if guard is None or not guard.syncs_each_step:
        return ""
    engine = run.options.engine
    key = "precision" if engine.on_nonfinite == "warn" else "on_nonfinite"
    names = " and ".join(
        dict.fromkeys(type(one).__name__ for one in list_optimizers(guard.optimizer))
    )
    return (
        f"engine.{key}={getattr(engine, key)} costs one host read per step with "
        f"{names}; a fused optimizer would not"
    )


def can_skip_on_device(optimizer: Optimizer) -> bool:
    """Whether an optimizer can skip an update by a flag on the device."""
    parts = list_optimizers(optimizer)
    if len(parts) > 1:
        return all(can_skip_on_device(part) for part in parts)
    (optimizer,) = parts
    groups = optimizer.param_groups
    is_fused = isinstance(optimizer, Adam | Adagrad | SGD) and all(g["fused"] for g in groups)
    # See `prepare`: with dampening, zeros would change the first momentum.
    is_damped = isinstance(optimizer, SGD) and any(g["momentum"] and g["dampening"] for g in groups)
    return is_fused and not is_damped


@final
class BufferSnapshot:
    """Restores buffers on the device of the run when the step that changed them was skipped."""

    def __init__(self, buffers: Iterable[Tensor], device: torch.device) -> None:
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for buffer in buffers:
            if buffer.device == device and buffer.numel():
                by_dtype.setdefault(buffer.dtype, []).append(buffer.detach())
        # One vector per dtype: a kernel for every buffer would cost more than the copies.
        self._copies = [(group, _join(group)) for group in by_dtype.values()]
        self._is_saved = False

    @torch.no_grad()
    def save(self) -> None:
        """Copy the buffers as they are now."""
        for group, copied in self._copies:
            copied.copy_(_join(group))
        self._is_saved = True

    @torch.no_grad()
    def restore_if_skipped(self, skipped: Tensor) -> None:
        """Restore the buffers if a number on the device is 1, without reading it."""
        # A custom step may not have saved the buffers.
        for group, copied in self._copies if self._is_saved else ():
            chosen = torch.where(skipped != 0, copied, _join(group))
            parts = torch.split(chosen, [buffer.numel() for buffer in group])
            torch._foreach_copy_(
                group, [part.view(buffer.shape) for part, buffer in zip(parts, group, strict=True)]
            )
        self._is_saved = False


def _join(buffers: list[Tensor]) -> Tensor:
    return torch.cat([buffer.reshape(-1) for buffer in buffers])
