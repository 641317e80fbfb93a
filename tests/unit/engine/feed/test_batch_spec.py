"""Tests of the first batch and what the task says about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from epochal.engine.feed.batch_spec import find_batch_problems
from epochal.engine.runner import Predict
from epochal.errors import DataError
from epochal.testing import TinyTask, execute_run, tiny_run


def test_a_batch_is_compared_with_its_spec() -> None:
    batch = {"image": torch.zeros(2, 3, 4, 4), "label": torch.tensor([0, 12])}
    good = {"image": {"shape": (None, 3, None, 4), "dtype": "torch.float32", "range": (0, 1)}}
    assert find_batch_problems(batch, good) == []
    wrong = {
        "image": {"dtype": "uint8"},
        "label": {"range": (0, 9), "shape": (None, 1), "shapes": ()},
        "mask": {},
    }
    problems = [
        "'image' is float32, expected uint8",
        "'label' has the shape (2), expected (any, 1)",
        "'label' is from 0 to 12, expected 0 to 9",
        "'label' has 'shapes' in batch_spec, expected shape, dtype or range",
        "'mask' is not in the batch, which has 'image', 'label'",
    ]
    assert find_batch_problems(batch, wrong) == problems
    assert find_batch_problems(batch, wrong, may_lack=True) == problems[:-1]


def test_dtypes_are_compared_by_name() -> None:
    for batch, dtype in (
        ([torch.ones(2)], torch.float32),
        ([torch.ones(2, dtype=torch.bfloat16)], "bfloat16"),
        ([np.ones(2, np.float32)], np.float32),
        ([np.ones(2, np.uint8)], np.dtype("uint8")),
        (torch.ones(2), "float32"),
    ):
        assert find_batch_problems(batch, {0: {"dtype": dtype}}) == [], dtype


def test_a_run_refuses_a_first_batch_that_does_not_fit() -> None:
    losses: list[object] = []
    for split, expected in (("train", "train_loader"), ("val", "val_loader")):
        task = TinyTask()
        loader = getattr(task, f"{split}_loader")
        names = list(next(iter(loader)))
        task.batch_spec = {names[0]: {"shape": (None, 77)}}
        task.batch_loss = lambda *parts: losses.append(parts)
        other = "val" if split == "train" else "train"
        setattr(task, f"{other}_loader", None if other == "val" else [])
        message = rf"{expected}: its first batch is not as task.batch_spec says\n  '{names[0]}' has"
        with pytest.raises(DataError, match=message):
            execute_run(tiny_run(task=task, monitor=None))
        assert not losses, split


def test_only_the_first_batch_of_a_loader_is_compared() -> None:
    task = TinyTask()
    name = next(iter(next(iter(task.train_loader))))
    batches = list(task.train_loader)
    task.train_loader, task.val_loader = batches, None
    task.batch_spec = {name: {"shape": tuple(batches[0][name].shape)}}
    assert execute_run(tiny_run(task=task, monitor=None)).ok


def test_data_to_predict_may_lack_entries() -> None:
    task = TinyTask()
    task.predict_loader = list(task.val_loader)
    task.batch_spec = {"label that is to be predicted": {}}
    assert execute_run(tiny_run(task=task, monitor=None), Predict()).ok
