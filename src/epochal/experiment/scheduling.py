"""The schedule of a run's learning rate, as its section describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.engine import Schedule, TorchSchedule, Warmup
from epochal.engine.schedule import check_unit

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from epochal.config import Node
    from epochal.engine.schedule import AnySchedule
    from epochal.experiment.assembly import Assembly


def build_schedule(assembly: Assembly, optimizer: Optimizer) -> AnySchedule | None:
    """The schedule of ``schedule`` for an optimizer, or the one that was given."""
    given = assembly.given.parts.get("schedule")
    if given is not None:
        is_ready = isinstance(given, Schedule | TorchSchedule | Warmup)
        schedule: AnySchedule = given if is_ready else TorchSchedule(given)
        return schedule
    node = assembly.config.mapping.get("schedule")
    return None if node is None else build_schedule_from(assembly, node, optimizer)


def build_schedule_from(
    assembly: Assembly, node: Node, optimizer: Optimizer, *, path: str = "schedule"
) -> AnySchedule:
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
