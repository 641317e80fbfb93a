"""The monitor: the metric that decides which model of a run is best."""

from __future__ import annotations

import math
from typing import Any, final

from typing_extensions import override

from epochal.errors import ConfigError, Problem, suggest

MODES = ("min", "max")


@final
class Monitor:
    """Tracks the best value of a metric; the first value is the best one, and NaN never is.

    Args:
        metric: Full name of the metric, such as ``val/acc``.
        mode: ``min`` if smaller is better, ``max`` if larger is better.
        min_delta: The minimal improvement that counts.
    """

    def __init__(self, metric: str, mode: str = "min", *, min_delta: float = 0.0) -> None:
        if mode not in MODES:
            hint = suggest(mode, MODES)
            raise ConfigError(Problem("monitor.mode", f"unknown mode {mode!r}", hint=hint))
        self.metric = metric
        self.mode = mode
        self.min_delta = min_delta
        self.best: float | None = None
        self.last: float | None = None
        self.improved = False
        """Whether the latest value was the best."""

        self.misses = 0
        """Number of values since the best one."""

    @classmethod
    def parse(cls, spec: Monitor | str | dict[str, Any]) -> Monitor:
        """The monitor of ``+val/acc``, ``-val/loss`` or ``{metric, mode, min_delta}``."""
        if isinstance(spec, Monitor):
            return spec
        plain = {"metric": spec} if isinstance(spec, str) else dict(spec)
        text, mode = str(plain.pop("metric", "")), plain.pop("mode", None)
        signed = {"+": "max", "-": "min"}.get(text[:1])
        metric = text[1:] if signed else text
        direction = signed or mode
        if not metric or direction is None:
            hint = f"write '+{metric}' if larger is better, '-{metric}' if smaller is better"
            what = f"does not say which way is better: {text!r}"
            raise ConfigError(Problem("monitor", what, hint=hint))
        if signed and mode and signed != mode:
            what = f"{mode!r} contradicts the sign of {text!r}"
            raise ConfigError(Problem("monitor.mode", what, hint="remove one of them"))
        return cls(metric, direction, **plain)

    def update(self, value: float) -> bool:
        """Add a value; returns whether it is the best so far."""
        self.last = value
        self.improved = self.is_better(value)
        self.misses = 0 if self.improved else self.misses + 1
        if self.improved:
            self.best = value
        return self.improved

    def is_better(self, value: float) -> bool:
        """Whether a value would be the best so far."""
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        if self.mode == "max":
            return value > self.best + self.min_delta
        return value < self.best - self.min_delta

    def state_dict(self) -> dict[str, float | None]:
        """The state for a checkpoint."""
        return {
            "best": self.best,
            "last": self.last,
            "improved": self.improved,
            "misses": self.misses,
        }

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Continue from a checkpoint."""
        self.best = state["best"]
        self.last = state["last"]
        self.improved = bool(state.get("improved"))
        self.misses = int(state.get("misses") or 0)

    @override
    def __str__(self) -> str:
        return f"{'+' if self.mode == 'max' else '-'}{self.metric}"
