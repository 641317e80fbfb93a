"""Tests of plain files with the model's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from epochal.checkpoint import load_weights
from epochal.components.average import Ema
from epochal.engine import Environment, Parts
from epochal.engine.create_run import create_run
from epochal.errors import ConfigError
from epochal.hooks.safetensors_export import SafetensorsExport
from epochal.testing import HookConformance, TinyModel, TinyTask, execute_run, short_options

if TYPE_CHECKING:
    from pathlib import Path


def export(
    folder: Path | None, hook: SafetensorsExport, *, average: Ema | None = None
) -> torch.nn.Module:
    model = TinyModel()
    parts = Parts(
        task=TinyTask(num_samples=12),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        hooks=(hook,),
        average=average,
    )
    execute_run(create_run(parts, short_options(), Environment(tag="tiny", dir=folder)))
    return model


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "safetensors").iterdir())


def test_a_file_is_written_after_each_epoch(tmp_path: Path) -> None:
    model = export(tmp_path, SafetensorsExport())
    assert names_in(tmp_path) == ["tiny-3.safetensors", "tiny-6.safetensors"]
    written = load_weights(tmp_path / "safetensors" / "tiny-6.safetensors")
    assert all(torch.equal(written[name], one) for name, one in model.state_dict().items())


def test_period_and_name_can_be_set_and_old_files_are_deleted(tmp_path: Path) -> None:
    hook = SafetensorsExport(name="ldm_step{step:03d}", keep=2)
    hook.every = "1st"
    export(tmp_path, hook)
    assert names_in(tmp_path) == ["ldm_step005.safetensors", "ldm_step006.safetensors"]


def test_averaged_weights_can_be_written_instead(tmp_path: Path) -> None:
    average = Ema(decay=0.5)
    model = export(tmp_path, SafetensorsExport(averaged=True), average=average)
    written = load_weights(tmp_path / "safetensors" / "tiny-6.safetensors")
    assert not torch.equal(written["linear.weight"], model.linear.weight)
    assert torch.equal(written["linear.weight"], average.state_tensors()["linear.weight"])


def test_a_run_without_a_folder_writes_nothing(tmp_path: Path) -> None:
    export(None, SafetensorsExport())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "same"}, r"SafetensorsExport\.name: gives every checkpoint the same name"),
        ({"keep": 0}, r"SafetensorsExport\.keep: must be at least 1, got 0"),
    ],
)
def test_invalid_arguments_are_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SafetensorsExport(**arguments)


class TestConformance(HookConformance):
    def make(self) -> SafetensorsExport:
        return SafetensorsExport()
