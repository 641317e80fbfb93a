from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import epochal as ep
from epochal.errors import ConfigError
from epochal.testing import TinyTask

if TYPE_CHECKING:
    from pathlib import Path


def linear(inputs: int, outputs: int) -> dict[str, Any]:
    return {"type": "torch.nn.Linear", "in_features": inputs, "out_features": outputs}


BLOCK = {"type": "torch.nn.Sequential", "args": [linear(8, 8), {"type": "torch.nn.Tanh"}]}
MODEL = {
    "type": "torch.nn.Sequential",
    "args": [linear(4, 8), {"type": "torch.nn.ReLU"}, BLOCK, linear(8, 3)],
}


def test_model_is_built_from_nested_parts() -> None:
    model = ep.build(MODEL)
    assert [type(part) for part in model] == [nn.Linear, nn.ReLU, nn.Sequential, nn.Linear]
    assert [type(part) for part in model[2]] == [nn.Linear, nn.Tanh]
    assert model(torch.zeros(2, 4)).shape == (2, 3)


def test_single_part_needs_no_list() -> None:
    model = ep.build({"type": "torch.nn.Sequential", "args": linear(4, 3)})
    assert [type(part) for part in model] == [nn.Linear]


def test_assembled_model_is_trained(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = ep.Experiment(
        {"model": MODEL, "optim": {"type": "SGD", "lr": 0.1}, "train": {"for": "2ep"}},
        task=TinyTask(),
        choices={"device": "cpu", "no_file": True, "raise_errors": True},
    )
    result = experiment.run()
    assert (result.status, result.epochs) == ("finished", 2)


def test_tensors_of_a_dataset_are_values_by_position() -> None:
    parts = {"type": "torch.utils.data.ConcatDataset", "datasets": [[1, 2], [3]]}
    assert list(ep.build(parts)) == [1, 2, 3]
    assert list(ep.build({"type": "torch.utils.data.StackDataset", "args": [[1, 2], [3, 4]]})) == [
        (1, 3),
        (2, 4),
    ]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (linear(4, 3), None),
        (3, "expected a list, got 3"),
        ([linear(4, 3) | {"bais": True}], "unknown argument 'bais'"),
    ],
)
def test_wrong_parts_are_found_before_anything_is_built(args: Any, what: str | None) -> None:
    model = {"type": "torch.nn.Sequential", "args": args}
    experiment = ep.Experiment({"model": model, "optim": "SGD"}, task=TinyTask())
    problems = [problem.what for problem in experiment.check().problems]
    if what is None:
        assert problems == []
    else:
        assert len(problems) == 1
        assert what in problems[0]


def test_parts_that_are_unknown_are_named_with_their_place_in_the_list() -> None:
    with pytest.raises(ConfigError, match=r"component\.args\.0\.type: .*'torch\.nn\.Reul'"):
        ep.build({"type": "torch.nn.Sequential", "args": [{"type": "torch.nn.Reul"}]})
