"""Tests of how the parts of a run are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

import epochal as ep

if TYPE_CHECKING:
    from pathlib import Path


class Look(ep.Hook):
    """Keeps what a function finds in the assembled run."""

    def __init__(self, look: Any) -> None:
        self.look = look

    def run_start(self, run: ep.Run) -> None:
        self.found = self.look(run)


def look(find: Any, kind: type[ep.Experiment] = ep.Experiment, **sections: Any) -> Any:
    hook = Look(find)
    choices = {"no_file": True, "fast": True, "device": "cpu"}
    result = kind("config.yaml", choices=choices, hooks=[hook], **sections).fit()
    assert result.ok, result.traceback
    return hook.found


class Own(ep.Experiment):
    """Builds its optimizer itself."""

    @override
    def build_optimizer(self, assembly: Any, model: torch.nn.Module) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1), None


def test_only_an_optimizer_of_the_config_can_be_made_anew(shop: Path) -> None:
    assert look(lambda run: run.make_optimizer is not None)
    assert not look(lambda run: run.make_optimizer is not None, Own)


def test_a_run_has_one_stage_unless_the_config_says_more(shop: Path) -> None:
    assert look(lambda run: [one.name for one in run.course.stages]) == ["main"]
    assert look(lambda run: str(run.course.stage.length)) == "1ep"  # as --fast has it
