"""The learning rates of several optimizers, each with an owner of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.engine.rate import Rate
from epochal.engine.rates import JoinedRates

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
class JoinedRate(Rate):
    """Lets each of several owners move its rates.

    Args:
        members: By the name of the optimizer.
    """

    def __init__(self, members: Mapping[str, Rate]) -> None:
        self._members = members
        rates: Any = JoinedRates([member.rates for member in members.values()])
        self.rates = rates  # all that anybody asks of the rates of one optimizer
        self.is_moved_by_steps = any(member.is_moved_by_steps for member in members.values())

    @override
    def after_step(self, step: int) -> None:
        for member in self._members.values():
            if member.is_moved_by_steps:
                member.after_step(step)

    @override
    def after_epoch(self, step: int) -> None:
        for member in self._members.values():
            member.after_epoch(step)

    @override
    def after_eval(self, step: int) -> None:
        for member in self._members.values():
            member.after_eval(step)

    @override
    def after_value(self, value: float, step: int) -> None:
        for member in self._members.values():
            member.after_value(value, step)

    @override
    def admit(self) -> None:
        for member in self._members.values():
            member.admit()

    @override
    def own_state(self) -> dict[str, Any]:
        return {name: member.own_state() for name, member in self._members.items()}

    @override
    def load_own_state(self, state: dict[str, Any]) -> None:
        for name, member in self._members.items():
            if name in state:
                member.load_own_state(state[name])
