"""FSDP2: every process has a part of each parameter, and gathers a module when it is needed."""

from __future__ import annotations

import mmap
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from typing_extensions import override

from epochal.distributed.flat_tensors import average_flat
from epochal.distributed.process_group import tracking_connections
from epochal.distributed.sharded_tensor import count_parts, get_own_part, is_sharded
from epochal.distributed.strategy import Strategy
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.distributed.world import World

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@final
@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a model is divided."""

    wrapped: Sequence[nn.Module] = ()
    """Modules that are gathered on their own, from the outside to the inside."""

    divided: Mapping[str, Literal["colwise", "rowwise"]] = field(default_factory=dict)
    """How each layer that several processes compute together is divided, by name."""

    precision: str | None = None
    reduce: str = "fp32"
    is_resharded: bool = True
    is_offloaded: bool = False
    tensor_parallel: int = 1


def shard_model(
    model: nn.Module, sharding: Sharding, device: torch.device, world: World
) -> nn.Module:
    """Divide the parameters of a model between processes, in place.

    The parameters are new objects afterwards: an optimizer has to be built later. A model in host
    memory moves to the device one wrapped module at a time. If a process has it on the meta device,
    the main one sends the values of each module before it is divided.
    """
    if any(is_lazy(one) for one in (*model.parameters(), *model.buffers())):
        what = "fsdp cannot divide parameters that have no size yet"
        raise ConfigError(Problem("engine.strategy", what, hint="give lazy modules their sizes"))
    mesh, values = _make_mesh(sharding, device, world), _SentValues(model, world)
    if sharding.divided:
        for name in sharding.divided:
            values.fill(model.get_submodule(name))
        model = _divide_layers(model, sharding, mesh["tensor"])
    options = _make_options(sharding, mesh["data"])
    for module in (*reversed(sharding.wrapped), model):
        values.fill(module)
        _shard(module, options)
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)
    return model


@final
class _SentValues:
    """Gives modules the values of the main process, if any process has none."""

    def __init__(self, model: nn.Module, world: World) -> None:
        self._world = world
        tensors = [tensor for _, _, tensor in _iterate_tensors(model)]
        self._is_needed = any(world.gather(any(one.is_meta for one in tensors)))
        uses = Counter(map(id, tensors))
        self._tied = {key for key, times in uses.items() if times > 1}
        self._filled: dict[int, tuple[Tensor, Tensor]] = {}  # only tensors that occur again

    @torch.no_grad()
    def fill(self, module: nn.Module) -> None:
        """Fill what is not divided yet, one tensor after the other."""
        if self._is_needed:
            for table, name, tensor in _iterate_tensors(module):
                if not is_sharded(tensor):
                    table[name] = self._fill(tensor)

    def _fill(self, tensor: Tensor) -> Tensor:
        if id(tensor) in self._filled:
            return self._filled[id(tensor)][1]
        real = tensor
        if tensor.is_meta:
            real = _make_empty(tensor)
            if isinstance(tensor, nn.Parameter):
                real = nn.Parameter(real, requires_grad=tensor.requires_grad)
                vars(real).update(vars(tensor))
        self._world.broadcast_tensors([real])
        if id(tensor) in self._tied or not isinstance(tensor, nn.Parameter):
            self._filled |= {id(tensor): (tensor, real), id(real): (real, real)}
        return real


def _make_empty(tensor: Tensor) -> Tensor:
    """A tensor like one of the meta device, in memory that the system gets back when it is freed.

    The C library would keep it, with smaller parts of other tensors in between.
    """
    if tensor.nbytes < mmap.PAGESIZE or not tensor.is_contiguous():
        return torch.empty_like(tensor, device="cpu")
    flat = torch.frombuffer(mmap.mmap(-1, tensor.nbytes), dtype=tensor.dtype)
    return flat.view(tensor.shape)


def _iterate_tensors(model: nn.Module) -> list[tuple[dict[str, Any], str, Tensor]]:
    """The parameters and buffers of all modules, each with its place; tied ones several times."""
    tables: list[dict[str, Any]] = []
    for module in model.modules():
        tables += [module._parameters, module._buffers]
    return [(table, *one) for table in tables for one in table.items() if one[1] is not None]


def _make_mesh(sharding: Sharding, device: torch.device, world: World) -> Any:  # noqa: ANN401 - torch's mesh
    from torch.distributed.device_mesh import init_device_mesh

    each = sharding.tensor_parallel
    if world.world_size % each:
        what = f"{world.world_size} processes cannot be divided into groups of {each}"
        hint = "write a number that divides the number of processes"
        raise ConfigError(Problem("engine.tensor_parallel", what, hint=hint))
    if each == 1:  # the group of all processes, no further one
        return init_device_mesh(device.type, (world.world_size,), mesh_dim_names=("data",))
    shape = (world.world_size // each, each)
    with tracking_connections():
        return init_device_mesh(device.type, shape, mesh_dim_names=("data", "tensor"))


def _make_options(sharding: Sharding, mesh: Any) -> dict[str, Any]:  # noqa: ANN401 - torch's mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

    dtype = None if sharding.precision is None else _DTYPES[sharding.precision]
    reduced = None if dtype in (None, torch.float32) else _DTYPES[sharding.reduce]
    is_pinned = mesh.device_type == "cuda"
    offload = CPUOffloadPolicy(pin_memory=is_pinned) if sharding.is_offloaded else OffloadPolicy()
    return {
        "mesh": mesh,
        "reshard_after_forward": sharding.is_resharded,
        "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduced),
        "offload_policy": offload,
    }


def _shard(module: nn.Module, options: Mapping[str, Any]) -> None:
    from torch.distributed.fsdp import fully_shard

    fully_shard(module, **options)


def _divide_layers(model: nn.Module, sharding: Sharding, mesh: Any) -> nn.Module:  # noqa: ANN401 - torch's mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    kinds = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}
    for name in sharding.divided:
        layer = model.get_submodule(name)
        if not isinstance(layer, nn.Linear | nn.Embedding):
            what = f"{name} is a {type(layer).__name__}, and only Linear and Embedding are divided"
            hint = "name layers inside of it"
            raise ConfigError(Problem("engine.tensor_plan", what, hint=hint))
    plan = {name: kinds[how]() for name, how in sharding.divided.items()}
    divided: nn.Module = parallelize_module(model, mesh, plan)
    return divided


@final
class Fsdp(Strategy):
    """Every process has a part of each parameter, gradient and optimizer state.

    The numbers of a step need one more collective besides those of each module.
    """

    is_sharded = True

    def __init__(self, world: World, sharding: Sharding, device: torch.device) -> None:
        self._world, self._device = world, device
        self._sharding = sharding
        self._model: Any = None
        self._kept: Tensor | None = None
        self._others: list[nn.Parameter] = []

    @override
    def share(self, model: nn.Module, others: Sequence[nn.Parameter], *, carries: bool) -> None:
        if not any(map(is_sharded, model.parameters())):
            what = "fsdp needs a model whose parameters are divided, and this one is whole"
            hint = "call super().place_model(...) in place_model, and do not replace the model"
            raise ConfigError(Problem("engine.strategy", what, hint=hint))
        self._model, self._others = model, list(others)

    @property
    @override
    def trained_model(self) -> nn.Module:
        model: nn.Module = self._model
        return model

    @override
    @contextmanager
    def accumulating(self) -> Iterator[None]:
        self._model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self._model.set_requires_gradient_sync(True)

    @override
    def carry(self, numbers: Tensor) -> None:
        self._kept = numbers if self._kept is None else self._kept + numbers

    @override
    def read_sums(self) -> Tensor:
        kept, self._kept = self._kept, None
        assert kept is not None
        gradients = [one.grad for one in self._others if one.grad is not None]
        return self.reduce(gradients, kept)

    @override
    def reduce(self, gradients: Sequence[Tensor], numbers: Tensor) -> Tensor:
        average_flat((numbers, *gradients), self._world)
        return numbers

    @override
    def share_another(self, model: nn.Module) -> nn.Module:
        if not any(one.requires_grad for one in model.parameters()):
            return model
        sharding = replace(self._sharding, is_resharded=True)  # nothing tells when its use ends
        return shard_model(model, sharding, self._device, self._world)

    @override
    @torch.no_grad()
    def measure_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        size = self._world.world_size
        squares = torch.zeros((), device=_find_device(gradients))
        by_parts: dict[int, list[Tensor]] = {}
        for one in gradients:
            by_parts.setdefault(count_parts(one), []).append(get_own_part(one))
        for parts, group in by_parts.items():
            norm = nn.utils.get_total_norm(group)
            squares += norm.to(squares.device).square() * (parts / size)  # copies count once
        return self._world.reduce(squares).sqrt()

    @override
    def agree(self, flag: Tensor) -> None:
        self._world.reduce(flag).clamp_(max=1)

    @override
    def end_evaluation(self, model: nn.Module) -> None:
        # Else a later forward pass would use gathered weights from before a change of the parts.
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def _find_device(gradients: Sequence[Tensor]) -> torch.device:
    return get_own_part(gradients[0]).device if gradients else torch.device("cpu")


def name_class(model: nn.Module) -> str:
    """The name of a model's class; torch gives divided models another one."""
    kind = type(model)
    own = [base.__name__ for base in kind.__bases__ if base.__name__ != "FSDPModule"]
    return own[-1] if len(own) < len(kind.__bases__) else kind.__name__


def explain_mixed_tensors(error: BaseException) -> None:
    """Add a note to the error of torch about a parameter that was not gathered."""
    if isinstance(error, RuntimeError) and "mixed torch.Tensor and DTensor" in str(error):
        error.add_note(
            "with engine.strategy: fsdp parameters are gathered when their module is called: call "
            "model(...) in the task, and modules of fsdp_wrap as modules, not their methods or "
            "parameters"
        )
