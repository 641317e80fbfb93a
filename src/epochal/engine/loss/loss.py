"""The loss of a config: a weighted sum of named terms over parts of output and batch."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from epochal.engine.loss.argument_routes import ArgumentRoutes, Function, function_name
from epochal.errors import ConfigError, Place, Problem, TaskError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.engine.interfaces.task import Batch, Output
    from epochal.engine.measure.sums import Number, Weighted

logger = logging.getLogger(__name__)

TOTAL_LOSS = "loss"
"""The name of the weighted sum; a term may have it only if it is the only term."""


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
        self._key = key
        self._has_said_count = False
        self._routes = ArgumentRoutes(
            function, inputs, owner=function_name(function), key=key, place=place
        )

    @property
    def is_complete(self) -> bool:
        """Whether all inputs are known; true after the first batch."""
        return self._routes.is_complete

    def compute(self, out: Output, batch: Batch) -> tuple[Tensor, Number]:
        """The value for a batch, and the number of items over which it is a mean."""
        arguments = self._routes.read(out, batch)
        result = self.function(**arguments)
        if type(result) is Tensor and result.numel() == 1:
            return result, self._count(arguments, batch)
        return self._check(result, arguments, batch)

    @property
    def kind(self) -> str:
        """The name of its function."""
        return function_name(self.function)

    def _count(self, arguments: Mapping[str, Any], batch: Batch) -> int:
        size = self._routes.count(arguments, batch)
        if size is None:
            what = "returned no count, and the batch has no known size"
            self._fail(what, "return (value, count)")
        if not self._has_said_count and not torch.compiler.is_compiling():
            self._has_said_count = True
            logger.info(
                "%s: %s returns no count, so the batch size, now %d, is its weight in averages; "
                "a loss that returns (value, count) sets another one",
                self._key,
                self.kind,
                size,
            )
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

    def _fail(self, what: str, hint: str) -> NoReturn:
        raise TaskError(f"{self._key}: {function_name(self.function)} {what}\n  {hint}")


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
