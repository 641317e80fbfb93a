"""Tests of comparing samples bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from epochal.engine.feed.seeded_dataset import are_bitwise_equal


@dataclass
class Sample:
    x: object
    y: int = 0


NAN = float("nan")
SAME: list[tuple[Any, Any]] = [
    (torch.ones(2, 3), torch.ones(2, 3)),
    (torch.tensor(NAN), torch.tensor(NAN)),
    (torch.zeros(0, 3), torch.zeros(0, 3)),
    (torch.ones(3, dtype=torch.complex64).conj(), torch.ones(3, dtype=torch.complex64).conj()),
    (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
    (np.array([1.0, NAN]), np.array([1.0, NAN])),
    (np.float32(1), np.float32(1)),
    (np.array([None, "a"], dtype=object), np.array([None, "a"], dtype=object)),
    (NAN, NAN),
    ({"a": [1, (2.0, "x", b"y", None, True)]}, {"a": [1, (2.0, "x", b"y", None, True)]}),
    (Sample(torch.ones(1)), Sample(torch.ones(1))),
    (object(), object()),
    ([], []),
]
OTHER: list[tuple[Any, Any]] = [
    (torch.zeros(2), torch.ones(2)),
    (torch.zeros(2), -torch.zeros(2)),
    (torch.zeros(2), torch.zeros(2, 1)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    (np.zeros(2), np.ones(2)),
    (np.zeros(2), np.zeros(3)),
    (np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int64)),
    (np.array([None, "a"], dtype=object), np.array([None, "b"], dtype=object)),
    (0.0, -0.0),
    (1, 1.0),
    ("a", "b"),
    ([1, 2], [1]),
    ([1], (1,)),
    ({"a": 1}, {"b": 1}),
    ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
    (Sample(1), Sample(1, y=2)),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_bits_are_the_same(one: Any, other: Any) -> None:
    assert are_bitwise_equal(one, other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_any_other_bit_is_noticed(one: Any, other: Any) -> None:
    assert not are_bitwise_equal(one, other)
