"""Tests of weighted means and their windows."""

from __future__ import annotations

import math

import pytest
import torch

from epochal.engine.measure.meter import Meter, Window


def test_means_are_weighted_by_counts() -> None:
    meter = Meter()
    window = meter.window()
    meter.add({"loss": (1.0, 3), "acc": (0.5, 3)})
    meter.add({"loss": (5.0, 1)})
    assert window.read() == {"loss": 2.0, "acc": 0.5}


def test_read_empties_the_window_and_peek_does_not() -> None:
    meter = Meter()
    window = meter.window()
    meter.add({"loss": (1.0, 1)})
    assert window.peek() == window.read() == {"loss": 1.0}
    assert window.read() == {}


def test_windows_are_independent() -> None:
    meter = Meter()
    often, seldom = meter.window(), meter.window()
    means = []
    for value in (1.0, 2.0, 3.0, 6.0):
        meter.add({"loss": (value, 1)})
        means.append(often.read()["loss"])
    assert means == [1.0, 2.0, 3.0, 6.0]
    assert seldom.read() == {"loss": 3.0}


def test_a_window_starts_empty() -> None:
    meter = Meter()
    meter.add({"loss": (1.0, 1)})
    late = meter.window()
    meter.add({"loss": (3.0, 1)})
    assert late.read() == {"loss": 3.0}


def test_a_nonfinite_value_affects_only_its_window() -> None:
    meter = Meter()
    window, whole = meter.window(), meter.window()
    meter.add({"loss": (math.nan, 1)})
    assert math.isnan(window.read()["loss"])
    meter.add({"loss": (1.0, 1)})
    assert window.read() == {"loss": 1.0}
    assert math.isnan(whole.read()["loss"])


def test_nonfinite_values_are_noticed_when_they_are_read() -> None:
    noticed: list[tuple[str, float]] = []
    meter = Meter(notice=lambda name, mean: noticed.append((name, mean)))
    window = meter.window()
    meter.add({"loss": (math.inf, 2), "acc": (0.5, 1)})
    assert noticed == []
    window.read()
    meter.add({"loss": (1.0, 1)})
    window.read()
    assert noticed == [("loss", math.inf)]


def test_a_closed_window_stays_empty() -> None:
    meter = Meter()
    window = meter.window()
    window.close()
    meter.add({"loss": (1.0, 1)})
    meter.flush()
    assert window.peek() == {}


