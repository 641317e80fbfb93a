"""Optimizers and schedules of a run, as their sections describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.check import convert
from epochal.engine.groups import REST, Rule, group_parameters
from epochal.engine.own_groups import ask_for_groups
from epochal.errors import ConfigError, Problem
from epochal.experiment.fastest import in_fastest_form, use_rate_tensors
from epochal.experiment.scheduling import build_schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from epochal.check import Spec
    from epochal.config import Node
    from epochal.engine import Task
    from epochal.engine.schedule import AnySchedule
    from epochal.experiment.assembly import Assembly

OPTIMIZER_HINT = "add optim: {type: AdamW, lr: 1e-3}"


def build_optimizer(assembly: Assembly, model: nn.Module) -> tuple[Optimizer, AnySchedule | None]:
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
    factory = assembly.builder.registry.load(spec.factory)
    params = trained_parameters(assembly, spec, model, task)
    parameters = [one for entry in params for one in _members(entry)]
    spec = in_fastest_form(spec, factory, parameters, model)
    optimizer: Optimizer = assembly.builder.build(spec, params=params)
    use_rate_tensors(optimizer)
    return optimizer


def trained_parameters(
    assembly: Assembly,
    spec: Spec,
    model: nn.Module,
    task: Task | None,
    *,
    only: Collection[str] | None = None,
) -> list[Any]:
    """What an optimizer is made for: parameters, or groups of them where rules ask for groups.

    Parameters that rules freeze need no gradient from then on.
    """
    wishes = assembly.builder.options(spec)
    options = {
        **{one.name: one.default for one in spec.signature.parameters if not one.is_required},
        **{key: child.to_plain() for key, child in spec.arguments.items()},
    }
    known = None if spec.signature.open else [one.name for one in spec.signature.parameters]
    own, more = ask_for_groups(model, task, options, known) if only is None else ([], {})
    grouping = group_parameters(
        model,
        [*own, *read_rules(spec)],
        options=options,
        no_decay=wishes["no_decay"],
        layer_decay=wishes["layer_decay"],
        only=only,
        more=more,
    )
    parameters = dict(model.named_parameters()) | more
    for name in grouping.frozen:
        parameters[name].requires_grad = False
    if grouping.frozen and not grouping.groups:
        what = "every parameter is frozen, so that there is nothing to train"
        raise ConfigError(Problem(spec.path, what, hint="freeze fewer of them"))
    if [group["name"] for group in grouping.groups] == [REST]:
        return list(grouping.groups[0]["params"])
    return grouping.groups


def _members(entry: Any) -> list[nn.Parameter]:  # noqa: ANN401 - a parameter, or torch's group
    return entry["params"] if isinstance(entry, dict) else [entry]


def read_rules(spec: Spec) -> list[Rule]:
    """The rules of ``freeze`` and ``groups``, in this order, each with its place."""
    rules = [
        Rule(key=f"{spec.path}.freeze", place=node.place, match=(str(node.value),), freeze=True)
        for node in _elements(spec, "freeze")
    ]
    for index, node in enumerate(_elements(spec, "groups")):
        annotations = {one.name: one.annotation for one in spec.signature.parameters}
        values = {k: convert(one, annotations.get(k, "")) for k, one in node.mapping.items()}
        rules.append(
            Rule(
                key=f"{spec.path}.groups.{index}",
                place=node.place,
                match=_texts(values.pop("match", ())),
                module=_texts(values.pop("module", ())),
                freeze=values.pop("freeze", None),
                name=values.pop("name", ""),
                options=values,
            )
        )
    return rules


def _elements(spec: Spec, key: str) -> tuple[Node, ...]:
    node = spec.options.get(key)
    return () if node is None else tuple(node.elements)


def _texts(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
