"""Several runs on one GPU at once, each in its own process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch

from forked import run
from small_project import run_folders

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_runs_share_a_leased_gpu(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "leases" / "here"))
    words = ("config.yaml", "config.yaml", "--devices", "0", "--per-device", "2")
    done = run("-m", "epochal", "run", *words, cwd=shop)
    assert done.returncode == 0, done.stdout + done.stderr
    folders = run_folders(shop)
    facts = [json.loads((one / "run.json").read_text()) for one in folders]
    assert [one["device"]["device"] for one in facts] == ["cuda:0", "cuda:0"]
    visible = [one["machine"]["environment"]["CUDA_VISIBLE_DEVICES"] for one in facts]
    assert all(name.startswith("GPU-") for name in visible)
    first, second = ((one / "checkpoints" / "final.safetensors").read_bytes() for one in folders)
    assert first == second
