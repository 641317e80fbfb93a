"""Builds the optimizers, with torch's fastest kernels, and the schedules of a run."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from epochal.check import SECTIONS, convert_value, has_members, member_signature, read_spec
from epochal.check.sections.optim import KERNEL_OPTIONS
from epochal.config import from_plain
from epochal.distributed.sharded_tensor import is_sharded
from epochal.engine import Schedule, TorchSchedule, Warmup
from epochal.engine.interfaces.options import OptimOptions
from epochal.engine.interfaces.schedule import OptimizerSchedules, check_unit
from epochal.engine.optim.multi_optimizer import (
    Member,
    MemberOptions,
    Optimizers,
    assign_parameters,
)
from epochal.engine.optim.optim_groups import collect_group_rules
from epochal.engine.optim.param_groups import (
    REST_GROUP,
    GroupRule,
    find_rule_parameters,
    find_rule_problems,
    group_parameters,
)
from epochal.engine.optim.rate import read_rate
from epochal.engine.optim.select_parameters import ParameterSelector
from epochal.errors import ConfigError, Place, Problem
from epochal.experiment.config.inputs import OPTIMIZER_HINT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from epochal.check import Spec
    from epochal.config import Node
    from epochal.engine import Task
    from epochal.engine.interfaces.schedule import AnySchedule, OneSchedule
    from epochal.experiment.build.builder import Assembly

logger = logging.getLogger(__name__)

_RATES = ("max_lr", "base_lr")
"""Arguments of torch's schedulers that are learning rates, not factors."""

# Fused kernels may not support subclasses of Parameter.
_PLAIN = (Tensor, nn.Parameter, nn.UninitializedParameter)


def build_optimizer(assembly: Assembly, model: nn.Module) -> tuple[Optimizer, AnySchedule | None]:
    """The optimizer of ``optim`` and the schedule of ``schedule``, or those that were given."""
    optimizer = assembly.given.parts.get("optim")
    if optimizer is None:
        node = assembly.config.find("optim")
        if node is None:
            what = "training needs an optimizer"
            raise ConfigError(Problem("optim", what, hint=OPTIMIZER_HINT))
        optimizer = build_optimizer_from(assembly, node, model, assembly.task)
    if isinstance(optimizer, Optimizers) and (schedules := build_schedules(assembly, optimizer)):
        return optimizer, schedules
    return optimizer, build_schedule(assembly, optimizer)


def build_optimizer_from(
    assembly: Assembly, node: Node, model: nn.Module, task: Task | None, *, path: str = "optim"
) -> Optimizer:
    """The optimizer of an expanded section ``optim``, also that of a stage, for a placed model."""
    if has_members(SECTIONS["optim"], node):
        return build_optimizers(assembly, node, model, path=path)
    spec = assembly.builder.read(node, "optim", path)
    return _build_one(assembly, spec, trained_parameters(assembly, spec, model, task), model)


def build_optimizers(
    assembly: Assembly, node: Node, model: nn.Module, *, path: str = "optim"
) -> Optimizers:
    """The several optimizers of a section, each for the parameters that it asks for.

    Raises:
        ConfigError: A pattern matches nothing, two optimizers match the same parameters, or
            some parameters match none.
    """
    registry = assembly.builder.registry
    own = member_signature(SECTIONS["optim"], registry.finder)
    specs = {
        name: read_spec(child, registry, section="optim", path=f"{path}.{name}", own=own)
        for name, child in node.mapping.items()
        if child.is_mapping
    }
    _warn_of_own_groups(model, assembly.task)
    selector = ParameterSelector(model, more=_loss_parameters(assembly))
    rules = _matches(specs)
    problems = [
        problem for rule in rules.values() for problem in find_rule_problems(rule, selector)
    ]
    if problems:
        raise ConfigError(*problems)
    asked = {name: find_rule_parameters(rule, selector) for name, rule in rules.items()}
    shares = assign_parameters(
        selector.parameters,
        {name: asked.get(name) for name in specs},
        {name: rule.place for name, rule in rules.items() if rule.place is not None},
    )
    members = []
    for name, spec in specs.items():
        params = trained_parameters(assembly, spec, model, None, only=shares[name])
        if not params:
            what = "trains nothing, since no parameter is left for it"
            raise ConfigError(Problem(spec.path, what, node.mapping[name].key_place))
        optimizer = _build_one(assembly, spec, params, model)
        options = assembly.builder.options(_without(spec, "schedule"))
        members.append(Member(name, optimizer, MemberOptions(**options)))
    return Optimizers(members)


def _loss_parameters(assembly: Assembly) -> dict[str, nn.Parameter]:
    """The trained parameters of the loss, by name."""
    return {} if assembly.loss is None else assembly.loss.trained_parameters()


