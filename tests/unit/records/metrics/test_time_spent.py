"""Tests of telling people where the time went."""

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


def test_parts_come_by_size_and_small_ones_together_as_the_last() -> None:
    times = {"data wait": 30.0, "hooks/Console": 1.0, "steps": 68.0, "hooks/Banner": 0.3}
    times |= {"saving": 0.4, "other": 0.3}
    names = [(one.name, round(one.seconds, 6)) for one in compute_time_shares(times)]
    assert names == [("steps", 68), ("data wait", 30), ("Console", 1), ("other", 1)]
    assert sum(one.share for one in compute_time_shares(times)) == pytest.approx(1)


def test_the_start_up_is_one_part_with_a_note_of_what_it_was() -> None:
    times = {"steps": 6.0, "start-up/imports": 3.0, "start-up/checks": 0.01, "start-up": 0.99}
    assert compute_time_shares(times)[1] == TimeShare(
        "start-up", 4.0, 0.4, "mostly imports, 3.00 s"
    )
    assert compute_time_shares({"steps": 6.0, "start-up": 4.0})[1].note == ""
    assert suggest_speedup(times, {}).startswith("start-up took 40% of the time")


def test_the_parts_of_all_attempts_are_added_part_by_part() -> None:
    first, second = {"steps": 6.0, "saving": 1.0}, {"steps": 2.0, "evaluation": 3.0}
    assert add_times(first, second) == {"steps": 8, "evaluation": 3, "saving": 1}
    joined = sum_time_spent([TimeSpent(first, 0.5, 1), TimeSpent(second, 1.0, 1)])
    assert joined == TimeSpent(add_times(first, second), 1.5, 2)


def test_how_sure_the_time_of_a_run_is_comes_in_words() -> None:
    for spent, attempts, words in [
        (TimeSpent(), 1, ""),
        (TimeSpent(), 3, "over 3 attempts"),
        (TimeSpent({}, 2.5), 2, "over 2 attempts; 2.50 s of it for steps that do not count"),
        (
            TimeSpent({}, 0.0, 1),
            2,
            "over 2 attempts; at least, since one was killed before recording the last seconds",
        ),
        (
            TimeSpent({}, 0.0, 2),
            1,
            "at least, since 2 were killed before recording the last seconds",
        ),
    ]:
        assert describe_attempts(spent, attempts) == words


def test_what_is_damaged_took_no_time() -> None:
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


def test_a_run_that_took_no_time_has_no_parts() -> None:
    assert compute_time_shares({}) == []
    assert compute_time_shares({"steps": 0.0}) == []
    assert suggest_speedup({}, {}) == ""


def test_the_largest_part_that_is_too_large_gets_advice() -> None:
    for part, share, advice in [
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
    ]:
        times = {"steps": 100 * (1 - share), part: 100 * share}
        assert suggest_speedup(times, {}) == advice


def test_a_device_that_waits_for_the_host_gets_advice() -> None:
    device = {"samples": 10, "behind": 0.2, "step_seconds": 0.001}
    assert suggest_speedup({"steps": 10}, device) == (
        "the device waited for the host in 80% of the steps looked at: "
        "engine.step: auto or graph takes work off the host"
    )
    assert suggest_speedup({"steps": 10}, device | {"behind": 0.9}) == "nothing stands out"


def test_a_step_that_is_captured_already_is_not_recommended() -> None:
    device = {"samples": 10, "behind": 0.2, "step_seconds": 0.001, "captured": 1.0}
    assert suggest_speedup({"steps": 10}, device) == (
        "the device waited for the host in 80% of the steps looked at: "
        "larger batches or fewer hooks take work off the host"
    )


def test_a_very_short_run_gets_no_advice() -> None:
    words = "too short a run to say what slows it down"
    assert suggest_speedup({"start-up": 1.5}, {}) == words
    assert suggest_speedup({"start-up/imports": 30.0, "steps": 1.9}, {}) == words


def test_the_device_is_described_in_words() -> None:
    device = {"samples": 10, "behind": 0.9, "step_seconds": 0.0335}
    assert describe_device_time(device) == "busy in 90% of the steps looked at, 33.5 ms a step"
    assert describe_device_time(device | {"behind": 0}) == "waits for the host, 33.5 ms a step"
    assert describe_device_time({}) == ""


def test_times_have_few_digits() -> None:
    for seconds, text in [
        (0.00006, "60 µs"),
        (0.0123, "12.3 ms"),
        (0.5, "0.50 s"),
        (42.123, "42.1 s"),
        (7425, "2:03:45"),
    ]:
        assert format_precise_time(seconds) == text
