"""Tests of what the build steps work with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import epochal as ep

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.experiment.build.assembly import Assembly


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


def test_spec_is_none_for_a_section_that_is_not_there(shop: Path) -> None:
    assembly = assembly_of()
    assert assembly.spec("schedule") is None
    spec = assembly.spec("model")
    assert spec is not None
    assert spec.factory.dotted == "shop.parts.Net"


def test_options_are_values_of_the_declared_types(shop: Path) -> None:
    options = assembly_of().options("train")
    assert str(options["for_"]) == "1ep"
    assert options["limit_batches"] == 3


def test_what_was_written_has_no_defaults(shop: Path) -> None:
    written = assembly_of().written
    assert written is not None
    assert "dropout" not in written.to_plain()["model"]