def _warn_of_own_groups(*owners: object) -> None:
    for owner in owners:
        if callable(getattr(owner, "optim_groups", None)):
            text = "%s.optim_groups is not called, since optim names several optimizers"
            logger.warning(text, type(owner).__name__)


def _matches(specs: Mapping[str, Spec]) -> dict[str, GroupRule]:
    """The rule of each optimizer, without the one that has the rest."""
    nodes = {name: spec.options["match"] for name, spec in specs.items()}
    return {
        name: GroupRule(
            key=f"{specs[name].path}.match", place=one.place, match=_texts(one.to_plain())
        )
        for name, one in nodes.items()
        if one.to_plain()
    }


def build_schedules(assembly: Assembly, optimizers: Optimizers) -> OptimizerSchedules | None:
    """The schedules of several optimizers, if one of them has its own."""
    found: dict[str, tuple[Optimizer, OneSchedule | None]] = {}
    has_own = False
    for member in optimizers:
        path = f"optim.{member.name}.schedule"
        node = assembly.config.find(path)
        if node is not None and node.value is not None:
            has_own = True
            schedule: OneSchedule | None = build_schedule_from(
                assembly, node, member.optimizer, path=path
            )
        else:
            schedule = build_schedule(assembly, member.optimizer)
        found[member.name] = (member.optimizer, schedule)
    return OptimizerSchedules(found) if has_own else None


def read_optim_options(assembly: Assembly, node: Node | None) -> OptimOptions:
    """The options of a section ``optim`` that concern the update."""
    if node is None:
        return OptimOptions()
    if has_members(SECTIONS["optim"], node):
        own = {name: child for name, child in node.mapping.items() if not child.is_mapping}
        return OptimOptions(**{name: child.to_plain() for name, child in own.items()})
    return OptimOptions(**assembly.builder.options(assembly.builder.read(node, "optim")))


def _without(spec: Spec, key: str) -> Spec:
    kept = {name: child for name, child in spec.options.items() if name != key}
    return replace(spec, options=MappingProxyType(kept))


def _build_one(
    assembly: Assembly, spec: Spec, params: Sequence[Any], model: nn.Module
) -> Optimizer:
    factory = assembly.builder.registry.load(spec.factory)
    parameters = [one for entry in params for one in _members(entry)]
    spec = with_fused_options(spec, factory, parameters, model)
    optimizer: Optimizer = assembly.builder.build(spec, params=params)
    use_lr_tensors(optimizer)
    return optimizer


def trained_parameters(
    assembly: Assembly,
    spec: Spec,
    model: nn.Module,
    task: Task | None,
    *,
    only: Collection[str] | None = None,
) -> list[Any]:
    """The parameters of an optimizer, or groups of them if rules define groups.

    Turns off the gradients of parameters that rules freeze.
    """
    section = assembly.builder.options(_without(spec, "schedule"))
    options = {
        **{one.name: one.default for one in spec.signature.parameters if not one.is_required},
        **{key: child.to_plain() for key, child in spec.arguments.items()},
    }
    known = None if spec.signature.open else [one.name for one in spec.signature.parameters]
    own, more = collect_group_rules(model, task, options, known) if only is None else ([], {})
    more = {**more, **_loss_parameters(assembly)}
    grouping = group_parameters(
        model,
        [*own, *read_rules(spec)],
        options=options,
        no_decay=section["no_decay"],
        layer_decay=section["layer_decay"],
        only=only,
        more=more,
    )
    parameters = dict(model.named_parameters()) | more
    for name in grouping.frozen:
        parameters[name].requires_grad = False
    if grouping.frozen and not grouping.groups:
        what = "every parameter is frozen, so there is nothing to train"
        raise ConfigError(Problem(spec.path, what, hint="freeze fewer of them"))
    if [group["name"] for group in grouping.groups] == [REST_GROUP]:
        return list(grouping.groups[0]["params"])
    return grouping.groups


def _members(entry: Any) -> list[nn.Parameter]:  # noqa: ANN401 - a parameter, or torch's group
    return entry["params"] if isinstance(entry, dict) else [entry]


