"""Tests of predictions as JSON lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import torch

from epochal.cli.verbs.predict import write_predictions

if TYPE_CHECKING:
    from pathlib import Path


def lines_of(tmp_path: Path, value: object) -> list[object]:
    path = tmp_path / "predictions.jsonl"
    count = write_predictions(path, value)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == count
    return lines


def test_outputs_of_batches_become_one_line_per_sample(tmp_path: Path) -> None:
    batches = [
        {"score": torch.tensor([1.0, 2.0]), "label": torch.tensor([0, 1])},
        {"score": torch.tensor([3.0]), "label": torch.tensor([2])},
    ]
    assert lines_of(tmp_path, batches) == [
        {"score": 1.0, "label": 0},
        {"score": 2.0, "label": 1},
        {"score": 3.0, "label": 2},
    ]


def test_tensors_and_arrays_are_split(tmp_path: Path) -> None:
    assert lines_of(tmp_path, [torch.tensor([[1, 2], [3, 4]]), np.array([[5, 6]])]) == [
        [1, 2],
        [3, 4],
        [5, 6],
    ]


def test_outputs_of_different_lengths_are_not_split(tmp_path: Path) -> None:
    batch = {"a": torch.tensor([1, 2]), "b": torch.tensor([1])}
    assert lines_of(tmp_path, [batch]) == [{"a": [1, 2], "b": [1]}]


def test_lines_of_named_loaders_have_the_name(tmp_path: Path) -> None:
    value = {"day": [{"x": torch.tensor([1])}], "night": [torch.tensor([2])]}
    assert lines_of(tmp_path, value) == [{"loader": "day", "x": 1}, ["night", 2]]


def test_texts_are_written(tmp_path: Path) -> None:
    assert lines_of(tmp_path, [["größer", "kleiner"], "one"]) == ["größer", "kleiner", "one"]


def test_no_predictions_give_an_empty_file(tmp_path: Path) -> None:
    assert lines_of(tmp_path, []) == []
    assert lines_of(tmp_path, None) == [None]


def test_infinite_numbers_are_valid_json(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.jsonl", [torch.tensor([float("nan"), float("inf")])])
    assert (tmp_path / "p.jsonl").read_text() == '"$nan"\n"$inf"\n'
