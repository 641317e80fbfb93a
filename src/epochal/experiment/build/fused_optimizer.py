"""Chooses torch's fastest form of an optimizer, unless the config names a form."""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from epochal.config import from_plain
from epochal.errors import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.check import Spec

_FORMS = ("fused", "foreach", "capturable", "differentiable")
# Fused kernels may not support subclasses of Parameter.
_PLAIN = (Tensor, nn.Parameter, nn.UninitializedParameter)


def with_fused_options(
    spec: Spec, factory: object, parameters: Sequence[Tensor], model: nn.Module
) -> Spec:
    """The spec of an optimizer with ``fused`` and ``capturable`` if torch supports them.

    A config that names a form stays unchanged.
    """
    if not isinstance(factory, type) or not issubclass(factory, Optimizer) or not parameters:
        return spec
    is_chosen = any(_is_chosen(spec, name) for name in _FORMS)
    forms = () if is_chosen else _forms_for(factory, parameters, model)
    place = Place("default")
    chosen = {name: from_plain(True, place=place, layer="default") for name in forms}
    return replace(spec, arguments=MappingProxyType({**spec.arguments, **chosen}))


def use_lr_tensors(optimizer: Optimizer) -> None:
    """Turn the rates of ``capturable`` or ``fused`` groups on CUDA into tensors there."""
    for group in optimizer.param_groups:
        devices = {parameter.device for parameter in group["params"]}
        is_able = group.get("capturable") or group.get("fused")
        if len(devices) == 1 and is_able and not isinstance(group["lr"], Tensor):
            (device,) = devices
            if device.type == "cuda":
                group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=device)
    # Otherwise torch warns about every step that is not captured, which is our choice.
    optimizer._warned_capturable_if_run_uncaptured = True


def _is_chosen(spec: Spec, name: str) -> bool:
    """Whether a config sets an option to another value than its default."""
    node, parameter = spec.arguments.get(name), spec.signature.get(name)
    return node is not None and (parameter is None or node.to_plain() != parameter.default)


def _forms_for(
    kind: type[Optimizer], parameters: Sequence[Tensor], model: nn.Module
) -> tuple[str, ...]:
    known = inspect.signature(kind).parameters
    can_fuse = all(type(one) in _PLAIN and one.is_floating_point() for one in parameters)
    on_cuda = all(one.device.type == "cuda" for one in parameters)
    wanted = {
        "fused": can_fuse and not _has_sparse_gradients(model),
        "capturable": on_cuda,
    }
    forms = tuple(name for name, is_wanted in wanted.items() if is_wanted and name in known)
    places = {(one.device, one.dtype) for one in parameters}
    return forms if forms and all(_has_kernel(kind, forms, *place) for place in places) else ()


def _has_sparse_gradients(model: nn.Module) -> bool:
    """Whether a layer, such as an embedding, has sparse gradients, which fused kernels refuse."""
    return any(getattr(module, "sparse", False) is True for module in model.modules())


def _has_kernel(
    kind: type[Optimizer], forms: Sequence[str], device: torch.device, dtype: torch.dtype
) -> bool:
    """Whether torch has such a kernel, found by a step with one number."""
    parameter = nn.Parameter(torch.zeros(1, device=device, dtype=dtype))
    parameter.grad = torch.zeros_like(parameter)
    make: Any = kind  # a subclass may have any signature
    try:
        optimizer = make([parameter], **dict.fromkeys(forms, True))
        use_lr_tensors(optimizer)
        optimizer.step()
    except Exception:  # the default form works
        return False
    return True
