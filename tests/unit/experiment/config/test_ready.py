"""Tests of what is refused as a part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import epochal as ep
from epochal.errors import ConfigError
from epochal.experiment.config.inputs import check_given_part
from epochal.testing import TinyModel, TinyTask

ROWS = TensorDataset(torch.zeros(4, 2))


@pytest.mark.parametrize(
    ("sections", "what", "hint"),
    [
        ({"model": TinyModel}, "model: is the class 'TinyModel'", "model=TinyModel(...)"),
        ({"task": TinyTask}, "task: is the class 'TinyTask'", "task=TinyTask(...)"),
        (
            {"optim": torch.optim.AdamW},
            "optim: is the class 'AdamW'",
            "optim=AdamW(model.parameters(), lr=1e-3), or optim={'type': 'AdamW', 'lr': 1e-3}",
        ),
        ({"hooks": [ep.Hook]}, "hooks: is the class 'Hook'", "hooks=[Hook()]"),
        ({"model": object()}, "model: is no torch.nn.Module", "extends torch.nn.Module"),
        ({"data": ROWS}, "data: is not a mapping of splits", "data={'train': DataLoader("),
        ({"data": DataLoader(ROWS)}, "data: is not a mapping of splits", "data={'train': loader}"),
        (
            {"data": {"dev": ROWS}},
            "data.dev: is the dataset 'TensorDataset'",
            "{'dev': DataLoader(",
        ),
        (
            {"data": {"val": {"a": ROWS}}},
            "data.val: is the dataset 'TensorDataset'",
            "DataLoader(dataset, batch_size=32)",
        ),
    ],
)
def test_what_is_no_part_is_refused_with_what_to_write(
    sections: dict[str, Any], what: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ep.Experiment(**sections)
    assert what in str(caught.value)
    assert hint in str(caught.value)


def test_ready_parts_pass() -> None:
    check_given_part("model", TinyModel())
    check_given_part("data", {"train": DataLoader(ROWS), "val": {"a": [1, 2]}})


@pytest.mark.parametrize(
    ("made", "message"),
    [(None, "prepare_model: gave nothing"), (TinyModel, "prepare_model: is the class")],
)
def test_prepare_methods_are_held_to_it_too(
    made: object, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Own(ep.Experiment):
        @staticmethod
        def prepare_model(args: ep.Args) -> Any:
            return made

    result = Own(task=TinyTask(), optim={"type": "SGD"}, choices={"no_file": True}).fit()
    assert result.exit_code == 78
    assert message in result.message
    assert message in capsys.readouterr().err
