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
    meter.flush()
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


def counted_lists(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the tensors that are brought to the host."""
    sizes: list[int] = []
    original = torch.Tensor.tolist

    def counted(tensor: torch.Tensor) -> object:
        sizes.append(tensor.numel())
        return original(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    return sizes


def test_on_a_device_nothing_is_read_until_a_window_asks_and_then_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The host's memory stands in for a device here."""
    meter = Meter(is_async=True)
    window = meter.window()
    transfers = counted_lists(monkeypatch)
    meter.add({"loss": (torch.tensor(1.0), 2), "acc": (0.5, torch.tensor(2))})
    meter.add({"loss": (torch.tensor(4.0), 1), "acc": (1.0, torch.tensor(2))})
    assert transfers == []
    assert window.read() == {"loss": 2.0, "acc": 0.75}
    assert len(transfers) == 1


def test_on_the_cpu_means_that_may_come_later_come_at_once() -> None:
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
        self.noticed: list[str] = []
        self.meter = Meter(is_async=True, wake=self._wake, notice=self._notice)
        self.often, self.seldom = self.meter.window(), self.meter.window()
        self.taken: list[tuple[str, dict[str, float]]] = []

    def _wake(self) -> None:
        self.woken += 1

    def _notice(self, name: str, mean: float) -> None:
        self.noticed.append(name)

    def add(self, value: float) -> None:
        self.meter.add({"loss": (torch.tensor(value), 1)})

    def ask(self, name: str) -> None:
        getattr(self, name).read_later(lambda means: self.taken.append((name, means)))


def test_late_means_are_those_of_the_moment_at_which_they_were_asked_for() -> None:
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


def test_those_who_ask_at_one_boundary_share_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    transfers = counted_lists(monkeypatch)
    late.add(1.0)
    late.ask("often")
    late.ask("seldom")
    late.add(3.0)
    late.meter.deliver()
    assert len(transfers) == 1
    assert late.taken == [("often", {"loss": 1.0}), ("seldom", {"loss": 1.0})]


def test_a_read_before_the_delivery_delivers_first_and_loses_nothing() -> None:
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


def test_several_requests_come_in_order() -> None:
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


def test_a_reader_that_reads_while_it_is_given_something_gets_what_came_after() -> None:
    late = Late()
    late.add(1.0)
    found: list[dict[str, float]] = []
    late.often.read_later(lambda means: found.extend([means, late.often.read()]))
    late.add(5.0)
    late.meter.deliver()
    assert found == [{"loss": 1.0}, {"loss": 5.0}]


def test_late_means_can_be_looked_at_without_beginning_anew() -> None:
    late = Late()
    late.add(1.0)
    late.often.peek_later(lambda means: late.taken.append(("peek", means)))
    late.meter.deliver()
    late.add(3.0)
    assert late.taken == [("peek", {"loss": 1.0})]
    assert late.often.read() == {"loss": 2.0}


def test_nothing_new_is_given_as_nothing() -> None:
    late = Late()
    late.ask("often")
    late.meter.deliver()
    assert late.taken == [("often", {})]


def test_a_reader_that_comes_meanwhile_sees_nothing_from_before() -> None:
    late = Late()
    late.add(1.0)
    late.ask("often")
    new = late.meter.window()
    assert late.taken == [("often", {"loss": 1.0})]
    late.add(7.0)
    assert new.read() == {"loss": 7.0}


def test_late_means_that_are_not_finite_are_noticed_when_they_arrive() -> None:
    late = Late()
    late.add(math.nan)
    late.ask("often")
    assert late.noticed == []
    late.meter.deliver()
    assert late.noticed == ["loss"]


def test_whether_code_of_others_was_called_is_told() -> None:
    late = Late()
    assert not late.meter.deliver()
    late.ask("often")
    assert late.meter.deliver()


def test_a_step_that_is_noted_can_be_counted_again() -> None:
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
def test_a_meter_goes_on_from_the_state_of_another(is_late: bool, was_late: bool) -> None:
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


def test_saving_adds_nothing_up_so_that_nothing_is_rounded_otherwise() -> None:
    meter = Meter()
    window = meter.window()
    for value in (0.1, 0.2, 0.3):
        meter.add_one("loss", torch.tensor(value), 3)
    series = meter.state_dict()["sums"]["series"]["loss"]
    assert series["values"].tolist() == torch.tensor([0.1, 0.2, 0.3]).tolist()
    assert window.state_dict() == {"name": "", "sums": {}, "counts": {}}


def test_a_window_that_a_state_does_not_know_begins_empty() -> None:
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


def test_a_taker_that_fails_takes_nothing_from_the_others_and_is_named() -> None:
    late = Late()
    late.add(1.0)
    late.seldom.read_later(fail)
    late.ask("often")
    late.add(3.0)
    late.ask("often")
    with pytest.raises(ValueError, match="no room for these") as caught:
        late.meter.deliver()
    assert late.taken == [("often", {"loss": 1.0}), ("often", {"loss": 3.0})]
    assert caught.value.__notes__ == [f"raised in {__name__}.fail, which received requested means"]
    assert not late.meter.deliver()


def test_every_taker_that_fails_is_told_of() -> None:
    late = Late()
    late.seldom.read_later(fail)
    late.often.read_later(fail)
    with pytest.raises(ValueError, match="no room for these") as caught:
        late.meter.deliver()
    assert caught.value.__notes__[1:] == ["after that: ValueError('no room for these')"]
