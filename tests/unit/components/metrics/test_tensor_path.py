"""Tests of finding tensors by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from epochal.components.metrics.tensor_path import get_tensor_by_path
from epochal.errors import TaskError

TENSOR = torch.ones(2)


def test_tensors_are_found_by_keys_attributes_and_positions() -> None:
    for source, path in (
        ({"x": TENSOR}, "x"),
        ({"a": {"x": TENSOR}}, "a.x"),
        ((None, TENSOR), "1"),
        ([{"x": TENSOR}], "0.x"),
        (SimpleNamespace(x=TENSOR), "x"),
        ({"a": SimpleNamespace(x=[TENSOR])}, "a.x.0"),
    ):
        assert get_tensor_by_path(source, path, reader="mean", of="the batch") is TENSOR


def test_a_missing_name_lists_the_known_ones() -> None:
    for source, path, hint in (
        ({"labels": TENSOR}, "label", "did you mean 'labels'"),
        ((TENSOR,), "1", "known: 0"),
        (SimpleNamespace(image=TENSOR), "imgae", "did you mean 'image'"),
        (3, "x", "name a key, an attribute or a position"),
    ):
        with pytest.raises(TaskError, match=rf"mean: no '{path}' in the batch(.|\n)*{hint}"):
            get_tensor_by_path(source, path, reader="mean", of="the batch")
