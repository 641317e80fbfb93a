"""The layers of a model with their parameters and FLOPs, also as a table."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.flop_counter import FlopCounterMode
from typing_extensions import override

from epochal.engine.optim.select_parameters import is_uninitialized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# Names of torch operations that multiply; others are too cheap to count.
_COSTLY = re.compile(r"mm$|mv$|dot$|conv|fft|linalg|cdist|rnn|attention|transformer|trilinear")
_ATTENTIONS = (
    "flash_attention_for_cpu",
    "attention_math_for_mps",
    "fused_attention_overrideable",
)
_TORCH_NAMESPACES = ("aten.", "prim.", "prims.")
_MAX_NAME = 32
_SUMMED_FIELDS = ("parameters", "trained", "tied", "flops", "calls")  # numbers of a layer


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
    is_of_torch = name.startswith(_TORCH_NAMESPACES)
    return bool(_COSTLY.search(name.partition(".")[2])) if is_of_torch else True


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


@final
@dataclass(frozen=True)
class Layer:
    """A module with its submodules."""

    name: str
    """As in ``named_modules``; empty for the model itself."""

    kind: str
    parameters: int
    """Tied parameters count in the first layer that has them."""

    trained: int
    tied: int
    """Parameters that are shared with an earlier layer and count there."""

    flops: int
    calls: int
    """How often a forward pass calls it."""

    children: tuple[Layer, ...] = ()
    repeats: int = 1
    """How many equal layers in a row this one represents."""

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Layer]]:
        """This layer and all layers below it with their depths, in order."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


def find_layers(model: nn.Module, flops: Flops | None = None) -> Layer:
    """The model as a tree of layers; a module that occurs twice appears once."""
    return _find("", model, flops or Flops(0), set(), set())


def _find(name: str, module: nn.Module, flops: Flops, seen: set[int], modules: set[int]) -> Layer:
    modules.add(id(module))
    own = [
        _parameter(_dotted_name(name, key), parameter, seen)
        for key, parameter in module.named_parameters(recurse=False)
        if not is_uninitialized(parameter)
    ]
    below = [
        _find(_dotted_name(name, key), child, flops, seen, modules)
        for key, child in module.named_children()
        if id(child) not in modules
    ]
    return Layer(
        name=name,
        kind=type(module).__name__,
        parameters=sum(one.parameters for one in (*own, *below)),
        trained=sum(one.trained for one in (*own, *below)),
        tied=sum(one.tied for one in (*own, *below)),
        flops=flops.modules.get(name, 0) if name else flops.total,
        calls=flops.calls.get(name, 0),
        # Own parameters are listed beside sublayers, so that the children sum to the total.
        children=(*own, *below) if below else (),
    )


def _parameter(name: str, parameter: nn.Parameter, seen: set[int]) -> Layer:
    size = parameter.numel()
    if id(parameter) in seen:
        return Layer(name, "Parameter", parameters=0, trained=0, tied=size, flops=0, calls=0)
    seen.add(id(parameter))
    trained = size if parameter.requires_grad else 0
    return Layer(name, "Parameter", parameters=size, trained=trained, tied=0, flops=0, calls=0)


def _dotted_name(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def fold_layers(layer: Layer) -> Layer:
    """The tree without layers that have no parameters and FLOPs; equal layers in a row as one."""
    used = [fold_layers(one) for one in layer.children if one.parameters or one.flops or one.tied]
    groups = [list(group) for _, group in groupby(used, key=_layer_signature)]
    return replace(layer, children=tuple(map(_merge_equal, groups)))


def layer_lines(model: Layer, *, rows: int | None = None) -> list[str]:
    """A table of the layers below a model; ``rows`` folds it to about this many rows."""
    shown = model if rows is None else fold_layers(model)
    found = [(depth - 1, one) for depth, one in shown.walk() if depth]
    if rows is not None:
        depths = sorted({depth for depth, _ in found})
        fitting = [depth for depth in depths if sum(one <= depth for one, _ in found) <= rows]
        deepest = fitting[-1] if fitting else 0
        found = [(depth, one) for depth, one in found if depth <= deepest]
        found = [*found[:rows], *_sum_remaining(found[rows:])]
    header = ("layer", "kind", "parameters", "share", "FLOPs", "share")
    return _align(header, [_cells(depth, one, model) for depth, one in found])


def format_amount(amount: float, unit: str = "") -> str:
    """A large number with three digits: ``950``, ``1.23 k``, ``45.6 MB``."""
    for letter, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= size:
            return f"{_digits(amount / size)} {letter}{unit}"
    return f"{amount:.0f} {unit}".rstrip()


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _cells(depth: int, layer: Layer, model: Layer) -> tuple[str, ...]:
    name = layer.name.rpartition(".")[2]
    times = f" x {layer.repeats}" if layer.repeats > 1 else ""
    is_tied = layer.tied and not layer.parameters
    return (
        "  " * depth + name[:_MAX_NAME],
        layer.kind + times,
        "tied" if is_tied else f"{layer.parameters:,}",
        _percent(layer.parameters, model.parameters),
        format_amount(layer.flops),
        _percent(layer.flops, model.flops),
    )


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _sum_remaining(layers: Sequence[tuple[int, Layer]]) -> list[tuple[int, Layer]]:
    """One row that sums up the rows beyond the limit."""
    tops = [one for depth, one in layers if not depth]
    if not tops:
        return []
    sums = {name: sum(getattr(one, name) for one in tops) for name in _SUMMED_FIELDS}
    return [(0, Layer(f"{len(tops)} more", "", **sums))]


def _layer_signature(layer: Layer) -> tuple[object, ...]:
    """Equal for layers that differ only in their names, also in their children."""
    figures = [getattr(layer, name) for name in _SUMMED_FIELDS]
    return layer.kind, *figures, layer.repeats, tuple(map(_layer_signature, layer.children))


def _merge_equal(layers: Sequence[Layer]) -> Layer:
    """Equal layers as one."""
    first, count = layers[0], len(layers)
    totals = {name: getattr(first, name) * count for name in (*_SUMMED_FIELDS, "repeats")}
    children = tuple(map(_merge_equal, zip(*(one.children for one in layers), strict=True)))
    return replace(first, name=_span(first.name, layers[-1].name), children=children, **totals)


def _span(first: str, last: str) -> str:
    """The name of a row of layers: ``blocks.0-11``, ``blocks.0-11.norm``, ``left-right``."""
    pairs = zip(first.split("."), last.split("."), strict=True)
    return ".".join(one if one == other else f"{one}-{other}" for one, other in pairs)


def _align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Table lines with names and kinds aligned left, and numbers aligned right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return [
        "  ".join(
            f"{cell:<{width}}" if index < 2 else f"{cell:>{width}}"
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]
