"""Counts the FLOPs of a call, in total and per module."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.flop_counter import FlopCounterMode
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Names of torch operations that multiply; others are too cheap to count.
_HEAVY = re.compile(r"mm$|mv$|dot$|conv|fft|linalg|cdist|rnn|attention|transformer|trilinear")
_ATTENTIONS = (
    "flash_attention_for_cpu",
    "attention_math_for_mps",
    "fused_attention_overrideable",
)
_OF_TORCH = ("aten.", "prim.", "prims.")


@final
@dataclass(frozen=True)
class Flops:
    """The FLOPs of a call; a multiplication and an addition count as two."""

    total: int
    modules: dict[str, int] = field(default_factory=dict)
    """FLOPs of each called module by name, its submodules included."""

    calls: dict[str, int] = field(default_factory=dict)
    """How often each module was called."""

    uncounted: tuple[str, ...] = ()
    """Operations of unknown cost, which count as 0."""


def count_flops(call: Callable[[], object], model: nn.Module) -> Flops:
    """Count the FLOPs of matrix products and convolutions in a call; ignores cheaper operations.

    Fused operations are disabled during the call, because their parts cannot be counted.
    """
    registry = _FormulaRegistry()
    counter = FlopCounterMode(display=False)
    registry.update(counter.flop_registry)
    registry.update(_attention_formulas())
    counter.flop_registry = registry
    spans = _ModuleFlops(model, counter.get_total_flops)
    with _unfused(model), spans.watching(), counter:
        call()
    uncounted = tuple(sorted(filter(_is_notable, registry.unknown)))
    return Flops(counter.get_total_flops(), dict(spans.flops), dict(spans.calls), uncounted)


@final
class _ModuleFlops:
    """Attributes the counted FLOPs to the modules that were called."""

    def __init__(self, model: nn.Module, read: Callable[[], int]) -> None:
        self._names = {id(module): name for name, module in model.named_modules()}
        self._read = read
        self._open: dict[str, list[int]] = {}
        self.flops: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch all modules in a block."""
        begin = register_module_forward_pre_hook(self._begin)
        end = register_module_forward_hook(self._end, always_call=True)
        try:
            yield
        finally:
            begin.remove()
            end.remove()

    def _begin(self, module: nn.Module, inputs: object) -> None:
        name = self._names.get(id(module))
        if name is not None:
            self._open.setdefault(name, []).append(self._read())

    def _end(self, module: nn.Module, inputs: object, output: object) -> None:
        name = self._names.get(id(module))
        if name is None or not self._open.get(name):
            return
        begun = self._open[name].pop()
        self.calls[name] += 1
        if not self._open[name]:  # the outermost call of a module that calls itself
            self.flops[name] += self._read() - begun


@final
class _FormulaRegistry(dict[Any, Any]):  # torch has no types for its formulas
    """The formulas by operation; remembers the operations without a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown: set[str] = set()

    @override
    def __contains__(self, operation: object) -> bool:
        is_known = super().__contains__(operation)
        if not is_known and not isinstance(operation, torch._ops.OpOverload):
            self.unknown.add(str(operation))
        return is_known


def _is_notable(name: str) -> bool:
    is_of_torch = name.startswith(_OF_TORCH)
    return bool(_HEAVY.search(name.partition(".")[2])) if is_of_torch else True


def _attention_formulas() -> dict[object, Callable[..., int]]:
    """Formulas for the kinds of attention that torch's counter does not count."""
    found = (getattr(torch.ops.aten, f"_scaled_dot_product_{name}", None) for name in _ATTENTIONS)
    return {one: _attention for one in found if one is not None}


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **__: object
) -> int:
    *batch, length, width = query.shape
    pairs = length * key.shape[-2]
    for size in batch:
        pairs *= size
    return 2 * pairs * (width + value.shape[-1])


@contextmanager
def _unfused(model: nn.Module) -> Iterator[None]:
    """Run fused layers and compiled modules operation by operation."""
    is_fast: bool = torch.backends.mha.get_fastpath_enabled()
    with warnings.catch_warnings(), ExitStack() as stack:
        # The module hooks of torch's counter cause this warning for compiled modules.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)`")
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(torch.backends.mha.set_fastpath_enabled, is_fast)
        torch.backends.mha.set_fastpath_enabled(False)
        if any(isinstance(module, nn.RNNBase) for module in model.modules()):
            # The public flags would change other settings too.
            stack.callback(torch._C._set_cudnn_enabled, torch._C._get_cudnn_enabled())
            stack.callback(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled())
            torch._C._set_cudnn_enabled(False)
            torch._C._set_mkldnn_enabled(False)
        yield
