"""Tests of the check that tensors are finite."""

from __future__ import annotations

import math

import torch

from epochal.checkpoint.finite import are_finite

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


def test_one_bad_value_is_found_wherever_it_is() -> None:
    for dtype in FLOATS:
        for bad in (math.nan, math.inf, -math.inf):
            for place in (0, 63, 64, 999):
                values = torch.ones(1000, dtype=dtype)
                values[place] = bad
                assert not are_finite([torch.ones(3), values]), (dtype, bad, place)


def test_large_values_are_finite() -> None:
    for dtype in FLOATS:
        largest = torch.full((9,), torch.finfo(dtype).max, dtype=dtype)
        assert are_finite([largest, largest, -largest]), dtype


def test_tensors_without_such_values_are_finite() -> None:
    assert are_finite([])
    assert are_finite([torch.zeros(0), torch.arange(3), torch.tensor(True)])
    assert are_finite([torch.ones(2).to(torch.float8_e4m3fn)])
