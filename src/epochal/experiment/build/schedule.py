"""Builds the learning rate schedule of a run from its section."""

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
"""Arguments of torch's schedulers that are learning rates, not factors."""


def build_schedule(assembly: Assembly, optimizer: Optimizer) -> OneSchedule | None:
    """The schedule of ``schedule`` for an optimizer, or the given one."""
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
    """The schedule of an expanded section ``schedule``, for an optimizer.

    Args:
        assembly: Has the builder.
        node: The section with its defaults, also that of a stage.
        optimizer: Needed by torch's schedulers.
        path: The config key of the section.
    """
    spec = assembly.builder.read(node, "schedule", path)
    factory = assembly.builder.registry.load(spec.factory)
    is_ours = isinstance(factory, type) and issubclass(factory, Schedule)
    if not is_ours:
        spec = _scale_rates(spec, optimizer)
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


def _scale_rates(spec: Spec, optimizer: Optimizer) -> Spec:
    """The spec with one rate per group, in the ratio of the group's rate to the default.

    Otherwise torch gives the same rate to all groups.
    """
    default = optimizer.defaults.get("lr")
    rates = [read_rate(group["lr"]) for group in optimizer.param_groups]
    if default is None or read_rate(default) == 0 or len(set(rates)) < 2:
        return spec
    scaled = {
        name: [rate / read_rate(default) * node.value for rate in rates]
        for name, node in spec.arguments.items()
        if name in _RATES and isinstance(node.value, int | float)
    }
    nodes = {name: from_plain(values, place=Place("default")) for name, values in scaled.items()}
    return replace(spec, arguments=MappingProxyType({**spec.arguments, **nodes}))
