"""Tests of the mean over all elements."""

from __future__ import annotations

import math

import pytest
import torch

from epochal.components.metrics.mean import Mean
from epochal.errors import ConfigError, TaskError


def test_every_element_has_the_same_weight() -> None:
    metric = Mean(of="out.x")
    metric.reset()
    for values in ([1.0], [2.0, 3.0, 6.0]):
        metric.update({"x": torch.tensor(values)}, None)
    assert metric.compute() == 3.0


def test_integer_tensors_of_batches_are_averaged() -> None:
    metric = Mean(of="batch.length")
    metric.update({}, {"length": torch.tensor([1, 2])})
    assert metric.compute() == 1.5


def test_long_sums_are_exact() -> None:
    metric = Mean(of="out.x")
    metric.update({"x": torch.full((1,), 2.0**24)}, None)
    for _ in range(3):
        metric.update({"x": torch.ones(1)}, None)
    assert metric.compute() == (2**24 + 3) / 4


def test_reset_forgets_and_nothing_gives_not_a_number() -> None:
    metric = Mean(of="out.x")
    metric.update({"x": torch.ones(3)}, None)
    metric.reset()
    assert math.isnan(metric.compute())


def test_a_tensor_must_be_in_the_output_or_the_batch() -> None:
    for of in ("x", "output.x", "out.", "out", ""):
        with pytest.raises(ConfigError, match=r"metrics\.of: must be out\.<name> or batch\.<name>"):
            Mean(of=of)


def test_a_value_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(TaskError, match="mean: 'x' in the output is a str, not a tensor"):
        Mean(of="out.x").update({"x": "text"}, None)
