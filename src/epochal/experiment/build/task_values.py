"""Values of the task in other sections: ``${task:vocab_size}``, resolved when the task is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epochal.config import from_plain
from epochal.config.node import TASK_OPENING
from epochal.errors import ConfigError, Problem, nearest
from epochal.experiment.config.script_arguments import to_args

if TYPE_CHECKING:
    from epochal.config import Node
    from epochal.engine import Task
    from epochal.experiment.build.builder import Assembly

Value = Any  # a value of the user's task


def resolve_task_values(assembly: Assembly, task: Task) -> tuple[Assembly, dict[str, Value]]:
    """The assembly with the values that its config takes from the task, and these by key."""
    found: dict[str, Value] = {}

    def resolve(node: Node, path: str) -> Node:
        if not node.is_deferred:
            return node.map_children(lambda key, child: resolve(child, f"{path}.{key}"))
        value = found[path] = _read(task, str(node.value), path)
        made = from_plain(value, place=node.place, layer=node.layer)
        return replace(made, template=node.template, replaced=node.replaced)

    config = assembly.config.map_children(lambda key, child: resolve(child, key))
    if not found:
        return assembly, found
    for name in {key.partition(".")[0] for key in found}:
        plain = config.mapping[name].to_plain()
        is_mapping = isinstance(plain, Mapping)
        setattr(assembly.args, name, to_args(plain, f"args.{name}") if is_mapping else plain)
    return replace(assembly, config=config), found


def _read(task: Task, reference: str, key: str) -> Value:
    value: Value = task
    for name in reference.removeprefix(TASK_OPENING).rstrip("}").split("."):
        kind = type(value).__name__
        if not hasattr(value, name):
            close = nearest(name, [one for one in dir(value) if not one.startswith("_")])
            hint = f"did you mean {close!r}?" if close else ""
            if not hint and value is task:
                hint = f"set self.{name} in {kind}.__init__"
            raise ConfigError(Problem(key, f"{kind} has no attribute {name!r}", hint=hint))
        value = getattr(value, name)
    if getattr(value, "ndim", None) == 0:  # a single number of torch or numpy
        value = value.item()
    if not _is_plain(value):
        what = f"{reference} is of type {type(value).__name__!r}, which a config cannot hold"
        hint = "only numbers, texts, lists and mappings of them can be used"
        raise ConfigError(Problem(key, what, hint=hint))
    return value


def _is_plain(value: Value) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(child) for key, child in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
