"""Keeps updates away from the weights whose gradients are not finite, and scales fp16 losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam

from epochal.engine.measure.variables import LOSS_SCALE
from epochal.engine.optim.multi_optimizer import list_optimizers
from epochal.engine.step.nonfinite_watch import NonfiniteWatch
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.optim import Optimizer

    from epochal.engine.run import Run


# Those of torch.amp.GradScaler.
_FIRST_SCALE = 65536.0
_GROWTH, _BACKOFF, _GROWTH_STEPS = 2.0, 0.5, 2000


@final
class NonfiniteGuard:
    """Leaves out updates whose gradients are not finite; all it knows is on the device.

    A fused optimizer is told by a tensor to leave its state alone, which nobody reads. Any other
    one costs one host read per step.

    Args:
        optimizer: What takes the updates.
        device: Where the gradients are.
        is_scaled: Whether losses are scaled, as fp16 needs it.
        is_final: Whether nothing is updated any more after the first such gradient.
        keeps_history: Whether it is noted which of the latest steps had such gradients.
        buffers: Changed by the forward pass of a model, and put back with its update.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        device: torch.device | str = "cpu",
        *,
        is_scaled: bool = False,
        is_final: bool = False,
        keeps_history: bool = False,
        buffers: Iterable[Tensor] = (),
    ) -> None:
        self.is_scaled = is_scaled
        self.is_final = is_final
        self.keeps_history = keeps_history
        self.skipped = torch.zeros((), device=device)
        """1 if the latest update was left out, else 0."""

        self.history = torch.zeros((), dtype=torch.int64, device=device)
        """One bit for each of the latest steps, the last one lowest: 1 if its gradient was to
        blame, and not the scale of its loss."""

        self._one = torch.ones((), device=device)
        self._has_diverged = torch.zeros((), device=device)
        self._scale = torch.full((), _FIRST_SCALE if is_scaled else 1.0, device=device)
        self._growth_tracker = torch.zeros((), dtype=torch.int32, device=device)
        self._kept = BufferSnapshot(buffers, self.skipped.device)
        self.serve(optimizer)

    def serve(self, optimizer: Optimizer) -> None:
        """Guard the updates of an optimizer, and of no other from then on."""
        self.optimizer = optimizer
        self.syncs_each_step = not can_skip_on_device(optimizer)
        """Whether each step waits for the device."""

        self.prepare()

    def prepare(self) -> None:
        """Make ready for the optimizer's parameters; call again when it got new ones."""
        plain = [] if self.syncs_each_step else list_optimizers(self.optimizer)
        # torch leaves the first momentum unset where it skips the first update. Beginning with
        # zeros gives the same bits: 0 * momentum + gradient.
        for optimizer in (one for one in plain if isinstance(one, SGD)):
            for group in optimizer.param_groups:
                for parameter in group["params"] if group["momentum"] else ():
                    state = optimizer.state[parameter]
                    if state.get("momentum_buffer") is None:
                        state["momentum_buffer"] = torch.zeros_like(parameter)

    def keep(self) -> None:
        """Remember what the step changes even before its gradients are known."""
        self._kept.keep()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss to send backward."""
        return loss * self._scale if self.is_scaled else loss

    def unscale(self, gradients: Sequence[Tensor]) -> None:
        """Take the scale out of the gradients, and note whether they are finite."""
        if self.is_scaled:
            # float32 division may be imprecise, as GradScaler knows; Apple has nothing better.
            exact = self._scale if self._scale.device.type == "mps" else self._scale.double()
            self._find(gradients, exact.reciprocal().float())

    def check(self, gradients: Sequence[Tensor], norm: Tensor | None = None) -> None:
        """Note whether the gradients are finite; their norm tells, if somebody has it."""
        if not self.is_scaled:
            if norm is not None:
                self.skipped.copy_(norm.isfinite().logical_not())
            else:
                self._find(gradients, self._one)
        bad = self.skipped
        if self.is_scaled and (self.is_final or self.keeps_history):
            # A scaled gradient overflows now and then: that alone is no divergence.
            bad = bad * (self._scale <= 1)
        if self.is_final:
            self._has_diverged.copy_(torch.maximum(self._has_diverged, bad))
        if self.keeps_history:
            self.history.bitwise_left_shift_(1).bitwise_or_(bad.long())

    def step(self) -> None:
        """Update the weights unless the gradients forbid it."""
        if self.is_scaled:
            torch._amp_update_scale_(
                self._scale, self._growth_tracker, self.skipped, _GROWTH, _BACKOFF, _GROWTH_STEPS
            )
        if self.is_final:
            self.skipped.copy_(torch.maximum(self.skipped, self._has_diverged))
        self._kept.put_back(self.skipped)
        optimizer: Any = self.optimizer  # torch reads these two, but does not declare them
        if self.syncs_each_step:
            if not self.skipped.item():
                optimizer.step()
            part: Any
            for part in list_optimizers(optimizer):
                # Else a scheduler of torch would take the first step for forgotten.
                part._opt_called = True
            return
        optimizer.found_inf, optimizer.grad_scale = self.skipped, None
        try:
            optimizer.step()
        finally:
            del optimizer.found_inf, optimizer.grad_scale

    def read_scale(self) -> Tensor:
        """What losses are multiplied with now."""
        return self._scale

    def report(self, run: Run) -> None:
        """Count into the averages of the run whether the update was left out."""
        run.meter.add_one("skipped", self.skipped, 1)

    def state_tensors(self) -> dict[str, Tensor]:
        """All that a step changes, by name."""
        state = {"skipped": self.skipped}
        if self.is_final:
            state["has_diverged"] = self._has_diverged
        if self.keeps_history:
            state["history"] = self.history
        if self.is_scaled:
            state |= {"scale": self._scale, "growth_tracker": self._growth_tracker}
        return state

    def _find(self, gradients: Sequence[Tensor], inverse: Tensor) -> None:
        """Multiply gradients by a number, and note whether they were finite."""
        self.skipped.zero_()
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for gradient in gradients:
            values = gradient._values() if gradient.is_sparse else gradient
            values = torch.view_as_real(values) if values.is_complex() else values
            by_dtype.setdefault(values.dtype, []).append(values)
        for alike in by_dtype.values():
            torch._amp_foreach_non_finite_check_and_unscale_(alike, self.skipped, inverse)


def build_guard(run: Run, optimizer: Optimizer) -> NonfiniteGuard | None:
    """What a run needs against gradients that are not finite; None for no more than a warning."""
    action = run.options.engine.on_nonfinite
    if action == "warn" and not run.precision.is_scaled:
        return None
    guard = NonfiniteGuard(
        optimizer,
        run.device,
        is_scaled=run.precision.is_scaled,
        is_final=action in ("stop", "rollback"),
        keeps_history=action != "warn",
        # Where only the scale is to blame, they are as good as ever.
        buffers=() if action == "warn" else run.model.buffers(),
    )
    if guard.keeps_history:
        run.watch = NonfiniteWatch(run, guard.history)
    if guard.is_scaled:
        run.variables[LOSS_SCALE] = guard.read_scale
    return guard


def refuse_guard(run: Run, optimizer: Optimizer) -> None:
    """Refuse options that hold updates back, for an optimizer that evaluates by itself.

    Raises:
        ConfigError: One of them was chosen.
    """
    kind, engine = type(optimizer).__name__, run.options.engine
    what = f"{kind} evaluates the loss by itself, so that no update can be held back"
    if engine.on_nonfinite != "warn":
        hint = "write warn, or choose another optimizer"
        raise ConfigError(Problem("engine.on_nonfinite", what, hint=hint))
    if run.precision.is_scaled:
        hint = "write bf16, or choose another optimizer"
        raise ConfigError(Problem("engine.precision", what, hint=hint))


def describe_guard_cost(guard: NonfiniteGuard | None, run: Run) -> str:
    """What holding updates back costs in every step; empty when it is nothing."""
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
    """Whether an optimizer can be told by a tensor to leave everything as it is."""
    parts = list_optimizers(optimizer)
    if len(parts) > 1:
        return all(can_skip_on_device(part) for part in parts)
    (optimizer,) = parts
    groups = optimizer.param_groups
    is_fused = isinstance(optimizer, Adam | Adagrad | SGD) and all(g["fused"] for g in groups)
    # See `prepare`: with dampening the first momentum is another one than the later ones.
    is_damped = isinstance(optimizer, SGD) and any(g["momentum"] and g["dampening"] for g in groups)
    return is_fused and not is_damped


@final
class BufferSnapshot:
    """Puts buffers back when the step that changed them was left out.

    Args:
        buffers: Those of a model.
        device: Where the run works; what lies elsewhere is left alone.
    """

    def __init__(self, buffers: Iterable[Tensor], device: torch.device) -> None:
        kinds: dict[torch.dtype, list[Tensor]] = {}
        for buffer in buffers:
            if buffer.device == device and buffer.numel():
                kinds.setdefault(buffer.dtype, []).append(buffer.detach())
        # One vector for each dtype: a kernel for every buffer would cost more than the copies.
        self._kinds = [(alike, _join(alike)) for alike in kinds.values()]
        self._is_kept = False

    @torch.no_grad()
    def keep(self) -> None:
        """Remember the buffers as they are."""
        for alike, vector in self._kinds:
            vector.copy_(_join(alike))
        self._is_kept = True

    @torch.no_grad()
    def put_back(self, skipped: Tensor) -> None:
        """Make the buffers what they were if a number on the device is 1, which nobody reads."""
        # A step of somebody's own may have kept nothing.
        for alike, vector in self._kinds if self._is_kept else ():
            chosen = torch.where(skipped != 0, vector, _join(alike))
            parts = torch.split(chosen, [buffer.numel() for buffer in alike])
            torch._foreach_copy_(
                alike, [part.view(buffer.shape) for part, buffer in zip(parts, alike, strict=True)]
            )
        self._is_kept = False


def _join(buffers: list[Tensor]) -> Tensor:
    return torch.cat([buffer.reshape(-1) for buffer in buffers])
