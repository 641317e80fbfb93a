"""Several optimizers of one model as one, each with its own parameters and loss."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import torch
from torch import nn
from torch.optim import Optimizer
from typing_extensions import override

from epochal.config.bounds import Above, AtLeast, AtMost, guard
from epochal.engine.interfaces.options import OptimOptions
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from epochal.errors import Place

_MASKS = ("found_inf", "grad_scale")


@final
@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """Extra keys of each of several optimizers: ``optim: {generator: {...}, critic: {...}}``."""

    match: str | list[str] = field(default_factory=list)
    """Patterns of its parameters; one of the optimizers may leave it out and gets the rest."""

    loss: str = "loss"
    """The loss of the task that it minimises."""

    every: Annotated[int, AtLeast(1)] = 1
    """It steps in every n-th step of the run: with 5, in the 5th, the 10th and so on."""

    clip: Annotated[float, Above(0)] | dict[str, float] | None = None
    """Largest norm of the gradient of its parameters, or ``{value: 0.5}``; null does not clip."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    """Rules for some of its parameters."""

    no_decay: Literal["auto"] | None = None
    """``auto``: no weight decay for biases, vectors, norms and what modules declare."""

    layer_decay: Annotated[float, Above(0), AtMost(1)] | None = None
    """Factor of the learning rate from each layer to the one below it."""

    freeze: list[str] = field(default_factory=list)
    """Patterns of parameters that are not trained."""

    schedule: dict[str, Any] | None = None
    """Its own schedule; without one, it uses the section ``schedule``."""

    def __post_init__(self) -> None:
        guard(self, "optim")

    def clip_limit(self, kind: Literal["norm", "value"]) -> float | None:
        """The limit of gradients by norm or value; None if there is none."""
        return OptimOptions(clip=self.clip).clip_limit(kind)


@final
@dataclass(frozen=True)
class Member:
    """One of several optimizers."""

    name: str
    optimizer: Optimizer
    options: MemberOptions = field(default_factory=MemberOptions)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters it trains."""
        return [one for group in self.optimizer.param_groups for one in group["params"]]


@final
class Optimizers(Optimizer):
    """Several optimizers as one, with the groups and the state of all.

    ``optimizers["generator"]`` is one of them.

    Args:
        members: With different names and parameters; their groups are named after them.

    Raises:
        ConfigError: Two have a parameter in common, or one cannot be one of several.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self.due = self.members
        """The optimizers that step at the next ``step``."""

        for member in members:
            _require_plain(member)
            _name_groups(member)
        _require_disjoint(members)
        super().__init__([group for one in members for group in one.optimizer.param_groups], {})
        # One state for all, so that code that saves or moves state needs to know only this one.
        self.state = defaultdict(dict)
        for member in members:
            self.state.update(member.optimizer.state)
            member.optimizer.state = self.state
            # Gradients are computed only for the parameters that this optimizer knows.
            vars(member.optimizer)["add_param_group"] = self.add_param_group

    def __getitem__(self, name: str) -> Optimizer:
        found = {member.name: member.optimizer for member in self.members}
        return found[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    @property
    def losses(self) -> tuple[str, ...]:
        """Names of the losses that they minimise."""
        return tuple(dict.fromkeys(member.options.loss for member in self.members))

    @property
    def steps_together(self) -> bool:
        """Whether all of them step in each step."""
        return all(member.options.every == 1 for member in self.members)

    def copy_options_from(self, others: Optimizers) -> None:
        """Use the losses, periods and limits of other optimizers with the same names."""
        options = {member.name: member.options for member in others}
        self.members = tuple(replace(one, options=options[one.name]) for one in self.members)
        self.due = self.members

    def choose_due(self, step: int) -> None:
        """Choose the optimizers that step after ``step`` finished steps."""
        self.due = tuple([one for one in self.members if (step + 1) % one.options.every == 0])

    @override
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no loss is computed
        """Step those that are due."""
        masks = {name: getattr(self, name) for name in _MASKS if hasattr(self, name)}
        for member in self.members:
            optimizer: Any = member.optimizer  # torch reads these, but does not declare them
            # Else a scheduler of torch would warn about a missing first step.
            optimizer._opt_called = True
            if member not in self.due:
                continue
            vars(optimizer).update(masks)
            try:
                optimizer.step()
            finally:
                for name in masks:
                    delattr(optimizer, name)

    @override
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group that a member had from the start; refuse others."""
        if not any(param_group is g for one in self.members for g in one.optimizer.param_groups):
            what = "several optimizers cannot get further parameters during a run"
            hint = (
                "give them to one of the optimizers from the start, frozen until they are trained"
            )
            raise ConfigError(Problem("optim", what, hint=hint))
        super().add_param_group(param_group)


