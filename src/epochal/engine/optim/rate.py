"""The interface of the owner of the learning rate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.engine.optim.group_rates import GroupRates


class Rate(ABC):
    """Owns the learning rates of an optimizer, and moves them when they may move."""

    is_moved_by_steps: bool = False
    """Whether ``after_step`` does anything."""

    rates: GroupRates
    """The rates; nothing else in the engine sets them."""

    @property
    def values(self) -> list[float]:
        """The rate of each group; reads no device."""
        return self.rates.values

    def adopt(self) -> None:
        """Take over rates that users wrote into groups; called after code of users ran."""
        self.rates.adopt()

    def keep_used(self, step: int) -> None:
        """Keep the rates of the update ``step``; called before anything may move them."""
        self.rates.keep_used(step)

    def get_used(self, step: int) -> list[float]:
        """The rate of each group in the update ``step``, the latest one."""
        return self.rates.get_used(step)

    def after_step(self, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called after each update; ``step`` counts it."""

    def after_epoch(self, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called after each complete epoch."""

    def after_eval(self, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called after each evaluation of ``val`` that follows an update."""

    def after_value(self, value: float, step: int) -> None:  # noqa: B027 - most do nothing then
        """Called with each new value of the monitored metric that follows an update."""

    @abstractmethod
    def admit(self) -> None:
        """Called before an update after the optimizer got new parameters."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps; the groups of the optimizer are kept with it."""
        return {"values": list(self.values), "used": self.used_state(), "own": self.own_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint whose optimizer was restored before."""
        self.load_values(state["values"])
        self.load_used_state(state.get("used", []))
        self.load_own_state(state["own"])

    def used_state(self) -> list[Any]:
        """What ``get_used`` needs after a resume."""
        return [list(self.rates.used_at)]

    def load_used_state(self, state: Sequence[Any]) -> None:
        """Restore what ``used_state`` returned."""
        for step, values in state:
            if len(values) == len(self.values):
                self.rates.used_at = step, list(values)

    def load_values(self, values: Sequence[float]) -> None:
        """Set the rates of a checkpoint."""
        self.rates.load(values)

    @abstractmethod
    def own_state(self) -> dict[str, Any]:
        """Its state without the rates."""

    @abstractmethod
    def load_own_state(self, state: dict[str, Any]) -> None:
        """Restore what ``own_state`` returned."""
