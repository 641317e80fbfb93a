"""Tests of the hook that records samples of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from epochal.inspect.data_sheet import DataSheet
from epochal.inspect.sample_page import draw_sheet
from epochal.testing import TinyModel, TinyTask, execute_run, tiny_run


class Noisy(Dataset):  # type: ignore[type-arg]  # reason: torch's generic at run time
    """Samples with random numbers."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.rand(4), "label": index % 3}


def test_the_data_become_media_of_the_run_and_training_stays_the_same() -> None:
    saved: dict[str, Any] = {}
    results, weights = [], []
    for hooks in ((), (DataSheet(samples=5, show=3),)):
        torch.manual_seed(0)
        task, model = TinyTask(), TinyModel()
        task.train_loader = DataLoader(Noisy(), 4, shuffle=True)
        run = tiny_run(*hooks, task=task, model=model)
        run.save_media = lambda name, data, **_: saved.update({name: data})  # type: ignore[method-assign]
        results.append(execute_run(run))
        weights.append(model.state_dict())
    assert all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())
    assert results[0].metrics == results[1].metrics
    assert set(saved) >= {"data/train/fields", "data/train/samples", "data/val/fields"}
    assert saved["data/train/fields"].startswith("field,type,shapes,min,max,mean,missing\nx,float")
    assert saved["data/page"].startswith("<!doctype html>")


def test_pictures_of_any_size_and_colour_make_one_sheet() -> None:
    samples = [
        {"image": np.zeros((3, 9, 12), np.uint8)},
        {"image": np.zeros((1, 20, 8), np.uint8)},
        {"label": 3},
    ]
    sheet = draw_sheet(samples)
    assert sheet is not None
    assert sheet.shape == (22, 28, 3)
    assert draw_sheet(samples[2:]) is None
