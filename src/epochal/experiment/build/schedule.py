"""The schedule of a run's learning rate, as its section describes it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from epochal.config import from_plain
from epochal.engine import Schedule, TorchSchedule, Warmup
from epochal.engine.interfaces.schedule import check_unit
from epochal.engine.optim.group_rates import read_rate
from epochal.errors import Place

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from epochal.check import Spec
    from epochal.config import Node
    from epochal.engine.interfaces.schedule import OneSchedule
    from epochal.experiment.build.assembly import Assembly

_RATES = ("max_lr", "base_lr")
"""Arguments of schedulers of torch that are rates, and not factors of rates."""


def build_schedule(assembly: Assembly, optimizer: Optimizer) -> OneSchedule | None:
    """The schedule of ``schedule`` for an optimizer, or the one that was given."""
    given = assembly.given.parts.get("schedule")
    if given is not None:
        is_ready = isinstance(given, Schedule | TorchSchedule | Warmup)
        schedule: OneSchedule = given if is_ready else TorchSchedule(given)
        return schedule
    node = assembly.config.mapping.get("schedule")
    return None if node is None else build_schedule_from(assembly, node, optimizer)


def build_schedule_from(
    assembly: Assembly, node: Node, optimizer: Optimizer, *, path: str = "schedule"
) -> OneSchedule:
    """The schedule that an expanded section ``schedule`` describes, for an optimizer.

    Args:
        assembly: Has the builder.
        node: The section, with its defaults; that of a stage too.
        optimizer: What schedulers of torch are built around.
        path: Where the section stands in the config.
    """
    spec = assembly.builder.read(node, "schedule", path)
    factory = assembly.builder.registry.load(spec.factory)
    is_ours = isinstance(factory, type) and issubclass(factory, Schedule)
    if not is_ours:
        spec = _in_ratio(spec, optimizer)
    made = assembly.builder.build(spec, **({} if is_ours else {"optimizer": optimizer}))
    options = assembly.builder.options(spec)
    schedule: Schedule | TorchSchedule = made
    if isinstance(made, Schedule):
        check_unit(options["unit"], ("step", "epoch"))
        made.unit = options["unit"]
    elif not isinstance(made, TorchSchedule):
        schedule = TorchSchedule(made, unit=options["unit"])
    if not options["warmup"]:
        return schedule
    return Warmup(schedule, options["warmup"], start=options["warmup_start"])


def _in_ratio(spec: Spec, optimizer: Optimizer) -> Spec:
    """The spec of a scheduler that is told rates: for each group in its ratio to the usual one.

    Torch would give one and the same rate to all groups.
    """
    usual = optimizer.defaults.get("lr")
    rates = [read_rate(group["lr"]) for group in optimizer.param_groups]
    if usual is None or read_rate(usual) == 0 or len(set(rates)) < 2:
        return spec
    told = {
        name: [rate / read_rate(usual) * node.value for rate in rates]
        for name, node in spec.arguments.items()
        if name in _RATES and isinstance(node.value, int | float)
    }
    nodes = {name: from_plain(values, place=Place("default")) for name, values in told.items()}
    return replace(spec, arguments=MappingProxyType({**spec.arguments, **nodes}))
