"""Tests of finding what weight decay leaves alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import nn

from epochal.engine.optim.param_groups import find_no_decay
from epochal.engine.optim.select_parameters import ParameterSelector

if TYPE_CHECKING:
    import pytest


def undecayed(model: nn.Module) -> set[str]:
    return find_no_decay(model, ParameterSelector(model))


def test_biases_vectors_and_norms_are_found() -> None:
    model = nn.ModuleDict(
        {
            "conv": nn.Conv2d(1, 2, 3),
            "batch": nn.BatchNorm2d(2),
            "layer": nn.LayerNorm((2, 3)),
            "attention": nn.MultiheadAttention(4, 2),
            "embed": nn.Embedding(3, 2),
        }
    )
    assert undecayed(model) == {
        "conv.bias",
        "batch.weight",
        "batch.bias",
        "layer.weight",
        "layer.bias",
        "attention.in_proj_bias",
        "attention.out_proj.bias",
    }


def test_the_whole_model_can_be_a_norm() -> None:
    assert undecayed(nn.LayerNorm((2, 3))) == {"weight", "bias"}


def test_uninitialized_biases_are_found_by_name() -> None:
    assert undecayed(nn.LazyLinear(2)) == {"bias"}


class Declaring(nn.Module):
    """Declares parameters of its own and of its parts."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(2, 2))
        self.inner = nn.Linear(2, 2, bias=False)
        self.names = names

    def no_decay(self) -> tuple[str, ...]:
        return self.names


def test_modules_declare_parameters_without_decay() -> None:
    model = nn.ModuleDict({"a": Declaring("scale", "inner"), "b": Declaring("inner.*")})
    assert undecayed(model) == {"a.scale", "a.inner.weight", "b.inner.weight"}


def test_a_declared_name_that_matches_nothing_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert undecayed(nn.ModuleDict({"a": Declaring("scal")})) == set()
    assert "Declaring.no_decay of a names 'scal', which is not one of its" in caplog.text


def test_a_module_called_no_decay_declares_nothing() -> None:
    assert undecayed(nn.ModuleDict({"no_decay": nn.Linear(2, 2, bias=False)})) == set()
