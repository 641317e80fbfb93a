"""Tests of telling people where the time went."""

from __future__ import annotations

import pytest

from epochal.records.times import advise, describe_device_time, format_time, share_out


def test_parts_come_by_size_and_small_ones_together_as_the_last() -> None:
    times = {"data wait": 30.0, "hooks/Console": 1.0, "steps": 68.0, "hooks/Banner": 0.3}
    times |= {"saving": 0.4, "other": 0.3}
    names = [(one.name, round(one.seconds, 6)) for one in share_out(times)]
    assert names == [("steps", 68), ("data wait", 30), ("Console", 1), ("other", 1)]
    assert sum(one.share for one in share_out(times)) == pytest.approx(1)


def test_a_run_that_took_no_time_has_no_parts() -> None:
    assert share_out({}) == []
    assert share_out({"steps": 0.0}) == []
    assert advise({}, {}) == ""


@pytest.mark.parametrize(
    ("part", "share", "advice"),
    [
        (
            "data wait",
            0.43,
            "the run waited for data 43% of the time: raise data.train.workers, or keep small "
            "data in memory with ep.data.Tensors",
        ),
        ("hooks/Probe", 0.2, "Probe took 20% of the time: let it act less often with every:"),
        ("hooks/Console", 0.2, "Console took 20% of the time: raise log.console_every"),
        (
            "evaluation",
            0.4,
            "evaluation took 40% of the time: evaluate less often with train.eval_every",
        ),
        ("saving", 0.2, "saving took 20% of the time: save less often, or to a faster disk"),
        (
            "capture",
            0.3,
            "capture took 30% of the time: that pays in longer runs, and engine.step: eager "
            "leaves it out",
        ),
        ("start-up", 0.4, "start-up took 40% of the time: longer runs will hardly notice"),
        ("evaluation", 0.2, "nothing stands out"),
    ],
)
def test_the_largest_part_that_is_too_large_gets_advice(
    part: str, share: float, advice: str
) -> None:
    times = {"steps": 100 * (1 - share), part: 100 * share}
    assert advise(times, {}) == advice


def test_a_device_that_waits_for_the_host_gets_advice() -> None:
    device = {"samples": 10, "behind": 0.2, "step_seconds": 0.001}
    assert advise({"steps": 10}, device) == (
        "the device waited for the host in 80% of the steps looked at: "
        "engine.step: auto or graph takes work off the host"
    )
    assert advise({"steps": 10}, device | {"behind": 0.9}) == "nothing stands out"


def test_a_step_that_is_captured_already_is_not_recommended() -> None:
    device = {"samples": 10, "behind": 0.2, "step_seconds": 0.001, "captured": 1.0}
    assert advise({"steps": 10}, device) == (
        "the device waited for the host in 80% of the steps looked at: "
        "larger batches or fewer hooks take work off the host"
    )


def test_a_very_short_run_gets_no_advice() -> None:
    assert advise({"start-up": 1.5}, {}) == "too short a run to say what slows it down"


def test_the_device_is_described_in_words() -> None:
    device = {"samples": 10, "behind": 0.9, "step_seconds": 0.0335}
    assert describe_device_time(device) == "busy in 90% of the steps looked at, 33.5 ms a step"
    assert describe_device_time(device | {"behind": 0}) == "waits for the host, 33.5 ms a step"
    assert describe_device_time({}) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00006, "60 µs"),
        (0.0123, "12.3 ms"),
        (0.5, "0.50 s"),
        (42.123, "42.1 s"),
        (7425, "2:03:45"),
    ],
)
def test_times_have_few_digits(seconds: float, text: str) -> None:
    assert format_time(seconds) == text
