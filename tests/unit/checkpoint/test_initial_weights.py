"""Tests of the first weights of a model."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from epochal.checkpoint import save_weights
from epochal.checkpoint.checkpoint_folder import write_checkpoint
from epochal.checkpoint.weights import (
    AVERAGED_WEIGHTS_FILE,
    FINAL_WEIGHTS_FILE,
    init_weights,
    load_weights_from,
)
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def make(fill: float = 0.0, *, head: int = 2) -> nn.Sequential:
    model = nn.Sequential()
    model.add_module("body", nn.Linear(3, 4))
    model.add_module("head", nn.Linear(4, head))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(fill)
    return model


def write_state(folder: Path, name: str, step: int, *, average: float | None = None) -> Path:
    state: dict[str, object] = {"model": {"weights": dict(make(step).state_dict())}}
    if average is not None:
        state["average"] = dict(make(average).named_parameters())
    return write_checkpoint(folder, name, state, {"step": step}).path


def value_of(found: tuple[dict[str, Tensor], Path]) -> float:
    return float(found[0]["body.weight"][0, 0])


def test_file_with_weights_is_read(tmp_path: Path) -> None:
    save_weights(tmp_path / "a.safetensors", make(5))
    model = make()
    mismatch = init_weights(model, tmp_path / "a.safetensors")
    assert (mismatch.missing, mismatch.unexpected) == ((), ())
    assert float(model.get_parameter("head.bias").detach()[0]) == 5


def test_a_checkpoint_gives_its_weights_or_averaged_weights(tmp_path: Path) -> None:
    path = write_state(tmp_path, "a", 1, average=7)
    assert value_of(load_weights_from(path)) == 1
    assert value_of(load_weights_from(path, try_ema=True)) == 7
    assert load_weights_from(path)[1] == path


def test_averages_replace_tied_weights_under_all_their_names(tmp_path: Path) -> None:
    def make_tied(fill: float) -> nn.Sequential:
        model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
        model[1].weight = model[0].weight
        nn.init.constant_(model[0].weight, fill)
        return model

    state = {
        "model": {"weights": dict(make_tied(1).state_dict())},
        "average": dict(make_tied(7).named_parameters()),
    }
    path = write_checkpoint(tmp_path, "a", state, {"step": 1}).path
    for try_ema, value in ((False, 1), (True, 7)):
        model = make_tied(0)
        init_weights(model, path, try_ema=try_ema)
        assert float(model.get_parameter("1.weight").detach()[0, 0]) == value, try_ema
        model.load_state_dict(load_weights_from(path, try_ema=try_ema)[0], strict=True)


def test_a_run_gives_its_final_weights_or_its_newest_undamaged_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "checkpoints"
    write_state(folder, "one", 1)
    newest = write_state(folder, "two", 2)
    assert value_of(load_weights_from(tmp_path)) == 2
    (newest / "state.json").write_text("{}")
    assert value_of(load_weights_from(tmp_path)) == 1
    assert "damaged" in caplog.text
    save_weights(folder / FINAL_WEIGHTS_FILE, make(9))
    assert value_of(load_weights_from(tmp_path)) == 9


def test_averaged_weights_are_used_if_requested(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "checkpoints").mkdir()
    final = tmp_path / "checkpoints" / FINAL_WEIGHTS_FILE
    save_weights(final, make(1))
    assert value_of(load_weights_from(final, try_ema=True)) == 1
    assert "no averaged weights; using the ordinary weights" in caplog.text
    with pytest.raises(CheckpointError, match="has no averaged weights\n  use the other weights"):
        load_weights_from(tmp_path, try_ema="required")
    save_weights(tmp_path / "checkpoints" / AVERAGED_WEIGHTS_FILE, make(2))
    assert value_of(load_weights_from(tmp_path, try_ema="required")) == 2
    assert (
        value_of(load_weights_from(final.with_name(AVERAGED_WEIGHTS_FILE), try_ema="required")) == 2
    )
    assert value_of(load_weights_from(tmp_path)) == 1


@pytest.mark.parametrize("name", ["", "gone", "gone.safetensors"])
def test_missing_weights_are_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=r"no such file|neither a run that has weights"):
        load_weights_from(tmp_path / name)


@pytest.mark.parametrize("pattern", ["head.*", "head"])
def test_excluded_names_keep_their_values(tmp_path: Path, pattern: str) -> None:
    path = write_state(tmp_path, "a", 1)
    model = make(head=5)
    with pytest.raises(CheckpointError, match="does not fit the model"):
        init_weights(model, path)
    mismatch = init_weights(model, path, exclude=[pattern])
    assert mismatch.missing == ()
    assert float(model.get_parameter("body.bias").detach()[0]) == 1
    assert float(model.get_parameter("head.bias").detach()[0]) == 0
    with pytest.raises(CheckpointError, match=r"no name matches exclude: 'hed\.\*'\n.* body, head"):
        init_weights(make(), path, exclude=["hed.*"])


def test_patterns_match_names_without_wrappers(tmp_path: Path) -> None:
    save_weights(tmp_path / "a.safetensors", make(3))
    model = nn.Module()
    model.add_module("module", make())
    init_weights(model, tmp_path / "a.safetensors", exclude=["head.*"])
    assert float(model.get_parameter("module.body.bias").detach()[0]) == 3
    assert float(model.get_parameter("module.head.bias").detach()[0]) == 0


def test_unused_and_missing_names_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model = make()
    model.add_module("extra", nn.Linear(1, 1))
    small = nn.Sequential()
    small.add_module("body", nn.Linear(3, 4))
    small.add_module("old", nn.Linear(1, 1))
    save_weights(tmp_path / "a.safetensors", small)
    mismatch = init_weights(model, tmp_path / "a.safetensors", strict=False)
    assert mismatch.unexpected == ("old.bias", "old.weight")
    assert f"init_from: 2 of 6 tensors from {tmp_path / 'a.safetensors'}" in caplog.text
    assert "init_from: kept as built: head.weight, head.bias, extra.weight" in caplog.text
    assert "init_from: not used: old.bias, old.weight" in caplog.text
