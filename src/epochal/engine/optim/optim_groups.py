"""Reads the parameter groups that ``optim_groups`` of a task or model returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, final

from torch import nn

from epochal.engine.interfaces.binding import bind_by_name
from epochal.engine.optim.param_groups import GroupRule
from epochal.engine.optim.select_parameters import ParameterSelector
from epochal.errors import TaskError, suggest

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Task

_KEYS = ("params", "name", "freeze", "lr_mult")


def task_parameters(task: object) -> dict[str, nn.Parameter]:
    """The parameters of modules that a task holds, by their names in checkpoints."""
    return {
        f"task.{attribute}.{name}": parameter
        for attribute, part in getattr(task, "__dict__", {}).items()
        if isinstance(part, nn.Module)
        for name, parameter in part.named_parameters()
    }


def collect_group_rules(
    model: nn.Module,
    task: Task | None,
    options: Mapping[str, Any],
    known: Collection[str] | None,
) -> tuple[list[GroupRule], dict[str, nn.Parameter]]:
    """The groups of ``task.optim_groups(model, optim)`` or ``model.optim_groups(optim)`` as rules.

    Also returns the parameters of the task in them; nothing if neither has such a method. The
    optimizer takes the options ``known``, or any if that is None.
    """
    for owner in (task, model):
        method: Any = getattr(owner, "optim_groups", None)
        if callable(method):
            name = f"{type(owner).__name__}.optim_groups"
            call = bind_by_name(method, ("model", "optim"), owner=name)
            reader = _GroupReader(name, ParameterSelector(model, more=task_parameters(task)), known)
            return reader.read(call(model, dict(options)), model)
    return [], {}


@final
class _GroupReader:
    def __init__(
        self, owner: str, selector: ParameterSelector, known: Collection[str] | None
    ) -> None:
        self._owner = owner
        self._selector = selector
        self._names = {id(one): name for name, one in selector.parameters.items()}
        self._known = known

    def read(
        self, groups: object, model: nn.Module
    ) -> tuple[list[GroupRule], dict[str, nn.Parameter]]:
        if not isinstance(groups, Iterable) or isinstance(groups, str | Mapping):
            self._fail(f"returned {groups!r}", 'return a list of {"params": [...], "lr": ...}')
        rules: list[GroupRule] = []
        for index, group in enumerate(groups):
            rules.append(self._rule(index, group))
            seen = frozenset[str]().union(*(one.members or () for one in rules[:-1]))
            for name in sorted(seen & (rules[-1].members or frozenset())):
                self._fail(f"gives {name!r} twice", "give each parameter to one group")
        taken = frozenset[str]().union(*(rule.members or () for rule in rules))
        own = dict(model.named_parameters())
        left = [name for name, one in own.items() if one.requires_grad and name not in taken]
        if left:
            what = f"leaves out {len(left)} trainable parameters, such as {left[0]!r}"
            self._fail(what, 'add them to a group; use "freeze": True if they are not trained')
        more = {name: self._selector.parameters[name] for name in taken if name not in own}
        return rules, more

    def _rule(self, index: int, group: object) -> GroupRule:
        if not isinstance(group, Mapping) or "params" not in group:
            self._fail(f"group {index} is {group!r}", 'write {"params": [...], "lr": ...}')
        options = {name: value for name, value in group.items() if name not in _KEYS[:3]}
        for name in options:
            if self._known is not None and name not in {*self._known, *_KEYS}:
                self._fail(
                    f"group {index} has an unknown option {name!r}",
                    suggest(name, {*self._known, *_KEYS}),
                )
        return GroupRule(
            key=f"{self._owner} {index}",
            members=frozenset(self._members(index, group["params"])),
            options=options,
            freeze=group.get("freeze"),
            name=str(group.get("name", f"group{index}")),
        )

    def _members(self, index: int, params: object) -> Iterable[str]:
        """The names of parameters, given as parameters, as pairs with names, or as patterns."""
        if isinstance(params, nn.Parameter | str) or not isinstance(params, Iterable):
            params = [params]
        for one in params:
            entry = one[1] if isinstance(one, tuple) and len(one) == 2 else one
            if isinstance(entry, str):
                found = self._selector.by_name(entry)
                if not found:
                    what = f"group {index}: {entry!r} matches no parameter"
                    self._fail(what, self._selector.suggest_names(entry))
                yield from found
            elif id(entry) in self._names:
                yield self._names[id(entry)]
            else:
                what = f"group {index} has an entry that is not a parameter of model or task"
                self._fail(f"{what}: {type(entry).__name__}", "use model.named_parameters()")

    def _fail(self, what: str, hint: str) -> NoReturn:
        raise TaskError(f"{self._owner}: {what}" + (f"\n  {hint}" if hint else ""))
