"""Tests of the interface of metrics."""

from __future__ import annotations

from typing import Any

import pytest

from engine.parts import fit, make_run
from epochal.engine import Metric


class Largest(Metric):
    """The largest output, which is no mean over batches."""

    def reset(self) -> None:
        self.value = float("-inf")

    def update(self, out: Any, batch: Any) -> None:
        assert not out["sum"].requires_grad or out["sum"].grad_fn is not None
        self.value = max(self.value, float(out["sum"].detach().max()))

    def compute(self) -> float | dict[str, float]:
        return self.value


class Both(Largest):
    on = ("train", "val")

    def compute(self) -> float | dict[str, float]:
        return {"max": self.value, "double": 2 * self.value}


def test_the_interface_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Metric()


def test_a_metric_is_computed_on_val_and_test_by_default() -> None:
    result = fit(make_run(parts={"metrics": {"top": Largest()}}, for_="1ep"))
    assert "val/top" in result.metrics
    assert "train/epoch/top" not in result.metrics


def test_keys_of_several_values_are_appended_to_the_name() -> None:
    metrics = fit(make_run(parts={"metrics": {"top": Both()}}, for_="1ep")).metrics
    assert metrics["val/top/double"] == 2 * metrics["val/top/max"]
    assert metrics["train/epoch/top/double"] == 2 * metrics["train/epoch/top/max"]


def test_an_evaluation_inside_an_epoch_does_not_reset_training_metrics() -> None:
    values = [
        fit(make_run(parts={"metrics": {"top": Both()}}, for_="1ep", eval_every=every)).metrics
        for every in (0, "1st")
    ]
    assert values[0]["train/epoch/top/max"] == values[1]["train/epoch/top/max"]
