"""Tests of epochal.engine.tracking.tracker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from epochal.engine.create_run import create_run
from epochal.engine.parts import Parts
from epochal.engine.run.engine_run import Environment
from epochal.records import RunFolder, RunWriter
from epochal.records.folder.media import encode_png, read_media
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    parts = Parts(task=TinyTask(), model=TinyModel())
    return create_run(parts, environment=Environment(writer=RunWriter(RunFolder(tmp_path))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_tensor_is_an_image(run: Run, tmp_path: Path, dtype: torch.dtype) -> None:
    run.step = 7
    image = torch.zeros(3, 8, 9, dtype=dtype)
    path = run.save_media("samples", image.requires_grad_(dtype.is_floating_point))
    assert path == tmp_path / "media" / "image" / "samples-000007.png"
    assert path.read_bytes() == encode_png(image.detach().to(torch.uint8).permute(1, 2, 0).numpy())


def test_a_sparse_tensor_is_an_image(run: Run) -> None:
    image = torch.eye(8)
    path = run.save_media("samples", image.to_sparse())
    assert path is not None
    assert path.read_bytes() == encode_png((image * 255).to(torch.uint8)[:, :, None].numpy())


def test_another_step_may_be_named(run: Run, tmp_path: Path) -> None:
    run.save_media("note", "what came of it", step=3)
    run.save_media("speech", b"RIFF", kind="audio")
    assert [(one.kind, one.step) for one in read_media(tmp_path)] == [("audio", 0), ("text", 3)]


def test_run_without_a_record_keeps_nothing() -> None:
    run = create_run(Parts(task=TinyTask(), model=TinyModel()))
    assert run.save_media("note", "nowhere") is None
