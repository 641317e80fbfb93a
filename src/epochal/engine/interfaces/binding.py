"""Adapts user functions that take only some of the available arguments, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from epochal.errors import TaskError, suggest

Function = Callable[..., Any]

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
"""The kinds of parameters that can be passed by name."""

_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def bind_by_name(function: Function, available: tuple[str, ...], *, owner: str) -> Function:
    """A function of all ``available`` arguments that passes on those that ``function`` takes.

    Returns the function itself if it takes exactly these, in this order.
    """
    names = _accepted_names(function, available, owner)
    if names == available:
        return function
    places = {name: available.index(name) for name in names}

    def call(*values: object) -> object:
        return function(**{name: values[place] for name, place in places.items()})

    return call


def parameter_names(function: Function) -> tuple[str, ...]:
    """The names of the parameters that can be passed by name."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind in BY_NAME)


def _accepted_names(function: Function, available: tuple[str, ...], owner: str) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions have no signature; they get all arguments
        return available
    names = []
    for parameter in parameters:
        if parameter.kind in _OPEN:
            return available
        if parameter.name in available and parameter.kind in BY_NAME:
            names.append(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            hint = suggest(parameter.name, available)
            raise TaskError(
                f"{owner}: unknown argument {parameter.name!r}"
                + (f"\n  {hint}" if hint.startswith("did") else "")
                + f"\n  it may take any of: {', '.join(available)}"
            )
    return tuple(names)
