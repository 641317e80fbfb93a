"""The loss of a config: a weighted sum of named terms over parts of output and batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

from torch import Tensor, nn
from typing_extensions import override

from epochal.engine.device.move import batch_size
from epochal.errors import ConfigError, Place, Problem, TaskError, suggest

if TYPE_CHECKING:
    from epochal.engine.interfaces.task import Batch, Output
    from epochal.engine.measure.sums import Number, Weighted

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Function = Callable[..., Any]
Route = tuple[bool, tuple[str, ...]]  # whether it starts at the output, and the path from there
_MAPPINGS = (dict, Mapping)  # the usual type first: isinstance of an abstract class is slower
Value = Any  # outputs and batches are any user objects

TOTAL_LOSS = "loss"
"""The name of the weighted sum; a term may have it only if it is the only term."""


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
    """The route to one of the ``count`` needed arguments, or None if it is ambiguous or missing."""
    if argument in ("out", "batch"):
        return argument == "out", ()
    sources = ((True, out), (False, batch))
    named = [is_out for is_out, source in sources if argument in known_names(source)]
    if named:
        return (named[0], (argument,)) if len(named) == 1 else None
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
    order = ("batch", "out") if argument in ("target", "label", "y") else ("out", "batch")
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
class LossTerm:
    """One term: a function of parts of output and batch that returns a mean over items.

    Args:
        function: A module or a function; returns a tensor of one number, or that and a count.
        name: The name of its value; that of the sum if it is the only term.
        weight: Its factor in the sum.
        inputs: The path of each argument: ``out.logits``, ``batch.label``, ``batch.1``, or all of
            ``out`` or ``batch``. Missing arguments are found by name, if that is unambiguous.
        key: Its key in the config, for messages.
        place: Its place in the config file, for messages.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str = TOTAL_LOSS,
        weight: float = 1.0,
        inputs: Mapping[str, str] | None = None,
        key: str = "loss",
        place: Place | None = None,
    ) -> None:
        self.function = function
        self.name, self.weight = name, weight
        self._key, self._place = key, place
        self._needed, self._known = read_parameters(function)
        self._routes = {
            argument: self._parse(argument, path) for argument, path in (inputs or {}).items()
        }
        self.is_complete = all(argument in self._routes for argument in self._needed)
        self._sized = find_count_argument(self._routes)

    def compute(self, out: Output, batch: Batch) -> tuple[Tensor, Number]:
        """The value for a batch, and the number of items over which it is a mean."""
        if not self.is_complete:
            self._complete(out, batch)
        arguments = {
            argument: find_by_path(out if is_out else batch, path)
            for argument, (is_out, path) in self._routes.items()
        }
        for value in arguments.values():
            if value is None:
                self._fail_to_find(out, batch)
        result = self.function(**arguments)
        if type(result) is Tensor and result.numel() == 1:
            return result, self._count(arguments, batch)
        return self._check(result, arguments, batch)

    @property
    def kind(self) -> str:
        """The name of its function."""
        return _function_name(self.function)

    def _count(self, arguments: Mapping[str, Any], batch: Batch) -> int:
        sized = arguments.get(self._sized)
        if isinstance(sized, Tensor) and sized.dim():
            return len(sized)
        size = batch_size(batch)
        if size is None:
            what = "returned no count, and the batch has no known size"
            self._fail(what, "return (value, count)")
        return size

    def _check(
        self, result: object, arguments: Mapping[str, Any], batch: Batch
    ) -> tuple[Tensor, Number]:
        value: object = result
        count: Any = None  # checked with those of all losses
        if isinstance(result, tuple) and len(result) == 2:
            value, count = result
        if not isinstance(value, Tensor):
            what = f"returned {value!r}, not a tensor"
            self._fail(what, "return a tensor of one number, or (tensor, count)")
        if value.numel() != 1:
            what = f"returned a tensor of shape {tuple(value.shape)}, not one number"
            self._fail(what, "reduce it, for example with .mean() or `reduction: mean`")
        return value, self._count(arguments, batch) if count is None else count

    def _parse(self, argument: str, path: str) -> Route:
        source, *names = path.split(".")
        if source not in ("out", "batch") or not all(names):
            what = f"must be out, batch, or a path into one of them, got {path!r}"
            self._refuse(f"inputs.{argument}", what, "write for example out.logits or batch.label")
        if argument not in self._known and None not in self._known:
            what = f"{_function_name(self.function)} has no argument {argument!r}"
            known = [name for name in self._known if name is not None]
            self._refuse(f"inputs.{argument}", what, suggest(argument, known))
        return source == "out", tuple(names)

    def _complete(self, out: Output, batch: Batch) -> None:
        """Find the inputs that the config does not give, by the names in the first batch."""
        for position, argument in enumerate(self._needed):
            if argument not in self._routes:
                route = guess_route(argument, position, len(self._needed), out, batch)
                if route is None:
                    self._refuse_to_guess(argument, out, batch)
                self._routes[argument] = route
        self.is_complete = True
        self._sized = find_count_argument(self._routes)

    def _refuse_to_guess(self, argument: str, out: Output, batch: Batch) -> NoReturn:
        sources = {"out": out, "batch": batch}
        shown = "; ".join(f"{name} has {list_names(one)}" for name, one in sources.items())
        hint = ", ".join(f"{name}: {example_route(name, sources)}" for name in self._needed)
        what = f"cannot tell which part is {argument!r} of {_function_name(self.function)}: {shown}"
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

    def _fail(self, what: str, hint: str) -> NoReturn:
        raise TaskError(f"{self._key}: {_function_name(self.function)} {what}\n  {hint}")


