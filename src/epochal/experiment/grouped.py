"""The groups of parameters that a run trains, as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from torch import Tensor

from epochal.engine.parameters import is_open
from epochal.engine.rates import read_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from epochal.engine.run import Run

    Group = dict[str, Any]  # torch's own: options by name

_SHOWN = frozenset({"params", "name", "rule", "lr", "initial_lr", "weight_decay"})


@final
@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """One group of parameters, or all those that are frozen."""

    name: str
    rule: str
    """What put parameters into it; empty for those that no rule is about. Of frozen ones, names."""

    tensors: int
    parameters: int
    lr: float | None = None
    weight_decay: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Other options, as far as groups differ in them."""


def list_groups(run: Run) -> list[GroupRow]:
    """The groups of the run's optimizer in their order, and what is frozen at the end.

    Empty when all parameters are trained alike.
    """
    groups = [] if run.optimizer is None else run.optimizer.param_groups
    rows = [_row(group, groups, index) for index, group in enumerate(groups)]
    held = {id(one) for group in groups for one in group["params"]}
    frozen = {name: one for name, one in run.model.named_parameters() if id(one) not in held}
    if groups and frozen:
        tensors, parameters = _sizes(frozen.values())
        names = ", ".join([*frozen][:3]) + (", ..." if len(frozen) > 3 else "")
        rows.append(GroupRow(name="frozen", rule=names, tensors=tensors, parameters=parameters))
    return rows if len(rows) > 1 else []


def _row(group: Group, groups: Sequence[Group], index: int) -> GroupRow:
    tensors, parameters = _sizes(group["params"])
    rate: float | Tensor = group["initial_lr"] if "initial_lr" in group else group["lr"]
    others = {name: value for name, value in group.items() if name not in _SHOWN}
    return GroupRow(
        name=str(group.get("name", index)),
        rule=str(group.get("rule", "")),
        tensors=tensors,
        parameters=parameters,
        lr=read_rate(rate),
        weight_decay=group.get("weight_decay"),
        options={
            name: _plain(value)
            for name, value in others.items()
            if any(_plain(other.get(name)) != _plain(value) for other in groups)
        },
    )


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, Tensor) else value


def _sizes(parameters: Iterable[Tensor]) -> tuple[int, int]:
    sizes = [0 if is_open(one) else one.numel() for one in parameters]
    return len(sizes), sum(sizes)
