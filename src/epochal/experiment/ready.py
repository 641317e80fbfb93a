"""Whether an object that Python gave as a part is one: not its class, not something near it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.data import DataLoader, Dataset

from epochal.errors import ConfigError, Problem

_EXAMPLES = {
    "optim": "optim={name}(model.parameters(), lr=1e-3), or optim={{'type': {name!r}, 'lr': 1e-3}}",
    "schedule": "schedule={name}(optimizer, ...), or schedule={{'type': {name!r}, ...}}",
    "data": "data={{'train': DataLoader({name}(...), batch_size=32)}}",
    "hooks": "hooks=[{name}()]",
    "metrics": "metrics=[{name}()]",
}
Part = Any  # whatever the user gave


def check_ready(section: str, part: Part, *, source: str = "") -> None:
    """Refuse what cannot be the part of ``section``; ``source`` is the method that made it.

    Raises:
        ConfigError: With what to write instead.
    """
    where = source or section
    if inspect.isclass(part):
        hint = _EXAMPLES.get(section, section + "={name}(...)").format(name=part.__name__)
        if source:
            hint = f"return {part.__name__}(...)"
        raise _refusal(where, f"is the class {part.__name__!r}, not an object of it", hint)
    if part is None:
        raise _refusal(where, "gave nothing", f"end it with: return {section}")
    if section == "model" and not isinstance(part, nn.Module):
        what = f"is no torch.nn.Module, but an object of type {type(part).__name__!r}"
        raise _refusal(where, what, "give an object of a class that extends torch.nn.Module")
    if section == "loss" and not callable(part):
        what = f"cannot be called: it is an object of type {type(part).__name__!r}"
        raise _refusal(where, what, "give a function or a module, such as nn.CrossEntropyLoss()")
    if section == "data":
        _check_data(part)


def _check_data(data: Part) -> None:
    if not isinstance(data, Mapping):
        name = "loader" if isinstance(data, DataLoader) else "DataLoader(dataset, batch_size=32)"
        what = f"is not a mapping of splits to loaders, but a {type(data).__name__!r}"
        raise _refusal("data", what, f"write data={{'train': {name}}}")
    for split, loader in data.items():
        for one in loader.values() if isinstance(loader, Mapping) else (loader,):
            if isinstance(one, Dataset) or inspect.isclass(one):
                kind = one.__name__ if inspect.isclass(one) else type(one).__name__
                what = f"is the dataset {kind!r}, not a loader of batches"
                hint = f"write data={{{split!r}: DataLoader(dataset, batch_size=32)}}"
                raise _refusal(f"data.{split}", what, hint)


def _refusal(where: str, what: str, hint: str) -> ConfigError:
    return ConfigError(Problem(where, what, hint=hint))
