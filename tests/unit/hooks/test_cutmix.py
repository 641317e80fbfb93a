from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epochal.engine import Run
from epochal.engine.parts import Parts
from epochal.errors import TaskError
from epochal.hooks.mixing import CutMix
from epochal.testing import TinyTask, carry_out, short_options


def test_a_rectangle_of_the_previous_sample_is_pasted_and_shares_are_areas() -> None:
    torch.manual_seed(0)
    images = torch.stack([torch.full((2, 8, 8), float(one)) for one in range(4)])
    for share in (0.1, 0.5, 0.9):
        mixed, kept = CutMix().mix(images, torch.tensor(share))
        pasted = mixed[1, 0] == 0  # of sample 0, which is before 1
        assert torch.equal(mixed[1, 0] == 1, ~pasted)
        assert kept.item() == pytest.approx(1 - pasted.float().mean().item())
        rows, columns = pasted.any(1), pasted.any(0)
        assert torch.equal(pasted, rows.unsqueeze(1) & columns)
        for side in (rows, columns):
            inside = side.nonzero().flatten()
            assert len(inside) == 0 or int(inside[-1] - inside[0]) + 1 == len(inside)
        assert torch.equal(mixed[:, 0], mixed[:, 1])


def test_a_share_of_one_changes_nothing() -> None:
    images = torch.randn(4, 1, 8, 8)
    mixed, kept = CutMix().mix(images, torch.tensor(1.0))
    assert torch.equal(mixed, images)
    assert kept == 1


def test_areas_match_the_drawn_shares_on_average() -> None:
    torch.manual_seed(0)
    images = torch.randn(1, 1, 64, 64)
    inner = [float(CutMix().mix(images, torch.tensor(0.96))[1]) for _ in range(400)]
    assert sum(inner) / 400 == pytest.approx(0.96, abs=0.01)  # few meet the border


def test_inputs_that_are_not_images_are_an_error() -> None:
    with pytest.raises(TaskError, match=r"CutMix: needs images .*, got shape \(4, 3\)"):
        CutMix().mix(torch.zeros(4, 3), torch.tensor(0.5))


class Squares(TinyTask):
    def pre_batch_forward(self, batch: Any) -> Any:
        return {**batch, "x": batch["x"].reshape(-1, 1, 2, 2)}


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


def test_a_run_trains_and_the_methods_of_the_task_are_restored() -> None:
    model, task = Flat(), Squares()
    parts = Parts(
        task=task,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        hooks=(CutMix(classes=3), CutMix(classes=3, prob=0.5)),
    )
    assert carry_out(Run(parts, short_options())).ok
    assert "pre_batch_forward" not in vars(task)
