"""Tests of epochal.records.metrics.time_spent."""

from __future__ import annotations

import pytest

from epochal.records.metrics.time_spent import (
    TimeShare,
    TimeSpent,
    add_times,
    compute_time_shares,
    describe_attempts,
    describe_device_time,
    format_precise_time,
    parse_time_spent,
    suggest_speedup,
    sum_time_spent,
)


def test_parts_are_sorted_by_size_and_small_ones_are_summed_up() -> None:
    times = {"data wait": 30.0, "hooks/Console": 1.0, "steps": 68.0, "hooks/Banner": 0.3}
    times |= {"saving": 0.4, "other": 0.3}
    names = [(one.name, round(one.seconds, 6)) for one in compute_time_shares(times)]
    assert names == [("steps", 68), ("data wait", 30), ("Console", 1), ("other", 1)]
    assert sum(one.share for one in compute_time_shares(times)) == pytest.approx(1)


def test_the_start_up_is_one_part_with_a_note() -> None:
    times = {"steps": 6.0, "start-up/imports": 3.0, "start-up/checks": 0.01, "start-up": 0.99}
    assert compute_time_shares(times)[1] == TimeShare(
        "start-up", 4.0, 0.4, "mostly imports, 3.00 s"
    )
    assert compute_time_shares({"steps": 6.0, "start-up": 4.0})[1].note == ""
    assert suggest_speedup(times, {}).startswith("start-up took 40% of the time")


def test_times_are_added_by_part() -> None:
    first, second = {"steps": 6.0, "saving": 1.0}, {"steps": 2.0, "evaluation": 3.0}
    assert add_times(first, second) == {"steps": 8, "evaluation": 3, "saving": 1}
    joined = sum_time_spent([TimeSpent(first, 0.5, 1), TimeSpent(second, 1.0, 1)])
    assert joined == TimeSpent(add_times(first, second), 1.5, 2)


def test_the_accuracy_of_a_time_is_described() -> None:
    killed = "at least, since {} killed before recording the last seconds"
    for spent, attempts, text in [
        (TimeSpent(), 1, ""),
        (TimeSpent(), 3, "over 3 attempts"),
        (TimeSpent({}, 2.5), 2, "over 2 attempts; 2.50 s of it for steps that do not count"),
        (TimeSpent({}, 0.0, 1), 2, f"over 2 attempts; {killed.format('one was')}"),
        (TimeSpent({}, 0.0, 2), 1, killed.format("2 were")),
    ]:
        assert describe_attempts(spent, attempts) == text


def test_damaged_times_are_zero() -> None:
    for fields in [
        {},
        {"times": 3},
        {"times": {"steps": "?", "x": float("nan")}, "killed": "a"},
        {"times": {"steps": 10**400}, "redone_seconds": 10**400},
    ]:
        assert parse_time_spent(fields) == TimeSpent()
        assert parse_time_spent(TimeSpent({"steps": 1.0}, 0.5, 2).to_fields()) == TimeSpent(
            {"steps": 1.0}, 0.5, 2
        )


def test_a_run_without_time_has_no_parts() -> None:
    assert compute_time_shares({}) == []
    assert compute_time_shares({"steps": 0.0}) == []
    assert suggest_speedup({}, {}) == ""


def test_the_largest_notable_part_gets_advice() -> None:
    data = "give the loader more workers (num_workers, or data.train.workers), or keep small "
    data += "data in memory with ep.data.Tensors"
    capture = "worthwhile in longer runs; engine.step: eager disables it"
    for part, share, advice in [
        ("data wait", 0.43, f"the run waited for data 43% of the time: {data}"),
        ("hooks/Probe", 0.2, "Probe took 20% of the time: call it less often with every:"),
        ("hooks/Console", 0.2, "Console took 20% of the time: raise log.console_every"),
        (
            "evaluation",
            0.4,
            "evaluation took 40% of the time: evaluate less often with train.eval_e",
        ),
        ("saving", 0.2, "saving took 20% of the time: save less often, or to a faster disk"),
        ("capture", 0.3, f"capture took 30% of the time: {capture}"),
        ("start-up", 0.4, "start-up took 40% of the time: not significant in longer runs"),
        ("evaluation", 0.2, "no bottleneck found"),
    ]:
        times = {"steps": 100 * (1 - share), part: 100 * share}
        assert suggest_speedup(times, {}).startswith(advice)
    for times in ({"start-up": 1.5}, {"start-up/imports": 30.0, "steps": 1.9}):
        assert suggest_speedup(times, {}) == "the run is too short to find what slows it down"


def test_a_device_that_waits_for_the_host_gets_advice() -> None:
    device = {"samples": 10, "behind": 0.2, "step_seconds": 0.001}
    waited = "the device waited for the host in 80% of the sampled steps: "
    for facts, advice in [
        ({}, f"{waited}engine.step: auto or graph takes work off the host"),
        ({"captured": 1.0}, f"{waited}larger batches or fewer hooks take work off the host"),
        ({"behind": 0.9}, "no bottleneck found"),
    ]:
        assert suggest_speedup({"steps": 10}, device | facts) == advice


def test_the_device_is_described() -> None:
    device = {"samples": 10, "behind": 0.9, "step_seconds": 0.0335}
    assert describe_device_time(device) == "busy in 90% of the sampled steps, 33.5 ms a step"
    assert describe_device_time(device | {"behind": 0}) == "waits for the host, 33.5 ms a step"
    assert describe_device_time({}) == ""


def test_precise_times_have_three_digits() -> None:
    for seconds, text in [
        (0.00006, "60 µs"),
        (0.0123, "12.3 ms"),
        (0.5, "0.50 s"),
        (42.123, "42.1 s"),
        (7425, "2:03:45"),
    ]:
        assert format_precise_time(seconds) == text
