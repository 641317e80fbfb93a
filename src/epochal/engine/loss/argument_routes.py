"""Feeds a loss or a metric with parts of output and batch, by the names of its arguments."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

from torch import Tensor

from epochal.engine.device.move import batch_size
from epochal.engine.loss.loss_inputs import (
    Function,
    Route,
    example_route,
    find_by_path,
    find_count_argument,
    find_missing_name,
    guess_route,
    list_names,
    read_parameters,
)
from epochal.errors import ConfigError, Place, Problem, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.engine.interfaces.task import Batch, Output


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
