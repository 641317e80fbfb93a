"""Tests of the way from an experiment to a run: what is built, and what is noted of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

import epochal as ep
from epochal.hooks.console import Console
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from pathlib import Path


class Look(ep.Hook):
    """Keeps what it saw of a run."""

    def run_start(self, run: ep.Run) -> None:
        self.hooks = [type(hook).__name__ for hook in run.events.hooks]
        self.optimizer = run.optimizer
        self.accumulate = run.options.optim.accumulate


def observed(result: ep.RunResult) -> dict[str, Any]:
    assert result.ok, result.message
    assert result.dir is not None
    (file,) = (result.dir / "config").glob("observed*")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def given(result: ep.RunResult) -> list[str]:
    assert result.dir is not None
    found: list[str] = json.loads((result.dir / "run.json").read_text()).get("given", [])
    return found


SEVERAL = {
    "matrix": {"type": "SGD", "lr": 0.1, "match": "linear.weight"},
    "rest": {"type": "AdamW", "schedule": {"type": "linear"}},
    "accumulate": 2,
}


def test_parts_of_the_config_are_noted_with_what_they_received(shop: Path) -> None:
    result = ep.run("config.yaml", device="cpu", fast=True)
    assert observed(result)["optim"]["arguments"]["lr"] == 0.05
    assert given(result) == []


def test_several_optimizers_of_the_config_are_parts_of_the_config(shop: Path) -> None:
    look = Look()
    experiment = ep.Experiment(
        task=TinyTask(),
        model=TinyModel(),
        optim=SEVERAL,
        hooks=[look],
        choices={"device": "cpu", "fast": True},
    )
    result = experiment.fit()
    assert {"optim.matrix", "optim.rest", "optim.rest.schedule"} <= observed(result).keys()
    assert set(given(result)) == {"task", "model", "hooks"}
    assert look.accumulate == 2


def test_objects_are_noted_as_given(shop: Path) -> None:
    model = TinyModel()
    experiment = ep.Experiment(
        task=TinyTask(),
        model=model,
        optim=torch.optim.SGD(model.parameters(), lr=0.1),
        choices={"device": "cpu", "fast": True},
    )
    assert set(given(experiment.fit())) == {"task", "model", "optim"}


def test_a_hook_of_a_kind_that_every_run_has_takes_its_place(shop: Path) -> None:
    look = Look()
    choices = {"device": "cpu", "fast": True, "no_file": True}
    ep.Experiment("config.yaml", hooks=[look, Console()], choices=choices).fit()
    assert look.hooks.count("Console") == 1


@pytest.mark.parametrize(("runner", "is_built"), [("train", True), ("test", False)])
def test_an_optimizer_is_built_to_train_only(shop: Path, runner: str, is_built: bool) -> None:
    look = Look()
    choices = {"device": "cpu", "fast": True, "no_file": True}
    result = ep.Experiment("config.yaml", hooks=[look], choices=choices).run(runner)
    assert result.ok, result.message
    assert (look.optimizer is not None) is is_built
