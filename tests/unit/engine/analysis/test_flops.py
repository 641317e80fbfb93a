"""Tests of counting floating-point operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from epochal.engine.analysis.layers import Flops, count_flops


@torch.no_grad()
def count(model: nn.Module, *inputs: Tensor) -> Flops:
    return count_flops(lambda: model.eval()(*inputs), model)


class Function(nn.Module):
    """A model out of a function."""

    def __init__(self, function: object, *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def test_a_multiplication_and_an_addition_count_as_two() -> None:
    assert count(nn.Linear(3, 8), torch.zeros(1, 3)).total == 2 * 3 * 8


def test_each_module_includes_its_submodules() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 2)))
    assert count(model, torch.zeros(1, 3)).modules == {
        "": 80,
        "0": 48,
        "1": 32,
        "1.0": 0,
        "1.1": 32,
    }


def test_a_module_that_is_called_twice_has_both_calls() -> None:
    layer = nn.Linear(4, 4)
    found = count(nn.Sequential(layer, nn.ReLU(), layer), torch.zeros(1, 4))
    assert (found.total, found.modules["0"], found.calls["0"]) == (64, 64, 2)


def test_a_module_that_calls_itself_is_not_counted_twice() -> None:
    def shrink(model: Function, x: Tensor) -> Tensor:
        return model(model.layers[0](x)[:-1]) if len(x) else x

    found = count(Function(shrink, nn.Linear(4, 4)), torch.zeros(3, 4))
    assert (found.modules[""], found.calls[""]) == (found.total, 4)
    assert found.total == 32 * (3 + 2 + 1)


def test_attention_counts_on_every_device() -> None:
    model = Function(lambda _, x: scaled_dot_product_attention(x, x, x, is_causal=True))
    assert count(model, torch.zeros(1, 2, 8, 16)).total == 2 * (2 * 8 * 8) * (16 + 16)


def test_fused_transformer_layers_are_counted() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    found = count(
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.zeros(1, 5, 16)
    )
    per_layer = 2 * 5 * 16 * (3 * 16 + 16 + 2 * 32) + 2 * 5 * 5 * (16 + 16)
    assert found.total == 2 * per_layer
    assert torch.backends.mha.get_fastpath_enabled()


def test_recurrent_layers_are_counted() -> None:
    before = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    found = count(nn.LSTM(4, 8, batch_first=True), torch.zeros(1, 5, 4))
    assert found.total == 5 * 2 * (4 + 8) * 4 * 8
    assert (torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()) == before


def test_compiled_modules_count_as_written() -> None:
    model = torch.compile(nn.Sequential(nn.Linear(3, 8)), backend="eager")
    assert count(model, torch.zeros(1, 3)).total == 48


def test_heavy_operations_without_a_formula_are_named() -> None:
    model = Function(lambda _, x: torch.fft.fft(x).real + torch.lgamma(x) + torch.relu(x))
    found = count(model, torch.zeros(4, 4))
    assert (found.total, found.uncounted) == (0, ("aten._fft_r2c",))


def test_custom_operations_are_named() -> None:
    @torch.library.custom_op("epochal_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    found = count(Function(lambda _, x: double(x)), torch.zeros(2))
    assert found.uncounted == ("epochal_tests.double",)


def test_an_error_leaves_no_hook_behind() -> None:
    def fail(*_: object) -> Tensor:
        raise ValueError("torn")

    hooks = torch.nn.modules.module._global_forward_hooks
    with pytest.raises(ValueError, match="torn"):
        count(Function(fail), torch.zeros(1))
    assert not hooks
    assert torch.backends.mha.get_fastpath_enabled()
