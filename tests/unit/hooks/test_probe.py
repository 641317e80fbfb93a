"""Tests of probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import epochal as ep
from epochal.engine.interfaces.run import ignore_probe
from epochal.errors import TaskError
from epochal.hooks.probe import Probe
from epochal.records.folder.media import read_media
from epochal.records.metrics.points import read_metric_points
from epochal.testing import (
    HookConformance,
    TinyModel,
    TinyTask,
    execute_run,
    short_options,
    tiny_run,
)

if TYPE_CHECKING:
    from pathlib import Path

VALUES = {
    "number": 0.5,
    "one": torch.tensor(2.0),
    "spread": torch.randn(100),
    "picture": torch.rand(3, 16, 16),
    "note": "a text",
    "rows": [{"a": 1, "b": torch.tensor(2)}, {"a": 3, "b": 4}],
    "columns": {"a": torch.tensor([1, 2]), "b": ["x", "y"]},
}


class TestProbe(HookConformance):
    def make(self) -> Probe:
        return Probe(every="2st", watch=["linear.*"], modules=["linear"])


class Probing(TinyTask):
    def batch_forward(self, model: nn.Module, batch: dict[str, torch.Tensor]):
        run = ep.current_run()
        if run.split == "train":
            for name, value in VALUES.items():
                run.probe(name, value)
            run.probe("attention", torch.rand(2, 4, 4, 5), "attention")
            run.probe("clip", torch.rand(5, 3, 8, 8), "video")
        return super().batch_forward(model, batch)


class Spoken(TinyModel):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ep.probe("inputs", x)
        return super().forward(x)


def make_run(tmp_path: Path, hook: Probe, task: object = None, model: nn.Module | None = None):
    from epochal.engine import Environment
    from epochal.records.folder.folder import RunFolder
    from epochal.records.folder.writer import RunWriter

    writer = RunWriter(RunFolder(tmp_path))
    return tiny_run(
        hook,
        task=task,
        model=model,
        options=short_options(for_="5st", eval_every="4st"),
        setting=Environment(writer=writer, dir=tmp_path),
    )


def test_values_of_every_kind_are_recorded_in_the_chosen_steps(tmp_path: Path) -> None:
    execute_run(make_run(tmp_path, Probe(every="2st"), Probing()))
    found = {(one.name, one.kind): one for one in read_media(tmp_path)}
    steps = {one.step for one in read_media(tmp_path)}
    assert steps == {1, 3, 5}
    for name, kind in (
        ("spread", "histogram"),
        ("picture", "image"),
        ("note", "text"),
        ("rows", "table"),
        ("columns", "table"),
        ("attention", "attention"),
        ("clip", "video"),
    ):
        assert (f"train/probe/{name}", kind) in found, name
    rows = [*found["train/probe/rows", "table"].iter_rows()]
    assert rows == [["a", "b"], ["1", "2"], ["3", "4"]]
    points = read_metric_points(tmp_path)
    assert list(points.series("train/probe/number")[0]) == [1, 3, 5]
    assert list(points.series("train/probe/one")[1]) == [2.0] * 3


def test_weights_gradients_and_outputs_are_found_by_pattern(tmp_path: Path) -> None:
    probe = Probe(every="4st", watch=["*.weight"], modules=["linear"])
    execute_run(make_run(tmp_path, probe, model=Spoken()))
    names = {(one.name, one.step) for one in read_media(tmp_path)}
    expected = {"weights/linear.weight", "gradients/linear.weight", "outputs/linear", "inputs"}
    assert {name for name, step in names if step == 5} == {f"train/probe/{n}" for n in expected}
    assert {name for name, step in names if name.startswith("val/")} == {
        "val/probe/inputs",
        "val/probe/outputs/linear",
    }


def test_unknown_patterns_and_kinds_are_refused(tmp_path: Path) -> None:
    for probe, hint in (
        (Probe(watch=["linea.*"]), "did you mean 'linear.bias'?"),
        (Probe(modules=["encoder"]), "known: dropout, linear"),
    ):
        with pytest.raises(TaskError, match=r"Probe\.\w+: nothing is called") as caught:
            execute_run(make_run(tmp_path, probe))
        assert hint in str(caught.value)

    class Wrong(TinyTask):
        def batch_forward(self, model, batch):
            ep.probe("x", 1.0, "scaler")
            return super().batch_forward(model, batch)

    with pytest.raises(TaskError, match="unknown kind 'scaler' of 'x'\n  did you mean 'scalar'"):
        execute_run(make_run(tmp_path, Probe(), Wrong()))


def test_probes_are_ignored_outside_of_chosen_steps_and_runs(tmp_path: Path) -> None:
    seen = []

    class Looking(TinyTask):
        def batch_forward(self, model, batch):
            seen.append(ep.current_run().probe is ignore_probe)
            return super().batch_forward(model, batch)

    ep.probe("without a run", 1.0)
    execute_run(tiny_run(task=Looking()))
    assert all(seen)
    seen.clear()
    run = make_run(tmp_path, Probe(every="3st"), Looking())
    execute_run(run)
    assert run.probe is ignore_probe
    assert seen.count(False) < len(seen) / 2


def test_models_with_probes_compile_without_them() -> None:
    model = torch.compile(Spoken(), backend="eager", fullgraph=True)
    assert model(torch.zeros(2, 4)).shape == (2, 3)
