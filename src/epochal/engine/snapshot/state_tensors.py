"""Finds the tensors that a training step changes in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from epochal.engine.snapshot.run_objects import walk_run_objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.engine.run.engine_run import EngineRun

_SMALL = 1 << 20  # bytes; larger tensors of a task on the host are its data


def find_state_tensors(run: EngineRun) -> dict[str, Tensor]:
    """The tensors that a step changes in place, by name; tied ones once."""
    found: dict[str, Tensor] = {}
    known: set[int] = set()
    for name, tensor in _iter_state_tensors(run):
        if id(tensor) not in known:
            known.add(id(tensor))
            found[name] = tensor
    return found


def _iter_state_tensors(run: EngineRun) -> Iterator[tuple[str, Tensor]]:
    yield from _of_module("model", run.model)
    if run.loss is not None:
        yield from _of_module("loss", run.loss)
    if run.optimizer is not None:
        yield from _of_optimizer(run.optimizer)
    for part in run.parts:
        if hasattr(part, "state_tensors"):  # the updater
            yield from _prefixed(type(part).__name__.lower(), part.state_tensors())
    if run.average is not None:
        yield from _prefixed("average", run.average.state_tensors())
    yield from _prefixed("meter", run.meter.state_tensors())
    for path, part in walk_run_objects(run):
        if path.startswith("model"):
            break  # its parameters and buffers are known, and other tensors live for one step
        if isinstance(part, nn.Module):
            yield from _of_module(path, part)
        elif isinstance(part, Tensor) and _can_be_restored(part, run.device):
            yield path, part


def _can_be_restored(tensor: Tensor, device: torch.device) -> bool:
    """Whether a step may have changed a tensor, and its contents can be written back."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_inference():
        return False
    is_expanded = any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )
    is_data = tensor.device.type != device.type and tensor.nbytes > _SMALL
    return not is_expanded and not is_data


def _of_module(prefix: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in module.named_parameters(remove_duplicate=False):
        yield f"{prefix}.{name}", parameter
    for name, buffer in module.named_buffers(remove_duplicate=False):
        yield f"{prefix}.{name}", buffer


def _of_optimizer(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for index, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            if isinstance(value, Tensor):
                yield f"optim.{index}.{name}", value
        for number, parameter in enumerate(group["params"]):  # perhaps not the model's
            yield f"optim.{index}.params.{number}", parameter
    for index, state in enumerate(optimizer.state.values()):
        for name, value in _tensors_in(state):
            yield f"optim.state.{index}.{name}", value


def _tensors_in(state: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        yield "", state
    elif isinstance(state, dict):
        for name, value in state.items():
            for inner, tensor in _tensors_in(value):
                yield f"{name}.{inner}" if inner else str(name), tensor


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        yield f"{prefix}.{name}", tensor
