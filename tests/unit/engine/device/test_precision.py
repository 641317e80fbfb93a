"""Tests of the number format in which a run computes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine.device.precision import Precision, allowing_tf32, resolve_dtype, sync_batchnorm
from epochal.engine.execute import execute
from epochal.engine.runner import Predict, Test
from epochal.errors import ConfigError


class Watching(Sums):
    """Notes the number format of outputs, of losses and of metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[torch.dtype]] = {}

    def _note(self, where: str, value: Tensor) -> None:
        self.seen.setdefault(where, set()).add(value.dtype)

    def batch_forward(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        out = super().batch_forward(model, batch)
        self._note("train" if model.training else "val", out["sum"])
        return out

    def batch_loss(self, out: Any, batch: Any) -> Any:
        losses = super().batch_loss(out, batch)
        self._note("loss", losses["loss"][0])
        self._note("product", out["sum"].T @ out["sum"])
        return losses


def test_training_and_evaluation_compute_in_the_chosen_format() -> None:
    for name, dtype in [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)]:
        task, model = Watching(), adder()
        fit(make_run(task, model, for_="1ep", engine={"precision": name}, eval_loss=True))
        assert task.seen["train"] == task.seen["val"] == task.seen["product"] == {dtype}, name
        assert task.seen["loss"] == {torch.float32}, name
        assert weights(model).dtype == torch.float32, name


def test_testing_computes_in_the_chosen_format_too() -> None:
    task = Watching()
    run = make_run(task, engine={"precision": "bf16"}, eval_loss=True)
    execute(run, Test(), raise_errors=True)
    assert task.seen["val"] == task.seen["product"] == {torch.bfloat16}


def test_predictions_are_made_in_the_chosen_format_too() -> None:
    task = Watching()
    task.predict_loader = task.val_loader
    run = make_run(task, engine={"precision": "bf16"})
    execute(run, Predict(), raise_errors=True)
    assert task.seen["val"] == {torch.bfloat16}


def test_bf16_is_a_hand_written_loop_under_autocast() -> None:
    model, by_hand = adder(), adder()
    task = Sums(12, shuffle=False, val=0)
    fit(make_run(task, model, for_="2ep", engine={"precision": "bf16"}))
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for _ in range(2):
        for batch in task.train_loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss, _ = task.batch_loss(task.batch_forward(by_hand, batch), batch)["loss"]
            loss.backward()
            optimizer.step()
    assert torch.equal(weights(model), weights(by_hand))


def test_fp32_needs_no_context() -> None:
    precision = Precision()
    assert precision.autocast is None
    assert not precision.is_scaled
    with precision.context():
        assert not torch.is_autocast_enabled("cpu")


def test_fp64_casts_the_floats_of_batches() -> None:
    task = Watching()
    fit(make_run(task, adder().double(), for_="1ep", engine={"precision": "fp64"}))
    assert task.seen["train"] == {torch.float64}


def test_a_dtype_that_contradicts_is_refused() -> None:
    for name, dtype, message in [
        (
            "fp64",
            torch.float32,
            r"engine.precision: 'fp64' contradicts model.dtype 'float32'\n"
            r"  remove model.dtype, or write float64",
        ),
        (
            "bf16",
            torch.float64,
            r"engine.precision: 'bf16' contradicts model.dtype 'float64'\n"
            r"  remove engine.precision, or compute with model.dtype: float32",
        ),
    ]:
        with pytest.raises(ConfigError, match=message):
            Precision(name, "cpu", dtype)


def test_the_dtype_of_the_weights_follows() -> None:
    for name, dtype, result in [
        ("fp64", None, torch.float64),
        ("fp64", torch.float64, torch.float64),
        ("fp32", torch.float64, torch.float64),
        ("bf16", torch.float32, torch.float32),
        ("tf32", None, None),
    ]:
        assert resolve_dtype(name, dtype) == result


def test_tf32_holds_for_the_run_only() -> None:
    seen = []
    run = make_run(for_="1st", engine={"precision": "tf32"})
    run.on("step_end", lambda: seen.append(torch.get_float32_matmul_precision()))
    fit(run)
    assert seen == ["high"]
    assert torch.get_float32_matmul_precision() == "highest"


def test_other_formats_leave_float32_alone() -> None:
    with allowing_tf32("bf16"):
        assert torch.get_float32_matmul_precision() == "highest"


def test_the_setting_for_convolutions_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with allowing_tf32("tf32"):
        assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_one_process_needs_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with caplog.at_level(logging.INFO):
        assert sync_batchnorm(model, torch.device("cpu")) is model
    assert type(model[1]) is nn.BatchNorm1d
    assert "engine.sync_batchnorm: does nothing" in caplog.text


def test_several_processes_share_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = model[1].weight
    synced = sync_batchnorm(model, torch.device("cuda"))
    assert isinstance(synced, nn.Sequential)
    assert type(synced[1]) is nn.SyncBatchNorm
    assert torch.equal(synced[1].weight, weight)
    with pytest.raises(ConfigError, match="torch synchronises batch norm on GPUs only"):
        sync_batchnorm(model, torch.device("cpu"))
    linear = nn.Linear(2, 2)
    assert sync_batchnorm(linear, torch.device("cpu")) is linear