def list_optimizers(optimizer: Optimizer) -> tuple[Optimizer, ...]:
    """The optimizers in one: its members, or itself."""
    if isinstance(optimizer, Optimizers):
        return tuple(member.optimizer for member in optimizer.members)
    return (optimizer,)


def assign_parameters(
    parameters: Mapping[str, nn.Parameter],
    chosen: Mapping[str, Collection[str] | None],
    places: Mapping[str, Place] | None = None,
) -> dict[str, set[str]]:
    """The names of the parameters that each of several optimizers trains.

    One of them may have chosen None, which is the rest. It is an error if two choose the same
    parameter, or if none has one that needs a gradient.
    """
    owners: dict[str, str] = {}
    for name, members in chosen.items():
        for parameter in members or ():
            if parameter in owners:
                what = f"{parameter!r} is trained by {owners[parameter]!r} already"
                hint = "narrow the patterns of one of them"
                place = (places or {}).get(name)
                raise ConfigError(Problem(f"optim.{name}.match", what, place, hint))
            owners[parameter] = name
    rest = next((name for name, members in chosen.items() if members is None), None)
    left = [name for name in parameters if name not in owners]
    trained = [name for name in left if parameters[name].requires_grad]
    if rest is None and trained:
        what = f"none of the optimizers trains {len(trained)} parameters, such as {trained[0]!r}"
        hint = "leave out match in one of them, which then gets the rest, or freeze them"
        raise ConfigError(Problem("optim", what, hint=hint))
    shares = {name: {one for one, owner in owners.items() if owner == name} for name in chosen}
    if rest is not None:
        shares[rest] = set(left)
    return shares


def add_total_loss(losses_of: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The losses of a task, and as ``loss`` the sum of those that optimizers minimise.

    A ``loss`` that the task returns stays.
    """

    def compute(out: object, batch: object) -> object:
        losses = losses_of(out, batch)
        if not isinstance(losses, dict) or "loss" in losses:
            return losses
        entries = [losses[name] for name in names if name in losses]
        if len(entries) < len(names):
            return losses
        pairs = [one if isinstance(one, tuple | list) else (one, None) for one in entries]
        total, count = sum(value for value, _ in pairs), pairs[0][1]
        return {"loss": total if count is None else (total, count), **losses}

    return compute


def _name_groups(member: Member) -> None:
    groups = member.optimizer.param_groups
    for index, group in enumerate(groups):
        own = group.get("name", index)
        group["name"] = member.name if len(groups) == 1 else f"{member.name}/{own}"
        every = member.options.every
        turn = f"descends {member.options.loss}" + (f" every {every} steps" if every > 1 else "")
        group["rule"] = ", ".join(filter(None, [group.get("rule"), turn]))


def _require_plain(member: Member) -> None:
    kind = type(member.optimizer)
    what = ""
    if isinstance(member.optimizer, torch.optim.LBFGS):
        what = "evaluates the loss itself"
    elif kind.state_dict is not Optimizer.state_dict:
        what = "has its own state_dict"
    if what:
        text = f"{kind.__name__} {what}, and cannot be one of several optimizers"
        raise ConfigError(Problem(f"optim.{member.name}.type", text, hint="choose another one"))


def _require_disjoint(members: Sequence[Member]) -> None:
    owners: dict[int, str] = {}
    for member in members:
        for parameter in member.parameters:
            if id(parameter) in owners:
                shape = tuple(parameter.shape)
                what = f"has a parameter of shape {shape} that {owners[id(parameter)]!r} has too"
                raise ConfigError(Problem(f"optim.{member.name}", what))
            owners[id(parameter)] = member.name
