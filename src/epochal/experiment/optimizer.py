"""Optimizers and schedules of a run, as their sections describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.engine import Schedule, TorchSchedule
from epochal.errors import ConfigError, Problem
from epochal.experiment.fastest import in_fastest_form, use_rate_tensors

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from epochal.config import Node
    from epochal.engine import Task
    from epochal.experiment.assembly import Assembly

OPTIMIZER_HINT = "add optim: {type: AdamW, lr: 1e-3}"


def build_optimizer(
    assembly: Assembly, model: nn.Module
) -> tuple[Optimizer, Schedule | TorchSchedule | None]:
    """The optimizer of ``optim`` and the schedule of ``schedule``, or those that were given."""
    optimizer = assembly.given.parts.get("optim")
    if optimizer is None:
        node = assembly.config.find("optim")
        if node is None:
            what = "training needs an optimizer"
            raise ConfigError(Problem("optim", what, hint=OPTIMIZER_HINT))
        optimizer = build_optimizer_from(assembly, node, model, assembly.task)
    return optimizer, build_schedule(assembly, optimizer)


def build_optimizer_from(
    assembly: Assembly, node: Node, model: nn.Module, task: Task | None, *, path: str = "optim"
) -> Optimizer:
    """The optimizer that an expanded section ``optim`` describes, for the parameters of a model.

    Args:
        assembly: Has the builder.
        node: The section, with its defaults; that of a stage too.
        model: On its device already.
        task: May have a say in the groups of parameters.
        path: Where the section stands in the config.
    """
    spec = assembly.builder.read(node, "optim", path)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    factory = assembly.builder.registry.load(spec.factory)
    spec = in_fastest_form(spec, factory, trained, model)
    optimizer: Optimizer = assembly.builder.build(spec, params=trained)
    use_rate_tensors(optimizer)
    return optimizer


def build_schedule(assembly: Assembly, optimizer: Optimizer) -> Schedule | TorchSchedule | None:
    """The schedule of ``schedule`` for an optimizer, or the one that was given."""
    given = assembly.given.parts.get("schedule")
    spec = assembly.spec("schedule")
    if given is None and spec is None:
        return None
    unit = "step"
    if given is None:
        assert spec is not None
        factory = assembly.builder.registry.load(spec.factory)
        is_ours = isinstance(factory, type) and issubclass(factory, Schedule)
        supplied = {} if is_ours else {"optimizer": optimizer}
        given = assembly.builder.build(spec, **supplied)
        unit = assembly.builder.options(spec)["unit"]
    if isinstance(given, Schedule | TorchSchedule):
        return given
    return TorchSchedule(given, unit=unit)