@final
class Loss(nn.Module):
    """A weighted sum of terms; called with output and batch, it returns all terms by name.

    Terms that are modules are its submodules, so that they move, train and are saved with it.

    Args:
        terms: With unique names.

    Raises:
        ConfigError: Two terms have the same name, or one has the name of the sum.
    """

    def __init__(self, terms: Sequence[LossTerm]) -> None:
        super().__init__()
        _require_unique_names([term.name for term in terms])
        self._terms = tuple(terms)
        self._is_named = [term.name for term in terms] != [TOTAL_LOSS]
        self.weights = {term.name: term.weight for term in terms}
        """The weight of each term; a term with weight 0 is neither computed nor logged."""

        modules = {term.name: one for term in terms if (one := _module_of(term)) is not None}
        self.terms = nn.ModuleDict(modules)

    @override
    def forward(self, out: Output, batch: Batch) -> dict[str, Weighted]:
        """Each term as ``(value, count)``, without its weight, and their sum as ``loss``."""
        total: Tensor | None = None
        count: Number = 0
        terms: dict[str, Weighted] = {}
        for term in self._terms:
            weight = self.weights[term.name]
            if not weight:
                continue
            value, items = term.compute(out, batch)
            terms[term.name] = value, items
            weighted = value if weight == 1 else value * weight
            # The count of the first term is the weight of the batch among microbatches.
            total, count = (weighted, items) if total is None else (total + weighted, count)
        if total is None:
            hint = "give at least one term another weight"
            raise TaskError(f"loss: every term has the weight 0\n  {hint}")
        return (
            {TOTAL_LOSS: (total, count), **terms}
            if self._is_named
            else {TOTAL_LOSS: (total, count)}
        )

    def describe(self) -> str:
        """The sum as text, such as ``ce + 0.3 aux``."""
        kinds = {term.name: term.name if self._is_named else term.kind for term in self._terms}
        return " + ".join(
            kinds[name] if weight == 1 else f"{weight:g} {kinds[name]}"
            for name, weight in self.weights.items()
            if weight
        )

    @property
    def is_complete(self) -> bool:
        """Whether the inputs of all terms are known; true after the first batch."""
        return all(term.is_complete for term in self._terms)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its terms."""
        return tuple(term.name for term in self._terms)

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """The trained parameters of its terms, named ``loss.<name>``."""
        named = self.named_parameters()
        return {f"loss.{name}": one for name, one in named if one.requires_grad}

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights of some terms, from the next batch on."""
        for name in weights:
            if name not in self.weights:
                what = f"the loss has no term {name!r}"
                raise ConfigError(Problem(f"loss.{name}", what, hint=suggest(name, self.names)))
        self.weights.update(weights)


def _require_unique_names(names: Sequence[str]) -> None:
    hint = "give the term another name"
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(Problem("loss", f"two terms are called {name!r}", hint=hint))
        if name == TOTAL_LOSS and len(names) > 1:
            what = f"{TOTAL_LOSS!r} is the name of the sum of all terms"
            raise ConfigError(Problem("loss", what, hint=hint))


def _module_of(term: LossTerm) -> nn.Module | None:
    function = term.function
    function = function.func if isinstance(function, partial) else function
    return function if isinstance(function, nn.Module) else None


def _function_name(function: Function) -> str:
    function = function.func if isinstance(function, partial) else function
    return str(getattr(function, "__qualname__", type(function).__qualname__))
