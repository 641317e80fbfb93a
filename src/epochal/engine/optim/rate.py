"""The interface of the one owner of the learning rate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochal.engine.optim.group_rates import GroupRates


class Rate(ABC):
    """What moves the learning rate on, at the moments at which it may move."""

    is_moved_by_steps: bool = False
    """Whether ``after_step`` does anything."""

    rates: GroupRates
    """The rates themselves, of which it is the one owner."""

    @property
    def values(self) -> list[float]:
        """The rate of each group, which costs no look at a device."""
        return self.rates.values

    def adopt(self) -> None:
        """Take over rates that somebody else gave to groups; called after code of users ran."""
        self.rates.adopt()

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
        """Called before an update when the optimizer got parameters it did not have before."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, beside what the groups of the optimizer hold."""
        return {"values": list(self.values), "own": self.own_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint whose optimizer was loaded before."""
        self.rates.load(state["values"])
        self.load_own_state(state["own"])

    @abstractmethod
    def own_state(self) -> dict[str, Any]:
        """What it knows beside the rates themselves."""

    @abstractmethod
    def load_own_state(self, state: dict[str, Any]) -> None:
        """Take back what ``own_state`` gave."""
