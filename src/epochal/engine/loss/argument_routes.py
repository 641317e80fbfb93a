"""Feeds a loss or a metric with parts of output and batch, by the names of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

from torch import Tensor, nn

from epochal.engine.device.move import batch_size
from epochal.engine.interfaces.binding import BY_NAME
from epochal.errors import ConfigError, Place, Problem, suggest

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch, Output

_TARGETS = ("target", "targets", "label", "labels", "y")
"""Usual names of the target; most batches have one of them."""


Function = Callable[..., Any]
Route = tuple[bool, tuple[str, ...]]  # whether it starts at the output, and the path from there
_MAPPINGS = (dict, Mapping)  # the usual type first: isinstance of an abstract class is slower
Value = Any  # outputs and batches are any user objects


def read_parameters(function: Function) -> tuple[list[str], list[str | None]]:
    """The arguments that a function needs, and all that it accepts; None there means any."""
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters.values()
    except ValueError:  # some built-in functions have no signature
        return [], [None]
    named = [one for one in parameters if one.kind in BY_NAME]
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
    """The route to one of the ``count`` needed arguments, or None if it is ambiguous or missing."""
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


def find_by_path(source: Value, names: Sequence[str]) -> Value:
    """The value at a path of keys, attributes and positions; None if there is none."""
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


@final
class ArgumentRoutes:
    """Where the arguments of a function are in output and batch.

    Args:
        function: What is called with the arguments; only its signature is read.
        inputs: The path of each argument: ``out.logits``, ``batch.label``, ``batch.1``, or all of
            ``out`` or ``batch``. Missing arguments are found by name, if that is unambiguous.
        owner: The name of the function for messages.
        key: The key in the config whose ``inputs`` these are, for messages.
        place: The place of that key in the config file, for messages.
    """

    def __init__(
        self,
        function: Function,
        inputs: Mapping[str, str] | None,
        *,
        owner: str,
        key: str,
        place: Place | None,
    ) -> None:
        self._owner, self._key, self._place = owner, key, place
        self.needed, self._known = read_parameters(function)
        self._routes = {name: self._parse(name, path) for name, path in (inputs or {}).items()}
        self.is_complete = all(name in self._routes for name in self.needed)
        """Whether all are known; true after the first batch."""

        self._sized = find_count_argument(self._routes)

    def read(self, out: Output, batch: Batch) -> dict[str, Any]:
        """The arguments for a batch, by name."""
        if not self.is_complete:
            self._complete(out, batch)
        arguments = {
            name: find_by_path(out if is_out else batch, path)
            for name, (is_out, path) in self._routes.items()
        }
        for value in arguments.values():
            if value is None:
                self._fail_to_find(out, batch)
        return arguments

    def count(self, arguments: Mapping[str, Any], batch: Batch) -> int | None:
        """The number of items: the length of the target, or else the batch size."""
        sized = arguments.get(self._sized)
        return len(sized) if isinstance(sized, Tensor) and sized.dim() else batch_size(batch)

    def _parse(self, argument: str, path: str) -> Route:
        source, *names = path.split(".")
        if source not in ("out", "batch") or not all(names):
            what = f"must be out, batch, or a path into one of them, got {path!r}"
            self._refuse(f"inputs.{argument}", what, "write for example out.logits or batch.label")
        if argument not in self._known and None not in self._known:
            what = f"{self._owner} has no argument {argument!r}"
            known = [name for name in self._known if name is not None]
            self._refuse(f"inputs.{argument}", what, suggest(argument, known))
        return source == "out", tuple(names)

    def _complete(self, out: Output, batch: Batch) -> None:
        """Find the inputs that the config does not give, by the names in the first batch."""
        for position, argument in enumerate(self.needed):
            if argument not in self._routes:
                route = guess_route(argument, position, len(self.needed), out, batch)
                if route is None:
                    self._refuse_to_guess(argument, out, batch)
                self._routes[argument] = route
        self.is_complete = True
        self._sized = find_count_argument(self._routes)

    def _refuse_to_guess(self, argument: str, out: Output, batch: Batch) -> NoReturn:
        sources = {"out": out, "batch": batch}
        shown = "; ".join(f"{name} has {list_names(one)}" for name, one in sources.items())
        hint = ", ".join(f"{name}: {example_route(name, sources)}" for name in self.needed)
        what = f"cannot tell which part is {argument!r} of {self._owner}: {shown}"
        self._refuse("inputs", what, f"write for example inputs: {{{hint}}}")

    def _fail_to_find(self, out: Output, batch: Batch) -> NoReturn:
        for argument, (is_out, path) in self._routes.items():
            name, source = ("out", out) if is_out else ("batch", batch)
            missing, known = find_missing_name(source, path)
            if missing:
                full = ".".join((name, *path))
                what = f"there is no {full!r}; {name} is a {type(source).__name__}"
                self._refuse(f"inputs.{argument}", what, suggest(missing, known))
        raise AssertionError("every argument was found")

    def _refuse(self, key: str, what: str, hint: str) -> NoReturn:
        raise ConfigError(Problem(f"{self._key}.{key}", what, self._place, hint))


def function_name(function: Function) -> str:
    """The name of a function or of the class of a callable object, also behind a partial."""
    function = function.func if isinstance(function, partial) else function
    return str(getattr(function, "__qualname__", type(function).__qualname__))
