"""Tests of weighted means and their windows."""

from __future__ import annotations

import math

import pytest
import torch

from epochal.engine.meters import Meter


def test_means_are_weighted_by_counts() -> None:
    meter = Meter()
    window = meter.window()
    meter.add({"loss": (1.0, 3), "acc": (0.5, 3)})
    meter.add({"loss": (5.0, 1)})
    assert window.read() == {"loss": 2.0, "acc": 0.5}


def test_reading_begins_a_new_window_and_peeking_does_not() -> None:
    meter = Meter()
    window = meter.window()
    meter.add({"loss": (1.0, 1)})
    assert window.peek() == window.read() == {"loss": 1.0}
    assert window.read() == {}


def test_readers_do_not_disturb_each_other() -> None:
    meter = Meter()
    often, seldom = meter.window(), meter.window()
    means = []
    for value in (1.0, 2.0, 3.0, 6.0):
        meter.add({"loss": (value, 1)})
        means.append(often.read()["loss"])
    assert means == [1.0, 2.0, 3.0, 6.0]
    assert seldom.read() == {"loss": 3.0}


def test_a_reader_sees_nothing_from_before_it_came() -> None:
    meter = Meter()
    meter.add({"loss": (1.0, 1)})
    late = meter.window()
    meter.add({"loss": (3.0, 1)})
    assert late.read() == {"loss": 3.0}


def test_a_value_that_is_not_finite_spoils_only_its_window() -> None:
    meter = Meter()
    window, whole = meter.window(), meter.window()
    meter.add({"loss": (math.nan, 1)})
    assert math.isnan(window.read()["loss"])
    meter.add({"loss": (1.0, 1)})
    assert window.read() == {"loss": 1.0}
    assert math.isnan(whole.read()["loss"])


def test_what_is_not_finite_is_noticed_when_it_is_read() -> None:
    noticed: list[tuple[str, float]] = []
    meter = Meter(notice=lambda name, mean: noticed.append((name, mean)))
    window = meter.window()
    meter.add({"loss": (math.inf, 2), "acc": (0.5, 1)})
    assert noticed == []
    window.read()
    meter.add({"loss": (1.0, 1)})
    window.read()
    assert noticed == [("loss", math.inf)]


@pytest.mark.parametrize("count", [0, -1, torch.tensor(0)])
def test_entries_without_items_are_ignored(count: float) -> None:
    meter = Meter()
    window = meter.window()
    meter.add({"loss": (7.0, count)})
    assert window.read() == {}


def test_a_closed_window_collects_no_more() -> None:
    meter = Meter()
    window = meter.window()
    window.close()
    meter.add({"loss": (1.0, 1)})
    meter.fold()
    assert window.peek() == {}


def test_tensors_and_numbers_may_be_mixed_and_gradients_are_left_behind() -> None:
    meter = Meter()
    window = meter.window()
    loss = torch.tensor(2.0, requires_grad=True) * 1
    meter.add({"loss": (loss, torch.tensor(3))})
    meter.add({"loss": (4.0, 1)})
    assert window.read() == {"loss": 2.5}


def test_sums_on_the_cpu_have_double_precision() -> None:
    meter = Meter()
    window = meter.window()
    for _ in range(10_000):
        meter.add_one("loss", torch.tensor(0.1), 1)
    assert window.read()["loss"] == pytest.approx(torch.tensor(0.1).item(), rel=1e-12)


def test_on_a_device_nothing_is_read_until_a_window_asks_and_then_once() -> None:
    """A CPU tensor stands in for a device here: sums must stay tensors until the read."""
    meter = Meter("cuda")
    window = meter.window()
    meter.add({"loss": (torch.tensor(1.0), 2), "acc": (0.5, torch.tensor(2))})
    meter.add({"loss": (torch.tensor(4.0), 1), "acc": (1.0, torch.tensor(2))})
    transfers = []
    original = torch.Tensor.tolist

    def counted(tensor: torch.Tensor) -> object:
        transfers.append(tensor.numel())
        return original(tensor)

    torch.Tensor.tolist = counted
    try:
        assert window.read() == {"loss": 2.0, "acc": 0.75}
    finally:
        torch.Tensor.tolist = original
    assert len(transfers) == 1
