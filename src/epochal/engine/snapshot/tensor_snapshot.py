"""Everything a training step changes on a device, its contents kept aside and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from epochal.engine.device.seeding import generator_states, restore_generators
from epochal.engine.snapshot.run_objects import walk_run_objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.engine.run import Run

_FREE_MEMORY_FACTOR = 10  # a trial keeps four copies for a while, and steps need memory too
_SMALL = 1 << 20  # bytes; larger tensors of a task on the host are its data
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def find_state_tensors(run: Run) -> dict[str, Tensor]:
    """The tensors that a step changes in place, by name; tied ones once."""
    found: dict[str, Tensor] = {}
    known: set[int] = set()
    for name, tensor in _iter_state_tensors(run):
        if id(tensor) not in known:
            known.add(id(tensor))
            found[name] = tensor
    return found


def _iter_state_tensors(run: Run) -> Iterator[tuple[str, Tensor]]:
    yield from _of_module("model", run.model)
    if run.loss is not None:
        yield from _of_module("loss", run.loss)
    if run.optimizer is not None:
        yield from _of_optimizer(run.optimizer)
    yield from _prefixed("updater", run.updater.state_tensors())
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


@final
class TensorSnapshot:
    """The contents of tensors, and of all random generators, at one moment.

    They are kept on the device if it has much room, since that is faster, else on the host.

    Args:
        tensors: What to keep, by name.
        device: Where they are; two snapshots are also compared by its generator.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        place = device if _has_room(tensors, device) else torch.device("cpu")
        self._tensors = dict(tensors)
        self._generators = generator_states()
        self._device_random = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self._kept = {
            name: tensor.detach().to(place, copy=True) for name, tensor in tensors.items()
        }

    def restore(self) -> None:
        """Put everything back, in place."""
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                tensor.detach().copy_(self._kept[name])
        restore_generators(self._generators)

    def first_difference(self, other: TensorSnapshot) -> str:
        """The name of a tensor whose bits are others in the other snapshot; empty if none."""
        for name, tensor in self._kept.items():
            if not torch.equal(_bits(tensor), _bits(other._kept[name].to(tensor.device))):
                return name
        if self._device_random is not None and other._device_random is not None:
            is_same = torch.equal(self._device_random, other._device_random)
            return "" if is_same else "the random generator of the device"
        return ""

    def gap(self, other: TensorSnapshot, since: TensorSnapshot, prefix: str) -> float:
        """How far tensors of two ways from one start part, as a share of the first way.

        Only tensors whose names start with the prefix count.
        """
        gap = way = 0.0
        for name, start in since._kept.items():
            if start.is_floating_point() and name.startswith(prefix):
                here = self._kept[name].double()
                there, start = (one.to(here) for one in (other._kept[name], start))
                gap += float((here - there).square().sum())
                way += float((here - start).square().sum())
        return float((gap / way) ** 0.5) if way else (0.0 if gap == 0 else float("inf"))


def _has_room(tensors: Mapping[str, Tensor], device: torch.device) -> bool:
    """Whether a copy of all tensors would take a small part of what is free."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return sum(tensor.nbytes for tensor in tensors.values()) < free / _FREE_MEMORY_FACTOR


def _bits(tensor: Tensor) -> Tensor:
    """A tensor as integers: numbers that are not a number compare too."""
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return flat.contiguous().reshape(-1).view(_INTEGERS[flat.element_size()])
