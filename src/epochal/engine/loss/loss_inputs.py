"""Finds the parts of output and batch that arguments of losses and metrics refer to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch, Output


_TARGETS = ("target", "targets", "label", "labels", "y")
"""Names of what a model should have answered; a batch has usually one of them."""

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Function = Callable[..., Any]
Route = tuple[bool, tuple[str, ...]]  # whether it starts at the output, and the path from there


def read_parameters(function: Function) -> tuple[list[str], list[str | None]]:
    """The arguments that a function needs, and all that it accepts; None there means any."""
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters.values()
    except ValueError:  # some built-in functions have no signature
        return [], [None]
    named = [one for one in parameters if one.kind in _BY_NAME]
    known: list[str | None] = [one.name for one in named]
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        known.append(None)
    return [one.name for one in named if one.default is inspect.Parameter.empty], known


def find_count_argument(routes: Mapping[str, Route]) -> str:
    """The argument whose length is the item count: ``target``, or the first from the batch."""
    of_batch = [name for name, (is_out, path) in routes.items() if not is_out and path]
    return "target" if "target" in of_batch else next(iter(of_batch), "")


def guess_route(
    argument: str, position: int, count: int, out: Output, batch: Batch
) -> Route | None:
    """The route to an argument, or None if it is ambiguous or missing.

    Args:
        argument: Its name.
        position: Its position among the needed arguments.
        count: The number of needed arguments.
        out: The output of the task.
        batch: The batch of that output.
    """
    if argument in ("out", "batch"):
        return argument == "out", ()
    sources = ((True, out), (False, batch))
    named = [is_out for is_out, source in sources if argument in known_names(source)]
    if named:
        return (named[0], (argument,)) if len(named) == 1 else None
    if argument in _TARGETS:
        targets = [name for name in _TARGETS if name in known_names(batch)]
        if targets:
            return (False, (targets[0],)) if len(targets) == 1 else None
    if position == 0:
        return _only_tensor(out)
    is_pair = isinstance(batch, list | tuple) and len(batch) == 2 and count == 2
    return (False, ("1",)) if is_pair else None


def _only_tensor(out: Output) -> Route | None:
    if isinstance(out, Tensor):
        return True, ()
    tensors = [name for name in known_names(out) if isinstance(find_by_path(out, (name,)), Tensor)]
    return (True, (tensors[0],)) if len(tensors) == 1 else None


def list_names(source: object) -> str:
    """The names in an output or a batch, for messages."""
    names = known_names(source)
    return ", ".join(names[:12]) if names else f"no names, it is a {type(source).__name__}"


def example_route(argument: str, sources: Mapping[str, object]) -> str:
    """An example of a path for an argument, for messages."""
    if argument in sources:
        return argument
    order = ("batch", "out") if argument in _TARGETS else ("out", "batch")
    first = order[0]
    names = known_names(sources[first])
    return ".".join((first, *(names[-1:] if first == "batch" else names[:1])))


_MAPPINGS = (dict, Mapping)  # the usual type first: isinstance of an abstract class is slower
Value = Any  # outputs and batches are any user objects


def find_by_path(source: Value, names: Sequence[str]) -> Value:
    """The value at a path of keys, attributes and positions; None if there is none.

    Args:
        source: An output, or a batch.
        names: Such as ``["boxes", "score"]`` or ``["1"]``.
    """
    value = source
    for name in names:
        if isinstance(value, _MAPPINGS):
            value = value.get(name)
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = getattr(value, name, None)
        if value is None:
            return None
    return value


def known_names(source: Value) -> list[str]:
    """The keys, positions or attributes of an output or a batch."""
    if isinstance(source, Mapping):
        return [str(key) for key in source]
    if isinstance(source, Sequence) and not isinstance(source, str):
        fields = getattr(source, "_fields", ())  # of a named tuple
        return list(fields) or [str(position) for position in range(len(source))]
    return [key for key in getattr(source, "__dict__", {}) if not key.startswith("_")]


def find_missing_name(source: Value, names: Sequence[str]) -> tuple[str, list[str]]:
    """The first name of a path that does not exist, and the names that exist there."""
    value = source
    for index, name in enumerate(names):
        found = find_by_path(source, names[: index + 1])
        if found is None:
            return name, known_names(value)
        value = found
    return "", []