def read_rules(spec: Spec) -> list[GroupRule]:
    """The rules of ``freeze`` and ``groups``, in this order, with their places."""
    rules = [
        GroupRule(
            key=f"{spec.path}.freeze", place=node.place, match=(str(node.value),), freeze=True
        )
        for node in _elements(spec, "freeze")
    ]
    for index, node in enumerate(_elements(spec, "groups")):
        annotations = {one.name: one.annotation for one in spec.signature.parameters}
        values = {k: convert_value(one, annotations.get(k, "")) for k, one in node.mapping.items()}
        patterns = [node.mapping[key] for key in ("match", "module") if key in node.mapping]
        rules.append(
            GroupRule(
                key=f"{spec.path}.groups.{index}",
                place=patterns[0].place if len(patterns) == 1 else node.place,
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


def build_schedule(assembly: Assembly, optimizer: Optimizer) -> OneSchedule | None:
    """The schedule of ``schedule`` for an optimizer, or the given one."""
    given = assembly.given.parts.get("schedule")
    if given is not None:
        is_ready = isinstance(given, Schedule | TorchSchedule | Warmup)
        schedule: OneSchedule = given if is_ready else TorchSchedule(given)
        _check_owner(schedule, optimizer)
        return schedule
    node = assembly.config.mapping.get("schedule")
    return None if node is None else build_schedule_from(assembly, node, optimizer)


def _check_owner(schedule: OneSchedule, optimizer: Optimizer) -> None:
    """Refuse a scheduler of torch that would change the rates of another optimizer."""
    inner = schedule.schedule if isinstance(schedule, Warmup) else schedule
    if not isinstance(inner, TorchSchedule):
        return
    # Wrappers of optimizers share the groups.
    groups = inner.scheduler.optimizer.param_groups
    if not any(one is group for one in groups for group in optimizer.param_groups):
        name = type(inner.scheduler).__name__
        what = f"{name} was built with another optimizer, so it would not change the learning rate"
        hint = f"{name}(optimizer, ...) with the object of optim=optimizer, or "
        raise ConfigError(
            Problem("schedule", what, hint=f"{hint}schedule={{'type': {name!r}, ...}}")
        )


def build_schedule_from(
    assembly: Assembly, node: Node, optimizer: Optimizer, *, path: str = "schedule"
) -> OneSchedule:
    """The schedule of an expanded section ``schedule``, also that of a stage."""
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


def with_fused_options(
    spec: Spec, factory: object, parameters: Sequence[Tensor], model: nn.Module
) -> Spec:
    """The spec of an optimizer with ``fused`` and ``capturable`` if torch supports them.

    A config that chooses a kernel stays unchanged.
    """
    if not isinstance(factory, type) or not issubclass(factory, Optimizer) or not parameters:
        return spec
    is_chosen = any(_is_chosen(spec, name) for name in KERNEL_OPTIONS)
    names = () if is_chosen else _choose_kernel_options(factory, parameters, model)
    place = Place("default")
    chosen = {name: from_plain(True, place=place, layer="default") for name in names}
    return replace(spec, arguments=MappingProxyType({**spec.arguments, **chosen}))


def use_lr_tensors(optimizer: Optimizer) -> None:
    """Turn the rates of ``capturable`` or ``fused`` groups on CUDA into tensors there."""
    for group in optimizer.param_groups:
        devices = {parameter.device for parameter in group["params"]}
        is_able = group.get("capturable") or group.get("fused")
        is_able = is_able and not any(map(is_sharded, group["params"]))
        if len(devices) == 1 and is_able and not isinstance(group["lr"], Tensor):
            (device,) = devices
            if device.type == "cuda":
                group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=device)
    # Otherwise torch warns about every step that is not captured, which is our choice.
    optimizer._warned_capturable_if_run_uncaptured = True


def _is_chosen(spec: Spec, name: str) -> bool:
    """Whether a config sets an option to another value than its default."""
    node, parameter = spec.arguments.get(name), spec.signature.get(name)
    return node is not None and (parameter is None or node.to_plain() != parameter.default)


def _choose_kernel_options(
    kind: type[Optimizer], parameters: Sequence[Tensor], model: nn.Module
) -> tuple[str, ...]:
    if any(map(is_sharded, parameters)):  # steps are not captured, and torch fuses only these
        return ("fused",) if kind in (Adam, AdamW) else ()
    known = inspect.signature(kind).parameters
    can_fuse = all(type(one) in _PLAIN and one.is_floating_point() for one in parameters)
    on_cuda = all(one.device.type == "cuda" for one in parameters)
    wanted = {
        "fused": can_fuse and not _has_sparse_gradients(model),
        "capturable": on_cuda,
    }
    names = tuple(name for name, is_wanted in wanted.items() if is_wanted and name in known)
    places = {(one.device, one.dtype) for one in parameters}
    return names if names and all(_has_kernel(kind, names, *place) for place in places) else ()


def _has_sparse_gradients(model: nn.Module) -> bool:
    """Whether a layer, such as an embedding, has sparse gradients, which fused kernels refuse."""
    return any(getattr(module, "sparse", False) is True for module in model.modules())


def _has_kernel(
    kind: type[Optimizer], names: Sequence[str], device: torch.device, dtype: torch.dtype
) -> bool:
    """Whether torch has such a kernel, found by a step with one number."""
    parameter = nn.Parameter(torch.zeros(1, device=device, dtype=dtype))
    parameter.grad = torch.zeros_like(parameter)
    make: Any = kind  # a subclass may have any signature
    try:
        optimizer = make([parameter], **dict.fromkeys(names, True))
        use_lr_tensors(optimizer)
        optimizer.step()
    except Exception:  # the default kernel works
        return False
    return True
