from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import distributed, nn

from epochal.engine.device.precision import sync_batchnorm

if TYPE_CHECKING:
    import pytest


def test_one_process_needs_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with caplog.at_level(logging.INFO):
        assert sync_batchnorm(model) is model
    assert type(model[1]) is nn.BatchNorm1d
    assert "engine.sync_batchnorm: does nothing" in caplog.text


def test_several_processes_share_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = model[1].weight
    synced = sync_batchnorm(model)
    assert isinstance(synced, nn.Sequential)
    assert type(synced[1]) is nn.SyncBatchNorm
    assert torch.equal(synced[1].weight, weight)
