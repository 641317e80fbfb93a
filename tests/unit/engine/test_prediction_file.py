"""Tests of files of predictions."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from epochal.engine.prediction_file import PredictionFile
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def lines_of(tmp_path: Path, value: object) -> list[object]:
    file = PredictionFile(tmp_path / "predictions.jsonl", {})
    for name, batches in value.items() if isinstance(value, dict) else (("", value),):
        for batch in batches:
            file.add(name, batch)
    file.close(is_whole=True)
    lines = [json.loads(line) for line in file.path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == file.rows
    assert list(tmp_path.iterdir()) == [file.path]
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


def test_a_file_that_is_being_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    first = PredictionFile(path, {})
    first.add("", ["one"])
    with pytest.raises(ConfigError, match=r"another process is writing predictions to 'p\.jsonl'"):
        PredictionFile(path, {})
    first.close(is_whole=False)
    second = PredictionFile(path, {})
    assert second.rows == 1
    second.close(is_whole=True)
    assert path.read_text() == '"one"\n'


def test_texts_are_written(tmp_path: Path) -> None:
    assert lines_of(tmp_path, [["größer", "kleiner"], "one"]) == ["größer", "kleiner", "one"]


def test_no_predictions_give_an_empty_file(tmp_path: Path) -> None:
    assert lines_of(tmp_path, []) == []
    assert lines_of(tmp_path, [None]) == [None]


def test_infinite_numbers_are_valid_json(tmp_path: Path) -> None:
    lines_of(tmp_path, [torch.tensor([float("nan"), float("inf")])])
    assert (tmp_path / "predictions.jsonl").read_text() == '"$nan"\n"$inf"\n'


def test_a_file_continues_after_what_was_surely_written(tmp_path: Path) -> None:
    first = PredictionFile(tmp_path / "p.jsonl", {"weights": "a"})
    first.add("", torch.tensor([1, 2]))
    first.save_progress()
    first.add("", torch.tensor([3]))  # the process is killed before this is synced
    os.close(first._lock)  # as the system does
    again = PredictionFile(tmp_path / "p.jsonl", {"weights": "a"})
    assert (again.count_batches(""), again.rows) == (1, 2)
    again.add("", torch.tensor([3]))
    again.close(is_whole=True)
    assert again.path.read_text() == "1\n2\n3\n"


def test_predictions_of_other_weights_start_from_the_beginning(tmp_path: Path) -> None:
    first = PredictionFile(tmp_path / "p.jsonl", {"weights": "a"})
    first.add("", torch.tensor([1, 2]))
    first.close(is_whole=False)
    again = PredictionFile(tmp_path / "p.jsonl", {"weights": "b"})
    assert (again.count_batches(""), again.rows) == (0, 0)
    again.add("", torch.tensor([5]))
    again.close(is_whole=True)
    assert again.path.read_text() == "5\n"


def test_a_parquet_file_has_the_rows_as_columns(tmp_path: Path) -> None:
    from pyarrow import parquet

    file = PredictionFile(tmp_path / "p.parquet", {})
    file.add("", {"id": [0, 1], "score": torch.tensor([0.5, 1.5])})
    file.close(is_whole=True)
    assert parquet.read_table(file.path).to_pydict() == {"id": [0, 1], "score": [0.5, 1.5]}
    assert list(tmp_path.iterdir()) == [file.path]
