"""Tests of building optimizers and schedules, through the runs that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import epochal as ep
from epochal.testing import TinyModel

if TYPE_CHECKING:
    from pathlib import Path


class Look(ep.Hook):
    """Keeps what a function finds in the assembled run."""

    def __init__(self, look: Any) -> None:
        self.look = look

    def run_start(self, run: ep.Run) -> None:
        self.found = self.look(run)


def look(find: Any, *overrides: str, **sections: Any) -> Any:
    hook = Look(find)
    choices = {"no_file": True, "fast": True, "device": "cpu"} | sections.pop("choices", {})
    experiment = ep.Experiment(
        "config.yaml", overrides=overrides, choices=choices, hooks=[hook], **sections
    )
    result = experiment.fit()
    assert result.ok, result.traceback
    return hook.found


def test_frozen_parameters_are_not_given_to_the_optimizer(shop: Path) -> None:
    model = TinyModel()
    model.linear.bias.requires_grad_(requires_grad=False)
    found = look(
        lambda run: [p.shape for p in run.optimizer.param_groups[0]["params"]],
        "model=$delete",
        model=model,
    )
    assert found == [torch.Size([3, 4])]


@pytest.mark.parametrize(
    "schedule",
    [
        "{type: cosine, warmup: 2st}",
        "{type: StepLR, step_size: 1, gamma: 0.5, unit: epoch}",
        "{type: constant}",
    ],
)
def test_schedules_of_ours_and_of_torch_can_be_named(shop: Path, schedule: str) -> None:
    assert look(lambda run: run.schedule is not None, f"schedule={schedule}")


def test_no_schedule_is_built_unless_asked_for(shop: Path) -> None:
    assert look(lambda run: run.schedule) is None
