"""The loss of a run, as its section describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.check.losses import iter_terms
from epochal.engine.loss import Loss, Term
from epochal.engine.move import parse_dtype, place
from epochal.errors import ConfigError, Problem
from epochal.experiment.steps import model_dtype

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from epochal.config import Node
    from epochal.experiment.assembly import Assembly


def build_loss(assembly: Assembly) -> Loss | None:
    """The loss of the section ``loss``, or the one that was given, on the run's device."""
    given = assembly.given.parts.get("loss")
    if given is not None:
        loss = given if isinstance(given, Loss) else Loss([Term(given)])
    else:
        terms = [_build_term(assembly, *entry) for entry in iter_terms(assembly.config)]
        if not terms:
            return None
        loss = Loss(terms)
    place(loss, assembly.device, parse_dtype(model_dtype(assembly)), channels_last=False)
    return loss


def require_trained(loss: Loss | None, optimizer: Optimizer) -> None:
    """Refuse a loss whose parameters the optimizer does not have.

    Raises:
        ConfigError: With the name of one.
    """
    groups = optimizer.param_groups
    known = {id(parameter) for group in groups for parameter in group["params"]}
    for name, parameter in loss.trained_parameters().items() if loss is not None else ():
        if id(parameter) not in known:
            what = "is a parameter that no optimizer trains"
            hint = "give it to the optimizer too, or say requires_grad_(False)"
            raise ConfigError(Problem(name, what, hint=hint))


def _build_term(assembly: Assembly, path: str, name: str, node: Node) -> Term:
    builder = assembly.builder
    spec = builder.read(node, "loss", path)
    options = builder.options(spec)
    return Term(
        builder.bind(spec),
        name=name,
        weight=options["weight"],
        inputs=options["inputs"],
        key=path,
        place=node.place,
    )
