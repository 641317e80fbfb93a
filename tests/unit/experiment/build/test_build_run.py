"""Tests of how the parts of a run are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

import epochal as ep
from looking import look

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.experiment.build.builder import Assembly


class Own(ep.Experiment):
    """Builds its optimizer itself."""

    @override
    def build_optimizer(self, assembly: Any, model: torch.nn.Module) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1), None


def test_only_an_optimizer_of_the_config_can_be_rebuilt(shop: Path) -> None:
    assert look(lambda run: run.make_optimizer is not None)
    assert not look(lambda run: run.make_optimizer is not None, kind=Own)


def test_a_run_has_one_stage_unless_the_config_says_more(shop: Path) -> None:
    assert look(lambda run: [one.name for one in run.stage_progress.stages]) == ["main"]
    assert look(lambda run: str(run.stage_progress.stage.length)) == "1ep"  # as --fast has it


class Curious(ep.Experiment):
    """Keeps the assembly that its steps receive."""

    seen: Assembly

    def build_hooks(self, assembly: Assembly) -> list[object]:
        self.seen = assembly
        return super().build_hooks(assembly)


def assembly_of(*overrides: str) -> Assembly:
    choices = {"no_file": True, "fast": True, "device": "cpu"}
    experiment = Curious("config.yaml", overrides=overrides, choices=choices)  # type: ignore[arg-type]
    assert experiment.fit().ok
    return experiment.seen


def test_steps_see_the_config_with_every_default(shop: Path) -> None:
    assembly = assembly_of("seed=4")
    assert assembly.args.optim.momentum == 0.9
    assert assembly.args.model.dropout == 0.1
    assert assembly.seed == 4
    assert str(assembly.device) == "cpu"
    assert assembly.source == "config.yaml"
    assert assembly.num_defaults > 10


def test_sections_are_specs_options_or_missing(shop: Path) -> None:
    assembly = assembly_of()
    assert assembly.spec("schedule") is None
    spec = assembly.spec("model")
    assert spec is not None
    assert spec.factory.dotted == "shop.parts.Net"
    options = assembly.options("train")
    assert str(options["for_"]) == "1ep"
    assert options["limit_batches"] == 3
    assert assembly.written is not None
    assert "dropout" not in assembly.written.to_plain()["model"]