def counted_lists(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the tensors that are brought to the host."""
    sizes: list[int] = []
    original = torch.Tensor.tolist

    def counted(tensor: torch.Tensor) -> object:
        sizes.append(tensor.numel())
        return original(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    return sizes


def test_a_device_is_read_once_per_read_of_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uses host memory as the device."""
    meter = Meter(is_async=True)
    window = meter.window()
    transfers = counted_lists(monkeypatch)
    meter.add({"loss": (torch.tensor(1.0), 2), "acc": (0.5, torch.tensor(2))})
    meter.add({"loss": (torch.tensor(4.0), 1), "acc": (1.0, torch.tensor(2))})
    assert transfers == []
    assert window.read() == {"loss": 2.0, "acc": 0.75}
    assert len(transfers) == 1


def test_on_the_cpu_later_means_come_at_once() -> None:
    woken: list[str] = []
    meter = Meter(wake=lambda: woken.append("woken"))
    window = meter.window()
    meter.add({"loss": (torch.tensor(2.0), 1)})
    taken: list[dict[str, float]] = []
    window.peek_later(taken.append)
    window.read_later(taken.append)
    window.read_later(taken.append)
    assert taken == [{"loss": 2.0}, {"loss": 2.0}, {}]
    assert woken == []


class Late:
    """A meter that behaves as on a device, and what two of its windows were given."""

    def __init__(self) -> None:
        self.woken = 0
        self.meter = Meter(is_async=True, wake=self._wake)
        self.often, self.seldom = self.meter.window(), self.meter.window()
        self.taken: list[tuple[str, dict[str, float]]] = []

    def _wake(self) -> None:
        self.woken += 1

    def add(self, value: float) -> None:
        self.meter.add({"loss": (torch.tensor(value), 1)})

    def ask(self, name: str) -> None:
        getattr(self, name).read_later(lambda means: self.taken.append((name, means)))


def test_requested_means_end_at_the_request() -> None:
    late = Late()
    late.add(1.0)
    late.ask("often")
    late.add(5.0)
    assert late.taken == []
    assert late.woken == 1
    late.meter.deliver()
    assert late.taken == [("often", {"loss": 1.0})]
    late.meter.deliver()
    assert len(late.taken) == 1
    assert late.often.read() == {"loss": 5.0}
    assert late.seldom.read() == {"loss": 3.0}


def test_requests_at_one_boundary_share_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    transfers = counted_lists(monkeypatch)
    late.add(1.0)
    late.ask("often")
    late.ask("seldom")
    late.add(3.0)
    late.meter.deliver()
    assert len(transfers) == 1
    assert late.taken == [("often", {"loss": 1.0}), ("seldom", {"loss": 1.0})]


def test_a_read_delivers_pending_requests_first() -> None:
    late = Late()
    late.add(1.0)
    late.ask("often")
    late.add(3.0)
    assert late.often.peek() == {"loss": 3.0}
    assert late.taken == [("often", {"loss": 1.0})]
    assert late.often.read() == {"loss": 3.0}
    assert late.seldom.read() == {"loss": 2.0}
    late.meter.deliver()
    assert len(late.taken) == 1


def test_requests_are_delivered_in_order() -> None:
    late = Late()
    for value in (1.0, 2.0, 3.0):
        late.add(value)
        late.ask("often")
    late.ask("seldom")
    late.meter.deliver()
    assert late.taken == [
        ("often", {"loss": 1.0}),
        ("often", {"loss": 2.0}),
        ("often", {"loss": 3.0}),
        ("seldom", {"loss": 2.0}),
    ]


def test_a_read_inside_a_delivery_gets_later_values() -> None:
    late = Late()
    late.add(1.0)
    found: list[dict[str, float]] = []
    late.often.read_later(lambda means: found.extend([means, late.often.read()]))
    late.add(5.0)
    late.meter.deliver()
    assert found == [{"loss": 1.0}, {"loss": 5.0}]


def test_deliver_returns_whether_user_code_was_called() -> None:
    late = Late()
    assert not late.meter.deliver()
    late.ask("often")
    assert late.meter.deliver()


def test_captured_additions_can_be_replayed() -> None:
    meter = Meter(is_async=True)
    window = meter.window()
    meter.add({"loss": (torch.tensor(1.0), 1), "lam": (2.0, 1)})
    with meter.capture_additions() as notes:
        meter.add_one("lam", 4.0, 1)
    meter.replay_additions(notes)
    assert list(meter.state_tensors()) == ["0"]
    assert window.read() == {"loss": 1.0, "lam": 3.0}


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("was_late", [False, True])
def test_a_meter_continues_from_a_checkpoint_of_either_kind(is_late: bool, was_late: bool) -> None:
    def build(is_late: bool) -> tuple[Meter, Window, Window]:
        meter = Meter(is_async=is_late)
        return meter, meter.window("a"), meter.window("b")

    meter, first, second = build(was_late)
    other, other_first, other_second = build(is_late)
    meter.add_one("loss", torch.tensor(0.1), 3)
    first.read()
    meter.add({"loss": (torch.tensor(0.7), 3), "acc": (0.5, 2), "n": (1.0, torch.tensor(2))})
    other.add_one("loss", torch.tensor(9.0), 1)  # is forgotten
    other.load_state_dict(meter.state_dict())
    for one in (meter, other):
        one.add_one("loss", torch.tensor(0.3), 7)
    assert other_first.read() == first.read()
    assert other_second.read() == second.read()


def test_a_checkpoint_keeps_single_values() -> None:
    meter = Meter()
    window = meter.window()
    for value in (0.1, 0.2, 0.3):
        meter.add_one("loss", torch.tensor(value), 3)
    series = meter.state_dict()["sums"]["series"]["loss"]
    assert series["values"].tolist() == torch.tensor([0.1, 0.2, 0.3]).tolist()
    assert window.state_dict() == {"name": "", "sums": {}, "counts": {}}


def test_a_window_missing_in_the_checkpoint_becomes_empty() -> None:
    meter, other = Meter(), Meter()
    meter.window("a")
    meter.add_one("loss", 1.0, 1)
    meter.flush()
    state = meter.state_dict()
    window = other.window("b")
    other.add_one("loss", 5.0, 1)
    other.flush()
    other.load_state_dict(state)
    assert window.read() == {}


def fail(means: dict[str, float]) -> None:
    raise ValueError("no room for these")


def test_failing_readers_are_named_and_the_others_get_their_means() -> None:
    late = Late()
    late.add(1.0)
    late.seldom.read_later(fail)
    late.seldom.read_later(fail)
    late.ask("often")
    late.add(3.0)
    late.ask("often")
    with pytest.raises(ValueError, match="no room for these") as caught:
        late.meter.deliver()
    assert late.taken == [("often", {"loss": 1.0}), ("often", {"loss": 3.0})]
    assert caught.value.__notes__ == [
        f"raised in {__name__}.fail, which received requested means",
        "after that: ValueError('no room for these')",
    ]
    assert not late.meter.deliver()
