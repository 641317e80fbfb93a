"""Tests of how the parts of a run are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

import epochal as ep
from looking import look

if TYPE_CHECKING:
    from pathlib import Path


class Own(ep.Experiment):
    """Builds its optimizer itself."""

    @override
    def build_optimizer(self, assembly: Any, model: torch.nn.Module) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1), None


def test_only_an_optimizer_of_the_config_can_be_made_anew(shop: Path) -> None:
    assert look(lambda run: run.make_optimizer is not None)
    assert not look(lambda run: run.make_optimizer is not None, kind=Own)


def test_a_run_has_one_stage_unless_the_config_says_more(shop: Path) -> None:
    assert look(lambda run: [one.name for one in run.course.stages]) == ["main"]
    assert look(lambda run: str(run.course.stage.length)) == "1ep"  # as --fast has it
