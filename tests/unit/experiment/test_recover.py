"""Tests of loading trained weights into a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import epochal as ep
from epochal.checkpoint import load_weights
from epochal.errors import CheckpointError, RecordError
from epochal.testing import TinyModel

if TYPE_CHECKING:
    from pathlib import Path


def is_filled(model: TinyModel, path: Path) -> bool:
    saved, found = load_weights(path), model.state_dict()
    return all(torch.equal(found[name], saved[name]) for name in saved)


def test_weights_of_a_run_or_file_are_loaded_into_a_model(
    shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = ep.run("config.yaml", overrides=["average={type: ema}"]).dir
    assert folder is not None
    own, averaged = (folder / "checkpoints" / f"final{ema}.safetensors" for ema in ("", "-ema"))
    for source in (folder, folder.name, "last"):
        model = TinyModel()
        ep.recover(model, source, weights="final")
        assert is_filled(model, averaged), source
        ep.recover(model, source, weights="final", try_ema=False)
        assert is_filled(model, own), source
    ep.recover(model, averaged)
    assert is_filled(model, averaged)
    ep.recover(model, folder, try_ema=False)
    best = ep.load(folder).state_dict()
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.state_dict().items())
    plain = ep.run("config.yaml").dir
    ep.recover(TinyModel(), plain)
    assert "has no averaged weights; using the ordinary weights" in caplog.text
    with pytest.raises(CheckpointError, match="has no averaged weights"):
        ep.recover(TinyModel(), plain, try_ema="required")


def test_weights_that_are_missing_or_do_not_fit_are_an_error(shop: Path) -> None:
    folder = ep.run("config.yaml").dir
    other = torch.nn.Linear(4, 3)
    with pytest.raises(CheckpointError, match="does not fit the model"):
        ep.recover(other, folder)
    with pytest.raises(CheckpointError, match=r"gone\.safetensors: no such file"):
        ep.recover(other, "gone.safetensors")
    with pytest.raises(RecordError, match="gone"):
        ep.recover(other, "gone")
    model = TinyModel()
    mismatch = ep.recover(model, folder, exclude=["linear.bias"])
    assert (mismatch.missing, mismatch.unexpected) == ((), ())
