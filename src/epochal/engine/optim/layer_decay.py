"""Number the layers of a model from its input to its output, for layer-wise rate decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from epochal.errors import ConfigError, Problem, TaskError

if TYPE_CHECKING:
    from collections.abc import Iterable


def number_layers(model: nn.Module, names: Iterable[str]) -> dict[str, int]:
    """The number of each parameter's layer; the top layer has the largest.

    A model may have ``layer_of(name)``, which gives the number, or None for the top. Otherwise
    the children of the longest ``ModuleList`` or ``Sequential`` that hold parameters count from
    1; what the model has before them is layer 0, and what comes after them the top.

    Raises:
        ConfigError: The model has no such list and no ``layer_of``.
        TaskError: ``layer_of`` did not return a number.
    """
    names = list(names)
    own: Any = getattr(model, "layer_of", None)
    numbers = _ask(own, model, names) if callable(own) else _count(model, names)
    top = max((number for number in numbers.values() if number is not None), default=0)
    return {name: top if number is None else number for name, number in numbers.items()}


def _ask(layer_of: Any, model: nn.Module, names: list[str]) -> dict[str, int | None]:  # noqa: ANN401 - a method of the user
    numbers = {name: layer_of(name) for name in names}
    for name, number in numbers.items():
        if number is not None and (not isinstance(number, int) or number < 0):
            raise TaskError(
                f"{type(model).__name__}.layer_of: gave {number!r} for {name!r}\n"
                "  return the number of the layer, 0 at the input, or None for the top"
            )
    return numbers


def _count(model: nn.Module, names: list[str]) -> dict[str, int | None]:
    prefix, children = _longest_list(model, names)
    if len(children) < 2:
        what = f"{type(model).__name__} has no ModuleList or Sequential of several layers"
        hint = "give the model a method layer_of(name) that returns the number of the layer"
        raise ConfigError(Problem("optim.layer_decay", what, hint=hint))
    starts = {f"{prefix}{child}.": number + 1 for number, child in enumerate(children)}
    numbers: dict[str, int | None] = {}
    is_before = True
    for name in names:
        inside = next((n for start, n in starts.items() if name.startswith(start)), None)
        is_before = is_before and inside is None
        numbers[name] = inside if inside is not None else 0 if is_before else len(children) + 1
    return numbers


def _longest_list(model: nn.Module, names: list[str]) -> tuple[str, list[str]]:
    """The prefix of its names, and its children that hold some of the parameters."""
    best: tuple[str, list[str]] = ("", [])
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            prefix = f"{name}." if name else ""
            starts = {key: f"{prefix}{key}." for key, _ in module.named_children()}
            children = [k for k, start in starts.items() if any(n.startswith(start) for n in names)]
            if len(children) > len(best[1]):
                best = (prefix, children)
    return best
