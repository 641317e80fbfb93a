"""Reads weights from files of ``torch.save`` without executing code in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC_BYTES = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_KEYS = ("state_dict", "model_state_dict", "model_state", "model", "net", "weights", "params")
"""Where training scripts put the weights."""

_REFUSED_GLOBAL = re.compile(r"GLOBAL (\S*\w) ")


def is_torch_file(path: Path) -> bool:
    """Whether a file was made by ``torch.save``, judged by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(2) in _MAGIC_BYTES
    except OSError:
        return False


def load_torch_file(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict on the CPU, by name.

    The file may hold the state dict itself, or a mapping with it under ``state_dict``, ``model``
    or a similar key.

    Raises:
        CheckpointError: It is damaged, has no state dict, or needs code to be read.
    """
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # reading a damaged file can raise anything
        raise _explain_unreadable(path, error) from error
    tensors = _find_state_dict(value)
    if not tensors:
        kind = type(value).__name__
        has = f"its keys are {', '.join(map(repr, value))}" if isinstance(value, Mapping) else kind
        raise CheckpointError(
            f"{path}: has no state dict: {has[:200]}\n"
            "  save one: torch.save(model.state_dict(), NEW)"
        )
    return tensors


def _explain_unreadable(path: Path, error: Exception) -> CheckpointError:
    found = _REFUSED_GLOBAL.search(str(error))
    if found is None:
        what = "it is damaged, or was not written by torch.save"
        return CheckpointError(f"{path}: {what}\n  use another copy, or save the weights again")
    return CheckpointError(
        f"{path}: contains {found[1]}, and reading that could run code\n"
        "  if you trust it, load it with weights_only=False and torch.save its state dict alone"
    )


def _find_state_dict(value: Any) -> dict[str, Tensor]:  # noqa: ANN401 - whatever was saved
    if not isinstance(value, Mapping):
        return {}
    for key in _KEYS:
        if isinstance(value.get(key), Mapping) and (found := _find_tensors(value[key])):
            return found
    return _find_tensors(value)


def _find_tensors(values: Mapping[object, object]) -> dict[str, Tensor]:
    return {
        name: one
        for name, one in values.items()
        if isinstance(name, str) and isinstance(one, Tensor)
    }
